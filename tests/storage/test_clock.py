"""The clock of a store, on clocks that the test sets."""

import os
import time
from typing import Any

import msgspec
from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.lifecycle import LifecycleRule
from storagegate.storage.clock import (
    AGREED_SECONDS,
    SAVE_SECONDS,
    ClockReading,
    ClockRecorder,
    StoreClock,
)
from storagegate.storage.embedded.recovery import removeUnconfirmed
from storagegate.storage.files import Files
from storagegate.storage.layout import BlobLayout
from storagegate.storage.mutations import PutProgress
from storagegate.storage.ranges import UploadRange
from storagegate.storage.records import COMPLIANCE, VERSIONING_ENABLED
from tests.support.log import LogCase
from tests.support.stores import ALWAYS, StoreDriver, fastDirectory

DAY = 86400
NOW = 20_000 * DAY


@define
class Machine:
    """
    The clocks of a machine.

    @ivar lead: The wall clock's lead over the time since the boot.
    """

    passed: float = 1000.0
    lead: float = NOW - 1000.0
    boot: str = "one"

    def clock(self) -> StoreClock:
        """Make the clock of a process."""
        return StoreClock(lambda: self.passed + self.lead, lambda: self.passed, self.boot)


class StoreClockTests(LogCase):
    """L{StoreClock}."""

    def setUp(self) -> None:
        """Have a clock that runs."""
        super().setUp()
        self.machine = Machine()
        self.clock = self.machine.clock()
        self.clock.compare(None)

    def restarted(self, reading: ClockReading | None) -> StoreClock:
        """Give the clock of another process, after it has read the catalog."""
        clock = self.machine.clock()
        clock.compare(reading)
        return clock

    def reading(self) -> ClockReading:
        """Give the reading for the catalog."""
        found = self.clock.reading()
        assert found is not None
        return found

    def test_steady(self) -> None:
        """A clock that runs is trusted, and so is one that a time server moves slowly."""
        for _ in range(48):
            self.machine.passed += AGREED_SECONDS
            self.machine.lead += 60
            self.assertFalse(self.clock.isStepped)
        self.assertEqual(self.clock.settledMs(), (self.machine.passed + self.machine.lead) * 1000)
        self.assertEqual((self.clock.problem, self.clock.behindMs()), (None, 0))
        self.assertEqual(self.logged(), [])

    def test_manySteps(self) -> None:
        """Steps that are small each, and large together within an hour, are one."""
        for _ in range(2):
            self.machine.lead += 200
            self.clock.settledMs()
        self.assertTrue(self.clock.isStepped)

    def test_uncompared(self) -> None:
        """Before the catalog is read nothing has ended."""
        clock = self.machine.clock()
        self.assertEqual((clock.isStepped, clock.settledMs(), clock.reading()), (True, 0, None))
        self.assertEqual((clock.problem, clock.behindMs(), clock.confirm()), (None, 0, False))

    def test_ahead(self) -> None:
        """A year ahead for a second: time goes on as before, and after an hour all is as before."""
        before = self.clock.settledMs()
        self.machine.lead += 365 * DAY
        self.machine.passed += 1
        self.assertEqual(self.clock.settledMs(), before + 1000)
        self.assertIn("was set 365 days ahead", self.clock.problem or "")
        self.assertEqual(self.reading().wallMs, before + 1000)
        self.machine.lead -= 365 * DAY
        self.machine.passed += 1
        self.assertEqual(self.clock.settledMs(), before + 2000)
        self.assertIn("was set 365 days back", self.clock.problem or "")
        self.machine.passed += AGREED_SECONDS - 1
        self.assertTrue(self.clock.isStepped)
        self.machine.passed += 1
        self.assertFalse(self.clock.isStepped)
        self.assertEqual(len(self.logged()), 3)

    def test_aheadForGood(self) -> None:
        """After an hour of agreement the later date counts."""
        settled: list[int] = []
        self.clock.onChanged = lambda: settled.append(1)
        self.machine.lead += 2 * DAY
        self.assertEqual(self.clock.settledMs(), NOW * 1000)
        self.machine.passed += AGREED_SECONDS
        self.assertEqual(self.clock.settledMs(), (NOW + 2 * DAY + 3600) * 1000)
        self.assertEqual(settled, [1, 1])

    def test_confirmed(self) -> None:
        """An operator's word ends the wait at once."""
        self.machine.lead += 2 * DAY
        self.assertTrue(self.clock.isStepped)
        self.assertTrue(self.clock.confirm())
        self.assertEqual(self.clock.settledMs(), (NOW + 2 * DAY) * 1000)
        self.assertFalse(self.clock.confirm())

    def test_behind(self) -> None:
        """Two days behind: what is retained counts from where the clock was."""
        self.machine.lead -= 2 * DAY
        self.machine.passed += 10
        self.assertEqual(self.clock.behindMs(), 2 * DAY * 1000)
        self.assertEqual(self.clock.settledMs(), (NOW + 10 - 2 * DAY) * 1000)

    def test_restart(self) -> None:
        """Another process of the same boot knows exactly, however long there was none."""
        reading = self.reading()
        self.machine.passed += 30 * DAY
        self.assertFalse(self.restarted(reading).isStepped)
        self.machine.lead += 400
        clock = self.restarted(reading)
        self.assertIn("is 6 minutes ahead of the newest date", clock.problem or "")
        self.assertEqual(clock.settledMs(), (NOW + 30 * DAY) * 1000)

    def test_reboot(self) -> None:
        """After a boot the date has to be close to the newest one, in both directions."""
        reading = self.reading()
        self.machine.boot = "two"
        for days, isStepped in ((0.001, False), (365, True), (-2, True)):
            self.machine.passed, self.machine.lead = 50, NOW - 50 + days * DAY
            clock = self.restarted(reading)
            self.assertEqual(clock.isStepped, isStepped, days)
            if isStepped:
                self.assertLessEqual(clock.settledMs(), NOW * 1000)
        self.assertEqual(clock.behindMs(), 2 * DAY * 1000)

    def test_newest(self) -> None:
        """After an hour two days behind, the newest date that was seen still counts."""
        reading = self.reading()
        self.machine.lead -= 2 * DAY
        self.clock = self.restarted(reading)
        self.machine.passed += AGREED_SECONDS
        self.assertEqual(self.clock.behindMs(), (2 * DAY - 3600) * 1000)
        self.assertEqual(self.reading().newestMs, NOW * 1000)
        self.clock.confirm()
        self.assertEqual(self.clock.behindMs(), 0)
        self.assertEqual(self.reading().newestMs, self.reading().wallMs)


