"""The errors of the store. S3 maps them to its own codes."""

from storagegate.storage.records import Bucket


class StoreError(Exception):
    """Base class of the store's errors."""


class NoSuchBucket(StoreError):
    """There is no bucket of that name."""


class BucketExists(StoreError):
    """
    There is a bucket of that name.

    @ivar bucket: The existing one.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.name)
        self.bucket = bucket


class BucketNotEmpty(StoreError):
    """The bucket still holds objects or uploads in progress."""


class NoSuchKey(StoreError):
    """There is no object of that key (and version)."""


class InvalidVersionId(StoreError):
    """The text is no id of a version of this store."""


class BucketLocked(StoreError):
    """Versioning cannot be suspended: the bucket has object lock."""


class BucketNotLocked(StoreError):
    """The bucket has no object lock."""


class BucketNotVersioned(StoreError):
    """Object lock cannot be enabled: the bucket's versioning is not."""


class ObjectLocked(StoreError):
    """A retention or a legal hold forbids the change."""


class NoSuchUpload(StoreError):
    """There is no such multipart upload, or it has ended."""


class InvalidPart(StoreError):
    """A part that the request lists does not exist, or its ETag is another."""


class PreconditionFailed(StoreError):
    """A L{WriteCondition<storagegate.storage.records.WriteCondition>} did not hold."""


class ConcurrentChange(StoreError):
    """The source of a copy or completion changed in between; try again."""


class BlobsElsewhere(ConcurrentChange):
    """The bytes of a copy are in another shard than its bucket: they must be written there."""


class BucketChanged(ConcurrentChange):
    """The bucket has another revision than that by which a write was judged."""


class StoreFull(StoreError):
    """The disk is full. Nothing was stored; deletes still work."""


class StoreFullUnknown(StoreFull):
    """
    The disk was full in the middle of a commit, which may become visible if the process dies.

    The new blobs stay until a later commit of the same process has succeeded: that one overwrites
    the unfinished commit.
    """


class StoreReadOnly(StoreError):
    """
    An fsync failed: the content of the disk is unknown, so nothing more is written until a restart.
    """


class StoreBusy(StoreError):
    """The queue of the store is full."""


class BlobsRefused(StoreBusy):
    """
    The server of the blobs has understood a request and refuses it: the bucket, the credentials or
    the region is wrong, which time does not mend.
    """


class CommitUnknown(StoreBusy):
    """
    The catalog may have committed the change or not, and it must not be made a second time. Its
    new blobs stay, for they may be an object's.
    """


class CorruptBlob(StoreError):
    """A blob is missing, short, or its bytes are not those that were written."""


class CorruptObject(StoreError):
    """The bytes of a small object in the catalog are missing, or not those that were written."""


class KeyExists(StoreError):
    """An access key of that name has been issued already."""
