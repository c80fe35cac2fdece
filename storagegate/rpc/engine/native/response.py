"""
The head and the end of a call, as a client receives them.

Statuses of HTTP and codes of resets are mapped to the statuses of gRPC as in
U{https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md} and the section "Errors"
of U{https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md}.
"""

from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from storagegate.core.errors import GRPC_NAMES, GRPC_STATUSES, GrpcError
from storagegate.core.options import parseDecimal
from storagegate.net.http2.fields import readResponse, readTrailers
from storagegate.net.http2.hpack import Pair, ReceivedFields
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode, HTTP2Error, StreamReset
from storagegate.rpc.engine.native.messages import ENCODINGS
from storagegate.rpc.engine.native.metadata import isGRPC, readMetadata, readStripped
from storagegate.rpc.interfaces import Metadata

_CANCELLED = GRPC_STATUSES["CANCELLED"]
_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]
_UNAVAILABLE = GRPC_STATUSES["UNAVAILABLE"]
_UNKNOWN = GRPC_STATUSES["UNKNOWN"]

_HTTP_STATUSES = {
    400: _INTERNAL,
    401: GRPC_STATUSES["UNAUTHENTICATED"],
    403: GRPC_STATUSES["PERMISSION_DENIED"],
    404: GRPC_STATUSES["UNIMPLEMENTED"],
    429: _UNAVAILABLE,
    502: _UNAVAILABLE,
    503: _UNAVAILABLE,
    504: _UNAVAILABLE,
}
"""The statuses of answers that are not gRPC's; C{UNKNOWN} for others."""

_RESET_STATUSES = {
    ErrorCode.NO_ERROR: _INTERNAL,
    ErrorCode.PROTOCOL_ERROR: _INTERNAL,
    ErrorCode.INTERNAL_ERROR: _INTERNAL,
    ErrorCode.FLOW_CONTROL_ERROR: _INTERNAL,
    ErrorCode.SETTINGS_TIMEOUT: _INTERNAL,
    ErrorCode.FRAME_SIZE_ERROR: _INTERNAL,
    ErrorCode.REFUSED_STREAM: _UNAVAILABLE,
    ErrorCode.CANCEL: _CANCELLED,
    ErrorCode.COMPRESSION_ERROR: _INTERNAL,
    ErrorCode.CONNECT_ERROR: _INTERNAL,
    ErrorCode.ENHANCE_YOUR_CALM: _EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: GRPC_STATUSES["PERMISSION_DENIED"],
}
"""The statuses of resets; C{UNKNOWN} for others."""

_CODE_NAMES = {code: name for name, code in vars(ErrorCode).items() if name.isupper()}

_ENCODINGS = {each.encode(): each for each in ENCODINGS}


class RPCStatus(Struct, frozen=True):
    """
    The end of a call.

    @ivar code: The number of the status.
    @ivar message: Its text.
    @ivar trailers: The metadata that came with it.
    """

    code: int
    message: str
    trailers: Metadata = ()


class RPCResponseHead(Struct, frozen=True):
    """
    The head of a response. Responses with the same fields share it.

    @ivar isEnded: Whether nothing follows.
    @ivar metadata: The initial metadata.
    @ivar encoding: The encoding of compressed messages; C{None} without one that is known.
    @ivar length: The declared length of the body; C{None} if unknown.
    @ivar status: The end of the call, if the head is all of it; C{None} otherwise.
    """

    isEnded: bool
    metadata: Metadata = ()
    encoding: str | None = None
    length: int | None = None
    status: RPCStatus | None = None


def readResponseHead(fields: ReceivedFields, isEnded: bool) -> RPCResponseHead | None:
    """
    Read the fields of a response.

    @param fields: The fields; they keep the result if they come repeatedly.
    @param isEnded: Whether nothing follows.
    @return: C{None} for an interim response.
    @raise StreamFailure: If they are malformed or too large.
    @raise GrpcError: If the metadata are malformed.
    """
    kept: Any = fields.head
    if type(kept) is RPCResponseHead and kept.isEnded is isEnded:
        return kept
    fields.head = None
    status, pairs = readStripped(readResponse, fields)
    fields.head = None
    if status < 200:
        return None
    head = _readHead(status, pairs, isEnded)
    if fields.isRepeated:
        fields.head = head
    return head


