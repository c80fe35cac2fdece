"""
What those who use discovery know of it.

Does a step again and again, and waits the longer the more often it has failed.

What is wrong with a source, told to the operator without filling the log.

What all providers have in common: who wants to know what, and what was last known.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import Attribute, Interface, implementer

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
"""Takes the instances of a service, all of them, whenever they have changed."""


class SourceError(Exception):
    """A source of instances cannot be read; the text fits a line of a log."""


class IProvider(Interface):
    """
    Knows where services are.

    What it last knew stays: a source that is away, slow or talks nonsense changes nothing.
    """

    problem: str | None = Attribute("What is wrong with the source now; None if nothing is.")

    def watch(service: str, changed: Changed) -> None:
        """
        Have the instances of a service told, at first and whenever they change.

        Nothing is told before something is known. To be called before C{start}.
        """

    def start() -> None:
        """Begin."""

    def stop() -> Deferred[None]:
        """End: nothing is told any more, and nothing is left behind."""


FIRST_SECONDS = 1.0
"""The shortest wait after a failure."""

MAX_SECONDS = 30.0
"""The longest: so late at most is noticed that a source is back."""

CALM_SECONDS = 60.0
"""Failures that are further apart than this have nothing to do with each other."""

MIN_SECONDS = 0.1
"""Between two steps: a source that has news all the time is not asked without a pause."""

_log = Logger()


BACKOFF = Backoff(firstSeconds=FIRST_SECONDS, maxSeconds=MAX_SECONDS, minSeconds=FIRST_SECONDS)


class RetryLoop:
    """Runs one loop; what goes wrong in it is told, and never ends it."""

    def __init__(
        self,
        clock: Any,
        step: Callable[[], Awaitable[float]],
        failed: Callable[[str], None],
        worked: Callable[[], None],
        uniform: Uniform = random.uniform,
    ) -> None:
        """
        @param step: Does it once; gives how many seconds to wait before the next time.
        @param failed: Is told what went wrong.
        @param worked: Is told that a step went well.
        """
        self._clock = clock
        self._step = step
        self._failed = failed
        self._worked = worked
        self._uniform = uniform
        self._stopped = False
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._running = Deferred.fromCoroutine(self._run())

    def stop(self) -> Deferred[None]:
        """End; what is under way is cancelled."""
        self._stopped = True
        ended: Deferred[None] = Deferred()
        if self._running is None:
            ended.callback(None)
        else:
            self._running.addBoth(lambda result: ended.callback(None))
            self._running.cancel()
            if not ended.called:
                # The step that has led here is running, and can be cancelled when it waits again.
                self._clock.callLater(0, self._running.cancel)
        return ended

    async def _run(self) -> None:
        failures = 0
        failedAt = float("-inf")
        while not self._stopped:
            try:
                pause = await self._step()
            except (SourceError, HTTPClientError, CancelledError) as error:
                if self._stopped:
                    return
                self._failed(str(error) or "was cancelled")
            except Exception as error:
                # A fault of ours must not end what is to go on for months.
                _log.failure("a step of discovery failed")
                self._failed(f"{type(error).__name__}: {error}")
            else:
                self._worked()
                await self._sleep(max(pause, MIN_SECONDS))
                continue
            now = self._clock.seconds()
            failures = 1 if now - failedAt > CALM_SECONDS else failures + 1
            failedAt = now
            await self._sleep(BACKOFF.seconds(failures, self._uniform))

    async def _sleep(self, seconds: float) -> None:
        if not self._stopped:
            await deferLater(self._clock, seconds)


LOG_SECONDS = 60.0
"""Between two lines about one source: who reads the log in the morning needs no more."""

_MAX_TEXT = 300


class ProblemReporter:
    """
    Keeps what is wrong, by whom it is wrong for, and logs it once a minute.
    """

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        """
        @param name: What has the trouble, in the log.
        @param seconds: Gives seconds for measuring.
        """
        self._name = name
        self._seconds = seconds
        self._texts: dict[str, str] = {}
        self._loggedAt = float("-inf")
        self._isLogged = False

    @property
    def problem(self) -> str | None:
        """Tell what is wrong now; C{None} if nothing is."""
        return next((f"{key}: {text}" for key, text in self._texts.items()), None)

    def begin(self, key: str, text: str) -> None:
        """
        Take note that something is wrong.

        @param key: Whom it is wrong for: a service.
        """
        self._texts[key] = escapeField(text)[:_MAX_TEXT]
        if self._seconds() - self._loggedAt >= LOG_SECONDS:
            self._loggedAt = self._seconds()
            self._isLogged = True
            _log.warn("{name}: {problem}", name=self._name, problem=self.problem)

    def end(self, key: str) -> None:
        """Take note that it is not wrong any more."""
        if self._texts.pop(key, None) is not None and not self._texts and self._isLogged:
            self._isLogged = False
            _log.info("{name}: all is well again", name=self._name)


class Publish(Protocol):
    """Takes what a source says of a service."""

    def __call__(self, instances: Iterable[Instance], wrong: str | None = None) -> None:
        """
        Take it.

        @param wrong: What of it had to be left out.
        """


class Watch(Protocol):
    """Follows one service at a source."""

    async def step(self) -> float:
        """
        Ask once, and publish the answer.

        @return: Seconds to wait before the next time.
        @raise SourceError: If there was none.
        """


MakeWatch = Callable[[str, Publish], Watch]
"""Makes what follows the service of a name at the source."""


class _Known:
    """What is known of one service."""

    def __init__(self) -> None:
        self.instances: tuple[Instance, ...] | None = None
        self.changed: list[Changed] = []
        self.wrong: str | None = None


@implementer(IProvider)
class InstanceProvider:
    """Tells where services are: those with a list at once, others as a source says."""

    def __init__(
        self,
        name: str,
        services: Mapping[str, DiscoveredService],
        makeWatch: MakeWatch | None,
        reactor: Any,
        meters: MetricsRegistry,
        uniform: Uniform,
    ) -> None:
        """
        @param name: That of the provider.
        @param makeWatch: C{None} if there is no source.
        """
        self._services = services
        self._makeWatch = makeWatch
        self._reactor = reactor
        self._uniform = uniform
        self._trouble = ProblemReporter(f"discovery by {name}", reactor.seconds)
        self._known: dict[str, _Known] = {}
        self._followers: list[RetryLoop] = []
        self._stopped = False
        self._gauge = meters.gauge(
            "storagegate_discovery_instances", "Instances known of a service.", ["service"], "max"
        )
        self._failures = meters.counter(
            "storagegate_discovery_failures_total", "Questions without an answer.", ["service"]
        )
        self._changes = meters.counter(
            "storagegate_discovery_changes_total", "Changes of the instances known.", ["service"]
        )

    @property
    def problem(self) -> str | None:
        """Tell what is wrong with the source now; C{None} if nothing is."""
        return self._trouble.problem

    def watch(self, service: str, changed: Changed) -> None:
        """Have the instances of a service told."""
        self._known.setdefault(service, _Known()).changed.append(changed)

    def start(self) -> None:
        """Begin."""
        for service in self._known:
            options = self._services.get(service) or DiscoveredService()
            if options.instances is not None:
                self._publish(service, options.instances)
            elif self._makeWatch is not None:
                self._follow(service, options.name or service, self._makeWatch)

    def stop(self) -> Deferred[None]:
        """End."""
        self._stopped = True
        followers, self._followers = self._followers, []
        stopping: Deferred[Any] = gatherResults([each.stop() for each in followers])
        return stopping.addCallback(lambda results: None)

    def _follow(self, service: str, knownAs: str, makeWatch: MakeWatch) -> None:
        known = self._known[service]

        def publish(instances: Iterable[Instance], wrong: str | None = None) -> None:
            known.wrong = wrong
            # By their names: a source that lists the same in another order has no news.
            self._publish(service, tuple(sorted(distinct(instances), key=lambda each: each.id)))

        def failed(text: str) -> None:
            self._failures.add(1, (service,))
            self._trouble.begin(service, text)

        def worked() -> None:
            if known.wrong is None:
                self._trouble.end(service)
            else:
                self._trouble.begin(service, known.wrong)

        step = makeWatch(knownAs, publish).step
        follower = RetryLoop(self._reactor, step, failed, worked, self._uniform)
        self._followers.append(follower)
        follower.start()

    def _publish(self, service: str, instances: tuple[Instance, ...]) -> None:
        known = self._known[service]
        if self._stopped or instances == known.instances:
            return
        known.instances = instances
        self._gauge.set(len(instances), (service,))
        self._changes.add(1, (service,))
        for changed in known.changed:
            try:
                changed(instances)
            except Exception:
                _log.failure("the instances of {service} were not taken", service=service)


# Of a token or a password.
_MAX_SECRET = 64 * 1024


def readMessage(data: bytes, kind: type[T], lax: bool = False) -> T:
    """
    Read JSON of a known form.

    @param lax: Whether numbers may be written as text, as Protocol Buffers do.
    @raise SourceError: If it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=not lax)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SourceError(f"answers with nonsense: {error}") from None


