"""The head of a call: the header fields of its request, and what they ask of the engine."""

from typing import Any

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.parser import readLength
from storagegate.net.http2.fields import readCallFields
from storagegate.net.http2.hpack import ReceivedFields
from storagegate.net.http2.interfaces import ErrorCode, StreamFailure
from storagegate.rpc.engine.native.messages import ENCODINGS
from storagegate.rpc.engine.native.metadata import (
    BINARY,
    isGRPC,
    readEncodings,
    readMetadata,
    readStripped,
    readTimeout,
)
from storagegate.rpc.interfaces import Metadata

_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]
_UNIMPLEMENTED = GRPC_STATUSES["UNIMPLEMENTED"]

_KNOWN_ENCODINGS = {b"identity": None, **{each.encode(): each for each in ENCODINGS}}


class RPCRequestHead:
    """
    The head of a call. Calls with the same fields share it.

    @ivar path: The full name of the method.
    @ivar timeout: The time that the client waits, in seconds; C{None} without a deadline.
    @ivar encoding: The encoding of compressed requests; C{None} without one.
    @ivar accepts: The encodings that the client accepts, in our order.
    @ivar expected: The declared length of the body; C{None} if unknown.
    @ivar priority: The value of the field C{Priority}; C{None} without it.
    @ivar refusal: Why the call is refused; C{None} if it is not.
    @ivar httpStatus: The status of HTTP of a refusal.
    """

    __slots__ = (
        "_metadata",
        "_pairs",
        "accepts",
        "encoding",
        "expected",
        "httpStatus",
        "path",
        "priority",
        "refusal",
        "timeout",
    )

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.path = ""
        self.timeout: float | None = None
        self.encoding: str | None = None
        self.accepts: tuple[str, ...] = ()
        self.expected: int | None = None
        self.priority: bytes | None = None
        self.refusal: GrpcError | None = None
        self.httpStatus = 200
        self._pairs = pairs
        self._metadata: Metadata | None = None

    @property
    def metadata(self) -> Metadata:
        """The metadata of the client; do not modify."""
        if self._metadata is None:
            self._metadata = readMetadata(self._pairs)
        return self._metadata


def readHead(fields: ReceivedFields) -> RPCRequestHead:
    """
    Read the fields of a request.

    @param fields: The fields; they keep the result if they come repeatedly.
    @raise StreamFailure: If they are malformed, or not those of a client of gRPC.
    """
    kept: Any = fields.head
    if type(kept) is RPCRequestHead:
        return kept
    head = _readHead(fields)
    if fields.isRepeated:
        fields.head = head
    return head


def isCall(fields: ReceivedFields) -> bool:
    """Return whether a request has the content type of gRPC."""
    if type(fields.head) is RPCRequestHead:
        return True
    return any(name == b"content-type" and isGRPC(value) for name, value in fields.pairs)


def _readHead(fields: ReceivedFields) -> RPCRequestHead:
    if fields.isTooLarge:
        head = RPCRequestHead([])
        head.refusal = GrpcError(_EXHAUSTED, "the metadata is too large")
        return head
    method, target, pairs = readStripped(readCallFields, fields)
    head = RPCRequestHead(pairs)
    head.path = target.decode("utf-8", "replace")
    known = dict(pairs)
    head.priority = known.get(b"priority")
    length = known.get(b"content-length")
    if length is not None:
        if sum(name == b"content-length" for name, _ in pairs) > 1:
            raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "several lengths of the body")
        head.expected = _readLength(length)
    if not isGRPC(known.get(b"content-type", b"")):
        head.httpStatus = 415
        head.refusal = GrpcError(_INTERNAL, "the content type is not application/grpc")
        return head
    if method != b"POST":
        head.httpStatus = 405
        head.refusal = GrpcError(_INTERNAL, "a call is a POST request")
        return head
    if b"te" not in known:
        # No browser can send it, so that no page of another site can make calls.
        raise StreamFailure(ErrorCode.PROTOCOL_ERROR, "a call without te: trailers")
    try:
        _readOptions(head, known)
    except GrpcError as error:
        head.refusal = error
    return head


def _readOptions(head: RPCRequestHead, known: dict[bytes, bytes]) -> None:
    """
    Read the fields that are options of the call, and the metadata if that may fail.

    @raise GrpcError: If one of them is invalid.
    """
    timeout = known.get(b"grpc-timeout")
    if timeout is not None:
        head.timeout = readTimeout(timeout)
    accepted = known.get(b"grpc-accept-encoding")
    if accepted is not None:
        found = readEncodings(accepted)
        head.accepts = tuple(each for each in ENCODINGS if each.encode() in found)
    encoding = known.get(b"grpc-encoding", b"identity")
    if encoding not in _KNOWN_ENCODINGS:
        raise GrpcError(
            _UNIMPLEMENTED, f"the encoding {encoding[:40].decode('latin-1')} is unknown"
        )
    head.encoding = _KNOWN_ENCODINGS[encoding]
    for name in known:
        if name.endswith(BINARY):
            head._metadata = readMetadata(head._pairs)
            break


def _readLength(value: bytes) -> int:
    try:
        return readLength(value)
    except BadRequest as error:
        raise StreamFailure(ErrorCode.PROTOCOL_ERROR, error.text) from None
