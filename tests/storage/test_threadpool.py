"""The store's threads."""

from collections import deque
from threading import Event, Thread, get_ident
from threading import enumerate as livingThreads

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from storagegate.storage.errors import StoreBusy
from storagegate.storage.threadpool import BoundedThreadPool, IWorkPool
from tests.support.delayed import PATIENCE


class Boom(Exception):
    """Raised on purpose."""


def boom() -> None:
    """Fail."""
    raise Boom("as told")


class WorkPoolTests(TestCase):
    """L{BoundedThreadPool} on the running reactor."""

    def setUp(self) -> None:
        from twisted.internet import reactor

        self.pool = BoundedThreadPool(reactor, threads=2, waitingLimit=3, name="pool-under-test")
        self.gate = Event()

    async def stop(self) -> None:
        """Let everything end."""
        self.gate.set()
        await self.pool.stop()

    async def test_runs(self) -> None:
        """A job runs in another thread; its result and its error come back in this one."""
        self.assertTrue(verifyObject(IWorkPool, self.pool))
        self.assertNotEqual(await self.pool.run(get_ident), get_ident())
        self.assertEqual(await self.pool.run(divmod, 7, 2), (3, 1))
        with self.assertRaises(Boom):
            await self.pool.run(boom)
        self.assertEqual(self.pool.figures().threads, 1)
        await self.stop()

    async def test_bounded(self) -> None:
        """More than the limit is refused, except what cleans up; then work goes on."""
        jobs = [self.pool.run(self.gate.wait, PATIENCE) for _ in range(5)]
        with self.assertRaises(StoreBusy):
            await self.pool.run(str)
        jobs.append(self.pool.runAnyway(self.gate.wait, PATIENCE))
        self.gate.set()
        self.assertEqual(await gatherResults(jobs), [True] * 6)
        self.assertEqual(await self.pool.run(str), "")
        await self.stop()

    async def test_stop(self) -> None:
        """Stopping waits for all that was taken, takes no more and leaves no thread."""
        jobs = [self.pool.run(self.gate.wait, PATIENCE) for _ in range(4)]
        stopped = self.pool.stop()
        self.assertFalse(stopped.called)
        with self.assertRaises(StoreBusy):
            await self.pool.run(str)
        with self.assertRaises(StoreBusy):
            await self.pool.runAnyway(str)
        self.gate.set()
        await stopped
        self.assertTrue(all(job.called for job in jobs))
        self.assertEqual([t for t in livingThreads() if t.name.startswith("pool-under")], [])

    async def test_cancelled(self) -> None:
        """A job whose Deferred was cancelled still runs, and its result harms nobody."""
        done = Event()
        job = self.pool.run(done.set)
        job.addErrback(lambda _: None)
        job.cancel()
        await self.stop()
        self.assertTrue(done.is_set())


class ManualReactor:
    """Keeps what threads send to the reactor until the test takes it."""

    def __init__(self) -> None:
        self.calls: deque = deque()
        self.woken = Event()

    def callFromThread(self, function, *args) -> None:  # type: ignore[no-untyped-def]
        """Keep a call."""
        self.calls.append((function, args))
        self.woken.set()

    def turn(self) -> None:
        """Make the calls that wait."""
        # One by one: a thread may be about to add one to what is here now.
        while self.calls:
            function, args = self.calls.popleft()
            function(*args)


class DeliveryTests(SynchronousTestCase):
    """What the reactor sees of L{BoundedThreadPool}."""

    def setUp(self) -> None:
        self.reactor = ManualReactor()
        self.clock = Clock()
        self.pool = BoundedThreadPool(self.reactor, threads=1, now=self.clock.seconds)

    def finish(self) -> None:
        """Stop the pool, turning the reactor by hand."""
        stopped = self.pool.stop()
        while not stopped.called:
            self.assertTrue(self.reactor.woken.wait(PATIENCE))
            self.reactor.woken.clear()
            self.reactor.turn()

    def test_noThread(self) -> None:
        """Where the first thread cannot be started the job is refused, and none is left waiting."""

        def start(thread: Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched = self.patch(Thread, "start", start)
        self.failureResultOf(self.pool.run(list), StoreBusy)
        patched.restore()
        self.assertEqual((self.pool.figures().threads, self.pool.figures().waiting), (0, 0))
        result = self.pool.run(list)
        self.finish()
        self.assertEqual(self.successResultOf(result), [])

    def test_lazy(self) -> None:
        """A pool with nothing to do has no thread, and stops at once."""
        self.assertEqual(self.pool.figures().threads, 0)
        self.assertTrue(self.pool.stop().called)

    def test_oneWakeUp(self) -> None:
        """However many jobs end before the reactor turns, it is woken once for them."""
        last = Event()
        jobs: list[Deferred] = [self.pool.run(int, str(n)) for n in range(50)]
        jobs.append(self.pool.run(last.set))
        self.assertTrue(last.wait(PATIENCE))
        self.assertFalse(any(job.called for job in jobs))
        self.assertEqual(len(self.reactor.calls), 1)
        self.reactor.turn()
        self.assertEqual([self.successResultOf(job) for job in jobs[:50]], list(range(50)))
        self.finish()

    def test_figures(self) -> None:
        """The figures say how many jobs wait, and for how long the oldest has."""
        gate, started = Event(), Event()

        def hold() -> None:
            started.set()
            gate.wait(PATIENCE)

        self.pool.run(hold)
        self.assertTrue(started.wait(PATIENCE))
        self.pool.run(str)
        self.clock.advance(3)
        self.pool.run(str)
        self.clock.advance(1)
        figures = self.pool.figures()
        self.assertEqual((figures.threads, figures.waiting, figures.lagSeconds), (1, 2, 4))
        gate.set()
        self.finish()
        self.assertEqual(self.pool.figures().waiting, 0)
