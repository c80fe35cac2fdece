"""The encryption that a request names."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects.errors import AccessDenied, InvalidRequest
from storagegate.storage.records import (
    Attributes,
    Checksum,
    ObjectEncryption,
    ObjectRecord,
    PartSummary,
)

SSE_S3: Final = "AES256"
"""Encryption with keys of the store, whose use is not visible to clients."""

SSE_KMS: Final = "aws:kms"
"""Encryption with a named master key."""

SSE_C: Final = "SSE-C"
"""Encryption with a key that the client sends with each request. The store never keeps it."""


_KEY_ID_LIMIT = 2048
"""Longest id of a master key in characters, which AWS KMS has too."""


def isKeyId(text: str) -> bool:
    """Return whether a text may be the id of a master key, which responses have in a header."""
    return text.isascii() and text.isprintable() and len(text) <= _KEY_ID_LIMIT


class CustomerKey(Struct, frozen=True):
    """
    A key that a client sent.

    @ivar key: 32 bytes.
    @ivar md5: Base64 of the MD5 of C{key}, as the client sent it.
    """

    key: bytes
    md5: str

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"CustomerKey(md5={self.md5!r})"


class RequestedEncryption(Struct, frozen=True):
    """
    The encryption that a write names, or that is the default of a bucket.

    @ivar kind: L{SSE_S3}, L{SSE_KMS} or L{SSE_C}.
    @ivar keyId: With L{SSE_KMS}, the name of a master key or an ARN that ends in one, as the client
        gave it; empty for the default key.
    @ivar context: With L{SSE_KMS}, Base64 of a JSON object of texts, as the client gave it; empty
        for none.
    @ivar bucketKeyEnabled: The value that a client reads back; L{None} if it named none.
    @ivar customerKey: With L{SSE_C}, the key.
    """

    kind: str
    keyId: str = ""
    context: str = ""
    bucketKeyEnabled: bool | None = None
    customerKey: CustomerKey | None = None


class BucketEncryption(Struct, frozen=True, omit_defaults=True):
    """
    The encryption configuration of a bucket. It is stored as JSON without members that are absent.

    @ivar kind: L{SSE_S3} or L{SSE_KMS}, the default of writes that name no encryption; empty for no
        default.
    @ivar keyId: As in L{RequestedEncryption}.
    @ivar bucketKeyEnabled: The value that a client reads back; L{None} if it named none.
    @ivar blocked: The blocked kinds, as the client gave them: L{SSE_C}, or C{NONE} for none.
    """

    kind: str = ""
    keyId: str = ""
    bucketKeyEnabled: bool | None = None
    blocked: tuple[str, ...] = ()

    @property
    def default(self) -> RequestedEncryption | None:
        """The encryption of writes that name none; L{None} for plain bytes."""
        if not self.kind:
            return None
        return RequestedEncryption(self.kind, self.keyId, bucketKeyEnabled=self.bucketKeyEnabled)

    @property
    def blocksCustomerKeys(self) -> bool:
        """Whether writes with L{SSE_C} are refused."""
        return SSE_C in self.blocked


def checkAllowed(configuration: BucketEncryption | None, kind: str) -> None:
    """
    Check that a bucket accepts new objects with an encryption.

    @param configuration: The encryption configuration of the bucket.
    @param kind: L{SSE_S3}, L{SSE_KMS} or L{SSE_C}.
    @raise AccessDenied: The bucket blocks the kind.
    """
    if kind == SSE_C and configuration is not None and configuration.blocksCustomerKeys:
        raise AccessDenied("The bucket blocks encryption with keys of clients (SSE-C).")


KIND_FIELD: Final = b"x-amz-server-side-encryption"
KEY_ID_FIELD: Final = KIND_FIELD + b"-aws-kms-key-id"
BUCKET_KEY_FIELD: Final = KIND_FIELD + b"-bucket-key-enabled"
ALGORITHM_FIELD: Final = KIND_FIELD + b"-customer-algorithm"


def describeEncryption(encryption: ObjectEncryption) -> dict[bytes, bytes]:
    """
    Return the encryption of an object under the names that requests, responses and the language of
    policies have for it: those of S3's header fields.
    """
    if encryption.kind == SSE_C:
        return {ALGORITHM_FIELD: SSE_S3.encode("ascii")}
    found = {KIND_FIELD: encryption.kind.encode("ascii")}
    if encryption.keyId:
        found[KEY_ID_FIELD] = encryption.keyId.encode("latin-1")
    if encryption.bucketKeyEnabled and encryption.kind == SSE_KMS:
        found[BUCKET_KEY_FIELD] = b"true"
    return found


_MISSING = (
    "The object was stored using a form of Server Side Encryption. The correct parameters must be "
    "provided to retrieve the object."
)
_SURPLUS = "The encryption parameters are not applicable to this object."
_MISSING_PART = (
    "The multipart upload initiate requested encryption. Subsequent part requests must include the "
    "appropriate encryption parameters."
)
_SURPLUS_PART = (
    "The multipart upload initiate did not request encryption. Please resend the request without "
    "sending encryption parameters."
)


def checkKeySent(
    encryption: ObjectEncryption | None, key: CustomerKey | None, isUpload: bool = False
) -> None:
    """
    Check that a request has a client's key if its object or upload needs one, and only then.

    @param encryption: The encryption of the object or upload; L{None} for plain bytes.
    @raise InvalidRequest: The key is missing, or superfluous.
    """
    needsKey = encryption is not None and encryption.kind == SSE_C
    if needsKey == (key is not None):
        return
    if needsKey:
        raise InvalidRequest(_MISSING_PART if isUpload else _MISSING)
    raise InvalidRequest(_SURPLUS_PART if isUpload else _SURPLUS)


def hidesDigests(encryption: ObjectEncryption | None) -> bool:
    """
    Return whether the digests of an object are secret: its checksums are sealed, and its ETag is
    not the MD5 of its bytes.
    """
    return encryption is not None and encryption.kind != SSE_S3


def mapChecksums(
    attributes: Attributes, change: Callable[[Checksum | None], Checksum | None]
) -> Attributes:
    """Change the checksums of an object and its parts."""
    parts = tuple(
        PartSummary(part.number, part.size, change(part.checksum)) for part in attributes.parts
    )
    return replace(attributes, checksum=change(attributes.checksum), parts=parts)


def withDigestsOf(record: ObjectRecord, plain: Attributes) -> ObjectRecord:
    """Return a record with the checksums of other attributes, which are not sealed."""
    attributes = replace(record.attributes, checksum=plain.checksum, parts=plain.parts)
    return replace(record, attributes=attributes)


def withoutDigests(attributes: Attributes) -> Attributes:
    """Return the attributes of an object without checksums, if they are sealed."""
    if not hidesDigests(attributes.encryption):
        return attributes
    return mapChecksums(attributes, lambda checksum: None)
