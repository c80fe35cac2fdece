"""
The keeper of this node's lease.

The lease is renewed three times within its duration. The node serves between two successful
renewals. Otherwise it has no lease: it admits no requests, and the reads under the lease are ended.
An expired or given-up lease is never used again; the node takes another one::

    none -> taken -> renewed, renewed ... -> expired or given up -> none
"""

from collections.abc import Awaitable, Callable
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.cluster.reads import OpenReads
from storagegate.core.backoff import Backoff
from storagegate.storage.cluster.interfaces import ICleanup, INodeLeases
from storagegate.storage.errors import NoStandby, StoreBusy, StoreError, StoreReadOnly
from storagegate.storage.periodic import PeriodicTask

LEASE_SECONDS = 10.0
"""The longest delay of other nodes' reads and writes by a dead node."""

_BEATS = 3
"""Renewals within the duration of a lease: two of them may fail."""

# The nodes of a cluster lose their leases together when its server goes down.
_BACKOFF = Backoff(firstSeconds=0.2, maxSeconds=2.0)

_LEAST_SECONDS = 0.01


async def checkNothing() -> None:
    """Accept every renewal."""


@define(eq=False)
class LeaseKeeper:
    """
    Takes, renews and ends the lease of this node. Methods must run in the reactor thread.

    @ivar _node: The name of the node, for operators.
    @ivar _seconds: The duration of the lease without a renewal.
    @ivar _check: Called before each renewal; raises C{StoreBusy} to prevent it.
    @ivar _random: C{random.uniform}, or a replacement.
    @ivar problem: Why this node has no lease; C{None} if it has one.
    @ivar onTaken: Called when a new lease was taken.
    @ivar taken: The number of leases that this node has taken.
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
    _failure: str = field(default="it has not acquired one yet", init=False)
    _failures: int = field(default=0, init=False)
    # The error of the last renewal, if it failed.
    _error: str = field(default="", init=False)
    _hadLease: bool = field(default=False, init=False)
    _wasGivenUp: bool = field(default=False, init=False)
    _expiry: IDelayedCall | None = field(default=None, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the lease keeper", self._clock)

    @property
    def problem(self) -> str | None:
        """Why this node serves no requests; C{None} if it serves."""
        return None if self._leases.number else f"this node holds no lease: {self._failure}"

    def start(self) -> None:
        """Keep a lease until L{stop}, starting with the catalog's lease if it is valid."""
        self._leases.onGivenUp = self._givenUp
        if self._leases.number:
            self._renewed(self._clock.seconds())
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """
        End the lease after the commits under it, so that other nodes need not wait for its expiry.
        No request may be in progress. If the catalog does not respond, the lease expires.
        """
        await self._task.stop()
        self._leases.onGivenUp = lambda: None
        number = self._leases.number
        isSettled = False
        try:
            if number:
                await self._cleanup.endLease(number, evenValid=True)
                # From now on no transaction commits under this lease.
                isSettled = self._leases.isSettled
            self._end("this node is stopping")
            self._leases.giveUp()
            if isSettled:
                await self._cleanup.forgetLease(number)
        except StoreError as error:
            self._end("this node is stopping")
            self._leases.giveUp()
            self._log.warn("the lease was not ended: {error}", error=str(error))

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            try:
                await self._check()
                if self._leases.number:
                    await self._renew()
                else:
                    self._end(self._error or "it has expired")
                    await self._take()
            except StoreBusy as error:
                if not self._failures:
                    self._log.warn("the lease was not renewed: {error}", error=str(error))
                if isinstance(error, NoStandby):
                    # All writes are refused, so this node must not be ready either.
                    self._end(str(error))
                    self._leases.giveUp()
                self._failed(error)
            except Exception as error:
                self._log.failure("the lease was not renewed")
                self._failed(error)
            self._wasGivenUp = False
            await self._task.pause(self._pauseSeconds())
            if self._wasGivenUp:
                # A random delay, so that the nodes do not act at the same time.
                await self._task.pause(self._pauseSeconds())

    def _pauseSeconds(self) -> float:
        beat = self._seconds / _BEATS
        if self._leases.number and not self._failures:
            return beat
        return min(beat, _BACKOFF.seconds(self._failures, self._random))

    async def _renew(self) -> None:
        began = self._clock.seconds()
        oldest = self._reads.oldest()
        # Blobs that this node may have found since the last renewal are not collected yet.
        readsFrom = self._leases.stamp if oldest is None else oldest
        try:
            await self._leases.renew(self._seconds, readsFrom)
        except StoreReadOnly as error:
            self._end(str(error))
        else:
            if not self._hadLease:
                # The lease expired before the response arrived, and its reads were ended.
                self._leases.giveUp()
                return
            self._renewed(began)
            self._reads.beat()

    async def _take(self) -> None:
        began = self._clock.seconds()
        await self._leases.take(self._node, self._seconds)
        self.taken += 1
        self._log.info("lease {number} was acquired", number=self._leases.number)
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
        """End the reads when the lease expires, even during a renewal."""
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = self._clock.callLater(max(_LEAST_SECONDS, seconds), self._expired)

    def _expired(self) -> None:
        if self._leases.number:
            # The two clocks differ slightly.
            self._watch(_LEAST_SECONDS)
        else:
            self._end(self._error or "it has expired")

    def _givenUp(self) -> None:
        self._end("it was given up, because a commit has an unknown outcome or the server changed")
        self._wasGivenUp = True
        self._task.wake()

    def _end(self, reason: str) -> None:
        """End the reads under the lease. Does nothing without a lease."""
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None
        if self._hadLease:
            self._hadLease = False
            self._failure = reason
            self._log.warn("this node holds no lease: {reason}", reason=reason)
            self._reads.end()
