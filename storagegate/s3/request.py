"""One S3 request between the listener and a handler, its row of the table, and its response."""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from attrs import field, frozen
from msgspec import Struct
from msgspec.structs import replace

from storagegate.core.addresses import schemeOf
from storagegate.net.forwarded import Trust
from storagegate.net.http.message import (
    ChannelRequest,
    checkedFields,
    checkLines,
    encodeLines,
)
from storagegate.net.http.ranges import formatHttpDate
from storagegate.net.scheduling import InputScheduler
from storagegate.objects.accounts import AccessKeyStore, Identity, Signing, canonicalId
from storagegate.objects.attributes import isFieldText
from storagegate.objects.documents.fields import CHECKSUM_HEADERS, KEPT, TAGGING, tagsOfHeader
from storagegate.objects.errors import DomainError
from storagegate.objects.lifecycle import Calendar
from storagegate.objects.service import ObjectService
from storagegate.objects.tags import Tags
from storagegate.s3.auth.authenticator import Authenticated, S3Authenticator
from storagegate.s3.checksums import gather
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.names import bucketOfHost, copiedObject
from storagegate.storage.records import NULL_VERSION, UNLOCKED, Bucket, Checksum, ObjectRecord
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    # Loaded with the first handler.
    from storagegate.objects.operations import Operation

T = TypeVar("T")

Pairs = Sequence[tuple[bytes, bytes]]

XML: tuple[bytes, bytes] = (b"Content-Type", b"application/xml")


# Values of unimplemented headers that already hold. Any other value must be rejected: the client
# would believe that its object is tagged or public.
_HARMLESS: dict[bytes, frozenset[bytes]] = {
    b"x-amz-acl": frozenset({b"private", b"bucket-owner-full-control", b"bucket-owner-read"}),
    b"x-amz-bucket-object-lock-enabled": frozenset({b"false"}),
    b"x-amz-object-lock-legal-hold": frozenset({b"OFF"}),
    b"x-amz-website-redirect-location": frozenset(),
    b"x-amz-object-lock-mode": frozenset(),
    b"x-amz-object-lock-retain-until-date": frozenset(),
    b"x-amz-write-offset-bytes": frozenset(),
    b"x-amz-if-match-last-modified-time": frozenset(),
    b"x-amz-if-match-size": frozenset(),
    b"x-amz-if-match-initiated-time": frozenset(),
    b"x-amz-bucket-namespace": frozenset(),
    b"x-amz-object-annotation-directive": frozenset({b"COPY", b"EXCLUDE"}),
    b"x-amz-object-lock-event-hold": frozenset({b"OFF"}),
}
_UNSUPPORTED_PREFIXES = (
    b"x-amz-server-side-encryption",
    b"x-amz-grant-",
    b"x-amz-object-lock-event-hold-",
    b"x-amz-rename-source",
)
_OTHER_ACLS = frozenset(
    b"public-read public-read-write aws-exec-read authenticated-read log-delivery-write".split()
)


# A client sends the same fields with each request.
@lru_cache(maxsize=64)
def _limitedNames(names: tuple[bytes, ...]) -> list[bytes]:
    return [n for n in names if n in _HARMLESS or n.startswith(_UNSUPPORTED_PREFIXES)]


def rejectUnsupported(
    headers: Mapping[bytes, bytes], account: str, obeyed: frozenset[bytes] = frozenset()
) -> None:
    """
    Reject a write that requests a feature that is not implemented.

    @param headers: Values by lower-case name.
    @param account: The owner; a grant of full control to the owner changes nothing.
    @param obeyed: The names of the headers that this operation implements.
    @raise S3Error: C{NotImplemented}, naming the header; C{InvalidArgument} for an ACL that S3 does
        not define.
    """
    for name in _limitedNames(tuple(headers)):
        value = headers[name]
        if name in obeyed or value.strip() in _HARMLESS.get(name, ()):
            continue
        if name == b"x-amz-grant-full-control" and _isGrantTo(value, account):
            continue
        if name == b"x-amz-acl" and value.strip() not in _OTHER_ACLS:
            raise invalidArgument("x-amz-acl", value.decode("latin-1"))
        raise S3Error("NotImplemented", fields={"Header": name.decode("latin-1")})


def _isGrantTo(value: bytes, account: str) -> bool:
    kind, _, grantee = value.decode("latin-1").strip().partition("=")
    return kind == "id" and grantee.strip('"') == canonicalId(account)


def versionField(record: ObjectRecord) -> bytes:
    """Return the encoded C{x-amz-version-id} line of a write; empty if it made no version."""
    if record.versionId == NULL_VERSION:
        return b""
    return versionLine(record)


