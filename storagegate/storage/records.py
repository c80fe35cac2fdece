"""
The value types of the store.

Keys are C{bytes} (UTF-8) everywhere below the protocol: they sort in S3 order and may contain any
character. Times are whole milliseconds since the epoch. ETags carry no quotation marks.

Values are C{msgspec} structs: an attrs instance takes three times as long to create and five times
the memory.
"""

from calendar import isleap
from collections.abc import Mapping
from datetime import date

import msgspec
from attrs import field, frozen
from msgspec import Struct

INLINE_LIMIT = 64 * 1024
"""
Objects up to this many bytes live in their catalog row, without a file or an fsync of their own.
"""

NULL_VERSION = "null"
"""
The id of a version written before versioning was enabled or while it was suspended. Each key has at
most one.
"""

NEWER_LIMIT = 100
"""The most noncurrent versions per key that a rule can keep."""

VERSIONING_ENABLED = "Enabled"
VERSIONING_SUSPENDED = "Suspended"

GOVERNANCE = "GOVERNANCE"
COMPLIANCE = "COMPLIANCE"

RETENTION_MODES = (GOVERNANCE, COMPLIANCE)
"""The retention modes. A permission can bypass the first one; nothing can bypass the second."""


class Bucket(Struct, frozen=True):
    """
    A bucket and the account that owns it.

    @ivar ownership: The object ownership given at creation; empty if none was given.
    @ivar versioning: C{"Enabled"}, C{"Suspended"}, or empty if versioning was never enabled.
    @ivar lockEnabled: Whether object lock is enabled.
    @ivar generation: Changes with each change of the bucket's settings and never repeats, even
        across buckets; 0 if the bucket never had settings.
    """

    name: str
    account: str
    createdMs: int
    region: str
    ownership: str = ""
    versioning: str = ""
    lockEnabled: bool = False
    generation: int = 0


class Segment(Struct, frozen=True):
    """A run of bytes within one blob: C{length} bytes from C{offset}."""

    blob: str
    offset: int
    length: int


class Content(Struct, frozen=True):
    """
    The bytes of an object: either C{inline}, or an ordered list of C{segments}.

    The content that a writer returns is durable but has no references yet. It must be stored in the
    catalog, which counts references, or removed.
    """

    size: int
    inline: bytes | None = None
    segments: tuple[Segment, ...] = ()


class Checksum(Struct, frozen=True):
    """
    An S3 checksum as returned to clients.

    @ivar algorithm: C{"CRC32"}, C{"CRC32C"}, C{"CRC64NVME"}, C{"SHA1"} or C{"SHA256"}.
    @ivar value: Base64, followed by C{-n} if it is composite.
    @ivar kind: C{"FULL_OBJECT"} or C{"COMPOSITE"}.
    """

    algorithm: str
    value: str
    kind: str = "FULL_OBJECT"


class PartSummary(Struct, frozen=True):
    """One part of a completed multipart object, for C{partNumber} reads and GetObjectAttributes."""

    number: int
    size: int
    checksum: Checksum | None = None


class ObjectLock(Struct, frozen=True, omit_defaults=True):
    """
    The retention and legal hold of a version.

    @ivar mode: One of L{RETENTION_MODES}; empty without a retention.
    @ivar untilMs: When the retention ends, in milliseconds since the epoch.
    @ivar legalHold: L{None} if it was never set.
    """

    mode: str = ""
    untilMs: int = 0
    legalHold: bool | None = None

    def isActive(self, atMs: int, bypass: bool = False) -> bool:
        """
        Return whether the lock forbids removal of the version.

        @param atMs: The time of the removal.
        @param bypass: Whether to bypass a retention in governance mode.
        """
        if self.legalHold:
            return True
        return self.untilMs > atMs and not (bypass and self.mode == GOVERNANCE)


UNLOCKED = ObjectLock()


