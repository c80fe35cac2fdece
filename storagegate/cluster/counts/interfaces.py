"""The interface of servers that keep the shared counts, and their error."""

from collections.abc import Awaitable

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.storage.node import BackgroundTask


class CountsUnavailable(Exception):
    """
    The server did not perform an operation.

    @ivar isUnknown: Whether it may have performed it.
    """

    statusCode = 503

    def __init__(self, reason: str, isUnknown: bool = False) -> None:
        super().__init__(reason)
        self.isUnknown = isUnknown


@frozen
class RecordedCall:
    """
    A UDP request that was received before.

    @ivar owner: The process that received it.
    @ivar size: Size of its datagram in bytes.
    @ivar reply: The reply; C{None} until it exists.
    @ivar isKnown: Whether the caller was authenticated.
    @ivar leftMs: Time until its expiry, in milliseconds.
    """

    owner: bytes
    size: int
    reply: bytes | None
    isKnown: bool
    leftMs: float


class ICountsServer(Interface):
    """
    Stores counts, sessions and replies under keys, which are digests.

    Each method is one atomic step, including the expiry by the server's clock, and raises
    L{CountsUnavailable} within the time limit of a request. Methods must run in the reactor thread.
    """

    failure = Attribute("The reason why the server is unusable; L{None} if it works.")

    def open() -> None:
        """Start to connect. May be called once."""

    def close() -> None:
        """Close the connection."""

    def expiry() -> BackgroundTask | None:
        """
        Make the task that removes expired entries, for one of the processes.

        @return: The task; C{None} if the server removes them itself.
        """

    def count(key: bytes, windowMs: float) -> Awaitable[tuple[int, float]]:
        """
        Increment a count; open a window if none is open.

        @return: The count, and the milliseconds until the window ends.
        """

    def takeBack(key: bytes) -> Awaitable[None]:
        """Decrement the count of an open window, unless it is 0."""

    def removeCount(key: bytes) -> Awaitable[None]:
        """End a window."""

    def findCount(key: bytes) -> Awaitable[tuple[int, float] | None]:
        """Return the result of L{count} without counting; C{None} if no window is open."""

    def findSession(key: bytes) -> Awaitable[tuple[bytes, bytes] | None]:
        """Return the content and the cookie of a session; C{None} if it does not exist."""

    def putSession(
        key: bytes, content: bytes, cookie: bytes, ms: float, mustExist: bool
    ) -> Awaitable[None]:
        """
        Store a session.

        @param ms: Time until its expiry, in milliseconds; above 0.
        @param mustExist: Whether to store it only if the session exists.
        """

    def touchSession(key: bytes, cookie: bytes, ms: float) -> Awaitable[None]:
        """
        Replace the cookie and the expiry of a session, if it exists.

        @param ms: Time until its expiry, in milliseconds; above 0.
        """

    def removeSession(key: bytes) -> Awaitable[None]:
        """Delete a session, if it exists."""

    def beginCall(
        key: bytes, owner: bytes, size: int, ms: float, isOwnNew: bool
    ) -> Awaitable[RecordedCall | None]:
        """
        Record a UDP request, unless it was received before.

        @param owner: The calling process, 16 bytes.
        @param size: Size of the datagram in bytes.
        @param ms: Time until the record expires, in milliseconds.
        @param isOwnNew: Whether to replace a record of this owner without a reply: a step that
            failed may still have been performed.
        @return: C{None} if the request was recorded, else the earlier record.
        """

    def endCall(key: bytes, owner: bytes, reply: bytes, isKnown: bool) -> Awaitable[None]:
        """Store the reply to a request, if it is recorded for this owner and has no reply."""
