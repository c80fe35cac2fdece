"""Errors of the parts of S3 that the console still uses, as it answers them."""

from collections.abc import Iterator
from contextlib import contextmanager

from storagegate.core.errors import ServiceError, codedError
from storagegate.s3.errors import S3Error

_CODES = {
    "AccessDenied": "PERMISSION_DENIED",
    "InvalidArgument": "INVALID_ARGUMENT",
    "InvalidRequest": "INVALID_ARGUMENT",
}


@contextmanager
def s3Errors() -> Iterator[None]:
    """Turn errors of S3 into errors of services; a fault passes unchanged."""
    try:
        yield
    except S3Error as error:
        code = _CODES.get(error.code)
        if code is not None:
            raise codedError(code, error.message) from error
        if error.status < 500:
            raise ServiceError(error.code, error.message, error.status) from error
        raise
