"""
Requests as bytes, signed before the clock starts.

The client under measurement must cost nothing, so heads are encoded and signed ahead, with
signature version 4 over an unsigned payload: the form that S3 clients send over TLS, and one that
asks no peer to hash the body for the signature.
"""

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

from attrs import field, frozen

REGION = "us-east-1"
PAYLOAD = "UNSIGNED-PAYLOAD"
_EMPTY = hashlib.sha256(b"").hexdigest()


@frozen
class Credentials:
    """
    A key pair.

    @ivar token: The token of a temporary key; empty for other keys.
    """

    access: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@frozen
class Request:
    """
    One request, not yet encoded.

    @ivar path: Needs no percent-encoding: the bench's own names are plain ASCII.
    @ivar length: Bytes of the body; L{None} for no body.
    @ivar range: The value of C{Range}; empty for none.
    @ivar tag: Which latency figures its reply counts for, 0 to 7.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    tag: int = 0
    range: str = ""


Authorizer = Callable[[Request, str], dict[str, str]]
"""Returns the header fields that authenticate a request to a host."""


@lru_cache(maxsize=16)
def signingKey(secret: str, day: str, service: str = "s3") -> bytes:
    """Derive the key of one day's signatures."""
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def queryString(query: tuple[tuple[str, str], ...]) -> str:
    """Encode a query in the canonical form of signature version 4."""
    pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def anonymous(request: Request, host: str) -> dict[str, str]:
    """Add nothing: the server knows no keys."""
    return {}


def keyHeaders(credentials: Credentials) -> Authorizer:
    """Send the key pair itself in two fields, unsigned, for a large fill."""
    fields = {
        "x-storage-access-key": credentials.access,
        "x-storage-secret-key": credentials.secret,
    }
    return lambda request, host: fields


def signer(
    credentials: Credentials, now: datetime | None = None, service: str = "s3"
) -> Authorizer:
    """
    Sign with signature version 4.

    @param now: The time of all signatures; by default the present of each.
    @param service: Requests to other services than S3 have no body, whose hash they must sign.
    """

    def sign(request: Request, host: str) -> dict[str, str]:
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        day, payload = stamp[:8], PAYLOAD if service == "s3" else _EMPTY
        fields = {"x-amz-content-sha256": payload, "x-amz-date": stamp}
        if credentials.token:
            fields["x-amz-security-token"] = credentials.token
        headers = {"host": host, **fields}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = (
            f"{request.method}\n{request.path}\n{queryString(request.query)}\n"
            f"{lines}\n{names}\n{payload}"
        )
        scope = f"{day}/{REGION}/{service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        key = signingKey(credentials.secret, day, service)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        return {
            **fields,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={credentials.access}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}",
        }

    return sign


def targetOf(request: Request) -> str:
    """Write the request target: path and query."""
    return request.path + ("?" + queryString(request.query) if request.query else "")


def fieldsOf(request: Request, host: str, authorizer: Authorizer) -> dict[str, str]:
    """List a request's header fields."""
    fields = {"Host": host}
    if request.length is not None:
        fields["Content-Length"] = str(request.length)
        fields["Content-Type"] = "application/octet-stream"
    if request.range:
        fields["Range"] = request.range
    return fields | authorizer(request, host)


def encodeHead(request: Request, host: str, authorizer: Authorizer) -> bytes:
    """Encode a request's head."""
    fields = fieldsOf(request, host, authorizer)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{request.method} {targetOf(request)} HTTP/1.1\r\n{lines}\r\n".encode()
