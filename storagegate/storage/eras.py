"""
The eras of a machine's clock, which correct the dates of objects.

A clock that is behind gives dates that are too early, so that a rule which counts days would remove
an object too soon once the clock is right. An L{Era} is the time between two steps of the clock.
All its dates are wrong by the same amount: by the difference between the present lead of the wall
clock over the time since boot and the lead in the era. Only dates that are too early are corrected.

The time a machine was off is unknown. So if the clock was behind when the machine was turned off
and is right at the next start, the dates of the era count as those of that start.
"""

from collections.abc import Iterable, Sequence

from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace

STEP_MS = 300_000
"""A smaller change of the lead ends no era."""

MOST_ERAS = 32
"""The two that ended first become one if there are more."""


class Era(Struct, frozen=True, omit_defaults=True):
    """
    The time between two steps of a clock. Times are in milliseconds, dates since 1970.

    @ivar boot: The id of the boot of the machine; empty if unknown.
    @ivar leadMs: The lead of the wall clock over the time since boot.
    @ivar fromMs: The first date of the era.
    @ivar untilMs: The last date of the era.
    @ivar byMs: How much its dates are too early.
    @ivar isBehind: Whether the clock was behind the newest date that the store had seen.
    """

    boot: str
    leadMs: int
    fromMs: int
    untilMs: int
    byMs: int = 0
    isBehind: bool = False


@define(eq=False)
class Eras:
    """
    The eras of the clock of this machine, and those of former boots and of other machines.

    L{corrected} may run in any thread; the rest runs in the reactor thread.

    @ivar _boot: The id of this boot.
    @ivar _leadMs: The lead in the present era.
    @ivar _fromMs: The first date of the present era.
    @ivar _ended: The ended eras of this boot.
    @ivar _others: The eras of other boots.
    """

    _boot: str
    _leadMs: int = field(default=0, init=False)
    _fromMs: int = field(default=0, init=False)
    _ended: Sequence[Era] = field(default=(), init=False)
    _others: Sequence[Era] = field(default=(), init=False)
    _corrections: tuple[tuple[int, int, int], ...] = field(default=(), init=False)

    def start(self, leadMs: int, saved: Iterable[Era]) -> None:
        """
        Begin with the eras in the catalog.

        @param leadMs: The present lead.
        """
        saved = tuple(saved)
        self._ended = [each for each in saved if each.boot and each.boot == self._boot]
        self._others = [each for each in saved if not each.boot or each.boot != self._boot]
        # The first era of a boot begins with it: the wall clock was then the lead.
        self._begin(leadMs, leadMs)

    def step(self, leadMs: int, fromMs: int, untilMs: int, isBehind: bool) -> None:
        """
        End the present era, and begin another.

        @param leadMs: The lead after the step.
        @param fromMs: The first date after the step.
        @param untilMs: The last date before the step.
        @param isBehind: Whether the clock was behind before the step.
        """
        ended = Era(self._boot, self._leadMs, self._fromMs, untilMs, isBehind=isBehind)
        self._ended = _atMost([*self._ended, ended])
        self._begin(leadMs, fromMs)

    def merge(self, saved: Iterable[Era]) -> None:
        """Take over the eras of other boots from the catalog."""
        known = {_identity(each): each.byMs for each in self._others}
        self._others = [
            replace(each, byMs=each.byMs or known.get(_identity(each), 0))
            for each in saved
            if each.boot != self._boot
        ]
        self._correct()

    def resolve(self, nowMs: int) -> None:
        """
        Correct the eras in which another boot's clock was behind.

        @param nowMs: The date of a clock that is not behind.
        """
        self._others = [
            replace(each, byMs=max(0, nowMs - each.untilMs + STEP_MS))
            if each.isBehind and not each.byMs
            else each
            for each in self._others
        ]
        self._correct()

    def trust(self, isBehind: bool) -> None:
        """
        Take over from an operator that the date is right.

        @param isBehind: Whether the clock is behind the newest date; if so, that date was wrong.
            Otherwise the time of a step ahead has passed, so earlier dates were right, except those
            of a clock that was behind.
        """
        self._others = [
            each for each in self._others if each.isBehind and (each.byMs or not isBehind)
        ]
        self._ended = [each for each in self._ended if each.isBehind and not isBehind]
        self._correct()

    def saved(self, nowMs: int, isBehind: bool) -> tuple[Era, ...]:
        """
        Return the eras for the catalog; none if all dates are right.

        @param nowMs: The date of the clock.
        @param isBehind: Whether the clock is behind.
        """
        found = [each for each in self._others if each.byMs or each.isBehind]
        found += [replace(each, byMs=self._by(each)) for each in self._ended]
        if isBehind or self._ended:
            # Another reading is due before that date.
            until = nowMs + STEP_MS
            found.append(Era(self._boot, self._leadMs, self._fromMs, until, isBehind=isBehind))
        return tuple(_atMost(found))

    def corrected(self, dateMs: int) -> int:
        """
        Correct a date that the clock gave, in milliseconds since 1970.

        @return: The date, or a later one if the clock was behind then.
        """
        return dateMs + max(
            (by for first, last, by in self._corrections if first <= dateMs <= last), default=0
        )

    def _begin(self, leadMs: int, fromMs: int) -> None:
        """Begin an era, or continue one that had the same lead."""
        same = [each for each in self._ended if abs(each.leadMs - leadMs) <= STEP_MS]
        self._ended = [each for each in self._ended if each not in same]
        self._leadMs = leadMs
        self._fromMs = min([fromMs, *(each.fromMs for each in same)])
        self._correct()

    def _by(self, era: Era) -> int:
        return max(0, self._leadMs - era.leadMs)

    def _correct(self) -> None:
        corrections = [(each, self._by(each)) for each in self._ended]
        corrections += [(each, each.byMs) for each in self._others]
        self._corrections = tuple(
            (each.fromMs, each.untilMs, byMs) for each, byMs in corrections if byMs
        )


def _identity(era: Era) -> tuple[str, int, int]:
    return era.boot, era.leadMs, era.fromMs


def _atMost(eras: Iterable[Era]) -> Sequence[Era]:
    """Combine the eras that ended first, until there are L{MOST_ERAS}."""
    found = sorted(eras, key=lambda each: each.untilMs)
    while len(found) > MOST_ERAS:
        first, second, *rest = found
        # It covers both, and corrects as much as the one that corrects more.
        both = Era(
            first.boot if first.boot == second.boot else "",
            min(first.leadMs, second.leadMs),
            min(first.fromMs, second.fromMs),
            second.untilMs,
            max(first.byMs, second.byMs),
            first.isBehind or second.isBehind,
        )
        found = [both, *rest]
    return found
