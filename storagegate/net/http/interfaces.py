"""Interfaces between the parts of the HTTP server, the limits of a listener, and errors."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from zope.interface import Attribute, Interface

from storagegate.core.context import REQUEST_SECONDS


class IRequestChannel(Interface):
    """The connection of a request and its response."""

    owner: Any = Attribute("The L{IChannelOwner}.")
    transport: Any = Attribute("The transport of the connection; C{None} after it was handed over.")
    connection: Any = Attribute(
        "The L{ChannelTransport<storagegate.net.http.channel.ChannelTransport>}, or the connection "
        "of HTTP/2 with the same attributes of the client."
    )
    isPaused: bool = Attribute("Whether the client reads more slowly than the response is written.")

    def respond(code: int, head: bytes, body: bytes, closes: bool) -> None:
        """
        Send a whole response in one write, and continue with the next request.

        @param code: The status.
        @param head: The head without Connection and the final empty line.
        @param body: All bytes that follow the head.
        @param closes: Whether the connection has to close after the response.
        """

    def begin(code: int, head: bytes, closes: bool) -> None:
        """Send the head of a response; for the parameters, see L{respond}."""

    def interim(head: bytes) -> None:
        """
        Send an interim response.

        @param head: The head without the final empty line.
        """

    def write(data: bytes) -> None:
        """
        Send a part of a response.

        @param data: Bytes in the framing of the body, chunked or not.
        """

    def writeSequence(pieces: Sequence[bytes]) -> None:
        """Send several pieces of a response; see L{write}."""

    def writeBuffer(view: memoryview) -> None:
        """Send a part of a response from a buffer that the caller writes to again."""

    def finish(data: bytes) -> None:
        """
        Send the last bytes of a response, and continue with the next request.

        @param data: As in L{write}; empty if everything has been sent.
        """

    def pauseBody() -> None:
        """Stop receiving the request body: its reader has fallen behind."""

    def resumeBody() -> None:
        """Receive more of the request body: its reader waits, and nothing is buffered."""

    def holdBody(body: Any, size: int) -> None:
        """
        Account for bytes of the request's body that its reader keeps, until the request ends.

        @param body: An L{ArrivingBody<storagegate.net.http.parser.ArrivingBody>}.
        @param size: The number of bytes, or 0.
        """

    def takeTransport() -> tuple[Any, bytes]:
        """
        Hand over the connection to another protocol. This ends the request.

        @return: The transport, and the bytes received after the request.
        """

    def abort() -> None:
        """Drop the connection."""


class IWebResponse(Interface):
    """Receives the response of a stock Twisted resource."""

    def respond(code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """
        Send a whole response.

        @param code: The status.
        @param headers: Names and values, in order.
        """

    def begin(
        code: int, headers: Sequence[tuple[bytes, bytes]], length: int | None, phrase: bytes = b""
    ) -> None:
        """
        Send the head of a response.

        @param code: The status.
        @param headers: Names and values, in order.
        @param length: The length of the body in bytes; C{None} if unknown.
        @param phrase: A reason phrase; if empty, the registered one is sent.
        """

    def send(chunk: bytes) -> Any:
        """
        Send a part of the body.

        @param chunk: The next bytes of the body, without chunked framing.
        @return: A Deferred if nothing should be sent until it fires.
        """

    def finish() -> None:
        """End the response."""


class INativeResource(Interface):
    """A leaf resource that handles requests of the channel."""

    def answer(request: Any) -> None:
        """
        Respond to a request, now or later, exactly once.

        @param request: A L{ChannelRequest<storagegate.net.http.message.ChannelRequest>}.
        """

    def render(request: Any) -> int:
        """Respond to a channel request, or to the C{twisted.web} request that represents it."""


class IChannelOwner(Interface):
    """The site of a channel."""

    limits: Any = Attribute("The L{HTTPLimits<storagegate.net.http.interfaces.HTTPLimits>}.")
    reactor: Any = Attribute("An C{IReactorTime}.")
    budget: Any = Attribute(
        "The L{HeldBytes<storagegate.core.heldbytes.HeldBytes>} that count bodies that are read "
        "whole."
    )
    scheduler: Any = Attribute(
        "The L{InputScheduler<storagegate.net.scheduling.InputScheduler>} of its channels."
    )
    now: float = Attribute("The time of C{reactor}, up to a second old.")
    draining: bool = Attribute("Whether every connection should close as soon as it can.")
    isCrowded: bool = Attribute("Whether more than half of the possible connections are open.")
    requests: int = Attribute("Number of requests in flight; the channels count them.")
    shares: Any = Attribute("The L{AddressShares<storagegate.core.shares.AddressShares>}.")
    trust: Any = Attribute(
        "Decides which proxies are trusted to name the client; C{None} for none."
    )
    openCall: Any = Attribute(
        "Makes the stream of a call of gRPC from the connection of HTTP/2, the number and the "
        "fields of the head; returns C{None} for other requests. C{None} where the listener has no "
        "calls."
    )
    servesWebSockets: bool = Attribute("Whether clients of HTTP/2 may ask for WebSockets.")
    http2Errors: dict[str, int] = Attribute(
        "The number of errors of HTTP/2 clients by the name of their code; the connections count "
        "them."
    )

    def requestShare(request: Any, share: Any) -> Any:
        """
        Return the share of the client that a trusted proxy names.

        @param request: A request from the connection.
        @param share: The share of the connection's own address, for a request that names no client.
        """

    def channelOpened(channel: Any) -> bool:
        """
        Count a new connection.

        @param channel: The L{IRequestChannel} of the connection.
        @return: Whether it may stay.
        """

    def channelClosed(channel: Any) -> None:
        """Forget a connection."""

    def channelReplaced(channel: Any, successor: Any) -> None:
        """
        Let another protocol continue a connection.

        @param channel: The channel that has counted it.
        @param successor: The protocol that is closed, drained and checked in its place.
        """

    def pieceSize() -> int:
        """Return how many bytes of a large body or a file are handled at once."""

    def bodyWindow() -> int:
        """Return how many bytes of a large body a client of HTTP/2 may send ahead of its reader."""

    def rejection(error: Any) -> bytes:
        """
        Encode the whole response to a request that breaks the protocol.

        @param error: A L{BadRequest<storagegate.net.http.interfaces.BadRequest>}.
        """

    def requestReceived(request: Any, share: Any) -> None:
        """
        Handle a request whose head is complete. Must not raise.

        @param request: A L{ChannelRequest<storagegate.net.http.message.ChannelRequest>}, whose body
            may follow; likewise in the methods below.
        @param share: The L{AddressShare<storagegate.core.shares.AddressShare>} to count it in.
        """

    def webRequest(request: Any) -> Any:
        """Make the stock Twisted request that represents C{request}."""

    def serveMounted(request: Any, resource: Any, prefix: int, reply: IWebResponse) -> None:
        """
        Let a stock Twisted resource respond.

        @param resource: An C{IResource} of Twisted.
        @param prefix: The number of path segments that it is mounted at.
        @param reply: Receives the response.
        """


MAX_STREAMS = 1024
"""The maximum of L{HTTPLimits.http2MaxStreams}: a listener has no more requests in flight."""


class HTTPLimits(Struct, frozen=True, kw_only=True):
    """
    The limits of a listener. Sizes are bytes, times are seconds.

    Timeouts are checked once a second, so each may take up to a second longer.

    @ivar headSize: Request line and header fields together. Presigned URLs and S3 metadata are far
        smaller.
    @ivar headFields: Header fields of a request; browsers send about twenty.
    @ivar pathSize: Only the path: the longest S3 key, percent-encoded, needs 3 KiB.
    @ivar trailerSize: The fields after a chunked body.
    @ivar headersTimeout: From the first byte of a request to the end of its head. Trickling does
        not extend it.
    @ivar requestTimeout: Timeout of a request without progress of its body or response.
    @ivar progressSize: The number of bytes of a body or its trailers that counts as progress, so
        that a client cannot hold a connection with a byte a minute; likewise of a response over
        HTTP/2, whose client grants the bytes.
    @ivar bodyTimeout: Timeout of a body whose reader waits for all of it.
    @ivar keepAlive: Whether a connection may serve more than one request.
    @ivar http2: Whether clients may speak HTTP/2.
    @ivar http2MaxStreams: Open streams of a connection of HTTP/2. Browsers and proxies expect about
        100.
    @ivar keepAliveTimeout: Idle timeout of a connection between requests.
    @ivar http2KeepAliveTimeout: The same over HTTP/2, whose clients keep one connection for all
        requests; browsers and proxies keep it for some minutes. While more than half of
        C{maxConnections} are open, and before the first request, an idle connection has no longer
        than C{keepAliveTimeout} and C{headersTimeout}.
    @ivar pipelinedRequests: The number of waiting requests, in addition to the one in flight, at
        which reading pauses.
    @ivar bodyBuffer: Bytes of a body buffered for a handler that is not reading.
    @ivar bodyReadSize: Maximum number of bytes of one read while a large body arrives over
        HTTP/1.1. One turn of the reactor hashes them: with 256 KiB an upload is not faster, and
        other requests wait for twice as long.
    @ivar pieceSize: Maximum number of bytes of a file that are sent at once, and of a read for each
        large body of a connection of HTTP/2, which may handle a read in several turns.
    @ivar pieces: Maximum total of one piece for each request in flight; a piece is never smaller
        than C{bodyBuffer}.
    @ivar bodyWindow: Maximum number of bytes of a large body that a client of HTTP/2 may send ahead
        of its reader, as the buffers of the kernel hold with HTTP/1.1: with less, a client 50 ms
        away sends 5 MB a second.
    @ivar bodyWindows: Maximum total of one such window for each request in flight; a window is
        never smaller than C{bodyBuffer}.
    @ivar drainedBody: Bytes read of an unwanted body, so that the client receives the response.
    @ivar lingerTimeout: Time for the client to close after the server has closed.
    @ivar webBodySize: The body of a request for a stock Twisted resource, which is buffered in
        memory before the resource is called.
    @ivar maxConnections: Open connections; one costs about 10 KiB.
    @ivar maxRequests: Requests in flight; further ones get a 503. One address may use three
        quarters of both limits; see L{shareOf<storagegate.core.shares.shareOf>}.
    """

    headSize: int = 16 * 1024
    headFields: int = 100
    pathSize: int = 8 * 1024
    trailerSize: int = 8 * 1024
    headersTimeout: float = 60.0
    requestTimeout: float = 300.0
    progressSize: int = 4 * 1024
    bodyTimeout: float = REQUEST_SECONDS
    keepAlive: bool = True
    http2: bool = True
    http2MaxStreams: int = 100
    keepAliveTimeout: float = 5.0
    http2KeepAliveTimeout: float = 300.0
    pipelinedRequests: int = 16
    bodyBuffer: int = 64 * 1024
    bodyReadSize: int = 96 * 1024
    pieceSize: int = 256 * 1024
    pieces: int = 4 * 1024 * 1024
    bodyWindow: int = 1024 * 1024
    bodyWindows: int = 16 * 1024 * 1024
    drainedBody: int = 64 * 1024
    lingerTimeout: float = 2.0
    webBodySize: int = 10 * 1024 * 1024
    maxConnections: int = 4096
    maxRequests: int = 1024


class BadRequest(Exception):
    """
    The client broke the protocol; it gets one response, and the connection closes.

    @ivar code: The status of the response.
    @ivar text: One line that describes the problem, without the client's input.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class BodyTooLarge(Exception):
    """
    The body is longer than its reader accepts.

    @ivar limit: The limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is over {limit} bytes")
        self.limit = limit


class BodyLost(Exception):
    """The client disconnected before the end of its body."""


class IncompleteBody(BodyLost):
    """The body ended early or broke its framing. The client has received its response."""


class ClientLost(Exception):
    """The client disconnected before the end of its response."""
