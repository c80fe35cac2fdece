"""
Jobs: work that one node does for the cluster.

A task runs on the node that has claimed its row in the catalog, as long as this node renews the
claim in time. When the node fails, another node claims the row. A claim is a commit that waits for
the standby, so it also proves that earlier reads came from the primary and are durable.
"""

from collections.abc import Callable
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.cluster.interfaces import ICleanup, INodeLeases
from storagegate.storage.errors import StoreBusy
from storagegate.storage.node import BackgroundTask
from storagegate.storage.periodic import PeriodicTask

_BEATS = 3
"""Claims within the duration of a claim: two of them may fail."""


@define(eq=False)
class Job:
    """
    A task with the claim to run it. Methods must run in the reactor thread.

    @ivar name: The name of the row in the catalog.
    @ivar _seconds: The duration of a claim.
    @ivar _random: C{random.uniform}, or a replacement.
    @ivar number: The lease under which this node has claimed the task; 0 without a claim.
    """

    _log = Logger()

    name: str
    _leases: INodeLeases
    _cleanup: ICleanup
    _clock: IReactorTime
    _seconds: float
    _random: Callable[[float, float], float] = uniform
    number: int = field(default=0, init=False)
    _work: BackgroundTask | None = field(default=None, init=False)
    _isRunning: bool = field(default=False, init=False)
    _isFailing: bool = field(default=False, init=False)
    _claimedAt: float = field(default=0.0, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask(f"the job {self.name}", self._clock)

    def start(self, work: BackgroundTask) -> None:
        """
        Run a task whenever this node has claimed it, until L{stop}. May be called once.

        @param work: The task, which may be restarted after it was stopped.
        """
        self._work = work
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop the task, and let another node run it."""
        await self._task.stop()
        number, self.number = self.number, 0
        await self._stopWork()
        if number:
            try:
                await self._cleanup.releaseJob(self.name, number)
            except StoreBusy as error:
                self._log.warn("{name} was not released: {error}", name=self.name, error=str(error))

    async def confirm(self) -> bool:
        """
        Claim the task again, under the same lease.

        @return: Whether this node still runs the task, and all its reads since the previous claim
            are durable.
        @raise StoreBusy: If the outcome is unknown.
        """
        number, began = self.number, self._clock.seconds()
        if not number or number != self._leases.number:
            return False
        isOurs = await self._cleanup.claimJob(self.name, number, self._seconds)
        if isOurs and number == self.number:
            self._claimedAt = began
        # With another lease the server may have changed too.
        return isOurs and number == self.number == self._leases.number

    async def _rounds(self) -> None:
        # A random delay, so that the nodes do not act at the same time.
        await self._task.pause(self._random(0, self._seconds / _BEATS))
        while not self._task.isStopping:
            await self._claim()
            if self.number and not self._isRunning and self._work is not None:
                self._isRunning = True
                self._log.info("{name} runs on this node", name=self.name)
                self._work.start()
            elif not self.number:
                await self._stopWork()
            beat = self._seconds / _BEATS if self.number else self._seconds
            await self._task.pause(beat * self._random(0.8, 1.0))

    async def _claim(self) -> None:
        number, began = self._leases.number, self._clock.seconds()
        isOurs = False
        try:
            if number:
                isOurs = await self._cleanup.claimJob(self.name, number, self._seconds)
            self._isFailing = False
        except StoreBusy as error:
            if not self._isFailing:
                self._isFailing = True
                self._log.warn("{name} was not claimed: {error}", name=self.name, error=str(error))
            # The previous claim stays valid for a while.
            isOurs = number == self.number and began < self._claimedAt + self._seconds
            began = self._claimedAt
        # After a change of the lease the task is stopped first: it may have read from a server that
        # is no longer the primary.
        isOurs = isOurs and number == self._leases.number and self.number in (0, number)
        self.number, self._claimedAt = (number, began) if isOurs else (0, 0.0)

    async def _stopWork(self) -> None:
        if self._isRunning and self._work is not None:
            self._isRunning = False
            self._log.info("{name} no longer runs on this node", name=self.name)
            await self._work.stop()
