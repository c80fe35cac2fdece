"""The servers that keep what the nodes count together, and their error."""

from collections.abc import Awaitable

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.storage.node import BackgroundTask


class CountsUnavailable(Exception):
    """
    The server did not do what it was to do.

    @ivar isUnknown: Whether it may have done it.
    """

    statusCode = 503

    def __init__(self, reason: str, isUnknown: bool = False) -> None:
        super().__init__(reason)
        self.isUnknown = isUnknown


@frozen
class RecordedCall:
    """
    A request over UDP that came before.

    @ivar owner: The process to which it came.
    @ivar size: Bytes of its datagram.
    @ivar reply: The reply; C{None} while there is none.
    @ivar isKnown: Whether the caller was authenticated.
    @ivar leftMs: When it expires, in milliseconds from now.
    """

    owner: bytes
    size: int
    reply: bytes | None
    isKnown: bool
    leftMs: float


class ICountsServer(Interface):
    """
    Counts, sessions and replies by their keys, which are digests.

    Each method is one atomic step that includes the expiry, by the clock of the server, and raises
    L{CountsUnavailable} within the time that a request may take. Methods: reactor thread.
    """

    failure = Attribute("Why the server cannot be used; L{None} if it can.")

    def open() -> None:
        """Begin to connect. Once."""

    def close() -> None:
        """Close the connection."""

    def expiry() -> BackgroundTask | None:
        """
        Make the task that removes what has expired, for one of the processes.

        @return: C{None} if the server does that by itself.
        """

    def count(key: bytes, windowMs: float) -> Awaitable[tuple[int, float]]:
        """
        Add one; begin a window if none is open.

        @return: The count, and the milliseconds until the window ends.
        """

    def takeBack(key: bytes) -> Awaitable[None]:
        """Subtract one from the count of an open window, if there is one to subtract from."""

    def removeCount(key: bytes) -> Awaitable[None]:
        """End a window."""

    def findCount(key: bytes) -> Awaitable[tuple[int, float] | None]:
        """Return what L{count} returns without counting; C{None} if no window is open."""

    def findSession(key: bytes) -> Awaitable[tuple[bytes, bytes] | None]:
        """Return content and cookie of a session; C{None} if there is none."""

    def putSession(
        key: bytes, content: bytes, cookie: bytes, ms: float, mustExist: bool
    ) -> Awaitable[None]:
        """
        Store a session.

        @param ms: When it expires, in milliseconds from now; above 0.
        @param mustExist: Whether nothing is stored if there is none.
        """

    def touchSession(key: bytes, cookie: bytes, ms: float) -> Awaitable[None]:
        """
        Replace the cookie and the expiry of a session, if there is one.

        @param ms: When it expires, in milliseconds from now; above 0.
        """

    def removeSession(key: bytes) -> Awaitable[None]:
        """Delete a session, if there is one."""

    def beginCall(
        key: bytes, owner: bytes, size: int, ms: float, isOwnNew: bool
    ) -> Awaitable[RecordedCall | None]:
        """
        Record a request over UDP that has not come before.

        @param owner: The process that asks, 16 bytes.
        @param size: Bytes of its datagram.
        @param ms: When it expires, in milliseconds from now.
        @param isOwnNew: Whether a record of this owner without a reply counts as none: its step may
            have been done although it failed.
        @return: C{None} if it was recorded, else the record.
        """

    def endCall(key: bytes, owner: bytes, reply: bytes, isKnown: bool) -> Awaitable[None]:
        """Keep the reply to a request, if it is recorded for this owner and has none."""
