"""
Watches files.

What has changed is found by comparing snapshots, made in a thread. When to look is decided by
L{Alarm}: the kernel's word where there is one, and the clock.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from storagegate.http.development.pagehub import PAGE_SUFFIXES
from storagegate.http.development.snapshots import (
    Snapshot,
    Watched,
    changesBetween,
    takeSnapshot,
    widened,
)
from storagegate.http.runtime import Runtime

# How long files have to stay as they are: programs write them in several steps.
_SETTLE_SECONDS = 0.04

# A file that is written to all the time is not waited for.
_MAX_ROUNDS = 10

_POLL_SECONDS = 0.25

# Beside inotify: some file systems do not report what others do to them.
_SLOW_POLL_SECONDS = 1.0

# Of the kernel, a user has some thousands; each costs it a kilobyte.
_MAX_DIRECTORIES = 1000

_log = Logger()


class Alarm:
    """Says when it is time to look."""

    def __init__(self, reactor: Any, wake: Callable[[], object]) -> None:
        self._reactor = reactor
        self._wake = wake
        self._poll = LoopingCall(wake)
        self._poll.clock = reactor
        self._kernel: Any = None
        self._known: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self._kernel = _watchByKernel(self._reactor, self._changed)
        self._poll.start(_POLL_SECONDS if self._kernel is None else _SLOW_POLL_SECONDS, now=False)

    def watch(self, directories: Iterable[str]) -> None:
        """Look when something changes in one of these directories."""
        if self._kernel is None:
            return
        for directory in sorted(set(directories) - self._known):
            if len(self._known) < _MAX_DIRECTORIES:
                self._known.add(directory)
                self._kernel.add(directory)

    def stop(self) -> None:
        """End."""
        if self._poll.running:
            self._poll.stop()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        self._known.clear()

    def _changed(self, path: bytes) -> None:
        if path.endswith(_SUFFIXES):
            self._wake()
        # A directory that has gone may come again, as another one.
        self._known.discard(os.fsdecode(path))


_SUFFIXES = tuple(suffix.encode("ascii") for suffix in (".py", *PAGE_SUFFIXES))


def _watchByKernel(reactor: Any, changed: Callable[[bytes], object]) -> Any:
    try:
        from storagegate.http.development.kernelwatch import watchByKernel
    except ImportError:
        return None
    return watchByKernel(reactor, changed)


class Watcher:
    """
    Watches files and tells of those that have changed.

    One that is told of is told of once; while it is acted upon, nothing is looked at.
    """

    def __init__(
        self,
        runtime: Runtime,
        watched: Callable[[], Watched],
        changed: Callable[[set[str]], Deferred[Any]],
        makeAlarm: Callable[[Callable[[], object]], Any],
    ) -> None:
        """
        @param watched: Says what to look at now.
        @param changed: Acts upon changes; is not called again before it is done.
        @param makeAlarm: Makes an L{Alarm} that calls a function.
        """
        self._runtime = runtime
        self._watched = watched
        self._changed = changed
        self._alarm = makeAlarm(self.wake)
        self._known: Snapshot | None = None
        self._isLooking = False
        self._isWanted = False

    def start(self) -> None:
        """Begin. Looks at once, while the code that is running is that of the files."""
        self._known = takeSnapshot(self._watched())
        self._alarm.start()
        self._alarm.watch(self._known.directories)

    def stop(self) -> None:
        """End."""
        self._alarm.stop()
        self._known = None

    def extend(self) -> None:
        """
        Look at once at files that are new among those to be looked at.

        What they are now is what their readers have got, and all that comes later is a change.
        """
        if self._known is not None:
            watched = self._watched()
            # Trees may be large, and are not looked through twice.
            watched = evolve(watched, trees=watched.trees - self._known.watched.trees)
            self._known = widened(self._known, takeSnapshot(watched))
            self._alarm.watch(self._known.directories)

    def wake(self) -> None:
        """Look soon."""
        self._isWanted = True
        if not self._isLooking and self._known is not None:
            self._isLooking = True
            Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    def _failed(self, reason: Any) -> None:
        self._isLooking = False
        _log.failure("files cannot be watched", reason)

    async def _look(self) -> None:
        while self._isWanted and self._known is not None:
            self._isWanted = False
            before = self._known
            after, changes = await self._compare(before)
            if self._known is not None:
                # It was extended meanwhile, perhaps.
                self._known = after if self._known is before else widened(after, self._known)
                self._alarm.watch(after.directories)
                if changes:
                    await self._changed(changes)
        self._isLooking = False

    async def _compare(self, before: Snapshot) -> tuple[Snapshot, set[str]]:
        """Look until what has changed changes no more."""
        run, watched = self._runtime.run, self._watched()
        after, changes = await run(_compare, before, watched)
        for _ in range(_MAX_ROUNDS):
            if not changes:
                break
            clock: Any = self._runtime.clock
            await deferLater(clock, _SETTLE_SECONDS)
            again, changes = await run(_compare, before, watched)
            if again.states == after.states:
                break
            after = again
        return after, changes


def _compare(before: Snapshot, watched: Watched) -> tuple[Snapshot, set[str]]:
    """Look, and find what has changed. May be called in a thread."""
    after = takeSnapshot(watched)
    return after, changesBetween(before, after)
