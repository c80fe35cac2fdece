"""A server's call, as handlers and middleware see it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred

from storagegate.auth.tokens import bearerToken
from storagegate.core.codecs import INLINE_SIZE
from storagegate.core.context import ClientInfo
from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.core.streams import ReadAfterLoss, RequestsLost
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import IServerCall

READ_AHEAD = 8
"""How many messages of a stream are prefetched before the handler requests them."""

PROTOCOL = "grpc"
"""The name of the transport."""

_NAME = re.compile(r"[0-9a-z_.-]+\Z")
_VALUE = re.compile(r"[\x20-\x7e]*\Z")

_RESERVED = "grpc-"

_FORBIDDEN = (
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
)
"""
Names that HTTP/2 forbids (RFC 9113 section 8.2.2) or gRPC sets itself: a peer may close the whole
connection over one of these. A C{host} would contradict the authority (section 8.3.1).
"""

_INVALID_ARGUMENT = GRPC_STATUSES["INVALID_ARGUMENT"]

_NOTHING = object()


def hostOf(peer: str) -> str:
    """Return the address of a peer without its port; the address of a UNIX socket is unchanged."""
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    host, colon, port = peer.rpartition(":")
    return host if colon and ":" not in host and port.isdigit() else peer


@define(eq=False)
class CallMetadata:
    """The metadata of a call; names are compared without regard to case."""

    _entries: Sequence[tuple[str, Any]]

    def get(self, name: str) -> list[Any]:
        """Return all values of a name: text, or bytes if it ends in C{-bin}."""
        wanted = name.lower()
        return [value for key, value in self._entries if key == wanted]

    def getMap(self) -> dict[str, Any]:
        """Return the first value of each name."""
        return dict(reversed(self._entries))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter((key, value) for key, value in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get(name))


def wireMetadata(metadata: Any) -> list[tuple[str, str | bytes]]:
    """
    Convert metadata to send.

    @param metadata: A mapping of names to a value or a list of values, or pairs. Values are bytes
        if the name ends in C{-bin}, and printable ASCII otherwise.
    @raise ValueError: If a name or a value cannot be sent; the message names it.
    """
    entries: list[tuple[str, str | bytes]] = []
    for key, values in metadata.items() if isinstance(metadata, Mapping) else metadata:
        name = key.lower() if isinstance(key, str) else ""
        if not _NAME.match(name) or name.startswith(_RESERVED) or name in _FORBIDDEN:
            raise ValueError(f"{key!r} is not a valid metadata name")
        for value in values if isinstance(values, list | tuple) else (values,):
            entries.append((name, _wireValue(name, value)))
    return entries


def _wireValue(name: str, value: Any) -> str | bytes:
    if name.endswith("-bin"):
        if not isinstance(value, bytes | bytearray):
            raise ValueError(f"the metadata {name} is bytes, not {type(value).__name__}")
        return bytes(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not _VALUE.match(value):
        raise ValueError(f"the metadata {name} is printable ASCII, not {value!r:.60}")
    # HTTP/2 allows no spaces around a value (RFC 9113 section 8.2.1).
    return value.strip(" ")


def invalidRequest(error: ConversionError) -> GrpcError:
    """Return the status of a request that cannot be converted."""
    return GrpcError(_INVALID_ARGUMENT, str(error))


@define(eq=False)
class RequestStream:
    """
    The messages of a client's stream.

    At most L{READ_AHEAD} messages are fetched before they are requested, so that a slow handler
    slows the client down.

    @ivar decode: Converts a message's bytes to the handler's value; may raise L{ConversionError}.
    @ivar decodeLarge: Does the same in a thread; C{None} for no thread.
    """

    _engineCall: IServerCall
    decode: Callable[[bytes], Any]
    decodeLarge: Callable[[bytes], Deferred[Any]] | None = None
    # The next message, or None at the end.
    _arrived: Any = _NOTHING
    _isReading: bool = False
    _waiting: Deferred[None] | None = None
    # Whether a read is in progress that may deliver a message synchronously.
    _isAsking: bool = False
    _isLost: bool = False
    _hasRaised: bool = False

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> Any:
        if self._waiting is not None:
            raise RuntimeError("the next request is already awaited")
        message = self._arrived
        if message is _NOTHING and not self._isReading:
            # Most messages of a fast stream have arrived: a request for each, with its callback,
            # takes a seventh of the time of an echoed message.
            taken = self._engineCall.takeMessage()
            if taken is not None:
                message = taken
        if message is _NOTHING:
            if not self._isReading:
                self._isReading = self._isAsking = True
                self._engineCall.read(self._got, READ_AHEAD)
                self._isAsking = False
                message = self._arrived
            if message is _NOTHING:
                if self._engineCall.isOver:
                    raise self._loss()
                waiting = self._waiting = Deferred(self._stopWaiting)
                await waiting
                if self._isLost:
                    raise self._loss()
                message = self._arrived
        if message is None:
            raise StopAsyncIteration
        self._arrived = _NOTHING
        if len(message) > INLINE_SIZE and self.decodeLarge is not None:
            return await self.decodeLarge(message)
        try:
            return self.decode(message)
        except ConversionError as error:
            raise invalidRequest(error) from None

    def _loss(self) -> BaseException:
        """
        Return the error of a read after the end of the call; it differs from the second read on.
        """
        hasRaised, self._hasRaised = self._hasRaised, True
        return ReadAfterLoss("the call is over") if hasRaised else RequestsLost("the call is over")

    def _got(self, message: bytes | None) -> None:
        self._isReading = False
        waiting, self._waiting = self._waiting, None
        if message is None and not self._isAsking and self._engineCall.isOver:
            # This is not the end of the client's stream: the call was cancelled or is answered.
            self._isLost = True
        else:
            self._arrived = message
        if waiting is not None:
            waiting.callback(None)

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._waiting = None


class Call:
    """
    One call.

    @ivar request: The request; C{None} if the client sends a stream of requests: then the call
        itself is the asynchronous iterable.
    @ivar service: The full name of the service.
    @ivar method: The bare name of the method.
    @ivar user: The authenticated user, set by middleware.
    @ivar deadline: When the client gives up, in seconds since 1970; C{None} for never.
    @ivar compress: Whether messages sent from now on may be compressed, if the options enable it.
        Disable it for a message with a secret and text chosen by others: its length would reveal
        the secret.
    """

    # Most calls set none of these: class attributes avoid setting them for each call.
    request: Any = None
    requests: RequestStream | None = None
    user: Any = None
    compress: bool = True
    _metadata: CallMetadata | None = None

    def __init__(self, engineCall: IServerCall, service: str, method: str) -> None:
        self.service = service
        self.method = method
        self.deadline = engineCall.deadline
        self.trailers: list[tuple[str, str | bytes]] = []
        self._engineCall = engineCall

    def __aiter__(self) -> RequestStream:
        if self.requests is None:
            raise TypeError(f"{self.method} takes one request, not a stream")
        return self.requests

    @property
    def protocol(self) -> str:
        """C{grpc}; see C{CallContext}."""
        return PROTOCOL

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The first text of each name of the metadata."""
        return {key: value for key, value in self.metadata.getMap().items() if type(value) is str}

    @cached_property
    def token(self) -> str | None:
        """The bearer token of C{authorization}; C{None} without one."""
        return bearerToken(self.headers.get("authorization", "")) or None

    @cached_property
    def client(self) -> ClientInfo:
        """The client."""
        peer = self.getPeer()
        port = peer.rpartition(":")[2]
        number = int(port) if port.isdigit() else 0
        return ClientInfo(peer, hostOf(peer), number, self.headers.get("user-agent"))

    @property
    def path(self) -> str:
        """The full name of the method, C{/package.Service/Method}."""
        return self._engineCall.path

    @property
    def metadata(self) -> CallMetadata:
        """The client's metadata."""
        if self._metadata is None:
            self._metadata = CallMetadata(self._engineCall.metadata)
        return self._metadata

    @property
    def cancelled(self) -> bool:
        """Whether the call has ended, or the client has disconnected."""
        return self._engineCall.isOver

    @property
    def authContext(self) -> dict[str, list[bytes]]:
        """
        The entries of the client's certificate, such as C{x509_common_name}; empty without one.
        """
        return self._engineCall.authContext()

    def getPeer(self) -> str:
        """Return the client's address: C{127.0.0.1:5000}, C{[::1]:5000} or C{unix:path}."""
        kind, _, address = self._engineCall.peer().partition(":")
        return address if kind in ("ipv4", "ipv6") else f"{kind}:{address}"

    def sendMetadata(self, metadata: Mapping[str, Any]) -> None:
        """
        Send the initial metadata now; without this, none is sent before the first message.

        @param metadata: Names, each with a value or a list of values. Values are bytes if the name
            ends in C{-bin}.
        @raise ValueError: If a name or a value cannot be sent.
        """
        self._engineCall.sendMetadata(wireMetadata(metadata))

    def prepareMetadata(self, metadata: Mapping[str, Any]) -> None:
        """
        Add initial metadata that is sent with the first message or the status.

        @param metadata: See L{sendMetadata}.
        @raise ValueError: If a name or a value cannot be sent.
        """
        self._engineCall.prepareMetadata(wireMetadata(metadata))

    def setTrailers(self, metadata: Mapping[str, Any]) -> None:
        """
        Replace the metadata that is sent with the status.

        @param metadata: See L{sendMetadata}.
        @raise ValueError: If a name or a value cannot be sent.
        """
        self.trailers = wireMetadata(metadata)
