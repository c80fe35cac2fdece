"""One S3 request on its way through the room, and the services that it may ask."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from attrs import define, frozen

from storagegate.net.site import Request
from storagegate.s3.authentication import Authenticated, Authenticator
from storagegate.s3.authorising import authorise, authoriseOperation
from storagegate.s3.copying import CopyService
from storagegate.s3.credentials import Identity
from storagegate.s3.errors import S3Error
from storagegate.s3.multipart import MultipartService
from storagegate.s3.names import bucketOfHost
from storagegate.s3.operation import Operation
from storagegate.s3.owners import ownerOf
from storagegate.s3.service import ObjectService
from storagegate.storage.store import ObjectStore

Pairs = Sequence[tuple[bytes, bytes]]

XML: tuple[bytes, bytes] = (b"Content-Type", b"application/xml")


@frozen
class Services:
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
    authenticator: Authenticator
    tokenSecret: bytes
    s3Domain: str | None = None
    requireSignedPayload: bool = False


@define
class Call:
    """
    One authenticated request.

    @ivar bucket: Empty where the service itself is addressed.
    @ivar key: Empty where the bucket or the service is addressed.
    @ivar headers: The request's, lower-case.
    @ivar answerStart: The fields of every answer of this room, written and checked already.
    """

    request: Request
    services: Services
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
        scheme = "https" if self.request.secure else "http"
        raw = self.headers.get(b"host", b"")
        domain = self.services.s3Domain
        virtual = domain is not None and bucketOfHost(raw, domain) is not None
        path = quote(key) if virtual else f"{self.bucket}/{quote(key)}"
        return f"{scheme}://{raw.decode('latin-1')}/{path}"

    def begin(self, code: int, headers: Pairs, length: int) -> None:
        """Start an answer whose body follows in pieces."""
        self.request.begin(code, headers, length, b"", self.answerStart)

    def authoriseOperation(self) -> None:
        """
        Ask the key's policy for what the operation does.

        @raise S3Error: C{AccessDenied}.
        """
        prefix = self.query.get("prefix", "")
        authoriseOperation(self.identity.policy, self.operation, self.bucket, self.key, prefix)
        if self.bucket and self.operation.name != "CreateBucket":
            self.checkOwner(self.bucket, b"x-amz-expected-bucket-owner")

    def authorise(self, access: str, bucket: str, key: bytes | None) -> None:
        """
        Ask the key's policy for one access.

        @raise S3Error: C{AccessDenied}.
        """
        authorise(self.identity.policy, access, bucket, key)

    def checkOwner(self, bucket: str, header: bytes) -> None:
        """
        See that a bucket is owned by whom a header expects, if it says so.

        @raise S3Error: C{AccessDenied}, or whatever the bucket gives.
        """
        expected = self.headers.get(header)
        if expected is not None:
            found = self.services.objects.bucket(self.identity, bucket)
            if expected.strip() != ownerOf(found.account).id.encode():
                raise S3Error("AccessDenied")
