"""
The one gate: who sends this request, by which of the schemes, and how its body is to be read.

It stands before the routing, so no operation can forget it. The order of the questions and the
choice between 400, 401 and 403 are written down in C{docs/s3.rst}.
"""

import hmac
from collections.abc import Callable, Mapping

from attrs import frozen

from storagegate.s3 import sigv4
from storagegate.s3.chunked import ChunkSigner
from storagegate.s3.credentials import Credential, Credentials, Identity
from storagegate.s3.errors import S3Error

ACCESS_HEADER = b"x-storage-access-key"
SECRET_HEADER = b"x-storage-secret-key"

_CHALLENGE = ((b"WWW-Authenticate", b'StorageKey realm="storagegate"'),)

_DUMMY_SECRET = "0" * 40
"""An unknown key is verified against this, so that it takes as long as a wrong signature."""


@frozen
class Authenticated:
    """
    What the gate found.

    @ivar signed: By a signature (header or query), not by the plain headers.
    @ivar sha256: Hex of the payload's hash, where the signature covers it.
    @ivar streaming: The body is C{aws-chunked}.
    @ivar trailing: A trailer follows the body.
    @ivar signer: Checks the chunks' signatures, where they have any.
    """

    identity: Identity
    signed: bool
    sha256: str | None = None
    streaming: bool = False
    trailing: bool = False
    signer: ChunkSigner | None = None


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
                "Only one auth mechanism allowed; only the plain key headers, the X-Amz-Algorithm "
                "query parameter or the Authorization header should be specified",
            )
        if plain:
            return self._byPlainHeaders(headers)
        if not authorization and not presigned:
            raise S3Error("AccessDenied")
        if presigned:
            claim = sigv4.parseQueryClaim(queryString, headers)
        else:
            claim = sigv4.parseHeaderClaim(headers)
        return self._bySignature(claim, method, path, queryString, headers)
