"""The one table from what the store says to what S3 says."""

from storagegate.s3.errors import S3Error
from storagegate.storage import errors as store

_CODES: dict[type[store.StoreError], str] = {
    store.NoSuchBucket: "NoSuchBucket",
    store.BucketNotEmpty: "BucketNotEmpty",
    store.NoSuchKey: "NoSuchKey",
    store.NoSuchUpload: "NoSuchUpload",
    store.InvalidPart: "InvalidPart",
    store.PreconditionFailed: "PreconditionFailed",
    store.ConcurrentChange: "OperationAborted",
    store.StoreFull: "InsufficientStorage",
    store.StoreReadOnly: "ServiceUnavailable",
    store.StoreBusy: "SlowDown",
}


def asS3Error(error: BaseException) -> S3Error:
    """
    Say any exception in S3's words.

    An exception that is in no table (damaged blobs among them) is C{InternalError} with S3's own
    text: nothing of what it says leaves the server.
    """
    if isinstance(error, S3Error):
        return error
    code = _CODES.get(type(error)) if isinstance(error, store.StoreError) else None
    return S3Error(code or "InternalError")
