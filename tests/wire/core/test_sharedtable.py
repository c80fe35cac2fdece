"""Shared memory between processes that hammer it, die in it and stand still in it."""

import fcntl
import os
import signal
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.ratelimit import Count, SharedRateLimitStore, makeRateMemory
from storagegate.core.sharedtable import TRIES, ProcessLiveness, SharedTable, TableBusy
from tests.support.sharing import HOLDER, Sharer, attached

COUNTER = """
from storagegate.core.ratelimit import Count, SharedRateLimitStore
store = SharedRateLimitStore(table, 600_000, "test")
say("ready")
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    store.increment(f"key {number % 7}")
say("done")
sys.stdin.readline()
# No other process counts now: what was counted apart goes into the table.
for number in range(7):
    store.increment(f"key {number}")
say("settled")
"""

# Dies while a record is written: of its head, the time is the last; before it, the record is there.
HALF = """
class Time:
    def __float__(self):
        os.kill(os.getpid(), signal.SIGKILL)

class Record(bytes):
    asked = 0
    def __len__(self):
        self.asked += 1
        if self.asked == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return 4

change = {"head": (b"half", Time()), "record": (Record(b"half"), 2e10)}[sys.argv[2]]
table.change(b"key", lambda record, until, now: change)
"""

# Writes records whose bytes are all the same, as fast as it can.
WRITER = """
from contextlib import suppress
from storagegate.core.sharedtable import TableBusy

say("ready")
number = 0
while True:
    number += 1
    record = bytes([number % 256]) * 200
    with suppress(TableBusy):
        table.change(b"key %d" % (number % 5), lambda old, until, now: (record, now + 600))
"""

PRESENT = """
from storagegate.core.sharedtable import ProcessLiveness
say(ProcessLiveness(fd).number)
sys.stdin.readline()
"""


class CountTests(SynchronousTestCase):
    """Counts of several processes."""

    timeout = 60

    def test_exact(self) -> None:
        """What three processes count at once adds up exactly, also where they met at a count."""
        fd = makeRateMemory(64)
        self.addCleanup(os.close, fd)
        sharers = [Sharer(self, (fd,), COUNTER, 20_000) for _ in range(3)]
        self.assertEqual([each.read() for each in sharers], ["ready"] * 3)
        for each in sharers:
            each.tell("go")
        self.assertEqual([each.read() for each in sharers], ["done"] * 3)
        self.assertEqual([each.ask("settle") for each in sharers], ["settled"] * 3)
        store = SharedRateLimitStore(attached(self, fd), 600_000, "test")
        counts = [(store.get(f"key {number}") or (0, 0))[0] for number in range(7)]
        self.assertEqual(sum(counts), 60_021)
        self.assertLessEqual(max(counts) - min(counts), 3)


class DeathTests(SynchronousTestCase):
    """Processes that end inside."""

    timeout = 60

    def setUp(self) -> None:
        """Make a table with a record."""
        self.fd = SharedTable.make("test", 64, 200)
        self.addCleanup(os.close, self.fd)
        self.table = attached(self, self.fd)
        self.write(b"before")

    def write(self, record: bytes) -> None:
        """Write the record."""
        self.table.change(b"key", lambda old, until, now: (record, now + 600))

    def record(self) -> bytes | None:
        """Read the record."""
        found = self.table.read(b"key")
        return None if found is None else found[0]

    def test_killedWithLock(self) -> None:
        """Who dies with a lock leaves it, and the record as it was."""
        holder = Sharer(self, (self.fd,), HOLDER, "SIGKILL")
        self.assertEqual(holder.read(), "ready")
        self.assertEqual(holder.process.wait(), -signal.SIGKILL)
        self.assertEqual(self.record(), b"before")
        self.write(b"later")
        self.assertEqual(self.record(), b"later")

    def test_killedWriting(self) -> None:
        """A record that is half written is none; it can be written anew."""
        for part in ("record", "head"):
            self.write(b"before")
            writer = Sharer(self, (self.fd,), HALF, part)
            self.assertEqual(writer.process.wait(), -signal.SIGKILL)
            self.assertIsNone(self.record(), part)
            self.assertEqual(len(self.table), 0)
        self.write(b"later")
        self.assertEqual((self.record(), len(self.table)), (b"later", 1))

    def test_killedAnywhere(self) -> None:
        """Wherever a process is killed, no record is ever seen that is not whole."""
        for _ in range(4):
            writers = [Sharer(self, (self.fd,), WRITER) for _ in range(2)]
            self.assertEqual([each.read() for each in writers], ["ready"] * 2)
            for number in range(2000):
                if number in (1000, 1500):
                    writers.pop().end()
                found = None
                try:
                    found = self.table.read(b"key %d" % (number % 5))
                except TableBusy:
                    self.assertNotEqual(writers, [])
                if found is not None:
                    self.assertEqual((len(found[0]), len(set(found[0]))), (200, 1))


