"""The header fields of the Fetch standard."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

# RFC 9110 section 5.6.2, and section 5.5 for what a value may hold.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

# What may be given for header fields: a mapping, whose values may be lists, or (name, value) pairs.
HeadersInit: TypeAlias = "Headers | Mapping[str, Any] | Iterable[tuple[str, Any]] | None"


class Headers:
    """
    Header fields, whose names know no case.

    Iterating gives C{(name, value)} with names in lower case, sorted, and the values of one name
    joined by commas; Set-Cookie fields cannot be joined and come one by one.
    """

    __slots__ = ("_fields",)

    def __init__(self, init: HeadersInit = None) -> None:
        """
        @raise ValueError: If a name is no token, or a value has a control character or one that
            is not in Latin-1.
        """
        self._fields: list[tuple[str, str]] = []
        if isinstance(init, Headers):
            self._fields = list(init._fields)
        elif init is not None:
            for name, value in init.items() if isinstance(init, Mapping) else init:
                for each in value if isinstance(value, list | tuple) else (value,):
                    self.append(name, each)

    def get(self, name: str) -> str | None:
        """Give the values of a field, joined by commas."""
        values = self._valuesOf(name)
        return ", ".join(values) if values else None

    def getSetCookie(self) -> list[str]:
        """Give the values of Set-Cookie one by one."""
        return self._valuesOf("set-cookie")

    def has(self, name: str) -> bool:
        """Say whether there is such a field."""
        return bool(self._valuesOf(name))

    def set(self, name: str, value: str | int) -> None:
        """Put one value in place of all that a field has."""
        field = _check(name, value)
        places = [place for place, each in enumerate(self._fields) if each[0] == field[0]]
        if not places:
            self._fields.append(field)
            return
        self._fields[places[0]] = field
        for place in reversed(places[1:]):
            del self._fields[place]

    def append(self, name: str, value: str | int) -> None:
        """Add a value to those that a field has."""
        self._fields.append(_check(name, value))

    def delete(self, name: str) -> None:
        """Remove a field, if it is there."""
        lowered = _lower(name)
        self._fields = [field for field in self._fields if field[0] != lowered]

    def items(self) -> list[tuple[str, str]]:
        """Give what iterating gives."""
        return list(self)

    def encode(self) -> list[tuple[bytes, bytes]]:
        """Give the fields in the order they were added, as the wire has them."""
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in self._fields]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for name in sorted({name for name, _ in self._fields}):
            values = self._valuesOf(name)
            if name == "set-cookie":
                yield from ((name, value) for value in values)
            else:
                yield name, ", ".join(values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has(name)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __repr__(self) -> str:
        return f"Headers({self._fields!r})"

    def _valuesOf(self, name: str) -> list[str]:
        lowered = _lower(name)
        return [value for each, value in self._fields if each == lowered]


def decodeFields(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Take fields from the wire, where they have been checked."""
    headers = Headers()
    headers._fields = [
        (name.decode("ascii").lower(), value.decode("latin-1")) for name, value in fields
    ]
    return headers


def _lower(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header field")
    return name.lower()


def _check(name: str, value: str | int) -> tuple[str, str]:
    lowered = _lower(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"the value of the header field {lowered} is not text: {value!r}")
    value = value.strip(" \t\r\n")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"the value of the header field {lowered} holds a forbidden character")
    return lowered, value
