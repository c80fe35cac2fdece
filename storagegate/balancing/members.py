"""One instance as calls see it: whether it is well, how much it has to do, and its connections."""

from collections.abc import Callable
from random import Random

from twisted.internet.interfaces import IReactorTime

from storagegate.balancing.breaker import Breaker, BreakerLimits
from storagegate.balancing.connections import Connect, Connections
from storagegate.discovery.instances import Instance
from storagegate.discovery.services import DiscoveredService


class Member:
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
        self.connections = Connections(instance, connect, clock)
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


class Lease:
    """The place of one call among those of an instance, until its end is told, once."""

    def __init__(self, member: Member, ended: Callable[[Member, bool], None]) -> None:
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
