"""
The header fields of gRPC: metadata, deadlines and status messages.

Names of metadata are lower case. A value is printable ASCII, or bytes in base64 if the name ends in
C{-bin}; several such values may be joined by commas. Names that begin with C{grpc-} belong to gRPC.
"""

import math
import re
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Iterable
from typing import TypeVar

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.net.http2.hpack import ReceivedFields
from storagegate.net.http2.interfaces import StreamFailure
from storagegate.rpc.interfaces import Metadata

T = TypeVar("T")

Fields = Iterable[tuple[bytes, bytes]]
"""Header fields as pairs of name and value."""

BINARY = b"-bin"
"""The end of the names whose values are bytes."""

TRANSPORT = frozenset(
    (
        b"content-type",
        b"grpc-accept-encoding",
        b"grpc-encoding",
        b"grpc-message",
        b"grpc-status",
        b"grpc-timeout",
        b"host",
        b"te",
    )
)
"""The fields that belong to the engine and are not part of the metadata."""

_INTERNAL = GRPC_STATUSES["INTERNAL"]

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")

_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
"""The units of C{grpc-timeout} in seconds."""

# The printable characters except the percent sign, without a space at an end: HTTP/2 allows none
# around a value (RFC 9113 section 8.2.1), and a peer would refuse the whole response.
_PLAIN = re.compile(r"(?! )[ -$&-~]*(?<! )")


def readStripped(read: Callable[[ReceivedFields], T], fields: ReceivedFields) -> T:
    """
    Read the fields of a message, also with spaces around values, which HTTP/2 forbids.

    grpc core sends metadata and status messages as they are, and the specification lets receivers
    strip them.

    @param read: Returns what the fields say.
    @raise StreamFailure: If they are malformed in another way.
    """
    try:
        return read(fields)
    except StreamFailure:
        pairs = [
            (name, value if name[:1] == b":" else value.strip(b" ")) for name, value in fields.pairs
        ]
        if pairs == fields.pairs:
            raise
        fields.pairs = pairs
        return read(fields)


def readMetadata(fields: Fields) -> list[tuple[str, str | bytes]]:
    """
    Read the metadata of a request or a response.

    @param fields: The header fields without pseudo-header fields, names in lower case.
    @raise GrpcError: If a value in base64 is invalid.
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in TRANSPORT:
            continue
        text = _readText(name)
        if name.endswith(BINARY):
            metadata += [(text, readBinary(text, each)) for each in value.split(b",")]
        else:
            metadata.append((text, _readText(value)))
    return metadata


def _readText(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def readBinary(name: str, value: bytes) -> bytes:
    """
    Decode a value in base64, with or without padding.

    @raise GrpcError: If it is invalid.
    """
    text = value.strip(b" ").rstrip(b"=")
    try:
        return a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    except Base64Error:
        raise GrpcError(_INTERNAL, f"the metadata {name:.100} is not base64") from None


def writeMetadata(metadata: Metadata) -> list[tuple[bytes, bytes]]:
    """
    Return metadata as header fields.

    @raise TypeError: If a value is neither text nor bytes.
    @raise UnicodeError: If text is not ASCII.
    """
    fields = []
    for name, value in metadata:
        key = name.encode("ascii")
        if key.endswith(BINARY):
            # Without padding, as the specification recommends.
            fields.append((key, b64encode(value).rstrip(b"=")))  # type: ignore[arg-type]
        elif isinstance(value, str):
            fields.append((key, value.encode("ascii")))
        else:
            raise TypeError(f"the metadata {name} is text, not {type(value).__name__}")
    return fields


def readTimeout(value: bytes) -> float:
    """
    Read C{grpc-timeout}.

    @return: Seconds.
    @raise GrpcError: If it is invalid.
    """
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise GrpcError(_INTERNAL, "grpc-timeout is up to eight digits and a unit")
    return int(match[1]) * _UNITS[match[2]]


_LONGEST = 10**8
"""Timeouts have at most eight digits."""

_TIMEOUT_UNITS = ((1e3, b"m"), (1.0, b"S"), (1 / 60, b"M"), (1 / 3600, b"H"))


def writeTimeout(seconds: float) -> bytes:
    """
    Encode C{grpc-timeout}: whole milliseconds, or larger units for more than a day, rounded up.

    @param seconds: More than 0.
    """
    for factor, unit in _TIMEOUT_UNITS:
        count = math.ceil(seconds * factor)
        if count < _LONGEST:
            return b"%d%b" % (count, unit)
    return b"%dH" % (_LONGEST - 1)


def writeMessage(text: str) -> bytes:
    """Encode the text of a status for C{grpc-message}: UTF-8 with percent signs."""
    if _PLAIN.fullmatch(text):
        return text.encode("ascii")
    # A quoted byte is not valid alone, but clients decode all of them together.
    quoted = [
        b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "replace")
    ]
    for end in (0, -1):
        if quoted[end] == b" ":
            quoted[end] = b"%20"
    return b"".join(quoted)


def readEncodings(value: bytes) -> set[bytes]:
    """Read C{grpc-accept-encoding}."""
    return {each.strip() for each in value.split(b",")}


def isGRPC(contentType: bytes) -> bool:
    """Return whether a content type is C{application/grpc}, perhaps with a subtype or parameter."""
    return contentType[:16].lower() == b"application/grpc" and contentType[16:17] in (
        b"",
        b"+",
        b";",
    )
