"""
Time slices for the input of connections.

One read can bring input that takes many milliseconds: a thousand small calls, or fragments of a
byte. A connection handles its input for a slice; what is left waits in a queue, of which a reactor
iteration continues one connection for one slice. In between the reactor reads the other sockets, so
a client that sends one message at a time waits for a slice, and not for all that others have sent.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

SLICE_SECONDS = 0.0005
"""How long a connection handles input in one reactor iteration: a small call takes 0.02 to 0.1 ms,
an iteration 0.03 ms more."""

SLICE_MESSAGES = 64
"""How many messages it handles then at most, and at least one: they have effects that take time
after the slice. A small call over TCP takes 0.02 ms: with 16, pipelined ones were a tenth slower,
and other clients had no more."""


class InputScheduler:
    """
    Divides time among the connections of a listener that have input left.

    A connection calls L{begin} where it has handled a message and has more, then L{isOver} after
    each one, and where that is true it stops reading, and calls L{wait}.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._end = 0.0
        self._waiting: deque[Callable[[], object]] = deque()

    def begin(self) -> None:
        """Begin the slice of a connection."""
        self._end = self._clock.seconds() + SLICE_SECONDS

    def isOver(self, handled: int = 0) -> bool:
        """
        Return whether the others come first now.

        @param handled: Messages that the connection has handled in this slice.
        """
        return handled >= SLICE_MESSAGES or self._clock.seconds() >= self._end

    def wait(self, resume: Callable[[], object]) -> None:
        """
        Enter the queue.

        @param resume: Called once, when it is the connection's turn; also if that has ended.
        """
        self._waiting.append(resume)
        if len(self._waiting) == 1:
            self._clock.callLater(0, self._resumeNext)

    def turn(self) -> Deferred[None]:
        """Enter the queue with work of another kind, of a slice or less; fires when it is on."""
        turn: Deferred[None] = Deferred()
        self.wait(partial(turn.callback, None))
        return turn

    def _resumeNext(self) -> None:
        resume = self._waiting[0]
        # The connection may enter the queue again.
        try:
            resume()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._clock.callLater(0, self._resumeNext)
