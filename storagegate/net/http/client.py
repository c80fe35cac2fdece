"""
An HTTP client for the services that a daemon depends on: discovery, signing keys, token endpoints.

treq sends the requests. This module adds limits of time and size, verification of the server's name
before anything is sent, and a filter of addresses. Calls forwarded to other servers use pooled
connections; see L{storagegate.net.http.clientconnection}.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IHandshakeListener,
    IHostResolution,
    IResolutionReceiver,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.addresses import DEFAULT_PORTS, HTTPS
from storagegate.core.streams import SharedFuture
from storagegate.net.http.clientconnection import (
    HEAD_BYTES,
    ConnectionLostError,
    HTTPClientError,
    ResponseHead,
    openConnection,
)
from storagegate.net.http.lines import LineTooLong, NDJSONDecoder
from storagegate.net.resolvingreactor import ResolvingReactor
from storagegate.net.tls import ClientTLSOptions, ServerContext, describeError, makeContext

if TYPE_CHECKING:
    from twisted.web.iweb import IResponse

CONNECT_SECONDS = 5.0
"""Time to connect, for requests of L{HTTPClient}."""

MAX_MESSAGE_BYTES = 1024 * 1024
"""Maximum number of bytes of a response, or of a line of a stream: a thousand instances take half
of it."""

_READ_BYTES = 64 * 1024
"""Maximum number of bytes of one read of a socket, in which the body may follow the end of the
head."""

_URL = re.compile(r"(https?)://(\[[^\]/]+\]|[^\[\]:/]+)(?::([0-9]{1,5}))?(/.*)?")


class HTTPStatusError(HTTPClientError):
    """The response has an unexpected status."""

    def __init__(self, source: str, status: int, reason: str = "") -> None:
        """
        @param source: The server or URL, for the message.
        @param reason: The explanation in the response.
        """
        super().__init__(f"{source} answers with {status}{reason and ': '}{reason[:200]}")
        self.status = status


@frozen
class ClientResponse(ResponseHead):
    """A whole response."""

    body: bytes

    def field(self, name: str) -> str:
        """
        Return the value of a header field, or an empty string.

        @param name: The case-insensitive name.
        """
        return self.fields.get(name.lower().encode("ascii"), b"").decode("latin-1")


class _Expired(ConnectionLostError):
    """A stream has reached its time limit."""


@implementer(IHandshakeListener)
class _BoundedConnection(ProtocolWrapper):
    """
    The connection of one request, below Twisted's HTTP protocol.

    @ivar endsInOrder: Whether the server has closed it cleanly.
    @ivar refused: The reason why this side closed it, or C{None}.
    """

    endsInOrder = False
    refused: str | None = None
    _headBytes: int | None = 0

    def __init__(self, factory: Any, wrappedProtocol: Any) -> None:
        super().__init__(factory, wrappedProtocol)
        self._handshake: SharedFuture[None] = SharedFuture()

    def whenSecure(self) -> Deferred[None]:
        """Wait for the end of the handshake."""
        return self._handshake.wait(self.abort)

    def handshakeCompleted(self) -> None:
        """Record the end of the handshake."""
        self._handshake.set(None)

    def headReceived(self) -> None:
        """Stop counting the bytes of the head."""
        self._headBytes = None

    def dataReceived(self, data: bytes) -> None:
        """Pass bytes on, unless the head is too long."""
        if self._headBytes is not None:
            self._headBytes += len(data)
            if self._headBytes > HEAD_BYTES + _READ_BYTES:
                self.refused = "its head is too long"
                self.abort()
                return
        super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Record how the connection ended."""
        self.endsInOrder = reason.check(ConnectionDone) is not None
        self._handshake.fail(reason.value or ConnectionDone())
        super().connectionLost(reason)

    def abort(self) -> None:
        """Close the connection immediately."""
        self.transport.abortConnection()  # type: ignore[union-attr]


