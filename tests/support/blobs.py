"""Blobs in a separate directory, for tests."""

import os

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.filestore import FileBlobs
from storagegate.storage.files import FailStopLatch, Files
from storagegate.storage.layout import BlobIds, BlobLayout
from storagegate.storage.threadpool import IWorkPool
from tests.support.faultyfiles import FaultyFiles
from tests.support.pools import HeldPool


def makeBlobs(
    directory: str, pool: IWorkPool, files: Files | None = None, durable: bool = True
) -> FileBlobs:
    """Blobs in a new directory."""
    layout = BlobLayout(directory)
    for path in (layout.blobs, layout.staging):
        os.makedirs(path)
    return FileBlobs(layout, pool, files or Files(), FailStopLatch(), BlobIds().new, durable)


def filesBelow(directory: str) -> list[str]:
    """List all files below a directory, as relative paths."""
    return sorted(
        os.path.relpath(os.path.join(base, name), directory)
        for base, _, names in os.walk(directory)
        for name in names
    )


class BlobsCase(SynchronousTestCase):
    """Blobs whose jobs run when the test runs them, on files that can fail."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.pool = HeldPool()
        self.files = FaultyFiles()
        self.blobs = makeBlobs(self.directory, self.pool, self.files)

    def put(self, body: bytes) -> str:
        """Store a blob and confirm it."""
        sink = self.blobs.writer(0, len(body))
        sink.write(body)
        finished = sink.finish()
        self.pool.goAll()
        blob = self.successResultOf(finished).segments[0].blob
        self.blobs.confirm([blob])
        self.pool.goAll()
        return blob

    def called(self) -> list[str]:
        """Return the operations since the last call."""
        names = self.files.namesCalled()
        self.files.calls.clear()
        return names
