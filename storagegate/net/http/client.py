"""
Whole requests to an HTTP server, each on a connection of its own, see L{HTTPClient}.

Calls that are forwarded use pooled connections themselves, see
L{storagegate.net.http.clientconnection}.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
)
from zope.interface import implementer

from storagegate.core.httpurls import DEFAULT_PORTS, HTTPS
from storagegate.net.http.clientconnection import (
    ClientRequest,
    ConnectionLostError,
    HTTPClientConnection,
    HTTPClientError,
    ResponseHead,
    openConnection,
)
from storagegate.net.http.lines import LineTooLong, NDJSONDecoder
from storagegate.net.tls import ClientTLSOptions, describeError, makeContext

CONNECT_SECONDS = 5.0
"""Time to connect, for requests of L{HTTPClient}."""

MAX_MESSAGE_BYTES = 1024 * 1024
"""Bytes of a response, or of a line of a stream: a thousand instances have half of it."""

_URL = re.compile(r"(https?)://(\[[^\]/]+\]|[^\[\]:/]+)(?::([0-9]{1,5}))?(/.*)?")


class HTTPStatusError(HTTPClientError):
    """The response has another status than the one that was expected."""

    def __init__(self, source: str, status: int, reason: str = "") -> None:
        """
        @param source: The server or the URL, for the text.
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
        Return the value of a header field; empty if there is none.

        @param name: In any case.
        """
        return self.fields.get(name.lower().encode("ascii"), b"").decode("latin-1")


class _Expired(ConnectionLostError):
    """A stream was read for as long as it may be."""


class HTTPClient:
    """
    Sends requests below one URL, each on a connection of its own, which ends with it.

    Redirections are not followed, and no content coding is accepted.
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
        @param reactor: Connects, resolves names, and measures the times.
        @param url: C{http://host:port}, or C{https}, and perhaps a path.
        @param tls: The trust roots and the client certificate for C{https}.
        @param maxBytes: Bytes of the body of a response, or of a line of a stream.
        @param allows: Returns whether an IP address may be connected to, of those that the name of
            the host has; C{None} for all.
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

        @param method: In capitals.
        @param target: The rest of the URL: of the path, and the query.
        @param fields: Header fields by name, besides those of the connection.
        @param body: The whole body; C{None} for a request without one.
        @param seconds: For all of it.
        @raise HTTPClientError: If there is no complete response within that time.
        """

        async def whole() -> ClientResponse:
            connection, request, head = await self._open(method, target, fields, body)
            try:
                return ClientResponse(head.status, head.fields, await request.body(self._maxBytes))
            finally:
                connection.abort()

        response: ClientResponse = await self._within(seconds, whole)
        return response

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

        The first parameters are those of L{request}.

        @param onLine: Called with each line that is not blank; what it raises ends the stream.
        @param seconds: Until the head of the response.
        @param maxSeconds: How long the lines are read: this detects a server that has vanished.
        @raise HTTPStatusError: If the status is not 200.
        @raise HTTPClientError: If there is no response, or the stream is cut.
        """
        connection, request, head = await self._within(
            seconds, lambda: self._open(method, target, fields, body)
        )
        expired = _Expired("it has expired")
        expiry = self._reactor.callLater(maxSeconds, request.fail, expired)
        decoder = NDJSONDecoder(self._maxBytes)
        try:
            if head.status != 200:
                raise HTTPStatusError(self._url + target.partition("?")[0], head.status)
            isOver = False
            while not isOver:
                piece = await request.read()
                isOver = not piece
                for line in decoder.end() if isOver else decoder.feed(piece):
                    onLine(line)
        except _Expired:
            return
        except LineTooLong:
            raise HTTPClientError(f"sends a line of more than {self._maxBytes} bytes") from None
        except ConnectionLostError as error:
            raise HTTPClientError(f"breaks off: {error}") from error
        finally:
            if expiry.active():
                expiry.cancel()
            connection.abort()

    async def _open(
        self, method: str, target: str, fields: Mapping[str, str], body: bytes | None
    ) -> tuple[HTTPClientConnection, ClientRequest, ResponseHead]:
        """Send a request, and wait for the head of the response."""
        match = _URL.fullmatch(self._url)
        if match is None:
            raise ValueError("it is no URL of HTTP")
        scheme, host, given, path = match.groups("")
        usual = DEFAULT_PORTS[scheme]
        port = int(given or usual)
        lines = [
            f"{method} {path + target or '/'} HTTP/1.1",
            f"Host: {host if port == usual else f'{host}:{port}'}",
            "Connection: close",
            "User-Agent: storagegate",
            "Accept: application/json",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        if body is not None or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body or b'')}")
        if not all(line.isprintable() for line in lines):
            raise ValueError("a field of the request has a control character")
        message = "\r\n".join([*lines, "\r\n"]).encode("ascii")
        name = host.strip("[]")
        context = makeContext(self._tls, name) if scheme == HTTPS else None
        endpoint = HostnameEndpoint(self._resolving, name, port, CONNECT_SECONDS)
        connection = await openConnection(endpoint, self._reactor, CONNECT_SECONDS, context)
        try:
            request = connection.begin(message, body or b"", endsByClosing=True)
            return connection, request, await request.head()
        except BaseException:
            connection.abort()
            raise

    async def _within(self, seconds: float, send: Callable[[], Any]) -> Any:
        """Wait for a response for a limited time; errors say of which URL they are."""
        try:
            return await Deferred.fromCoroutine(send()).addTimeout(seconds, self._reactor)
        except (HTTPClientError, CancelledError):
            raise
        except TimeoutError:
            raise HTTPClientError(f"{self._url} does not answer in {seconds:g} s") from None
        except Exception as error:
            # Connections, names, certificates, files and HTTP each have errors of their own, and
            # with any of them there is no response.
            isLost = isinstance(error, ConnectionLostError)
            reason = str(error) if isLost else describeError(error)
            raise HTTPClientError(f"{self._url}: {reason}") from error


@implementer(IResolutionReceiver)
class _AllowedAddresses:
    """Passes on the addresses that may be connected to."""

    def __init__(self, receiver: Any, allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self._receiver = receiver
        self.resolutionBegan = receiver.resolutionBegan
        self.resolutionComplete = receiver.resolutionComplete

    def addressResolved(self, address: IAddress) -> None:
        """Pass an address on if it is allowed."""
        host: Any = getattr(address, "host", None)
        if host is not None and self._allows(host):
            self._receiver.addressResolved(address)


@implementer(IReactorPluggableNameResolver, IHostnameResolver)
class _GuardedReactor:
    """
    A reactor that resolves names to allowed addresses only: those that are checked are connected
    to, for no name is resolved twice.
    """

    def __init__(self, reactor: Any, allows: Callable[[str], bool]) -> None:
        self._reactor = reactor
        self._allows = allows
        self.nameResolver = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Refuse: the resolver is the reactor's own."""
        raise NotImplementedError

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, *arguments: Any, **more: Any
    ) -> IHostResolution:
        """Resolve a name."""
        receiver = _AllowedAddresses(resolutionReceiver, self._allows)
        resolution: IHostResolution = self._reactor.nameResolver.resolveHostName(
            receiver, *arguments, **more
        )
        return resolution