class _Body(Protocol):
    """
    Passes on the bytes of a body.

    @ivar ended: Fires at the end of the body; fails if it is truncated or refused.
    """

    def __init__(self, onData: Callable[[bytes], object], connection: _BoundedConnection) -> None:
        """
        @param onData: Called with each piece; an exception ends the response.
        @param connection: The connection; closed if the response ends early.
        """
        self._onData = onData
        self._connection = connection
        self._error: Failure | None = None
        self.ended: Deferred[None] = Deferred(lambda _: connection.abort())

    def dataReceived(self, data: bytes) -> None:
        """Pass a piece on, unless an earlier one was refused."""
        if self._error is not None:
            return
        try:
            self._onData(data)
        except Exception:
            self._error = Failure()
            self._connection.abort()
            self._end(self._error)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the body; a body without a length ends with a clean close of the connection."""
        from twisted.web.client import ResponseDone
        from twisted.web.http import PotentialDataLoss

        isWhole = reason.check(ResponseDone) is not None
        if isWhole or (reason.check(PotentialDataLoss) and self._connection.endsInOrder):
            self._end(None)
        else:
            self._end(Failure(ConnectionLostError("the connection was lost in the response")))

    def _end(self, result: Failure | None) -> None:
        if not self.ended.called:
            self.ended.callback(result)


class HTTPClient:
    """
    Sends requests below one URL, each on its own connection.

    Redirects are not followed, cookies are not kept, and no content coding is accepted.
    """

    def __init__(
        self,
        reactor: Any,
        url: str,
        tls: ClientTLSOptions,
        maxBytes: int = MAX_MESSAGE_BYTES,
        allows: Callable[[str], bool] | None = None,
    ) -> None:
        """
        @param reactor: The reactor for connections, name resolution and timeouts.
        @param url: C{http://host:port}, or C{https}, with an optional path.
        @param tls: The trust roots and the client certificate for C{https}.
        @param maxBytes: Maximum number of bytes of the body of a response, or of a line of a
            stream.
        @param allows: Returns whether connections to an IP address of the host are allowed; C{None}
            allows all.
        """
        self._url = url
        self._tls = tls
        self._reactor = reactor
        self._maxBytes = maxBytes
        self._resolving = reactor if allows is None else _GuardedReactor(reactor, allows)

    async def request(
        self,
        method: str,
        target: str = "",
        fields: Mapping[str, str] = {},
        body: bytes | None = None,
        seconds: float = 10.0,
    ) -> ClientResponse:
        """
        Send a request, and read the whole response.

        @param method: The method in upper case.
        @param target: The rest of the path, and the query.
        @param fields: Header fields by name, in addition to the fields of the connection.
        @param body: The whole body; C{None} for a request without one.
        @param seconds: The timeout for the whole exchange.
        @raise HTTPClientError: If there is no complete response within that time.
        """
        pieces = bytearray()

        def collect(data: bytes) -> None:
            pieces.extend(data)
            if len(pieces) > self._maxBytes:
                raise HTTPClientError(f"has a body of more than {self._maxBytes} bytes")

        async def whole() -> ClientResponse:
            connection, response = await self._open(method, target, fields, body)
            try:
                reading = _Body(collect, connection)
                response.deliverBody(reading)
                await reading.ended
            finally:
                connection.abort()
            return ClientResponse(response.code, _fieldsOf(response), bytes(pieces))

        received: ClientResponse = await self._within(seconds, whole)
        return received

    async def stream(
        self,
        method: str,
        target: str,
        fields: Mapping[str, str],
        onLine: Callable[[bytes], None],
        body: bytes | None = None,
        seconds: float = 10.0,
        maxSeconds: float = 60.0,
    ) -> None:
        """
        Send a request, and read the lines of the response until its end.

        For the first parameters, see L{request}.

        @param onLine: Called with each line that is not blank; an exception ends the stream.
        @param seconds: The timeout for the head of the response.
        @param maxSeconds: The time limit for reading lines, which detects a server that has
            vanished.
        @raise HTTPStatusError: If the status is not 200.
        @raise HTTPClientError: If there is no response, or the stream is truncated.
        """
        connection, response = await self._within(
            seconds, lambda: self._open(method, target, fields, body)
        )
        decoder = NDJSONDecoder(self._maxBytes)

        def feed(data: bytes) -> None:
            for line in decoder.feed(data):
                onLine(line)

        reading = _Body(feed, connection)
        reading.ended.addTimeout(maxSeconds, self._reactor, _expire)
        try:
            if response.code != 200:
                raise HTTPStatusError(self._url + target.partition("?")[0], response.code)
            response.deliverBody(reading)
            await reading.ended
            for line in decoder.end():
                onLine(line)
        except _Expired:
            return
        except LineTooLong:
            raise HTTPClientError(f"sends a line of more than {self._maxBytes} bytes") from None
        except ConnectionLostError as error:
            raise HTTPClientError(f"breaks off: {error}") from error
        finally:
            reading.ended.addErrback(lambda _: None)
            reading.ended.cancel()
            connection.abort()

    async def _open(
        self, method: str, target: str, fields: Mapping[str, str], body: bytes | None
    ) -> "tuple[_BoundedConnection, IResponse]":
        """Send a request, and wait for the head of the response."""
        # The import takes 60 ms, which a daemon without discovery and providers saves.
        from treq.client import HTTPClient as TreqClient

        match = _URL.fullmatch(self._url)
        if match is None:
            raise ValueError("it is no URL of HTTP")
        scheme, host, given, _ = match.groups("")
        sent: dict[Any, Any] = {"User-Agent": "storagegate", "Accept": "application/json", **fields}
        if not all(text.isprintable() for text in (target, *sent, *sent.values())):
            raise ValueError("a field of the request has a control character")
        name = host.strip("[]")
        port = int(given or DEFAULT_PORTS[scheme])
        context = makeContext(self._tls, name) if scheme == HTTPS else None
        endpoint = _BoundedEndpoint(
            self._reactor, HostnameEndpoint(self._resolving, name, port, CONNECT_SECONDS), context
        )
        # Both provide interfaces of Twisted that are imported with treq.
        agent: Any = _PlainAgent(self._reactor, endpoint)
        producer: Any = _BytesProducer
        response = await TreqClient(agent, data_to_body_producer=producer).request(
            method,
            self._url + target,
            headers=sent,
            data=body,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        assert endpoint.connection is not None
        endpoint.connection.headReceived()
        return endpoint.connection, response

    async def _within(self, seconds: float, send: Callable[[], Any]) -> Any:
        """Wait for a response with a timeout; errors name the URL."""
        try:
            return await Deferred.fromCoroutine(send()).addTimeout(seconds, self._reactor)
        except (HTTPClientError, CancelledError):
            raise
        except TimeoutError:
            raise HTTPClientError(f"{self._url} does not answer in {seconds:g} s") from None
        except Exception as error:
            # Connections, names, certificates, files and HTTP each raise different errors, and any
            # of them means that there is no response.
            isLost = isinstance(error, ConnectionLostError)
            reason = str(error) if isLost else describeError(error)
            raise HTTPClientError(f"{self._url}: {reason}") from error


class _BoundedEndpoint:
    """
    Connects, completes the TLS handshake and verifies the server before use.

    @ivar connection: The last connection.
    """

    connection: _BoundedConnection | None = None

    def __init__(self, reactor: Any, endpoint: Any, context: ServerContext | None) -> None:
        self._reactor = reactor
        self._endpoint = endpoint
        self._context = context

    def endpointForURI(self, uri: object) -> "_BoundedEndpoint":
        """Return itself, as each request has its own endpoint."""
        return self

    def connect(self, factory: Any) -> Deferred[Any]:
        """Connect, and return the HTTP protocol."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: Any) -> Any:
        wrapping = WrappingFactory(factory)
        wrapping.protocol = _BoundedConnection
        wrapping.noisy = False
        self.connection = connection = await openConnection(
            self._endpoint, self._reactor, CONNECT_SECONDS, self._context, factory=wrapping
        )
        return connection.wrappedProtocol


class _BytesProducer:
    """
    Writes a body in memory in one piece.

    Twisted's C{FileBodyProducer} uses iterations of the global reactor.

    @ivar length: The length of the body.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        """Write the body."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: the body is already written."""

    def resumeProducing(self) -> None:
        """Do nothing: the body is already written."""

    def stopProducing(self) -> None:
        """Do nothing: the body is already written."""


class _PlainAgent:
    """An agent that requests no content coding, and refuses a response that has one."""

    def __init__(self, reactor: Any, endpoint: _BoundedEndpoint) -> None:
        from twisted.web.client import Agent

        self._endpoint = endpoint
        self._agent = Agent.usingEndpointFactory(reactor, endpoint)

    def request(self, method: bytes, uri: bytes, headers: Any, bodyProducer: Any) -> Deferred[Any]:
        """Send a request."""
        headers.removeHeader(b"Accept-Encoding")
        return Deferred.fromCoroutine(self._request(method, uri, headers, bodyProducer))

    async def _request(self, method: bytes, uri: bytes, headers: Any, bodyProducer: Any) -> Any:
        from twisted.web.client import ResponseFailed

        try:
            response = await self._agent.request(method, uri, headers, bodyProducer)
        except ResponseFailed as error:
            if any(reason.check(CancelledError) for reason in error.reasons):
                raise CancelledError from None
            connection = self._endpoint.connection
            refused = connection.refused if connection is not None else None
            raise ConnectionLostError(refused or _reasonOf(error)) from error
        if response.headers.hasHeader(b"Content-Encoding"):
            if self._endpoint.connection is not None:
                self._endpoint.connection.abort()
            raise ConnectionLostError("its body has a content coding")
        return response


def _reasonOf(error: Any) -> str:
    """Return the most specific of Twisted's reasons for a missing response."""
    from twisted.web._newclient import ParseError

    for failure in error.reasons:
        if failure.check(ParseError):
            return f"it does not speak HTTP: {failure.value.args[0]}"
    return "the connection was lost"


def _fieldsOf(response: "IResponse") -> dict[bytes, bytes]:
    """Return the header fields by name in lower case, with repeated fields joined."""
    found = response.headers.getAllRawHeaders()
    return {name.lower(): b", ".join(values) for name, values in found}


def _expire(result: object, seconds: float) -> Failure:
    """Return the failure for the time limit of a stream."""
    return Failure(_Expired("it has expired"))


@implementer(IResolutionReceiver)
class _AllowedAddresses:
    """Passes on allowed addresses."""

    def __init__(self, receiver: Any, allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self._receiver = receiver
        self.resolutionBegan = receiver.resolutionBegan
        self.resolutionComplete = receiver.resolutionComplete

    def addressResolved(self, address: IAddress) -> None:
        """Pass on an address if it is allowed."""
        host: Any = getattr(address, "host", None)
        if host is not None and self._allows(host):
            self._receiver.addressResolved(address)


class _GuardedReactor(ResolvingReactor):
    """
    A reactor that resolves names only to allowed addresses. No name is resolved twice, so
    connections go to the checked addresses.
    """

    def __init__(self, reactor: Any, allows: Callable[[str], bool]) -> None:
        super().__init__(reactor)
        self._allows = allows

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, *arguments: Any, **more: Any
    ) -> IHostResolution:
        """Resolve a name."""
        receiver = _AllowedAddresses(resolutionReceiver, self._allows)
        resolution: IHostResolution = self._reactor.nameResolver.resolveHostName(
            receiver, *arguments, **more
        )
        return resolution
