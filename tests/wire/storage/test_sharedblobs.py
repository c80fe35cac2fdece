"""Blobs in a directory that several nodes share: the contract, and faults."""

import errno
import os
from collections.abc import Mapping
from threading import Event
from typing import Any

from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.blobs.shared import SharedFiles, openPieces
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files
from storagegate.storage.layout import isBlobId
from tests.contract.blobs import store
from tests.contract.remoteblobs import RemoteCase, RemoteContract
from tests.contract.remotefaults import FaultContract
from tests.contract.remoteprocesses import ProcessContract
from tests.support.selection import long


class HangingFiles(Files):
    """
    The files of a mount whose server may be away, or full.

    @ivar answers: Set while the server answers.
    @ivar isFull: Whether it has no space.
    """

    def __init__(self) -> None:
        self.answers = Event()
        self.answers.set()
        self.isFull = False

    def create(self, path: str) -> int:
        """Wait for the server."""
        self.answers.wait()
        return super().create(path)

    def openForAppending(self, path: str) -> int:
        """Wait for the server."""
        self.answers.wait()
        return super().openForAppending(path)

    def openForReading(self, path: str) -> int:
        """Wait for the server."""
        self.answers.wait()
        return super().openForReading(path)

    def write(self, fd: int, buffers: Any) -> int:
        """Fail while the server is full."""
        if self.isFull:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, buffers)

    def size(self, file: int | str) -> int:
        """Wait for the server."""
        self.answers.wait()
        return super().size(file)

    def unlink(self, path: str) -> None:
        """Wait for the server."""
        self.answers.wait()
        super().unlink(path)


class SharedCase(RemoteCase):
    """A directory of its own."""

    isCut = False

    async def setUp(self: Any) -> None:
        """Make the directory."""
        self.files = HangingFiles()
        self.directory = os.path.abspath(self.mktemp())
        os.makedirs(self.directory)
        await super().setUp()

    def openPieces(self: Any) -> SharedFiles:
        """Open it."""
        from twisted.internet import reactor

        return SharedFiles(self.directory, reactor, self.files)

    def url(self: Any) -> tuple[str, Mapping[str, str]]:
        """Name the directory."""
        return f"files:{self.directory}", {}

    async def names(self: Any) -> set[str]:
        """List the files."""
        return {name for _, _, names in os.walk(self.directory) for name in names}


class ContractTests(SharedCase, RemoteContract, ProcessContract, TestCase):
    """The contract of blobs."""

    async def test_layout(self: Any) -> None:
        """Files lie where those of the embedded store do."""
        [segment] = (await store(self.blobs, b"bytes")).segments
        self.assertTrue(isBlobId(segment.blob))
        parts = ("blobs", segment.blob[:2], segment.blob[2:4], segment.blob)
        self.assertTrue(os.path.exists(os.path.join(self.directory, *parts)))

    async def test_notMounted(self: Any) -> None:
        """A directory that does not exist is refused in one line, and so is a relative one."""
        from twisted.internet import reactor

        for text in (f"files:{self.directory}/absent", "files:relative", "s3:http://host/bucket"):
            with self.assertRaises(StoreError) as caught:
                openPieces(text, reactor)
            self.assertNotIn("\n", str(caught.exception))


@long("takes a second or more")
class FaultTests(SharedCase, FaultContract, TestCase):
    """What happens while the mount hangs, or is full."""

    async def goAway(self: Any) -> None:
        """Let every call hang."""
        self.files.answers.clear()
        self.addCleanup(self.files.answers.set)

    async def comeBack(self: Any) -> None:
        """Let them go on, and those that hang, too."""
        self.files.answers.set()

    async def fill(self: Any) -> None:
        """Have every write of a file fail."""
        self.files.isFull = True

    async def free(self: Any) -> None:
        """Let files be written."""
        self.files.isFull = False
