"""
Answers that were given, for datagrams that come again.

Who sends by UDP repeats what is not answered, and the network repeats some by itself. So an id that
comes again from the same address gets the answer that it got, and the method does not run twice.

L{AnswerCache} is for one process; the processes of a machine that have one port share a
L{SharedAnswerCache<storagegate.gateway.sharedanswers.SharedAnswerCache>}.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from attrs import define
from zope.interface import Interface, implementer

SECONDS = 247.0
"""How long an answer is kept: as long as CoAP does (RFC 7252 section 4.8.2, EXCHANGE_LIFETIME)."""

MAX_ANSWERS = 10_000
"""Answers that are kept, and calls that are under way: 12 MB of the largest datagrams."""


@define
class Exchange:
    """
    A request that was seen.

    @ivar answer: The last datagram of the answer; C{None} while it is under way.
    @ivar until: When it is forgotten.
    @ivar size: How many bytes it had.
    @ivar isKnown: Whether it was known who calls.
    """

    until: float
    size: int
    answer: bytes | None = None
    isKnown: bool = False


class IAnswerCache(Interface):
    """
    Requests that were seen, each with its answer once there is one.

    Every method may give its answer, or something to wait for, a Deferred or a coroutine; what
    comes in the meantime for the call, like the items of its stream, is lost then, as datagrams
    may be.

    What is shared by several machines, in a server like Valkey, promises as much: C{begin} is one
    atomic step that takes note of a request only if it is new (C{SET NX PX}), and a call under way
    is bound to who does it, so that it is new again when that one is gone. It is bounded, and may
    forget the oldest. A request whose C{begin} fails is dropped, and its client will repeat it.
    """

    def begin(key: Hashable, size: int = 0) -> Exchange | Awaitable[Exchange | None] | None:
        """
        Take note of a request of so many bytes.

        @param key: Who sent it and its id: a tuple of texts, numbers and such tuples.
        @return: C{None} if it is a new one, else what is known of it.
        """

    def end(key: Hashable, answer: bytes, isKnown: bool = False) -> Awaitable[None] | None:
        """Keep the answer of a request, and whether it was known who calls."""


@implementer(IAnswerCache)
class AnswerCache:
    """Requests in the memory of this process."""

    def __init__(
        self, now: Callable[[], float], seconds: float = SECONDS, maxAnswers: int = MAX_ANSWERS
    ) -> None:
        """
        @param now: Gives seconds of a clock that only goes forward.
        """
        self._now = now
        self._seconds = seconds
        self._maxAnswers = maxAnswers
        # In the order in which they came, which is that in which they are forgotten.
        self._exchanges: OrderedDict[Hashable, Exchange] = OrderedDict()
        # Before this none has to be forgotten. To look at the oldest for each request takes
        # 0.3 microseconds, for what was not used for so long is in no cache of the processor.
        self._nextEnd = 0.0

    def __len__(self) -> int:
        """Count the requests that are remembered."""
        return len(self._exchanges)

    def begin(self, key: Hashable, size: int = 0) -> Exchange | None:
        """
        Take note of a request of so many bytes.

        @return: C{None} if it is a new one, else what is known of it.
        """
        now = self._now()
        exchanges = self._exchanges
        if now >= self._nextEnd:
            self._forgetEnded(now)
        known = exchanges.get(key)
        if known is None:
            if len(exchanges) >= self._maxAnswers:
                exchanges.popitem(last=False)
            exchanges[key] = Exchange(now + self._seconds, size)
        return known

    def _forgetEnded(self, now: float) -> None:
        exchanges = self._exchanges
        # Nothing that comes from now on ends before this.
        self._nextEnd = now + self._seconds
        while exchanges:
            oldest = next(iter(exchanges))
            if exchanges[oldest].until > now:
                self._nextEnd = exchanges[oldest].until
                break
            del exchanges[oldest]

    def find(self, key: Hashable) -> Exchange | None:
        """Give what is known of a request, and take no note of it."""
        exchange = self._exchanges.get(key)
        return None if exchange is None or exchange.until <= self._now() else exchange

    def end(self, key: Hashable, answer: bytes, isKnown: bool = False) -> None:
        """Keep the answer of a request, and whether it was known who calls."""
        exchange = self._exchanges.get(key)
        if exchange is not None:
            exchange.answer, exchange.isKnown = answer, isKnown
