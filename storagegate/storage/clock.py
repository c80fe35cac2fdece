"""
The clock of a store, which detects steps of the machine's clock.

Dates come from the wall clock, which an operator, a time server or a broken battery may set. A
L{StoreClock} compares it with the time since boot and with the newest date the store has seen,
which a L{ClockRecorder} keeps in the catalog.

After a step of more than five minutes, all removal by date is suspended: the lifecycle scanner and
the search for uncommitted blobs. Retentions end by the earlier of two dates: the wall clock, and
the date before the step plus the time since. This lasts until both clocks have agreed for an hour
or an operator confirms the clock.

While the clock is behind, the default retention of a bucket counts from the newest date that the
store has seen. L{Eras} correct the dates that the clock gives then.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import msgspec
from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.eras import STEP_MS, Era, Eras, areIn
from storagegate.storage.errors import StoreError
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import PutProgress
from storagegate.storage.periodic import PeriodicTask

STEP_SECONDS = STEP_MS / 1000
"""Time servers and leap seconds move a clock by less, and no retention is shorter."""

AGREED_SECONDS = 3600.0
"""How long both clocks must agree after a step, which gives an operator time to react."""

SAVE_SECONDS = 120.0
"""
Interval between readings in the catalog. Together with the duration of a boot it is less than
L{STEP_SECONDS}, so that a reboot does not count as a step.
"""

TOPIC = "clock"
"""The topic that sends an operator's confirmation to all processes of the store."""

_TASK = "clock"
_FIRST_SECONDS = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def bootSeconds() -> float:
    """
    Return the seconds since boot: a clock that is never set and runs while the machine sleeps.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def bootId() -> str:
    """Return the id of this boot of the machine; empty if the kernel does not provide one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class ClockReading(Struct, frozen=True, omit_defaults=True):
    """
    A reading of both clocks, as stored in the catalog.

    @ivar newestMs: The newest date that the store has seen, in milliseconds since 1970.
    @ivar wallMs: The wall clock, in milliseconds since 1970.
    @ivar bootMs: The time since boot, in milliseconds.
    @ivar boot: The id of the boot.
    @ivar eras: The eras whose dates are corrected, or may have to be.
    @ivar confirmedMs: The last time that an operator confirmed the clock, as time since boot in
        milliseconds; 0 for never.
    """

    newestMs: int
    wallMs: int
    bootMs: int
    boot: str
    eras: tuple[Era, ...] = ()
    confirmedMs: int = 0


class _Catalog(Protocol):
    """The catalog of a command."""

    def progress(self, task: str) -> bytes | None:
        """Return the progress of a background task."""

    def putProgress(self, task: str, document: bytes) -> None:
        """Store the progress of a background task."""


def confirmIn(catalog: _Catalog) -> ClockReading:
    """
    Trust the machine's clock, in a catalog whose daemon does not run or cannot be asked. A running
    daemon reads it within L{SAVE_SECONDS}. Blocks.

    @return: The reading that the catalog holds now.
    """
    clock = StoreClock()
    clock.compare(_decode(catalog.progress(_TASK)))
    clock.confirm()
    reading = clock.reading()
    assert reading is not None, "it has been compared"
    catalog.putProgress(_TASK, msgspec.json.encode(reading))
    return reading


_decodeReading = msgspec.json.Decoder(ClockReading).decode


def _decode(document: bytes | None) -> ClockReading | None:
    """Decode a reading; L{None} if it is absent or cannot be decoded."""
    try:
        return None if document is None else _decodeReading(document)
    except msgspec.DecodeError:
        return None


