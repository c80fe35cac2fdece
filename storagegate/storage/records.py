"""
The values of the store.

Keys are C{bytes} (UTF-8) everywhere below the protocol: they sort as S3 sorts them and may hold
any character. Times are whole milliseconds since the epoch. ETags carry no quotation marks.

Values are structs of C{msgspec}: an attrs class takes three times as long to make one of, and five
times the memory.
"""

from calendar import isleap
from collections.abc import Mapping
from datetime import date

import msgspec
from attrs import field, frozen
from msgspec import Struct

INLINE_LIMIT = 64 * 1024
"""Objects up to this many bytes live in the catalog row: no file, no fsync of their own."""

NULL_VERSION = "null"
"""
The id of a version that was written before versioning was enabled, or while it was suspended; of
each key there is at most one.
"""

NEWER_LIMIT = 100
"""The most noncurrent versions that a rule keeps of each key."""

VERSIONING_ENABLED = "Enabled"
VERSIONING_SUSPENDED = "Suspended"

GOVERNANCE = "GOVERNANCE"
COMPLIANCE = "COMPLIANCE"

RETENTION_MODES = (GOVERNANCE, COMPLIANCE)
"""The modes of a retention; the first one gives way to a permission, the other one to nothing."""


class Bucket(Struct, frozen=True):
    """
    A bucket and the account that owns it.

    @ivar ownership: The object ownership that it was created with; empty if none was named.
    @ivar versioning: C{"Enabled"}, C{"Suspended"}, or empty if versioning was never enabled.
    @ivar lockEnabled: Whether its objects may be locked.
    @ivar generation: Changes with each change of its settings and never repeats, also not for
        another bucket; 0 if it never had any.
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

    The content that a writer returns is durable but has no references yet: it is either stored in
    the catalog, which counts them, or removed.
    """

    size: int
    inline: bytes | None = None
    segments: tuple[Segment, ...] = ()


class Checksum(Struct, frozen=True):
    """
    An S3 checksum as it is returned to clients.

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
    What keeps a version from being removed.

    @ivar mode: One of L{RETENTION_MODES}; empty without a retention.
    @ivar untilMs: When the retention ends.
    @ivar legalHold: L{None} if it was never set.
    """

    mode: str = ""
    untilMs: int = 0
    legalHold: bool | None = None

    def isActive(self, atMs: int, bypass: bool = False) -> bool:
        """
        Return whether the version must not be removed.

        @param atMs: The time of the removal.
        @param bypass: Whether a retention in governance mode gives way.
        """
        if self.legalHold:
            return True
        return self.untilMs > atMs and not (bypass and self.mode == GOVERNANCE)


UNLOCKED = ObjectLock()


