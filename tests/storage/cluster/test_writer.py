"""The queue of the writer, with connections that the test answers."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster.connection import ConnectionLost, StatementRefused, Step
from storagegate.storage.cluster.databaselocks import AdvisoryLocks
from storagegate.storage.cluster.primary import Primary
from storagegate.storage.cluster.writer import PendingMutation, Writer
from storagegate.storage.errors import CommitUnknown, StoreBusy


class HeldConnection:
    """
    A connection whose transactions wait for the test.

    @ivar sent: The Deferreds of the transactions.
    """

    def __init__(self) -> None:
        self.isOpen = True
        self.sent: list[Deferred[Any]] = []

    def run(self, steps: Sequence[Step], began: float) -> Deferred[Any]:
        """Begin a transaction."""
        self.sent.append(Deferred())
        return self.sent[-1]


class WriterTests(SynchronousTestCase):
    """Mutations that are retried one by one."""

    def test_rest(self) -> None:
        """
        The rest of a refused batch is refused in time if the connection is lost during the first
        retry and no other mutation comes; the writer can then be closed.
        """
        clock = Clock()
        writer = Writer(clock, Primary(clock, []), AdvisoryLocks())
        connection: Any = HeldConnection()
        writer._idle.append(connection)
        first, second = (
            writer.submit(PendingMutation("b", ((key, (b"put", ())),), lambda results: None))
            for key in (b"first", b"second")
        )
        clock.advance(0)
        # All mutations are in flight when the queue is checked.
        clock.advance(3.0)
        connection.sent[0].errback(StatementRefused("55P03", "lock timeout"))
        closing = writer.close()
        connection.isOpen = False
        connection.sent[1].errback(ConnectionLost("the server was killed"))
        self.failureResultOf(first, CommitUnknown)
        self.assertNoResult(second)
        clock.advance(3.0)
        self.failureResultOf(second, StoreBusy)
        clock.advance(0)
        self.successResultOf(closing)
        self.assertEqual((len(connection.sent), writer.waiting), (2, 0))