def versionLine(record: ObjectRecord) -> bytes:
    """Return the encoded C{x-amz-version-id} line of a version, also of the C{null} version."""
    return b"x-amz-version-id: %b\r\n" % record.versionId.encode("ascii")


def versionHeaders(record: ObjectRecord) -> list[tuple[bytes, bytes]]:
    """Return L{versionField} as a list of headers."""
    if record.versionId == NULL_VERSION:
        return []
    return [(b"x-amz-version-id", record.versionId.encode("ascii"))]


def readVersionHeaders(bucket: Bucket, record: ObjectRecord) -> list[tuple[bytes, bytes]]:
    """Return the header of the version that was read or changed, if its bucket has versions."""
    return [(b"x-amz-version-id", record.versionId.encode("ascii"))] if bucket.versioning else []


def checksumFields(checksum: Checksum) -> bytes:
    """Return the encoded lines of L{checksumHeaders}, for a checksum that was computed here."""
    header = CHECKSUM_HEADERS[checksum.algorithm]
    value, kind = checksum.value.encode("ascii"), checksum.kind.encode("ascii")
    return b"%b: %b\r\nx-amz-checksum-type: %b\r\n" % (header, value, kind)


def checksumHeaders(checksum: Checksum | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of a checksum: its value and its type."""
    if checksum is None:
        return []
    return [
        (CHECKSUM_HEADERS[checksum.algorithm], checksum.value.encode("ascii")),
        (b"x-amz-checksum-type", checksum.kind.encode("ascii")),
    ]


# The canonical names of stored fields: some clients compare them in this case.
_NAMES = {name.decode(): name.title() for name in KEPT}
_OVERRIDES = {
    f"response-{name.decode().lower()}": name for name in (b"Content-Type", *_NAMES.values())
}


def overrides(query: Mapping[str, str], isSigned: bool = True) -> dict[bytes, bytes]:
    """
    Read the C{response-*} parameters of a query, which replace headers of an object.

    @param query: Decoded values by name.
    @param isSigned: Whether the request has credentials; an unsigned link must not turn an object
        into a page.
    @return: Values by the names of the headers.
    @raise S3Error: C{InvalidArgument} for another header, or a value that is invalid in a header;
        C{InvalidRequest} without a signature.
    """
    changed: dict[bytes, bytes] = {}
    for parameter, value in query.items():
        if not parameter.startswith("response-"):
            continue
        if parameter not in _OVERRIDES:
            raise invalidArgument(parameter, value, "The parameter names no header of a response.")
        if not isFieldText(value):
            raise invalidArgument(parameter, value)
        try:
            changed[_OVERRIDES[parameter]] = value.encode("latin-1")
        except UnicodeEncodeError:
            message = "Header value cannot be represented using ISO-8859-1."
            raise invalidArgument(parameter, value, message) from None
    if changed and not isSigned:
        message = "Request specific response headers cannot be used for anonymous GET requests."
        raise S3Error("InvalidRequest", message)
    return changed


_NO_HEADERS: Mapping[bytes, bytes] = {}


# Objects have few distinct types.
@lru_cache(maxsize=256)
def _checkedType(text: str) -> bytes:
    value = text.encode("latin-1")
    checkLines(value, 0)
    return value


def objectFields(record: ObjectRecord, changed: Mapping[bytes, bytes] = _NO_HEADERS) -> bytes:
    """
    Return the header fields of a read that describe the object, without length and checksum.

    C{X-Content-Type-Options} stops a browser from interpreting an upload as a page.

    @param changed: From L{overrides}.
    @return: The encoded lines.
    @raise ValueError: An attribute has a control character.
    """
    attributes = record.attributes
    contentType = changed.get(b"Content-Type") or _checkedType(attributes.contentType)
    block = (
        b'ETag: "%b"\r\nLast-Modified: %b\r\nContent-Type: %b\r\nAccept-Ranges: bytes\r\n'
        b"X-Content-Type-Options: nosniff\r\n"
        % (record.etag.encode("ascii"), formatHttpDate(record.modifiedMs // 1000), contentType)
    )
    more: list[tuple[bytes, bytes]] = []
    if attributes.headers:
        for name, value in attributes.headers.items():
            more.append((_NAMES.get(name) or name.encode("ascii"), value.encode("latin-1")))
    if attributes.metadata:
        for name, value in attributes.metadata.items():
            more.append((b"x-amz-meta-" + name.encode("latin-1"), value.encode("latin-1")))
    if attributes.tags:
        more.append((b"x-amz-tagging-count", b"%d" % (attributes.tags.count("&") + 1)))
    if attributes.lock is not UNLOCKED:
        from storagegate.s3.locks import lockHeaders

        more += lockHeaders(attributes.lock)
    if attributes.storageClass != "STANDARD":
        more.append((b"x-amz-storage-class", attributes.storageClass.encode("ascii")))
    if changed:
        more = [pair for pair in more if pair[0] not in changed]
        more += [pair for pair in changed.items() if pair[0] != b"Content-Type"]
    return block + encodeLines(more) if more else block


Level = Literal["service", "bucket", "object"]
Access = Literal["read", "write", "list", "admin"]


class S3Operation(Struct, frozen=True):
    """
    A row of the table of operations.

    @ivar name: Amazon's name.
    @ivar level: The level of the target: the service, a bucket, or an object.
    @ivar access: The access that the policy of a key must grant.
    @ivar handler: The function that sends the response.
    @ivar selector: The query parameter that selects the operation; C{"inventory&id"} needs C{id} as
        well.
    @ivar variant: A further distinction between rows of the same method, level and selector.
    @ivar byPrefix: Whether the operation lists keys by a prefix, which the policy must cover.
    @ivar documentLimit: Largest size of the XML document in the body, in bytes; 0 for no document.
    @ivar needsDocument: Whether a request without a document is refused.
    @ivar needsDigest: Whether the request must declare a digest of its document.
    """

    name: str
    method: bytes
    level: Level
    access: Access
    handler: Callable[["S3Request"], Coroutine[Any, Any, None]]
    selector: str = ""
    variant: str = ""
    byPrefix: bool = False
    documentLimit: int = 0
    needsDocument: bool = False
    needsDigest: bool = False


@frozen
class S3Services:
    """
    The domain of one store, for handlers.

    @ivar accounts: The accounts that grants can name.
    @ivar s3Domain: The domain below which host names are buckets, or L{None}.
    @ivar requireSignedPayload: Whether a body must be signed if the connection is not TLS.
    @ivar customerKeysOverHTTP: Whether clients may send encryption keys over a network without TLS.
    @ivar calendar: The calendar of lifecycle rules.
    @ivar trust: Trusted proxies that name the client; L{None} trusts no peer.
    @ivar tokenSecret: The key that signs the continuation tokens of this store's lists.
    @ivar scheduler: Shares time among responses that take long to write.
    """

    store: ObjectStore
    objects: ObjectService
    authenticator: S3Authenticator
    tokenSecret: bytes
    scheduler: InputScheduler
    accounts: AccessKeyStore
    s3Domain: str | None = None
    requireSignedPayload: bool = False
    customerKeysOverHTTP: bool = False
    calendar: Calendar = field(factory=Calendar)
    trust: Trust | None = None


# The forms of Amazon's account ids and canonical ids.
_ACCOUNT_ID = re.compile(r"[0-9]{12}|[0-9a-f]{64}", re.ASCII)

# Operations on an account, which no bucket settings can make public.
_OF_ACCOUNTS = frozenset({"CreateBucket", "ListBuckets"})


class S3Request(Struct, eq=False):
    """
    An authenticated request.

    @ivar bucket: Empty if the target is the service.
    @ivar key: Empty if the target is a bucket or the service.
    @ivar headers: The headers of the request, by lower-case name.
    @ivar commonHeaders: The encoded and checked fields of every response.
    @ivar documentTags: The tags in the document of the request, after it was read.
    """

    request: ChannelRequest
    services: S3Services
    bucket: str
    key: bytes
    query: Mapping[str, str]
    operation: S3Operation
    authenticated: Authenticated
    identity: Identity
    headers: Mapping[bytes, bytes]
    commonHeaders: bytes
    documentTags: Tags | None = None

    @property
    def operationName(self) -> str:
        """Amazon's name of the operation."""
        return self.operation.name

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return time()

    @property
    def address(self) -> str:
        """The address of the client, resolved through trusted proxies."""
        return self.request.clientAddress(self.services.trust)

    @property
    def secure(self) -> bool:
        """Whether the connection is TLS."""
        return self.request.secure

    @property
    def signing(self) -> Signing | None:
        """The signature of the request."""
        return self.authenticated.signing

    @property
    def tlsVersion(self) -> str | None:
        """The version of TLS; L{None} without it."""
        return self.request.tlsVersion

    @property
    def requestTags(self) -> Mapping[str, str]:
        """The tags that the request gives to the object."""
        if self.documentTags is not None:
            return self.documentTags
        return tagsOfHeader(self.headers.get(TAGGING, b""))

    @property
    def copySource(self) -> str | None:
        """The source of a copy, as C{/bucket/key}; L{None} for none, or for a malformed header."""
        return copiedObject(self.headers)

    def perform(self, operation: "Operation[T]") -> Coroutine[Any, Any, T]:
        """Perform an operation of the domain for this request."""
        return self.services.objects.perform(self, operation)

    def respond(self, code: int, headers: Pairs = (), body: bytes = b"") -> None:
        """Send a whole response."""
        self.request.respond(code, headers, body, self.commonHeaders)

    def respondXML(self, body: bytes, headers: Pairs = ()) -> None:
        """Send an XML document with status 200."""
        self.respond(200, (XML, *headers), body)

    def respondObject(
        self, code: int, fields: bytes, body: bytes = b"", length: int | None = None
    ) -> None:
        """
        Send a whole response that describes an object.

        @param fields: The fields of L{objectFields}, and others.
        @param length: Length of the body that a response to HEAD describes.
        """
        self.request.respondWith(code, self.commonHeaders + fields, body, length)

    def startObject(self, code: int, fields: bytes, length: int) -> None:
        """
        Send the head of a response whose body follows in pieces.

        @param fields: The fields of L{objectFields}, and others.
        @param length: Bytes of the body.
        """
        self.request.begin(code, checkedFields(self.commonHeaders + fields), length)

    def location(self, key: bytes) -> str:
        """Return the URL of an object of the bucket, as the client addressed this server."""
        scheme = schemeOf(self.request.secure)
        raw = self.headers.get(b"host", b"")
        domain = self.services.s3Domain
        virtual = domain is not None and bucketOfHost(raw, domain) is not None
        path = quote(key) if virtual else f"{self.bucket}/{quote(key)}"
        return f"{scheme}://{raw.decode('latin-1')}/{path}"

    def authorise(self) -> None:
        """
        Check the access against the policy of the key.

        @raise S3Error: C{AccessDenied} for an anonymous request about an account.
        @raise AccessDenied: The policy does not grant the access.
        """
        operation = self.operation
        if self.identity.isAnonymous and operation.name in _OF_ACCOUNTS:
            raise S3Error("AccessDenied")
        if self.identity.policy.isUnlimited:
            return
        prefix = self.query.get("prefix", "") if operation.byPrefix else None
        self.identity.authorise(operation.access, self.bucket, self.key, prefix)

    async def checkOwner(self, bucket: str, header: bytes) -> None:
        """
        Compare the owner of a bucket with a header, if it is sent.

        @param header: Its lower-case name.
        @raise S3Error: C{AccessDenied}; C{InvalidBucketOwnerAWSAccountID} if the value names no
            account and does not have the form of an id; the errors of looking up the bucket.
        """
        value = self.headers.get(header)
        if value is None:
            return
        account = (await self.services.objects.find(bucket)).account
        expected = value.strip().decode("utf-8", "replace")
        if expected in (account, canonicalId(account)):
            return
        # Anonymous requests must not learn which accounts exist.
        isKnown = not self.identity.isAnonymous and self.services.accounts.hasAccount(expected)
        if isKnown or _ACCOUNT_ID.fullmatch(expected):
            raise S3Error("AccessDenied")
        message = "The value of the expected bucket owner parameter must be an AWS Account ID..."
        raise S3Error("InvalidBucketOwnerAWSAccountID", f"{message} [{expected}]")

    async def readDocument(self, checked: bool = True) -> bytes:
        """
        Read the document of the request, up to the limit of its operation.

        @param checked: Whether the checksum headers of the request apply to the document.
        @return: Empty if the request has no body.
        @raise S3Error: C{MissingRequestBodyError}, C{MaxMessageLengthExceeded}, C{BadDigest} and
            the like.
        """
        document = b""
        if b"content-length" in self.headers or self.authenticated.streaming:
            document = await self._gatherDocument(checked)
        if self.operation.needsDocument and not document:
            raise S3Error("MissingRequestBodyError")
        return document

    async def _gatherDocument(self, checked: bool) -> bytes:
        headers = self.headers
        if not checked:
            headers = {name: headers[name] for name in headers if b"checksum" not in name}
        try:
            expectation = self.authenticated.bodyExpectation(
                headers,
                self.request.contentLength,
                limit=self.operation.documentLimit,
                turn=self.services.scheduler.turn,
            )
            if not checked:
                expectation = replace(expectation, checksum=None)
            if self.operation.needsDigest:
                expectation.requireDigest()
            return await gather(self.request.body, expectation)
        except (S3Error, DomainError) as error:
            if error.code == "EntityTooLarge":
                raise S3Error("MaxMessageLengthExceeded") from error
            raise
