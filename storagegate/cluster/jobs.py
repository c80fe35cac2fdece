"""
Work that one node does for all of them.

A task runs on the node that has claimed its row in the catalog, for as long as that node claims it
again in time. When the node is gone, another one claims it. A claim is a commit: it waits for the
standby, so it proves, too, that what was read before it was read from the primary and is durable.
"""

from collections.abc import Callable
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.clustercatalog import ICleanup, INodeLeases
from storagegate.storage.errors import StoreBusy
from storagegate.storage.node import BackgroundTask
from storagegate.storage.periodic import PeriodicTask

_BEATS = 3
"""Claims in the time of one: two of them may fail."""


@define(eq=False)
class Job:
    """
    A task, and the claim to run it. Methods: reactor thread.

    @ivar name: That of the row in the catalog.
    @ivar _seconds: How long a claim is valid.
    @ivar _random: C{random.uniform} or a replacement.
    @ivar number: The lease under which this node has claimed it; 0 if it has not.
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
        Run a task whenever this node has claimed it, until L{stop}. Once.

        @param work: It may be started again after it was stopped.
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

        @return: Whether this node still runs it, and all that it has read since the claim before is
            durable.
        @raise StoreBusy: It is not known.
        """
        number, began = self.number, self._clock.seconds()
        if not number or number != self._leases.number:
            return False
        isOurs = await self._cleanup.claimJob(self.name, number, self._seconds)
        if isOurs and number == self.number:
            self._claimedAt = began
        # Another lease: the server may be another, too.
        return isOurs and number == self.number == self._leases.number

    async def _rounds(self) -> None:
        # Not all nodes at the same time.
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
            # The claim before is valid for a while.
            isOurs = number == self.number and began < self._claimedAt + self._seconds
            began = self._claimedAt
        # After a change of the lease the task is stopped first: what it has read may be of a server
        # that is no primary any more.
        isOurs = isOurs and number == self._leases.number and self.number in (0, number)
        self.number, self._claimedAt = (number, began) if isOurs else (0, 0.0)

    async def _stopWork(self) -> None:
        if self._isRunning and self._work is not None:
            self._isRunning = False
            self._log.info("{name} does not run on this node any more", name=self.name)
            await self._work.stop()
