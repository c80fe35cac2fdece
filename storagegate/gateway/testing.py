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

from collections.abc import Callable
from typing import Any

from twisted.internet.testing import MemoryReactorClock

from storagegate.gateway.client.formats import Reply
from storagegate.gateway.client.session import ClientSession
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    RESPONSE,
)
from storagegate.gateway.messages.interfaces import MessageId
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

    def receiveReply(self, reply: Reply) -> None:
        """Receive a message of the server. Called by connections."""
        self.receive(reply.type, reply.value)

    def receive(self, type: int, value: Any) -> None:
        """
        Receive the content of a message.

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

    @ivar session: Assigns replies to calls, as in the client of
        L{storagegate.gateway.client}.
    @ivar unexpected: Received messages that belong to no call, as pairs of frame type and content.
    """

    def __init__(self, client: "GatewayClient") -> None:
        self._client = client
        self.session = ClientSession()
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
        content = {"service": service, "method": method, **more}
        if data is not None:
            content["data"] = data
        if token is not None:
            content["auth"] = {"token": token}
        call = PendingCall(
            f"{service}.{method}", lambda type, item: self._proceed(callId, type, item)
        )
        callId, message = self.session.begin(content, call.receiveReply)
        self.write(message.type, message.content)
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

    def _proceed(self, id: MessageId, type: int, item: Any) -> None:
        if type == CLIENT_ITEM:
            message = self.session.item(id, item)
        elif type == CLIENT_END:
            message = self.session.itemsEnd(id)
        else:
            message = self.session.cancel(id)
        if message is not None:
            self.write(message.type, message.content)
        self._client.flush()

    def receive(self, reply: Reply) -> None:
        """Receive a message."""
        if not self.session.receive(reply):
            self.unexpected.append((reply.type, reply.value))


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
