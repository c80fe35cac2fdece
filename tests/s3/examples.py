"""The key, the time and the errors that the S3 wire tests share."""

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3 import sigv4
from storagegate.s3.dates import parseAmzDate
from storagegate.s3.errors import S3Error
from storagegate.s3.sigv4claims import Claim

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"
TIMESTAMP = "20130524T000000Z"
NOW = parseAmzDate(TIMESTAMP) or 0
CREDENTIAL = f"{ACCESS_KEY}/20130524/{REGION}/s3/aws4_request"
EMPTY_SHA256 = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
HOST = b"examplebucket.s3.amazonaws.com"


class S3Case(SynchronousTestCase):
    """A test case that knows S3's errors."""

    def refused(self, code: str, status: int, call: Callable[..., Any], *args: Any) -> S3Error:
        """Assert that a call is refused with a code and a status, and give the error."""
        error = self.assertRaises(S3Error, call, *args)
        self.assertEqual((error.code, error.status), (code, status), str(error))
        return error


def authorization(signature: str, names: str, credential: str = CREDENTIAL) -> bytes:
    """Write an C{Authorization} header."""
    return (
        f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
    ).encode()


def check(request: sigv4.SignedRequest, now: float = NOW, secret: str | None = SECRET) -> bytes:
    """Verify a request as the server would, and give the signing key."""
    return sigv4.verify(claimOf(request), request, secret, REGION, now, sigv4.SigningKeys())


def claimOf(request: sigv4.SignedRequest) -> Claim:
    """Read the claim of a request, wherever it is."""
    if sigv4.isPresigned(request.queryString):
        return sigv4.parseQueryClaim(request.queryString, request.headers)
    return sigv4.parseHeaderClaim(request.headers)
