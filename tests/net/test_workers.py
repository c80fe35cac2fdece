"""Watching over workers, with a reactor that only notes which processes it was to spawn."""

import os
import socket
from typing import Any

from msgspec import json
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from storagegate.net.ipc import CONTROL, MAX_FRAME, WorkerSetup, encode
from storagegate.net.workers import (
    HANG_SECONDS,
    IDLE_GRACE_SECONDS,
    LEAVE_SECONDS,
    WorkerCommand,
    WorkerFailed,
    WorkerPool,
)
from tests.support.log import LogCase

PROGRAM = WorkerCommand(["worker"], {}, {}, [{}, {}], WorkerSetup(0, 2, {}, {}))


class FakeProcess:
    """A process that only notes its signals."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.signals: list[str] = []

    def signalProcess(self, name: str) -> None:
        """Take a signal."""
        self.signals.append(name)


class SpawningClock(Clock):
    """
    A clock that also spawns.

    @ivar processes: Those that were spawned; each says at once that it serves.
    @ivar protocols: The protocols of their pairs.
    @ivar failures: What the next attempts to spawn fail with; C{None} for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Any] = []
        self.protocols: list[Any] = []
        self.failures: list[OSError | None] = []
        self._pairs: list[socket.socket] = []

    def areNext(self) -> list[bool]:
        """Tell of each process whether it was told that it has a predecessor."""
        return [b'"isNext":true' in pair.recv(65536, socket.MSG_PEEK) for pair in self._pairs]

    def close(self) -> None:
        """Close the pairs."""
        for pair in self._pairs:
            pair.close()

    def spawnProcess(self, protocol: Any, *arguments: Any, childFDs: dict[int, Any]) -> FakeProcess:
        """Note a process."""
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        pair = socket.socket(fileno=os.dup(childFDs[CONTROL]))
        self._pairs.append(pair)
        pair.sendall(encode({"kind": "ready"}))
        self.processes.append(protocol)
        return FakeProcess(len(self.processes))

    def adoptStreamConnection(self, descriptor: int, family: int, factory: Any) -> None:
        """Connect the protocol of a pair to nothing."""
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(StringTransport())
        self.protocols.append(protocol)


class WorkersCase(LogCase):
    """Two workers that serve."""

    def setUp(self) -> None:
        """Start them."""
        super().setUp()
        self.clock = SpawningClock()
        self.addCleanup(self.clock.close)
        self.workers = WorkerPool(self.clock, PROGRAM)
        self.assertTrue(self.workers.start())

    def end(self, worker: Any) -> None:
        """End a worker."""
        worker.processEnded(Failure(ProcessTerminated(signal=9)))


class HangingTests(WorkersCase):
    """Workers whose reactor does not turn."""

    def signals(self) -> list[list[str]]:
        """Give the signals of each."""
        return [worker.process.signals for worker in self.clock.processes]

    def test_silent(self) -> None:
        """Who gives no sign of life for a minute is killed; who gives one is not."""
        for _ in range(8):
            self.clock.advance(HANG_SECONDS / 6)
            self.clock.protocols[1].stringReceived(b'{"kind": "pong"}')
        self.assertIn("KILL", self.signals()[0])
        self.assertEqual(self.signals()[1], [])

    def test_clock(self) -> None:
        """A clock that is set forward by an hour, over night or by hand, kills nobody."""
        self.clock.advance(3600)
        self.clock.advance(HANG_SECONDS / 6)
        self.assertEqual(self.signals(), [[], []])