def readEach(
    raw: Iterable[R], read: Callable[[R], Iterable[Instance]]
) -> tuple[tuple[Instance, ...], str | None]:
    """
    Read the entries of a list.

    One that is nonsense is left out, for it says nothing of the others. If all are, it is the
    list that is not to be believed.

    @param read: Gives the instances of an entry, or raises C{ValueError} or L{SourceError}.
    @return: The instances, and what is wrong with the last entry that was left out.
    @raise SourceError: If none can be read, or there are too many.
    """
    instances: list[Instance] = []
    good, wrong = 0, None
    for each in raw:
        try:
            instances.extend(read(each))
            good += 1
        except (ValueError, SourceError) as error:
            wrong = f"an entry is left out: {error}"
        if len(instances) > MAX_INSTANCES:
            raise SourceError(f"knows more than {MAX_INSTANCES} instances")
    if wrong is not None and not good:
        raise SourceError(wrong)
    return distinct(instances), wrong


def boundedWeight(weight: int) -> int:
    """Give a weight that an instance may have: that of others may be larger, or 0."""
    return min(max(weight, 1), MAX_WEIGHT)


def readSecret(file: str) -> str:
    """
    Read a token or a password from a file, as it is now.

    @raise SourceError: If it is not there, or could not stand in a field of HTTP.
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
        raise SourceError(f"there is no secret in {file}")
    return text


def asJSON(message: Any) -> bytes:
    """Write a message."""
    return msgspec.json.encode(message)
