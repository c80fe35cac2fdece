"""
The instances of one service: health, circuit breakers, concurrency, and the queue of calls.

A call gets an available instance with capacity that it has not tried yet; if the available
instances have no capacity, the call waits in a queue. If no instance is available, all of them are
candidates: the checks may be wrong, and refusing every call would help no caller.

The circuit breaker of an instance::

    closed      all calls; C{ejectAfter} failures in a row open it
    open        no calls; the duration doubles with each opening in a row
    half open   one call at a time: success closes it, failure opens it

A health check is a C{GET} of the path C{healthCheck}, which has to return 2xx.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.backoff import Backoff
from storagegate.core.errors import ServiceError, codedError
from storagegate.net.http.clientconnection import ConnectionPool
from storagegate.upstream.connections import Connect
from storagegate.upstream.metrics import UpstreamMetrics
from storagegate.upstream.options import DiscoveredService, Instance, formatAddress
from storagegate.upstream.strategies import Strategy


@define(eq=False)
class Breaker:
    """
    The circuit breaker of one instance.

    @ivar epoch: The number of openings. The outcome of a call from an earlier epoch is ignored.
    """

    _options: DiscoveredService
    _seconds: Callable[[], float]
    _random: Random
    _failures: int = 0
    _openings: int = 0
    _until: float | None = None
    _isTrying: bool = False
    epoch: int = 0

    @property
    def state(self) -> str:
        """Return the state: C{closed}, C{open} or C{half_open}."""
        if self._until is None:
            return "closed"
        return "open" if self._seconds() < self._until else "half_open"

    @property
    def isReady(self) -> bool:
        """Return whether a call may be sent now."""
        if self._until is None:
            return True
        return not self._isTrying and self._seconds() >= self._until

    @property
    def waitSeconds(self) -> float | None:
        """Return how long it stays open, in seconds; C{None} if it is not open."""
        if self._until is None:
            return None
        left = self._until - self._seconds()
        return left if left > 0 else None

    def begin(self) -> int:
        """Record the start of a call; return the epoch for L{ended}."""
        self._isTrying = self._until is not None
        return self.epoch

    def ended(self, epoch: int, hasResponded: bool | None) -> bool:
        """
        Record the end of a call.

        @param epoch: The result of L{begin}; a call that began before the breaker last opened is
            ignored.
        @param hasResponded: Whether there was a valid response; C{None} if the caller ended the
            call, so that another call may try.
        @return: Whether this outcome has opened the breaker.
        """
        if epoch != self.epoch:
            return False
        if hasResponded is False:
            self._failures += 1
            options = self._options
            if self._until is None and self._failures < options.ejectAfter:
                return False
            # The jitter prevents several gateways from retrying an instance at the same moment.
            backoff = Backoff(
                firstSeconds=options.ejectMs / 1000,
                maxSeconds=options.maxEjectMs / 1000,
                jitter=0.2,
            )
            pause = backoff.seconds(self._openings, self._random.uniform)
            self._until = self._seconds() + pause
            self._openings += 1
            self._failures = 0
            self.epoch += 1
        elif hasResponded:
            self._failures = self._openings = 0
            self._until = None
        self._isTrying = False
        return hasResponded is False

    def revive(self) -> None:
        """Allow a call immediately, because a health check has succeeded."""
        if self._until is not None:
            self._until = self._seconds()


@define(eq=False)
class InstanceState:
    """
    An instance with its connections and its state.

    @ivar active: The number of its calls in flight.
    @ivar isHealthy: The result of its health checks; true until they have failed.
    @ivar lastCheck: The time at which its last check ended, by the cluster's clock, and whether it
        succeeded; C{None} before the first check.
    """

    instance: Instance
    breaker: Breaker
    connections: ConnectionPool
    _options: DiscoveredService
    active: int = 0
    isHealthy: bool = True
    lastCheck: tuple[float, bool] | None = None
    # Consecutive checks that contradict isHealthy.
    _changes: int = 0

    @property
    def id(self) -> str:
        """Return its identifier."""
        return self.instance.id

    @property
    def weight(self) -> int:
        """Return its share of the calls."""
        return self.instance.weight

    @property
    def isAvailable(self) -> bool:
        """Return whether it may get a call now."""
        return self.isHealthy and self.breaker.isReady

    @property
    def state(self) -> str:
        """Return its state for metrics: C{healthy}, C{unhealthy} or C{ejected}."""
        if not self.isHealthy:
            return "unhealthy"
        return "ejected" if self.breaker.state == "open" else "healthy"

    def checked(self, isHealthy: bool) -> bool:
        """
        Record the result of a health check.

        @return: Whether L{isHealthy} has changed.
        """
        if isHealthy is self.isHealthy:
            self._changes = 0
            return False
        self._changes += 1
        needed = self._options.healthyAfter if isHealthy else self._options.unhealthyAfter
        if self._changes < needed:
            return False
        self._changes = 0
        self.isHealthy = isHealthy
        if isHealthy:
            self.breaker.revive()
        return True


class CallSlot:
    """The slot of one call at an instance. Only the first end is recorded."""

    def __init__(self, member: InstanceState, ended: Callable[[InstanceState, bool], None]) -> None:
        """@param ended: Called at the end with the instance and whether it was ejected."""
        self.member = member
        self._ended = ended
        self._isOver = False
        self._epoch = member.breaker.begin()
        member.active += 1

    def end(self, hasResponded: bool | None) -> None:
        """
        End the call.

        @param hasResponded: Whether the instance has sent a valid response, which may be an error;
            C{None} if the call was cancelled.
        """
        if not self._isOver:
            self._isOver = True
            isOut = self.member.breaker.ended(self._epoch, hasResponded)
            self.member.active -= 1
            self._ended(self.member, isOut)


Choose = Callable[[Sequence[InstanceState]], InstanceState | None]
"""Chooses one instance of a sequence that is never empty; C{None} leaves the choice to the
strategy."""

_log = Logger()


@define(eq=False)
class _Waiter:
    """
    A call that waits for an instance.

    @ivar choose: Chooses the only instance that it accepts; C{None} if it accepts any.
    """

    strategy: Strategy
    choose: Choose | None
    tried: Collection[str]
    slot: Deferred[CallSlot]


@define(eq=False)
class Cluster:
    """
    The instances of one service.

    @ivar name: The name of the service.
    @ivar strategies: The strategies by the names that L{acquire} accepts.
    @ivar members: The instances by id.
    @ivar onChange: Called with the instances that were added and the instances that were removed.
    """

    name: str
    options: DiscoveredService
    strategies: Mapping[str, Strategy]
    _connect: Connect
    _clock: IReactorTime
    _random: Random
    _meters: UpstreamMetrics
    members: dict[str, InstanceState] = field(factory=dict)
    onChange: Callable[[Iterable[InstanceState], Iterable[InstanceState]], None] = (
        lambda added, removed: None
    )
    _waiting: deque[_Waiter] = field(factory=deque)
    # Removed instances that still have calls in flight.
    _leaving: set[InstanceState] = field(factory=set)
    _isStopped: bool = False

    def __attrs_post_init__(self) -> None:
        self._meters.watch(self._gauges)

    @property
    def queued(self) -> int:
        """Return the number of waiting calls."""
        return len(self._waiting)

    def setInstances(self, instances: Iterable[Instance]) -> None:
        """Replace the instances; retained ones keep their state and connections."""
        if self._isStopped:
            return
        wanted = {each.id: each for each in instances}
        removed = [
            member
            for id, member in self.members.items()
            if id not in wanted or _address(member.instance) != _address(wanted[id])
        ]
        for member in removed:
            del self.members[member.id]
            member.connections.close()
            if member.active:
                self._leaving.add(member)
        added: list[InstanceState] = []
        before, self.members = self.members, {}
        for id, instance in wanted.items():
            known = before.get(id)
            if known is None:
                breaker = Breaker(self.options, self._clock.seconds, self._random)
                connections = ConnectionPool(partial(self._connect, instance), self._clock)
                known = InstanceState(instance, breaker, connections, self.options)
                added.append(known)
            known.instance = instance
            self.members[id] = known
        for strategy in self.strategies.values():
            strategy.retain(self.members)
        if added or removed:
            _log.info(
                "instances of {service}: {instances}",
                service=self.name,
                instances=", ".join(self.members) or "none",
            )
        self.onChange(added, removed)
        self.wake()

    def acquire(
        self,
        strategy: str,
        tried: Collection[str] = (),
        choose: Choose | None = None,
    ) -> Deferred[CallSlot]:
        """
        Acquire a slot at an instance for a call.

        @param strategy: The name of the strategy that chooses the instance.
        @param tried: The ids of instances to use only if no other is left.
        @param choose: Chooses before the strategy; while the chosen instance is available, no other
            is used.
        @return: A cancellable Deferred. It fails with C{UNAVAILABLE} if no instance is known, or
            too many calls wait.
        """
        waiter = _Waiter(self.strategies[strategy], choose, tried, Deferred(self._cancelWait))
        if not self.members:
            return fail(self._refused("none", f"No instance of {self.name} is known"))
        # Calls that wait already could not use the free capacity.
        member = self._find(waiter)
        if member is not None:
            return succeed(self._slot(member))
        if len(self._waiting) >= self.options.maxQueue:
            return fail(self._refused("full", f"Every instance of {self.name} is busy"))
        self._waiting.append(waiter)
        return waiter.slot

    def wake(self) -> None:
        """Assign instances with capacity to waiting calls."""
        for waiter in list(self._waiting):
            if not any(map(self._hasCapacity, self.members.values())):
                return
            # A call that resumes may end the wait of another call.
            member = self._find(waiter) if waiter in self._waiting else None
            if member is not None:
                self._waiting.remove(waiter)
                waiter.slot.callback(self._slot(member))

    def stop(self) -> Deferred[None]:
        """Close all connections; waiting calls fail."""
        self._isStopped = True
        self._meters.forget(self._gauges)
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.slot.errback(codedError("UNAVAILABLE", "No further calls are accepted"))
        members = [*self.members.values(), *self._leaving]
        self.onChange((), list(self.members.values()))
        self.members = {}
        closing = [member.connections.abort() for member in members]
        return gatherResults(closing).addCallback(lambda results: None)

    def _find(self, waiter: _Waiter) -> InstanceState | None:
        """Return the instance for a call; C{None} if it must wait."""
        available = [member for member in self.members.values() if member.isAvailable]
        candidates = available or list(self.members.values())
        untried = [member for member in candidates if member.id not in waiter.tried]
        candidates = untried or candidates
        if waiter.choose is not None and candidates:
            member = waiter.choose(candidates)
            if member is not None:
                return member if self._hasCapacity(member) else None
        free = [member for member in candidates if self._hasCapacity(member)]
        return waiter.strategy.choose(free) if free else None

    def _hasCapacity(self, member: InstanceState) -> bool:
        return member.active < self.options.maxConnections

    def _slot(self, member: InstanceState) -> CallSlot:
        if not member.isAvailable:
            self._meters.panics.add(1, (self.name,))
        return CallSlot(member, self._ended)

    def _ended(self, member: InstanceState, isOut: bool) -> None:
        if isOut:
            self._meters.ejections.add(1, (self.name,))
            _log.warn(
                "the instance {id} of {service} gets no calls for"
                " {seconds:.1f} s, because calls failed",
                id=member.id,
                service=self.name,
                seconds=member.breaker.waitSeconds or 0.0,
            )
        if member in self._leaving and not member.active:
            self._leaving.discard(member)
        self.wake()

    def _cancelWait(self, slot: Deferred[CallSlot]) -> None:
        """Remove a cancelled call from the queue."""
        for waiter in self._waiting:
            if waiter.slot is slot:
                self._waiting.remove(waiter)
                return

    def _refused(self, reason: str, message: str) -> ServiceError:
        self._meters.refused.add(1, (self.name, reason))
        return codedError("UNAVAILABLE", message)

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        members = self.members.values()
        for state in ("healthy", "unhealthy", "ejected"):
            yield state, self.name, sum(member.state == state for member in members)
        yield "active", self.name, sum(member.active for member in (*members, *self._leaving))
        yield "queued", self.name, len(self._waiting)
        yield "connections", self.name, sum(member.connections.count for member in members)


def _address(instance: Instance) -> tuple[str, int, bool | None]:
    return instance.host, instance.port, instance.tls


Check = Callable[[Instance], Deferred[bool]]
"""Checks the health of an instance; a failure counts as unhealthy. The Deferred is cancellable."""


def healthChecker(connect: Connect, path: str) -> Check:
    """
    Return an HTTP health check, which opens a new connection each time, as a new client would.

    @param path: The option C{healthCheck}: the path of the request.
    """

    async def check(instance: Instance) -> bool:
        connection = await connect(instance)
        host = formatAddress(instance.host, instance.port)
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        request = connection.begin(head.encode("ascii"), b"")
        try:
            return 200 <= (await request.head()).status < 300
        finally:
            request.close()
            connection.abort()

    return lambda instance: Deferred.fromCoroutine(check(instance))


@define(eq=False)
class HealthChecks:
    """
    Checks the instances of one service periodically.

    The interval is shortened by up to a tenth at random, so that many gateways do not check an
    instance at the same moment.
    """

    _cluster: Cluster
    _send: Check
    _clock: IReactorTime
    _random: Random
    _meters: UpstreamMetrics
    _timers: dict[InstanceState, IDelayedCall] = field(factory=dict)
    _inFlight: dict[InstanceState, Deferred[Any]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._cluster.onChange = self._changed

    def _changed(self, added: Iterable[InstanceState], removed: Iterable[InstanceState]) -> None:
        for member in removed:
            timer = self._timers.pop(member, None)
            if timer is not None and timer.active():
                timer.cancel()
            checking = self._inFlight.pop(member, None)
            if checking is not None:
                checking.cancel()
        for member in added:
            self._timers[member] = self._clock.callLater(0, self._check, member)

    def _check(self, member: InstanceState) -> None:
        # The interval counts from start to start: a slow response must not make checks rare.
        options = self._cluster.options
        pause = options.healthIntervalMs / 1000 * self._random.uniform(0.9, 1.0)
        self._timers[member] = self._clock.callLater(pause, self._check, member)
        if member in self._inFlight:
            return
        checking = self._inFlight[member] = self._send(member.instance)

        def ended(result: Any) -> None:
            # The check of a removed instance is not counted.
            if self._inFlight.pop(member, None) is not None:
                self._checked(member, result is True)

        checking.addTimeout(options.healthTimeoutMs / 1000, self._clock).addBoth(ended)

    def _checked(self, member: InstanceState, isHealthy: bool) -> None:
        self._meters.countCheck(self._cluster.name, isHealthy)
        member.lastCheck = self._clock.seconds(), isHealthy
        if member.checked(isHealthy):
            _log.warn(
                "the instance {id} of {service} is {state}",
                id=member.id,
                service=self._cluster.name,
                state="healthy again" if isHealthy else "unhealthy",
            )
            self._cluster.wake()
