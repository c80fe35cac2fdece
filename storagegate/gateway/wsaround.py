"""What is around a WebSocket: whoever takes its messages, the codes of its end, and a log."""

from collections.abc import Callable
from typing import Any, Protocol

GOING_AWAY = 1001
TOO_BIG = 1009
INTERNAL = 1011
TRY_LATER = 1013

CUT = b"calls were cut"
"""The reason of a close for which calls were cancelled; without it what was not answered was not
begun."""

MAX_FRAGMENTS = 4096
"""Frames of a message. A client that fills the largest message with them has 256 bytes in each;
one that sends empty ones is up to no good."""

CLOSE_SECONDS = 5
"""How long a peer has to answer a close."""


class Receiver(Protocol):
    """
    Whoever uses a wire.

    @ivar isIdle: Whether nothing that has come is still to be answered.
    """

    @property
    def isIdle(self) -> bool: ...

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Take a message."""

    def lost(self) -> None:
        """Take note that nothing comes or goes any more. Called once."""


class Quiet:
    """A log for what clients do wrong: none of it is news, and they could fill a disk with it."""

    def __getattr__(self, level: str) -> Callable[..., None]:
        return self._ignore

    def _ignore(self, *arguments: Any, **keywords: Any) -> None:
        pass
