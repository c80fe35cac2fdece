"""
Changes of the catalog, one frozen value each.

L{ICatalog.commit<storagegate.storage.interfaces.ICatalog.commit>} takes one and fires with the type
that its class names. A back end has one table from these types to its functions. A change names its
bucket, from which a catalog of several shards finds the shard.

All keys are UTF-8. A change may also fail with C{StoreFull}, C{StoreReadOnly} or C{StoreBusy}, and
with C{CommitUnknown} if it may have been committed.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import Struct
from twisted.internet.defer import Deferred

from storagegate.storage.records import (
    AccessKey,
    Bucket,
    Content,
    DefaultRetention,
    MultipartUpload,
    ObjectRecord,
    Part,
    Removal,
    WriteCondition,
)

T = TypeVar("T")

NO_BLOBS: Mapping[str, int] = MappingProxyType({})

NO_DOCUMENTS: Mapping[str, bytes | None] = MappingProxyType({})


class UncancellableDeferred(Deferred[Any]):
    """
    The result of a mutation.

    C{cancel} does nothing: the mutation is still committed or refused, and the owner of its blobs
    must wait for the outcome.
    """

    def cancel(self) -> None:
        """Do nothing."""


class Mutation(Struct, Generic[T], frozen=True):
    """A change of the catalog whose result is a C{T}."""


class BucketMutation(Mutation[T], Generic[T], frozen=True):
    """A change in one bucket."""

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        raise NotImplementedError


class NamedBucketMutation(BucketMutation[T], Generic[T], frozen=True):
    """
    A change in a bucket given by name.

    @ivar bucket: The bucket's name.
    """

    bucket: str

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        return self.bucket


class StoreMutation(Mutation[T], Generic[T], frozen=True):
    """A change of the store's own rows, in no bucket."""


class BlobMutation(Mutation[None], frozen=True):
    """A change of the rows of blobs, which several buckets may use."""


class AddBucket(BucketMutation[None], frozen=True):
    """
    Create a bucket.

    @ivar created: The new bucket; its name is unique among all accounts.
    @raise BucketExists: A bucket of this name exists, in any account.
    """

    created: Bucket

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        return self.created.name


class RemoveBucket(NamedBucketMutation[None], frozen=True):
    """
    Remove an empty bucket.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotEmpty: The bucket holds versions, delete markers or uploads in progress.
    """


class SetVersioning(NamedBucketMutation[None], frozen=True):
    """
    Enable or suspend versioning for writes that are committed from now on.

    @ivar versioning: C{VERSIONING_ENABLED} or C{VERSIONING_SUSPENDED}.
    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketLocked: Versioning cannot be suspended: the bucket has object lock.
    """

    versioning: str


class SetObjectLock(NamedBucketMutation[None], frozen=True):
    """
    Enable object lock on a bucket and set its default retention. Object lock cannot be disabled.

    @ivar default: The retention of new versions that specify none; L{None} for no default.
    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotVersioned: The bucket's versioning is not enabled.
    """

    default: DefaultRetention | None


class PutSettings(NamedBucketMutation[int], frozen=True):
    """
    Store settings of a bucket atomically. The result is the new generation of its settings.

    @ivar documents: Documents by name; L{None} removes a setting.
    @ivar expected: Documents that settings must have now, by name; L{None} for settings that must
        be absent.
    @raise NoSuchBucket: The bucket does not exist.
    @raise SettingsChanged: A setting differs from the expected one; nothing was stored.
    """

    documents: Mapping[str, bytes | None]
    expected: Mapping[str, bytes | None] = NO_DOCUMENTS


class PutTags(NamedBucketMutation[None], frozen=True):
    """
    Replace the tags of an object. Nothing else changes, and no version is created.

    @ivar versionId: The version to tag; L{None} for the current object.
    @ivar tags: URL-encoded as in C{x-amz-tagging}; empty removes all tags.
    @ivar seen: The sequence and the tags that the object must have; only for the current object.
    @raise NoSuchBucket: The bucket does not exist.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    @raise ConcurrentChange: The current object differs from C{seen}, or does not exist any more;
        nothing has changed.
    """

    key: bytes
    versionId: str | None
    tags: str
    seen: tuple[int, str] | None = None


class PutAcl(NamedBucketMutation[None], frozen=True):
    """
    Replace the access control list of an object. Nothing else changes.

    @ivar sequence: The sequence of the record to change, which need not be current.
    @ivar acl: Text that is opaque to the catalog; empty for the private list.
    @raise NoSuchBucket: The bucket does not exist.
    @raise NoSuchKey: The version no longer exists.
    """

    key: bytes
    sequence: int
    acl: str