class ReplyTests(WorkersCase):
    """Questions of one worker to all."""

    def test_long(self) -> None:
        """Replies that are too large together are none, and the worker that asked goes on."""
        asker = self.clock.protocols[0]
        asker.transport.clear()
        asker.stringReceived(b'{"kind": "ask", "id": 7, "topic": "long", "payload": null}')
        text = "x" * (MAX_FRAME // 2)
        reply = json.encode({"kind": "reply", "id": 0, "value": text})
        for protocol in self.clock.protocols:
            protocol.stringReceived(reply)
        sent = asker.transport.value()
        self.assertLess(len(sent), 1000)
        self.assertIn(json.encode({"kind": "replies", "id": 7, "values": []}), sent)
        self.assertTrue(any("replies about long" in line for line in self.logged()))


class AbortTests(WorkersCase):
    """The end without a grace."""

    def test_abort(self) -> None:
        """All workers are killed at once."""
        self.workers.abort()
        self.assertEqual(
            [each.process.signals for each in self.clock.processes], [["KILL"], ["KILL"]]
        )


class ReplacingTests(WorkersCase):
    """A worker that ended, while the system has no room for another."""

    def test_again(self) -> None:
        """It is tried again until it goes, and told of."""
        self.clock.failures += [OSError(11, "no room"), OSError(11, "no room")]
        self.end(self.clock.processes[0])
        for seconds in (0, 1, 2):
            self.assertEqual(self.workers.ready, 1)
            self.clock.advance(seconds)
        self.assertEqual(len(self.clock.processes), 3)
        self.assertEqual(len([line for line in self.logged() if line.startswith("worker 0")]), 3)

    def test_roll(self) -> None:
        """A roll is given up, and those that serve go on."""
        self.clock.failures.append(OSError(11, "no room"))
        rolling = self.workers.roll(PROGRAM, 1.0)
        with self.assertRaisesRegex(WorkerFailed, "no room"):
            rolling.send(None)
        self.assertEqual(self.workers.ready, 2)


class TurnTests(WorkersCase):
    """What only one process reads at a time: datagrams."""

    def enters(self, number: int) -> int:
        """Count how often the process of a number was told to read."""
        count: int = self.clock.protocols[number].transport.value().count(b'"enter"')
        return count

    def test_first(self) -> None:
        """The first ones wait for nobody."""
        self.assertEqual(self.clock.areNext(), [False, False])

    def test_left(self) -> None:
        """A successor waits until its predecessor has left, and for no other worker."""
        rolling = self.roll()
        self.assertEqual(self.clock.areNext()[2:], [True, True])
        self.clock.protocols[0].stringReceived(b'{"kind": "left"}')
        self.assertEqual([self.enters(number) for number in range(4)], [0, 0, 1, 0])
        self.successResultOf(rolling)

    def test_ended(self) -> None:
        """It reads when its predecessor has ended, however that was."""
        self.roll()
        self.end(self.clock.processes[1])
        self.assertEqual([self.enters(number) for number in range(4)], [0, 0, 0, 1])

    def test_silent(self) -> None:
        """It reads when its predecessor has not said anything for too long."""
        self.roll()
        self.clock.advance(IDLE_GRACE_SECONDS + LEAVE_SECONDS - 0.1)
        self.assertEqual(self.enters(2), 0)
        self.clock.advance(0.2)
        self.assertEqual((self.enters(2), self.enters(3)), (1, 1))

    def test_replaced(self) -> None:
        """Who takes the place of one that has died waits for nobody."""
        self.end(self.clock.processes[0])
        self.clock.advance(0)
        self.assertEqual(self.clock.areNext()[2:], [False])

    def roll(self) -> Any:
        """Replace both."""
        rolling = Deferred.fromCoroutine(self.workers.roll(PROGRAM, 30))
        for number in (2, 3):
            self.clock.protocols[number].stringReceived(b'{"kind": "ready"}')
        return rolling


class StartingTests(WorkersCase):
    """Workers that do not serve yet."""

    def test_unwanted(self) -> None:
        """If everything is to stop, they are not waited for, and killed at once."""
        clock = SpawningClock()
        self.addCleanup(clock.close)
        workers = WorkerPool(clock, PROGRAM)
        self.assertFalse(workers.start(lambda: True))
        workers.stop(30)
        self.assertEqual([each.process.signals for each in clock.processes], [["KILL"]] * 2)

    def test_many(self) -> None:
        """If the system has no room for the second, the first does not stay."""
        clock = SpawningClock()
        self.addCleanup(clock.close)
        workers = WorkerPool(clock, PROGRAM)
        clock.failures += [None, OSError(11, "no room")]
        with self.assertRaisesRegex(WorkerFailed, "no room"):
            workers.start()
        self.assertEqual(clock.processes[0].process.signals, ["KILL"])
