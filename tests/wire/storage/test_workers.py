"""Two real processes on one store."""

import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

from attrs import define, field
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.fsck import check
from storagegate.storage.errors import (
    ConcurrentChange,
    CorruptBlob,
    PreconditionFailed,
    StoreReadOnly,
)
from storagegate.storage.files import StoreLocked
from storagegate.storage.identity import MARKER
from tests.support.model import etagOf
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.support.stores import fastDirectory
from tests.support.storeworkers import PATIENCE_SECONDS, StoreProcess, StoreWorkers, WorkerDied
from tests.support.syncs import endFailing, failSyncs

SMALL = "small"
LARGE = "a blob of its own" * 100


def read(body: str) -> list[Any]:
    """What a worker says of an object with this body."""
    etag = etagOf(body.encode())
    return [etag, etag, len(body)]


def sometime(condition: Callable[[], bool]) -> bool:
    """Ask again and again, as long as one may wait; each question takes a moment."""
    until = monotonic() + PATIENCE_SECONDS
    while not condition():
        if monotonic() > until:
            return False
    return True


class PairCase(SynchronousTestCase):
    """A store with a bucket that two processes serve."""

    timeout = 60

    def setUp(self) -> None:
        """Start both."""
        self.directory = fastDirectory(self)
        self.workers = StoreWorkers(self, self.directory)
        self.one, self.two = self.workers.processes
        self.one.do("createBucket", bucket="b")

    def files(self, name: str) -> set[str]:
        """The files below C{blobs/} or C{staging/}."""
        top = os.path.join(self.directory, name)
        return {each for _, _, names in os.walk(top) for each in names} - {MARKER}

    def verify(self) -> None:
        """Close everything: the catalog and the files agree to the last byte."""
        for operation in ("idle", "close"):
            for process in self.workers.processes:
                process.do(operation)
        self.workers.close()
        self.workers.release()
        problems: list[str] = []
        self.assertEqual((check(self.directory, False, True, problems.append), problems), (0, []))