class StoreTests(SynchronousTestCase):
    """A store whose machine's clock is set: what is locked, what is removed, what is noted."""

    def setUp(self) -> None:
        """Open a store with a bucket whose versions are locked for a day."""
        self.machine = Machine()
        self.driver = StoreDriver(
            fastDirectory(self), Files(), clock=StoreClock(self.wall, self.passed, "one")
        )
        self.addCleanup(lambda: self.driver.close())
        self.driver.createBucket("b")
        self.driver.setVersioning("b", VERSIONING_ENABLED)
        self.driver.setObjectLock("b", COMPLIANCE)
        self.put()

    def wall(self) -> float:
        """Read the wall clock."""
        return self.machine.passed + self.machine.lead

    def passed(self) -> float:
        """Read the time since the boot."""
        return self.machine.passed

    def put(self) -> None:
        """Store a version, by the clock."""
        self.driver.setTime(int(self.wall() * 1000))
        self.driver.put("b", b"k", b"x")

    def delete(self) -> bool | Exception:
        """Try to remove the newest version, by the clock."""
        self.driver.setTime(int(self.wall() * 1000))
        return self.driver.deleteVersions("b", [(b"k", 0)])[0]

    def restart(self) -> None:
        """Stop and start the process."""
        self.driver.close()
        self.driver.clock = StoreClock(self.wall, self.passed, self.machine.boot)
        self.driver.open()

    def test_ended(self) -> None:
        """A lock that has ended by both clocks holds nothing, also after a step."""
        self.machine.passed += 2 * DAY
        self.machine.lead += 365 * DAY
        self.assertIs(self.delete(), True)

    def test_notEnded(self) -> None:
        """One that has ended by the wall clock alone holds, until an hour has passed."""
        self.machine.lead += 2 * DAY
        self.assertIs(self.delete(), False)
        self.restart()
        self.assertIs(self.delete(), False)
        self.machine.passed += AGREED_SECONDS
        self.assertIs(self.delete(), True)

    def test_mixed(self) -> None:
        """A marker has the date of the wall clock, in one request with a version that is locked."""
        self.machine.lead += 2 * DAY
        nowMs = int(self.wall() * 1000)
        version = self.driver.versionId("b", b"k", 0)
        entries = [(b"k", version, ALWAYS), (b"l", None, ALWAYS), (b"k", version, ALWAYS)]
        found = self.driver.reactor.settle(
            self.driver.store.deleteObjects("b", entries, "account", nowMs)
        )
        kinds = [type(each).__name__ for each in found]
        self.assertEqual(kinds, ["ObjectLocked", "Removal", "ObjectLocked"])
        marker, _ = self.driver.listed("b", prefix=b"l")
        self.assertEqual([each.modifiedMs for each in marker], [nowMs])

    def test_behind(self) -> None:
        """The default counts from the newest date that was seen, in the same process and later."""
        for isRestarted in (False, True):
            self.machine.lead -= 3 * DAY
            if isRestarted:
                self.restart()
            self.put()
            self.machine.lead += 3 * DAY
            self.assertIs(self.delete(), False)
            record = self.driver.find("b", b"k")
            assert record is not None
            self.assertEqual(record.modifiedMs, (NOW - 3 * DAY) * 1000)
            self.assertEqual(record.attributes.lock.untilMs, (NOW + DAY) * 1000)

    def test_behindWithoutLock(self) -> None:
        """Objects of buckets without a default are as they are."""
        self.driver.createBucket("c")
        self.driver.setVersioning("c", VERSIONING_ENABLED)
        self.driver.setObjectLock("c", "")
        self.driver.createBucket("d")
        self.machine.lead -= 3 * DAY
        for bucket in ("c", "d"):
            self.driver.put(bucket, b"k", b"x" * 1000)
            record = self.driver.find(bucket, b"k")
            assert record is not None
            self.assertFalse(record.attributes.lock.mode)

    def test_lifecycle(self) -> None:
        """The scanner waits, whatever the date is."""
        self.driver.createBucket("c")
        self.driver.put("c", b"k", b"x")
        self.driver.setRules("c", (LifecycleRule("e", True, days=30),))
        self.machine.lead += 365 * DAY
        self.driver.setTime(int(self.wall() * 1000))
        self.assertEqual(self.driver.scan(), (0, 0))
        self.assertEqual(self.driver.listing("c", b""), [b"k"])
        assert self.driver.clock is not None
        self.driver.clock.confirm()
        self.assertEqual(self.driver.scan(), (1, 0))

    def keep(self, isKept: bool, key: bytes = b"k") -> None:
        """Run the scanner by the clock; an object remains, or is removed."""
        self.driver.setTime(int(self.wall() * 1000))
        self.driver.scan()
        self.assertEqual(key in self.driver.listing("c", b""), isKept, key)

    def keepThirtyDays(self) -> None:
        """See that an object remains for 30 days from now, and is then removed."""
        self.keep(True)
        self.machine.passed += 29 * DAY
        self.keep(True)
        self.machine.passed += 3 * DAY
        self.keep(False)

    def rule(self) -> None:
        """Have a bucket whose objects are removed after 30 days."""
        self.driver.createBucket("c")
        self.driver.setRules("c", (LifecycleRule("e", True, days=30, abortDays=30),))

    def write(self, key: bytes) -> None:
        """Store an object with the rule, by the clock."""
        self.driver.setTime(int(self.wall() * 1000))
        self.driver.put("c", key, b"x")

    def settle(self) -> None:
        """Let the clock run steadily for an hour."""
        assert self.driver.clock is not None
        self.driver.clock.settledMs()
        self.machine.passed += AGREED_SECONDS
        self.assertFalse(self.driver.clock.isStepped)

    def test_writtenBehind(self) -> None:
        """What is written while the clock is a year behind has its 30 days once it is right."""
        self.rule()
        self.write(b"before")
        for isRestarted in (False, True):
            self.machine.lead -= 365 * DAY
            if isRestarted:
                self.restart()
            self.settle()
            self.write(b"k")
            self.machine.passed += 60
            self.machine.lead += 365 * DAY
            if isRestarted:
                self.restart()
            self.settle()
            self.keepThirtyDays()
        self.keep(False, b"before")

    def test_correctedWhileOff(self) -> None:
        """So it is if the machine is turned off behind, and has the right date when it starts."""
        self.rule()
        self.reboot("two", NOW - 8000 * DAY)
        self.write(b"k")
        self.reboot("three", NOW + 5 * DAY)
        self.settle()
        self.keep(True)
        self.restart()
        self.keepThirtyDays()

    def test_late(self) -> None:
        """A machine without a clock goes on at the date of its end until a server sets it."""
        self.rule()
        self.reboot("two", NOW)
        self.write(b"k")
        self.machine.lead += 40 * DAY
        self.settle()
        self.keepThirtyDays()

    def test_aheadAndBack(self) -> None:
        """A clock that was a year ahead for some days has delayed nothing."""
        self.rule()
        self.write(b"k")
        self.machine.lead += 365 * DAY
        self.settle()
        self.machine.lead -= 365 * DAY
        self.settle()
        self.machine.passed += 32 * DAY
        self.keep(False)

    def test_confirmedBehind(self) -> None:
        """If the operator confirms the date, the newer one was wrong, and nothing is delayed."""
        self.rule()
        self.machine.lead += 365 * DAY
        self.settle()
        self.reboot("two", NOW)
        self.write(b"k")
        self.reboot("three", NOW + 60)
        assert self.driver.clock is not None
        self.assertTrue(self.driver.clock.confirm())
        self.machine.passed += 32 * DAY
        self.keep(False)

    def test_confirmedAhead(self) -> None:
        """If the operator confirms a later date, the time has passed, but for what was behind."""
        self.rule()
        self.write(b"k")
        self.machine.lead -= 365 * DAY
        self.settle()
        self.write(b"behind")
        assert self.driver.clock is not None
        for days in (365, 32):
            self.machine.passed += 60
            self.machine.lead += days * DAY
            self.driver.clock.confirm()
        self.keep(False)
        self.keep(True, b"behind")

    def test_setBackMeanwhile(self) -> None:
        """The clock is set back, and another process writes, while the scanner reads a page."""
        self.rule()
        self.driver.setTime(int((self.wall() - 365 * DAY) * 1000))
        self.driver.put("c", b"k", b"x")
        self.driver.setTime(int(self.wall() * 1000))
        catalog = type(self.driver.store.catalog)
        expiryPage = catalog.expiryPage

        async def page(*arguments: Any) -> Any:
            self.machine.lead -= 365 * DAY
            return await expiryPage(*arguments)

        self.patch(catalog, "expiryPage", page)
        self.driver.scan()
        self.assertEqual(self.driver.listing("c", b""), [b"k"])

    def test_upload(self) -> None:
        """An upload that began while the clock was behind is not aborted too soon."""
        self.rule()
        self.machine.lead -= 365 * DAY
        self.driver.setTime(int(self.wall() * 1000))
        self.settle()
        self.driver.createUpload("id", "c", b"u")
        self.machine.lead += 365 * DAY
        self.settle()
        for days, count in ((0, 1), (32, 0)):
            self.machine.passed += days * DAY
            self.driver.setTime(int(self.wall() * 1000))
            self.driver.scan()
            found = self.driver.reactor.settle(
                self.driver.store.catalog.uploads(UploadRange("c", b"", b"", b"", 10, ""))
            )
            self.assertEqual(len(found.uploads), count)

    def test_otherBehind(self) -> None:
        """What another machine of a cluster wrote while its clock was behind is kept, too."""
        self.rule()
        other = Machine(lead=NOW - 1000 - 365 * DAY, boot="other")
        self.restart()
        reactor = self.driver.reactor
        recorder = ClockRecorder(other.clock(), self.driver.store.catalog, reactor)
        recorder.start()
        reactor.settle(recorder.stop())
        self.driver.setTime((NOW - 365 * DAY + 60) * 1000)
        self.driver.put("c", b"k", b"x")
        self.keepThirtyDays()

    def test_unconfirmed(self) -> None:
        """A blob that seems to be old may be of an upload in progress."""
        _, content = self.driver.upload(b"x" * 1000, 0)
        [blob] = [segment.blob for segment in content.segments]
        path = BlobLayout(self.driver.directory).stagingPath(blob)
        os.utime(path, (0, 0))
        store, clock = self.driver.store, self.driver.clock
        assert clock is not None
        self.machine.lead += 365 * DAY
        for isTrusted in (False, True):
            if isTrusted:
                clock.confirm()
            swept = self.driver.reactor.settle(removeUnconfirmed(store.catalog, store.blobs, clock))
            self.assertEqual(None if swept is None else swept.removed, 1 if isTrusted else None)

    def test_unconfirmedBehind(self) -> None:
        """A blob that was written while the clock was behind is as young as it is."""
        # The file system has the real time.
        self.machine.lead = time.time() - self.machine.passed - 365 * DAY
        self.restart()
        self.settle()
        _, content = self.driver.upload(b"x" * 1000, 0)
        [blob] = [segment.blob for segment in content.segments]
        path = BlobLayout(self.driver.directory).stagingPath(blob)
        store, clock = self.driver.store, self.driver.clock
        assert clock is not None
        for date, count in ((self.wall(), 0), (self.wall() - 20 * DAY, 1)):
            os.utime(path, (date, date))
            if not count:
                self.machine.lead += 365 * DAY
                self.settle()
            swept = self.driver.reactor.settle(removeUnconfirmed(store.catalog, store.blobs, clock))
            assert swept is not None
            self.assertEqual(swept.removed, count)

    def reboot(self, boot: str, date: float) -> None:
        """Turn the machine off, and start it at a date."""
        self.driver.close()
        self.machine.boot, self.machine.passed, self.machine.lead = boot, 10, date - 10
        self.driver.clock = StoreClock(self.wall, self.passed, boot)
        self.driver.open()

    def note(self, newest: float, boot: str) -> None:
        """Have the reading of a machine in the catalog."""
        reading = ClockReading(int(newest * 1000), int(newest * 1000), 0, boot)
        document = msgspec.json.encode(reading)
        self.driver.reactor.settle(self.driver.store.catalog.commit(PutProgress("clock", document)))

    def noted(self) -> ClockReading:
        """Stop and start the process; give the reading that it had noted."""
        self.restart()
        catalog = self.driver.store.catalog
        document = self.driver.reactor.settle(catalog.progress("clock"))
        return msgspec.json.decode(document or b"", type=ClockReading)

    def test_otherMachines(self) -> None:
        """The newer date of another machine stays, unless an operator has confirmed this clock."""
        self.note(NOW + DAY, "other")
        self.assertEqual(self.noted().newestMs, (NOW + DAY) * 1000)
        self.assertIn("is 24 hours behind", self.driver.store.warnings()["clock"] or "")
        assert self.driver.clock is not None
        self.driver.clock.confirm()
        reading = ClockReading(NOW * 1000, NOW * 1000, 1_000_000, "one", confirmedMs=1_000_000)
        self.assertEqual(self.noted(), reading)
        self.assertIsNone(self.driver.store.warnings()["clock"])
        self.note(NOW - DAY, "other")
        self.assertEqual(self.noted().boot, "one")

    def test_unreadable(self) -> None:
        """A reading that this program does not understand is as none."""
        catalog = self.driver.store.catalog
        self.driver.reactor.settle(catalog.commit(PutProgress("clock", b"[]")))
        self.assertEqual(self.noted().boot, "one")

    def test_noted(self) -> None:
        """Both clocks are in the catalog soon after the start, and then every two minutes."""
        catalog, reactor = self.driver.store.catalog, self.driver.reactor
        self.assertIsNone(reactor.settle(catalog.progress("clock")))
        found = []
        for seconds in (1, SAVE_SECONDS):
            self.machine.passed += seconds
            reactor.advance(seconds)
            reactor.settle(catalog.commit(PutProgress("other", b"")))
            found.append(reactor.settle(catalog.progress("clock")))
            self.machine.lead += DAY
        first, second = (msgspec.json.decode(each or b"", type=ClockReading) for each in found)
        self.assertEqual((first.wallMs, first.bootMs), ((NOW + 1) * 1000, 1_001_000))
        # A day ahead, the date that was trusted before goes on.
        passedMs = int(SAVE_SECONDS * 1000)
        self.assertEqual(second.wallMs, first.wallMs + passedMs)
        self.assertEqual(second.newestMs, second.wallMs)

    def test_confirmedInCatalog(self) -> None:
        """A confirmation in the catalog is taken over at the next reading, of this boot only."""
        store, reactor = self.driver.store, self.driver.reactor
        clock = self.driver.clock
        assert clock is not None

        def write(wallMs: int, boot: str) -> None:
            bootMs = int(self.machine.passed * 1000)
            reading = ClockReading(wallMs, wallMs, bootMs, boot, confirmedMs=bootMs)
            document = msgspec.json.encode(reading)
            reactor.settle(store.catalog.commit(PutProgress("clock", document)))
            self.machine.passed += SAVE_SECONDS
            reactor.advance(SAVE_SECONDS)
            reactor.settle(store.catalog.commit(PutProgress("other", b"")))

        write(int(self.wall() * 1000), "one")
        trusted = int(self.wall() * 1000)
        self.machine.lead += DAY
        self.assertTrue(clock.isStepped)
        for wallMs, boot in (
            (trusted, "one"),
            (int(self.wall() * 1000), "two"),
            (int(self.wall() * 1000), ""),
        ):
            write(wallMs, boot)
            self.assertTrue(clock.isStepped, (wallMs, boot))
        write(int(self.wall() * 1000), "one")
        self.assertFalse(clock.isStepped)
        self.assertEqual(clock.settledMs(), int(self.wall() * 1000))
