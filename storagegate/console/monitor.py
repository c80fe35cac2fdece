"""
The console's state in each process: the request tap and the history of metrics.

The first request to the console creates it in all processes, because the process of that request
notifies the others. Messages between processes, with the topic L{TOPIC}, are mappings with a
C{kind}::

    begin                                  count from now on
    step      step, figures                the counts of the sender
    watch     from, streams, filters       the open streams of the sender
    requests  events, dropped              for the streams of other processes

A process that does not repeat C{watch} for three seconds has ended, and its streams with it.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.console.history import (
    STEP_SECONDS,
    MetricsHistory,
    ProcessFigures,
    packCounts,
)
from storagegate.console.requesttap import (
    MOST_REFUSALS,
    RequestEvent,
    RequestFilter,
    RequestTap,
)

if TYPE_CHECKING:
    from storagegate.net.ipc import WorkerIPC

TOPIC = "console"

_HISTORY = "console.history"

_REFUSALS = "console.refusals"

_TIME, _TIMED = "console.time", "console.timed"

_FORGET_SECONDS = 3.0

_LATE_SECONDS = 1.0
"""How long to wait for the counts of other processes after a step."""

Publish = Callable[[list[RequestEvent], int], object]


class ConsoleMonitor:
    """
    Counts requests, and passes them to streams. Must run in the reactor thread.

    @ivar tap: The tap, which observes the requests of this process.
    @ivar history: The metrics of all processes.
    @ivar publish: Called with the requests of all processes, while a stream is open in this one.
    """

    def __init__(
        self,
        clock: IReactorTime,
        link: "WorkerIPC | None",
        now: Callable[[], float] = time.time,
    ) -> None:
        self.publish: Publish = lambda events, dropped: None
        self.history = MetricsHistory()
        self._clock = clock
        self._link = link
        self._now = now
        self._worker = 0 if link is None else link.index
        self.tap = RequestTap(clock, self._worker, self._requests, now)
        # Identifies this process; a replaced worker has the same index.
        self._id = os.getpid()
        self._own: Sequence[RequestFilter] = ()
        # By process: expiry time, number of streams, and their filters.
        self._others: dict[int, tuple[float, int, list[RequestFilter]]] = {}
        self._timers: list[IDelayedCall] = []
        self._cpu = _cpuSeconds()
        self._due = 0.0
        self._schedule()
        if link is not None:
            link.answer(_HISTORY, lambda _: self.history.plain())
            link.answer(_REFUSALS, lambda _: msgspec.to_builtins(list(self.tap.refusals.values())))
            link.answer(_TIME, self.tap.time)
            link.answer(_TIMED, lambda trace: self.tap.timed.pop(trace, None))
            link.ask(_HISTORY).addCallback(self._load)

    def begin(self) -> None:
        """Make the other processes count, too."""
        self._say({"kind": "begin"})

    def stop(self) -> None:
        """Cancel all timers."""
        self.tap.stop()
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers = []

    def received(self, message: Any) -> None:
        """Process a message of another process."""
        kind = message["kind"]
        if kind == "step":
            figures = msgspec.convert(message["figures"], ProcessFigures)
            self.history.add(message["step"], figures)
        elif kind == "watch":
            filters = msgspec.convert(message["filters"], list[RequestFilter])
            until = self._clock.seconds() + _FORGET_SECONDS
            self._others[message["from"]] = (until, message["streams"], filters)
            self._choose()
        elif kind == "requests" and self._own:
            events = msgspec.convert(message["events"], list[RequestEvent])
            self.publish(events, message["dropped"])

    # Streams

    def watch(self, streams: int, filters: Sequence[RequestFilter]) -> None:
        """
        Announce this process's streams to all processes. Call it each second while a stream is
        open.

        @param streams: The number of open streams.
        @param filters: The filters of streams with the topic C{requests}.
        """
        self._own = filters
        self._choose()
        values = [msgspec.to_builtins(each) for each in filters]
        self._say({"kind": "watch", "from": self._id, "streams": streams, "filters": values})

    def streamsElsewhere(self) -> int:
        """Return the number of open streams in other processes."""
        self._forget()
        return sum(streams for _, streams, _ in self._others.values())

    async def refusals(self) -> list[RequestEvent]:
        """Return the last refused request of each kind in each process, newest first."""
        found = [*self.tap.refusals.values()]
        if self._link is not None:
            # This process is one of those that reply.
            replies = await self._link.ask(_REFUSALS)
            found = [one for each in replies for one in msgspec.convert(each, list[RequestEvent])]
        # Requests of one batch have one time.
        found.reverse()
        found.sort(key=lambda each: each.atMs, reverse=True)
        return found[:MOST_REFUSALS]

    async def time(self, trace: str) -> None:
        """Time a call of the gateway, which any process may serve."""
        if self._link is None:
            self.tap.time(trace)
        else:
            await self._link.ask(_TIME, trace)

    async def timed(self, trace: str) -> tuple[float, float] | None:
        """
        Return when a timed call began, in seconds since the epoch, and how many seconds it took;
        L{None} if no process has served it.
        """
        if self._link is None:
            return self.tap.timed.pop(trace, None)
        for found in await self._link.ask(_TIMED, trace):
            if found is not None:
                began, seconds = found
                return began, seconds
        return None

    def _forget(self) -> None:
        now = self._clock.seconds()
        self._others = {id: each for id, each in self._others.items() if each[0] > now}

    def _choose(self) -> None:
        """Set the filters of the tap."""
        self._forget()
        filters = [*self._own, *(one for _, _, some in self._others.values() for one in some)]
        self.tap.filters = filters or None

    def _requests(self, events: list[RequestEvent], dropped: int) -> None:
        """Pass requests of this process to streams."""
        if self._own:
            self.publish(events, dropped)
        self._choose()
        if any(filters for _, _, filters in self._others.values()):
            values = [msgspec.to_builtins(each) for each in events]
            self._say({"kind": "requests", "events": values, "dropped": dropped})

    # Metrics

    def _schedule(self) -> None:
        now = self._now()
        # Rounded: a timer may fire early by the wall clock.
        step = round(now / STEP_SECONDS) + 1 if self._due else int(now // STEP_SECONDS) + 1
        delay = max(0.0, step * STEP_SECONDS - now)
        self._due = self._clock.seconds() + delay
        self._timers = [each for each in self._timers if each.active()]
        self._timers.append(self._clock.callLater(delay, self._stepEnded, step))

    def _stepEnded(self, step: int) -> None:
        cpu = _cpuSeconds()
        figures = ProcessFigures(
            self._worker,
            packCounts(self.tap.takeCounts()),
            cpu - self._cpu,
            _memory(),
            max(0.0, self._clock.seconds() - self._due),
        )
        self._cpu = cpu
        self._choose()
        self.history.add(step, figures)
        plain = msgspec.to_builtins(figures)
        self._say({"kind": "step", "step": step, "figures": plain})
        self._schedule()
        self._timers.append(self._clock.callLater(_LATE_SECONDS, self.history.finish, step))

    def _load(self, replies: list[Any]) -> None:
        for each in replies:
            self.history.load(each)

    def _say(self, message: dict[str, Any]) -> None:
        if self._link is not None:
            self._link.broadcast(TOPIC, message)


def _cpuSeconds() -> float:
    times = os.times()
    return times.user + times.system


def _memory() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
