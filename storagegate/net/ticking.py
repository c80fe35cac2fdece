"""The watch over connections: each knows for itself what is due at a time."""

from collections.abc import Collection
from typing import Protocol

from twisted.logger import Logger

_log = Logger()


class Ticking(Protocol):
    """A connection that is told the time."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def abort(self) -> None:
        """Drop it."""


def tickAll(connections: Collection[Ticking], now: float) -> None:
    """Tell connections the time; one that fails at it is dropped, and may leave the collection."""
    for connection in list(connections):
        try:
            connection.tick(now)
        except Exception:
            # One connection's trouble must not end the watch over the others.
            _log.failure("a connection failed on a timeout")
            connection.abort()
