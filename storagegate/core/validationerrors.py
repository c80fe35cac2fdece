"""Errors of invalid values: C{VALIDATION_ERROR}, with path and message of each mistake."""

import re
from collections.abc import Iterable

from storagegate.core.errors import ServiceError, codedError

MAX_MISTAKES = 20
"""The maximum number of mistakes that an error lists: a client corrects no more at once."""


def errorDetail(path: str, message: str) -> ServiceError:
    """Make the error of an invalid value, with its path."""
    return errorDetails([(path, message)])


def errorDetails(mistakes: Iterable[tuple[str, str]]) -> ServiceError:
    """
    Make the error of a request with several invalid values.

    @param mistakes: Their paths and messages.
    """
    details = [{"path": path, "message": message} for path, message in mistakes]
    reasons = [f"{each['path'] or 'the request'} {each['message']}" for each in details]
    return codedError("VALIDATION_ERROR", "; ".join(reasons), details)


# "Expected `int`, got `str` - at `$.lines[0].count`"
_AT = re.compile(r"(?s)(.*) - at `\$\.?(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def asValidationError(message: str, path: str = "", isResult: bool = False) -> ServiceError:
    """
    Convert a validation message of msgspec to an error.

    @param path: The path of the converted value.
    @param isResult: Whether the value is a handler's result, which the error must not reveal.
    """
    reason = message
    # The message of a chosen model contains the path within that model.
    while found := _AT.fullmatch(reason):
        reason, path = found[1], _joined(path, found[2])
    missing = _MISSING.fullmatch(reason)
    if missing:
        return errorDetail(_joined(path, missing[1]), "is required")
    if isResult and not reason.startswith("Expected"):
        return errorDetail(path, "is none of the declared values")
    return errorDetail(path, clauseOf(reason.replace("`", "")))


def _joined(path: str, rest: str) -> str:
    return path + rest if not path or not rest or rest.startswith("[") else f"{path}.{rest}"


def clauseOf(sentence: str) -> str:
    """Return a sentence in a form that can continue another one."""
    return sentence[:1].lower() + sentence[1:]