class StoppedTests(SynchronousTestCase):
    """A process that stands still with a lock."""

    timeout = 60

    def setUp(self) -> None:
        """Make a table of one bucket."""
        self.fd = SharedTable.make("test", 16, 200)
        self.addCleanup(os.close, self.fd)
        self.clock = Clock()
        self.table = SharedTable(self.fd, seconds=self.clock.seconds)
        self.addCleanup(self.table.close)
        self.store = SharedRateLimitStore(self.table, 600_000)

    def stop(self) -> None:
        """Have a process stopped inside."""
        self.holder = Sharer(self, (self.fd,), HOLDER, "SIGSTOP")
        _, status = os.waitpid(self.holder.process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))

    def resume(self) -> None:
        """Let it go on."""
        self.holder.process.send_signal(signal.SIGCONT)
        self.assertEqual([self.holder.read() for _ in range(2)], ["ready", "done"])

    def test_nobodyWaits(self) -> None:
        """Another process tries some times, later only once, and never waits."""
        self.stop()
        tries: list[int] = []
        lockf = fcntl.lockf

        def trying(fd: int, operation: int, *range: int) -> None:
            tries.append(operation)
            lockf(fd, operation, *range)

        self.patch(fcntl, "lockf", trying)
        table = attached(self, self.fd)
        for count in (1 + TRIES, 1):
            tries.clear()
            self.assertRaises(TableBusy, table.read, b"key")
            self.assertEqual(tries, [fcntl.LOCK_EX | fcntl.LOCK_NB] * count)

    def test_afterwards(self) -> None:
        """When it goes on all is as it was."""
        self.stop()
        self.assertRaises(TableBusy, self.table.read, b"key")
        self.resume()
        found = self.table.read(b"key")
        assert found is not None
        self.assertEqual(found[0], b"after")

    def test_peek(self) -> None:
        """Meanwhile what is there can be seen."""
        end = self.table.now() + 600
        self.table.change(b"key", lambda record, until, now: (b"before", end))
        self.stop()
        self.assertEqual(self.table.peek(b"key"), (b"before", end))
        self.assertIsNone(self.table.peek(b"other"))

    def test_said(self) -> None:
        """It is said once a minute, and not of who only lost the processor."""
        logged: list[Any] = []
        globalLogPublisher.addObserver(logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, logged.append)
        self.stop()
        lines = []
        for seconds in (0, 0.25, 0.25, 30, 29.5, 0.5):
            self.clock.advance(seconds)
            self.assertRaises(TableBusy, self.table.read, b"key")
            lines.append(len([each for each in logged if "stopped" in each["log_format"]]))
        self.assertEqual(lines, [0, 0, 1, 1, 1, 2])
        self.assertEqual((self.table.refusals, logged[-1]["count"]), (6, 6))
        self.resume()
        self.table.read(b"key")
        self.stop()
        self.clock.advance(100)
        self.assertRaises(TableBusy, self.table.read, b"key")
        self.assertEqual(len([each for each in logged if "stopped" in each["log_format"]]), 2)

    def test_counts(self) -> None:
        """A limit goes on from what all had counted, and afterwards all know what came."""
        end = self.store.increment("a")[1]

        def hits(count: Count | None) -> int:
            assert count is not None
            # Dates of one window differ by what it takes to read two clocks.
            self.assertAlmostEqual(count[1], end, 1)
            return count[0]

        self.store.increment("a")
        self.stop()
        self.assertEqual([hits(self.store.increment("a")) for _ in range(3)], [3, 4, 5])
        self.store.decrement("a")
        self.assertEqual(hits(self.store.get("a")), 4)
        self.resume()
        other = SharedRateLimitStore(attached(self, self.fd), 600_000)
        self.assertEqual([hits(store.get("a")) for store in (self.store, other)], [4, 2])
        self.assertEqual(hits(self.store.increment("a")), 5)
        self.assertEqual([hits(store.get("a")) for store in (self.store, other)], [5, 5])
        self.store.decrement("a")
        self.assertEqual(hits(other.get("a")), 4)

    def test_newCounts(self) -> None:
        """So it does from nothing; a key can be forgotten that is counted here alone."""
        self.stop()
        self.assertEqual([self.store.increment("a")[0] for _ in range(2)], [1, 2])
        self.store.resetKey("a")
        self.assertIsNone(self.store.get("a"))
        self.assertEqual([self.store.increment("a")[0] for _ in range(2)], [1, 2])
        self.resume()
        self.assertEqual(self.store.increment("a")[0], 3)


class ProcessLivenessTests(SynchronousTestCase):
    """Which processes are alive."""

    timeout = 60

    def test_processes(self) -> None:
        """A process is alive until it ends, however it ends."""
        fd = os.memfd_create("test")
        self.addCleanup(os.close, fd)
        own = ProcessLiveness(fd)
        self.addCleanup(own.close)
        table = SharedTable.make("test", 1, 1)
        self.addCleanup(os.close, table)
        fds = (table, fd)
        script = PRESENT.replace("fd)", f"{fd})")
        ending, killed = Sharer(self, fds, script), Sharer(self, fds, script)
        numbers = [int(each.read()) for each in (ending, killed)]
        self.assertEqual([own.isAlive(number) for number in (own.number, *numbers)], [True] * 3)
        ending.tell("end")
        self.assertEqual(ending.process.wait(), 0)
        self.assertEqual([own.isAlive(number) for number in numbers], [False, True])
        killed.end()
        self.assertEqual([own.isAlive(number) for number in numbers], [False, False])

    def test_descriptors(self) -> None:
        """A process that closes another descriptor of the memory is still alive."""
        fd = os.memfd_create("test")
        self.addCleanup(os.close, fd)
        own, other = ProcessLiveness(fd), ProcessLiveness(fd)
        self.addCleanup(own.close)
        os.close(os.dup(fd))
        self.assertTrue(own.isAlive(other.number))
        other.close()
        self.assertFalse(own.isAlive(other.number))