class SharedStoreTests(PairCase):
    """What one does, the other sees."""

    @long("takes a second or more")
    def test_readsWhatWasWritten(self) -> None:
        """An answered write of one process is seen by the other's next read, also by hot ones."""
        for number in range(60):
            writer, reader = (self.one, self.two) if number % 2 else (self.two, self.one)
            body = f"{number}" if number % 3 else f"{number}" + LARGE
            writer.do("put", bucket="b", key="k", body=body)
            for _ in range(2):
                self.assertEqual(reader.do("get", bucket="b", key="k"), read(body))
                self.assertEqual(writer.do("get", bucket="b", key="k"), read(body))
        self.one.do("delete", bucket="b", keys=["k"])
        self.assertIsNone(self.two.do("get", bucket="b", key="k"))
        self.assertEqual(self.two.do("listing", bucket="b"), [])
        self.one.do("idle")
        self.verify()
        self.assertEqual(self.files("blobs") | self.files("staging"), set())

    def test_conditions(self) -> None:
        """Of writes that exclude each other one is made, whichever processes they came to."""
        for number in range(10):
            put = {"bucket": "b", "key": f"{number}", "condition": {"absent": True}}
            asked = [
                process.ask("put", body=f"{process.index}", **put)
                for process in (self.one, self.two) * 3
            ]
            refused = [each.exception(PATIENCE_SECONDS) for each in asked]
            self.assertEqual(sum(each is None for each in refused), 1)
            for each in refused:
                self.assertIsInstance(each, PreconditionFailed | None)

    def test_uploads(self) -> None:
        """An upload is filled by both and completed by one; of two completions one is refused."""
        self.one.do("createUpload", uploadId="u", bucket="b", key="k")
        where = {"bucket": "b", "key": "k", "uploadId": "u"}
        for number, process in enumerate((self.one, self.two, self.one), 1):
            process.do("putPart", **where, number=number, body=LARGE)
        parts = [[number, etagOf(LARGE.encode())] for number in (1, 2, 3)]
        etag = etagOf(3 * LARGE.encode())
        done = [
            process.ask("complete", **where, parts=parts, etag=etag)
            for process in (self.one, self.two)
        ]
        self.assertEqual(sum(each.exception(PATIENCE_SECONDS) is None for each in done), 1)
        for process in (self.one, self.two):
            self.assertEqual(process.do("get", bucket="b", key="k"), read(3 * LARGE))
        self.verify()

    def test_groups(self) -> None:
        """Both commit what waits together, and neither waits for long."""
        bursts = [process.ask("burst", bucket="b", count=200) for process in (self.one, self.two)]
        for burst in bursts:
            self.assertLess(burst.result(PATIENCE_SECONDS), 20)
        self.assertEqual(len(self.one.do("listing", bucket="b")), 400)

    @long("takes a second or more")
    def test_observers(self) -> None:
        """Whoever watches in one process hears of the other's changes, in order."""
        self.two.do("watch")
        self.one.do("put", bucket="b", key="k\N{EM DASH}", body=SMALL)
        self.one.do("put", bucket="b", key="large", body=LARGE)
        self.one.do("delete", bucket="b", keys=["k\N{EM DASH}", "large", "missing"])
        self.one.do("deleteBucket", bucket="b")
        seen: list[Any] = []

        def hasAll() -> bool:
            seen.extend(self.two.do("seen"))
            return len(seen) >= 5

        self.assertTrue(sometime(hasAll), seen)
        self.assertEqual(
            seen,
            [
                ["b", "k\N{EM DASH}", etagOf(SMALL.encode())],
                ["b", "large", etagOf(LARGE.encode())],
                ["b", "k\N{EM DASH}", None],
                ["b", "large", None],
                ["b", None, None],
            ],
        )

    @long("takes a second or more")
    def test_keys(self) -> None:
        """A key that one process issues or revokes is known, or not, to both, soon."""
        for process in (self.one, self.two):
            self.assertFalse(process.do("knowsKey", accessKey="KEY"))
        self.one.do("addKey", accessKey="KEY")
        for process in (self.one, self.two):
            self.assertTrue(sometime(lambda p=process: p.do("knowsKey", accessKey="KEY")))
        self.two.do("removeKey", accessKey="KEY")
        for process in (self.one, self.two):
            self.assertTrue(sometime(lambda p=process: not p.do("knowsKey", accessKey="KEY")))

    @long("takes a second or more")
    def test_rightAgain(self) -> None:
        """A mark of damage is that of both processes, and goes in both when one finds it right."""
        self.one.do("put", bucket="b", key="k", body=LARGE)
        [name] = self.files("blobs")
        [path] = Path(self.directory, "blobs").rglob(name)
        kept = path.read_bytes()
        os.truncate(path, 5)
        with self.assertRaises(CorruptBlob):
            self.two.do("get", bucket="b", key="k")
        both = (self.one, self.two)
        self.assertTrue(sometime(lambda: [each.do("state")["damaged"] for each in both] == [1, 1]))
        path.write_bytes(kept)
        self.assertEqual(self.one.do("get", bucket="b", key="k"), read(LARGE))
        self.assertTrue(sometime(lambda: [each.do("state")["damaged"] for each in both] == [0, 0]))

    @long("takes a second or more")
    def test_failedSync(self) -> None:
        """Where an fsync fails in one process, none writes any more; reads go on."""
        self.two.do("put", bucket="b", key="k", body=LARGE)
        self.one.do("failSyncs")
        for process in (self.one, self.two):
            with self.assertRaises(StoreReadOnly):
                process.do("put", bucket="b", key="k", body=LARGE + "again")
            state = process.do("state")
            self.assertIn("fsync of a file failed", state["readOnly"])
            self.assertIn("fsync", state["health"]["blobs"])
            self.assertEqual(process.do("get", bucket="b", key="k"), read(LARGE))
        with self.assertRaises(StoreReadOnly):
            self.two.do("put", bucket="b", key="k", body=SMALL)
        self.two.kill()
        late = self.workers.start(1)
        with self.assertRaises(StoreReadOnly):
            late.do("put", bucket="b", key="k", body=SMALL)

    def test_failedCommit(self) -> None:
        """A commit of one process that cannot be made durable is the last of both."""
        log = Path(self.directory).parent / "strace.log"
        self.two.do("put", bucket="b", key="k", body=SMALL)
        tracer = failSyncs(self, needProgram("strace"), self.one.process.pid, log)
        with self.assertRaises(StoreReadOnly):
            self.one.do("put", bucket="b", key="k", body="lost")
        endFailing(tracer)
        for process in (self.one, self.two):
            with self.assertRaises(StoreReadOnly):
                process.do("put", bucket="b", key="k", body="late")
            self.assertIn(
                "a write of the catalog failed: disk I/O error",
                process.do("state")["health"]["catalog"],
            )
            self.assertEqual(process.do("get", bucket="b", key="k"), read(SMALL))

    def test_lock(self) -> None:
        """Nobody else opens the store while a process lives, whatever became of their parent."""
        self.workers.release()
        for process in (self.one, self.two):
            with self.assertRaises(StoreLocked):
                check(self.directory, False, False, lambda _: None)
            process.do("close")
            process.end()
        self.assertEqual(check(self.directory, False, True, lambda _: None), 0)


