"""
Object lock in header fields, beside those that set the lock of a new object
(L{storagegate.objects.documents.fields})::

    x-amz-bucket-object-lock-enabled  = "true" / "false"
    x-amz-bypass-governance-retention = "true"
"""

from collections.abc import Mapping

from storagegate.s3.errors import invalidArgument
from storagegate.storage.records import ObjectLock

BUCKET_FIELD = b"x-amz-bucket-object-lock-enabled"
"""The header that enables the object lock of a new bucket."""

BYPASS = b"x-amz-bypass-governance-retention"
"""The header that requests to bypass a retention in governance mode."""


def bypasses(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request asks to bypass a retention in governance mode."""
    return BYPASS in headers and headers[BYPASS].strip().lower() == b"true"


def enablesLock(headers: Mapping[bytes, bytes]) -> bool:
    """
    Return whether a request enables object lock for a new bucket.

    @raise S3Error: C{InvalidArgument}.
    """
    text = headers.get(BUCKET_FIELD, b"false").decode("latin-1").strip()
    if text.lower() not in ("true", "false"):
        raise invalidArgument(BUCKET_FIELD.decode(), text)
    return text.lower() == "true"


def lockHeaders(lock: ObjectLock) -> list[tuple[bytes, bytes]]:
    """Return the headers of a lock for a read of its object."""
    # Only locked objects and policies need the module.
    from storagegate.objects.access.context import describeLock

    return list(describeLock(lock).items())
