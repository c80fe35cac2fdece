"""
The message formats: JSON and MessagePack.

Both carry the same values: mappings with text keys, lists, text, numbers, booleans, C{None}, and
bytes, which are base64 in JSON. Other values are rejected, so that a service behaves the same over
every transport.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from storagegate.core.jsonpieces import STRING, JSONReader

MAX_DEPTH = 100
"""The maximum depth of a value: protobuf's limit, so that all transports have the same."""

MAX_CONTAINERS = 250_000
"""
The maximum number of lists and mappings in a message. Parsing them blocks the reactor for 0.25
seconds; 16 MiB of JSON could hold five million empty lists, which take nine seconds.
"""

INLINE_SIZE = 64 * 1024
"""JSON of up to this size in bytes is always decoded in the reactor thread, in 1 ms."""

_INLINE_BYTES = 1024 * 1024
_INLINE_ELEMENTS = 4096
"""Limits of longer JSON that takes no longer: mostly large strings."""

_SHALLOW = 2 * MAX_DEPTH
"""JSON of up to this size in bytes cannot be too deep: each level takes two brackets."""

# The types that need no further check, for speed: most parts of a message have them.
_PLAIN = frozenset({str, int, bool, type(None), bytes})

_INFINITY = float("inf")

_STRING = re.compile(STRING, re.DOTALL)


def isLarge(data: bytes) -> bool:
    """Return whether JSON takes so long to decode that it should be decoded in a thread."""
    size = len(data)
    return size > INLINE_SIZE and (size > _INLINE_BYTES or data.count(b",") > _INLINE_ELEMENTS)


class Codec(Protocol):
    """
    Encodes and decodes values.

    @ivar isBinary: Whether the encoded form is not text.
    """

    isBinary: bool

    def encode(self, value: Any) -> bytes:
        """
        Encode a value.

        @raise ValueError: If it has a part that messages cannot carry.
        """

    def encodeAround(self, value: Any, message: Any) -> bytes:
        """
        Encode a message around a value.

        @param message: A mapping of the value and otherwise only text and integers; or the value
            itself.
        @raise ValueError: If the value has a part that messages cannot carry.
        """

    def decode(self, data: bytes) -> Any:
        """
        Decode a value.

        @raise ValueError: If the bytes are invalid.
        """


class _Encoding:
    """The encoding of values that messages can carry."""

    def __init__(self, write: Callable[[Any], bytes]) -> None:
        """
        @param write: Encodes a value of any kind.
        """
        self._write = write

    def encode(self, value: Any) -> bytes:
        """Encode a value."""
        checkValue(value)
        try:
            return self._write(value)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None

    def encodeAround(self, value: Any, message: Any) -> bytes:
        """Encode a message around a value."""
        if type(value) not in _PLAIN:
            checkValue(value, MAX_DEPTH if message is value else MAX_DEPTH - 1)
        try:
            return self._write(message)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None


class _JSONCodec(_Encoding):
    """JSON, RFC 8259. Integers have no limit."""

    isBinary = False

    def decode(self, data: bytes) -> Any:
        """Decode a value."""
        # The depth is at most the number of brackets, which few values exceed.
        brackets = _brackets(data) if len(data) > _SHALLOW else 0
        if brackets > MAX_CONTAINERS and _brackets(_STRING.sub(b"", data)) > MAX_CONTAINERS:
            raise _tooMany()
        try:
            value = _decodeJSON(data)
        except RecursionError:
            raise _tooDeep() from None
        if brackets > MAX_DEPTH:
            checkValue(value)
        return value

    def decodeLarge(self, data: bytes) -> Any:
        """
        Decode a value in pieces, in a thread; other threads run between the pieces.

        @raise ValueError: If the bytes are invalid.
        """
        brackets, found = _brackets(data), 0

        def check(piece: bytes) -> None:
            nonlocal found
            found += _brackets(_STRING.sub(b"", piece))
            if found > MAX_CONTAINERS:
                raise _tooMany()

        reader = JSONReader(data, _decodeJSON, check if brackets > MAX_CONTAINERS else None)
        try:
            value = reader.readAll()
        except RecursionError:
            raise _tooDeep() from None
        if brackets > MAX_DEPTH:
            checkValue(value)
        return value


