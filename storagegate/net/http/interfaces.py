"""
What the parts of the HTTP server ask of each other.

The limits of one HTTP listener.

What goes wrong between a client and the HTTP channel.
"""

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from zope.interface import Attribute, Interface


class IBodySource(Interface):
    """Where the bytes of a body come from."""

    def bodyWanted() -> None:
        """Let more bytes come: the reader waits, and holds none."""

    def bodyFull() -> None:
        """Let no more bytes come: the reader is behind."""


class IRequestChannel(IBodySource):
    """The connection that a request came on and its response goes out on."""

    owner: Any = Attribute("The L{IChannelOwner}.")
    transport: Any = Attribute("The connection's transport, C{None} once somebody took it.")
    wire: Any = Attribute("The L{ChannelTransport<storagegate.net.http.channel.ChannelTransport>}.")
    wireFull: bool = Attribute("Whether writing should wait for C{wireResumed}.")

    def write(data: bytes) -> None:
        """Send bytes."""

    def writeSequence(pieces: Sequence[bytes]) -> None:
        """Send bytes."""

    def beginResponse(code: int) -> bool:
        """
        Get ready for the head of a response.

        @return: Whether the connection has to close after it.
        """

    def requestDone() -> None:
        """Go on to the next request, or close: the response is complete."""

    def takeTransport() -> tuple[Any, bytes]:
        """
        Let go of the connection.

        @return: The transport, and the bytes that came after the request.
        """

    def abort() -> None:
        """Drop the connection."""


class IWebResponse(Interface):
    """What takes the response of a stock Twisted resource."""

    def respond(code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a whole response."""

    def begin(
        code: int, headers: Sequence[tuple[bytes, bytes]], length: int | None, phrase: bytes = b""
    ) -> None:
        """Send the head of a response."""

    def send(chunk: bytes) -> Any:
        """Send a part of the body."""

    def finish() -> None:
        """End the response."""


class IChannelOwner(Interface):
    """What a channel belongs to."""

    limits: Any = Attribute("The L{HTTPLimits<storagegate.net.http.interfaces.HTTPLimits>}.")
    reactor: Any = Attribute("An C{IReactorTime}.")
    now: float = Attribute("The time of C{reactor}, up to a second old.")
    draining: bool = Attribute("Whether every connection should close when it can.")

    def channelOpened(channel: Any) -> bool:
        """
        Count a new connection.

        @return: Whether it may stay.
        """

    def channelClosed(channel: Any) -> None:
        """Forget a connection."""

    def bodyReadSize() -> int:
        """Say how many bytes of a large body one read may bring now."""

    def rejection(error: Any) -> bytes:
        """
        Write the whole response to what is no request.

        @param error: A L{BadRequest<storagegate.net.http.interfaces.BadRequest>}.
        """

    def requestReceived(request: Any) -> None:
        """Answer a request whose head is complete. Raises nothing."""

    def requestDone() -> None:
        """Count a request that has ended, however it did."""

    def webRequest(request: Any) -> Any:
        """Make the stock Twisted request that stands for C{request}."""

    def serveMounted(request: Any, resource: Any, prefix: int, reply: IWebResponse) -> None:
        """
        Let a stock Twisted resource answer.

        @param prefix: At how many segments of the path it is mounted.
        @param reply: Takes its response.
        """


@frozen(kw_only=True)
class HTTPLimits:
    """
    How much of everything a listener takes. Sizes are bytes, times are seconds.

    Times are looked at once a second, so each may last up to a second longer.

    @ivar headSize: Request line and header fields together. Presigned URLs and the metadata of S3
        stay far below.
    @ivar headFields: Header fields of a request; browsers send about twenty.
    @ivar pathSize: The path alone: the longest S3 key, percent-encoded, needs 3 KiB.
    @ivar trailerSize: The fields after a chunked body.
    @ivar headersTimeout: From the first byte of a request to the end of its head. Trickling does
        not extend it.
    @ivar requestTimeout: How long a request may go without progress of its body or its response.
    @ivar progressSize: Fewer bytes than this of a body of known length are no progress, so that
        nobody holds a connection with a byte a minute.
    @ivar keepAlive: Whether a connection may have more than one request.
    @ivar keepAliveTimeout: How long a connection may idle between requests.
    @ivar pipelinedRequests: How many requests may wait behind the one that is being answered
        before reading pauses; also how many are served before other connections get their turn.
    @ivar bodyBuffer: How much of a body is held for a handler that is not reading.
    @ivar bodyReadSize: How much one read takes while a large body is coming.
    @ivar bodyReads: What one read of each request under way may take together; a read is never
        smaller than C{bodyBuffer}.
    @ivar drainedBody: How much of a body that nobody wants is read, so that the client gets to
        see the answer.
    @ivar lingerTimeout: How long a connection that we have closed may take to go away.
    @ivar foreignBodySize: The body of a request for a stock Twisted resource, which is held in
        memory before the resource sees it.
    @ivar maxConnections: Open connections; one costs about 10 KiB.
    @ivar maxRequests: Requests that are being answered at one time. More get a 503.
    """

    headSize: int = 16 * 1024
    headFields: int = 100
    pathSize: int = 8 * 1024
    trailerSize: int = 8 * 1024
    headersTimeout: float = 60.0
    requestTimeout: float = 300.0
    progressSize: int = 4 * 1024
    keepAlive: bool = True
    keepAliveTimeout: float = 5.0
    pipelinedRequests: int = 16
    bodyBuffer: int = 64 * 1024
    bodyReadSize: int = 256 * 1024
    bodyReads: int = 4 * 1024 * 1024
    drainedBody: int = 64 * 1024
    lingerTimeout: float = 2.0
    foreignBodySize: int = 10 * 1024 * 1024
    maxConnections: int = 4096
    maxRequests: int = 1024


class BadRequest(Exception):
    """
    The client broke the protocol: it gets one answer and the connection is closed.

    @ivar code: The status of the answer.
    @ivar text: One line that says what was wrong, without repeating what the client sent.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class BodyTooLarge(Exception):
    """
    The body is longer than its reader takes.

    @ivar limit: How many bytes the reader takes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is over {limit} bytes")
        self.limit = limit


class BodyLost(Exception):
    """The client went away in the middle of its body."""


class IncompleteBody(BodyLost):
    """The body ended before its end or broke its framing. The client has had its answer."""


class ClientLost(Exception):
    """The client went away in the middle of its response."""