class PutRetention(NamedBucketMutation[None], frozen=True):
    """
    Change the retention of a version. Nothing else changes, and no version is created.

    @ivar versionId: The version to retain; L{None} for the current object.
    @ivar mode: C{GOVERNANCE} or C{COMPLIANCE}; empty removes the retention.
    @ivar untilMs: When it ends, in milliseconds since the epoch; 0 to remove it.
    @ivar atMs: The time of the request, which decides whether the existing retention has expired.
    @ivar bypass: Whether to bypass governance mode. Compliance mode can only be extended.
    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotLocked: The bucket has no object lock.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    @raise ObjectLocked: The existing retention forbids the change.
    """

    key: bytes
    versionId: str | None
    mode: str
    untilMs: int
    atMs: int
    bypass: bool = False


class PutLegalHold(NamedBucketMutation[None], frozen=True):
    """
    Place or release the legal hold of a version.

    @ivar versionId: The version to hold; L{None} for the current object.
    @ivar isOn: Whether to place the hold or release it.
    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotLocked: The bucket has no object lock.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    """

    key: bytes
    versionId: str | None
    isOn: bool


class PutObject(BucketMutation[ObjectRecord], frozen=True):
    """
    Store an object under its key and reference its content. The result is the record with its
    C{sequence} and C{versionId}.

    The bucket's versioning state at the commit decides whether the current object is replaced or
    becomes a noncurrent version. If versioning is suspended, the new object replaces the C{null}
    version, at any position among the versions of the key.

    If the bucket has object lock, a record without a retention gets the bucket's default at the
    commit.

    Each of C{record.content.segments} is one reference to its blob.

    @ivar record: The object to store; the catalog ignores its C{sequence} and assigns one.
    @ivar condition: Evaluated against the current object of the key.
    @ivar newBlobs: The new blobs of the segments with their CRC-32C; each gets a row. All other
        blobs must already have a row (a copy).
    @raise NoSuchBucket: The bucket does not exist.
    @raise NoSuchKey: C{If-Match} on a key without an object.
    @raise PreconditionFailed: The condition did not hold.
    @raise BucketChanged: The bucket's revision differs from the condition's, or the bucket does not
        have the key that wraps the object's key, because it was removed and created again.
    @raise ConcurrentChange: The blob of a segment is being removed, or it is neither known nor new.
    @raise BlobsElsewhere: The blob of a segment is in another shard than the bucket.
    @raise BucketNotLocked: The record has a lock, but the bucket has no object lock.
    """

    record: ObjectRecord
    condition: WriteCondition
    newBlobs: Mapping[str, int] = NO_BLOBS

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        return self.record.bucket

    @property
    def content(self) -> Content:
        """The content that is referenced."""
        return self.record.content


class RemoveObjects(NamedBucketMutation[list[Removal | Exception]], frozen=True):
    """
    Remove objects in one transaction. The result has for each entry the removal, or its exception
    (C{PreconditionFailed}, C{NoSuchKey}, C{ObjectLocked} for a version that is locked at C{atMs},
    and C{ConcurrentChange} for a removal by a rule that no longer applies).

    Without a version id, the current object is removed; in a bucket that has ever had versioning
    enabled, a delete marker becomes the newest version of the key, even if the key has no versions.
    With a version id, that version is removed, and the newest remaining version becomes current.

    @ivar entries: Key, version id or L{None}, and a condition on the current object or the named
        version.
    @ivar account: The owner of delete markers.
    @ivar atMs: The time of delete markers, in milliseconds since the epoch.
    @raise NoSuchBucket: The bucket does not exist.
    @raise InvalidVersionId: This store cannot have issued one of the ids.
    """

    entries: Sequence[tuple[bytes, str | None, WriteCondition]]
    account: str = ""
    atMs: int = 0


class CreateUpload(BucketMutation[None], frozen=True):
    """
    Create a multipart upload.

    @ivar upload: The upload with its id.
    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketChanged: The bucket does not have the key that wraps the upload's key.
    """

    upload: MultipartUpload

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        return self.upload.bucket


class PutPart(NamedBucketMutation[None], frozen=True):
    """
    Store a part and reference its content. It replaces a part of the same number.

    @ivar key: The key of the upload.
    @ivar uploadId: The id of the part's upload.
    @ivar part: The part with its number, ETag and content.
    @ivar newBlobs: As for L{PutObject}.
    @raise NoSuchUpload: The upload does not exist.
    @raise ConcurrentChange: As for L{PutObject}.
    """

    key: bytes
    uploadId: str
    part: Part
    newBlobs: Mapping[str, int] = NO_BLOBS

    @property
    def content(self) -> Content:
        """The content that is referenced."""
        return self.part.content