class _MsgpackCodec(_Encoding):
    """MessagePack, without extensions. Its integers have 64 bits."""

    isBinary = True

    def decode(self, data: bytes) -> Any:
        """Decode a value."""
        if len(data) > MAX_CONTAINERS and _hasTooManyContainers(data):
            raise _tooMany()
        if len(data) > _SMALL:
            _checkKeys(data)
        try:
            value = _decodeMsgpack(data)
        except RecursionError:
            raise _tooDeep() from None
        checkValue(value)
        return value


JSON = _JSONCodec(msgspec.json.Encoder().encode)
MSGPACK = _MsgpackCodec(msgspec.msgpack.Encoder().encode)

CODECS: Mapping[str, Codec] = MappingProxyType({"json": JSON, "msgpack": MSGPACK})
"""The codecs by the names of formats."""


def checkValue(value: Any, depth: int = MAX_DEPTH) -> None:
    """
    Check that messages can carry a value.

    @raise ValueError: If they cannot.
    """
    if isinstance(value, dict):
        if depth <= 0:
            raise _tooDeep()
        for key, part in value.items():
            if type(key) is not str:
                raise ValueError(f"messages have text for keys, not {type(key).__name__}")
            if type(part) not in _PLAIN:
                checkValue(part, depth - 1)
    elif isinstance(value, list | tuple):
        if depth <= 0:
            raise _tooDeep()
        for part in value:
            if type(part) not in _PLAIN:
                checkValue(part, depth - 1)
    elif type(value) is float:
        # Written this way, it also rejects NaN.
        if not -_INFINITY < value < _INFINITY:
            raise ValueError(f"messages carry no {value}")
    elif type(value) not in _PLAIN and not isinstance(value, bytearray | memoryview):
        raise ValueError(f"messages carry no {type(value).__name__}")


