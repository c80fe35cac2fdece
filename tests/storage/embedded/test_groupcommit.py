"""How mutations wait, are grouped and answered."""

from collections.abc import Callable, Sequence
from queue import Queue
from threading import Thread
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.groupcommit import (
    BATCH,
    BATCH_BYTES,
    MAX_WAITING,
    CatalogWriter,
    QueuedMutation,
)
from storagegate.storage.errors import StoreBusy, StoreReadOnly
from tests.support.delayed import PATIENCE


def _nothing(transaction: object, arguments: Sequence[object]) -> Sequence[object]:
    return arguments


class HandReactor(Clock):
    """A reactor whose thread is the test's: what other threads ask for is done by L{turn}."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: Queue[tuple[Callable[..., object], Any]] = Queue()

    def callFromThread(self, callable: Callable[..., object], *args: Any) -> None:
        """Remember a call."""
        self._calls.put((callable, args))

    def turn(self) -> None:
        """Wait for a call, and do it."""
        function, arguments = self._calls.get(timeout=PATIENCE)
        function(*arguments)


class HeldCommitter:
    """A committer that answers each mutation with its argument, when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.between = 0
        self.closed = False
        self.garbage: list[str] = []
        self.error: Exception | None = None
        self.death: BaseException | None = None
        self.failure: str | None = None
        self.problem: str | None = None
        self._go: Queue[None] = Queue()
        self.begun: Queue[int] = Queue()

    def go(self) -> None:
        """Let one commit happen."""
        self._go.put(None)

    def commit(self, mutations: Sequence[QueuedMutation]) -> tuple[list[object], list[str]]:
        """Commit, when the time has come."""
        self.begun.put(len(mutations))
        self._go.get(timeout=PATIENCE)
        if self.error is not None:
            raise self.error
        self.batches.append([mutation.argument for mutation in mutations])
        return self.batches[-1], self.garbage

    def doubt(self) -> str | None:
        """Return why writing has stopped."""
        return self.failure

    def afterwards(self) -> None:
        """Count, or break."""
        self.between += 1
        if self.death is not None:
            raise self.death

    def close(self) -> None:
        """Remember."""
        self.closed = True


