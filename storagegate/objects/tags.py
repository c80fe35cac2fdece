"""
The tags of objects and buckets.

Amazon's rules ("Categorizing your storage using tags") apply to all sources: a key has 1 to 128
UTF-16 units, a value up to 256, consisting of letters, numbers, blanks and C{+ - = . _ : / @}; keys
are unique and must not have Amazon's reserved prefix.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote_plus

from msgspec import Struct

from storagegate.objects import errors

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
    @raise InvalidTag: The error names the tag.
    @raise TooManyTags: There are more than the rules allow.
    """
    found: dict[str, str] = {}
    for key, value in pairs:
        if len(found) == rules.most:
            raise errors.TooManyTags(rules.tooMany)
        if not key or not isTagText(key, _KEY_UNITS):
            raise _invalid("The TagKey you have provided is invalid", key)
        if not isTagText(value, _VALUE_UNITS):
            raise errors.InvalidTag(
                "The TagValue you have provided is invalid", tagKey=key, tagValue=value
            )
        if key.lower().startswith(_RESERVED):
            raise _invalid(rules.reserved, key)
        if key in found:
            raise _invalid("Cannot provide multiple Tags with the same key", key)
        found[key] = value
    return found


def _invalid(message: str, key: str) -> errors.InvalidTag:
    return errors.InvalidTag(message, tagKey=key)


def isTagText(text: str, units: int) -> bool:
    """
    Return whether a text may be the key or the value of a tag.

    @param units: Largest number of UTF-16 units.
    """
    # A character beyond U+FFFF takes two UTF-16 units.
    if len(text) > units or len(text) + sum(each > "\uffff" for each in text) > units:
        return False
    # A table of 1 MB, which an idle daemon does not need.
    import unicodedata

    return all(each in _PUNCTUATION or unicodedata.category(each)[0] in "LNZ" for each in text)


def decodeTags(text: str) -> Tags:
    """
    Decode the stored tags of the catalog, which have already been checked.

    @param text: The result of L{encodeTags}.
    """
    return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


def encodeTags(tags: Tags) -> str:
    """Encode tags for a header, which is also the form in the catalog."""
    return "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in tags.items())
