"""
Headers that a presigned URL carries in its query.

SDKs move the C{x-amz-} headers of what they presign (C{x-amz-meta-*}, C{x-amz-acl},
C{x-amz-checksum-*}) into the query, in whatever case. There they are signed, and mean what the
header means.
"""

import re
from collections.abc import Mapping

from storagegate.s3.errors import invalidArgument

# Those of the signature itself. The SDK's checksum algorithm is a remark on a checksum that the
# body may never get: who uses the URL does not know of it.
_NOT_HEADERS = frozenset(
    {
        "x-amz-algorithm",
        "x-amz-content-sha256",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-security-token",
        "x-amz-signature",
        "x-amz-signedheaders",
    }
)
_NAME = re.compile(r"x-amz-[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)


def withHoisted(query: Mapping[str, str], headers: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """
    Add to a request's headers those that its query carries; a header that was sent wins.

    @param query: Decoded values by name.
    @param headers: Values by lower-case name.
    @raise S3Error: C{InvalidArgument} for what no header can be, and for two of one name.
    """
    found: dict[bytes, bytes] = {}
    for name, value in query.items():
        lower = name.lower()
        if not lower.startswith("x-amz-") or lower in _NOT_HEADERS:
            continue
        field = lower.encode()
        if _NAME.fullmatch(lower) is None or not value.isprintable() or field in found:
            raise invalidArgument(name, value, "The parameter cannot be used as a header")
        found[field] = value.encode()
    return {**found, **headers} if found else headers
