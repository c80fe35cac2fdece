"""How many calls there were in the last minute, and how many of them failed."""

from collections.abc import Mapping

SECONDS = 60


class LastMinute:
    """A ring of seconds, each with the calls of every wire and those of them that failed."""

    def __init__(self) -> None:
        self._second = -1
        self._first: int | None = None
        self._counts: dict[str, list[int]] = {}
        self._ring: dict[int, dict[str, list[int]]] = {}

    def add(self, second: int, protocol: str, isFailed: bool, calls: int = 1) -> None:
        """
        Count calls.

        @param second: When they ended, by a clock that only goes forward.
        """
        if second != self._second:
            self._turn(second)
        counts = self._counts.get(protocol)
        if counts is None:
            counts = self._counts[protocol] = [0, 0]
        counts[0] += calls
        counts[1] += calls * isFailed

    def shares(self, second: int) -> Mapping[str, tuple[float, float]]:
        """Give, by protocol, the calls a second and the share of them that failed."""
        self._turn(second)
        totals: dict[str, list[int]] = {}
        for counts in self._ring.values():
            for protocol, (calls, failed) in counts.items():
                total = totals.setdefault(protocol, [0, 0])
                total[0] += calls
                total[1] += failed
        # Who has not counted for a minute yet says what there was in the time that it did.
        began = second if self._first is None else self._first
        seconds = min(SECONDS, second - began + 1)
        return {name: (calls / seconds, failed / calls) for name, (calls, failed) in totals.items()}

    def _turn(self, second: int) -> None:
        """Go on to another second."""
        if self._first is None:
            self._first = second
        for past in [past for past in self._ring if past <= second - SECONDS]:
            del self._ring[past]
        self._second = second
        self._counts = self._ring.setdefault(second, {})
