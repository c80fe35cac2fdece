"""What is around a WebSocket: whoever takes its messages, and a log."""

from collections.abc import Callable
from typing import Any, Protocol


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