def _brackets(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


# The first bytes of lists and mappings of MessagePack: with a length in the byte, and with 2 or 4
# bytes of length behind it.
_FIXED_CONTAINERS = re.compile(rb"[\x80-\x9f]*")
_LONG_CONTAINERS = {b"\xdc": 2, b"\xde": 2, b"\xdd": 4, b"\xdf": 4}
_CONTAINERS = bytes(range(0x80, 0xA0)) + b"".join(_LONG_CONTAINERS)


@lru_cache(maxsize=2)
def _shortValues(others: bytes = b"") -> re.Pattern[bytes]:
    """
    Make the pattern of a run of values up to 255 bytes, except for lists and mappings.

    A step in Python for each of the eight million values that a message may have takes 20 seconds.
    Few daemons receive such messages, so the pattern is compiled on first use.

    @param others: Further alternatives of the pattern, each after C{|}.
    """
    fixed = b"".join(b"|%c.{%d}" % (0xA0 + length, length) for length in range(32))
    text = b"|".join(b"%b.{%d}" % (re.escape(b"%c" % length), length) for length in range(256))
    extension = b"|".join(
        b"%b.{%d}" % (re.escape(b"%c" % length), length + 1) for length in range(256)
    )
    return re.compile(
        rb"(?:[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1\xd4].{2}|\xd5.{3}"
        rb"|[\xca\xce\xd2].{4}|\xd6.{5}|[\xcb\xcf\xd3].{8}|\xd7.{9}|\xd8.{17}"
        # A length may have leading zeros.
        rb"|(?:[\xc4\xd9]|[\xc5\xda]\x00|[\xc6\xdb]\x00{3})(?:" + text + rb")"
        rb"|(?:\xc7|\xc8\x00|\xc9\x00{3})(?:" + extension + rb")" + fixed + others + rb")*+",
        re.DOTALL,
    )


# The heads of lists, and of mappings with less than 64 keys.
_SMALL_HEADS = rb"|[\x80-\x9f]|\xdc.{2}|\xdd.{4}|\xde\x00[\x00-?]|\xdf\x00{3}[\x00-?]"

# The head of a larger mapping.
_LARGE_HEAD = re.compile(
    rb"\xde(?:[^\x00].|\x00[@-\xff])|\xdf(?:(?!\x00{3}).{4}|\x00{3}[@-\xff])", re.DOTALL
)

_SMALL = 2 * 64
"""A message of up to this size in bytes has no large mapping."""

MAX_LARGE_LEVELS = 10
"""
How deep large mappings may be nested on average: the keys of each level are checked separately, for
16 MiB in 0.05 seconds.
"""

_POSITION = re.compile(r"\(byte ([0-9]+)\)")

_LENGTHS = {
    b"\xd9": (1, 0),
    b"\xda": (2, 0),
    b"\xdb": (4, 0),
    b"\xc4": (1, 0),
    b"\xc5": (2, 0),
    b"\xc6": (4, 0),
    b"\xc7": (1, 1),
    b"\xc8": (2, 1),
    b"\xc9": (4, 1),
}
"""The bytes of the length of text, bytes and extensions, and what an extension has beside it."""


def _hasTooManyContainers(data: bytes) -> bool:
    """Return whether MessagePack has more than L{MAX_CONTAINERS} lists and mappings."""
    if len(data) - len(data.translate(None, _CONTAINERS)) <= MAX_CONTAINERS:
        return False
    # Strings can contain the same bytes, so walk from one value to the next.
    at, end, found, shortValues = 0, len(data), 0, _shortValues()
    while at < end and found <= MAX_CONTAINERS:
        begin, at = at, _FIXED_CONTAINERS.match(data, at).end()  # type: ignore[union-attr]
        found += at - begin
        at = shortValues.match(data, at).end()  # type: ignore[union-attr]
        head = data[at : at + 1]
        if head in _LENGTHS:
            at += _sizeOf(data, at)
        elif head in _LONG_CONTAINERS:
            found += 1
            at += 1 + _LONG_CONTAINERS[head]
        elif at == begin:
            # The decoder reports invalid and truncated values.
            break
    return found > MAX_CONTAINERS


def _checkKeys(data: bytes) -> None:
    """
    Check the keys of large mappings of MessagePack before it is decoded.

    The decoder makes tuples of lists that are keys, and inserts them before they can be refused.
    Unlike text, tuples of numbers have predictable hashes: a client can give all of them the same
    one, so that a mapping with 100,000 takes minutes.

    @raise ValueError: If a key is not text.
    """
    # Searching for a byte is much faster than the pattern.
    if not (b"\xde" in data or b"\xdf" in data) or _LARGE_HEAD.search(data) is None:
        return
    at, end, read, otherValues = 0, len(data), 0, _shortValues(_SMALL_HEADS)
    while at < end:
        at = otherValues.match(data, at).end()  # type: ignore[union-attr]
        head = data[at : at + 1]
        if head in _LENGTHS:
            at += _sizeOf(data, at)
        elif _LARGE_HEAD.match(data, at) is not None:
            read += _readKeys(memoryview(data)[at:])
            if read > MAX_LARGE_LEVELS * end:
                raise ValueError("its large objects are nested too deeply")
            at += 1 + _LONG_CONTAINERS[head]
        else:
            # The decoder reports invalid and truncated values.
            return


def _readKeys(data: memoryview) -> int:
    """
    Read a mapping of MessagePack, which other values may follow.

    @return: The number of bytes that were read.
    @raise ValueError: If a key is not text.
    """
    try:
        _decodeKeys(data)
    except msgspec.ValidationError:
        raise ValueError("messages have text for keys") from None
    except RecursionError:
        raise _tooDeep() from None
    except msgspec.DecodeError as error:
        # The mapping has ended, or the decoder fails at the same byte.
        found = _POSITION.search(str(error))
        return len(data) if found is None else int(found[1])
    return len(data)


def _sizeOf(data: bytes, at: int) -> int:
    """Return the size of text, bytes or an extension at an offset, with its head."""
    size, extra = _LENGTHS[data[at : at + 1]]
    return 1 + size + extra + int.from_bytes(data[at + 1 : at + 1 + size])


def _tooMany() -> ValueError:
    return ValueError(f"it has more than {MAX_CONTAINERS} lists and objects")


def _tooDeep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _refuseExtension(code: int, data: memoryview) -> Any:
    raise ValueError(f"messages carry no extension {code}")


_decodeJSON = msgspec.json.Decoder().decode
_decodeMsgpack = msgspec.msgpack.Decoder(ext_hook=_refuseExtension).decode
_decodeKeys = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
