"""Whose turn it is to read datagrams."""

from collections.abc import Callable
from typing import Protocol


class Turn(Protocol):
    """
    Of the processes that have one socket for datagrams, one reads at a time.

    @ivar isWaiting: Whether another one reads still.
    @ivar entered: Is called when it does so no more.
    """

    isWaiting: bool
    entered: Callable[[], object]

    def leave(self) -> None:
        """Let another one read."""
