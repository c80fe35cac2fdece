"""
Providers: they find the instances of services, in the options or at a source.

A L{Watch} queries a source step by step; a L{RetryLoop} runs it, with growing delays while it
fails. The last known instances stay valid: a source that is unreachable, slow or sends invalid data
changes nothing, and a L{ProblemReporter} logs the problem once a minute.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.backoff import Backoff, Uniform
from storagegate.core.files import FileTooLong, readSmallFile
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.telemetry.log import escapeField
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.options import (
    MAX_INSTANCES,
    MAX_WEIGHT,
    DiscoveredService,
    Instance,
    distinct,
)

T = TypeVar("T")
R = TypeVar("R")

Changed = Callable[[tuple[Instance, ...]], None]
"""Receives all instances of a service at each change."""

Publish = Callable[[Iterable[Instance], str | None], None]
"""Receives the instances of a service at a source, and the problem with skipped entries, if any."""

FIRST_SECONDS = 1.0
"""The shortest wait after a failure."""

MAX_SECONDS = 30.0
"""The longest wait: the return of a source is noticed within this time."""

CALM_SECONDS = 60.0
"""Failures that are further apart are unrelated."""

MIN_SECONDS = 0.1
"""The pause between two steps: it limits the load when a source changes all the time."""

BACKOFF = Backoff(firstSeconds=FIRST_SECONDS, maxSeconds=MAX_SECONDS, minSeconds=FIRST_SECONDS)

LOG_SECONDS = 60.0
"""The minimum time between two log lines about one source."""

# Limit of the text of a problem, in characters.
_MAX_TEXT = 300

# Limit of a token or a password, in bytes.
_MAX_SECRET = 64 * 1024

_log = Logger()


class SourceError(Exception):
    """A source of instances cannot be read; the text fits on a log line."""


class Watch(Protocol):
    """Follows one service at one source."""

    async def step(self) -> float:
        """
        Query the source once, and publish the result.

        @return: The wait before the next step, in seconds.
        @raise SourceError: If the source gives no usable response.
        """


MakeWatch = Callable[[str, Publish], Watch]
"""Makes the watch of a service, by its name at the source."""


@define(eq=False)
class RetryLoop:
    """
    Repeats a step until it is stopped; a failed step is repeated after a growing delay.

    @ivar step: Performs the step, and returns the seconds to wait before the next one.
    @ivar onFailure: Called with the reason after each failed step.
    @ivar onSuccess: Called after each step that succeeded.
    """

    _clock: Any
    step: Callable[[], Awaitable[float]]
    onFailure: Callable[[str], None]
    onSuccess: Callable[[], None]
    _uniform: Uniform = random.uniform
    _stopped: bool = False
    _running: Deferred[None] | None = None

    def start(self) -> None:
        """Start the loop."""
        self._running = Deferred.fromCoroutine(self._run())

    def stop(self) -> Deferred[None]:
        """Cancel the step in flight, and end the loop."""
        self._stopped = True
        ended: Deferred[None] = Deferred()
        if self._running is None:
            ended.callback(None)
        else:
            self._running.addBoth(lambda result: ended.callback(None))
            self._running.cancel()
            if not ended.called:
                # Called from the step itself, which can be cancelled once it waits again.
                self._clock.callLater(0, self._running.cancel)
        return ended

    async def _run(self) -> None:
        failures = 0
        failedAt = float("-inf")
        while not self._stopped:
            try:
                pause = max(await self.step(), MIN_SECONDS)
                self.onSuccess()
            except (SourceError, HTTPClientError, CancelledError) as error:
                reason: str | None = str(error) or "was cancelled"
            except Exception as error:
                # An internal error must not end a loop that runs for months.
                _log.failure("a discovery step failed")
                reason = f"{type(error).__name__}: {error}"
            else:
                reason = None
            if self._stopped:
                return
            if reason is not None:
                self.onFailure(reason)
                now = self._clock.seconds()
                failures = 1 if now - failedAt > CALM_SECONDS else failures + 1
                failedAt = now
                pause = BACKOFF.seconds(failures, self._uniform)
            await deferLater(self._clock, pause)


@define(eq=False)
class ProblemReporter:
    """
    Keeps the current problems of a source by service, and logs one of them each minute.

    @ivar name: The name of the subsystem in the log.
    """

    name: str
    _seconds: Callable[[], float]
    _texts: dict[str, str] = field(factory=dict)
    _loggedAt: float = float("-inf")
    _isLogged: bool = False

    @property
    def problem(self) -> str | None:
        """Return one current problem; C{None} if there is none."""
        return next((f"{key}: {text}" for key, text in self._texts.items()), None)

    def begin(self, key: str, text: str) -> None:
        """
        Record a problem.

        @param key: The service with the problem.
        """
        self._texts[key] = escapeField(text)[:_MAX_TEXT]
        if self._seconds() - self._loggedAt >= LOG_SECONDS:
            self._loggedAt = self._seconds()
            self._isLogged = True
            _log.warn("{name}: {problem}", name=self.name, problem=self.problem)

    def end(self, key: str) -> None:
        """Clear the problem of a service."""
        if self._texts.pop(key, None) is not None and not self._texts and self._isLogged:
            self._isLogged = False
            _log.info("{name}: works again", name=self.name)


@define(eq=False)
class _ServiceState:
    instances: tuple[Instance, ...] | None = None
    changed: list[Changed] = field(factory=list)
    problem: str | None = None


@define(eq=False)
class InstanceProvider:
    """
    Publishes the instances of services: lists from the options at the start, the others as a source
    reports them.

    @ivar name: The name of the provider, for the log.
    @ivar makeWatch: Makes the watch of a service; C{None} without a source.
    @ivar uniform: Draws the delays after failures.
    """

    name: str
    services: Mapping[str, DiscoveredService]
    makeWatch: MakeWatch | None
    _reactor: Any
    meters: MetricsRegistry
    uniform: Uniform
    _problems: ProblemReporter = field(init=False)
    _states: dict[str, _ServiceState] = field(factory=dict, init=False)
    _loops: list[RetryLoop] = field(factory=list, init=False)
    _stopped: bool = field(default=False, init=False)
    _gauge: Any = field(init=False)
    _failures: Any = field(init=False)
    _changes: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._problems = ProblemReporter(f"discovery by {self.name}", self._reactor.seconds)
        prefix, labels = "storagegate_discovery", ["service"]
        self._gauge = self.meters.gauge(
            f"{prefix}_instances", "Known instances of a service.", labels, "max"
        )
        self._failures = self.meters.counter(f"{prefix}_failures_total", "Failed queries.", labels)
        self._changes = self.meters.counter(
            f"{prefix}_changes_total", "Changes of the known instances.", labels
        )

    @property
    def problem(self) -> str | None:
        """Return the current problem with the source; C{None} if there is none."""
        return self._problems.problem

    def watch(self, service: str, changed: Changed) -> None:
        """
        Subscribe to the instances of a service. Must be called before L{start}.

        @param changed: Called when the instances are first known, and at each change.
        """
        self._states.setdefault(service, _ServiceState()).changed.append(changed)

    def start(self) -> None:
        """Publish the lists from the options, and start to query the source."""
        for service in self._states:
            options = self.services.get(service) or DiscoveredService()
            if options.instances is not None:
                self._publish(service, options.instances)
            elif self.makeWatch is not None:
                self._follow(service, options.name or service, self.makeWatch)

    def stop(self) -> Deferred[None]:
        """Stop querying and publishing."""
        self._stopped = True
        loops, self._loops = self._loops, []
        stopping: Deferred[Any] = gatherResults([each.stop() for each in loops])
        return stopping.addCallback(lambda results: None)

    def _follow(self, service: str, knownAs: str, makeWatch: MakeWatch) -> None:
        state = self._states[service]

        def publish(instances: Iterable[Instance], problem: str | None) -> None:
            state.problem = problem
            # Sorted, because the same list in another order is not a change.
            self._publish(service, tuple(sorted(distinct(instances), key=lambda each: each.id)))

        def onFailure(text: str) -> None:
            self._failures.add(1, (service,))
            self._problems.begin(service, text)

        def onSuccess() -> None:
            if state.problem is None:
                self._problems.end(service)
            else:
                self._problems.begin(service, state.problem)

        step = makeWatch(knownAs, publish).step
        loop = RetryLoop(self._reactor, step, onFailure, onSuccess, self.uniform)
        self._loops.append(loop)
        loop.start()

    def _publish(self, service: str, instances: tuple[Instance, ...]) -> None:
        state = self._states[service]
        if self._stopped or instances == state.instances:
            return
        state.instances = instances
        self._gauge.set(len(instances), (service,))
        self._changes.add(1, (service,))
        for changed in state.changed:
            try:
                changed(instances)
            except Exception:
                _log.failure("the instances of {service} could not be applied", service=service)


def readMessage(data: bytes, kind: type[T], lax: bool = False, default: T | None = None) -> T:
    """
    Parse JSON of a known type.

    @param data: The whole body of a response, in UTF-8.
    @param lax: Whether numbers may be written as text, as Protocol Buffers do.
    @param default: Returned if the message has another type; with C{None} this is an error.
    @raise SourceError: If the message has another type.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=not lax)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if default is not None:
            return default
        raise SourceError(f"the response is invalid: {error}") from None


