"""
Sending of a file with C{sendfile}, without waiting for a disk in the reactor.

C{sendfile} of a page that is not in memory blocks the whole process for a disk read. So each window
is first probed with C{preadv(RWF_NOWAIT)}, which does not wait, and a cold window is first read in
a thread, which brings it into the page cache.
"""

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

Runner = Callable[..., Deferred[Any]]
"""Calls C{function(*arguments)} in a thread and returns a Deferred of its result."""

# Large enough that probing and a thread switch cost little, small enough that one connection does
# not starve the others.
_WINDOW = 512 * 1024

# The kernel reads ahead 128 KiB at a time by default, so pages are cached and evicted in such runs.
_PROBE_STEP = 128 * 1024


class TruncatedFile(Exception):
    """The file is shorter than declared."""


def _loadPages(fd: int, offset: int, count: int) -> None:
    """
    Bring a part of a file into the page cache. Called in a thread.

    @param fd: A descriptor open for reading; its file position is not used.
    @param count: The number of bytes to read; the file may end earlier.
    @raise OSError: If the disk cannot be read.
    """
    buffer = bytearray(_PROBE_STEP)
    end = offset + count
    while offset < end:
        got = os.preadv(fd, [memoryview(buffer)[: end - offset]], offset)
        if not got:
            return
        offset += got


def isWarm(fd: int, offset: int, count: int) -> bool:
    """
    Return whether a part of a file can be read without waiting for a disk.

    One byte of each 128 KiB is probed. A file system without support counts as cold: a needless
    thread is better than a stall.

    @param fd: A descriptor open for reading; its file position is not used.
    """
    probe = [bytearray(1)]
    try:
        for position in range(offset, offset + count, _PROBE_STEP):
            os.preadv(fd, probe, position, os.RWF_NOWAIT)
        os.preadv(fd, probe, offset + count - 1, os.RWF_NOWAIT)
    except OSError:
        return False
    return True


class SendfileTransfer:
    """
    The progress of a file transfer.

    @ivar offset: The next byte to send.
    @ivar remaining: The number of bytes still to be sent.
    @ivar reading: Whether a thread is reading ahead.
    @ivar finished: Fires when L{end} is called, but not while a thread still reads the file. After
        a cancellation, a thread may still read from the descriptor, even if it has been reused for
        another file; it only reads.
    """

    def __init__(
        self,
        fd: int,
        offset: int,
        count: int,
        run: Runner,
        onReady: Callable[[], None],
        onFailed: Callable[[Failure], None],
    ) -> None:
        """
        @param fd: A descriptor that stays open for reading until L{finished} fires.
        @param run: Calls a function with arguments in a thread.
        @param onReady: Called after reading ahead, when L{advance} can continue.
        @param onFailed: Called when reading ahead has failed, or the caller has cancelled.
        """
        self._fd = fd
        self.offset = offset
        self.remaining = count
        self._run = run
        self._onReady = onReady
        self._onFailed = onFailed
        self._warmUntil = offset
        self._outcome: Failure | None = None
        self.reading = False
        self.finished: Deferred[None] = Deferred(
            lambda finished: onFailed(Failure(CancelledError()))
        )

    def advance(self, socketNumber: int) -> None:
        """
        Send as much as the socket accepts, up to the end of a window; or start reading ahead.

        @raise TruncatedFile: If the file has ended.
        @raise OSError: If the file or the socket has failed.
        """
        if self.reading:
            return
        if self.offset == self._warmUntil:
            window = min(self.remaining, _WINDOW)
            if not isWarm(self._fd, self.offset, window):
                self._readAhead(window)
                return
            self._warmUntil += window
        try:
            sent = os.sendfile(socketNumber, self._fd, self.offset, self._warmUntil - self.offset)
        except BlockingIOError:
            return
        if not sent:
            raise TruncatedFile(f"{self.remaining} bytes are missing")
        self.offset += sent
        self.remaining -= sent

    def end(self, reason: Failure | None) -> None:
        """
        Fire L{finished}, now or when the thread has finished with the file.

        @param reason: The failure of L{finished}; C{None} for success.
        """
        self.remaining = 0
        if self.reading:
            self._outcome = reason
        elif not self.finished.called:
            # A cancelled Deferred has already fired; its caller may close the file.
            if reason is None:
                self.finished.callback(None)
            else:
                self.finished.errback(reason)

    def _readAhead(self, window: int) -> None:
        self.reading = True

        def done(result: Any) -> None:
            self.reading = False
            if self._outcome is not None:
                self.end(self._outcome)
            elif isinstance(result, Failure):
                self._onFailed(result)
            else:
                self._warmUntil += window
                self._onReady()

        self._run(_loadPages, self._fd, self.offset, window).addBoth(done)
