"""
The metrics of the last hour, in steps of five seconds, of all processes together.

Each process counts a step, and sends its counts to the others when the step ends, so each process
has the whole history, including processes that have ended. A series is a ring of 720 numbers; all
series together take less than 1 MiB.

The series are C{WIRE.perSecond}, C{WIRE.errors} (per second), C{WIRE.p50Ms} and C{WIRE.p99Ms} of
each wire that had requests; C{s3.bytesIn} and C{s3.bytesOut} (per second); C{cpu} (processors in
use), C{memory} (bytes), C{lagMs} (the delay of a timer in the slowest process) and C{workers}.
"""

from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import isnan, nan
from typing import Any

from attrs import define, field
from msgspec import Struct

from storagegate.console.requesttap import BOUNDS, WireCounts

STEP_SECONDS = 5

STEPS = 720

_MOST_SERIES = 150
"""720 numbers of 8 bytes each: 860 kB."""

_RECENT = 12
"""Steps for the figures of the overview: one minute."""


class ProcessFigures(Struct):
    """
    The counts of a process for a step, sent to the other processes.

    @ivar worker: The index of the process.
    @ivar wires: By wire: requests, errors, bytes in and out, and pairs of an index in
        L{WireCounts.durations} and a count other than 0.
    @ivar cpu: Seconds of processor time.
    @ivar memory: Resident bytes.
    @ivar lag: Seconds by which the step overran.
    """

    worker: int
    wires: dict[str, tuple[int, int, int, int, list[tuple[int, int]]]]
    cpu: float
    memory: int
    lag: float


def packCounts(
    counts: Mapping[str, WireCounts],
) -> dict[str, tuple[int, int, int, int, list[tuple[int, int]]]]:
    """Return counts as the C{wires} of L{ProcessFigures}."""
    return {
        name: (
            each.requests,
            each.errors,
            each.bytesIn,
            each.bytesOut,
            [(place, count) for place, count in enumerate(each.durations) if count],
        )
        for name, each in counts.items()
    }


@define(eq=False)
class StepFigures:
    """The counts of a step, summed over the processes that have sent theirs."""

    wires: dict[str, WireCounts] = field(factory=dict)
    cpu: float = 0.0
    memory: int = 0
    lag: float = 0.0
    workers: set[int] = field(factory=set)

    def add(self, figures: ProcessFigures) -> None:
        """Add the counts of a process."""
        for name, (requests, errors, bytesIn, bytesOut, durations) in figures.wires.items():
            counts = self.wires.setdefault(name, WireCounts())
            counts.requests += requests
            counts.errors += errors
            counts.bytesIn += bytesIn
            counts.bytesOut += bytesOut
            for place, count in durations:
                counts.durations[place] += count
        self.cpu += figures.cpu
        self.memory += figures.memory
        self.lag = max(self.lag, figures.lag)
        self.workers.add(figures.worker)


class WireFigures(Struct):
    """
    The requests of a wire in the last minute.

    @ivar perSecond: Requests per second.
    @ivar p50Ms: The median of their durations; 0 without requests.
    @ivar p99Ms: The 99th percentile of their durations.
    @ivar errors: Requests per second with a status of 400 or above.
    """

    perSecond: float
    p50Ms: float
    p99Ms: float
    errors: float


NO_REQUESTS = WireFigures(0.0, 0.0, 0.0, 0.0)


def percentile(durations: Iterable[int], share: float) -> float:
    """
    Estimate a percentile.

    @param durations: Counts per bucket; see L{WireCounts}.
    @param share: 0.5 for the median.
    @return: Milliseconds, within 20 % of the true value.
    """
    sums = list(accumulate(durations))
    rank = sums[-1] * share
    place = next(place for place, total in enumerate(sums) if total >= rank)
    if place == len(BOUNDS):
        return round(BOUNDS[-1] * 1000, 3)
    below, total = (sums[place - 1], sums[place]) if place else (0, sums[0])
    least = BOUNDS[place - 1] if place else 0.0
    part = (rank - below) / (total - below) if total > below else 1.0
    return round((least + (BOUNDS[place] - least) * part) * 1000, 3)


def describeWire(counts: WireCounts, seconds: float) -> WireFigures:
    """Compute the figures of a wire from its counts in a number of seconds."""
    if not counts.requests:
        return NO_REQUESTS
    return WireFigures(
        round(counts.requests / seconds, 3),
        percentile(counts.durations, 0.5),
        percentile(counts.durations, 0.99),
        round(counts.errors / seconds, 3),
    )


