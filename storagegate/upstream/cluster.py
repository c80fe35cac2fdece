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

from attrs import define
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.errors import ServiceError, codedError
from storagegate.net.http.clientconnection import ConnectionPool
from storagegate.upstream.breaker import Breaker, BreakerLimits
from storagegate.upstream.connections import Connect
from storagegate.upstream.instances import Instance
from storagegate.upstream.metrics import UpstreamMeters
from storagegate.upstream.options import DiscoveredService
from storagegate.upstream.strategies import Strategy


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
