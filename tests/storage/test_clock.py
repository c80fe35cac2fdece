"""The clock of a store, on clocks that the test sets."""

from attrs import define

from storagegate.storage.clock import AGREED_SECONDS, ClockReading, StoreClock
from tests.support.log import LogCase

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
        self.assertIsNone(self.clock.reading())
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
        self.clock.onSettled = lambda: settled.append(1)
        self.machine.lead += 2 * DAY
        self.assertEqual(self.clock.settledMs(), NOW * 1000)
        self.machine.passed += AGREED_SECONDS
        self.assertEqual(self.clock.settledMs(), (NOW + 2 * DAY + 3600) * 1000)
        self.assertEqual(settled, [1])

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
