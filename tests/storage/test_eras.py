"""The dates that a clock gave while it was behind: corrected, whatever else happens to it."""

from typing import Any

import msgspec
from attrs import Factory, define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from storagegate.storage.clock import (
    AGREED_SECONDS,
    SAVE_SECONDS,
    ClockReading,
    ClockRecorder,
    StoreClock,
)
from storagegate.storage.eras import MOST_ERAS, Eras
from storagegate.storage.errors import StoreBusy
from storagegate.storage.mutations import PutProgress
from tests.support.log import LogCase
from tests.support.selection import rounds

DAY = 86400
YEAR = 365 * DAY
NOW = 20_000 * DAY
STEP = 300
TOLERANCE = 1200.0
"""A step of the clock is noticed after five minutes, and its time is known to a few minutes."""

BEHIND = st.sampled_from([-3000, -DAY, -5 * DAY, -YEAR, -8000 * DAY])
OFFSETS = st.one_of(st.just(0), BEHIND.flatmap(lambda each: st.integers(each * 5 // 4, each)))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2)),
        st.tuples(st.just("set"), OFFSETS),
        st.tuples(st.just("glitch"), OFFSETS),
        st.tuples(st.just("wait"), st.sampled_from([1, 400, AGREED_SECONDS, DAY])),
        st.tuples(st.just("start"), st.just(0)),
        st.tuples(st.just("stop"), st.just(0)),
        st.tuples(st.just("reboot"), OFFSETS),
        st.tuples(st.just("confirm"), st.just(0)),
        st.tuples(st.just("command"), st.just(0)),
    ),
    max_size=25,
)


@define
class Catalog:
    """
    The reading of a store.

    @ivar waiting: The next commit waits for it.
    """

    document: bytes | None = None
    isBusy: bool = False
    waiting: Deferred[None] | None = None

    async def progress(self, task: str) -> bytes | None:
        """Return the reading."""
        return self.document

    async def commit(self, mutation: Any) -> None:
        """Store a reading."""
        assert isinstance(mutation, PutProgress)
        if self.isBusy:
            raise StoreBusy
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            await waiting
        self.document = mutation.document

    def reading(self) -> ClockReading | None:
        """Return the reading."""
        document = self.document
        return None if document is None else msgspec.json.decode(document, type=ClockReading)


@define(eq=False)
class Process:
    """A process of a store."""

    machine: "Machine"
    reactor: Clock = Factory(Clock)
    clock: StoreClock = field(init=False)
    recorder: ClockRecorder = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start."""
        self.clock = self.machine.clock()
        self.recorder = ClockRecorder(self.clock, self.machine.catalog, self.reactor)  # type: ignore[arg-type]
        self.recorder.start()

    def put(self) -> "Written":
        """Store an object."""
        self.clock.behindMs()
        return Written(int(self.machine.wall() * 1000), self.machine.now)

    def stop(self) -> None:
        """Stop the process."""
        self.machine.processes.remove(self)
        Deferred.fromCoroutine(self.recorder.stop())

    def early(self, written: "Written") -> float:
        """Return how many seconds too early a rule would remove an object; negative for late."""
        Deferred.fromCoroutine(self.recorder.look())
        age = (self.clock.settledMs() - self.clock.corrected(written.dateMs)) / 1000
        return age - (self.machine.now - written.at)


@define
class Written:
    """An object: its date, and when it was really written."""

    dateMs: int
    at: float


@define
class Machine:
    """
    A machine with processes of a store.

    @ivar now: The true time.
    """

    catalog: Catalog = Factory(Catalog)
    boot: str = "0"
    now: float = NOW
    passed: float = 1000.0
    lead: float = NOW - 1000.0
    processes: list[Process] = Factory(list)

    def wall(self) -> float:
        """Read the wall clock."""
        return self.passed + self.lead

    def clock(self) -> StoreClock:
        """Make the clock of a process."""
        return StoreClock(self.wall, lambda: self.passed, self.boot)

    def start(self) -> Process:
        """Start a process."""
        process = Process(self)
        self.processes.append(process)
        self.wait(2)
        return process

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        slices = int(min(20, seconds // 60)) or 1
        for _ in range(slices):
            self.now += seconds / slices
            self.passed += seconds / slices
            for each in self.processes:
                each.reactor.advance(seconds / slices)

    def look(self) -> None:
        """Let all processes look at the clock."""
        for each in self.processes:
            each.clock.behindMs()

    def set(self, offset: float = 0) -> None:
        """Set the clock to the true time, or to another."""
        self.lead = self.now + offset - self.passed

    def settle(self) -> None:
        """Let the clock run for an hour and be saved."""
        self.look()
        self.wait(AGREED_SECONDS)
        self.wait(2 * SAVE_SECONDS)

    def reboot(self, offset: float = 0, off: float = 60) -> Process:
        """Turn the machine off, and start it and a process."""
        for each in list(self.processes):
            each.stop()
        self.now += off
        self.boot = str(int(self.boot) + 1) if self.boot else ""
        self.passed = 10
        self.set(offset)
        return self.start()

    def command(self) -> None:
        """Confirm the clock in the catalog."""
        clock = self.clock()
        clock.compare(self.catalog.reading())
        clock.confirm()
        self.catalog.document = msgspec.json.encode(clock.reading())
        self.wait(2 * SAVE_SECONDS)

    def confirm(self) -> None:
        """Confirm the clock in all processes."""
        for each in self.processes:
            each.clock.confirm()
        self.wait(2 * SAVE_SECONDS)


class ErasTests(LogCase):
    """L{Eras}, which are few however often the clock is set."""

    def test_many(self) -> None:
        """Of many eras the oldest become one, which corrects as much as each of them."""
        eras = Eras("one")
        eras.start(0, ())
        lasts = []
        for number in range(100):
            untilMs = number * DAY * 1000
            lasts.append(untilMs)
            eras.step((number + 1) * DAY * 1000, untilMs + DAY * 1000, untilMs, False)
        eras.resolve(0, True)
        self.assertLessEqual(len(eras.saved(0, False, False)), MOST_ERAS)
        for number, each in enumerate(lasts):
            self.assertGreaterEqual(eras.corrected(each) - each, (100 - number) * DAY * 1000)
        other = Eras("two")
        other.start(0, eras.saved(0, False, False))
        other.resolve(0, True)
        for each in lasts:
            self.assertEqual(other.corrected(each), eras.corrected(each))

    def test_returned(self) -> None:
        """A clock that is set to and fro has two eras."""
        eras = Eras("one")
        eras.start(0, ())
        for number in range(100):
            eras.step((number % 2 - 1) * DAY * 1000, 0, 1, bool(number % 2))
        self.assertEqual(len(eras.saved(0, False, False)), 2)


class CorrectionTests(LogCase):
    """What a rule takes for the age of an object that was written while the clock was behind."""

    def setUp(self) -> None:
        """Have a machine with a process."""
        super().setUp()
        self.machine = Machine()
        self.process = self.machine.start()

    def right(self, *processes: Process, written: Written) -> None:
        """The age of an object is the true one."""
        for each in processes or self.machine.processes:
            self.assertLess(abs(each.early(written)), TOLERANCE)

    def test_shortStep(self) -> None:
        """A process knows a step that another one saw."""
        machine = self.machine
        machine.start()
        machine.wait(SAVE_SECONDS)
        machine.set(-YEAR)
        written = self.process.put()
        machine.wait(30)
        machine.set()
        machine.settle()
        self.right(written=written)

    def test_commandEndsCorrection(self) -> None:
        """A confirmation by a command ends the correction, also when the clock is trusted."""
        written = self.process.put()
        self.machine.now += 40 * DAY
        self.machine.set()
        self.machine.settle()
        self.assertLess(self.process.early(written), -39 * DAY)
        self.machine.command()
        self.right(written=written)

    def test_setTwiceThenReboot(self) -> None:
        """A clock that is set nearer, and right only after a reboot."""
        self.machine.set(-YEAR)
        written = self.process.put()
        for offset in (-YEAR, -5 * DAY):
            self.machine.set(offset)
            self.machine.settle()
        self.machine.reboot()
        self.machine.settle()
        self.right(written=written)

    def test_glitchAndPauses(self) -> None:
        """After a second in 1970, and many pauses of a virtual machine, objects still expire."""
        machine = self.machine
        machine.set(-NOW)
        self.process.put()
        machine.set()
        machine.settle()
        written = []
        for _ in range(2 * MOST_ERAS):
            written.append(self.process.put())
            machine.wait(DAY)
            machine.now += 600
            machine.set()
            machine.look()
        machine.confirm()
        for each in written:
            self.right(written=each)

    def test_wrongNewest(self) -> None:
        """A newest date that was wrong, and is confirmed to be wrong, ends no correction."""
        for isReboot in (False, True):
            self.machine.set(100 * DAY)
            self.machine.settle()
            self.machine.set()
            self.machine.settle()
            if isReboot:
                self.process = self.machine.reboot(-8000 * DAY)
            self.machine.set(-10 * DAY)
            written = self.process.put()
            self.machine.settle()
            if isReboot:
                self.process = self.machine.reboot()
            self.machine.set()
            self.machine.settle()
            self.right(written=written)
            self.machine.confirm()
            self.right(written=written)

    def test_wrongResolution(self) -> None:
        """A confirmation ends a correction to a date in the future."""
        self.machine.set(-10 * DAY)
        written = self.process.put()
        self.machine.settle()
        self.machine.reboot(10 * YEAR)
        self.machine.settle()
        self.machine.set()
        self.machine.settle()
        self.machine.confirm()
        self.right(written=written)

    def test_withoutBootId(self) -> None:
        """Without a boot id, a restart counts as a reboot."""
        machine = Machine(boot="")
        process = machine.start()
        machine.set(-10 * DAY)
        written = process.put()
        machine.settle()
        for _ in range(2):
            machine.reboot()
            machine.settle()
            self.right(machine.processes[0], written=written)

    def test_returned(self) -> None:
        """The clock is behind after it was further behind for a second, and is not confirmed."""
        self.machine.reboot(off=40 * DAY)
        for offset in (-DAY, -YEAR, -DAY):
            self.machine.set(offset)
            self.machine.look()
        written = self.machine.processes[0].put()
        self.machine.wait(2 * SAVE_SECONDS)
        self.machine.set()
        self.machine.settle()
        self.machine.confirm()
        self.right(written=written)

    def test_returnedBehind(self) -> None:
        """A clock that returns to where it was behind is behind the newest date as before."""
        self.machine.set(-2 * DAY)
        self.machine.settle()
        for offset in (0, -2 * DAY):
            self.machine.set(offset)
            self.machine.look()
        self.machine.wait(2 * SAVE_SECONDS)
        self.assertGreater(self.process.clock.behindMs(), DAY * 1000)
        self.assertTrue(self.process.clock.isStepped)

    def test_restartedAfterPause(self) -> None:
        """A restart soon after the start of a machine that was off for long corrects nothing."""
        written = self.process.put()
        self.machine.reboot(off=30 * DAY).stop()
        self.machine.start()
        self.machine.settle()
        self.right(written=written)

    def test_restartedBehind(self) -> None:
        """A restart while the clock is behind corrects no dates of the time before."""
        written = []
        for _ in range(10):
            written.append(self.process.put())
            self.machine.wait(30 * DAY)
        self.machine.set(-45 * DAY)
        self.machine.settle()
        self.process.stop()
        self.machine.start()
        self.machine.set()
        self.machine.settle()
        for each in written:
            self.right(written=each)

    def test_newCluster(self) -> None:
        """A machine that was behind before the store had a date is corrected by the others."""
        catalog = Catalog()
        machines = [Machine(catalog, "10"), Machine(catalog, "20")]
        machines[1].set(-YEAR)
        process = machines[1].start()
        machines[0].start()
        for _ in range(50):
            for each in machines:
                each.wait(SAVE_SECONDS)
        written = process.put()
        self.right(machines[0].processes[0], written=written)
        self.assertEqual(process.clock.behindMs(), 0)

    def test_changedWhileSaving(self) -> None:
        """A step during a commit is saved after it, and a confirmation is not forgotten."""
        machine, catalog = self.machine, self.machine.catalog
        for isConfirmed in (False, True):
            catalog.waiting = deferred = Deferred()
            machine.wait(SAVE_SECONDS)
            self.assertIsNone(catalog.waiting)
            if isConfirmed:
                self.process.clock.confirm()
            else:
                machine.set(-YEAR)
                machine.look()
            deferred.callback(None)
            if isConfirmed:
                machine.wait(SAVE_SECONDS)
            reading = catalog.reading()
            assert reading is not None
            self.assertEqual(len(reading.eras), 0 if isConfirmed else 2)

    def test_overwritten(self) -> None:
        """An era that another machine has overwritten in the catalog is saved again at once."""
        machine, catalog = self.machine, self.machine.catalog
        catalog.waiting = deferred = Deferred()
        other = Machine(catalog, "10")
        other.start()
        self.assertIsNone(catalog.waiting)
        machine.set(-YEAR)
        written = self.process.put()
        deferred.callback(None)
        machine.wait(2)
        self.right(other.processes[0], written=written)

    def test_busy(self) -> None:
        """A catalog that is busy is not asked again at once."""
        self.machine.catalog.isBusy = True
        self.machine.set(-YEAR)
        self.machine.look()
        self.assertEqual(len(self.process.reactor.getDelayedCalls()), 1)
        self.machine.catalog.isBusy = False
        self.machine.wait(SAVE_SECONDS)
        reading = self.machine.catalog.reading()
        assert reading is not None
        self.assertEqual(len(reading.eras), 2)

    @settings(max_examples=rounds(40, 400, 10_000), deadline=None)
    @given(EVENTS)
    def test_never(self, events: list[tuple[str, int]]) -> None:
        """Whatever is done to the clock, nothing is removed too early, or never."""
        machine = Machine()
        machine.start()
        written = []
        offset = 0

        def possible(number: int, present: float) -> int:
            # The store cannot see that a date after the newest one is not right yet.
            reading = machine.catalog.reading()
            assert reading is not None
            newest = reading.newestMs / 1000 - STEP - 20
            return 0 if number > present and machine.now + number > newest - 60 else number

        def check() -> None:
            for each in written:
                for process in machine.processes:
                    if not process.clock.isStepped:
                        self.assertLess(process.early(each), TOLERANCE)

        for kind, number in events:
            machine.look()
            processes = machine.processes
            if kind == "put":
                written.append(processes[number % len(processes)].put())
            elif kind == "set":
                offset = possible(number, offset)
                machine.set(offset)
            elif kind == "glitch":
                machine.set(possible(number, offset))
                written.append(processes[0].put())
                machine.wait(1)
                machine.set(offset)
            elif kind == "wait":
                machine.wait(number)
            elif kind == "start" and len(processes) < 3:
                machine.start()
            elif kind == "stop" and len(processes) > 1:
                processes[0].stop()
            elif kind == "reboot":
                offset = possible(number, -NOW)
                machine.reboot(offset)
            elif kind == "confirm" and not offset:
                machine.confirm()
            elif kind == "command" and not offset:
                machine.command()
            check()
        machine.set()
        machine.settle()
        check()
        machine.confirm()
        check()
        for each in written:
            corrected = machine.processes[0].clock.corrected(each.dateMs) / 1000
            self.assertLess(corrected, machine.now + TOLERANCE)
