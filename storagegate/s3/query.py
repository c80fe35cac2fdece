"""
The query of an S3 request.

C{name=value} pairs between ampersands; a name without a value is a subresource, its value is
empty. Escapes are undone once and C{+} is a space, as S3 reads it. A parameter that comes twice is
refused: S3 takes the first one, but what is signed and what is obeyed must never be two things.
Signatures are computed from the raw query and not from this.
"""

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.percent import decodePercent

PARAMETER_LIMIT = 100
"""Parameters of one request; the longest request of any client known has about 20."""


def parseQuery(raw: bytes) -> dict[str, str]:
    """
    Read a query.

    @param raw: What follows the question mark.
    @return: Values by name, in the order in which they came.
    @raise S3Error: C{InvalidURI} for a malformed escape or bytes that are not UTF-8,
        C{InvalidArgument} for a parameter that comes twice or too many of them.
    """
    query: dict[str, str] = {}
    if not raw:
        return query
    # One more than allowed is split off, and no more than that.
    pairs = raw.split(b"&", PARAMETER_LIMIT)
    if len(pairs) > PARAMETER_LIMIT:
        raise S3Error("InvalidArgument", "The request has too many query parameters")
    for pair in pairs:
        if not pair:
            continue
        rawName, _, rawValue = pair.partition(b"=")
        name = _decode(rawName)
        if name in query:
            raise invalidArgument(
                name, _decode(rawValue), "A query parameter must not be given more than once"
            )
        query[name] = _decode(rawValue)
    return query


def _decode(raw: bytes) -> str:
    try:
        return decodePercent(raw.replace(b"+", b" ")).decode()
    except ValueError:
        raise S3Error("InvalidURI") from None
