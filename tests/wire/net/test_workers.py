"""Workers as processes of their own, on a socket that they share."""

import http.client
import os
import signal
import sys
import threading
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installedReactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.net.endpoints import bind
from storagegate.net.ipc import CONTROL, WorkerSetup
from storagegate.net.workers import WorkerCommand, WorkerFailed, WorkerPool
from tests.support.daemon import daemonEnvironment
from tests.support.load import Load
from tests.support.selection import long

reactor: Any = installedReactor


def isAlive(pid: int) -> bool:
    """Tell whether there is a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class WorkersCase(TestCase):
    """Two workers that answer HTTP."""

    timeout = 120

    def setUp(self) -> None:
        """Make a directory."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    async def began(
        self,
        hangSeconds: float = 600,
        output: Callable[[bytes], object] | None = None,
        **options: Any,
    ) -> WorkerPool:
        """
        Bind a port and start the workers.

        @param hangSeconds: So long that none is killed that only has no turn.
        """
        self.place = await bind(reactor, "tcp:0:interface=127.0.0.1")
        self.addCleanup(self.place.port.stopListening)
        self.number = self.place.port.getHost().port
        self.counts: list[int] = []
        self.workers = WorkerPool(
            reactor,
            self.program(**options),
            output=output,
            changed=self.changed,
            idleGraceSeconds=20,
            hangSeconds=hangSeconds,
        )
        self.addCleanup(self.workers.stop, 1)
        self.workers.start()
        return self.workers

    def changed(self) -> None:
        """Remember how many there are."""
        self.counts.append(self.workers.ready)

    def program(self, **options: Any) -> WorkerCommand:
        """Describe the workers."""
        places = {"http": self.place.inherited(CONTROL + 1)}
        return WorkerCommand(
            command=[sys.executable, "-m", "tests.support.workerprogram"],
            environment=daemonEnvironment(),
            descriptors={CONTROL + 1: self.place.port.fileno()},
            own=[{}, {}],
            setup=WorkerSetup(0, 2, places, {}, {"greeting": "one", **options}),
        )

    async def ask(self, path: str = "/") -> list[str]:
        """Ask by a new connection; give the words of the answer."""
        answer: str = await deferToThread(self.askBlocking, path)
        return answer.split(" ")

    def askBlocking(self, path: str) -> str:
        """Ask by a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.number, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; the test's timeout ends the waiting."""
        while not holds():
            await deferLater(reactor, 0.02)


class ServingTests(WorkersCase):
    """What workers do together."""

    async def test_noisyStart(self) -> None:
        """Workers start whose output, which this process passes on, is more than a pipe holds."""
        written: list[bytes] = []
        noise = 1 << 18
        workers = await self.began(output=written.append, noise=noise)
        self.assertEqual(workers.ready, 2)
        await self.until(lambda: sum(map(len, written)) >= 2 * noise)

    async def test_together(self) -> None:
        """
        Both accept on one socket, and neither is the process that watches over them; what one says
        the others hear and it does not; a question is answered by all. A stop ends all of them in
        order, and nobody is replaced.
        """
        workers = await self.began()
        pids = workers.pids
        asked = set()
        while len(asked) < 2:
            asked.add(int((await self.ask())[1]))
        self.assertEqual(asked, set(pids))
        self.assertNotIn(os.getpid(), asked)
        self.assertEqual(self.counts, [2])
        teller = (await self.ask("/tell"))[1]
        heard: dict[str, str] = {}
        while len(heard) < 2 or "1" not in heard.values():
            words = await self.ask()
            heard[words[1]] = words[3]
        self.assertEqual(heard.pop(teller), "0")
        self.assertEqual(list(heard.values()), ["1"])
        answers = literal_eval(" ".join(await self.ask("/ask")))
        self.assertEqual(answers, [[i, pid, "x"] for i, pid in enumerate(pids)])
        await workers.stop(5)
        self.assertEqual(workers.ready, 0)
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    async def test_refused(self) -> None:
        """A worker that cannot start is refused with its own line, and none is left."""
        with self.assertRaises(WorkerFailed) as caught:
            await self.began(breaks=True)
        self.assertEqual(str(caught.exception), "the fuse has blown")