class DefaultRetention(Struct, frozen=True, omit_defaults=True):
    """
    The retention of new versions that name none. Like all retentions it ends with a whole second,
    so that what clients read is what they may write.

    @ivar days: 0 if it is in years.
    @ivar years: 0 if it is in days. The same day of a later year, the 29 February's being the
        1 March.
    """

    mode: str
    days: int = 0
    years: int = 0

    def until(self, startMs: int) -> int:
        """Return when the retention of a version ends that is made at a time."""
        days = self.days
        if self.years:
            day = date.fromordinal(_EPOCH + startMs // _DAY)
            year = day.year + self.years
            isMissing = (day.month, day.day) == (2, 29) and not isleap(year)
            end = date(year, 3, 1) if isMissing else day.replace(year=year)
            days = (end - day).days
        return wholeSeconds(startMs + days * _DAY)


DEFAULT_RETENTION = "objectLock"
"""The name of the setting of a bucket that holds its L{DefaultRetention}, as JSON."""

readDefault = msgspec.json.Decoder(DefaultRetention).decode
"""Decodes the document of L{DEFAULT_RETENTION}."""


def wholeSeconds(ms: int) -> int:
    """Round milliseconds up to whole seconds."""
    return -(-ms // 1000) * 1000


_DAY = 24 * 60 * 60 * 1000
_EPOCH = date(1970, 1, 1).toordinal()


class Attributes(Struct, frozen=True, omit_defaults=True):
    """
    The properties of an object that a client has set; stored as one JSON text without those that
    have their default: short rows are many in a page.

    @ivar headers: C{content-encoding}, C{content-disposition}, C{content-language},
        C{cache-control}, C{expires}: lower-case name to value.
    @ivar metadata: User metadata without the C{x-amz-meta-} prefix, lower-case names.
    @ivar tags: URL-encoded, as C{x-amz-tagging} has them; a column of its own in the row of an
        object, for they change without it.
    @ivar lock: Likewise, in columns of their own.
    @ivar acl: The access control list, as C{encodeList} of C{storagegate.s3.access.acl} writes it;
        empty for the private one. Like C{tags} a column of its own.
    @ivar uploadId: The multipart upload that made the object, by which a completion that is
        repeated finds it; empty if none did.
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


class ObjectRecord(Struct, frozen=True):
    """
    One version of one object.

    @ivar account: The account that wrote it.
    @ivar versionId: Set by the catalog: an id, or C{null}.
    @ivar sequence: The catalog's own number of this write; it never repeats, so two records with
        the same bucket, key and sequence are the same write.
    @ivar isDeleteMarker: Whether it only says that the key was deleted; it has no bytes then.
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
    A change that was committed.

    @ivar key: L{None} if the bucket itself was removed.
    @ivar record: The object that the key holds now; L{None} if it holds none any more.
    """

    bucket: str
    key: bytes | None
    record: ObjectRecord | None


class ListedObject(Struct, frozen=True, array_like=True, gc=False):
    """
    A row of a listing.

    A C{Struct} whose JSON is a list: a page of 1,000 is read in a quarter of the time.

    @ivar contentType: Empty if the query did not request it.
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

    @ivar sequence: That of its record.
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
    A page of a listing of versions: rows by key, of each key the newest first; common prefixes.

    @ivar last: The key or the common prefix after which the next page starts; L{None} if this
        page is the last.
    @ivar lastVersion: The id of the version of C{last} after which it starts, also when that is
        gone by then, so never C{null}; L{None} if C{last} is a common prefix.
    """

    versions: tuple[ListedVersion, ...]
    prefixes: tuple[str, ...]
    last: str | None
    lastVersion: str | None


class Removal(Struct, frozen=True):
    """
    What a deletion has done to a key.

    @ivar isFound: Whether there was something to delete.
    @ivar versionId: The id of the delete marker that was made, or of the version that was removed;
        empty if there is none to name.
    @ivar isDeleteMarker: Whether C{versionId} is that of a delete marker.
    @ivar isChanged: Whether the key holds another object than before, or none any more.
    @ivar current: The object that it holds then, without its bytes.
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


class Part(Struct, frozen=True):
    """An uploaded part. Its content is always blobs, never inline."""

    number: int
    size: int
    etag: str
    modifiedMs: int
    content: Content
    checksum: Checksum | None = None


class ExpiryRow(Struct, frozen=True, array_like=True, gc=False):
    """
    A version as the search for expired ones has it.

    @ivar isDeleteMarker: Whether it is a delete marker.
    @ivar noncurrentMs: Since when it is not current; L{None} if it is.
    @ivar tags: Encoded.
    @ivar retainUntilMs: When its retention ends; L{None} without one.
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
        """Its lock, without the mode: no rule bypasses any."""
        return ObjectLock("", self.retainUntilMs or 0, bool(self.legalHold))


class Expiry(Struct, frozen=True):
    """
    Why a version is removed by a rule: how it was when that was decided. It stays if any of this is
    not so any more, and if it is locked, as in every removal.

    @ivar sequence: Its own.
    @ivar noncurrentMs: As that of L{ExpiryRow}; so are C{tags}.
    @ivar generation: Of the settings of its bucket, which have the rule.
    @ivar newer: The key must have so many noncurrent versions that are newer; at most
        L{NEWER_LIMIT}.
    @ivar isOnly: The key must have no other versions.
    """

    sequence: int
    noncurrentMs: int | None
    tags: str
    generation: int
    newer: int = 0
    isOnly: bool = False


class WriteCondition(Struct, frozen=True):
    """
    The condition of a write, evaluated at the moment of the commit.

    @ivar absent: C{If-None-Match: *}: there must be no such object.
    @ivar etags: C{If-Match}: the object must exist with one of these ETags; C{("*",)} is any.
    @ivar unlike: C{If-None-Match}: there must be no object with one of these ETags.
    @ivar size: An object that exists must have so many bytes; only of deletions.
    @ivar modifiedSeconds: An object that exists must be of this second since the epoch; likewise.
    @ivar bypass: Whether a retention in governance mode does not count; likewise.
    @ivar expiry: Why a rule removes it; likewise.
    @ivar revision: That which the bucket must have; only of L{ICatalog.putObject
        <storagegate.storage.interfaces.ICatalog.putObject>}, and where the catalog has a
        C{recentBucket}.
    """

    absent: bool = False
    etags: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    size: int | None = None
    modifiedSeconds: int | None = None
    bypass: bool = False
    expiry: Expiry | None = None
    revision: int | None = None


@frozen
class AccessKey:
    """
    A key pair that an operator issued.

    @ivar policy: C{"readwrite"}, C{"readonly"} or C{"writeonly"}.
    @ivar bucketPattern: A glob (C{*} and C{?}) that the bucket must match; empty is every bucket.
    @ivar prefixPattern: A glob that the key must match; empty is every key.
    @ivar role: What its owner may administer: a name in L{storagegate.s3.accounts.ROLES}.
    @ivar expiresMs: From then on it is refused; 0 is never.
    @ivar disabled: Whether it is refused.
    @ivar note: A text of the operator's.
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


class BlobRow(Struct, frozen=True):
    """
    A blob that the catalog knows.

    @ivar crc: CRC-32C of all its bytes.
    @ivar refs: Segments that name it.
    """

    id: str
    size: int
    crc: int
    refs: int
    damaged: bool


class BucketUsage(Struct, frozen=True):
    """
    What a bucket holds.

    @ivar bucket: Its name; empty for several.
    @ivar bytes: Of all objects, parts of uploads not included.
    @ivar uploadBytes: Of the parts of all uploads in progress.
    """

    bucket: str
    objects: int
    bytes: int
    uploads: int
    uploadBytes: int


class StoreUsage(Struct, frozen=True):
    """
    What a store holds.

    @ivar buckets: The oldest ones.
    @ivar others: All others together.
    @ivar accessKeys: How many keys are issued.
    """

    buckets: tuple[BucketUsage, ...]
    others: BucketUsage
    accessKeys: int


InlinePosition = tuple[bool, int, bytes, int]
"""
Where a check of inline bytes has come to: whether among the versions that are not current, the
number of a bucket, a key in it, and the number of the write.
"""


class InlineCheck(Struct, frozen=True):
    """
    The result of the check of a page of inline bytes.

    @ivar damaged: Bucket and key of objects whose bytes are not those that were written.
    @ivar next: Where the next page begins; L{None} at the end.
    """

    damaged: tuple[tuple[str, bytes], ...]
    bytesRead: int
    next: InlinePosition | None
