"""
One S3 request on its way through the room, and the services that it may ask.

What is known of an operation before anything is asked of the store.

What the policy of a key says to an operation.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from attrs import define, frozen

from storagegate.core.httpurls import schemeOf
from storagegate.net.http.message import ChannelRequest
from storagegate.s3.accounts import Identity
from storagegate.s3.auth.authenticator import Authenticated, S3Authenticator
from storagegate.s3.errors import S3Error
from storagegate.s3.headers import ownerOf
from storagegate.s3.multipart import CopyService, MultipartService
from storagegate.s3.names import bucketOfHost
from storagegate.s3.objects import ObjectService
from storagegate.s3.operation import XML, Operation
from storagegate.storage.store import ObjectStore

Pairs = Sequence[tuple[bytes, bytes]]


@frozen
class S3Services:
    """
    The domain behind the room.

    @ivar s3Domain: The domain below which host names are buckets, or L{None}.
    @ivar requireSignedPayload: Whether a body must be signed for where there is no TLS.
    @ivar tokenSecret: Signs the continuation tokens of this store's lists.
    """

    store: ObjectStore
    objects: ObjectService
    multipart: MultipartService
    copies: CopyService
    authenticator: S3Authenticator
    tokenSecret: bytes
    s3Domain: str | None = None
    requireSignedPayload: bool = False


@define
class S3Request:
    """
    One authenticated request.

    @ivar bucket: Empty where the service itself is addressed.
    @ivar key: Empty where the bucket or the service is addressed.
    @ivar headers: The request's, lower-case.
    @ivar answerStart: The fields of every answer of this room, written and checked already.
    """

    request: ChannelRequest
    services: S3Services
    bucket: str
    key: bytes
    query: Mapping[str, str]
    operation: Operation
    authenticated: Authenticated
    identity: Identity
    headers: Mapping[bytes, bytes]
    answerStart: bytes

    def answer(self, code: int, headers: Pairs = (), body: bytes = b"") -> None:
        """Send a whole answer."""
        self.request.respond(code, headers, body, self.answerStart)

    def document(self, body: bytes, headers: Pairs = ()) -> None:
        """Send an XML document."""
        self.answer(200, (XML, *headers), body)

    def location(self, key: bytes) -> str:
        """The URL of one of the bucket's objects, as the client addressed this server."""
        scheme = schemeOf(self.request.secure)
        raw = self.headers.get(b"host", b"")
        domain = self.services.s3Domain
        virtual = domain is not None and bucketOfHost(raw, domain) is not None
        path = quote(key) if virtual else f"{self.bucket}/{quote(key)}"
        return f"{scheme}://{raw.decode('latin-1')}/{path}"

    def begin(self, code: int, headers: Pairs, length: int) -> None:
        """Start an answer whose body follows in pieces."""
        self.request.begin(code, headers, length, b"", self.answerStart)

    async def authoriseOperation(self) -> None:
        """
        Have the domain decide on the operation, and compare the owner that the client expects.

        @raise S3Error: C{AccessDenied}.
        """
        prefix = self.query.get("prefix", "")
        await self.services.objects.authorise(
            self.identity, self.operation, self.bucket, self.key, prefix
        )
        if self.bucket and self.operation.name != "CreateBucket":
            await self.checkOwner(self.bucket, b"x-amz-expected-bucket-owner")

    async def checkOwner(self, bucket: str, header: bytes) -> None:
        """
        See that a bucket is owned by whom a header expects, if it says so.

        @raise S3Error: C{AccessDenied}, or whatever the bucket gives.
        """
        expected = self.headers.get(header)
        if expected is not None:
            found = await self.services.objects.bucket(self.identity, bucket)
            if expected.strip() != ownerOf(found.account).id.encode():
                raise S3Error("AccessDenied")
