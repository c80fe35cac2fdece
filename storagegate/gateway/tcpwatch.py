"""What a connection is watched for once a second."""

import select
from collections.abc import Hashable
from typing import Any

# Only Linux tells that a peer has shut its writing side without reading all that it sent before.
_SHUT: int = getattr(select, "POLLRDHUP", 0)
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Standstill:
    """How long something has not changed."""

    def __init__(self) -> None:
        self._mark: Hashable = None
        self._since = 0.0

    def seconds(self, mark: Hashable, now: float) -> float:
        """
        Tell for how long the mark has been the same.

        @param mark: What should change; C{None} while there is nothing to watch.
        """
        if mark is None or mark != self._mark:
            self._mark, self._since = mark, now
        return now - self._since


class Presence:
    """
    Whether a client is there that is not being read.

    A client that has closed looks like one that has shut its writing side only. It is told from
    that by sending it something: the system of a client that has closed answers with a reset. And
    what is not being read does not tell by itself that it was reset.
    """

    def __init__(self, firstWait: float, lastWait: float) -> None:
        """
        @param firstWait: After how many seconds it is sent something; twice that the next time.
        @param lastWait: The most.
        """
        self._firstWait, self._lastWait = firstWait, lastWait
        self._wait = 0.0
        self._since: float | None = None
        self.isGone = False

    def look(self, transport: Any, now: float) -> bool:
        """
        Look; C{isGone} says what was seen.

        @return: Whether to send something.
        """
        events = _eventsOf(transport)
        self.isGone = bool(events & _GONE)
        if not events & _SHUT:
            self._since = None
        elif self._since is None:
            self._since, self._wait = now, self._firstWait
        elif now - self._since >= self._wait:
            self._since, self._wait = now, min(2 * self._wait, self._lastWait)
            return True
        return False


def _eventsOf(transport: Any) -> int:
    fileno = getattr(transport, "fileno", None)
    if fileno is None:
        return 0
    poll = select.poll()
    poll.register(fileno(), _SHUT)
    events = poll.poll(0)
    return events[0][1] if events else 0
