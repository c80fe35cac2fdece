"""How many jobs run, when they pause, and how they end; the objects are those of test_jobs."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.jobs import JobManager, JobView, NewJob
from storagegate.core.errors import ServiceError
from storagegate.objects.accounts import AccountKey, Identity
from storagegate.objects.errors import AccessDenied
from storagegate.storage.consolerecords import ConsoleRecord, RecordLimits
from storagegate.storage.embedded.consolerecords import EmbeddedConsoleRecords
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey


class _Pool:
    """Runs at once what blocks."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call a function."""
        return succeed(function(*arguments))


class JobManagerTests(SynchronousTestCase):
    """Jobs whose work the test does."""

    def setUp(self) -> None:
        """Have a manager, a clock and a key."""
        self.clock = Clock()
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.key = AccountKey(Identity("KEY", "account"), "secret")
        self.keys = {"KEY": self.key}
        self.manager = self.makeManager()
        self.took = 0.25

    def makeManager(self, *, link: object = None) -> JobManager:
        """Make a manager, as a process that starts."""
        self.records = EmbeddedConsoleRecords(self.directory, _Pool())  # type: ignore[arg-type]
        services: Any = SimpleNamespace(
            records=self.records,
            accounts=SimpleNamespace(renew=self.renew),
            reactor=self.clock,
            now=lambda: 1_000_000.0 + self.clock.seconds(),
            link=link,
        )
        return JobManager(services)

    def renew(self, key: AccountKey) -> AccountKey | None:
        """Return the current state of a key."""
        return self.keys.get(key.identity.accessKey)

    def wait(self, coroutine: Any) -> Any:
        """Return the result of a coroutine."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def start(self, turns: int = 1000, manager: JobManager | None = None) -> JobView:
        """Start a job of some turns, each of which takes C{took} seconds."""

        async def work(run: Any) -> None:
            for _ in range(turns):
                self.clock.rightNow += self.took
                run.job.done += 1000
                await run.turn()

        wanted = NewJob(kind="deletePrefix", bucket="b")
        found: JobView = self.wait((manager or self.manager).start(self.key, wanted, work))
        return found

    def job(self, id: str, manager: JobManager | None = None) -> JobView:
        """Return a job."""
        jobs = self.wait((manager or self.manager).jobs())
        found: JobView = next(each for each in jobs if each.id == id)
        return found

    def test_othersFirst(self) -> None:
        """After each turn a job pauses for as long as that took, but for a second at most."""
        id = self.start(3).id
        self.assertEqual(self.job(id).done, 0)
        self.clock.advance(0.2)
        self.assertEqual(self.job(id).done, 0)
        self.took = 4.0
        self.clock.advance(0.05)
        self.assertEqual(self.job(id).done, 1000)
        self.clock.advance(0.9)
        self.assertEqual(self.job(id).done, 1000)
        self.clock.advance(0.1)
        self.assertEqual(self.job(id).done, 2000)
        self.clock.advance(1.0)
        ended = self.job(id)
        self.assertEqual((ended.state, ended.done, ended.failures), ("done", 3000, 0))
        self.assertGreater(ended.endedMs or 0, ended.startedMs)

    def test_leavesOne(self) -> None:
        """A key without a role has three jobs at most; another one starts the fourth."""
        issued = AccessKey("PLAIN", "secret", "account", "readwrite")
        plain = AccountKey(Identity("PLAIN", "account"), "secret", issued)
        self.keys["PLAIN"] = plain
        admin, self.key = self.key, plain
        for _ in range(3):
            self.start()
        with self.assertRaises(AssertionError):
            self.start()
        self.key = admin
        self.assertEqual(self.start().state, "running")

    def test_four(self) -> None:
        """Four jobs run at a time; then another one may."""
        ids = [self.start().id for _ in range(4)]
        failure = self.failureResultOf(
            Deferred.fromCoroutine(
                self.manager.start(
                    self.key, NewJob(kind="copyPrefix", bucket="b"), lambda run: None
                )
            ),
            ServiceError,
        )
        self.assertEqual(failure.value.code, "RATE_LIMITED")
        self.wait(self.manager.cancel(ids[0]))
        self.clock.advance(1.0)
        self.assertEqual(self.job(ids[0]).state, "cancelled")
        self.start()

    def test_cancel(self) -> None:
        """A job that is cancelled ends with its turn; cancelled again, it is forgotten."""
        id = self.start().id
        self.wait(self.manager.cancel(id))
        self.assertEqual(self.job(id).state, "running")
        self.clock.advance(1.0)
        self.assertEqual((self.job(id).state, self.job(id).done), ("cancelled", 1000))
        self.wait(self.manager.cancel(id))
        self.assertEqual(self.wait(self.manager.jobs()), [])

    def test_otherWorker(self) -> None:
        """What one worker runs another one lists and cancels."""
        first, second = self.makeManager(link=object()), self.makeManager(link=object())
        id = self.start(manager=first).id
        self.assertEqual(self.job(id, second).state, "running")
        self.wait(second.cancel(id))
        self.clock.advance(1.0)
        self.assertEqual(self.job(id, second).state, "cancelled")

    def test_newerVersion(self) -> None:
        """A job of a kind that another version has is not listed, and stops no other job."""
        id = self.start().id
        job = {**msgspec.to_builtins(self.job(id)), "id": "later", "kind": "laterKind"}
        document = msgspec.json.encode({"job": job, "wroteMs": job["startedMs"]})
        record = ConsoleRecord("job", "later", "KEY", 2**52, document)
        limits = RecordLimits(most=10, mostOfOwner=10, mostBytesOfOwner=1 << 20)
        self.assertTrue(self.wait(self.records.add(record, limits, 0)))
        self.assertEqual([each.id for each in self.wait(self.manager.jobs())], [id])
        self.assertEqual(self.start().state, "running")

    def test_race(self) -> None:
        """Processes that start the fourth job at the same time never run five."""
        first, second = self.makeManager(link=object()), self.makeManager(link=object())
        for _ in range(3):
            self.start(manager=first)
        records: Any = first._services.records
        add = records.add

        async def addLater(*arguments: Any) -> bool:
            """Store a job after the other process has started one."""
            records.add = add
            self.start(manager=second)
            isStored: bool = await add(*arguments)
            return isStored

        records.add = addLater
        wanted = NewJob(kind="copyPrefix", bucket="b")
        starting = Deferred.fromCoroutine(first.start(self.key, wanted, lambda run: None))
        failure = self.failureResultOf(starting, ServiceError)
        self.assertEqual(failure.value.code, "RATE_LIMITED")
        running = [each.id for each in self.wait(second.jobs()) if each.state == "running"]
        self.assertEqual(len(running), 4)

    def test_disconnected(self) -> None:
        """A job whose client disconnects while it is stored does not run, and takes no place."""
        records: Any = self.manager._services.records
        add = records.add
        for _ in range(4):

            async def addLater(*arguments: Any) -> bool:
                """Store a job, and lose its client."""
                await add(*arguments)
                isStored: bool = await Deferred()
                return isStored

            records.add = addLater
            wanted = NewJob(kind="copyPrefix", bucket="b")
            starting = Deferred.fromCoroutine(
                self.manager.start(self.key, wanted, lambda run: None)
            )
            starting.cancel()
            self.failureResultOf(starting, CancelledError)
        records.add = add
        states = [each.state for each in self.wait(self.manager.jobs())]
        self.assertEqual(states, ["interrupted"] * 4)
        self.assertEqual(self.start().state, "running")

    def test_stop(self) -> None:
        """A stop leaves jobs interrupted."""
        id = self.start().id
        closed = Deferred.fromCoroutine(self.manager.close())
        self.clock.advance(1.0)
        self.successResultOf(closed)
        found = self.job(id, self.makeManager())
        self.assertEqual((found.state, found.done), ("interrupted", 1000))

    def test_killed(self) -> None:
        """
        A process that was killed leaves them, too: at once without workers, and half a minute
        later with them. They count no more among the four.
        """
        ids = [self.start().id for _ in range(4)]
        after = self.makeManager()
        self.assertEqual({self.job(id, after).state for id in ids}, {"interrupted"})
        workers = self.makeManager(link=object())
        self.assertEqual({self.job(id, workers).state for id in ids}, {"running"})
        self.clock.rightNow += 31
        self.assertEqual({self.job(id, workers).state for id in ids}, {"interrupted"})
        self.start(manager=workers)
        self.wait(after.cancel(ids[0]))
        self.assertNotIn(ids[0], [each.id for each in self.wait(after.jobs())])

    def test_longTurn(self) -> None:
        """
        A job that takes minutes for one object runs for all workers, and can be cancelled by each;
        nothing is written after its end.
        """
        first, second = self.makeManager(link=object()), self.makeManager(link=object())
        turns: list[Deferred[None]] = [Deferred(), Deferred()]

        async def work(run: Any) -> None:
            for each in turns:
                await each
                await run.turn(isBatchOver=False)

        wanted = NewJob(kind="copyPrefix", bucket="b")
        ids = [self.wait(first.start(self.key, wanted, work)).id for _ in range(2)]
        for _ in range(20):
            self.clock.advance(5)
            self.assertEqual({self.job(id, second).state for id in ids}, {"running"})
        self.wait(second.cancel(ids[0]))
        self.clock.advance(5)
        for turn in turns:
            turn.callback(None)
        self.assertEqual([self.job(id, second).state for id in ids], ["cancelled", "done"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unwritten(self) -> None:
        """A job goes on if its records cannot be used while it takes long for an object."""
        records: Any = self.manager._services.records
        replace, turn = records.replace, Deferred[None]()

        async def fail(record: ConsoleRecord) -> bool:
            raise StoreBusy("the file is locked")

        async def work(run: Any) -> None:
            await turn

        wanted = NewJob(kind="copyPrefix", bucket="b")
        id = self.wait(self.manager.start(self.key, wanted, work)).id
        records.replace = fail
        self.clock.advance(5)
        records.replace = replace
        turn.callback(None)
        self.assertEqual(self.job(id).state, "done")

    def test_key(self) -> None:
        """A job ends when its key is revoked, or has another secret."""
        for new in (None, AccountKey(self.key.identity, "another")):
            self.keys = {"KEY": self.key}
            id = self.start().id
            self.keys = {} if new is None else {"KEY": new}
            self.clock.advance(1.0)
            found = self.job(id)
            self.assertEqual((found.state, found.done), ("failed", 1000))
            self.assertIn("UNAUTHENTICATED", found.error)

    def test_failures(self) -> None:
        """A hundred failures are kept, the others counted; an error of ours fails the job."""

        async def work(run: Any) -> None:
            for number in range(150):
                run.failed(f"key-{number}", AccessDenied())
            raise RuntimeError("ours")

        wanted = NewJob(kind="deletePrefix", bucket="b")
        id = self.wait(self.manager.start(self.key, wanted, work)).id
        found = self.job(id)
        self.assertEqual((found.state, found.error), ("failed", "Internal error"))
        self.assertEqual((found.failures, len(found.failed)), (150, 100))
        self.assertTrue(found.failed[0].error.startswith("AccessDenied"))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_kept(self) -> None:
        """Two hundred that are over are kept, the newest."""
        for _ in range(203):
            last = self.start(0).id
            self.clock.rightNow += 1
        found = [each.id for each in self.wait(self.manager.jobs())]
        self.assertEqual((len(found), found[0]), (201, last))
