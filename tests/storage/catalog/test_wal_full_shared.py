"""A file system that is full, and two processes that write to one catalog on it."""

import os
from typing import Any

from twisted.internet.task import Clock

from storagegate.storage.catalog.connections import Durability, Purpose, connect
from storagegate.storage.catalog.transactions import Mutation
from storagegate.storage.catalog.wal import Reserve, WALCheckpointer
from storagegate.storage.catalog.writer import Committer
from storagegate.storage.multiprocess.group import share
from storagegate.storage.multiprocess.readers import ReaderEpoch
from tests.storage.catalog import test_wal_full as alone
from tests.support.sharedstores import joined, sharedDescriptor


class SharedFullDiskTests(alone.FullDiskTests):
    """All that one process promises, of two that commit in turn."""

    def setUp(self) -> None:
        """Put two in the place of one."""
        super().setUp()
        descriptor = sharedDescriptor(self)
        self.members = [self.member(descriptor) for _ in range(2)]
        self.take()

    def member(self, descriptor: int) -> Any:
        """Give one process its turn and its committer."""
        memory = joined(self, descriptor)
        commons = share(memory, ReaderEpoch(memory, Clock()))
        path = os.path.join(self.directory, "catalog.sqlite")
        connection = connect(path, Durability.FULL, Purpose.WRITER)
        wal = WALCheckpointer(connection, self.directory, commons.latch, growth=commons.growth)
        reserve = Reserve(self.reserve, isShared=True)
        committer = Committer(connection, reserve, commons.latch, wal)
        self.addCleanup(committer.close)
        return commons.turn, committer

    def take(self) -> None:
        """Let the other one be next."""
        self.members.reverse()
        self.turn, self.committer = self.members[0]

    def commit(self, mutation: Mutation) -> Any:
        """Commit one mutation, in turn."""
        if not hasattr(self, "members"):
            return super().commit(mutation)
        self.take()
        with self.turn:
            return super().commit(mutation)
