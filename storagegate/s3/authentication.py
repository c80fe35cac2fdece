"""
The one gate: who sends this request, by which of the schemes, and how its body is to be read.

It stands before the routing, so no operation can forget it. The order of the questions and the
choice between 400, 401 and 403 are written down in C{docs/s3.rst}.
"""

import hmac
from collections.abc import Callable, Collection, Mapping

from attrs import frozen

from storagegate.s3 import sigv4
from storagegate.s3.chunked import AwsChunkedDecoder, makeDecoder
from storagegate.s3.credentials import Credential, Credentials, Identity
from storagegate.s3.errors import S3Error
from storagegate.s3.sigv4claims import parsePayloadHash
from storagegate.s3.sigv4post import parseFormClaim, verifyForm

ACCESS_HEADER = b"x-storage-access-key"
SECRET_HEADER = b"x-storage-secret-key"

_CHALLENGE = ((b"WWW-Authenticate", b'StorageKey realm="storagegate"'),)


@frozen
class Authenticated:
    """
    What the gate found.

    @ivar payloadHash: A SHA-256 in hexadecimal, or one of the constants of C{sigv4}.
    @ivar claim: The verified claim; L{None} for the plain headers.
    @ivar signingKey: What the chunks of the body may be signed with too.
    """

    identity: Identity
    payloadHash: str = sigv4.UNSIGNED_PAYLOAD
    claim: sigv4.Claim | None = None
    signingKey: bytes = b""

    @property
    def streaming(self) -> bool:
        """Whether the body is C{aws-chunked}."""
        return self.payloadHash in sigv4.STREAMING

    @property
    def sha256(self) -> str | None:
        """The hash that the body must have, in lower-case hexadecimal."""
        return self.payloadHash.lower() if len(self.payloadHash) == 64 else None

    def decoder(self, decodedLength: int, trailerNames: Collection[bytes]) -> AwsChunkedDecoder:
        """
        Make what takes C{aws-chunked} off the body.

        @raise S3Error: C{InvalidRequest} where chunks are said to be signed and nobody signs.
        """
        if self.claim is not None:
            return makeDecoder(self.claim, self.signingKey, decodedLength, trailerNames)
        if self.payloadHash != sigv4.STREAMING_UNSIGNED_TRAILER:
            raise S3Error("InvalidRequest", "Signed chunks need a signed request")
        return AwsChunkedDecoder(decodedLength, None, trailerNames)


def _refusal(code: str) -> S3Error:
    """The plain headers were there and are not right."""
    return S3Error(code, status=401, headers=_CHALLENGE)


def isUnsigned(queryString: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Say whether a request carries none of the schemes outside of its body."""
    return not (
        headers.get(b"authorization", b"").strip()
        or ACCESS_HEADER in headers
        or SECRET_HEADER in headers
        or sigv4.isPresigned(queryString)
    )


def checkPayloadSigned(
    authenticated: Authenticated, contentLength: int | None, secure: bool
) -> None:
    """
    Refuse a body that anybody on the way could have changed.

    The plain headers sign nothing, and neither do a presigned URL and a form for their body.

    @param contentLength: L{None} where it is not declared.
    @param secure: Whether the connection is TLS, which sees to it itself.
    @raise S3Error: C{AccessDenied}.
    """
    signed = authenticated.claim is not None and authenticated.payloadHash not in sigv4.UNSIGNED
    if not (signed or secure or contentLength == 0):
        raise S3Error("AccessDenied", "Without TLS the payload of a request must be signed here")


class Authenticator:
    """Tell who sends a request. Reactor thread, at once."""

    def __init__(self, credentials: Credentials, region: str, now: Callable[[], float]) -> None:
        self.region = region
        self._credentials = credentials
        self._now = now
        self._keys = sigv4.SigningKeys()

    def authenticate(
        self, method: bytes, path: bytes, queryString: bytes, headers: Mapping[bytes, bytes]
    ) -> Authenticated:
        """
        Judge a request's credentials.

        @param path: The raw path, as sent.
        @raise S3Error: C{AccessDenied} where there are none; else what is wrong with them.
        """
        authorization = headers.get(b"authorization", b"").strip()
        presigned = bool(queryString) and sigv4.isPresigned(queryString)
        plain = ACCESS_HEADER in headers or SECRET_HEADER in headers
        if plain + presigned + bool(authorization) > 1:
            raise S3Error(
                "InvalidArgument",
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, the "
                "Authorization header or the plain key headers should be specified",
            )
        if plain:
            return self._byPlainHeaders(headers)
        if authorization:
            claim = sigv4.parseHeaderClaim(headers)
        elif presigned:
            claim = sigv4.parseQueryClaim(queryString, headers)
        else:
            raise S3Error("AccessDenied")
        credential = self._credentials.find(claim.accessKey)
        request = sigv4.SignedRequest(method, path, queryString, headers)
        secret = credential.secretKey if credential is not None else None
        key = sigv4.verify(claim, request, secret, self.region, self._now(), self._keys)
        return Authenticated(_proven(credential), claim.payloadHash, claim, key)

    def authenticateForm(self, fields: Mapping[str, str]) -> Authenticated:
        """
        Judge the credentials in a browser form's fields. Its policy is judged by C{postpolicy}.

        @param fields: Lower-case name to value; all of those before the file.
        @raise S3Error: As L{authenticate}.
        """
        claim = parseFormClaim(fields)
        credential = self._credentials.find(claim.accessKey)
        secret = credential.secretKey if credential is not None else None
        verifyForm(claim, fields["policy"], secret, self.region, self._keys)
        return Authenticated(_proven(credential), claim=claim)

    def _byPlainHeaders(self, headers: Mapping[bytes, bytes]) -> Authenticated:
        accessKey = headers.get(ACCESS_HEADER, b"").decode("latin-1")
        secret = headers.get(SECRET_HEADER, b"")
        if not accessKey or not secret:
            raise _refusal("InvalidAccessKeyId" if secret else "SignatureDoesNotMatch")
        credential = self._credentials.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as a wrong secret's.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secret, expected)
        if credential is None:
            raise _refusal("InvalidAccessKeyId")
        if not matches:
            raise _refusal("SignatureDoesNotMatch")
        declared = headers.get(b"x-amz-content-sha256")
        payloadHash = sigv4.UNSIGNED_PAYLOAD if declared is None else parsePayloadHash(declared)
        return Authenticated(credential.identity, payloadHash)


def _proven(credential: Credential | None) -> Identity:
    """The identity of a credential that verifying has found right."""
    if credential is None:
        raise S3Error("InvalidAccessKeyId")
    return credential.identity
