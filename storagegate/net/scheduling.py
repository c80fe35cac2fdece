"""
Time slices for the input of connections.

The input of one read can take many milliseconds: a thousand small calls, or one-byte fragments. A
connection handles its input for a slice of time; the rest waits in a queue, from which each reactor
iteration continues one connection for one slice. In between the reactor reads the other sockets, so
a client that sends one message at a time waits for a slice, not for all the input of others.

While connections wait, input that arrives on another connection gets no slice of its own: the
connection handles its first message and enters the queue with the rest. Otherwise an iteration
would take a slice for each connection that has sent something: 0.25 s for 600 of them.

If the process has to wait for a CPU, the scheduler also pauses before each slice. A process that is
always ready to run uses up its share of the CPU, and then waits for many milliseconds with every
client. A process that sleeps in between gets the CPU as soon as a client sends something. Other
threads of the process that keep it waiting, such as those that read lists, are no reason to pause:
on one CPU the pauses took a third of the rate of lists.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorThreads, IReactorTime

SLICE_SECONDS = 0.0005
"""Time that a connection handles input in one reactor iteration: a small call takes 0.02 to 0.1 ms,
an iteration adds 0.03 ms."""

SLICE_MESSAGES = 64
"""Maximum number of messages of a slice, which handles at least one, as their effects take time
after it. A small call over TCP takes 0.02 ms: with 16, pipelined calls were 10 % slower without a
benefit for other clients."""


PAUSE_SECONDS = 0.001
"""The pause before a slice if the process waits for a CPU: the shortest that C{epoll_wait} has."""

_WINDOW_SECONDS = 0.05
"""How long CPU contention is measured: several times the 4 ms of a tick of the kernel."""

_CONTENDED = 0.2
"""
The share of a window that the process waits for a CPU, from which it pauses. On an idle machine it
is below 0.05; with one other busy process on the same CPU it is 0.5.
"""


def readCPUWait() -> float:
    """
    Return how long the calling thread has been ready to run without a CPU, in seconds.

    @raise OSError: If the kernel does not count it.
    """
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9


def readOtherThreads() -> float:
    """Return how long other threads of the process than the calling one have run, in seconds."""
    return time.process_time() - time.thread_time()


class CPUContention:
    """Measures whether the thread of the reactor has to wait for a CPU, for other processes."""

    def __init__(
        self,
        waited: Callable[[], float] = readCPUWait,
        seconds: Callable[[], float] = time.monotonic,
        othersRan: Callable[[], float] = readOtherThreads,
    ) -> None:
        """
        @param waited: Returns how long the thread has waited for a CPU since its start, in seconds.
        @param seconds: Returns seconds of a monotonic clock.
        @param othersRan: Returns how long other threads of the process have run. On one CPU the
            thread has waited for them; on several it may not have, and is then less contended than
            it seems.
        """
        self._waited, self._seconds, self._othersRan = waited, seconds, othersRan
        self._isContended = False
        self._begin = self._waitedBefore = 0.0

    def isContended(self) -> bool:
        """Return whether the thread waited for a large part of the last window."""
        now = self._seconds()
        passed = now - self._begin
        if passed >= _WINDOW_SECONDS:
            self._begin = now
            with suppress(OSError):
                waited = self._waited() - self._othersRan()
                self._isContended = waited - self._waitedBefore >= _CONTENDED * passed
                self._waitedBefore = waited
        return self._isContended


class InputScheduler:
    """
    Divides time between the connections of a listener that have input left.

    A connection that has handled a message and has more calls L{begin}, then L{isOver} after each
    message. At the end of the slice, it stops reading and calls L{wait}.
    """

    def __init__(self, clock: IReactorTime, contention: CPUContention | None = None) -> None:
        """
        @param contention: Measures whether the process waits for a CPU; by default on any reactor
            that runs threads, unlike the clocks of tests.
        """
        if contention is None and IReactorThreads.providedBy(clock):
            contention = CPUContention()
        self._contention = contention
        self._clock = clock
        self._end = 0.0
        self._isResuming = False
        self._waiting: deque[Callable[[], object]] = deque()

    def begin(self) -> None:
        """
        Begin the slice of a connection; it is over at once if others wait and it is not its turn.
        """
        if self._waiting and not self._isResuming:
            self._end = 0.0
        else:
            self._end = self._clock.seconds() + SLICE_SECONDS

    def isOver(self, handled: int = 0) -> bool:
        """
        Return whether other connections now come first.

        @param handled: The number of messages handled in this slice.
        """
        return handled >= SLICE_MESSAGES or self._clock.seconds() >= self._end

    def wait(self, resume: Callable[[], object]) -> None:
        """
        Enter the queue.

        @param resume: Called once, when it is the connection's turn, even if the connection has
            ended.
        """
        self._waiting.append(resume)
        if len(self._waiting) == 1:
            self._clock.callLater(self.pauseSeconds(), self._resumeNext)

    def pauseSeconds(self) -> float:
        """Return how long input that needs more than a slice now waits before the next slice."""
        contention = self._contention
        return PAUSE_SECONDS if contention is not None and contention.isContended() else 0

    def turn(self) -> Deferred[None]:
        """Enter the queue with other work of at most a slice; fires at its turn."""
        turn: Deferred[None] = Deferred()
        self.wait(partial(turn.callback, None))
        return turn

    def _resumeNext(self) -> None:
        resume = self._waiting[0]
        self._isResuming = True
        # The connection may enter the queue again.
        try:
            resume()
        finally:
            self._isResuming = False
            self._waiting.popleft()
            if self._waiting:
                self._clock.callLater(self.pauseSeconds(), self._resumeNext)
