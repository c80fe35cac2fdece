"""
The interfaces between gRPC applications or clients and the engines that carry their calls.

The upper side deals in calls, messages as bytes, and statuses; the lower side is an engine. The
upper side does not know which engine it uses. Every method on both sides runs in the reactor
thread.

A call of a server::

    engine: accept(call)
    above:  call.read(got) ... got(b"message") or got(None) at the end of the client's stream
    above:  call.send(b"message") ... call.finish(0), or call.reply(b"message") for both
    engine: the function given to call.watch, if the call ends before it was finished
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import define, frozen
from msgspec import Struct
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.net.tls import ServerTLSOptions

Metadata = Sequence[tuple[str, str | bytes]]
"""Entries in order; values of names that end in C{-bin} are bytes."""

COUNTED_BYTES = 32 * 1024
"""From this size on, the bytes that a call holds count in the budget of the process."""


class MessageByteCounter(Protocol):
    """
    Counts the bytes of a server's messages, before compression.

    @ivar bytesIn: The bytes of requests.
    @ivar bytesOut: The bytes of responses.
    """

    bytesIn: int
    bytesOut: int


@define
class NullByteCounter:
    """A counter that is never read."""

    bytesIn: int = 0
    bytesOut: int = 0


class IServerCall(Interface):
    """One call that a client has made."""

    path: str = Attribute("The full name of the method, C{/package.Service/Method}.")
    metadata: Metadata = Attribute("The client's metadata, names in lower case.")
    deadline: float | None = Attribute(
        "The time at which the client gives up, in seconds since 1970."
    )
    isOver: bool = Attribute("Whether the call has finished, or the client has left.")
    isRefused: bool = Attribute(
        "Whether the engine accepts no more messages and has sent the status, as for a message "
        "over the limit."
    )

    countsBytes: bool = Attribute(
        "Whether the engine counts the bytes of the incomplete message in the process's budget; "
        "otherwise they are estimated."
    )

    def peer() -> str:
        """Return the client's address: C{ipv4:127.0.0.1:5000}, C{ipv6:[::1]:5000}, C{unix:path}."""

    def authContext() -> dict[str, list[bytes]]:
        """Return the entries of the client's TLS certificate; empty without one."""

    def read(got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """
        Request the client's next message; only one request may be outstanding.

        @param got: Called with the message, or with C{None} at the end of the stream, perhaps
            before this returns. Not called once the client has disconnected.
        @param ahead: How many further messages may be fetched before they are requested.
        """

    def takeMessage() -> bytes | None:
        """
        Return a message that has arrived, without a request for it.

        @return: C{None} if none has arrived yet, or none follows: L{read} tells which. Not while a
            request is outstanding.
        """

    def readEnd(done: Callable[[bool], object]) -> None:
        """
        Wait for the end of the client's messages, which follows the one that was read.

        @param done: Called with whether no message came before the end, perhaps before this
            returns. May be called, with C{True}, once the client has disconnected.
        """

    def watch(cancelled: Callable[[], object]) -> None:
        """
        Register a function to be called if the call ends before it is finished.

        @param cancelled: Called at most once.
        """

    def sendMetadata(metadata: Metadata) -> None:
        """
        Send the initial metadata now; without this they are sent with the first message.

        @param metadata: Added to the metadata of L{prepareMetadata}.
        """

    def prepareMetadata(metadata: Metadata) -> None:
        """
        Add initial metadata that is sent with the first operation.

        @param metadata: Added to the metadata of earlier calls of this method.
        """

    def send(message: bytes, compress: bool = True) -> bool:
        """
        Send a message.

        @param message: The encoded message, without gRPC's frame.
        @param compress: Whether the message may be compressed, if the call is.
        @return: Whether another message may follow; if not, wait for L{drained}.
        """

    def drained() -> Deferred[None]:
        """Wait until another message may be sent. Also fires when the call ends."""

    def reply(message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """
        Send the only message and finish with C{OK}.

        @param message: See L{send}.
        @param trailers: Sent with the status.
        @param compress: See L{send}.
        """

    def finish(status: int, message: str = "", trailers: Metadata = ()) -> None:
        """
        End the call, after the messages that were sent. Does nothing if the call has ended.

        @param status: The number of the status, 0 for C{OK}.
        @param message: The text of the status, C{grpc-message}.
        @param trailers: Sent with the status.
        """

    def whenClosed(closed: Callable[[bool], object]) -> None:
        """
        Register a function to be called at the end of a call that is not watched.

        @param closed: Called with whether the call was cancelled before it was finished.
        """


class IServerEngine(Interface):
    """A server that accepts calls."""

    certificates: Any = Attribute(
        "The L{CertificateFiles<storagegate.net.tls.CertificateFiles>} in use; C{None} without TLS."
    )

    def bind(address: str, tls: ServerTLSOptions | None = None) -> int:
        """
        Open a port, which accepts calls from L{start} on.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param tls: C{None} for plain text.
        @return: The port.
        @raise CannotListenError: If the address is taken or invalid.
        @raise OptionError: If a file of C{tls} cannot be used.
        """

    def discard() -> None:
        """Release everything if L{start} was never called. Does not wait for the network."""

    def start(accept: Callable[[Any], object]) -> None:
        """
        Start accepting calls.

        @param accept: Called with each call, an L{IServerCall}.
        """

    def stop(graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept nothing more, let calls end, and cancel the remaining calls after the grace.

        @param graceSeconds: How long calls in flight may take once no more are accepted. A second
            stop may shorten it.
        @param settleSeconds: How long calls are still accepted. An engine that cancels calls which
            arrive while it stops holds responses for this time, and again after it stopped
            accepting calls: clients that wait for a response make no call.
        @return: Fires when no call, port or thread is left.
        """

    def connections() -> int:
        """Count the open connections."""


@frozen
class CallOptions:
    """
    The options of a client's call.

    @ivar metadata: The initial metadata.
    @ivar deadline: The deadline in seconds since 1970; C{None} for none.
    @ivar waitForReady: Whether to wait for a connection instead of failing without one.
    @ivar compression: The algorithm of requests, C{"gzip"}, C{"deflate"} or C{"identity"}; C{None}
        for the client's.
    """

    metadata: Metadata = ()
    deadline: float | None = None
    waitForReady: bool = False
    compression: str | None = None


class UnaryResult(Struct, frozen=True):
    """
    The result of a unary call.

    @ivar status: The number of the status.
    @ivar message: The server's text for the status.
    @ivar response: The bytes of the response; C{None} without a response.
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

        @param message: The encoded message, without gRPC's frame.
        @return: Whether another message may follow; if not, wait for L{drained}.
        """

    def drained() -> Deferred[None]:
        """Wait until another message may be sent. Also fires when the call ends."""

    def sendEnd() -> None:
        """Send the end of the messages."""

    def read(got: Callable[[bytes | None], object]) -> None:
        """
        Request the server's next message; only one request may be outstanding.

        @param got: Called with the message, or with C{None} when the call has ended.
        """

    def begun() -> Deferred[Metadata]:
        """Wait for the initial metadata; empty if the call ended without any."""

    def ended() -> Deferred[tuple[int, str, Metadata]]:
        """
        Wait for the end: the status, its message, and the trailers. A status that the server has
        sent comes after the messages before it have been read.
        """

    def cancel() -> None:
        """Cancel the call."""


CANCELLED_MESSAGE = "Cancelled by the client"
"""The status message of a call that its client has cancelled."""


class ClientClosedError(Exception):
    """The client was closed and makes no more calls."""


class IClientEngine(Interface):
    """A channel to a server, which connects and reconnects as needed."""

    isClosed: bool = Attribute("Whether the client is closed and makes no more calls.")
    counted: set[str] = Attribute("The paths of unary methods that gave exactly one response.")

    def call(path: str, options: CallOptions, request: bytes | None = None) -> Any:
        """
        Begin a call.

        @param path: The full name of the method, C{/package.Service/Method}.
        @param request: The only message, sent with the call; C{None} for any number sent later.
        @return: The L{IClientCall}.
        @raise ClientClosedError: If the engine is closed.
        """

    def exchange(
        path: str, options: CallOptions, request: bytes, done: Callable[[UnaryResult], object]
    ) -> Callable[[], None]:
        """
        Make a unary call of a method in C{counted}: a second response need not be noticed.

        @param path: See L{call}.
        @param request: The only message.
        @param done: Called once with the result, never before this returns.
        @return: A function that cancels the call.
        @raise ClientClosedError: If the engine is closed.
        """

    def close() -> Deferred[None]:
        """Cancel the calls in flight; release the connection and the thread."""