class ReaderTests(PairCase):
    """Readers in one process, while the other replaces and removes what they read."""

    def upload(self, id: str, seed: str) -> str:
        """Make the object of five blobs."""
        where = {"bucket": "b", "key": "k", "uploadId": id}
        self.one.do("createUpload", **where)
        bodies = [seed + str(number) + LARGE for number in range(5)]
        asked = [
            self.one.ask("putPart", **where, number=number, body=body)
            for number, body in enumerate(bodies, 1)
        ]
        for each in asked:
            each.result(PATIENCE_SECONDS)
        whole = "".join(bodies)
        parts = [[number, etagOf(body.encode())] for number, body in enumerate(bodies, 1)]
        self.one.do("complete", **where, parts=parts, etag=etagOf(whole.encode()))
        return whole

    @long("takes a second or more")
    def test_wholeOrNothing(self) -> None:
        """A slow reader gets all of one object, or none: never another's bytes, or fewer."""
        wanted = {tuple(read(self.upload("u", "first")))}
        readers: list[Future[Any]] = []
        for number in range(40):
            for pause in (0.0, 0.001, 0.02):
                readers.append(self.two.ask("get", bucket="b", key="k", pauseSeconds=pause))
            wanted.add(tuple(read(self.upload(f"u{number}", f"{number}"))))
            if number % 4 == 0:
                readers.append(self.two.ask("get", bucket="b", key="k", pauseSeconds=0.01))
                self.one.do("delete", bucket="b", keys=["k"])
        results = [each.result(PATIENCE_SECONDS) for each in readers]
        self.assertLessEqual({tuple(each) for each in results if each is not None}, wanted)
        self.assertGreater(sum(each is not None for each in results), 30)
        self.one.do("delete", bucket="b", keys=["k"])
        self.assertTrue(sometime(lambda: not self.files("blobs")), self.files("blobs"))
        self.verify()

    @long("takes a second or more")
    def test_descriptorsGo(self) -> None:
        """What one removes, the other has no longer open: its room on the disk is free."""
        self.two.do("put", bucket="b", key="k", body=LARGE)
        self.assertEqual(self.two.do("get", bucket="b", key="k"), read(LARGE))
        self.one.do("delete", bucket="b", keys=["k"])

        def opened() -> list[str]:
            top = f"/proc/{self.two.process.pid}/fd"
            return [os.path.realpath(os.path.join(top, each)) for each in os.listdir(top)]

        self.assertTrue(sometime(lambda: not any("/blobs/" in each for each in opened())))

    @long("takes a second or more")
    def test_copies(self) -> None:
        """A copy of what the other process deletes is whole, or refused."""
        for number in range(40):
            self.one.do("put", bucket="b", key="k", body=f"{number}" + LARGE)
            copy = self.two.ask("copy", bucket="b", source="k", key=f"{number}")
            gone = self.one.ask("delete", bucket="b", keys=["k"])
            gone.result(PATIENCE_SECONDS)
            try:
                copy.result(PATIENCE_SECONDS)
            except ConcurrentChange:
                self.assertIsNone(self.one.do("get", bucket="b", key=f"{number}"))
            except Exception as error:
                # There was nothing to copy any more.
                self.assertIn("NoSuchKey", repr(error))
            else:
                found = self.one.do("get", bucket="b", key=f"{number}")
                self.assertEqual(found, read(f"{number}" + LARGE))
        self.one.do("idle")
        self.verify()


