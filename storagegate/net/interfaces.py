"""What the parts of the HTTP server ask of each other."""

from collections.abc import Sequence
from typing import Any

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
    wire: Any = Attribute("The L{HTTPWire<storagegate.net.httpwire.HTTPWire>}.")
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


class IForeignReply(Interface):
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

    limits: Any = Attribute("The L{HTTPLimits<storagegate.net.httplimits.HTTPLimits>}.")
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

        @param error: A L{BadRequest<storagegate.net.httperrors.BadRequest>}.
        """

    def requestReceived(request: Any) -> None:
        """Answer a request whose head is complete. Raises nothing."""

    def requestDone() -> None:
        """Count a request that has ended, however it did."""

    def webRequest(request: Any) -> Any:
        """Make the stock Twisted request that stands for C{request}."""

    def serveMounted(request: Any, resource: Any, prefix: int, reply: IForeignReply) -> None:
        """
        Let a stock Twisted resource answer.

        @param prefix: At how many segments of the path it is mounted.
        @param reply: Takes its response.
        """
