"""Asks instances whether they are well: C{GET} of the path C{healthCheck}, which 2xx answers."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.upstream.cluster import Cluster, InstanceState
from storagegate.upstream.connections import Connect
from storagegate.upstream.instances import Instance, formatPlace
from storagegate.upstream.metrics import UpstreamMeters

Ask = Callable[[Instance], Deferred[bool]]
"""Asks an instance whether it is well; a failure is a no. It may be cancelled."""

_log = Logger()


def healthAsker(connect: Connect, path: str) -> Ask:
    """Make what asks by HTTP, each time on a connection of its own, as a new client would."""

    async def ask(instance: Instance) -> bool:
        connection = await connect(instance)
        place = formatPlace(instance.host, instance.port)
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