@define(eq=False)
class StoreClock:
    """
    The clock of a store in this process. Reactor thread.

    Each method compares the clocks first, so that a step is detected before a date is used.

    @ivar _wall: Returns seconds since 1970.
    @ivar _passed: Returns seconds since boot.
    @ivar _boot: The id of the boot.
    @ivar onChanged: Called after a step, and when the clock is trusted again.
    @ivar confirmations: The calls of L{confirm} that the catalog does not have yet.
    @ivar _trusted: The trusted difference between the wall clock and the time since boot; L{None}
        before L{compare}.
    @ivar _steady: The difference since C{_since}, within L{STEP_SECONDS}.
    @ivar _confirmedMs: See L{ClockReading}.
    @ivar _lookedAt: The time since boot of the last comparison.
    @ivar _newestMs: The newest date, as of the last reading.
    @ivar _catalogMs: The newest date in the catalog, which another machine may have stored.
    """

    _log = Logger()

    _wall: Callable[[], float] = time.time
    _passed: Callable[[], float] = bootSeconds
    _boot: str = field(factory=bootId)
    onChanged: Callable[[], object] = field(default=lambda: None, init=False)
    confirmations: int = field(default=0, init=False)
    _trusted: float | None = field(default=None, init=False)
    _steady: float = field(default=0.0, init=False)
    _since: float = field(default=0.0, init=False)
    _isStepped: bool = field(default=False, init=False)
    _reason: str = field(default="", init=False)
    _newestMs: int = field(default=0, init=False)
    _catalogMs: int = field(default=0, init=False)
    _confirmedMs: int = field(default=0, init=False)
    _lookedAt: float = field(default=0.0, init=False)
    _eras: Eras = field(init=False)

    @_eras.default
    def _makeEras(self) -> Eras:
        # Without the id of the boot, each start counts as one.
        return Eras(self._boot or uuid4().hex)

    def compare(self, reading: ClockReading | None) -> None:
        """
        Compare the clock with the last reading. Call once, at startup.

        @param reading: The reading in the catalog; L{None} if there is none.
        """
        wall, passed = self._wall(), self._passed()
        self._trusted = self._steady = wall - passed
        self._since = self._lookedAt = passed
        leadMs = int(self._steady * 1000)
        if reading is None:
            self._eras.start(leadMs, ())
            return
        self._newestMs = reading.newestMs
        if isSameBoot := bool(reading.boot) and reading.boot == self._boot:
            known = (reading.wallMs - reading.bootMs) / 1000
            self._confirmedMs = reading.confirmedMs
        else:
            # The time the machine was off is unknown, so the date must be close to the last one.
            known = reading.newestMs / 1000 - passed
        isStepped = abs(self._steady - known) > STEP_SECONDS
        eras = reading.eras
        if isStepped and isSameBoot and all(each.boot != self._boot for each in eras):
            # The clock was set while no process of the store looked.
            knownMs = int(known * 1000)
            eras += (Era(self._boot, knownMs, knownMs, reading.wallMs + STEP_MS),)
        self._eras.start(leadMs, eras)
        if isStepped:
            self._trusted = known
            ahead = self._steady - known
            side = "ahead of" if ahead > 0 else "behind"
            self._suspect(f"is {_formatSeconds(ahead)} {side} the newest date in the catalog")
        self._resolve(wall, passed)

    @property
    def isStepped(self) -> bool:
        """Whether the clock has stepped and is not trusted; true before L{compare}."""
        self._look()
        return self._isStepped or self._trusted is None

    @property
    def problem(self) -> str | None:
        """Why removals by date are suspended; L{None} if they are not."""
        self._look()
        if not self._isStepped:
            return None
        return (
            f"the clock {self._reason}: lifecycle rules, expiring"
            " retentions and other removals by date"
            " wait until it has run steadily for an hour, or until storagegate clock confirm"
        )

    def settledMs(self) -> int:
        """
        Return the date for removals by date, in milliseconds since 1970: after a step, the earlier
        of both clocks; 0 before L{compare}.
        """
        wall, passed = self._look()
        if self._trusted is None:
            return 0
        return int((min(wall, self._trusted + passed) if self._isStepped else wall) * 1000)

    def behindMs(self) -> int:
        """
        Return how many milliseconds the wall clock is behind the newest date the store has seen or
        the trusted time, whichever is later; 0 up to L{STEP_SECONDS}.
        """
        wall, passed = self._look()
        behind = self._behind(wall, passed)
        return int(behind * 1000) if behind > STEP_SECONDS else 0

    def corrected(self, dateMs: int) -> int:
        """
        Correct a date that was given while the clock was behind, in milliseconds since 1970; see
        L{Eras.corrected}. May run in any thread.
        """
        return self._eras.corrected(dateMs)

    def merge(self, reading: ClockReading) -> None:
        """Take over the eras of other processes, boots and machines from the catalog."""
        wall, passed = self._look()
        if self._trusted is None:
            return
        if self.confirmations:
            self._eras.merge(reading.eras, int(wall * 1000))
        else:
            self._catalogMs = reading.newestMs
            self._eras.merge(reading.eras)
        self._resolve(wall, passed)

    def confirm(self) -> bool:
        """
        Trust the wall clock, on an operator's confirmation, and take it as the newest date.

        @return: Whether the clock was untrusted.
        """
        wall, passed = self._look()
        if self._trusted is None:
            return False
        isStepped = self._isStepped
        self._newestMs, self._catalogMs = int(wall * 1000), 0
        self._eras.trust(self._newestMs)
        self._confirmedMs = int(passed * 1000)
        self.confirmations += 1
        self._settle(wall - passed, passed)
        if isStepped:
            self._log.info("the clock was confirmed: removals by date resume")
        return isStepped

    def confirmBy(self, reading: ClockReading) -> None:
        """
        Trust the wall clock if a command has confirmed it, in this boot.

        @param reading: The reading in the catalog, which L{confirmIn} or another process wrote.
        """
        self._look()
        lead = (reading.wallMs - reading.bootMs) / 1000
        isSameBoot = bool(reading.boot) and reading.boot == self._boot
        if (
            isSameBoot
            and reading.confirmedMs > self._confirmedMs
            and abs(lead - self._steady) <= STEP_SECONDS
        ):
            self.confirm()
            # All processes have the same time, so that each confirms once.
            self._confirmedMs = reading.confirmedMs

    def reading(self) -> ClockReading | None:
        """
        Return a reading of both clocks for the catalog. After a step, its date is the trusted date
        plus the time since. L{None} before L{compare}.
        """
        wall, passed = self._look()
        if self._trusted is None:
            return None
        wallMs = int((self._trusted + passed if self._isStepped else wall) * 1000)
        self._newestMs = max(self._newestMs, wallMs)
        isBehind = self._isBehind(wall, passed)
        eras = self._eras.saved(int(wall * 1000), isBehind, self._isStepped)
        bootMs = int(passed * 1000)
        return ClockReading(self._newestMs, wallMs, bootMs, self._boot, eras, self._confirmedMs)

    def _behind(self, wall: float, passed: float) -> float:
        """
        Return how many seconds the wall clock is behind the newest date; 0 before L{compare}.
        """
        if self._trusted is None:
            return 0.0
        return max(self._newestMs / 1000, self._trusted + passed) - wall

    def _isBehind(self, wall: float, passed: float) -> bool:
        """Return whether the wall clock is behind the newest date of this and other machines."""
        behind = max(self._behind(wall, passed), self._catalogMs / 1000 - wall)
        return behind > STEP_SECONDS

    def _resolve(self, wall: float, passed: float) -> None:
        """Correct the eras in which other clocks were behind; finally, if this one is right."""
        isRight = not self._isStepped and not self._isBehind(wall, passed)
        self._eras.resolve(int(passed * 1000), isRight)

    def _look(self) -> tuple[float, float]:
        """Compare the clocks; return the wall clock and the time since boot."""
        wall, passed = self._wall(), self._passed()
        if self._trusted is not None:
            lead = wall - passed
            if abs(lead - self._steady) > STEP_SECONDS:
                ahead = lead - self._steady
                side = "ahead" if ahead > 0 else "back"
                # The step is not older than the last comparison.
                fromMs = int((wall - (passed - self._lookedAt) - STEP_SECONDS) * 1000)
                untilMs = int((passed + self._steady) * 1000) + STEP_MS
                isBehind = self._isBehind(passed + self._steady, passed)
                self._eras.step(int(lead * 1000), fromMs, untilMs, isBehind)
                self._steady, self._since = lead, passed
                self._resolve(wall, passed)
                self._suspect(f"was set {_formatSeconds(ahead)} {side}")
            elif passed - self._since >= AGREED_SECONDS:
                if self._isStepped:
                    self._log.info(
                        "the clock has run steadily for an hour: removals by date resume"
                    )
                self._settle(lead, passed)
            self._lookedAt = passed
        return wall, passed

    def _suspect(self, reason: str) -> None:
        self._isStepped = True
        self._reason = reason
        self._log.warn(
            "the clock {reason}: removals by date wait until it has run steadily for an hour, or"
            " until storagegate clock confirm",
            reason=self._reason,
        )
        self.onChanged()

    def _settle(self, lead: float, passed: float) -> None:
        wasStepped, self._isStepped = self._isStepped, False
        self._trusted = self._steady = lead
        self._since = passed
        self._eras.follow(int(lead * 1000))
        self._resolve(lead + passed, passed)
        if wasStepped:
            self.onChanged()


