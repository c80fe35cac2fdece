"""Uploaded files are written whole, or removed whatever state they are in."""

import os
from collections.abc import Awaitable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.middleware.upload import DirectoryStore, UploadedFile
from storagegate.net.transport import writeAll
from tests.support.openfiles import openFiles

ENOUGH = bytes(256 * 1024)


class HeldThreads:
    """
    Threads whose jobs are done when the test says so.

    @ivar jobs: Those that wait.
    """

    def __init__(self) -> None:
        self.jobs: list[tuple[Deferred[Any], Any, tuple[Any, ...]]] = []

    def run(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Take a job."""
        self.jobs.append((Deferred(), function, arguments))
        return self.jobs[-1][0]

    def work(self) -> None:
        """Do the oldest."""
        deferred, function, arguments = self.jobs.pop(0)
        execute(function, *arguments).addBoth(deferred.callback)


def start(waiting: Awaitable[None] | None) -> Deferred[None]:
    """Begin to wait for what a store gave."""

    async def wait() -> None:
        if waiting is not None:
            await waiting

    return Deferred.fromCoroutine(wait())


class DirectoryStoreTests(SynchronousTestCase):
    """Files in a directory."""

    def setUp(self) -> None:
        """Begin a file."""
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.threads = HeldThreads()
        self.store = DirectoryStore(self.threads.run, self.directory)
        self.store.begin()

    def stored(self) -> list[bytes]:
        """Give the contents of all files."""
        contents = []
        for name in os.listdir(self.directory):
            with open(os.path.join(self.directory, name), "rb") as file:
                contents.append(file.read())
        return contents

    def test_oneAtATime(self) -> None:
        """A second write waits for the first; small pieces wait for company."""
        self.assertIsNone(self.store.write(b"small"))
        self.successResultOf(start(self.store.write(ENOUGH)))
        self.assertIsNone(self.store.write(b"more"))
        second = start(self.store.write(ENOUGH))
        self.assertNoResult(second)
        self.assertEqual(len(self.threads.jobs), 1)
        self.threads.work()
        self.successResultOf(second)
        self.threads.work()
        file = UploadedFile()
        ended = start(self.store.end(file))
        self.threads.work()
        self.successResultOf(ended)
        self.assertEqual(self.stored(), [b"small" + ENOUGH + b"more" + ENOUGH])
        self.assertEqual(file.size, 9 + 2 * len(ENOUGH))

    def test_manyPieces(self) -> None:
        """Pieces of a byte are written before there are more than the kernel takes."""
        count = 0
        while not self.threads.jobs:
            count += 1
            start(self.store.write(b"x"))
        self.assertLess(count, 1024)
        self.threads.work()
        self.assertEqual(self.stored(), [b"x" * count])

    def test_discardWaits(self) -> None:
        """Files are removed after the thread has done with them, and their descriptors closed."""
        self.successResultOf(start(self.store.write(ENOUGH)))
        discarded = self.store.discard()
        self.assertEqual(len(self.threads.jobs), 1)
        self.threads.work()
        self.assertEqual(self.stored(), [ENOUGH])
        self.assertNoResult(discarded)
        self.threads.work()
        self.successResultOf(discarded)
        self.assertEqual(self.stored(), [])
        self.assertEqual(openFiles(os.path.abspath(self.directory)), [])

    def test_discardCancelled(self) -> None:
        """Files are removed though nobody waits for it any more."""
        self.successResultOf(start(self.store.write(ENOUGH)))
        writing = start(self.store.write(ENOUGH))
        writing.cancel()
        self.failureResultOf(writing)
        discarded = self.store.discard()
        discarded.cancel()
        self.failureResultOf(discarded)
        self.threads.work()
        self.threads.work()
        self.assertEqual((self.stored(), self.threads.jobs), ([], []))

    def test_discardUnwritten(self) -> None:
        """A file of which nothing was written yet is none; neither is one that was never begun."""
        self.store.write(b"x")
        discarded = self.store.discard()
        self.threads.work()
        self.successResultOf(discarded)
        self.successResultOf(DirectoryStore(self.threads.run, self.directory).discard())

    def test_diskFull(self) -> None:
        """A write that fails is told to who writes next; the file is closed once, and removed."""
        self.successResultOf(start(self.store.write(ENOUGH)))
        self.threads.work()
        self.successResultOf(start(self.store.write(ENOUGH)))
        _, _, (descriptor, *_) = self.threads.jobs[0]
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, descriptor)
        os.close(full)
        self.threads.work()
        self.assertRaises(OSError, os.fstat, descriptor)
        self.failureResultOf(start(self.store.end(UploadedFile())), OSError)
        discarded = self.store.discard()
        self.threads.work()
        self.successResultOf(discarded)
        self.assertEqual(self.stored(), [])

    def test_discardFails(self) -> None:
        """Files that cannot be removed are named in the log, which is all that can be done."""
        self.successResultOf(start(self.store.write(ENOUGH)))
        self.threads.work()
        name = os.listdir(self.directory)[0]
        os.unlink(os.path.join(self.directory, name))
        os.mkdir(os.path.join(self.directory, name))
        discarded = self.store.discard()
        self.threads.work()
        self.successResultOf(discarded)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)


class WriteTests(SynchronousTestCase):
    """Writing to the end."""

    @given(st.lists(st.binary(max_size=9)), st.integers(min_value=1, max_value=12))
    def test_shortWrites(self, pieces: list[bytes], most: int) -> None:
        """However little the kernel takes at a time, all of it is written, in its order."""
        written = bytearray()

        def write(remaining: list[bytes]) -> int:
            taken = b"".join(remaining)[:most]
            written.extend(taken)
            return len(taken)

        writeAll(write, pieces)
        self.assertEqual(bytes(written), b"".join(pieces))
