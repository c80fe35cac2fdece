"""
Readiness of the daemon, for the admin listener and the gRPC health service.

Each part of a process reports whether it has a problem. A worker reports its own parts, and the
problems that the other workers have broadcast.

C{GET /healthz} returns 200 as long as the reactor runs. C{GET /readyz} returns 503 while the daemon
stops and while the store accepts no writes, and lists every part::

    {"status": "unavailable", "error": "...",
     "parts": {"catalog": "ok", "blobs": "...", "s3": "listening"}}

If C{metricsToken} is configured, a request without it gets only the status, and no metrics.
Otherwise the texts contain no paths, because every client of the listener can read them.
"""

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import field, frozen
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.auth.throttle import AuthFailureThrottle
from storagegate.telemetry.metrics import MetricFamily, gaugesFamily

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
    @ivar error: Why the daemon is not ready; C{None} if it is ready.
    @ivar parts: The problem of each part; C{None} without a problem.
    @ivar listeners: The problem of each listener.
    @ivar warnings: Problems that need an operator's attention while requests are served.
    """

    status: str = "ok"
    error: str | None = None
    parts: Mapping[str, str | None] = field(factory=dict)
    warnings: Mapping[str, str | None] = field(factory=dict)
    listeners: Mapping[str, str | None] = field(factory=dict)


NO_DETAILS, NO_PATHS, ALL = range(3)
"""Level of detail of a L{Readiness} in responses: only the status, all but paths, everything."""

# A path that begins at the root; a quoted path, as in system error messages, may contain blanks.
_PATH = re.compile(r"""(?<=')/[^']*(?=')|(?<=")/[^"]*(?=")|(?<![\w.:/])/[^\s'",;:)\]]+""")

_HIDDEN_PATH = "..."


def _withoutPaths(value: Any) -> Any:
    if isinstance(value, dict):
        return {_withoutPaths(name): _withoutPaths(each) for name, each in value.items()}
    return _PATH.sub(_HIDDEN_PATH, value) if isinstance(value, str) else value


UNAUTHORISED: Response = (
    401,
    (_JSON, _NO_STORE, (b"www-authenticate", b'Bearer realm="storagegate"')),
    b'{"error":"unauthorized"}',
)
"""The response to a scrape without the token."""


class MetricsGate:
    """
    Checks the token of requests for metrics and for the details of readiness.

    @ivar isClosed: Whether a token is configured; requests without it get neither.
    """

    def __init__(self, token: str, clock: IReactorTime) -> None:
        """
        @param token: The token; empty if none is configured.
        @param clock: Times the delays of responses after several wrong tokens.
        """
        self.isClosed = bool(token)
        self._token = token.encode()
        self._throttle = AuthFailureThrottle(clock)

    async def check(self, authorization: bytes | None, address: str) -> bool:
        """
        Return whether a request has the token.

        @param authorization: The value of the header field; C{None} if it is absent.
        @param address: The address of the client; wrong tokens are counted by address.
        """
        if not self.isClosed or authorization is None:
            return False
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return True
        await self._throttle.wait(self._throttle.failed(address))
        return False

    def details(self, hasToken: bool) -> int:
        """Return the level of detail for a request."""
        if hasToken:
            return ALL
        return NO_DETAILS if self.isClosed else NO_PATHS


def respond(
    method: bytes, path: bytes, readiness: Callable[[], Readiness], details: int = ALL
) -> Response:
    """
    Make the response to a request of the admin listener: status, header fields and body.

    @param details: C{NO_DETAILS}, C{NO_PATHS} or C{ALL}.
    """
    if method not in (b"GET", b"HEAD") or path not in (b"/healthz", b"/readyz"):
        return _json(404, {"error": "not found"})
    if path == b"/healthz":
        return _json(200, {"status": "ok"})
    found = readiness()
    document: dict[str, Any] = {"status": found.status}
    code = 200 if found.status == "ok" else 503
    if details == NO_DETAILS:
        return _json(code, document)
    if found.error is not None:
        document["error"] = found.error
    document["parts"] = {
        **{name: wrong or "ok" for name, wrong in found.parts.items()},
        **{name: wrong or "listening" for name, wrong in found.listeners.items()},
    }
    warnings = {
        name: text
        for name, text in found.warnings.items()
        if text is not None and text != found.parts.get(name)
    }
    if warnings:
        document["warnings"] = warnings
    return _json(code, document if details == ALL else _withoutPaths(document))


def describeError(request: object, error: BaseException) -> Response:
    """Make the response to a request whose handler failed."""
    return _json(500, {"error": "internal error"})


def _json(code: int, document: Mapping[str, Any]) -> Response:
    return code, (_JSON, _NO_STORE), msgspec.json.encode(document)


CHECK_SECONDS = 1.0
"""The interval of the checks, equal to a load balancer's; a check takes microseconds."""

FORGET_SECONDS = 3.0
"""The problem of a worker is dropped after this time: the supervisor has replaced the worker."""

TOPIC = "readiness"

Check = Callable[[], Mapping[str, str | None]]
"""Returns the problem of each part by name; C{None} without a problem."""