class MetricsHistory:
    """
    The history of metrics.

    @ivar last: The number of the last complete step; 0 for none.
    """

    def __init__(self) -> None:
        self.last = 0
        self._first = 0
        self._series: dict[str, array[float]] = {}
        self._recent: dict[int, StepFigures] = {}

    def add(self, step: int, figures: ProcessFigures) -> None:
        """
        Add the counts of a process.

        @param step: Seconds since the epoch divided by L{STEP_SECONDS}; a complete step is ignored.
        """
        # A process with a wrong clock must not fill the memory.
        if self.last < step <= self.last + STEPS or not self.last:
            self._recent.setdefault(step, StepFigures()).add(figures)

    def finish(self, step: int) -> None:
        """Complete a step: all running processes have sent their counts."""
        if step <= self.last:
            return
        for passed in range(max(self.last + 1, step - STEPS + 1) if self.last else step, step):
            self._write(passed, {})
        self._first = self._first or step
        figures = self._recent.get(step)
        self._write(step, {} if figures is None else _values(figures))
        self.last = step
        self._recent = {at: each for at, each in self._recent.items() if at > step - _RECENT}

    def series(self, seconds: int) -> dict[str, list[float | None]]:
        """
        Return the numbers of the last steps, oldest first; L{None} for an unknown number.

        @param seconds: The length of the history, at most an hour; a shorter history is returned
            whole.
        """
        if not self.last:
            return {}
        count = min(seconds // STEP_SECONDS, STEPS, self.last - self._first + 1)
        steps = range(self.last - count + 1, self.last + 1)
        found: dict[str, list[float | None]] = {}
        for name, ring in self._series.items():
            numbers = [ring[step % STEPS] for step in steps]
            found[name] = [None if isnan(each) else each for each in numbers]
        return found

    def wires(self) -> dict[str, WireFigures]:
        """Return the figures of the last minute, by wire."""
        totals: dict[str, WireCounts] = {}
        complete = [each for step, each in self._recent.items() if step <= self.last]
        for figures in complete:
            for name, counts in figures.wires.items():
                total = totals.setdefault(name, WireCounts())
                total.requests += counts.requests
                total.errors += counts.errors
                for place, count in enumerate(counts.durations):
                    total.durations[place] += count
        seconds = STEP_SECONDS * max(1, len(complete))
        return {name: describeWire(counts, seconds) for name, counts in totals.items()}

    def plain(self) -> dict[str, Any]:
        """Return the history in plain types, for a process that has just started."""
        return {"last": self.last, "series": self.series(STEPS * STEP_SECONDS)}

    def load(self, plain: Mapping[str, Any]) -> None:
        """Take over the history of another process if it goes back further."""
        last, series = plain["last"], plain["series"]
        count = max((len(each) for each in series.values()), default=0)
        if not count or (self.last and last - count + 1 >= self._first):
            return
        for name, numbers in series.items():
            for step, number in zip(range(last - count + 1, last + 1), numbers, strict=True):
                if not self.last or step < self._first:
                    self._put(step, name, nan if number is None else number)
        self._first = last - count + 1
        self.last = max(self.last, last)

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        for ring in self._series.values():
            ring[step % STEPS] = nan
        for name, value in values.items():
            self._put(step, name, value)

    def _put(self, step: int, name: str, value: float) -> None:
        ring = self._series.get(name)
        if ring is None:
            if len(self._series) >= _MOST_SERIES:
                return
            ring = self._series[name] = array("d", [nan]) * STEPS
        ring[step % STEPS] = value


def _values(figures: StepFigures) -> dict[str, float]:
    """Return the numbers of a step by the names of their series."""
    values = {
        "cpu": round(figures.cpu / STEP_SECONDS, 3),
        "memory": float(figures.memory),
        "lagMs": round(figures.lag * 1000, 1),
        "workers": float(len(figures.workers)),
    }
    for name, counts in figures.wires.items():
        found = describeWire(counts, STEP_SECONDS)
        values[f"{name}.perSecond"] = found.perSecond
        values[f"{name}.errors"] = found.errors
        values[f"{name}.p50Ms"] = found.p50Ms
        values[f"{name}.p99Ms"] = found.p99Ms
    if "s3" in figures.wires:
        values["s3.bytesIn"] = round(figures.wires["s3"].bytesIn / STEP_SECONDS)
        values["s3.bytesOut"] = round(figures.wires["s3"].bytesOut / STEP_SECONDS)
    return values