@define
class Writer:
    """
    Writes to one process, one thing after the other, until it dies or the test ends.

    @ivar acknowledged: Keys, and the bodies that were acknowledged for them last.
    @ivar doubtful: What the last thing was, if there was no answer to it.
    """

    process: StoreProcess
    name: str
    acknowledged: dict[str, str | None] = field(factory=dict)
    doubtful: tuple[str, str | None] | None = None
    going: bool = True
    done: int = 0

    def run(self) -> None:
        """Write until there is an end."""
        while self.going:
            key = f"{self.name}/{self.done % 7}"
            body: str | None = f"{self.name} {self.done}" + (LARGE if self.done % 2 else "")
            if self.done % 5 == 4:
                body = None
            self.doubtful = (key, body)
            try:
                if body is None:
                    self.process.do("delete", bucket="b", keys=[key])
                else:
                    self.process.do("put", bucket="b", key=key, body=body)
            except WorkerDied:
                return
            self.acknowledged[key] = body
            self.doubtful = None
            self.done += 1


class DeathTests(PairCase):
    """One of two processes is killed."""

    @long("takes a second or more")
    def test_nothingIsLost(self) -> None:
        """What was acknowledged is there, whoever died; the other goes on, and one takes over."""
        writers: list[Writer] = []
        for round in range(2):
            now = [
                Writer(process, f"{round}{process.index}{number}")
                for process in self.workers.processes
                for number in range(4)
            ]
            threads = [Thread(target=writer.run) for writer in now]
            for thread in threads:
                thread.start()
            dying, living = now[:4], now[4:]
            if round % 2:
                dying, living = living, dying
            self.assertTrue(sometime(lambda d=dying: min(w.done for w in d) > 20))
            dying[0].process.kill()
            before = [writer.done for writer in living]
            self.assertTrue(
                sometime(
                    lambda v=living, b=before: all(
                        w.done > d + 10 for w, d in zip(v, b, strict=True)
                    ),
                )
            )
            self.workers.start(dying[0].process.index)
            for writer in now:
                writer.going = False
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
                self.assertFalse(thread.is_alive())
            writers += now
            for process in self.workers.processes:
                self.compare(process, writers)
        self.assertEqual(self.files("staging"), set())
        self.verify()

    def compare(self, process: StoreProcess, writers: list[Writer]) -> None:
        """See that a process has all that was acknowledged."""
        for writer in writers:
            for key, body in writer.acknowledged.items():
                found = process.do("get", bucket="b", key=key)
                wanted = [None if body is None else read(body)]
                if writer.doubtful is not None and writer.doubtful[0] == key:
                    last = writer.doubtful[1]
                    wanted.append(None if last is None else read(last))
                self.assertIn(found, wanted)

    def test_leftovers(self) -> None:
        """Who takes over removes what the dead one was receiving, not what the living one is."""
        self.one.do("begin", size=1000)
        (kept,) = self.files("staging")
        self.two.do("begin", size=1000)
        self.assertEqual(len(self.files("staging")), 2)
        self.two.kill()
        self.workers.start(1)
        self.assertEqual((self.files("staging"), self.files("blobs")), ({kept}, {kept}))

    def test_garbage(self) -> None:
        """Who takes over removes what the dead one was about to, once its readers have ended."""
        self.two.do("put", bucket="b", key="k", body=LARGE)
        reader = self.one.ask("get", bucket="b", key="k", waits=True)
        # The answer to this says that the one before is under way.
        self.one.do("state")
        self.two.do("delete", bucket="b", keys=["k"])
        self.two.kill()
        self.assertEqual(len(self.files("blobs")), 1)
        self.workers.start(1)
        self.assertEqual(len(self.files("blobs")), 1)
        self.one.do("letRead")
        self.assertEqual(reader.result(PATIENCE_SECONDS), read(LARGE))
        self.assertTrue(sometime(lambda: not self.files("blobs")))
        self.verify()
