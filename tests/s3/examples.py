"""The key, the time, the requests and the errors that the S3 wire tests share."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.auth import sigv4
from storagegate.s3.auth.sigv4 import SignatureParams, parseAmzDate
from storagegate.s3.errors import S3Error
from tests.s3.refusals import refusalOf

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"
TIMESTAMP = "20130524T000000Z"
NOW = parseAmzDate(TIMESTAMP) or 0
CREDENTIAL = f"{ACCESS_KEY}/20130524/{REGION}/s3/aws4_request"
EMPTY_SHA256 = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
HOST = b"examplebucket.s3.amazonaws.com"

RANGE_SIGNATURE = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
PRESIGNED_SIGNATURE = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
NAMES = "host;x-amz-content-sha256;x-amz-date"
RANGE_NAMES = "host;range;x-amz-content-sha256;x-amz-date"
SCOPE = CREDENTIAL.replace("/", "%2F")


class S3Case(SynchronousTestCase):
    """A test case that knows S3's errors."""

    def refused(self, code: str, status: int, call: Callable[..., Any], *args: Any) -> S3Error:
        """Assert that a call is refused with a code and a status, and give the error."""
        error = refusalOf(call, *args)
        self.assertEqual((error.code, error.status), (code, status), str(error))
        return error


def authorization(signature: str, names: str, credential: str = CREDENTIAL) -> bytes:
    """Write an C{Authorization} header."""
    return (
        f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
    ).encode()


def check(
    request: sigv4.SignedRequest, now: float = NOW, secret: str | None = SECRET
) -> sigv4.SigningKey:
    """Verify a request as the server would, and give the signing key."""
    return sigv4.verify(claimOf(request), request, secret, REGION, now, sigv4.SigningKeys())


def claimOf(request: sigv4.SignedRequest) -> SignatureParams:
    """Read the claim of a request, wherever it is."""
    if sigv4.isPresigned(request.queryString):
        return sigv4.parseQueryClaim(request.queryString, request.headers)
    return sigv4.parseHeaderClaim(request.headers)


def signedGet(
    signature: str,
    path: bytes = b"/",
    query: bytes = b"",
    names: str = NAMES,
    extra: dict[bytes, bytes] | None = None,
    credential: str = CREDENTIAL,
) -> sigv4.SignedRequest:
    """Make a GET with an C{Authorization} header."""
    headers = {
        b"host": HOST,
        b"x-amz-content-sha256": EMPTY_SHA256,
        b"x-amz-date": TIMESTAMP.encode(),
        b"authorization": authorization(signature, names, credential),
        **(extra or {}),
    }
    return sigv4.SignedRequest(b"GET", path, query, headers)


def rangeGet(**changes: object) -> sigv4.SignedRequest:
    """Make Amazon's GET with a range."""
    request = signedGet(RANGE_SIGNATURE, b"/test.txt", names=RANGE_NAMES)
    headers = {**request.headers, b"range": b"bytes=0-9"}
    return replace(request, **{"headers": headers, **changes})


def withHeader(request: sigv4.SignedRequest, name: bytes, value: bytes) -> sigv4.SignedRequest:
    """Set a header of a request."""
    return replace(request, headers={**request.headers, name: value})


def without(request: sigv4.SignedRequest, name: bytes) -> sigv4.SignedRequest:
    """Take a header off a request."""
    return replace(request, headers={n: v for n, v in request.headers.items() if n != name})


def presigned(**changes: str) -> sigv4.SignedRequest:
    """Make Amazon's presigned URL; a parameter that is changed to an empty text is left out."""
    parameters = {
        "Algorithm": "AWS4-HMAC-SHA256",
        "Credential": SCOPE,
        "Date": TIMESTAMP,
        "Expires": "86400",
        "SignedHeaders": "host",
        "Signature": PRESIGNED_SIGNATURE,
        **changes,
    }
    query = "&".join(f"X-Amz-{name}={value}" for name, value in parameters.items() if value)
    return sigv4.SignedRequest(b"GET", b"/test.txt", query.encode(), {b"host": HOST})
