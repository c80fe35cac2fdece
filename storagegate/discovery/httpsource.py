"""
Asks the HTTP API of a source: whole answers, and streams of lines that go on for long.

Every exchange has a connection of its own and ends with it, so that whoever stops asking leaves
nothing behind. What an answer may be large and how long it may take is bounded.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from storagegate.discovery.sourceerror import Refused, SourceError
from storagegate.discovery.tls import clientContext
from storagegate.discovery.tlsoptions import TLSOptions

MAX_MESSAGE_BYTES = 1024 * 1024
"""Of an answer, or of one line of a stream: a thousand instances have half of it."""

_MAX_HEAD_BYTES = 256 * 1024
"""Before an answer's body begins; with what was read together with its head."""

_CONNECT_SECONDS = 5.0


@frozen
class Answer:
    """What a source has answered."""

    status: int
    headers: Headers
    body: bytes

    def field(self, name: str) -> str:
        """Give the value of a header field; empty without one."""
        values = self.headers.getRawHeaders(name) or [""]
        return values[-1]


class HTTPSource:
    """One address of a source."""

    def __init__(self, reactor: Any, address: str, tls: TLSOptions) -> None:
        """
        @param address: C{http://host:port}, or C{https}, and perhaps a path.
        """
        self._reactor = reactor
        self._address = address
        self._tls = tls

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        seconds: float = 10.0,
    ) -> Answer:
        """
        Ask for something.

        @param path: With its query.
        @param seconds: For all of it.
        @raise SourceError: If there is no whole answer.
        """
        lines = _Whole()
        with _Connections(self._reactor, self._tls) as connections:
            asking = Deferred.fromCoroutine(
                self._talk(connections, method, path, headers, body, lines)
            )
            response = await self._within(seconds, asking)
        return Answer(response.code, response.headers, lines.taken())

    async def follow(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        taken: Callable[[bytes], None],
        body: bytes | None = None,
        seconds: float = 10.0,
        life: float = 60.0,
    ) -> None:
        """
        Take the lines of a stream until its end.

        @param taken: Takes a line; if it raises something, that is the end.
        @param seconds: Until the stream begins.
        @param life: How long it is followed at most: a peer that has silently gone away is noticed
            by whoever begins the next one.
        @raise SourceError: If it does not begin, or breaks off.
        """
        lines = _Lines(taken)
        with _Connections(self._reactor, self._tls) as connections:
            opening = Deferred.fromCoroutine(self._open(connections, method, path, headers, body))
            response = await self._within(seconds, opening)
            if response.code != 200:
                raise Refused(f"{self._address}{_bare(path)}", response.code)
            ending = self._reactor.callLater(life, lines.end)
            try:
                response.deliverBody(lines)
                await lines.done
            finally:
                if ending.active():
                    ending.cancel()

    async def _talk(
        self,
        connections: "_Connections",
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        lines: "_Body",
    ) -> Any:
        response = await self._open(connections, method, path, headers, body)
        response.deliverBody(lines)
        await lines.done
        return response

    async def _open(
        self,
        connections: "_Connections",
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Any:
        fields = Headers({"User-Agent": ["storagegate"], "Accept": ["application/json"]})
        for name, value in headers.items():
            fields.setRawHeaders(name, [value])
        agent = Agent.usingEndpointFactory(self._reactor, connections)
        response: IResponse = await agent.request(
            method.encode("ascii"),
            (self._address + path).encode("ascii"),
            fields,
            None if body is None else _Bytes(body),
        )
        connections.headed()
        return response

    async def _within(self, seconds: float, asking: Deferred[Any]) -> Any:
        """Wait for an answer, but not for ever."""
        late: list[bool] = []

        def giveUp() -> None:
            late.append(True)
            asking.cancel()

        timer = self._reactor.callLater(seconds, giveUp)
        try:
            return await self._named(asking)
        except (SourceError, CancelledError):
            if late:
                raise SourceError(f"{self._address} does not answer in {seconds:g} s") from None
            raise
        finally:
            if timer.active():
                timer.cancel()

    async def _named(self, asking: Deferred[Any]) -> Any:
        """Wait for something; what goes wrong says where."""
        try:
            return await asking
        except (SourceError, CancelledError):
            raise
        except Exception as error:
            # Connections, names, certificates, files and HTTP each have errors of their own, and
            # whichever it is, there is no answer.
            raise SourceError(f"{self._address}: {_reason(error)}") from error


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _reason(error: Any) -> str:
    """Say what is wrong, as the innermost of wrapped failures says it."""
    while getattr(error, "reasons", None):
        # Of a list of failures the first one was the cause of the others.
        error = error.reasons[0].value
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Body(Protocol):
    """Takes a body, as long as it is wanted."""

    def __init__(self) -> None:
        self.done: Deferred[None] = Deferred()
        self.ended = False

    def end(self, reason: Any = None) -> None:
        """End it, well or with an error."""
        if not self.ended:
            self.ended = True
            self.done.callback(None) if reason is None else self.done.errback(reason)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell a body's end from a connection's."""
        isWhole = reason.check(ResponseDone, PotentialDataLoss)
        self.end(None if isWhole else SourceError(f"breaks off: {_reason(reason.value)}"))


class _Whole(_Body):
    """Keeps a body."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._left = MAX_MESSAGE_BYTES

    def dataReceived(self, data: bytes) -> None:
        """Keep a piece."""
        self._left -= len(data)
        if self._left < 0:
            self._pieces.clear()
            self.end(SourceError(f"answers with more than {MAX_MESSAGE_BYTES} bytes"))
        elif not self.ended:
            self._pieces.append(data)

    def taken(self) -> bytes:
        """Give all of it."""
        return b"".join(self._pieces)


class _Lines(_Body):
    """Gives away the lines of a body."""

    def __init__(self, taken: Callable[[bytes], None]) -> None:
        super().__init__()
        self._taken = taken
        self._rest = bytearray()

    def dataReceived(self, data: bytes) -> None:
        """Give away what is whole."""
        if self.ended:
            return
        self._rest += data
        if b"\n" in data:
            *lines, rest = self._rest.split(b"\n")
            self._rest = rest
            for line in lines:
                self._give(bytes(line))
        if len(self._rest) > MAX_MESSAGE_BYTES:
            self.end(SourceError(f"sends a line of more than {MAX_MESSAGE_BYTES} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Give away the last line, which may have no end."""
        if reason.check(ResponseDone, PotentialDataLoss):
            self._give(bytes(self._rest))
        super().connectionLost(reason)

    def _give(self, line: bytes) -> None:
        if self.ended or not line.strip():
            return
        try:
            self._taken(line)
        except Exception:
            # Whoever follows hears of it; the HTTP client has no use for it.
            self.end(Failure())


@implementer(IBodyProducer)
class _Bytes:
    """The body of a request."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        written: Deferred[None] = Deferred()
        written.callback(None)
        return written

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        pass


class _Guarded(ProtocolWrapper):
    """Drops a connection that brings more than a head before there is a body."""

    left = _MAX_HEAD_BYTES
    headed = False

    def dataReceived(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0 and not self.headed:
            self.transport.abortConnection()  # type: ignore[union-attr]
        else:
            super().dataReceived(data)


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class _Connections:
    """Makes the connection of one exchange, and ends it with that."""

    def __init__(self, reactor: Any, tls: TLSOptions) -> None:
        self._reactor = reactor
        self._tls = tls
        self._endpoint: Any = None
        self._made: list[_Guarded] = []

    def __enter__(self) -> "_Connections":
        return self

    def __exit__(self, *error: object) -> None:
        for connection in self._made:
            if connection.transport is not None:
                connection.abortConnection()

    def headed(self) -> None:
        """From now on there is a body, which others bound."""
        for connection in self._made:
            connection.headed = True

    def endpointForURI(self, uri: URI) -> Any:
        """Give what connects to the source."""
        self._endpoint = HostnameEndpoint(self._reactor, uri.host, uri.port, _CONNECT_SECONDS)
        if uri.scheme == b"https":
            context = clientContext(self._tls, uri.host.decode("ascii"))
            self._endpoint = wrapClientTLS(context, self._endpoint)
        return self

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """Connect, and remember the connection."""
        factory = WrappingFactory(protocolFactory)
        # Of every poll the log would have two lines.
        factory.noisy = protocolFactory.noisy = False
        factory.protocol = _Guarded
        connected: Deferred[Any] = self._endpoint.connect(factory)
        return connected.addCallback(self._connected)

    def _connected(self, wrapper: _Guarded) -> Any:
        self._made.append(wrapper)
        return wrapper.wrappedProtocol
