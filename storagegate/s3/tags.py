"""
The tags of an object in the header of a write::

    x-amz-tagging = [tag *("&" tag)]              URL-encoded
    tag           = key ["=" value]
"""

from functools import lru_cache

from storagegate.objects.tags import OBJECT_TAGS, Tags, checkedTags
from storagegate.s3.errors import invalidArgument
from storagegate.s3.names import decodePercent


# A client gives the same tags to many objects.
@lru_cache(maxsize=64)
def tagsOfHeader(header: bytes) -> Tags:
    """
    Parse C{x-amz-tagging}: the tags of an object.

    @param header: The value of the header; empty for no tags. Empty pairs are ignored.
    @raise S3Error: C{InvalidArgument} if it is not URL-encoded UTF-8.
    @raise DomainError: A tag is invalid.
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
