"""
Blobs that no object names any more, and the readers that still have them.

A reader may need an object's next blob long after the object was replaced, so what a reader holds
stays. The catalog keeps a row for each blob until L{Reclaimer} says that its file is gone: nothing
is lost track of, whenever the process ends.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

BATCH = 1000
"""Blobs a round: one job and one commit for as many as a bulk delete names."""

_BACKLOG = 100_000
"""Ids kept in memory (10 MB of them); beyond it the catalog is asked again."""


class Hold:
    """A reader's claim on the blobs of one object."""

    __slots__ = ("_blobs", "_release")

    def __init__(self, blobs: Sequence[str], release: Callable[[Sequence[str]], None]) -> None:
        self._blobs = blobs
        self._release = release

    def release(self) -> None:
        """Say that the blobs are not needed any more. A second time does nothing."""
        blobs, self._blobs = self._blobs, ()
        self._release(blobs)


class Reclaimer:
    """
    Removes garbage in the background, one round at a time. All methods: reactor thread.

    @param discard: Removes files.
    @param forget: Removes the rows of blobs whose files are gone.
    @param garbage: Reads up to so many ids of blobs without references, from an id on.
    """

    _log = Logger()

    def __init__(
        self,
        discard: Callable[[Sequence[str]], Awaitable[None]],
        forget: Callable[[Sequence[str]], Awaitable[None]],
        garbage: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._discard = discard
        self._forget = forget
        self._garbage = garbage
        self._holds: dict[str, int] = {}
        self._kept: set[str] = set()
        self._waiting: list[str] = []
        self._overflowed = False
        self._running: Deferred[None] | None = None

    def hold(self, blobs: Iterable[str]) -> Hold:
        """
        Keep blobs until the hold is released.

        Called in the turn of the reactor in which the catalog named the blobs, it comes before
        any removal of them.
        """
        held = tuple(blobs)
        for blob in held:
            self._holds[blob] = self._holds.get(blob, 0) + 1
        return Hold(held, self._release)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """Remove blobs that have lost their last reference."""
