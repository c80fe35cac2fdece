"""
A client for tests of gateways: every transport in memory, without sockets, and a clock that the
test advances.

A call runs through the whole transport: framing, limits, authentication, validation::

    client = GatewayClient(gateway)
    connection = client.connect("tcp")
    assert connection.call("Greeter", "greet", {"name": "Ada"}) == {"hello": "Ada"}

Start a call that takes time, or a stream::

    call = connection.start("Greeter", "count", {"to": 3})
    client.advance(1)
    assert call.items == [1, 2, 3]
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

from twisted.internet.testing import MemoryReactorClock

from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    REQUEST,
    RESPONSE,
)
from storagegate.gateway.transports.registry import findTransport, loadReference
from storagegate.net.testing import LOCALHOST, MemoryDriver


class NoReply(AssertionError):
    """
    A call that has not been answered yet.

    @ivar call: The call.
    """

    def __init__(self, call: "PendingCall") -> None:
        super().__init__(
            f"{call.name} has no response yet; use start(), then let time pass "
            "with client.advance(seconds)"
        )
        self.call = call


class PendingCall:
    """
    A call of a test.

    @ivar name: The service and the method.
    @ivar items: The items of the stream of results, so far.
    @ivar isStream: Whether an item or the end of a stream has arrived.
    @ivar isDone: Whether the call has ended.
    @ivar error: The error that ended the call.
    """

    def __init__(self, name: str, send: Callable[[int, Any], None]) -> None:
        """
        @param send: Sends an item, the end of the items, or a cancellation, by the type of its
            frame.
        """
        self.name = name
        self.items: list[Any] = []
        self.isStream = False
        self.isDone = False
        self.error: Exception | None = None
        self._result: Any = None
        self._send = send

    @property
    def result(self) -> Any:
        """
        Return the result; C{None} for a stream.

        @raise NoReply: If the call has not ended.
        @raise ServiceError: If the call has ended with an error; C{GrpcError} over gRPC.
        """
        if not self.isDone:
            raise NoReply(self)
        if self.error is not None:
            raise self.error
        return self._result

    def send(self, item: Any) -> None:
        """Send an item of the client's stream."""
        self._send(CLIENT_ITEM, item)

    def end(self) -> None:
        """End the client's stream."""
        self._send(CLIENT_END, None)

    def cancel(self) -> None:
        """Cancel the call; later replies to it are dropped."""
        self._send(CANCEL, None)
        self.isDone = True

    def receive(self, type: int, value: Any) -> None:
        """
        Receive a message of the server. Called by connections.

        @param type: The type of its frame.
        @param value: The result, the item or the error.
        """
        if self.isDone:
            return
        self.isStream = self.isStream or type in (ITEM, END)
        if type == ITEM:
            self.items.append(value)
            return
        self.isDone = True
        if type == RESPONSE:
            self._result = value
        elif type == ERROR:
            self.error = value