class DefaultRetention(Struct, frozen=True, omit_defaults=True):
    """
    The retention of new versions that specify none. Like all retentions it ends on a whole second,
    so that clients can write back the date they read.

    @ivar days: 0 if the period is in years.
    @ivar years: 0 if the period is in days. The retention ends on the same day of a later year; 29
        February becomes 1 March in a common year.
    """

    mode: str
    days: int = 0
    years: int = 0

    def until(self, startMs: int) -> int:
        """Return when the retention ends for a version created at C{startMs}."""
        days = self.days
        if self.years:
            day = date.fromordinal(_EPOCH + startMs // _DAY)
            year = day.year + self.years
            isMissing = (day.month, day.day) == (2, 29) and not isleap(year)
            end = date(year, 3, 1) if isMissing else day.replace(year=year)
            days = (end - day).days
        return wholeSeconds(startMs + days * _DAY)


KEYED = "encryptionKeys"
"""The setting of each bucket that has wrapped encryption keys, by which such buckets are found."""

BUCKET_KEY = "encryptionKey:"
"""The names of bucket settings that hold a wrapped encryption key, followed by its id."""

DEFAULT_RETENTION = "objectLock"
"""The name of the bucket setting that holds the L{DefaultRetention} as JSON."""

readDefault = msgspec.json.Decoder(DefaultRetention).decode
"""Decodes the document of L{DEFAULT_RETENTION}."""


def wholeSeconds(ms: int) -> int:
    """Round milliseconds up to whole seconds."""
    return -(-ms // 1000) * 1000


_DAY = 24 * 60 * 60 * 1000
_EPOCH = date(1970, 1, 1).toordinal()


class ObjectEncryption(Struct, frozen=True, omit_defaults=True):
    """
    How the bytes of an object, or of the parts of an upload, are encrypted.

    @ivar kind: A kind of C{storagegate.objects.encryption.requests}.
    @ivar wrapped: The wrapped object key, in Base64.
    @ivar bucketKey: The id of the bucket key that wraps it, in a setting named L{BUCKET_KEY}; empty
        if the client's key does. It never repeats, even for a later bucket of the same name.
    @ivar keyId: The master key as the client named it; empty if it named none.
    @ivar context: The encryption context as the client gave it, in Base64.
    @ivar bucketKeyEnabled: Whether the client or the bucket enabled bucket keys.
    """

    kind: str
    wrapped: str
    bucketKey: str = ""
    keyId: str = ""
    context: str = ""
    bucketKeyEnabled: bool = False


class Attributes(Struct, frozen=True, omit_defaults=True):
    """
    The properties of an object that a client can set. They are stored as one JSON text without
    defaults, because short rows let a page hold more of them.

    @ivar headers: C{content-encoding}, C{content-disposition}, C{content-language},
        C{cache-control}, C{expires}: lower-case name to value.
    @ivar metadata: User metadata without the C{x-amz-meta-} prefix, lower-case names.
    @ivar tags: URL-encoded as in C{x-amz-tagging}; stored in a separate column of the object's row,
        because tags change independently.
    @ivar lock: Also stored in separate columns.
    @ivar acl: The access control list, encoded by C{encodeList} of
        C{storagegate.objects.access.acl}; empty for the private list. Stored in a separate column,
        like C{tags}.
    @ivar uploadId: The multipart upload that created the object, by which a repeated completion
        finds it; empty for other objects.
    @ivar encryption: How the bytes are encrypted; L{None} for plain bytes.
    """

    contentType: str = "binary/octet-stream"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    checksum: Checksum | None = None
    parts: tuple[PartSummary, ...] = ()
    storageClass: str = "STANDARD"
    uploadId: str = ""
    tags: str = ""
    lock: ObjectLock = UNLOCKED
    acl: str = ""
    encryption: ObjectEncryption | None = None


class ObjectRecord(Struct, frozen=True):
    """
    One version of one object.

    @ivar account: The account that wrote the object.
    @ivar versionId: Assigned by the catalog: an id, or C{null}.
    @ivar sequence: The catalog's number of this write. It never repeats, so records with the same
        bucket, key and sequence are the same write.
    @ivar isDeleteMarker: Whether the version is a delete marker, which has no bytes.
    """

    bucket: str
    key: bytes
    size: int
    etag: str
    modifiedMs: int
    account: str
    attributes: Attributes
    content: Content
    versionId: str = NULL_VERSION
    sequence: int = 0
    isDeleteMarker: bool = False


class ObjectChange(Struct, frozen=True):
    """
    A committed change.

    @ivar key: L{None} if the bucket itself was removed.
    @ivar record: The current object of the key; L{None} if the key no longer has one.
    """

    bucket: str
    key: bytes | None
    record: ObjectRecord | None


class ListedObject(Struct, frozen=True, array_like=True, gc=False):
    """
    A row of a listing.

    Encoded as a JSON array, so that a page of 1,000 rows is read in a quarter of the time.

    @ivar contentType: Empty unless the query requested it.
    """

    key: str
    size: int
    etag: str
    modifiedMs: int
    account: str
    storageClass: str
    checksumAlgorithm: str
    checksumKind: str
    contentType: str = ""


class ListedVersion(Struct, frozen=True, array_like=True, gc=False):
    """
    A row of a listing of versions.

    @ivar sequence: The sequence of the version's record.
    @ivar isLatest: Whether it is the newest version of its key.
    """

    key: str
    size: int
    etag: str
    modifiedMs: int
    account: str
    storageClass: str
    checksumAlgorithm: str
    checksumKind: str
    versionId: str
    sequence: int
    isDeleteMarker: int
    isLatest: int


class VersionListing(Struct, frozen=True):
    """
    A page of a listing of versions: rows by key, newest first within a key, and common prefixes.

    @ivar last: The key or the common prefix after which the next page starts; L{None} if this
        page is the last.
    @ivar lastVersion: The id of the version of C{last} after which the next page starts, never
        C{null}, so that it stays valid after that version is removed; L{None} if C{last} is a
        common prefix.
    """

    versions: tuple[ListedVersion, ...]
    prefixes: tuple[str, ...]
    last: str | None
    lastVersion: str | None


class Removal(Struct, frozen=True):
    """
    The effect of a deletion on a key.

    @ivar isFound: Whether the key or version existed.
    @ivar versionId: The id of the delete marker that was created or the version that was removed;
        empty if neither applies.
    @ivar isDeleteMarker: Whether C{versionId} identifies a delete marker.
    @ivar isChanged: Whether the current object of the key changed or was removed.
    @ivar current: The new current object, without its bytes.
    """

    isFound: bool
    versionId: str = ""
    isDeleteMarker: bool = False
    isChanged: bool = False
    current: ObjectRecord | None = None


class ObjectListing(Struct, frozen=True):
    """
    A page of a listing: objects and common prefixes, each in order.

    @ivar last: The key or the common prefix after which the next page starts; L{None} if this
        page is the last.
    """

    objects: tuple[ListedObject, ...]
    prefixes: tuple[str, ...]
    last: str | None


class MultipartUpload(Struct, frozen=True):
    """A multipart upload in progress."""

    bucket: str
    key: bytes
    uploadId: str
    account: str
    startedMs: int
    attributes: Attributes
    checksumAlgorithm: str = ""
    checksumKind: str = ""


class UploadListing(Struct, frozen=True):
    """
    A page of a listing: uploads and common prefixes, each in order.

    @ivar last: The key, or the common prefix, and the upload id after which the next page starts;
        L{None} if this page is the last.
    """

    uploads: list[MultipartUpload]
    prefixes: list[str]
    last: tuple[str, str] | None


class Part(Struct, frozen=True):
    """An uploaded part. Its content is always in blobs, never inline."""

    number: int
    size: int
    etag: str
    modifiedMs: int
    content: Content
    checksum: Checksum | None = None


class ExpiryRow(Struct, frozen=True, array_like=True, gc=False):
    """
    A version as read by the search for expired versions.

    @ivar isDeleteMarker: Whether it is a delete marker.
    @ivar noncurrentMs: When the version became noncurrent; L{None} if it is current.
    @ivar tags: URL-encoded.
    @ivar retainUntilMs: When the retention ends; L{None} without a retention.
    @ivar legalHold: L{None} if it was never set.
    """

    key: str
    sequence: int
    versionId: str
    isDeleteMarker: int
    size: int
    modifiedMs: int
    noncurrentMs: int | None
    tags: str
    retainUntilMs: int | None
    legalHold: int | None

    @property
    def lock(self) -> ObjectLock:
        """The version's lock, without the mode: a rule never bypasses a lock."""
        return ObjectLock("", self.retainUntilMs or 0, bool(self.legalHold))


class Expiry(Struct, frozen=True):
    """
    The state of a version when a rule decided to remove it, or a move copied it. The version stays
    if any of this has changed or, as in every removal, if it is locked.

    @ivar sequence: The version's sequence.
    @ivar noncurrentMs: As in L{ExpiryRow}; so are C{tags}.
    @ivar generation: The generation of the bucket's settings, which contain a rule.
    @ivar newer: The number of newer noncurrent versions that the key must have, at most
        L{NEWER_LIMIT}.
    @ivar isOnly: Whether the key must have no other versions.
    """

    sequence: int
    noncurrentMs: int | None
    tags: str
    generation: int
    newer: int = 0
    isOnly: bool = False


class WriteCondition(Struct, frozen=True):
    """
    The condition of a write, evaluated at the commit.

    @ivar absent: C{If-None-Match: *}: the object must not exist.
    @ivar etags: C{If-Match}: the object must exist with one of these ETags; C{("*",)} matches any.
    @ivar unlike: C{If-None-Match}: an object with one of these ETags must not exist.
    @ivar size: An existing object must have this size in bytes; for deletions only.
    @ivar modifiedSeconds: An existing object must have been modified in this second since the
        epoch; for deletions only.
    @ivar bypass: Whether to bypass a retention in governance mode; for deletions only.
    @ivar expiry: The state that the version must still have; for deletions only.
    @ivar revision: The revision that the bucket must have; only for L{PutObject
        <storagegate.storage.mutations.PutObject>} in a catalog with C{recentBucket}.
    """

    absent: bool = False
    etags: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    size: int | None = None
    modifiedSeconds: int | None = None
    bypass: bool = False
    expiry: Expiry | None = None
    revision: int | None = None

    @property
    def compares(self) -> bool:
        """Whether the condition compares an existing object with an ETag, a size or a time."""
        isByETag = bool(self.unlike) or bool(self.etags and "*" not in self.etags)
        return isByETag or self.size is not None or self.modifiedSeconds is not None


UNCONDITIONAL = WriteCondition()
"""A write without a condition."""


@frozen
class AccessKey:
    """
    A key pair that an operator issued.

    @ivar policy: C{"readwrite"}, C{"readonly"} or C{"writeonly"}.
    @ivar bucketPattern: A glob (C{*} and C{?}) that the bucket must match; empty for every bucket.
    @ivar prefixPattern: A glob that the key must match; empty for every key.
    @ivar role: The administrative role: a name in L{storagegate.objects.principals.ROLES}.
    @ivar expiresMs: When the key expires, in milliseconds since the epoch; 0 for never.
    @ivar disabled: Whether requests with the key are refused.
    @ivar note: Free text for operators.
    @ivar userName: The user of the account whose rights the key has; empty for a key of no user,
        which has the rights of its policy, and for a service key.
    @ivar parent: For a service key, the identity whose rights bound it: C{user/NAME}, or C{key/}
        and an access key, in the same account or the root pair's; empty for other keys.
    @ivar sessionPolicy: For a service key, the JSON policy that must also allow each request; empty
        for all rights of its parent.
    """

    accessKey: str
    secretKey: str = field(repr=False)
    account: str
    policy: str = "readwrite"
    bucketPattern: str = ""
    prefixPattern: str = ""
    email: str = ""
    createdMs: int = 0
    role: str = "none"
    expiresMs: int = 0
    disabled: bool = False
    note: str = ""
    userName: str = ""
    parent: str = ""
    sessionPolicy: str = ""

    @property
    def isBound(self) -> bool:
        """Whether it is the key of a user or a service key, so that others bound its rights."""
        return bool(self.userName or self.parent)


ACCOUNT = "account"
"""The kind of the row that has the revision of an account, which is no entity."""


class AccountDocuments(Struct, frozen=True):
    """
    The documents of the users, groups, roles, policies and OIDC providers of an account.

    @ivar revision: Differs after each change of a document, and never repeats.
    @ivar documents: JSON by kind and name in lower case.
    """

    revision: int
    documents: Mapping[tuple[str, str], bytes]


class BlobRow(Struct, frozen=True):
    """
    The catalog's row of a blob.

    @ivar crc: CRC-32C of all its bytes.
    @ivar refs: The number of segments that reference the blob.
    """

    id: str
    size: int
    crc: int
    refs: int
    damaged: bool


class BucketUsage(Struct, frozen=True):
    """
    The usage of a bucket.

    @ivar bucket: The bucket's name; empty for an aggregate of several.
    @ivar objects: All versions, without delete markers.
    @ivar bytes: Bytes of all versions, excluding parts of uploads.
    @ivar uploadBytes: Bytes of the parts of all uploads in progress.
    """

    bucket: str
    objects: int
    bytes: int
    uploads: int
    uploadBytes: int


class StoreUsage(Struct, frozen=True):
    """
    The usage of a store.

    @ivar buckets: The oldest buckets.
    @ivar others: The sum of all other buckets.
    @ivar accessKeys: The number of issued keys.
    """

    buckets: tuple[BucketUsage, ...]
    others: BucketUsage
    accessKeys: int


class OlderVersions(Struct, frozen=True):
    """
    The older versions in a bucket, without delete markers.

    @ivar bytes: Bytes of their contents.
    """

    count: int
    bytes: int


InlinePosition = tuple[bool, int, bytes, int]
"""
The position of a check of inline bytes: whether it is among noncurrent versions, the number of a
bucket, a key in it, and the number of the write.
"""


class InlineCheck(Struct, frozen=True):
    """
    The result of the check of a page of inline bytes.

    @ivar damaged: Bucket and key of each corrupt object.
    @ivar next: The position of the next page; L{None} after the last page.
    """

    damaged: tuple[tuple[str, bytes], ...]
    bytesRead: int
    next: InlinePosition | None


MIGRATION = "migration"
"""The name in C{meta} of the JSON mark of a move to or from a cluster."""
