"""
Readiness of the daemon, for the admin listener and the gRPC health service.

Each part of a process reports a problem or none. A worker reports its own parts, and the problems
that the other workers have broadcast.

C{GET /healthz} is 200 as long as the reactor runs. C{GET /readyz} is 503 while the daemon stops
and while the store accepts no writes, and names every part::

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


Response = tuple[int, Sequence[tuple[bytes, bytes]], bytes]

_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


@frozen
class Readiness:
    """
    The state of the daemon.

    @ivar status: C{"ok"}, C{"unavailable"} or C{"draining"}.
    @ivar error: Why it is not ready; L{None} if it is.
    @ivar parts: The problem of each part; L{None} for none.
    @ivar listeners: The problem of each listener.
    @ivar warnings: Problems that an operator should look at while requests are served.
    """

    status: str = "ok"
    error: str | None = None
    parts: Mapping[str, str | None] = field(factory=dict)
    warnings: Mapping[str, str | None] = field(factory=dict)
    listeners: Mapping[str, str | None] = field(factory=dict)


def respond(method: bytes, path: bytes, readiness: Callable[[], Readiness]) -> Response:
    """Make the response to a request of the admin listener: status, header fields and body."""
    if method not in (b"GET", b"HEAD"):
        return _json(404, {"error": "not found"})
    if path == b"/healthz":
        return _json(200, {"status": "ok"})
    if path == b"/readyz":
        return _readyz(readiness())
    return _json(404, {"error": "not found"})


def describeError(request: object, error: BaseException) -> Response:
    """Make the response to a request whose handler failed."""
    return _json(500, {"error": "internal error"})


def _readyz(readiness: Readiness) -> Response:
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


def _json(code: int, document: Mapping[str, Any]) -> Response:
    return code, (_JSON, _NO_STORE), msgspec.json.encode(document)


CHECK_SECONDS = 1.0
"""The period of the checks, that of a load balancer; one takes microseconds."""

FORGET_SECONDS = 3.0
"""The problem of a worker is dropped after this: its supervisor has replaced it."""

TOPIC = "readiness"

Check = Callable[[], Mapping[str, str | None]]
"""Returns the problem of each part by its name; C{None} for none."""


class ReadinessChecks:
    """
    The readiness checks of a process.

    @ivar isDraining: Whether the process stops.
    """

    def __init__(self, peers: "WorkerHealth | None" = None) -> None:
        """
        @param peers: The health of the other workers; C{None} without workers.
        """
        self.isDraining = False
        self._peers = peers
        self._parts: list[Check] = []
        self._listeners: list[Check] = []
        self._warnings: list[Check] = []

    def add(self, check: Check) -> None:
        """Add a check of parts without which no request is served."""
        self._parts.append(check)

    def addListeners(self, check: Check) -> None:
        """Add a check of listeners."""
        self._listeners.append(check)

    def addWarnings(self, check: Check) -> None:
        """Add a check of problems that do not affect readiness."""
        self._warnings.append(check)

    def evaluate(self) -> Readiness:
        """Run all checks."""
        parts, listeners, warnings = map(_all, (self._parts, self._listeners, self._warnings))
        if self._peers is not None:
            parts.update(self._peers.parts())
            warnings.update(self._peers.warnings())
        wrong = _problemOf({**parts, **listeners})
        if self.isDraining:
            status, error = "draining", "the daemon stops"
        elif wrong is not None:
            status, error = "unavailable", wrong
        else:
            status, error = "ok", None
        return Readiness(status, error, parts, warnings, listeners)

    def broadcast(self) -> None:
        """Send the problems of this worker to the others, without those that they have sent."""
        if self._peers is not None:
            own = {**_all(self._parts), **_all(self._listeners)}
            self._peers.broadcast(None if self.isDraining else _problemOf(own))


class ReadinessMonitor:
    """Runs the readiness checks periodically, and notifies of changes."""

    def __init__(
        self,
        clock: IReactorTime,
        checks: ReadinessChecks,
        onChange: Callable[[Readiness], object],
    ) -> None:
        """
        @param onChange: Called with the first result, and with each that differs from the last.
        """
        self._clock = clock
        self._checks = checks
        self._onChange = onChange
        self._last: Readiness | None = None
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Begin the checks."""
        self._timer = self._clock.callLater(CHECK_SECONDS, self.start)
        self._checks.broadcast()
        self.check()

    def check(self) -> None:
        """Run the checks now."""
        readiness = self._checks.evaluate()
        if readiness != self._last:
            self._last = readiness
            self._onChange(readiness)

    def stop(self) -> None:
        """Stop the checks."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


@define
class _WorkerProblem:
    """A problem that another worker has broadcast, with the time of its receipt in seconds."""

    error: str
    at: float


@define
class WorkerHealth:
    """
    The health of the other workers.

    A worker with a problem broadcasts it every second, and once that it has recovered.
    """

    _link: "WorkerIPC"
    _clock: IReactorTime
    _serving: int = field(init=False)
    _problems: dict[int, _WorkerProblem] = field(init=False, factory=dict)
    _hasProblem: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._serving = self._link.count
        self._link.subscribe(TOPIC, self._received)
        self._link.subscribe("workers", self._counted)

    def parts(self) -> Mapping[str, str | None]:
        """Return the problems of the others, for L{ReadinessChecks.add}."""
        now = self._clock.seconds()
        self._problems = {
            index: problem
            for index, problem in self._problems.items()
            if now - problem.at < FORGET_SECONDS
        }
        wrong = [f"{index}: {problem.error}" for index, problem in sorted(self._problems.items())]
        return {"workers": "; ".join(wrong) or None}

    def warnings(self) -> Mapping[str, str | None]:
        """Return whether workers are missing, for L{ReadinessChecks.addWarnings}."""
        if self._serving >= self._link.count:
            return {"workers": None}
        return {"workers": f"{self._serving} of {self._link.count} serve"}

    def broadcast(self, error: str | None) -> None:
        """Send the problem of this worker to the others; called every second."""
        if error is not None or self._hasProblem:
            self._link.broadcast(TOPIC, {"index": self._link.index, "error": error})
        self._hasProblem = error is not None

    def _received(self, payload: Any) -> None:
        if payload["error"] is None:
            self._problems.pop(payload["index"], None)
        else:
            self._problems[payload["index"]] = _WorkerProblem(
                payload["error"], self._clock.seconds()
            )

    def _counted(self, count: int) -> None:
        self._serving = count


def listening(ports: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return the problems of ports: one may have been closed by an error of its socket."""
    return {
        name: None if getattr(port, "connected", True) else "listens no more"
        for name, port in ports.items()
    }


def _all(checks: list[Check]) -> dict[str, str | None]:
    return {name: wrong for check in checks for name, wrong in check().items()}


def _problemOf(parts: Mapping[str, str | None]) -> str | None:
    return "; ".join(f"{name}: {wrong}" for name, wrong in parts.items() if wrong) or None