def _readHead(status: int, pairs: list[Pair], isEnded: bool) -> RPCResponseHead:
    known = dict(pairs)
    if isEnded and b"grpc-status" in known:
        return RPCResponseHead(isEnded, status=_readStatus(pairs))
    contentType = known.get(b"content-type", b"")
    if status != 200:
        code = _HTTP_STATUSES.get(status, _UNKNOWN)
        ended = RPCStatus(code, f"the server answers with the HTTP status {status}")
        return RPCResponseHead(isEnded, status=ended)
    if not isGRPC(contentType):
        text = contentType[:80].decode("latin-1")
        ended = RPCStatus(_UNKNOWN, f"the content type of the answer is {text!r}, not gRPC's")
        return RPCResponseHead(isEnded, status=ended)
    if isEnded:
        return RPCResponseHead(isEnded, status=_readStatus(pairs))
    length = known.get(b"content-length")
    return RPCResponseHead(
        isEnded,
        readMetadata(pairs),
        _ENCODINGS.get(known.get(b"grpc-encoding", b"")),
        None if length is None else _readLength(length),
    )


def _readLength(value: bytes) -> int | None:
    try:
        return parseDecimal(value, 2**62)
    except ValueError:
        raise GrpcError(_INTERNAL, "the content-length of the answer is malformed") from None


def readEnd(fields: ReceivedFields) -> RPCStatus:
    """
    Read the trailers of a response.

    @param fields: The fields; they keep the result if they come repeatedly.
    @raise StreamFailure: If they are malformed or too large.
    @raise GrpcError: If the metadata are malformed.
    """
    kept: Any = fields.head
    if type(kept) is RPCStatus:
        return kept
    status = _readStatus(readStripped(readTrailers, fields))
    if fields.isRepeated:
        fields.head = status
    return status


def _readStatus(pairs: Any) -> RPCStatus:
    known = dict(pairs)
    trailers = readMetadata(pairs)
    value = known.get(b"grpc-status")
    if value is None:
        return RPCStatus(_UNKNOWN, "the server sent no grpc-status", trailers)
    message = unquote_to_bytes(known.get(b"grpc-message", b"")).decode("utf-8", "replace")
    code = int(value) if len(value) <= 2 and value.isdigit() else -1
    if code not in GRPC_NAMES:
        text = f"the server sent the grpc-status {value[:20].decode('latin-1')!r}"
        return RPCStatus(_UNKNOWN, f"{text}: {message}" if message else text, trailers)
    return RPCStatus(code, message, trailers)


NO_TRAILERS = RPCStatus(_INTERNAL, "the server ended the answer without a status")
"""The status of an answer that ends without trailers."""


def statusOf(reason: Exception, server: str, debug: bytes = b"") -> RPCStatus:
    """
    Return the status of a call whose stream ended early.

    @param reason: See L{Stream.lost<storagegate.net.http2.stream.Stream.lost>}.
    @param server: The address of the server.
    @param debug: The debug data of the server's GOAWAY.
    """
    said = f": {debug.decode('utf-8', 'replace')}" if debug else ""
    if isinstance(reason, StreamReset):
        name = _CODE_NAMES.get(reason.code, str(reason.code))
        if reason.isUnprocessed:
            return RPCStatus(_UNAVAILABLE, f"{server} did not process the call ({name}){said}")
        code = _RESET_STATUSES.get(reason.code, _UNKNOWN)
        return RPCStatus(code, f"{server} reset the call ({name})")
    if isinstance(reason, HTTP2Error):
        isExcess = reason.code == ErrorCode.ENHANCE_YOUR_CALM
        if isinstance(reason, ConnectionFailure) and not isExcess:
            return RPCStatus(_UNAVAILABLE, f"{server} broke the protocol: {reason.text}")
        code = _RESET_STATUSES.get(reason.code, _UNKNOWN)
        return RPCStatus(code, f"{server} broke the protocol: {reason.text}")
    return RPCStatus(_UNAVAILABLE, f"the connection to {server} was lost: {reason}{said}")
