"""
Lines on their way into the log: collected for a turn of the reactor, then written at once.

A log that cannot be written, because nobody reads the pipe or the disk is full, must not stop the
daemon. What is waiting is bounded; beyond that, lines are dropped and counted.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import RLock, get_ident
from typing import Any, Protocol

LEVELS = ("debug", "info", "warn", "error")
"""The words for how much a line matters, rising."""

FLUSH_BYTES = 1 << 16
"""What is written without waiting for the turn's end: as much as a pipe takes at once."""

LIMIT_BYTES = 4 << 20
"""What may wait: a second of a busy daemon's calls, for a reader that pauses."""

RETRY_SECONDS = 0.05
"""When a reader that had no room is asked again."""

PROMISED_SECONDS = 0.05
"""How long lines that were promised wait for others: who reads a log does not see so little, and
each turn of a busy reactor would have to write a few of them."""

FAILED_SECONDS = 1.0
"""When an output that failed is tried again: full disks and lost readers do not pass sooner."""


MakeLines = Callable[[], Sequence[bytes]]
"""Gives whole lines without their newlines. Raises nothing; is called in the reactor's thread."""


class LineSink(Protocol):
    """
    Where lines go.

    @ivar lowest: Lines of a level below this one, by its place in L{LEVELS}, are not wanted.
    """

    lowest: int

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """
        Take one whole line without its newline; in any thread, and without waiting.

        @param isUrgent: Whether it is to be written before anything else happens: what the
            process says of itself may be its last word.
        """

    def promise(self, make: MakeLines) -> None:
        """
        Take lines that are made when they are written; in any thread, and without waiting.

        That is L{PROMISED_SECONDS} later at most: many at once are made faster than one after the
        other between other work. A line that is urgent comes behind them, and takes them along.
        """


class Output(Protocol):
    """What lines are written to."""

    def write(self, data: memoryview) -> int:
        """
        Write what there is room for now.

        @return: How many bytes that were.
        @raise OSError: If it cannot be written to.
        """


class LineWriter:
    """
    Writes lines to an output: each at once, until L{buffer} has it wait for the turn's end.

    Every method may run in any thread.

    @ivar lowest: See L{LineSink}.
    @ivar dropped: How many lines found no room.
    """

    def __init__(self, output: Output, limit: int = LIMIT_BYTES) -> None:
        """
        @param limit: How many bytes may wait.
        """
        self.lowest = LEVELS.index("info")
        self.dropped = 0
        self._output = output
        self._limit = limit
        # A signal's handler or a finaliser may log in the middle of a write of the same thread.
        self._lock = RLock()
        self._lines: deque[bytes] = deque()
        self._promised: list[MakeLines] = []
        self._rest = memoryview(b"")
        self._size = 0
        self._reactor: Any = None
        self._thread = 0
        # Whether somebody comes and writes: the turn's end, or the next try.
        self._isDue = False
        self._isStuck = False
        self._isWriting = False

    def buffer(self, reactor: Any) -> None:
        """Collect the lines of each turn of a reactor from now on; in its thread."""
        with self._lock:
            self._reactor = reactor
            self._thread = get_ident()
            if self._size or self._promised:
                self._comeBack(0)

    def unbuffer(self) -> None:
        """Write every line at once again: the reactor has stopped."""
        with self._lock:
            self._reactor = None
            self._isDue = False
            self.flush()

    def finish(self, seconds: float) -> None:
        """Write the last lines of a process; blocks for a reader that pauses, so long at most."""
        end = time.monotonic() + seconds
        self.unbuffer()
        while self._size and time.monotonic() < end:
            time.sleep(RETRY_SECONDS)
            self.flush()

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """Take one whole line without its newline, see L{LineSink.write}."""
        with self._lock:
            if self._promised:
                self._keepPromises()
            self._add(line)
            isFull = isUrgent or self._size >= FLUSH_BYTES
            if self._reactor is None or (isFull and not self._isStuck):
                self.flush()
            elif not self._isDue:
                self._comeBack(0)

    def promise(self, make: MakeLines) -> None:
        """Take lines that are made when they are written, see L{LineSink.promise}."""
        with self._lock:
            self._promised.append(make)
            if self._reactor is None:
                self.flush()
            elif self._isStuck:
                # Nobody knows until when: what waits has to be counted.
                self._keepPromises()
            elif not self._isDue:
                self._comeBack(PROMISED_SECONDS)

    def _add(self, line: bytes) -> None:
        """Have a line wait, if there is room for it."""
        size = len(line) + 1
        if self._size + size > self._limit:
            self.dropped += 1
            return
        self._lines.append(line)
        self._size += size

    def _addAll(self, lines: Sequence[bytes]) -> None:
        """Have lines wait, as far as there is room for them."""
        size = sum(map(len, lines)) + len(lines)
        if self._size + size <= self._limit:
            self._lines.extend(lines)
            self._size += size
        else:
            for line in lines:
                self._add(line)

    def _keepPromises(self) -> None:
        """Have the lines made that were promised, if this is the reactor's thread."""
        if self._reactor is not None and get_ident() != self._thread:
            return
        # Whoever makes lines may promise more.
        while self._promised:
            promised, self._promised = self._promised, []
            for make in promised:
                self._addAll(make())

    def flush(self) -> None:
        """Write what waits, as far as there is room for it."""
        with self._lock:
            if self._isWriting:
                return
            self._isWriting = True
            try:
                again = self._writeAll()
            finally:
                self._isWriting = False
            self._isStuck = again is not None
            if again is not None:
                self._comeBack(again)

    def _writeAll(self) -> float | None:
        """Write; tell in how many seconds the rest may be tried again, if there is one."""
        self._keepPromises()
        while self._rest or self._lines:
            if not self._rest:
                self._rest = memoryview(b"\n".join(self._lines) + b"\n")
                self._lines.clear()
            try:
                written = self._output.write(self._rest)
            except OSError:
                return FAILED_SECONDS
            if not written:
                return RETRY_SECONDS
            self._rest = self._rest[written:]
            self._size -= written
        return None

    def _comeBack(self, seconds: float) -> None:
        """Have the rest written later, unless somebody comes anyway."""
        if self._isDue or self._reactor is None:
            return
        self._isDue = True
        if get_ident() == self._thread:
            self._reactor.callLater(seconds, self._due)
        else:
            self._reactor.callFromThread(self._reactor.callLater, seconds, self._due)

    def _due(self) -> None:
        with self._lock:
            self._isDue = False
            self.flush()
