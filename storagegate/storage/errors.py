"""What can go wrong in the store, in the store's own words; S3 codes are made above it."""

from storagegate.storage.records import Bucket


class StoreError(Exception):
    """Anything that the store refuses or cannot do."""


class NoSuchBucket(StoreError):
    """There is no bucket of that name."""


class BucketExists(StoreError):
    """
    There is a bucket of that name.

    @ivar bucket: The one that is there.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.name)
        self.bucket = bucket


class BucketNotEmpty(StoreError):
    """The bucket still holds objects or uploads in progress."""


class NoSuchKey(StoreError):
    """There is no object of that key (and version)."""


class NoSuchUpload(StoreError):
    """There is no such multipart upload, or it has ended."""


class InvalidPart(StoreError):
    """A part that was named is not there, or its ETag is another."""


class PreconditionFailed(StoreError):
    """A L{WriteCondition<storagegate.storage.records.WriteCondition>} did not hold."""


class ConcurrentChange(StoreError):
    """What was to be copied or completed changed in between; try again."""


class StoreFull(StoreError):
    """The disk is full. Nothing was stored; deletes still work."""


class StoreReadOnly(StoreError):
    """
    An fsync failed: what the disk holds is not known, so nothing more is written until a restart.
    """


class StoreBusy(StoreError):
    """More work is waiting than the store takes."""


class CorruptBlob(StoreError):
    """A blob is missing, short, or its bytes are not those that were written."""


class CorruptObject(StoreError):
    """The bytes of a small object in the catalog are missing, or not those that were written."""


class KeyExists(StoreError):
    """An access key of that name has been issued already."""
