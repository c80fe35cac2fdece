"""
Whether the daemon serves: looked at part by part, for C{/readyz} and the gRPC health service.

A part is ready, or says what is wrong with it. A worker answers for its own parts, and for those
of the others as far as they have told it what is wrong.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.admin import Readiness

if TYPE_CHECKING:
    # A process that is alone has no use for it.
    from storagegate.net.workerlink import WorkerLink

LOOK_SECONDS = 1.0
"""How often the parts are looked at: a balancer asks no more often, and it costs microseconds."""

FORGET_SECONDS = 3.0
"""After this a worker that says no more is taken for gone: its supervisor starts another."""

TOPIC = "readiness"

Check = Callable[[], Mapping[str, str | None]]
"""Gives parts by name, and what is wrong with each; C{None} for nothing."""


class Board:
    """
    The parts of a process.

    @ivar isDraining: Whether the process stops.
    """

    def __init__(self, peers: "Peers | None" = None) -> None:
        """
        @param peers: The other workers, where there are some.
        """
        self.isDraining = False
        self._peers = peers
        self._parts: list[Check] = []
        self._listeners: list[Check] = []
        self._warnings: list[Check] = []

    def add(self, check: Check) -> None:
        """Add parts without which nothing is served."""
        self._parts.append(check)

    def addListeners(self, check: Check) -> None:
        """Add listeners."""
        self._listeners.append(check)

    def addWarnings(self, check: Check) -> None:
        """Add what an operator should look at while requests are served."""
        self._warnings.append(check)

    def look(self) -> Readiness:
        """Tell how all of them are now."""
        parts, listeners, warnings = map(_all, (self._parts, self._listeners, self._warnings))
        if self._peers is not None:
            parts.update(self._peers.parts())
            warnings.update(self._peers.warnings())
        wrong = _wrong({**parts, **listeners})
        if self.isDraining:
            status, error = "draining", "the daemon stops"
        elif wrong is not None:
            status, error = "unavailable", wrong
        else:
            status, error = "ok", None
        return Readiness(status, error, parts, warnings, listeners)

    def say(self) -> None:
        """Tell the other workers what is wrong with this one, without what they have said."""
        if self._peers is not None:
            own = {**_all(self._parts), **_all(self._listeners)}
            self._peers.say(None if self.isDraining else _wrong(own))


class Lookout:
    """Looks at the board again and again, and tells who wants to know when something changes."""

    def __init__(
        self, clock: IReactorTime, board: Board, tell: Callable[[Readiness], object]
    ) -> None:
        """
        @param tell: Called with the first look, and with each that is not the same as the last.
        """
        self._clock = clock
        self._board = board
        self._tell = tell
        self._told: Readiness | None = None
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin."""
        self._timer = self._clock.callLater(LOOK_SECONDS, self.start)
        self._board.say()
        self.look()

    def look(self) -> None:
        """Look now: something is known to have changed."""
        seen = self._board.look()
        if seen != self._told:
            self._told = seen
            self._tell(seen)

    def stop(self) -> None:
        """Look no more."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


@define
class _Told:
    """What another worker has said of itself."""

    error: str
    at: float


@define
class Peers:
    """
    What a worker knows of the others.

    Each says every second what is wrong with it, if anything is, and once that it is well again.
    """

    _link: "WorkerLink"
    _clock: IReactorTime
    _serving: int = field(init=False)
    _wrong: dict[int, _Told] = field(init=False, factory=dict)
    _isWrong: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._serving = self._link.count
        self._link.subscribe(TOPIC, self._heard)
        self._link.subscribe("workers", self._counted)

    def parts(self) -> Mapping[str, str | None]:
        """Tell what is wrong with others, for L{Board.add}."""
        now = self._clock.seconds()
        self._wrong = {
            index: told for index, told in self._wrong.items() if now - told.at < FORGET_SECONDS
        }
        wrong = [f"{index}: {told.error}" for index, told in sorted(self._wrong.items())]
        return {"workers": "; ".join(wrong) or None}

    def warnings(self) -> Mapping[str, str | None]:
        """Tell whether one is missing, for L{Board.addWarnings}; the others serve meanwhile."""
        if self._serving >= self._link.count:
            return {"workers": None}
        return {"workers": f"{self._serving} of {self._link.count} serve"}

    def say(self, error: str | None) -> None:
        """Tell the others what is wrong here, every second anew."""
        if error is not None or self._isWrong:
            self._link.broadcast(TOPIC, {"index": self._link.index, "error": error})
        self._isWrong = error is not None

    def _heard(self, payload: Any) -> None:
        if payload["error"] is None:
            self._wrong.pop(payload["index"], None)
        else:
            self._wrong[payload["index"]] = _Told(payload["error"], self._clock.seconds())

    def _counted(self, count: int) -> None:
        self._serving = count


def listening(ports: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Tell which ports listen: one may have been closed by an error of its socket."""
    return {
        name: None if getattr(port, "connected", True) else "listens no more"
        for name, port in ports.items()
    }


def _all(checks: list[Check]) -> dict[str, str | None]:
    return {name: wrong for check in checks for name, wrong in check().items()}


def _wrong(parts: Mapping[str, str | None]) -> str | None:
    return "; ".join(f"{name}: {wrong}" for name, wrong in parts.items() if wrong) or None