def _formatSeconds(seconds: float) -> str:
    """Format a duration in its largest unit."""
    whole = abs(round(seconds))
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} seconds"


@define(eq=False)
class ClockRecorder:
    """
    Compares a clock with the last reading in the catalog and stores newer readings there. Runs in
    each process of the store. Reactor thread.

    @ivar _isChanged: Whether the clock has changed since the last reading was made.
    """

    _log = Logger()

    _clock: StoreClock
    _catalog: ICatalog
    _reactor: IReactorTime
    _isChanged: bool = field(default=False, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the clock recorder", self._reactor)

    def start(self) -> None:
        """
        Compare, immediately if the catalog does not suspend, and then save readings until L{stop}.
        """
        self._clock.onChanged = self._saveSoon
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Save the last reading."""
        self._clock.onChanged = lambda: None
        await self._task.stop()
        await self._save()

    def _saveSoon(self) -> None:
        self._isChanged = True
        self._task.wake()

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            try:
                reading = await self._read()
            except Exception as error:
                # The clock is not trusted until the catalog answers.
                self._log.info("cannot compare the clock: {error}", error=str(error))
                await self._task.pause(_FIRST_SECONDS)
            else:
                self._clock.compare(reading)
                break
        # A starting daemon has more urgent work.
        await self._task.pause(_FIRST_SECONDS)
        while not self._task.isStopping:
            self._isChanged = False
            isKnown = await self._save()
            if not self._isChanged:
                await self._task.pause(SAVE_SECONDS if isKnown else _FIRST_SECONDS)

    async def _save(self) -> bool:
        """
        Save a reading.

        @return: Whether the catalog already had the eras. Otherwise they must be saved again,
            because a process that saves at the same time may overwrite them.
        """
        if self._clock.reading() is None:
            return True
        try:
            found = await self.look()
            if found is not None:
                self._clock.confirmBy(found)
            reading, confirmations = self._clock.reading(), self._clock.confirmations
            assert reading is not None
            if (
                found is not None
                and found.boot != reading.boot
                and found.newestMs > reading.newestMs
                and not confirmations
            ):
                # In a cluster, a machine whose clock is behind keeps another machine's newer date.
                if found.eras == reading.eras:
                    return True
                reading = replace(found, eras=reading.eras)
            await self._catalog.commit(PutProgress(_TASK, msgspec.json.encode(reading)))
            self._clock.confirmations -= confirmations
        except StoreError as error:
            self._log.info("cannot record the clock: {error}", error=str(error))
            return True
        return areIn(reading.eras, () if found is None else found.eras)

    async def look(self) -> ClockReading | None:
        """
        Learn from the catalog of the eras that other processes and machines have stored.

        @return: The last reading, see L{_decode}.
        """
        found = await self._read()
        if found is not None:
            self._clock.merge(found)
        return found

    async def _read(self) -> ClockReading | None:
        """Read the last reading, see L{_decode}."""
        return _decode(await self._catalog.progress(_TASK))