class CallConnection:
    """
    A connection of a test, which makes calls.

    A subclass implements C{write} and passes received messages to L{receive}.

    @ivar unexpected: Received messages that belong to no call, as pairs of frame type and content.
    """

    def __init__(self, client: "GatewayClient") -> None:
        self._client = client
        self._numbers = count(1)
        self._calls: dict[Any, PendingCall] = {}
        self.unexpected: list[tuple[int, Any]] = []

    def write(self, type: int, message: dict[str, Any]) -> None:
        """
        Send a message.

        @param type: The type of its frame.
        @param message: Its content, with the C{id} of the call.
        """
        raise NotImplementedError

    def start(
        self, service: str, method: str, data: Any = None, *, token: str | None = None, **more: Any
    ) -> PendingCall:
        """
        Begin a call.

        @param data: The request; omitted if C{None}.
        @param token: A token or an API key.
        @param more: Further keys of the message, such as C{deadlineMs}.
        """
        id = next(self._numbers)
        call = self._calls[id] = PendingCall(f"{service}.{method}", partial(self._proceed, id))
        message = {"id": id, "service": service, "method": method, **more}
        if data is not None:
            message["data"] = data
        if token is not None:
            message["auth"] = {"token": token}
        self.write(REQUEST, message)
        self._client.flush()
        return call

    def call(
        self, service: str, method: str, data: Any = None, *, token: str | None = None, **more: Any
    ) -> Any:
        """
        Make a call, and return its result, or the list of the items of its stream.

        @param data: The request, see L{start} for all parameters.
        @raise NoReply: If the call has not ended at once.
        @raise ServiceError: If it ends with an error.
        """
        call = self.start(service, method, data, token=token, **more)
        result = call.result
        return call.items if call.isStream else result

    def _proceed(self, id: Any, type: int, item: Any) -> None:
        self.write(type, {"id": id, "data": item} if type == CLIENT_ITEM else {"id": id})
        self._client.flush()

    def receive(self, type: int, id: Any, value: Any) -> None:
        """
        Receive a message.

        @param type: The type of its frame.
        @param id: The id of the call; C{None} without one.
        @param value: The result, the item or the error.
        """
        call = self._calls.get(id)
        if call is None:
            self.unexpected.append((type, value))
            return
        call.receive(type, value)
        if call.isDone:
            del self._calls[id]

    def receiveFrame(self, type: int, payload: Any) -> None:
        """
        Receive a decoded frame.

        @param payload: The decoded payload of a frame of the server.
        """
        id = payload.get("id") if isinstance(payload, Mapping) else None
        value: Any = payload
        if type == ERROR:
            value = readError(payload, "error")
        elif id is not None:
            value = payload.get("data")
        self.receive(type, id, value)

    def receiveMessage(self, message: Mapping[str, Any]) -> None:
        """
        Receive a decoded JSON message.

        @param message: See L{storagegate.gateway.messages.json}.
        """
        type = _TYPES.get(message.get("type", ""), 0)
        value = message.get("data")
        if type == ERROR:
            value = readError(message["error"], "code")
        self.receive(type, message.get("id"), value if type else message)


_TYPES = {"response": RESPONSE, "stream": ITEM, "stream_end": END, "error": ERROR}

_NAMES = {CLIENT_ITEM: "stream", CLIENT_END: "stream_end", CANCEL: "cancel"}


def makeMessage(type: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON message for a message with a frame type."""
    return message if type == REQUEST else {"type": _NAMES[type], **message}


def readError(shape: Mapping[str, Any], codeKey: str) -> ServiceError:
    """
    Return the error of a reply.

    @param shape: The error in the transport's shape.
    @param codeKey: The key of its code.
    """
    return ServiceError(
        shape.get(codeKey, "UNKNOWN"), shape.get("message", ""), details=shape.get("details")
    )


class _InlineThreads:
    """A thread pool that runs functions synchronously."""

    def callInThreadWithCallback(
        self,
        done: Callable[[bool, Any], object],
        function: Callable[..., Any],
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        """
        Run a function.

        @param done: Called with whether the function succeeded, and its result or C{Failure}.
        """
        from twisted.python.failure import Failure

        try:
            result = function(*arguments, **keywords)
        except BaseException:
            done(False, Failure())
        else:
            done(True, result)


class MemoryReactor(MemoryReactorClock):
    """The reactor of a gateway in memory: a clock, and a thread pool without threads."""

    def getThreadPool(self) -> Any:
        """Return a thread pool that runs functions synchronously."""
        return _InlineThreads()

    def callFromThread(self, function: Any, *arguments: Any, **keywords: Any) -> None:
        """Call a function synchronously."""
        function(*arguments, **keywords)


class GatewayClient(MemoryDriver):
    """
    In-process clients of one gateway, and the gateway's clock.

    The gateway is started without listeners; it can no longer be configured.

    @ivar clock: The gateway's clock, which only C{advance} moves.
    @ivar address: The IP address of the clients.
    """

    def __init__(self, gateway: ProtocolGateway, *, address: str = LOCALHOST) -> None:
        super().__init__(MemoryReactor())
        self.address = address
        self._transports = gateway.start(self.clock)

    def connect(self, name: str, **options: Any) -> Any:
        """
        Connect a client.

        @param name: A transport.
        @param options: C{format} for WebSocket (C{json}, C{binary}, C{msgpack}) and TCP (C{frames},
            C{lines}); C{headers} for WebSocket.
        @return: A L{CallConnection}; for HTTP, the client of L{storagegate.http.testing}.
        @raise KeyError: If there is no transport of that name.
        """
        row = findTransport(name)
        if row.testing is None:
            raise KeyError(f"the transport {name} has no client for tests")
        carrier = None if row.shares is None else self._transports.get(row.shares)
        return loadReference(row.testing)(self, self._transports.get(name), carrier, **options)
