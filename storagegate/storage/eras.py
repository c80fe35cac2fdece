"""
The eras of a machine's clock, which correct the dates of objects.

A clock that is behind gives dates that are too early, so that a rule which counts days would remove
an object too soon once the clock is right. An L{Era} is the time between two steps of the clock.
All its dates are wrong by the same amount: by the difference between the present lead of the wall
clock over the time since boot and the lead in the era. Only dates that are too early are corrected.

The time a machine was off is unknown. So if the clock was behind when the machine was turned off,
the dates of the era count as those of the next start.

The processes of a machine share the eras of a boot through the catalog: one may see a short step
that another does not see.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace

STEP_MS = 300_000
"""A smaller change of the lead ends no era."""

MOST_ERAS = 32
"""
Maximum number of saved eras, including the present one. Beyond it, the two eras are combined whose
union corrects the fewest other dates.
"""


class Era(Struct, frozen=True, omit_defaults=True):
    """
    The time between two steps of a clock. Times are in milliseconds, dates since 1970.

    @ivar boot: The id of the boot of the machine; empty for eras of several boots.
    @ivar leadMs: The lead of the wall clock over the time since boot.
    @ivar fromMs: The first date of the era.
    @ivar untilMs: The last date of the era.
    @ivar byMs: How much its dates are too early.
    @ivar isBehind: Whether the clock was behind the newest date that the store had seen, or had
        been set back.
    """

    boot: str
    leadMs: int
    fromMs: int
    untilMs: int
    byMs: int = 0
    isBehind: bool = False

    @property
    def isOpen(self) -> bool:
        """Whether the clock was behind by an unknown time."""
        return self.isBehind and not self.byMs

    @property
    def endMs(self) -> int:
        """The end of the era, in time since boot."""
        return self.untilMs - self.leadMs


@define(eq=False)
class Eras:
    """
    The eras of the clock of this machine, and those of former boots and of other machines.

    L{corrected} may run in any thread; the rest runs in the reactor thread. A change takes effect
    with L{resolve}.

    @ivar _boot: The id of this boot.
    @ivar _leadMs: The lead in the present era.
    @ivar _fromMs: The first date of the present era.
    @ivar _wasBehind: Whether the clock was behind in the present era. Time does not set it right.
    @ivar _aheadMs: The lead of the last era of this boot that did not begin with a step back.
    @ivar _ended: The ended eras of this boot.
    @ivar _unsaved: The ended eras that the catalog may not have yet.
    @ivar _others: The eras of other boots.
    @ivar _ends: For the last eras of other boots that were found open: their last date minus the
        time since this boot.
    """

    _boot: str
    _leadMs: int = field(default=0, init=False)
    _fromMs: int = field(default=0, init=False)
    _wasBehind: bool = field(default=False, init=False)
    _aheadMs: int = field(default=0, init=False)
    _ended: Sequence[Era] = field(default=(), init=False)
    _unsaved: Sequence[Era] = field(default=(), init=False)
    _others: Sequence[Era] = field(default=(), init=False)
    _ends: dict[tuple[str, int], int] = field(factory=dict, init=False)
    _corrections: tuple[tuple[int, int, int], ...] = field(default=(), init=False)

    def start(self, leadMs: int, saved: Sequence[Era]) -> None:
        """
        Begin with the eras in the catalog.

        @param leadMs: The present lead.
        """
        own = [each for each in saved if self._isOwn(each)]
        # The first era of a boot begins with it: the wall clock was then the lead.
        endMs = max([STEP_MS, *(each.endMs - STEP_MS for each in own)])
        self._begin(leadMs, leadMs + endMs - 2 * STEP_MS)
        self.merge(saved)
        self._wasBehind = any(each.isBehind and _areAlike(each.leadMs, leadMs) for each in own)
        ahead = [each for each in own if not each.isBehind]
        last = max(ahead, key=lambda each: each.endMs, default=None)
        self._aheadMs = leadMs if last is None else max(last.leadMs, leadMs)

    def step(self, leadMs: int, fromMs: int, untilMs: int, isBehind: bool) -> None:
        """
        End the present era, and begin another.

        @param leadMs: The lead after the step.
        @param fromMs: The first date after the step.
        @param untilMs: The last date before the step.
        @param isBehind: Whether the clock was behind before the step.
        """
        self._wasBehind |= isBehind
        ended = self._present(untilMs)
        same = [each for each in self._ended if _areAlike(each.leadMs, leadMs)]
        self._wasBehind = any(each.isBehind for each in same)
        # A clock that returns from a date ahead is not behind.
        if leadMs > self._aheadMs or (same and not self._wasBehind):
            self._aheadMs = leadMs
        self._unsaved = [*self._unsaved, ended]
        self._ended = [*self._ended, ended]
        self._begin(leadMs, fromMs)

    def follow(self, leadMs: int) -> None:
        """Continue the present era, whose lead has changed by less than a step."""
        self._begin(leadMs, self._fromMs)

    def merge(self, saved: Iterable[Era], confirmedMs: int | None = None) -> None:
        """
        Take over the eras in the catalog, of all processes and machines.

        @param confirmedMs: The date that an operator has confirmed, if the catalog does not have
            the confirmation yet.
        """
        saved = tuple(saved)
        if confirmedMs is not None:
            saved = _confirmed(saved, confirmedMs)
        own = [each for each in saved if self._isOwn(each)]
        self._others = [each for each in saved if not self._isOwn(each)]
        self._unsaved = [
            each for each in self._unsaved if not any(_includes(other, each) for other in saved)
        ]
        self._ended = [*own, *self._unsaved]
        self._begin(self._leadMs, self._fromMs)

    def resolve(self, passedMs: int, isRight: bool) -> None:
        """
        Put the corrections of all eras into effect.

        @param passedMs: The time since boot.
        @param isRight: Whether the clock is right, so that the correction is final.
        """
        found = self._resolved(passedMs)
        if isRight and not self._isSetBack and not self._wasBehind:
            self._others = found
        self._corrections = tuple(
            (each.fromMs, each.untilMs, each.byMs) for each in (*self._ended, *found) if each.byMs
        )

    def trust(self, nowMs: int) -> None:
        """
        Accept an operator's confirmation of the date. Time really passed at a step ahead, unless
        the clock was behind: then the step set it right.

        @param nowMs: The confirmed date.
        """
        self._aheadMs, self._wasBehind = self._leadMs, False
        self._ended = _confirmed(self._ended, nowMs)
        self._unsaved = _confirmed(self._unsaved, nowMs)
        self._others = _confirmed(self._others, nowMs)

    def saved(self, nowMs: int, isBehind: bool, isStepped: bool) -> tuple[Era, ...]:
        """
        Return the eras for the catalog; none if all dates are right.

        @param nowMs: The date of the clock.
        @param isBehind: Whether the clock is behind.
        @param isStepped: Whether the clock is not trusted.
        """
        self._wasBehind |= isBehind
        found = [each for each in self._others if each.byMs or each.isBehind]
        found += self._ended
        if not (self._wasBehind or isStepped or self._ended):
            return _atMost(found)
        # Another reading is due before that date.
        until = nowMs + STEP_MS
        return (*_atMost(found), self._present(until))

    def corrected(self, dateMs: int) -> int:
        """
        Correct a date that the clock gave, in milliseconds since 1970.

        @return: The date, or a later one if the clock was behind then.
        """
        return dateMs + max(
            (by for first, last, by in self._corrections if first <= dateMs <= last), default=0
        )

    def _present(self, untilMs: int) -> Era:
        isBehind = self._wasBehind or self._isSetBack
        return Era(self._boot, self._leadMs, self._fromMs, untilMs, isBehind=isBehind)

    @property
    def _isSetBack(self) -> bool:
        return self._leadMs < self._aheadMs - STEP_MS

    def _isOwn(self, era: Era) -> bool:
        return era.boot == self._boot

    def _begin(self, leadMs: int, fromMs: int) -> None:
        """Begin or continue an era, together with those that had the same lead."""
        self._leadMs, self._fromMs = leadMs, fromMs
        ended: list[Era] = []
        for each in self._ended:
            if _areAlike(each.leadMs, leadMs):
                self._fromMs = min(self._fromMs, each.fromMs)
                continue
            era = replace(each, byMs=max(0, leadMs - each.leadMs))
            same = [other for other in ended if _areAlike(other.leadMs, era.leadMs)]
            ended = [other for other in ended if other not in same]
            for other in same:
                era = _union(era, other)
            ended.append(era)
        self._ended = _atMost(ended)
        self._unsaved = _atMost(
            [replace(each, byMs=max(0, leadMs - each.leadMs)) for each in self._unsaved]
        )

    def _resolved(self, passedMs: int) -> Sequence[Era]:
        """
        Return the eras of other boots with their corrections.

        How far an open era was behind is unknown. Its last date counts as the time when this
        process first saw the era.
        """
        groups: dict[object, list[Era]] = {}
        for each in self._others:
            groups.setdefault(each.boot or each, []).append(each)
        ends, found = {}, []
        for eras in groups.values():
            # The end is known to a few minutes.
            endMs = max(each.endMs for each in eras) - STEP_MS
            last = max(eras, key=lambda each: (each.isOpen and each.endMs >= endMs, each.endMs))
            key = (last.boot, last.fromMs)
            if last.isBehind:
                byMs = last.byMs
                if last.isOpen or key in self._ends:
                    endMs = last.untilMs - STEP_MS - passedMs
                    ends[key] = max(endMs, self._ends.get(key, endMs))
                    byMs = max(0, self._leadMs - ends[key])
                rightMs = last.leadMs + byMs
                eras = [replace(each, byMs=max(0, rightMs - each.leadMs)) for each in eras]
            found += eras
        self._ends = ends
        return found


def _confirmed(eras: Iterable[Era], nowMs: int) -> tuple[Era, ...]:
    """
    Return the eras in which the clock was behind. None corrects a date beyond the confirmed one.
    """
    return tuple(
        replace(each, byMs=min(each.byMs, max(0, nowMs - each.untilMs + STEP_MS)))
        for each in eras
        if each.isBehind
    )


def _areAlike(leadMs: int, otherMs: int) -> bool:
    return abs(leadMs - otherMs) <= STEP_MS


def areIn(eras: Iterable[Era], saved: Sequence[Era]) -> bool:
    """Return whether the catalog has eras, perhaps with other ends."""
    return all(any(_isPartOf(era, each) for each in saved) for era in eras)


def _isPartOf(era: Era, other: Era) -> bool:
    """Return whether an era is another one, or one of several that another one combines."""
    if era.boot == other.boot:
        return era.leadMs >= other.leadMs - STEP_MS
    return not other.boot and other.fromMs <= era.fromMs and other.byMs >= era.byMs


def _includes(era: Era, other: Era) -> bool:
    """Return whether an era corrects all dates of another."""
    return (
        _isPartOf(other, era)
        and era.fromMs <= other.fromMs
        and era.untilMs >= other.untilMs
        and era.isBehind >= other.isBehind
    )


def _union(first: Era, second: Era) -> Era:
    """Return an era that covers both, and corrects as much as the one that corrects more."""
    return Era(
        first.boot if first.boot == second.boot else "",
        min(first.leadMs, second.leadMs),
        min(first.fromMs, second.fromMs),
        max(first.untilMs, second.untilMs),
        max(first.byMs, second.byMs),
        first.isBehind or second.isBehind,
    )


def _excess(pair: tuple[Era, Era]) -> tuple[bool, int]:
    """Return how much the union of two eras corrects that they do not correct."""
    both = _union(*pair)
    excess, *parts = ((each.untilMs - each.fromMs) * each.byMs for each in (both, *pair))
    # An open era is not resolved any more if the union is not open.
    return pair[0].isOpen != pair[1].isOpen, excess - sum(parts)


def _atMost(eras: Sequence[Era]) -> tuple[Era, ...]:
    """Combine the eras whose union corrects the fewest other dates."""
    found = tuple(eras)
    while len(found) >= MOST_ERAS:
        pair = min(combinations(found, 2), key=_excess)
        found = (*(each for each in found if each not in pair), _union(*pair))
    return found