def readEach(
    raw: Iterable[R], read: Callable[[R], Iterable[Instance]]
) -> tuple[tuple[Instance, ...], str | None]:
    """
    Parse the entries of a list. Invalid entries are skipped, unless all are invalid.

    @param raw: The entries in the form of the source.
    @param read: Returns the instances of an entry, or raises C{ValueError} or L{SourceError}.
    @return: The instances, and the problem with the last skipped entry.
    @raise SourceError: If no entry is valid, or there are too many instances.
    """
    instances: list[Instance] = []
    hasValid, problem = False, None
    for each in raw:
        try:
            instances.extend(read(each))
            hasValid = True
        except (ValueError, SourceError) as error:
            problem = f"ignoring an entry: {error}"
        if len(instances) > MAX_INSTANCES:
            raise SourceError(f"has more than {MAX_INSTANCES} instances")
    if problem is not None and not hasValid:
        raise SourceError(problem)
    return distinct(instances), problem


def boundedWeight(weight: int) -> int:
    """
    Return the nearest valid weight: a source may report 0 or a larger weight.

    @param weight: Any integer; the result is from 1 to L{MAX_WEIGHT}.
    """
    return min(max(weight, 1), MAX_WEIGHT)


def readSecret(file: str) -> str:
    """
    Read the current token or password from a file.

    @param file: The path of the file. White space at both ends of the text is stripped; the rest
        must be printable ASCII.
    @raise SourceError: If the file cannot be read, or its content is not valid in a header field.
    """
    try:
        text = readSmallFile(file, _MAX_SECRET).strip().decode("ascii")
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceError(f"cannot read {file}: not ASCII") from None
    except FileTooLong as error:
        raise SourceError(f"cannot read {file}: {error}") from None
    if not text or not text.isprintable():
        raise SourceError(f"{file} contains no secret")
    return text