class CompleteUpload(BucketMutation[ObjectRecord], frozen=True):
    """
    Assemble the listed parts into an object and end the upload; other parts are dropped. The result
    is the stored record.

    @ivar uploadId: The id of the upload, whose bucket and key must equal those in C{record}.
    @ivar record: The new object; its content is replaced by the segments of the parts in the given
        order.
    @ivar parts: Part number and ETag.
    @ivar condition: Evaluated against the current object of the key.
    @raise NoSuchUpload: The upload does not exist.
    @raise InvalidPart: A part does not exist, or its ETag differs (it was uploaded again).
    @raise PreconditionFailed: The condition did not hold. The upload stays in progress.
    """

    uploadId: str
    record: ObjectRecord
    parts: Sequence[tuple[int, str]]
    condition: WriteCondition

    @property
    def bucketName(self) -> str:
        """The name of the bucket."""
        return self.record.bucket


class AbortUpload(NamedBucketMutation[None], frozen=True):
    """
    End an upload and drop its parts.

    @ivar key: The key of the upload.
    @ivar uploadId: The id of the upload.
    @ivar generation: The generation that the bucket's settings must have; L{None} for any.
    @raise NoSuchUpload: The upload does not exist.
    @raise ConcurrentChange: The generation of the settings differs.
    """

    key: bytes
    uploadId: str
    generation: int | None = None


class PutProgress(StoreMutation[None], frozen=True):
    """
    Store the progress of a background task.

    @ivar task: The name of the task.
    @ivar document: The document that L{ICatalog.progress
        <storagegate.storage.interfaces.ICatalog.progress>} returns, in this process or after a
        restart.
    """

    task: str
    document: bytes


class AddAccessKey(StoreMutation[None], frozen=True):
    """
    Issue a key.

    @raise KeyExists: The access key is taken.
    """

    key: AccessKey


class ChangeAccessKey(StoreMutation[bool], frozen=True):
    """Replace the issued key with the same C{accessKey}. The result is whether it existed."""

    key: AccessKey


class RemoveAccessKey(StoreMutation[bool], frozen=True):
    """Revoke a key. The result is whether it existed."""

    accessKey: str


class NoteKeyUses(StoreMutation[None], frozen=True):
    """
    Record when keys were last used. The generation of the keys does not change.

    @ivar uses: Times in ms by access key; revoked keys are ignored.
    """

    uses: Mapping[str, int]


class PutIdentities(StoreMutation[int], frozen=True):
    """
    Store documents and keys of an account atomically. The result is the account's new revision,
    which is also the new generation of the keys.

    @ivar account: The account of all documents and keys.
    @ivar revision: The revision from which the change was computed; 0 for an account without
        documents.
    @ivar documents: JSON by kind and name in lower case; L{None} removes a document.
    @ivar addedKeys: Keys to issue.
    @ivar changedKeys: Keys that replace the ones with the same C{accessKey}.
    @ivar removedKeys: Access keys to revoke; absent ones are ignored.
    @raise IdentitiesChanged: The account has another revision, or a changed key does not exist.
    @raise KeyExists: The access key of a new key is taken.
    """

    account: str
    revision: int
    documents: Mapping[tuple[str, str], bytes | None]
    addedKeys: Sequence[AccessKey] = ()
    changedKeys: Sequence[AccessKey] = ()
    removedKeys: Sequence[str] = ()


class ForgetBlobs(BlobMutation, frozen=True):
    """Remove the rows of removed blobs. Rows with references stay."""

    ids: Sequence[str]


class MarkCorrupt(BlobMutation, frozen=True):
    """
    Record that a blob is corrupt.

    @ivar blob: The blob's id; if it has no row, nothing is stored in the catalog.
    """

    blob: str


class ClearCorrupt(BlobMutation, frozen=True):
    """
    Record that a blob is intact again.

    @ivar blob: The blob's id.
    """

    blob: str


def newBlobsOf(mutation: Mutation[Any]) -> Mapping[str, int]:
    """Return the new blobs that a mutation references, with their CRC-32C."""
    return mutation.newBlobs if isinstance(mutation, PutObject | PutPart) else NO_BLOBS


def copiedBlobsOf(mutation: Mutation[Any]) -> Sequence[str]:
    """Return the blobs that a mutation references and that must already have a row."""
    if not isinstance(mutation, PutObject | PutPart):
        return ()
    segments = mutation.content.segments
    return [each.blob for each in segments if each.blob not in mutation.newBlobs]


def noteDamage(corrupt: set[str], mutation: BlobMutation) -> None:
    """
    Update the blobs that a process knows to be corrupt.

    @param corrupt: Their ids, modified in place.
    """
    match mutation:
        case ForgetBlobs(ids):
            corrupt.difference_update(ids)
        case MarkCorrupt(blob):
            corrupt.add(blob)
        case ClearCorrupt(blob):
            corrupt.discard(blob)
