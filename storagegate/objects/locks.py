"""Checks of the locks that requests name; the store decides whether a version is locked."""

from storagegate.objects import errors
from storagegate.objects.dates import isoTimestamp
from storagegate.storage.errors import BucketNotLocked
from storagegate.storage.records import UNLOCKED, Bucket, ObjectLock

HOLDS = {"ON": True, "OFF": False}
"""Whether a legal hold is on, by its status."""


def checkLock(bucket: Bucket, lock: ObjectLock, nowMs: int) -> None:
    """
    Check that the lock that a request names is valid in a bucket.

    @param nowMs: Milliseconds since the epoch.
    @raise InvalidRequest: The bucket has no object lock.
    @raise InvalidArgument: The date is not in the future.
    """
    if lock is UNLOCKED:
        return
    requireLock(bucket)
    if lock.mode and lock.untilMs <= nowMs:
        message = "The retain until date must be in the future!"
        raise errors.InvalidArgument(message, name="retainUntil", value=isoTimestamp(lock.untilMs))


def requireLock(bucket: Bucket) -> None:
    """
    Reject a request about locks in a bucket without object lock.

    @raise InvalidRequest: The bucket has no object lock.
    """
    if not bucket.lockEnabled:
        raise errors.asDomainError(BucketNotLocked())
