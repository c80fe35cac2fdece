"""What a value that does not fit its schema is said to be."""

from collections.abc import Callable, Mapping
from typing import Any

from storagegate.core.errors import ServiceError, codedError

Validator = Callable[[Any], None]
"""Raises C{VALIDATION_ERROR} for a value that does not fit."""


def isBytes(schema: Any) -> bool:
    """Tell whether a schema is one of bytes."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") == "string"
        and schema.get("contentEncoding") == "base64"
    )


def violation(path: str, message: str) -> ServiceError:
    """Say what does not fit, and where."""
    reason = f"{path} {message}" if path else f"the request {message}"
    return codedError("VALIDATION_ERROR", reason, [{"path": path, "message": message}])
