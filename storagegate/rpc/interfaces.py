"""
The seam between the gRPC room and whatever speaks gRPC on the wire.

Above it are calls, messages as bytes, and statuses; below it an engine. Nothing above it knows
which engine that is, and every method on both sides runs in the reactor thread.

A call in the life of a server::

    engine: accept(call)
    above:  call.read(got) ... got(b"message") or got(None) at the end of the client's stream
    above:  call.send(b"message") ... call.finish(0), or call.reply(b"message") for both at once
    engine: the function given to call.watch, if the call ends before it was finished
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import define, frozen
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

Metadata = Sequence[tuple[str, str | bytes]]
"""Entries in their order; the values of names that end in C{-bin} are bytes."""


class MessageByteCounter(Protocol):
    """
    What a server counts of messages: their bytes as they are before they are compressed.

    @ivar bytesIn: Those of requests.
    @ivar bytesOut: Those of responses.
    """

    bytesIn: int
    bytesOut: int


@define
class NullByteCounter:
    """What is counted with where nobody looks."""

    bytesIn: int = 0
    bytesOut: int = 0


class IServerCall(Interface):
    """One call that a client has made."""

    path: str = Attribute("The whole name of the method, C{/package.Service/Method}.")
    metadata: Metadata = Attribute("What the client sent with it, names in lower case.")
    deadline: float | None = Attribute("When the client gives up, in seconds since 1970.")
    isOver: bool = Attribute("Whether it was finished, or the client is gone.")
    isRefused: bool = Attribute(
        "Whether the engine takes no more messages of it, and has told the client why: such as one "
        "that is too long."
    )

    def peer() -> str:
        """Give the client's address, C{ipv4:127.0.0.1:5000}, C{ipv6:[::1]:5000} or C{unix:path}."""

    def authContext() -> dict[str, list[bytes]]:
        """Give what TLS knows of the client: the entries of its certificate; else nothing."""

    def read(got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """
        Ask for the client's next message; never twice at a time.

        @param got: Called with it, or with C{None} where there is none any more. It may be called
            before this returns. Not called once the client is gone.
        @param ahead: How many messages after it may be fetched before they are asked for.
        """

    def watch(cancelled: Callable[[], object]) -> None:
        """Have a function called if the call ends before it is finished: at most once."""

    def sendMetadata(metadata: Metadata) -> None:
        """Send the initial metadata now; without this they go with the first message."""

    def prepareMetadata(metadata: Metadata) -> None:
        """Have initial metadata sent with whatever is sent first."""

    def send(message: bytes, compress: bool = True) -> bool:
        """
        Send a message.

        @param compress: Whether it may be compressed, if the call is.
        @return: Whether there is room for another one; if not, wait for L{drained}.
        """

    def drained() -> Deferred[None]:
        """Wait until there is room for a message. Fires too when the call ends."""

    def reply(message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish with C{OK}."""

    def finish(status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent. Does nothing if it is over."""

    def whenClosed(told: Callable[[bool], object]) -> None:
        """
        Have a function called when the call is gone, for one that is not watched and has not ended.

        @param told: Called with whether it was given up before it was finished.
        """


class IServerEngine(Interface):
    """What listens for calls."""

    def start(accept: Callable[[Any], object]) -> None:
        """Begin to accept calls, each given to a function as an L{IServerCall}."""

    def stop(graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept nothing more, let calls end, and cancel those that have not after the grace.

        @param settleSeconds: For so long before clients are told to go, and as long after it, no
            call is answered: whoever waits makes no call that crosses with this.
        @return: Fires when no call, port or thread is left.
        """

    def connections() -> int:
        """Count the connections that are there."""


@frozen
class UnaryResult:
    """
    How a unary call went.

    @ivar status: The status that it ended with.
    @ivar message: What the server said of it.
    @ivar response: The response's bytes, C{None} where none came.
    @ivar metadata: The initial metadata.
    @ivar trailers: The trailers.
    """

    status: int
    message: str
    response: bytes | None
    metadata: Metadata
    trailers: Metadata


class IClientCall(Interface):
    """One call to a server."""

    def send(message: bytes) -> bool:
        """
        Send a message.

        @return: Whether there is room for another one; if not, wait for L{drained}.
        """

    def drained() -> Deferred[None]:
        """Wait until there is room for a message. Fires too when the call ends."""

    def sendEnd() -> None:
        """Say that no message comes any more."""

    def read(got: Callable[[bytes | None], object]) -> None:
        """
        Ask for the server's next message; never twice at a time.

        @param got: Called with it, or with C{None} when the call has ended.
        """

    def begun() -> Deferred[Metadata]:
        """Wait for the initial metadata; empty if the call ended without."""

    def ended() -> Deferred[tuple[int, str, Metadata]]:
        """Wait for the end: the status, its message, and the trailers."""

    def cancel() -> None:
        """Give the call up."""


CANCELLED_MESSAGE = "Cancelled by the client"
"""What is said of a call that its maker has given up."""


class ClientClosedError(Exception):
    """The client was closed: no call can be made any more."""


class IClientEngine(Interface):
    """A connection to a server, made and made again as needed."""

    isClosed: bool = Attribute("Whether it was told to close, and makes no calls any more.")

    def call(
        path: str,
        metadata: Metadata,
        deadline: float | None,
        waitForReady: bool,
        request: bytes | None = None,
    ) -> Any:
        """
        Begin a call.

        @param deadline: When it is given up, in seconds since 1970.
        @param request: The only message, sent at once; C{None} where any number is sent later.
        @return: The L{IClientCall}.
        @raise ClientClosedError: If the engine is closed.
        """

    def exchange(
        path: str,
        metadata: Metadata,
        deadline: float | None,
        waitForReady: bool,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """
        Make a unary call: what L{call} can, with all of it told at once, at the end.

        @param done: Called with how it went, later and once.
        @return: What gives the call up.
        """

    def close() -> Deferred[None]:
        """Cancel what is under way and let go of the connection and the thread."""