class WriterTests(SynchronousTestCase):
    """The writer."""

    def setUp(self) -> None:
        """Make a writer that has told nothing yet."""
        self.reactor = HandReactor()
        self.committer = HeldCommitter()
        self.told: list[object] = []
        self.writer = CatalogWriter(
            self.reactor,
            self.committer,  # type: ignore[arg-type]
            lambda names: self.told.append(("changed", *names)),
            lambda garbage: self.told.append(tuple(garbage)),
            lambda: self.told.append("commit"),
        )
        self.addCleanup(self.stop)

    def stop(self) -> None:
        """Let the thread end."""
        if not self.committer.closed:
            stopped = self.writer.stop()
            while not stopped.called:
                self.committer.go()
                self.reactor.turn()
            closed = self.writer.close()
            while not closed.called:
                self.reactor.turn()

    def submit(self, argument: object, weight: int = 0) -> None:
        """Submit a mutation; its answer is told."""
        answer = self.writer.submit(QueuedMutation(_nothing, argument, weight=weight))
        answer.addBoth(self.told.append)

    def commit(self) -> None:
        """Let one commit happen and its answers come."""
        self.committer.go()
        self.reactor.turn()

    def test_oneTurnIsOneBatch(self) -> None:
        """What one turn of the reactor submits is committed together and answered in order."""
        for argument in "abc":
            self.submit(argument)
        self.reactor.advance(0)
        self.assertEqual(self.told, [])
        self.commit()
        self.assertEqual(self.committer.batches, [["a", "b", "c"]])
        self.assertEqual(self.told, ["a", "b", "c", "commit"])

    def test_whatWaitsIsOneBatch(self) -> None:
        """What comes during a commit is all in the next one."""
        self.submit("a")
        self.reactor.advance(0)
        self.committer.begun.get(timeout=PATIENCE)
        for argument in "bcd":
            self.submit(argument)
            self.reactor.advance(0)
        self.commit()
        self.commit()
        self.assertEqual(self.committer.batches, [["a"], ["b", "c", "d"]])

    def test_batchIsBounded(self) -> None:
        """A batch holds so many mutations and no more."""
        for argument in range(BATCH + 1):
            self.submit(argument)
        self.reactor.advance(0)
        self.commit()
        self.commit()
        self.assertEqual([len(batch) for batch in self.committer.batches], [BATCH, 1])

    def test_bulkIsBounded(self) -> None:
        """A batch holds so many bytes, but at least one mutation."""
        for weight in (BATCH_BYTES + 1, BATCH_BYTES // 2, BATCH_BYTES // 2, 1, 1):
            self.submit(weight, weight)
        self.reactor.advance(0)
        for _ in range(3):
            self.commit()
        self.assertEqual([len(batch) for batch in self.committer.batches], [1, 2, 2])

    def test_waitingIsBounded(self) -> None:
        """Beyond the limit a mutation fails at once, until others are answered."""
        for argument in range(MAX_WAITING):
            self.submit(argument)
        refused = self.writer.submit(QueuedMutation(_nothing, "more"))
        self.failureResultOf(refused, StoreBusy)
        self.reactor.advance(0)
        self.commit()
        self.assertNoResult(self.writer.submit(QueuedMutation(_nothing, "more")))

    def test_failureIsAnErrback(self) -> None:
        """An outcome that is an exception fails its Deferred."""
        refused = self.writer.submit(QueuedMutation(_nothing, StoreBusy("no")))
        self.reactor.advance(0)
        self.commit()
        self.failureResultOf(refused, StoreBusy)

    def test_nobodyWaitsForEver(self) -> None:
        """Where the committer itself breaks, everybody in the batch is told; the thread lives."""
        broken = self.writer.submit(QueuedMutation(_nothing, "a"))
        self.committer.error = OSError("broken")
        self.reactor.advance(0)
        self.commit()
        self.failureResultOf(broken, OSError)
        self.committer.error = None
        self.submit("b")
        self.reactor.advance(0)
        self.commit()
        self.assertIn("b", self.told)

    def test_garbageComesFirst(self) -> None:
        """Garbage is told with the answers, just before them."""
        self.committer.garbage = ["x", "y"]
        self.submit("a")
        self.reactor.advance(0)
        self.commit()
        self.assertEqual(self.told, [("x", "y"), "a", "commit"])

    def test_garbageNobodyTakes(self) -> None:
        """Where the one who is told of garbage fails, that is logged and the answers come."""

        def fail(garbage: list[str]) -> None:
            raise RuntimeError

        self.patch(self.writer, "_onGarbage", fail)
        self.committer.garbage = ["x"]
        self.submit("a")
        self.reactor.advance(0)
        self.commit()
        self.assertEqual(self.told, ["a", "commit"])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_cancelDoesNothing(self) -> None:
        """A mutation cannot be cancelled: its Deferred fires with what really happened."""
        answer = self.writer.submit(QueuedMutation(_nothing, "a"))
        answer.cancel()
        self.assertNoResult(answer)
        self.reactor.advance(0)
        self.commit()
        self.assertEqual(self.successResultOf(answer), "a")

    def test_stopCommitsWhatWaits(self) -> None:
        """Stopping commits all that was submitted, closes, and then takes nothing more."""
        self.submit("a")
        self.reactor.advance(0)
        self.submit("b")
        stopped = self.writer.stop()
        late = self.writer.submit(QueuedMutation(_nothing, "c"))
        self.failureResultOf(late, StoreBusy)
        while not stopped.called:
            self.commit()
        self.assertEqual([each for each in self.told if each != "commit"], ["a", "b"])
        self.assertFalse(self.committer.closed)
        closed = self.writer.close()
        while not closed.called:
            self.reactor.turn()
        self.assertTrue(self.committer.closed)

    def test_death(self) -> None:
        """A thread that ends fails all that waits for it, is logged and shown, and closes."""
        self.committer.death = MemoryError("no memory")
        waiting = [self.writer.submit(QueuedMutation(_nothing, "a"))]
        self.reactor.advance(0)
        self.committer.begun.get(timeout=PATIENCE)
        for argument in "bc":
            waiting.append(self.writer.submit(QueuedMutation(_nothing, argument)))
            self.reactor.advance(0)
        late = self.writer.submit(QueuedMutation(_nothing, "d"))
        self.commit()
        while not late.called:
            self.reactor.turn()
        self.assertEqual(self.successResultOf(waiting[0]), "a")
        for result in (*waiting[1:], late, self.writer.submit(QueuedMutation(_nothing, "e"))):
            self.failureResultOf(result, StoreBusy)
        self.assertEqual(self.writer.waiting, 0)
        self.assertEqual(self.writer.problem, "the catalog's writer has stopped: no memory")
        self.assertEqual(len(self.flushLoggedErrors(MemoryError)), 1)
        self.successResultOf(self.writer.stop())
        self.successResultOf(self.writer.close())
        self.assertTrue(self.committer.closed)

    def test_doubt(self) -> None:
        """A commit is not acknowledged when a sync has failed meanwhile."""
        self.committer.garbage = ["x"]
        result = self.writer.submit(QueuedMutation(_nothing, "a"))
        self.reactor.advance(0)
        self.committer.failure = "a sync failed"
        self.commit()
        self.failureResultOf(result, StoreReadOnly)
        self.assertEqual(self.told, ["commit"])
        self.committer.failure = None

    def test_noThread(self) -> None:
        """Where no thread can be started, what waits is refused, and the next one tries again."""

        def start(thread: Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched = self.patch(Thread, "start", start)
        result = self.writer.submit(QueuedMutation(_nothing, "a"))
        self.reactor.advance(0)
        patched.restore()
        self.failureResultOf(result, StoreBusy)
        self.submit("b")
        self.reactor.advance(0)
        self.commit()
        self.assertIn("b", self.told)

    def test_betweenCommits(self) -> None:
        """What is due between commits is done after the answers were sent off."""
        self.submit("a")
        self.reactor.advance(0)
        self.commit()
        self.stop()
        self.assertEqual(self.committer.between, 1)

    def test_changesComeFirst(self) -> None:
        """The names that a commit has changed are told before anybody has an answer."""
        for name in (b"a", b"b"):
            mutation = QueuedMutation(_nothing, name, names=(("home", name),))
            self.writer.submit(mutation).addBoth(self.told.append)
        self.reactor.advance(0)
        self.commit()
        changed = [("changed", ("home", b"a")), ("changed", ("home", b"b"))]
        self.assertEqual(self.told, [*changed, b"a", b"b", "commit"])
