"""
Keeps the lease of this node.

It is renewed every third of its time. Between two renewals that succeeded this node serves; else it
has no lease: the gate of the requests is closed, and the reads under the lease are ended. A lease
that is over, or was given up, is never used again: another one is taken::

    none -> taken -> renewed, renewed ... -> over or given up -> none
"""

from collections.abc import Awaitable, Callable
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.cluster.reads import OpenReads
from storagegate.core.backoff import Backoff
from storagegate.storage.clustercatalog import ICleanup, INodeLeases
from storagegate.storage.errors import StoreBusy, StoreError, StoreReadOnly
from storagegate.storage.periodic import PeriodicTask

LEASE_SECONDS = 10.0
"""How long the reads and writes of others may be delayed by a node that is gone."""

_BEATS = 3
"""Renewals in the time of a lease: two of them may fail."""

# The nodes of a cluster lose their leases together when its server goes.
_BACKOFF = Backoff(firstSeconds=0.2, maxSeconds=2.0)

_LEAST_SECONDS = 0.01


async def checkNothing() -> None:
    """Find no problem."""


@define(eq=False)
class LeaseKeeper:
    """
    Takes, renews and ends the lease of this node. All methods: reactor thread.

    @ivar _node: The name of the node, for operators.
    @ivar _seconds: How long the lease is valid without a renewal.
    @ivar _check: Is called before each renewal; raises C{StoreBusy} if there must be none.
    @ivar _random: C{random.uniform} or a replacement.
    @ivar problem: Why there is no lease; L{None} if there is one.
    @ivar onTaken: Called when another lease was taken.
    @ivar taken: How many leases were taken here.
    """

    _log = Logger()

    _leases: INodeLeases
    _cleanup: ICleanup
    _reads: OpenReads
    _clock: IReactorTime
    _node: str
    _seconds: float = LEASE_SECONDS
    _check: Callable[[], Awaitable[None]] = checkNothing
    _random: Callable[[float, float], float] = uniform
    onTaken: Callable[[], object] = field(default=lambda: None, init=False)
    taken: int = field(default=0, init=False)
    _failure: str = field(default="none was taken yet", init=False)
    _failures: int = field(default=0, init=False)
    # Of the last renewal, if it has failed.
    _error: str = field(default="", init=False)
    _hadLease: bool = field(default=False, init=False)
    _wasGivenUp: bool = field(default=False, init=False)
    _expiry: IDelayedCall | None = field(default=None, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the keeper of the lease", self._clock)

    @property
    def problem(self) -> str | None:
        """Why this node serves nothing; L{None} if it serves."""
        return None if self._leases.number else f"this node has no lease: {self._failure}"

    def start(self) -> None:
        """Keep a lease until L{stop}; the one that the catalog was opened with, if it is valid."""
        self._leases.onGivenUp = self._givenUp
        if self._leases.number:
            self._renewed(self._clock.seconds())
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """
        End the lease, after the commits under it: other nodes need not wait until its time is over.
        No request may be in progress. If the catalog does not answer, its time will be over.
        """
        await self._task.stop()
        self._leases.onGivenUp = lambda: None
        number = self._leases.number
        isSettled = False
        try:
            if number:
                await self._cleanup.endLease(number, evenValid=True)
                # Now nothing is committed any more.
                isSettled = self._leases.isSettled
            self._end("this node stops")
            self._leases.giveUp()
            if isSettled:
                await self._cleanup.forgetLease(number)
        except StoreError as error:
            self._end("this node stops")
            self._leases.giveUp()
            self._log.warn("the lease was not ended: {error}", error=str(error))

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            try:
                await self._check()
                if self._leases.number:
                    await self._renew()
                else:
                    self._end(self._error or "its time is over")
                    await self._take()
            except StoreBusy as error:
                if not self._failures:
                    self._log.warn("the lease was not renewed: {error}", error=str(error))
                self._failed(error)
            except Exception as error:
                self._log.failure("the lease was not renewed")
                self._failed(error)
            self._wasGivenUp = False
            await self._task.pause(self._pauseSeconds())
            if self._wasGivenUp:
                # Not all nodes at the same time.
                await self._task.pause(self._pauseSeconds())

    def _pauseSeconds(self) -> float:
        beat = self._seconds / _BEATS
        if self._leases.number and not self._failures:
            return beat
        return min(beat, _BACKOFF.seconds(self._failures, self._random))

    async def _renew(self) -> None:
        began = self._clock.seconds()
        oldest = self._reads.oldest()
        # Of what this node may have found since the last renewal, nothing is collected yet.
        readsFrom = self._leases.stamp if oldest is None else oldest
        try:
            await self._leases.renew(self._seconds, readsFrom)
        except StoreReadOnly as error:
            self._end(str(error))
        else:
            if not self._hadLease:
                # It was over when the answer came, and its reads were ended.
                self._leases.giveUp()
                return
            self._renewed(began)
            self._reads.beat()

    async def _take(self) -> None:
        began = self._clock.seconds()
        await self._leases.take(self._node, self._seconds)
        self.taken += 1
        self._log.info("lease {number} was taken", number=self._leases.number)
        self._renewed(began)
        self.onTaken()

    def _renewed(self, began: float) -> None:
        self._failures = 0
        self._error = ""
        if self._leases.number:
            self._hadLease = True
            self._watch(began + self._seconds - self._clock.seconds())

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._error = str(error)
        if not self._leases.number:
            self._failure = self._error

    def _watch(self, seconds: float) -> None:
        """End the reads in time, also while a renewal is under way."""
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = self._clock.callLater(max(_LEAST_SECONDS, seconds), self._expired)

    def _expired(self) -> None:
        if self._leases.number:
            # The two clocks differ by a little.
            self._watch(_LEAST_SECONDS)
        else:
            self._end(self._error or "its time is over")

    def _givenUp(self) -> None:
        self._end("it was given up, for a commit has an unknown outcome or the server is another")
        self._wasGivenUp = True
        self._task.wake()

    def _end(self, reason: str) -> None:
        """End what depends on the lease. Does nothing if there was none."""
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None
        if self._hadLease:
            self._hadLease = False
            self._failure = reason
            self._log.warn("this node has no lease: {reason}", reason=reason)
            self._reads.end()
