"""The errors of the store. S3 maps them to its own codes."""

from storagegate.storage.records import Bucket


class StoreError(Exception):
    """Base class of the store's errors."""


class NoSuchBucket(StoreError):
    """The bucket does not exist."""


class BucketExists(StoreError):
    """
    A bucket of this name already exists.

    @ivar bucket: The existing bucket.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.name)
        self.bucket = bucket


class BucketNotEmpty(StoreError):
    """The bucket still holds objects or uploads in progress."""


class NoSuchKey(StoreError):
    """The object, or the version, does not exist."""


class InvalidVersionId(StoreError):
    """The text is not a version id of this store."""


class BucketLocked(StoreError):
    """Versioning cannot be suspended: the bucket has object lock."""


class BucketNotLocked(StoreError):
    """The bucket has no object lock."""


class BucketNotVersioned(StoreError):
    """Object lock cannot be enabled: the bucket has no versioning."""


class ObjectLocked(StoreError):
    """A retention or a legal hold forbids the change."""


class NoSuchUpload(StoreError):
    """The multipart upload does not exist or has ended."""


class InvalidPart(StoreError):
    """A listed part does not exist, or its ETag differs."""


class PreconditionFailed(StoreError):
    """A L{WriteCondition<storagegate.storage.records.WriteCondition>} did not hold."""


class ConcurrentChange(StoreError):
    """The source of a copy or completion has changed; retry."""


class BlobsElsewhere(ConcurrentChange):
    """
    The source of a copy is in another shard than the target bucket; its bytes must be rewritten.
    """


class BucketChanged(ConcurrentChange):
    """The bucket is not the one that the write was checked against or encrypted for."""


class SettingsChanged(ConcurrentChange):
    """A setting of the bucket differs from the document that a change of settings expected."""


class StoreFull(StoreError):
    """The disk is full. Nothing was stored; deletes still work."""


class StoreFullUnknown(StoreFull):
    """
    The disk became full during a commit, which may become visible if the process dies.

    The new blobs stay until a later commit of the same process succeeds and so overwrites the
    unfinished commit.
    """


class StoreReadOnly(StoreError):
    """An fsync failed. The content of the disk is unknown, so writes stop until a restart."""


class StoreBusy(StoreError):
    """The queue of the store is full."""


class NoStandby(StoreBusy):
    """Commits of the catalog wait for no standby, although they must."""

    def __init__(self) -> None:
        super().__init__(
            "synchronous_standby_names of the catalog is empty: commits wait for no standby"
        )


class BlobsRefused(StoreBusy):
    """
    The blob server has rejected a request because of its bucket, credentials or region. Retrying
    does not help.
    """


class CommitUnknown(StoreBusy):
    """
    The catalog may or may not have committed the change, which must not be retried. Its new blobs
    are kept, because an object may reference them.
    """


class CorruptBlob(StoreError):
    """A blob is missing or short, or its bytes differ from the bytes that were written."""


class CorruptObject(StoreError):
    """The inline bytes of an object are missing or differ from the bytes that were written."""


class KeyExists(StoreError):
    """An access key of this name has already been issued."""


class IdentitiesChanged(StoreError):
    """The users or keys of an account have changed since they were read; retry."""
