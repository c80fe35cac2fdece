"""
The instances of one service: who of them is well, who gets the next call, and who waits.

A call gets an instance that is well, has not been tried for it, and has room; if those that are
well have none, it waits in a queue. If nobody is well, all of them are tried as if they were: what
says so may be wrong, and no call is answered by sending none.

One instance as calls see it: whether it is well, how much it has to do, and its connections.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from attrs import define, frozen
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.backoff import Backoff
from storagegate.core.errors import ServiceError, codedError
from storagegate.net.http.clientconnection import ConnectionPool
from storagegate.upstream.connections import Connect
from storagegate.upstream.metrics import UpstreamMeters
from storagegate.upstream.options import DiscoveredService, Instance, formatAddress
from storagegate.upstream.strategies import Strategy


@frozen
class BreakerLimits:
    """
    When a breaker opens, and for how long.

    @ivar failures: Failures in a row that open it.
    @ivar seconds: How long it is open the first time.
    @ivar maxSeconds: How long at most.
    """

    failures: int = 5
    seconds: float = 1.0
    maxSeconds: float = 60.0


class Breaker:
    """
    The breaker of one instance.

    @ivar epoch: Counts its openings. What became of a call that began in another epoch says nothing
        about the present one.
    """

    def __init__(self, limits: BreakerLimits, seconds: Callable[[], float], random: Random) -> None:
        """
        @param seconds: Gives the time.
        """
        self._limits = limits
        self._backoff = Backoff(
            firstSeconds=limits.seconds, maxSeconds=limits.maxSeconds, jitter=0.2
        )
        self._seconds = seconds
        self._random = random
        self._failures = 0
        self._openings = 0
        self._until: float | None = None
        self._isTrying = False
        self.epoch = 0

    @property
    def state(self) -> str:
        """Tell the state: C{closed}, C{open} or C{half_open}."""
        if self._until is None:
            return "closed"
        return "open" if self._seconds() < self._until else "half_open"

    @property
    def isReady(self) -> bool:
        """Tell whether a call may go there now."""
        if self._until is None:
            return True
        return not self._isTrying and self._seconds() >= self._until

    @property
    def waitSeconds(self) -> float | None:
        """Tell how long it stays open; C{None} if it is not."""
        if self._until is None:
            return None
        left = self._until - self._seconds()
        return left if left > 0 else None

    def begin(self) -> int:
        """Take note of a call; give the epoch that its end is told with."""
        self._isTrying = self._until is not None
        return self.epoch

    def succeeded(self, epoch: int) -> None:
        """Take note of a call that was answered."""
        if epoch != self.epoch:
            return
        self._failures = self._openings = 0
        self._until = None
        self._isTrying = False

    def failed(self, epoch: int) -> bool:
        """
        Take note of a call that was not answered.

        @return: Whether that has opened it.
        """
        if epoch != self.epoch:
            return False
        self._failures += 1
        if self._until is None and self._failures < self._limits.failures:
            return False
        self._open()
        return True

    def gaveUp(self, epoch: int) -> None:
        """Take note of a call that its caller ended: that says nothing, and another may try."""
        if epoch == self.epoch:
            self._isTrying = False

    def revive(self) -> None:
        """Allow a call at once: somebody else has seen the instance well."""
        if self._until is not None:
            self._until = self._seconds()

    def _open(self) -> None:
        length = self._backoff.seconds(self._openings, self._random.uniform)
        self._until = self._seconds() + length
        self._openings += 1
        self._failures = 0
        self._isTrying = False
        self.epoch += 1


class InstanceState:
    """
    An instance.

    @ivar active: Calls that it has in flight.
    @ivar breaker: Whether it gets calls, by what became of the last ones.
    @ivar isHealthy: Whether it is well by its health check; it is until one says otherwise.
    """

    def __init__(
        self,
        instance: Instance,
        options: DiscoveredService,
        connect: Connect,
        clock: IReactorTime,
        random: Random,
    ) -> None:
        self.instance = instance
        self.active = 0
        limits = BreakerLimits(
            options.ejectAfter, options.ejectMs / 1000, options.maxEjectMs / 1000
        )
        self.breaker = Breaker(limits, clock.seconds, random)
        self.connections = ConnectionPool(partial(connect, instance), clock)
        self.isHealthy = True
        self._options = options
        # Checks in a row that said something else than is known.
        self._changes = 0

    @property
    def id(self) -> str:
        """Name it."""
        return self.instance.id

    @property
    def weight(self) -> int:
        """Tell its share of the calls."""
        return self.instance.weight

    @property
    def isWell(self) -> bool:
        """Tell whether it may get a call now."""
        return self.isHealthy and self.breaker.isReady

    @property
    def state(self) -> str:
        """Tell what an operator should know: C{well}, C{ill} or C{ejected}."""
        if not self.isHealthy:
            return "ill"
        return "ejected" if self.breaker.state == "open" else "well"

    def checked(self, isWell: bool) -> bool:
        """
        Take what a health check said.

        @return: Whether that has changed what is known of it.
        """
        if isWell is self.isHealthy:
            self._changes = 0
            return False
        self._changes += 1
        needed = self._options.healthyAfter if isWell else self._options.unhealthyAfter
        if self._changes < needed:
            return False
        self._changes = 0
        self.isHealthy = isWell
        if isWell:
            # What failed before was the illness that is over.
            self.breaker.revive()
        return True


class CallSlot:
    """The place of one call among those of an instance, until its end is told, once."""

    def __init__(self, member: InstanceState, ended: Callable[[InstanceState, bool], None]) -> None:
        """
        @param ended: Gets the member, and whether the end has put it out.
        """
        self.member = member
        self._ended = ended
        self._isOver = False
        self._epoch = member.breaker.begin()
        member.active += 1

    def succeeded(self) -> None:
        """Tell that the instance has answered, whatever it said."""
        if not self._isOver:
            self.member.breaker.succeeded(self._epoch)
            self._end(False)

    def failed(self) -> None:
        """Tell that the instance has not answered, or nothing that makes sense."""
        if not self._isOver:
            self._end(self.member.breaker.failed(self._epoch))

    def gaveUp(self) -> None:
        """Tell that the caller wants no answer any more."""
        if not self._isOver:
            self.member.breaker.gaveUp(self._epoch)
            self._end(False)

    def _end(self, isOut: bool) -> None:
        self._isOver = True
        self.member.active -= 1
        self._ended(self.member, isOut)


Choose = Callable[[Sequence[InstanceState]], InstanceState]
"""Gives one of at least one."""

_log = Logger()


@define(eq=False)
class _Waiter:
    """
    A call that waits for an instance.

    @ivar isBound: Whether it wants one instance and no other.
    """

    choose: Choose
    isBound: bool
    tried: Collection[str]
    lease: Deferred[CallSlot]


class Cluster:
    """
    The instances of one service.

    @ivar members: The instances by id.
    @ivar changed: Told of members that came and that went.
    """

    def __init__(
        self,
        name: str,
        options: DiscoveredService,
        strategies: Mapping[str, Strategy],
        connect: Connect,
        clock: IReactorTime,
        random: Random,
        meters: UpstreamMeters,
    ) -> None:
        """
        @param name: The service's.
        @param strategies: Those that calls name when they ask for an instance.
        """
        self.name = name
        self.options = options
        self.members: dict[str, InstanceState] = {}
        self.changed: Callable[[Iterable[InstanceState], Iterable[InstanceState]], None] = (
            lambda new, old: None
        )
        self._strategies = strategies
        self._connect = connect
        self._clock = clock
        self._random = random
        self._meters = meters
        self._waiting: deque[_Waiter] = deque()
        # Those that are no longer in the set and still have calls in flight.
        self._leaving: set[InstanceState] = set()
        self._isStopped = False
        meters.watch(self._gauges)

    @property
    def queued(self) -> int:
        """Count the calls that wait."""
        return len(self._waiting)

    def setInstances(self, instances: Iterable[Instance]) -> None:
        """Take the instances that there are now; those that stay keep all that is known of them."""
        if self._isStopped:
            return
        wanted = {each.id: each for each in instances}
        gone = [
            member
            for id, member in self.members.items()
            if id not in wanted or not _isSamePlace(member.instance, wanted[id])
        ]
        for member in gone:
            del self.members[member.id]
            self._leave(member)
        come: list[InstanceState] = []
        before, self.members = self.members, {}
        for id, instance in wanted.items():
            known = before.get(id)
            if known is None:
                known = InstanceState(
                    instance, self.options, self._connect, self._clock, self._random
                )
                come.append(known)
            known.instance = instance
            self.members[id] = known
        for strategy in self._strategies.values():
            strategy.keep(self.members)
        if come or gone:
            _log.info(
                "instances of {service}: {instances}",
                service=self.name,
                instances=", ".join(self.members) or "none",
            )
        self.changed(come, gone)
        self.wake()

    def acquire(
        self,
        strategy: str,
        tried: Collection[str] = (),
        choose: Choose | None = None,
    ) -> Deferred[CallSlot]:
        """
        Get an instance for a call.

        @param strategy: Which strategy chooses.
        @param tried: The ids of those that are not wanted, unless there is no other.
        @param choose: Chooses in its place: then no other instance will do while that one is well.
        @return: Fails with C{UNAVAILABLE} if there is no instance, or too many calls wait. It may
            be cancelled.
        """
        chosen = self._strategies[strategy].choose if choose is None else choose
        waiter = _Waiter(chosen, choose is not None, tried, Deferred(self._giveUp))
        if not self.members:
            return fail(self._refused("none", f"No instance of {self.name} is known"))
        # Whoever waits already was told of all room that there is, and could not use it.
        member = self._find(waiter)
        if member is not None:
            return succeed(self._leased(member))
        if len(self._waiting) >= self.options.maxQueue:
            return fail(self._refused("full", f"Every instance of {self.name} is busy"))
        self._waiting.append(waiter)
        return waiter.lease

    def wake(self) -> None:
        """Give instances that have room to those that wait."""
        for waiter in list(self._waiting):
            if not any(map(self._hasRoom, self.members.values())):
                return
            # What goes on with one may be what another waited for.
            member = self._find(waiter) if waiter in self._waiting else None
            if member is not None:
                self._waiting.remove(waiter)
                waiter.lease.callback(self._leased(member))

    def stop(self) -> Deferred[None]:
        """Close all connections; calls that wait get none."""
        self._isStopped = True
        self._meters.forget(self._gauges)
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.lease.errback(codedError("UNAVAILABLE", "No further calls are taken"))
        members = [*self.members.values(), *self._leaving]
        self.changed((), list(self.members.values()))
        self.members = {}
        closing = [member.connections.abort() for member in members]
        return gatherResults(closing).addCallback(lambda results: None)

    def _find(self, waiter: _Waiter) -> InstanceState | None:
        """Find the instance of a call; C{None} if it has to wait."""
        well = [member for member in self.members.values() if member.isWell]
        candidates = well or list(self.members.values())
        untried = [member for member in candidates if member.id not in waiter.tried]
        candidates = untried or candidates
        if waiter.isBound and candidates:
            member = waiter.choose(candidates)
            return member if self._hasRoom(member) else None
        free = [member for member in candidates if self._hasRoom(member)]
        return waiter.choose(free) if free else None

    def _hasRoom(self, member: InstanceState) -> bool:
        return member.active < self.options.maxConnections

    def _leased(self, member: InstanceState) -> CallSlot:
        if not member.isWell:
            self._meters.panics.add(1, (self.name,))
        return CallSlot(member, self._ended)

    def _ended(self, member: InstanceState, isOut: bool) -> None:
        if isOut:
            self._meters.ejections.add(1, (self.name,))
            _log.warn(
                "the instance {id} of {service} gets no calls for {seconds:.1f} s: they failed",
                id=member.id,
                service=self.name,
                seconds=member.breaker.waitSeconds or 0.0,
            )
        if member in self._leaving and not member.active:
            self._leaving.discard(member)
        self.wake()

    def _leave(self, member: InstanceState) -> None:
        """Let an instance end its calls that is no longer in the set."""
        member.connections.close()
        if member.active:
            self._leaving.add(member)

    def _giveUp(self, lease: Deferred[CallSlot]) -> None:
        """Forget a call that does not wait any more."""
        for waiter in self._waiting:
            if waiter.lease is lease:
                self._waiting.remove(waiter)
                return

    def _refused(self, reason: str, message: str) -> ServiceError:
        self._meters.refused.add(1, (self.name, reason))
        return codedError("UNAVAILABLE", message)

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        members = self.members.values()
        for state in ("well", "ill", "ejected"):
            yield state, self.name, sum(member.state == state for member in members)
        yield "active", self.name, sum(member.active for member in (*members, *self._leaving))
        yield "queued", self.name, len(self._waiting)
        yield "connections", self.name, sum(member.connections.count for member in members)


def _isSamePlace(one: Instance, other: Instance) -> bool:
    return (one.host, one.port, one.tls) == (other.host, other.port, other.tls)


Ask = Callable[[Instance], Deferred[bool]]
"""Asks an instance whether it is well; a failure is a no. It may be cancelled."""


def healthAsker(connect: Connect, path: str) -> Ask:
    """Make what asks by HTTP, each time on a connection of its own, as a new client would."""

    async def ask(instance: Instance) -> bool:
        connection = await connect(instance)
        place = formatAddress(instance.host, instance.port)
        head = f"GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
        exchange = connection.begin(head.encode("ascii"), b"")
        try:
            return 200 <= (await exchange.head()).status < 300
        finally:
            exchange.close()
            connection.abort()

    return lambda instance: Deferred.fromCoroutine(ask(instance))


class HealthChecks:
    """
    Checks the instances of one service, each at its own time.

    The time between two checks of an instance varies by a tenth and is never longer than it should
    be, so that many gateways do not ask at the same moment.
    """

    def __init__(
        self,
        cluster: Cluster,
        ask: Ask,
        clock: IReactorTime,
        random: Random,
        meters: UpstreamMeters,
    ) -> None:
        self._cluster = cluster
        self._ask = ask
        self._clock = clock
        self._random = random
        self._meters = meters
        self._interval = cluster.options.healthIntervalMs / 1000
        self._timeout = cluster.options.healthTimeoutMs / 1000
        self._timers: dict[InstanceState, IDelayedCall] = {}
        self._asking: dict[InstanceState, Deferred[Any]] = {}
        cluster.changed = self._changed

    def _changed(self, come: Iterable[InstanceState], gone: Iterable[InstanceState]) -> None:
        for member in gone:
            timer = self._timers.pop(member, None)
            if timer is not None and timer.active():
                timer.cancel()
            asking = self._asking.pop(member, None)
            if asking is not None:
                asking.cancel()
        for member in come:
            self._timers[member] = self._clock.callLater(0, self._check, member)

    def _check(self, member: InstanceState) -> None:
        # From beginning to beginning: a slow answer must not make checks rare.
        pause = self._interval * self._random.uniform(0.9, 1.0)
        self._timers[member] = self._clock.callLater(pause, self._check, member)
        if member in self._asking:
            return
        asking = self._asking[member] = self._ask(member.instance)
        late = self._clock.callLater(self._timeout, asking.cancel)

        def answered(result: Any) -> None:
            if late.active():
                late.cancel()
            # One that was given up for good is not there any more.
            if self._asking.pop(member, None) is not None:
                self._answered(member, result is True)

        asking.addBoth(answered)

    def _answered(self, member: InstanceState, isWell: bool) -> None:
        self._meters.checks.add(1, (self._cluster.name, "well" if isWell else "ill"))
        if member.checked(isWell):
            _log.warn(
                "the instance {id} of {service} is {state}",
                id=member.id,
                service=self._cluster.name,
                state="well again" if isWell else "not well",
            )
            self._cluster.wake()
