"""The client's end of a call, in memory: a fake of the engine's interface, with its limits."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.rpc.interfaces import IServerCall, Metadata

ROOM = 16
"""Limit of the messages that wait for the connection."""


@implementer(IServerCall)
class FakeServerCall:
    """
    A call whose client is the test.

    @ivar sent: The sent messages, with whether each may be compressed.
    @ivar begun: The initial metadata; C{None} until it is sent separately.
    @ivar prepared: The initial metadata to send with the first message.
    @ivar status: The status, its message and the trailers; C{None} until the end.
    @ivar isStalled: Whether the client reads nothing, so that sent messages wait.
    @ivar ahead: The number of messages to fetch ahead.
    @ivar isRefused: Whether the engine has refused a message.
    """

    countsBytes = False

    def __init__(
        self,
        path: str = "/test.Service/Method",
        metadata: Metadata = (),
        deadline: float | None = None,
        address: str = "ipv4:127.0.0.1:5000",
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.deadline = deadline
        self.isOver = self.isRefused = False
        self.isStalled = False
        self.sent: list[tuple[bytes, bool]] = []
        self.begun: Metadata | None = None
        self.prepared: list[tuple[str, str | bytes]] = []
        self.status: tuple[int, str, Metadata] | None = None
        self.isWatched = False
        self.ahead = 0
        self._address = address
        self._incoming: deque[bytes | None] = deque()
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._room: Deferred[None] | None = None
        self._told: Callable[[bool], object] | None = None

    # Client actions

    def arrive(self, *messages: bytes | None) -> None:
        """Receive messages from the client; C{None} is the end of its stream."""
        self._incoming.extend(messages)
        while self._got is not None and self._incoming:
            got, self._got = self._got, None
            got(self._incoming.popleft())

    def leave(self) -> None:
        """Cancel the call, like its client or its deadline."""
        wasOver, self.isOver = self.isOver, True
        self._got = None
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not wasOver:
            cancelled()
        self._makeRoom()

    def close(self, isCancelled: bool = False) -> None:
        """Close a finished call."""
        told, self._told = self._told, None
        if told is not None:
            told(isCancelled)

    def take(self) -> None:
        """Read all waiting messages."""
        self.isStalled = False
        self.sent.extend(self._waiting)
        self._waiting.clear()
        self._makeRoom()

    @property
    def messages(self) -> list[bytes]:
        """Return the sent messages."""
        return [message for message, _ in self.sent]

    @property
    def waiting(self) -> int:
        """Count the messages that wait for the wire."""
        return len(self._waiting)

    # IServerCall.

    def peer(self) -> str:
        """Return the client's address."""
        return self._address

    def authContext(self) -> dict[str, list[bytes]]:
        """Return an empty TLS context."""
        return {}

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Pass on the next message, now or when it arrives."""
        assert self._got is None, "a read is pending already"
        self.ahead = ahead
        if self._incoming:
            got(self._incoming.popleft())
        elif not self.isOver:
            self._got = got

    def takeMessage(self) -> bytes | None:
        """Return a message that has arrived."""
        if not self._incoming or self._incoming[0] is None:
            return None
        return self._incoming.popleft()

    def readEnd(self, done: Callable[[bool], object]) -> None:
        """Look for a further message; without one, the client has ended its messages."""
        done(not self._incoming or self._incoming.popleft() is None)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Record the callback."""
        self.isWatched = True
        self._cancelled = cancelled

    def sendMetadata(self, metadata: Metadata) -> None:
        """Record the initial metadata."""
        if self.begun is None and not self.isOver:
            self.begun = [*self.prepared, *metadata] if self.prepared else metadata

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Record the metadata to send with the first message."""
        self.prepared.extend(metadata)

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message, or queue it if the client is stalled."""
        if self.isOver:
            return False
        (self._waiting if self.isStalled else self.sent).append((message, compress))
        return len(self._waiting) < ROOM

    def drained(self) -> Deferred[None]:
        """Wait for room in the queue."""
        waiting: Deferred[None] = Deferred()
        if self.isOver or len(self._waiting) < ROOM:
            waiting.callback(None)
        else:
            self._room = waiting
        return waiting

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send a message and finish."""
        self.send(message, compress)
        self.finish(0, "", trailers)

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """Record the status."""
        if not self.isOver:
            assert self.status is None
            self.isOver = True
            self.status = (status, message, trailers)
            self._got = self._cancelled = None
            self._makeRoom()

    def whenClosed(self, told: Callable[[bool], object]) -> None:
        """Record the callback."""
        self._told = told

    def _makeRoom(self) -> None:
        room: Any = self._room
        self._room = None
        if room is not None and not room.called:
            room.callback(None)
