"""
The content of a session as JSON.

What is kept comes back as it was, or is refused: a date that comes back as text, or a not-a-number
that comes back as null, would be found much later and far away.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

CONTENT_LIMIT = 1024 * 1024
"""A session is read, and often written, with every request of its user."""

EMPTY = b"{}"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class SessionError(Exception):
    """A session cannot do what the application asks of it."""


def encodeContent(content: Mapping[str, Any]) -> bytes:
    """
    Write a content.

    Only L{checkContent} finds what JSON writes in another form.

    @raise SessionError: It is nothing for JSON, or too long.
    """
    if not content:
        return EMPTY
    try:
        encoded = _encoder.encode(content)
    except RecursionError:
        raise SessionError("req.session holds itself, or is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise SessionError(_offence(content, "req.session") or f"req.session: {error}") from error
    if len(encoded) > CONTENT_LIMIT:
        raise SessionError(
            f"req.session has {len(encoded)} bytes as JSON; {CONTENT_LIMIT} are allowed"
        )
    return encoded


def checkContent(content: Mapping[str, Any], encoded: bytes) -> None:
    """
    See to it that a content comes back from its JSON as it is; a tuple may become a list.

    @raise SessionError: It does not. The message says what is wrong and where.
    """
    if "cookie" in content:
        raise SessionError('req.session["cookie"] is taken by the cookie of the session')
    if _decoder.decode(encoded) != content:
        # Slow, and only for tuples and errors.
        offence = _offence(content, "req.session")
        if offence is not None:
            raise SessionError(offence)


def encodeParts(data: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Write what a store is given as content and cookie, which alone changes with a touch."""
    content = {key: value for key, value in data.items() if key != "cookie"}
    return _encoder.encode(content), encodeCookie(data)


def encodeCookie(data: Mapping[str, Any]) -> bytes:
    """Write the cookie alone."""
    return _encoder.encode(data.get("cookie"))


def decodeParts(content: bytes, cookie: bytes) -> dict[str, Any]:
    """Read what L{encodeParts} wrote."""
    data: dict[str, Any] = _decoder.decode(content)
    data["cookie"] = _decoder.decode(cookie)
    return data


def _offence(value: object, place: str) -> str | None:
    """Say what in a value JSON does not have; C{None} if there is nothing."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        return None if _encodable(value) else f"{place} is text that UTF-8 cannot hold"
    if isinstance(value, float):
        return None if value - value == 0 else f"{place} is {value}, which JSON does not have"
    if isinstance(value, list | tuple):
        offences = (_offence(item, f"{place}[{index}]") for index, item in enumerate(value))
        return next((offence for offence in offences if offence), None)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{place} has the key {key!r}; keys have to be text"
            if not _encodable(key):
                return f"{place} has a key that UTF-8 cannot hold"
            if (offence := _offence(item, f'{place}["{key}"]')) is not None:
                return offence
        return None
    return f"{place} is a {type(value).__name__}, which JSON does not have"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
