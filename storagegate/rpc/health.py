"""
The health of a server and its services, over the protocol C{grpc.health.v1}.

C{Check} responds once. C{Watch} responds at once, on every change, and every five seconds. C{List}
responds with the statuses of all services. The empty name stands for the server as a whole.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.errors import GrpcError
from storagegate.rpc.protos import standardService

WATCH_SECONDS = 5.0
"""The interval at which C{Watch} repeats an unchanged status, from the specification (5000 ms)."""

SERVING = "SERVING"
NOT_SERVING = "NOT_SERVING"

SERVICE_UNKNOWN = "SERVICE_UNKNOWN"
"""The status of an unknown service in C{Watch}; it cannot be set."""

OVERALL = ""
"""The name of the server as a whole."""

HEALTH = standardService("health")
"""The definition of the service; L{Health} implements it."""


class Health:
    """
    The statuses of the services, and the implementation of C{grpc.health.v1.Health}.

    Before L{begin} and after L{shutdown}, no service is serving, whatever status was set.
    """

    def __init__(self) -> None:
        self._statuses = {OVERALL: SERVING}
        self._isServing = False
        self._clock: IReactorTime | None = None
        # Clients choose the names, so a name is dropped with its last watcher.
        self._watchers: dict[str, set[_Watcher]] = {}

    def begin(self, clock: IReactorTime, services: Iterable[str] = ()) -> None:
        """
        Start serving.

        @param clock: Times the repetitions of C{Watch}.
        @param services: The names of the services; a service that already has a status keeps it.
        """
        self._clock = clock
        self._isServing = True
        for service in services:
            self._statuses.setdefault(service, SERVING)
        self._notify(self._watchers)

    def shutdown(self) -> None:
        """
        Set all services to not serving, and end every C{Watch} after this last response.

        Open streams would delay the stop of a server until the end of its grace. A later C{Watch}
        stays open: a client that got a response would retry without delay.
        """
        self._isServing = False
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.isEnding = True
        self._notify(self._watchers)

    def setServingStatus(self, service: str, status: str) -> None:
        """
        Set the status of a service.

        @param service: The name of the service, or L{OVERALL}; a new name becomes known.
        @param status: C{"SERVING"} or C{"NOT_SERVING"}.
        @raise ValueError: If the status is neither.
        """
        if status not in (SERVING, NOT_SERVING):
            raise ValueError(f"a serving status is {SERVING!r} or {NOT_SERVING!r}, not {status!r}")
        self._statuses[service] = status
        self._notify((service,))

    def status(self, service: str = OVERALL) -> str:
        """Return the status of a service."""
        status = self._statuses.get(service, SERVICE_UNKNOWN)
        return NOT_SERVING if status == SERVING and not self._isServing else status

    @property
    def watching(self) -> dict[str, int]:
        """The numbers of open C{Watch} streams by service."""
        return {name: len(watchers) for name, watchers in self._watchers.items()}

    def Check(self, call: Any) -> dict[str, Any]:
        """Return the status of one service."""
        status = self.status(call.request.get("service", OVERALL))
        if status == SERVICE_UNKNOWN:
            raise GrpcError("NOT_FOUND", "Unknown service")
        return {"status": status}

    def List(self, call: Any) -> dict[str, Any]:
        """Return the statuses of all services and of the server as a whole."""
        return {"statuses": {name: {"status": self.status(name)} for name in self._statuses}}

    async def Watch(self, call: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield the statuses of one service until the client leaves."""
        if self._clock is None:
            raise GrpcError("UNAVAILABLE", "The server has not started")
        service = call.request.get("service", OVERALL)
        watcher = _Watcher(self._clock)
        self._watchers.setdefault(service, set()).add(watcher)
        try:
            while True:
                sent = self.status(service)
                yield {"status": sent}
                # A change in the meantime is sent at once, and only the latest one.
                while sent == self.status(service) and not watcher.takeDue():
                    if watcher.isEnding:
                        return
                    await watcher.wait()
        finally:
            watcher.stop()
            self._watchers[service].discard(watcher)
            if not self._watchers[service]:
                del self._watchers[service]

    def _notify(self, services: Iterable[str]) -> None:
        # A woken watcher may be removed synchronously, so list them first.
        woken = [watcher for service in services for watcher in self._watchers.get(service, ())]
        for watcher in woken:
            watcher.wake()


class _Watcher:
    """
    Wakes a waiting C{Watch}. It keeps no statuses, so slow clients cost no memory.
    """

    __slots__ = ("_clock", "_isDue", "_timer", "_waiting", "isEnding")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timer = clock.callLater(WATCH_SECONDS, self._tick)
        self._isDue = False
        self._waiting: Deferred[None] | None = None
        self.isEnding = False

    async def wait(self) -> None:
        """Wait for a change, or the end of the interval."""
        self._waiting = Deferred()
        await self._waiting

    def takeDue(self) -> bool:
        """Return whether an interval has ended; true once for each interval."""
        isDue, self._isDue = self._isDue, False
        return isDue

    def wake(self) -> None:
        """Resume the C{Watch}, if it waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def stop(self) -> None:
        """Stop the timer."""
        self._waiting = None
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._clock.callLater(WATCH_SECONDS, self._tick)
        self._isDue = True
        self.wake()
