"""
One S3 request on its way through the room, and the services that it may ask.

What is known of an operation before anything is asked of the store.

What the policy of a key says to an operation.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from urllib.parse import quote

from attrs import define, frozen

from storagegate.net.http.message import ChannelRequest
from storagegate.s3.accounts import Identity, KeyPolicy
from storagegate.s3.auth.authenticator import Authenticated, S3Authenticator
from storagegate.s3.errors import S3Error
from storagegate.s3.headers import ownerOf
from storagegate.s3.multipart import CopyService, MultipartService
from storagegate.s3.names import bucketOfHost
from storagegate.s3.objects import ObjectService
from storagegate.storage.store import ObjectStore


class Level(Enum):
    """What a target names."""

    SERVICE = "service"
    BUCKET = "bucket"
    OBJECT = "object"


class Access(Enum):
    """What a request does, as far as the policy of a key cares."""

    READ = "read"
    WRITE = "write"
    LIST = "list"
    ADMIN = "admin"


@frozen
class StaticResponse:
    """
    An answer that is the same whatever the store holds: that of a setting never made.

    @ivar body: The whole document, where the answer is not an error.
    @ivar code: The error's code, where it is one.
    @ivar message: The error's sentence, where it is not the usual one.
    """

    body: bytes = b""
    code: str = ""
    message: str | None = None

    def give(self, bucket: str) -> bytes:
        """
        Answer; the caller has found that the bucket (and the object) is there.

        @raise S3Error: Where the answer is an error.
        """
        if self.code:
            raise S3Error(self.code, self.message, fields={"BucketName": bucket})
        return self.body


@frozen
class Operation:
    """
    A row of the table of operations.

    @ivar name: Amazon's name.
    @ivar selector: The query parameter that selects it; C{"inventory&id"} needs C{id} as well.
    @ivar variant: What else tells it from the row of the same method, level and selector.
    @ivar documentLimit: The bytes that the document in the request's body may have; 0 where the
        body is none.
    @ivar takesObject: Whether the body is the data of an object.
    @ivar answer: What is answered whatever the store holds, if anything is.
    """

    name: str
    method: bytes
    level: Level
    access: Access
    selector: str = ""
    variant: str = ""
    documentLimit: int = 0
    takesObject: bool = False
    answer: StaticResponse | None = None


_LISTS = frozenset({"ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"})


def authorise(policy: KeyPolicy, access: str, bucket: str, key: bytes | None) -> None:
    """
    Ask a policy for one access.

    @param bucket: Empty for the service itself.
    @raise S3Error: C{AccessDenied}.
    """
    name = key.decode("utf-8", "replace") if key is not None else None
    if not policy.allows(access, bucket or None, name):
        raise S3Error("AccessDenied")


def authoriseOperation(
    policy: KeyPolicy, operation: Operation, bucket: str, key: bytes, prefix: str = ""
) -> None:
    """
    Ask a policy for what an operation does.

    A list is asked for by its prefix; what names several objects judges each of them itself.

    @param key: Empty where the bucket or the service is addressed.
    @param prefix: What a list is asked for by.
    @raise S3Error: C{AccessDenied}.
    """
    named: bytes | None = key or None
    if not key and operation.name in _LISTS:
        named = prefix.encode()
        if not policy.coversPrefix(prefix):
            raise S3Error("AccessDenied")
    authorise(policy, operation.access.value, bucket, named)


Pairs = Sequence[tuple[bytes, bytes]]

XML: tuple[bytes, bytes] = (b"Content-Type", b"application/xml")


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