class ReplacingTests(WorkersCase):
    """Who comes in a worker's place."""

    @long("takes seconds")
    async def test_killed(self) -> None:
        """A worker that dies is replaced; meanwhile the other one serves everybody."""
        gate = self.directory / "gate"
        gate.touch()
        workers = await self.began(gate=str(gate))
        victim, other = workers.pids
        gate.unlink()
        os.mkfifo(gate)
        os.kill(victim, signal.SIGKILL)
        await self.until(lambda: workers.ready == 1)
        for _ in range(3):
            self.assertEqual(int((await self.ask())[1]), other)
        self.openGate(gate)
        await self.until(lambda: workers.ready == 2)
        self.assertEqual(workers.pids[1], other)
        self.assertNotEqual(workers.pids[0], victim)
        self.assertEqual(self.counts, [2, 1, 2])

    def openGate(self, gate: Path) -> None:
        """Let whoever waits at a FIFO go on."""
        # Open for both, a FIFO waits for nobody, and whoever opens it to read finds a writer.
        self.addCleanup(os.close, os.open(gate, os.O_RDWR))

    @long("takes seconds")
    async def test_hanging(self) -> None:
        """A worker whose reactor does not turn any more is killed and replaced."""
        workers = await self.began(hangSeconds=2)
        [victim, _] = workers.pids
        os.kill(victim, signal.SIGSTOP)
        await self.until(lambda: not isAlive(victim) and workers.ready == 2)

    @long("takes seconds")
    async def test_roll(self) -> None:
        """Every worker is replaced under load, and no client sees a failure."""
        workers = await self.began()
        before = set(workers.pids)
        load = Load(self.number)
        try:
            await self.until(lambda: len(load.answered) > 50)
            await workers.roll(self.program(greeting="two"), 60)
            await self.until(lambda: not any(map(isAlive, before)))
            mark = len(load.answered)
            await self.until(lambda: len(load.answered) > mark + 50)
        finally:
            await deferToThread(load.end)
        self.assertEqual(load.failures, [])
        self.assertFalse(before & set(workers.pids))
        self.assertTrue(all(body.startswith(b"two") for _, body in load.answered[mark + 8 :]))
        # At no time were there fewer.
        self.assertEqual(min(self.counts), 2)

    @long("takes seconds")
    async def test_inFlight(self) -> None:
        """
        What is being answered when a worker is replaced is answered. Only one roll goes on at a
        time.
        """
        told, go = self.directory / "slow", self.directory / "go"
        told.touch()
        workers = await self.began(slow=str(told), go=str(go))
        slow = [deferToThread(self.askBlocking, "/slow") for _ in range(4)]
        await self.until(lambda: told.read_text() == "ssss")
        going = Deferred.fromCoroutine(workers.roll(self.program(greeting="two"), 60))
        with self.assertRaises(WorkerFailed):
            await workers.roll(self.program(), 10)
        await going
        while (await self.ask())[0] != "two":
            # Who was told to go just now may not have read that yet.
            pass
        go.touch()
        for answering in slow:
            self.assertTrue((await answering).startswith("one "))

    @long("takes seconds")
    async def test_rollRefused(self) -> None:
        """A successor that cannot start leaves the old worker in its place, and the old program."""
        gate = self.directory / "gate"
        gate.touch()
        workers = await self.began(gate=str(gate))
        before = workers.pids
        with self.assertRaises(WorkerFailed) as caught:
            await workers.roll(self.program(breaks=True), 10)
        self.assertEqual(str(caught.exception), "the fuse has blown")
        self.assertEqual(workers.pids, before)
        gate.unlink()
        os.mkfifo(gate)
        os.kill(before[0], signal.SIGKILL)
        await self.until(lambda: workers.ready == 1)
        self.openGate(gate)
        await self.until(lambda: workers.ready == 2)
        self.assertEqual((await self.ask())[0], "one")

    async def test_stopped(self) -> None:
        """A stop in the middle of a replacement ends all of them, and nobody comes after it."""
        path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        # Other tests may have some.
        others = set(path.read_text().split())
        workers = await self.began()
        rolling = Deferred.fromCoroutine(workers.roll(self.program(), 1))
        stopping = workers.stop(1)
        await self.assertFailure(rolling, WorkerFailed)
        await stopping
        self.assertEqual(set(path.read_text().split()) - others, set())