class ReadinessChecks:
    """
    The readiness checks of a process, which run every second.

    @ivar isDraining: Whether the process is stopping.
    """

    def __init__(
        self,
        clock: IReactorTime,
        parts: Check,
        listeners: Check,
        warnings: Check,
        onChange: Callable[[Readiness], object],
        peers: "WorkerHealth | None" = None,
    ) -> None:
        """
        @param clock: Times the checks.
        @param parts: Checks the parts that are required to serve requests.
        @param listeners: Checks the listeners.
        @param warnings: Returns problems that do not affect readiness.
        @param onChange: Called with the first result, and with each result that differs from the
            previous one.
        @param peers: The health of the other workers; C{None} without workers.
        """
        self.isDraining = False
        self._clock = clock
        self._parts, self._listeners, self._warnings = parts, listeners, warnings
        self._onChange = onChange
        self._peers = peers
        self._last: Readiness | None = None
        self._timer: IDelayedCall | None = None

    def evaluate(self) -> Readiness:
        """Run all checks."""
        parts, warnings = dict(self._parts()), dict(self._warnings())
        listeners = self._listeners()
        if self._peers is not None:
            parts.update(self._peers.parts())
            warnings.update(self._peers.warnings())
        wrong = _problemOf({**parts, **listeners})
        if self.isDraining:
            status, error = "draining", "the daemon is stopping"
        elif wrong is not None:
            status, error = "unavailable", wrong
        else:
            status, error = "ok", None
        return Readiness(status, error, parts, warnings, listeners)

    def start(self) -> None:
        """Run the checks now and every second."""
        self._timer = self._clock.callLater(CHECK_SECONDS, self.start)
        if self._peers is not None:
            # Excludes the problems that other workers have sent.
            own = _problemOf({**self._parts(), **self._listeners()})
            self._peers.broadcast(None if self.isDraining else own)
        self.check()

    def check(self) -> None:
        """Run the checks now."""
        readiness = self.evaluate()
        if readiness != self._last:
            self._last = readiness
            self._onChange(readiness)

    def stop(self) -> None:
        """Stop the checks."""
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


class WorkerHealth:
    """
    The health of the other workers.

    A worker with a problem broadcasts it every second, and its recovery once.
    """

    def __init__(self, link: "WorkerIPC", clock: IReactorTime) -> None:
        self._link = link
        self._clock = clock
        self._serving = link.count
        # The problem and the time of receipt, by the index of the worker.
        self._problems: dict[int, tuple[str, float]] = {}
        self._hasProblem = False
        link.subscribe(TOPIC, self._received)
        link.subscribe("workers", lambda count: setattr(self, "_serving", count))

    def parts(self) -> Mapping[str, str | None]:
        """Return the problems of the other workers."""
        oldest = self._clock.seconds() - FORGET_SECONDS
        self._problems = {
            index: problem for index, problem in self._problems.items() if problem[1] > oldest
        }
        wrong = [f"{index}: {error}" for index, (error, _) in sorted(self._problems.items())]
        return {"workers": "; ".join(wrong) or None}

    def warnings(self) -> Mapping[str, str | None]:
        """Return whether workers are missing."""
        if self._serving >= self._link.count:
            return {"workers": None}
        return {"workers": f"{self._serving} of {self._link.count} serve"}

    def broadcast(self, error: str | None) -> None:
        """Send the problem of this worker to the other workers; called every second."""
        if error is not None or self._hasProblem:
            self._link.broadcast(TOPIC, {"index": self._link.index, "error": error})
        self._hasProblem = error is not None

    def _received(self, payload: Any) -> None:
        if payload["error"] is None:
            self._problems.pop(payload["index"], None)
        else:
            self._problems[payload["index"]] = (payload["error"], self._clock.seconds())


def listening(ports: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return the problems of ports: a socket error may have closed a port."""
    return {
        name: None if getattr(port, "connected", True) else "no longer listens"
        for name, port in ports.items()
    }


CERTIFICATE_DAYS = 14
"""A certificate that expires sooner is a warning, as in the doctor: half of the usual margin."""


def certificateWarnings(ports: Mapping[str, Any], now: float) -> Mapping[str, str | None]:
    """
    Reload certificates whose files have changed, and return the problems of all certificates.

    @param now: The current time in seconds since 1970.
    """
    found: dict[str, str | None] = {}
    for name, port in ports.items():
        certificates = getattr(port, "certificates", None)
        if certificates is None:
            continue
        certificates.refresh()
        wrong = [] if certificates.problem is None else [certificates.problem]
        for file, end in certificates.ends.items():
            if end - now < CERTIFICATE_DAYS * 86400:
                day = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d")
                wrong.append(f"{file} {'expires' if end > now else 'expired'} on {day}")
        found[f"certificate of {name}"] = "; ".join(wrong) or None
    return found


def certificateFamily(ports: Mapping[str, Any]) -> MetricFamily:
    """Return the metric of the expiry times of the ports' certificates."""
    samples = [
        ((name, file), end)
        for name, port in ports.items()
        for file, end in getattr(getattr(port, "certificates", None), "ends", {}).items()
    ]
    name = "storagegate_tls_certificate_expiry_timestamp_seconds"
    help = "Time at which a listener's certificate expires, since 1970."
    return gaugesFamily(name, help, ("listener", "file"), samples, "max")


def _problemOf(parts: Mapping[str, str | None]) -> str | None:
    """Return all problems in one line, each once, with the names of the affected parts."""
    names: dict[str, list[str]] = {}
    for name, wrong in parts.items():
        if wrong:
            names.setdefault(wrong, []).append(name)
    return "; ".join(f"{', '.join(of)}: {wrong}" for wrong, of in names.items()) or None
