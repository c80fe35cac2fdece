"""The S3 error with which a call is refused, whether S3 itself or the domain refuses it."""

from collections.abc import Callable
from typing import Any

from storagegate.objects.errors import DomainError
from storagegate.s3.errors import S3Error, asS3Error


def refusalOf(function: Callable[..., Any], *args: Any, **options: Any) -> S3Error:
    """
    Call a function that must refuse, and return the S3 error that the client gets.

    @raise AssertionError: The function returns.
    """
    try:
        result = function(*args, **options)
    except (S3Error, DomainError) as error:
        return asS3Error(error)
    raise AssertionError(f"not refused: {result!r}")
