"""What the domain of S3 and the store say, in the words of services."""

from collections.abc import Iterator
from contextlib import contextmanager

from storagegate.core.errors import ServiceError, codedError
from storagegate.s3.errors import S3Error
from storagegate.s3.faults import asS3Error
from storagegate.storage.errors import StoreError

_CODES = {
    "NoSuchBucket": "NOT_FOUND",
    "NoSuchKey": "NOT_FOUND",
    "BucketAlreadyExists": "ALREADY_EXISTS",
    "BucketAlreadyOwnedByYou": "ALREADY_EXISTS",
    "AccessDenied": "PERMISSION_DENIED",
    "InvalidArgument": "INVALID_ARGUMENT",
    "InvalidBucketName": "INVALID_ARGUMENT",
    "InvalidRequest": "INVALID_ARGUMENT",
    "KeyTooLongError": "INVALID_ARGUMENT",
    "MetadataTooLarge": "INVALID_ARGUMENT",
    "EntityTooLarge": "PAYLOAD_TOO_LARGE",
    # A try later may succeed.
    "InsufficientStorage": "UNAVAILABLE",
    "OperationAborted": "UNAVAILABLE",
    "ServiceUnavailable": "UNAVAILABLE",
    "SlowDown": "UNAVAILABLE",
}


@contextmanager
def translated() -> Iterator[None]:
    """
    Make services' errors of what is raised within.

    What S3 has no word for but C{InternalError} travels on as it is: it is logged where every
    exception is that nobody foresaw.
    """
    try:
        yield
    except (S3Error, StoreError) as error:
        told = asS3Error(error)
        if told.code == "BucketNotEmpty":
            raise ServiceError("BUCKET_NOT_EMPTY", told.message, 409, None, 6) from error
        code = _CODES.get(told.code)
        if code is None:
            raise
        raise codedError(code, told.message) from error
