"""
Bucket names and keys in request targets, queries, and their percent escapes.

Path style is C{/bucket/key}; virtual-host style is C{/key} at C{bucket.domain}. A bucket's name
ends at the first slash; the rest is the key, byte for byte: C{a//b}, C{.} and C{../x} are ordinary
keys.

S3 signs the raw text and stores the decoded text, so each escape is decoded exactly once, and a
C{%} without two hexadecimal digits is an error.

A query has C{name=value} pairs between ampersands; a name without a value is a subresource. C{+} is
a space. A repeated parameter is rejected: S3 uses the first value, but the signed and the used
value must never differ. Signatures are computed from the raw query.
"""

from collections.abc import Mapping

from storagegate.objects.documents.fields import decodePercent
from storagegate.objects.errors import DomainError
from storagegate.objects.names import KEY_LIMIT, _invalidBucket, checkKey
from storagegate.s3.errors import S3Error, invalidArgument


def bucketOfHost(host: bytes, s3Domain: str) -> str | None:
    """Return the bucket that a C{Host} field names; L{None} for none."""
    # An IPv6 address contains colons, but never ends in a subdomain.
    name = host.partition(b":")[0].decode("latin-1").lower()
    bucket = name.removesuffix("." + s3Domain)
    return bucket if bucket and bucket != name else None


def splitTarget(path: bytes, host: bytes, s3Domain: str | None) -> tuple[str | None, bytes | None]:
    """
    Find bucket and key in a request's target.

    @param path: The raw path, without the query.
    @param host: The C{Host} field, with or without a port.
    @param s3Domain: The lower-case domain whose subdomains are buckets, if any.
    @return: Bucket and key; C{None} for each that the target does not name.
    @raise S3Error: C{InvalidURI}, C{InvalidBucketName} or C{KeyTooLongError}.
    """
    if path[:1] != b"/":
        raise S3Error("InvalidURI")
    if s3Domain is not None:
        bucket = bucketOfHost(host, s3Domain)
        if bucket is not None:
            return bucket, _key(path[1:])
    if len(path) == 1:
        return None, None
    end = path.find(b"/", 1)
    if end < 0:
        return _bucket(path[1:]), None
    return _bucket(path[1:end]), _key(path[end + 1 :])


def parseCopySource(value: bytes) -> tuple[str, bytes, str | None]:
    """
    Parse C{x-amz-copy-source}: C{[/]bucket/key[?versionId=id]}, percent-encoded.

    @return: Bucket, key, and version id, if it names one.
    @raise S3Error: C{InvalidArgument} or C{KeyTooLongError}.
    """
    source, hasVersion, version = value.partition(b"?versionId=")

    def invalid(message: str) -> S3Error:
        return invalidArgument("x-amz-copy-source", value.decode("utf-8", "replace"), message)

    try:
        # The leading slash may be escaped, too: some clients encode the whole value.
        decoded = decodePercent(source).removeprefix(b"/")
        decoded.decode()
        versionId = decodePercent(version).decode()
    except ValueError:
        raise invalid("Invalid copy source encoding.") from None
    bucket, _, key = decoded.partition(b"/")
    if not bucket:
        raise invalid("Invalid copy source bucket name")
    if not key:
        raise invalid("Invalid copy source object key")
    if hasVersion and not versionId:
        raise invalidArgument("versionId", "", "Version id cannot be the empty string")
    checkKey(key)
    return bucket.decode(), key, versionId or None


def copiedObject(headers: Mapping[bytes, bytes]) -> str | None:
    """
    Return the source of a copy, as C{/bucket/key}.

    @param headers: Values by lower-case name.
    @return: L{None} for no source, or a malformed one, which the operation refuses.
    """
    value = headers.get(b"x-amz-copy-source")
    if value is None:
        return None
    try:
        bucket, key, _ = parseCopySource(value)
    except (S3Error, DomainError):
        return None
    return f"/{bucket}/{key.decode()}"


def _bucket(raw: bytes) -> str:
    try:
        name = (decodePercent(raw) if raw.find(b"%") >= 0 else raw).decode()
    except UnicodeDecodeError:
        raise _invalidBucket(raw.decode("latin-1")) from None
    except ValueError:
        raise S3Error("InvalidURI") from None
    if not name:
        raise _invalidBucket(name)
    return name


def _key(raw: bytes) -> bytes | None:
    if not raw:
        return None
    key = raw
    if raw.find(b"%") >= 0:
        try:
            key = decodePercent(raw)
        except ValueError:
            raise S3Error("InvalidURI") from None
    if len(key) > KEY_LIMIT or not key.isascii():
        checkKey(key)
    return key


PARAMETER_LIMIT = 100
"""Parameters per request; the longest known request has about 20."""


def parseQuery(raw: bytes) -> dict[str, str]:
    """
    Parse a query.

    @param raw: The raw query, after the question mark.
    @return: Values by name, in their order.
    @raise S3Error: C{InvalidURI} for a malformed escape or bytes that are not UTF-8,
        C{InvalidArgument} for a repeated parameter or too many parameters.
    """
    query: dict[str, str] = {}
    if not raw:
        return query
    # Split off at most one more than allowed.
    text = raw.decode("latin-1")
    pairs = text.split("&", PARAMETER_LIMIT)
    if len(pairs) > PARAMETER_LIMIT:
        raise S3Error("InvalidArgument", "The request has too many query parameters")
    isPlain = text.isascii() and "%" not in text and "+" not in text
    for pair in pairs:
        if not pair:
            continue
        name, _, value = pair.partition("=")
        if not isPlain:
            name, value = _decode(name), _decode(value)
        if name in query:
            message = "A query parameter must not be given more than once"
            raise invalidArgument(name, value, message)
        query[name] = value
    return query


def _decode(text: str) -> str:
    try:
        return decodePercent(text.replace("+", " ").encode("latin-1")).decode()
    except ValueError:
        raise S3Error("InvalidURI") from None
