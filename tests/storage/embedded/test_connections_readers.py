"""Reads in the pool: a few at a time, in order, each with a connection of its own."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.connections import MAX_WAITING, READERS, ReaderPool
from storagegate.storage.errors import StoreBusy
from tests.support.pools import HeldPool


class FakeConnection:
    """Remembers whether it was closed."""

    closed = False

    def close(self) -> None:
        """Close."""
        self.closed = True


class PoolReadersTests(SynchronousTestCase):
    """L{ReaderPool} on a pool that works when the test says so."""

    def setUp(self) -> None:
        self.pool = HeldPool()
        self.opened: list[Any] = []
        self.readers = ReaderPool(self.pool.run, self.connect)

    def connect(self) -> Any:
        """Open a connection."""
        self.opened.append(FakeConnection())
        return self.opened[-1]

    def read(self, name: object) -> Deferred[Any]:
        """Ask for a read that gives its connection and its name."""
        return self.readers.read(lambda connection, name: (connection, name), name)

    def test_fewAtATime(self) -> None:
        """Only so many are under way, with a connection each; the rest follow in their order."""
        answers = [self.read(number) for number in range(READERS * 3)]
        self.assertEqual(len(self.pool.waiting), READERS)
        self.pool.go(2)
        self.assertEqual(len(self.pool.waiting), READERS)
        self.pool.goAll()
        found = [self.successResultOf(answer) for answer in answers]
        self.assertEqual([number for _, number in found], list(range(READERS * 3)))
        self.assertLessEqual(len(self.opened), READERS)

    def test_connectionIsKept(self) -> None:
        """Reads one after the other share one connection."""
        for number in range(5):
            answer = self.read(number)
            self.pool.goAll()
            self.assertEqual(self.successResultOf(answer), (self.opened[0], number))

    def test_failure(self) -> None:
        """A read that fails tells its caller and nobody else."""

        def fails(connection: object) -> None:
            raise KeyError("mine")

        failing, other = self.readers.read(fails), self.read(1)
        self.pool.goAll()
        self.failureResultOf(failing, KeyError)
        self.successResultOf(other)

    def test_cancelled(self) -> None:
        """Who goes away hears no more: while waiting nothing is read, else the seat stays taken."""
        running, *others = [self.read(number) for number in range(READERS + 1)]
        waiting = others[-1]
        for answer in (running, waiting):
            answer.cancel()
            self.failureResultOf(answer, CancelledError)
        self.assertEqual(len(self.pool.waiting), READERS)
        self.read("next")
        self.assertEqual(len(self.pool.waiting), READERS)
        self.pool.go()
        self.assertEqual(len(self.pool.waiting), READERS)
        self.assertEqual(self.pool.waiting[-1].args[0].arguments, ("next",))
        self.pool.goAll()

    def test_tooMany(self) -> None:
        """Those who wait are so many at the most."""
        for number in range(READERS + MAX_WAITING):
            self.assertNoResult(self.read(number))
        self.failureResultOf(self.read("more"), StoreBusy)

    def test_busyPool(self) -> None:
        """A pool that refuses all at once refuses all that wait, however many."""
        answers = [self.read(number) for number in range(READERS + MAX_WAITING)]
        self.pool.busy = True
        self.pool.go()
        for answer in answers[READERS:]:
            self.failureResultOf(answer, StoreBusy)
        self.pool.busy = False
        again = self.read("again")
        self.pool.goAll()
        self.successResultOf(again)

    def test_close(self) -> None:
        """Closing waits for what is under way, refuses the rest, and closes all connections."""
        answers = [self.read(number) for number in range(READERS + 1)]
        closed = self.readers.close()
        self.failureResultOf(answers.pop(), StoreBusy)
        self.assertNoResult(closed)
        self.pool.goAll()
        self.successResultOf(closed)
        self.assertEqual(len([self.successResultOf(answer) for answer in answers]), READERS)
        self.assertTrue(all(connection.closed for connection in self.opened))
        self.failureResultOf(self.read("late"), StoreBusy)

    def test_closeAfterCancel(self) -> None:
        """Closing waits for a read whose caller has gone: its thread has the connection."""
        answer = self.read(1)
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        closed = self.readers.close()
        self.assertNoResult(closed)
        self.pool.goAll()
        self.successResultOf(closed)
        self.assertTrue(self.opened[0].closed)
