"""Header fields set by applications: names and values are checked before they are sent."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from storagegate.http.contenttypes import contentTypeOf, withCharset

HeaderValue = str | int | Iterable[str]

CheckedField = tuple[str, str | list[str]]
"""The name of a field as sent, and its value or values."""

WIRES: dict[CheckedField, bytes] = {}
"""Cache of encoded lines of fields that are set in many responses."""

# Far more than an application has; further lines are encoded each time.
_MAX_WIRES = 1024

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def checkFields(fields: Iterable[tuple[str, HeaderValue]]) -> dict[str, CheckedField]:
    """
    Check fields that are set in many responses.

    @param fields: Pairs of a name, which keeps its case, and one or more values.
    @return: The argument of L{HTTPResponse.setChecked}: the fields by name in lower case.
    @raise ValueError: If a name is not a token, or a value has a forbidden character.
    """
    return {name.lower(): constantField(name, checkValue(name, value)) for name, value in fields}


def constantField(name: str, value: str | list[str]) -> CheckedField:
    """Return a field that is set in many responses, and cache its encoded line."""
    field = name, value
    if isinstance(value, str) and len(WIRES) < _MAX_WIRES:
        WIRES[field] = f"{name}: {value}\r\n".encode("latin-1")
    return field


def checkValue(name: str, value: Any) -> str | list[str]:
    """
    Return the value of a field as text, or several texts.

    @raise ValueError: If the name is not a token, or the value has a forbidden character.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name of a header field")
    if isinstance(value, str):
        return _checkText(name, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _checkText(name, str(value))
    if isinstance(value, list | tuple):
        return [_checkText(name, each) for each in value]
    raise ValueError(f"the value of {name} is text, a number or a list of texts")


def _checkText(name: str, text: Any) -> str:
    if not isinstance(text, str) or not _VALUE.fullmatch(text):
        raise ValueError(
            f"the value of {name} has a character that is not allowed in a header field"
        )
    return text


def listValues(value: str | list[str]) -> list[str]:
    """Return the values of a field as a new list."""
    return [value] if isinstance(value, str) else list(value)


def copyFields(res: Any, fields: Iterable[tuple[str, str]]) -> None:
    """
    Copy the fields of another response; C{Vary} and cookies are added to existing ones.

    @param res: The response of the framework, with the fields that middleware has set.
    """
    grouped: dict[str, list[str]] = {}
    for name, value in fields:
        grouped.setdefault(name, []).append(value)
    for name, values in grouped.items():
        if name.lower() == "vary":
            res.vary(*values)
        elif name.lower() == "set-cookie":
            res.append(name, values)
        else:
            res.header(name, values if len(values) > 1 else values[0])


# An application uses a few types; checking one takes 2 microseconds.
@lru_cache(maxsize=256)
def typeField(name: str) -> CheckedField:
    """
    Return the C{Content-Type} field of a type, with its character set.

    @param name: A media type, or a file name's extension.
    @raise ValueError: If it has a forbidden character.
    """
    text = _checkText("Content-Type", name if "/" in name else contentTypeOf(name))
    return constantField("Content-Type", withCharset(text))


def fieldPairs(fields: Mapping[str, CheckedField]) -> Iterator[tuple[bytes, bytes]]:
    """Encode fields as pairs, for the connection to check."""
    for name, value in fields.values():
        for each in listValues(value):
            yield name.encode("ascii"), each.encode("latin-1")


BODY_FIELDS = (
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "content-range",
    "content-disposition",
    "transfer-encoding",
    "etag",
    "last-modified",
    "cache-control",
    "accept-ranges",
)
"""Fields that describe the body, which an error response replaces. Other fields, such as CORS and
cookies, stay."""

# Fields that describe a body, and are dropped with it (RFC 9110 section 15.4.5, and as in Express).
_CONTENT_FIELDS = ("content-type", "content-length", "transfer-encoding")


def dropContent(fields: dict[str, CheckedField], status: int) -> None:
    """
    Remove the fields that describe a body from a response without one.

    @param status: The status of the response.
    """
    length = fields.get("content-length")
    for name in _CONTENT_FIELDS:
        fields.pop(name, None)
    if status == 204 and length is not None and length[1] == "0":
        # The length is correct, and without it some browsers wait for a body.
        fields["content-length"] = length
