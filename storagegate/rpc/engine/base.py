"""The common state of a client's calls on grpc core and in memory, and limits of both."""

from twisted.internet.defer import Deferred, succeed

from storagegate.core.streams import SharedFuture
from storagegate.rpc.interfaces import CallOptions, Metadata

OUTGOING_MESSAGES = 16
OUTGOING_BYTES = 64 * 1024
"""
Messages and bytes that may wait in a server's call before its producer must wait. grpcio itself
holds as much again, plus the client's window. The producer resumes when half is sent: waking it for
each message would cost a third of the time of a stream of small messages.
"""

QUEUE_BYTES = 64 * 1024
"""
Bytes that may wait in a client's call before its producer must wait: the initial window of HTTP/2,
so that the connection never runs dry and a stalled server costs no more memory than this.
"""

MESSAGE_COST = 64
"""The fixed cost in bytes of a waiting client message, so that empty messages also count."""


class ClientCallBase:
    """The end of a client's call, and its messages that wait to be sent."""

    def __init__(self) -> None:
        # Bytes that wait to be sent, including the message in flight.
        self._held = 0
        self._metadata: SharedFuture[Metadata] = SharedFuture()
        self._end: SharedFuture[tuple[int, str, Metadata]] = SharedFuture()
        # Replaced each time that producers resume.
        self._drained: SharedFuture[None] = SharedFuture()

    def _hold(self, size: int) -> bool:
        """Count waiting bytes, or sent ones if negative; return whether more may follow."""
        self._held += size
        hasCapacity = self._held < QUEUE_BYTES
        if size <= 0 and hasCapacity:
            drained, self._drained = self._drained, SharedFuture()
            drained.set(None)
        return hasCapacity

    def _ended(self, status: int, message: str, trailers: Metadata) -> None:
        self._metadata.set(())
        self._end.set((status, message, trailers))
        self._drained.set(None)

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent, or the call has ended."""
        if self._held < QUEUE_BYTES or self._end.isKnown:
            return succeed(None)
        return self._drained.wait()

    def begun(self) -> Deferred[Metadata]:
        """Wait for the initial metadata."""
        return self._metadata.wait()

    def ended(self) -> Deferred[tuple[int, str, Metadata]]:
        """Wait for the status, its message and the trailers."""
        return self._end.wait()


_COMPRESSION_KEY = "grpc-internal-encoding-request"
"""The metadata by which grpc core learns the compression of a call; it is not sent."""


def callMetadata(options: CallOptions) -> Metadata:
    """Return the metadata of a client's call for grpc core, with the call's compression."""
    if options.compression is None:
        return options.metadata
    return (*options.metadata, (_COMPRESSION_KEY, options.compression))
