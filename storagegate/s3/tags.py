"""
The tags of objects and buckets::

    x-amz-tagging = [tag *("&" tag)]              in a header, URL-encoded
    tag           = key ["=" value]

    <Tagging><TagSet> *(<Tag><Key>..</Key><Value>..</Value></Tag>) </TagSet></Tagging>

in the body of C{?tagging} and in the form field C{tagging}. Amazon's rules ("Categorizing your
storage using tags") apply to all sources: a key has 1 to 128 UTF-16 units, a value up to 256,
consisting of letters, numbers, blanks and C{+ - = . _ : / @}; keys are unique and must not have
Amazon's reserved prefix.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, quote_plus

from msgspec import Struct

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.names import decodePercent

Tags = Mapping[str, str]
"""Values by key, in their order."""

_KEY_UNITS, _VALUE_UNITS = 128, 256
_RESERVED = "aws:"
_PUNCTUATION = frozenset("+-=._:/@")


class TagRules(Struct, frozen=True):
    """
    The rules that differ between tags of objects and tags of buckets.

    @ivar most: The largest number of tags.
    @ivar tooMany: The message for too many tags.
    @ivar reserved: The message for a reserved key.
    """

    most: int
    tooMany: str
    reserved: str


OBJECT_TAGS = TagRules(
    10, "Object tags cannot be greater than 10", "Your TagKey cannot be prefixed with aws:"
)
BUCKET_TAGS = TagRules(
    50,
    "Bucket tag count cannot be greater than 50",
    "System tags cannot be added/updated by requester",
)


def checkedTags(pairs: Iterable[tuple[str, str]], rules: TagRules) -> Tags:
    """
    Check tags by Amazon's rules.

    @param pairs: Keys and values, in the order of the request.
    @param rules: The rules for the kind of target.
    @raise S3Error: C{InvalidTag}, naming the tag; C{BadRequest} for too many tags.
    """
    found: dict[str, str] = {}
    for key, value in pairs:
        if len(found) == rules.most:
            raise S3Error("BadRequest", rules.tooMany)
        if not key or not _isValid(key, _KEY_UNITS):
            raise _invalid("The TagKey you have provided is invalid", key)
        if not _isValid(value, _VALUE_UNITS):
            raise S3Error(
                "InvalidTag",
                "The TagValue you have provided is invalid",
                fields={"TagKey": key, "TagValue": value},
            )
        if key.lower().startswith(_RESERVED):
            raise _invalid(rules.reserved, key)
        if key in found:
            raise _invalid("Cannot provide multiple Tags with the same key", key)
        found[key] = value
    return found


def _invalid(message: str, key: str) -> S3Error:
    return S3Error("InvalidTag", message, fields={"TagKey": key})


def _isValid(text: str, units: int) -> bool:
    # A character beyond U+FFFF takes two UTF-16 units.
    if len(text) > units or len(text) + sum(each > "\uffff" for each in text) > units:
        return False
    # A table of 1 MB, which an idle daemon does not need.
    import unicodedata

    return all(each in _PUNCTUATION or unicodedata.category(each)[0] in "LNZ" for each in text)


# A client gives the same tags to many objects.
@lru_cache(maxsize=64)
def tagsOfHeader(header: bytes) -> Tags:
    """
    Parse C{x-amz-tagging}: the tags of an object.

    @param header: The value of the header; empty for no tags. Empty pairs are ignored.
    @raise S3Error: C{InvalidArgument} if it is not URL-encoded UTF-8, C{InvalidTag}.
    """
    pairs = []
    for pair in header.strip().split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            pairs.append((_decoded(header, key), _decoded(header, value)))
    return checkedTags(pairs, OBJECT_TAGS)


def _decoded(header: bytes, raw: bytes) -> str:
    try:
        return decodePercent(raw.replace(b"+", b" ")).decode()
    except ValueError:
        message = (
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query "
            "parameters without tag name duplicates."
        )
        raise invalidArgument("x-amz-tagging", header.decode("latin-1"), message) from None


def decodeTags(text: str) -> Tags:
    """
    Decode the stored tags of the catalog, which have already been checked.

    @param text: The result of L{encodeTags}.
    """
    return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


def encodeTags(tags: Tags) -> str:
    """Encode tags for a header, which is also the form in the catalog."""
    return "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in tags.items())
