"""A file system that is full, and two processes that write to one catalog on it."""

import os
from typing import Any

from storagegate.storage.embedded.connections import Durability, Purpose, connect
from storagegate.storage.embedded.groupcommit import Committer, QueuedMutation
from storagegate.storage.embedded.processgroup import (
    SharedLatch,
    SharedWALSizeCounter,
    SharedWriteLock,
)
from storagegate.storage.embedded.reserve import Reserve
from storagegate.storage.embedded.wal import WALCheckpointer
from tests.storage.embedded import test_wal_full as alone
from tests.support.selection import long
from tests.support.sharedstores import joined, sharedDescriptor


@long("takes seconds")
class SharedFullDiskTests(alone.FullDiskTests):
    """The promises of one process, for two that commit in turn."""

    def setUp(self) -> None:
        """Make two processes."""
        super().setUp()
        descriptor = sharedDescriptor(self)
        self.members = [self.member(descriptor) for _ in range(2)]
        self.take()

    def member(self, descriptor: int) -> Any:
        """Make the lock and the committer of one process."""
        memory = joined(self, descriptor)
        latch, size = SharedLatch(memory), SharedWALSizeCounter(memory)
        path = os.path.join(self.directory, "catalog.sqlite")
        connection = connect(path, Durability.FULL, Purpose.WRITER)
        wal = WALCheckpointer(connection, self.directory, latch, size=size)
        reserve = Reserve(self.reserve, isShared=True)
        committer = Committer(connection, reserve, latch, wal)
        self.addCleanup(committer.close)
        return SharedWriteLock(memory), committer

    def take(self) -> None:
        """Let the other process commit next."""
        self.members.reverse()
        self.writeLock, self.committer = self.members[0]

    def commit(self, mutation: QueuedMutation) -> Any:
        """Commit one mutation, in turn."""
        if not hasattr(self, "members"):
            return super().commit(mutation)
        self.take()
        with self.writeLock:
            return super().commit(mutation)
