"""What messages of every wire have in them: an id, a deadline, and who calls."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.context import MAX_DEADLINE_MS
from storagegate.core.errors import codedError
from storagegate.core.invocation import CallCredentials
from storagegate.gateway.shapes import MessageId

MAX_ID_LENGTH = 128
"""Characters of an id, which goes out again with every item."""


def readId(value: Any) -> MessageId:
    """
    Read an id: text or a whole number; C{None} where there is none.

    @raise ServiceError: If it is anything else.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and len(value) <= MAX_ID_LENGTH:
        return value
    raise codedError("INVALID_ARGUMENT", f"An id is a number or text of at most {MAX_ID_LENGTH}")


def readDeadline(value: Any) -> float | None:
    """
    Read a deadline in milliseconds from now.

    @return: In seconds.
    @raise ServiceError: If it is none.
    """
    if value is None:
        return None
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    if not isNumber or not 0 < value <= MAX_DEADLINE_MS:
        raise codedError("INVALID_ARGUMENT", "A deadline is a number of milliseconds up to a day")
    return float(value) / 1000


def readCredentials(message: Mapping[str, Any], native: Any = None) -> CallCredentials:
    """Read who calls from C{auth.token} of a message."""
    auth = message.get("auth")
    # To ask whether something is a mapping takes 0.2 microseconds; most say nothing here.
    token = auth.get("token") if auth is not None and isinstance(auth, Mapping) else None
    return CallCredentials(token if isinstance(token, str) else None, None, native or message)
