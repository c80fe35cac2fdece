"""
Decoding of JSON in pieces.

A library decodes a text in one go, during which no other thread runs: an object with 600,000 keys
takes 0.7 seconds. Here, the library gets pieces of a few kilobytes, which take 0.2 ms each:
elements of a list or object up to a comma, in brackets of their own. If a piece is valid JSON, the
comma was not part of an element. The last comma, or the last comma after a bracket, usually works.
Otherwise a regular expression finds one, or one of these finds one in a shorter piece; an element
that is longer than a piece, or deeper than the expression, is decoded recursively.
"""

import re
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

import msgspec

PIECE = 8 * 1024
"""The size of a piece in bytes."""

_LEAST = 64
"""The size of the shortest piece in bytes, after failed attempts with longer ones."""

_LEVELS = 4
"""How many levels of lists and objects the expression matches in an element."""

STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANKS = rb"[ \t\r\n]*+"


@cache
def _patterns() -> tuple[re.Pattern[bytes], ...]:
    """
    Return the expressions for elements that end with a comma, for a scalar with its key, for a key
    with blanks and colon, and for blanks. The decoder checks that brackets match.
    """
    container = b"(?!)"
    for _ in range(_LEVELS):
        container = rb'[\[{](?:[^"\[\]{}]++|%b|%b)*+[\]}]' % (STRING, container)
    scalar = rb'(?:[^"\[\]{},]++|%b)' % STRING
    sources = (
        rb"(?:(?:%b|%b)*+,)*+" % (scalar, container),
        rb"%b*+" % scalar,
        rb"%b(%b)%b:%b" % (_BLANKS, STRING, _BLANKS, _BLANKS),
        _BLANKS,
    )
    return tuple(re.compile(source, re.DOTALL) for source in sources)


class JSONReader:
    """Decodes one text."""

    def __init__(
        self,
        data: bytes,
        decode: Callable[[bytes], Any],
        check: Callable[[bytes], None] | None = None,
        size: int = PIECE,
    ) -> None:
        """
        @param decode: Decodes a piece.
        @param check: Called with each piece; raises C{ValueError} to refuse.
        @param size: The size of a piece in bytes.
        """
        self._data = data
        self._decode = decode
        self._check = check
        self._size = self._room = size
        self._elements, self._scalar, self._key, self._blanks = _patterns()
        # The separator that worked last comes first.
        self._separators = [b",", b"},", b"],"]
        self._at = 0

    def readAll(self) -> Any:
        """
        Decode the text, in a thread; other threads run after each piece.

        @raise ValueError: If the text is malformed.
        @raise RecursionError: If it is nested too deeply.
        """
        pieces = self._read()
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value

    def _read(self) -> Generator[None, None, Any]:
        if self._next() not in (b"[", b"{"):
            return self._decode(self._data)
        value = yield from self._container()
        if self._next():
            raise self._malformed()
        return value

    def _container(self) -> Generator[None, None, Any]:
        """Decode the list or object at the current position."""
        data = self._data
        opening = data[self._at : self._at + 1]
        isList = opening == b"["
        closing = b"]" if isList else b"}"
        value: Any = [] if isList else {}
        add = value.extend if isList else value.update
        self._at += 1
        if self._check is not None:
            self._check(opening)
        if self._next() == closing:
            self._at += 1
            return value
        while True:
            while elements := self._readMany(opening, closing):
                add(elements)
                yield
            # The next element is the last, or long, or deep.
            key = None if isList else self._key.match(data, self._at)
            if key is not None and data[key.end() : key.end() + 1] in (b"[", b"{"):
                self._at = key.end()
                value[self._decode(key[1])] = yield from self._container()
            elif isList and self._next() in (b"[", b"{"):
                value.append((yield from self._container()))
            else:
                add(self._piece(opening, self._end(self._scalar), closing))
                yield
            ending = self._next()
            self._at += 1
            if ending == closing:
                return value
            if ending != b",":
                raise self._malformed()

    def _readMany(self, opening: bytes, closing: bytes) -> Any:
        """Decode elements up to a comma within a piece, and skip the comma; C{None} without one."""
        begin, size = self._at, self._room
        found = self._readWithin(opening, closing, size)
        # A comma that is not part of an element may be nearer.
        while not found and size > _LEAST:
            size //= 4
            found = self._readWithin(opening, closing, size)
        # An attempt that fails takes as long as one that succeeds, so the next piece is not much
        # longer than what was decoded.
        self._room = min(self._size, max(_LEAST, 4 * (self._at - begin)))
        if found:
            self._at += 1
        return found

    def _readWithin(self, opening: bytes, closing: bytes, size: int) -> Any:
        """Decode elements up to a comma within a number of bytes; C{None} without one."""
        for separator in self._separators:
            end = self._data.rfind(separator, self._at, self._at + size) + len(separator) - 1
            if end > self._at:
                try:
                    found = self._piece(opening, end, closing)
                except (msgspec.DecodeError, RecursionError):
                    continue
                self._separators.remove(separator)
                self._separators.insert(0, separator)
                return found
        end = self._end(self._elements, self._at + size) - 1
        return None if end < self._at else self._piece(opening, end, closing)

    def _piece(self, opening: bytes, end: int, closing: bytes) -> Any:
        """Decode elements up to an offset."""
        elements = self._data[self._at : end]
        found = self._decode(b"".join((opening, elements, closing)))
        if not found:
            raise self._malformed()
        if self._check is not None:
            self._check(elements)
        self._at = end
        return found

    def _end(self, pattern: re.Pattern[bytes], *limit: int) -> int:
        """Return the end of a match at the current position."""
        found = pattern.match(self._data, self._at, *limit)
        return self._at if found is None else found.end()

    def _next(self) -> bytes:
        """Skip blanks, and return the next byte; empty at the end."""
        self._at = self._blanks.match(self._data, self._at).end()  # type: ignore[union-attr]
        return self._data[self._at : self._at + 1]

    def _malformed(self) -> msgspec.DecodeError:
        return msgspec.DecodeError(f"JSON is malformed (byte {self._at})")
