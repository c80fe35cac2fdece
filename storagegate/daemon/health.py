"""
Whether the daemon serves: looked at part by part, for C{/readyz} and the gRPC health service.

A part is ready, or says what is wrong with it. A worker answers for its own parts, and for those
of the others as far as they have told it what is wrong.

The admin listener's answers: whether the process lives, and whether it is ready.

C{GET /healthz} is 200 as long as the reactor turns. C{GET /readyz} is 503 while the daemon stops
and while the store takes no writes, and names every part::

    {"status": "unavailable", "error": "...",
     "parts": {"catalog": "ok", "blobs": "...", "s3": "listening"}}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import define, field, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

if TYPE_CHECKING:
    from storagegate.net.ipc import WorkerIPC


Answer = tuple[int, Sequence[tuple[bytes, bytes]], bytes]

_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


@frozen
class Readiness:
    """
    How the daemon is.

    @ivar status: C{"ok"}, C{"unavailable"} or C{"draining"}.
    @ivar error: Why it is not ready; L{None} where it is.
    @ivar parts: Each part and what is wrong with it; L{None} where nothing is.
    @ivar listeners: The same of each listener.
    @ivar warnings: What an operator should look at while requests are served; L{None} for nothing.
    """

    status: str = "ok"
    error: str | None = None
    parts: Mapping[str, str | None] = field(factory=dict)
    warnings: Mapping[str, str | None] = field(factory=dict)
    listeners: Mapping[str, str | None] = field(factory=dict)


def answer(method: bytes, path: bytes, readiness: Callable[[], Readiness]) -> Answer:
    """Make the answer to a request of the admin listener."""
    if method not in (b"GET", b"HEAD"):
        return _json(404, {"error": "not found"})
    if path == b"/healthz":
        return _json(200, {"status": "ok"})
    if path == b"/readyz":
        return _readyz(readiness())
    return _json(404, {"error": "not found"})


def describeError(request: object, error: BaseException) -> Answer:
    """Make the answer where making one failed."""
    return _json(500, {"error": "internal error"})


def _readyz(readiness: Readiness) -> Answer:
    document: dict[str, Any] = {"status": readiness.status}
    if readiness.error is not None:
        document["error"] = readiness.error
    document["parts"] = {name: wrong or "ok" for name, wrong in readiness.parts.items()}
    document["parts"].update(
        {name: wrong or "listening" for name, wrong in readiness.listeners.items()}
    )
    warnings = {name: text for name, text in readiness.warnings.items() if text is not None}
    if warnings:
        document["warnings"] = warnings
    return _json(200 if readiness.status == "ok" else 503, document)


def _json(code: int, document: Mapping[str, Any]) -> Answer:
    return code, (_JSON, _NO_STORE), msgspec.json.encode(document)


if TYPE_CHECKING:
    # A process that is alone has no use for it.
    pass

LOOK_SECONDS = 1.0
"""How often the parts are looked at: a balancer asks no more often, and it costs microseconds."""

FORGET_SECONDS = 3.0
"""After this a worker that says no more is taken for gone: its supervisor starts another."""

TOPIC = "readiness"

Check = Callable[[], Mapping[str, str | None]]
"""Gives parts by name, and what is wrong with each; C{None} for nothing."""


class ReadinessChecks:
    """
    The parts of a process.

    @ivar isDraining: Whether the process stops.
    """

    def __init__(self, peers: "WorkerHealth | None" = None) -> None:
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


class ReadinessMonitor:
    """Looks at the board again and again, and tells who wants to know when something changes."""

    def __init__(
        self, clock: IReactorTime, board: ReadinessChecks, tell: Callable[[Readiness], object]
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
class WorkerHealth:
    """
    What a worker knows of the others.

    Each says every second what is wrong with it, if anything is, and once that it is well again.
    """

    _link: "WorkerIPC"
    _clock: IReactorTime
    _serving: int = field(init=False)
    _wrong: dict[int, _Told] = field(init=False, factory=dict)
    _isWrong: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._serving = self._link.count
        self._link.subscribe(TOPIC, self._heard)
        self._link.subscribe("workers", self._counted)

    def parts(self) -> Mapping[str, str | None]:
        """Tell what is wrong with others, for L{ReadinessChecks.add}."""
        now = self._clock.seconds()
        self._wrong = {
            index: told for index, told in self._wrong.items() if now - told.at < FORGET_SECONDS
        }
        wrong = [f"{index}: {told.error}" for index, told in sorted(self._wrong.items())]
        return {"workers": "; ".join(wrong) or None}

    def warnings(self) -> Mapping[str, str | None]:
        """Tell whether one is missing, for L{ReadinessChecks.addWarnings}; the others serve
        meanwhile."""
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
