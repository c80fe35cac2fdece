"""
What those who count, trace or log are told of an S3 request.

All of it together may cost 4 of the 40 microseconds that a small read takes; that is why it is
written as it is here, and by those who are told.
"""

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Protocol

from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.context import Tracing
from storagegate.net.httperrors import BadRequest
from storagegate.net.request import Request

UNKNOWN = "Unknown"
"""The operation of a request that was refused before it was known what it asks for."""

LOST_STATUS = 499
"""The status of a request whose client went away before the whole answer was out."""

TOGETHER = 64
"""How many requests observers are told of at once; their memory is kept until then."""

WAIT_SECONDS = 0.02
"""How long a request waits for others."""

_log = Logger()


class Exchange(Struct, eq=False):
    """
    One request and its answer. A structure: it is made in a third of the time of other classes.

    What has no value of its own below is known when it begins.

    @ivar began: When, by C{time.perf_counter}.
    @ivar traceId: Of the trace that it belongs to, 32 hexadecimal digits.
    @ivar tracing: That trace, where the client names it or it is recorded.
    @ivar operation: Amazon's name, C{GetObject}; see L{UNKNOWN}.
    @ivar accessKey: Who asks, once that was proved.
    @ivar errorCode: Of an error, Amazon's name.
    @ivar seconds: From the request's head until the whole answer was out, or its client gone.
    @ivar status: The code of the answer; see L{LOST_STATUS}.
    @ivar bytesIn: How many bytes of the request's body were read.
    @ivar bytesOut: How many bytes of the answer's body went out.
    """

    request: Request
    began: float
    requestId: bytes
    traceId: bytes
    tracing: Tracing | None = None
    operation: str = UNKNOWN
    accessKey: str | None = None
    errorCode: str | None = None
    seconds: float = 0.0
    status: int = 0
    bytesIn: int = 0
    bytesOut: int = 0


class S3Observer(Protocol):
    """Who is told of S3 requests. What it raises is logged and harms nobody."""

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Take note of requests that are over."""


class Observation:
    """
    Tells observers of requests, of several together.

    To look at many at once takes half of what it takes to look at each between two requests, whose
    code then has to come back into the processor's cache.

    @ivar isOn: Whether somebody observes.
    @ivar inFlight: How many requests have begun and are not over.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.isOn = False
        self.inFlight = 0
        self._clock = clock
        self._over: list[Exchange] = []
        self._timer: IDelayedCall | None = None
        self._observers: list[S3Observer] = []

    def add(self, observer: S3Observer) -> None:
        """Tell somebody of every request that begins from now on."""
        self.isOn = True
        self._observers.append(observer)

    def over(self, exchange: Exchange) -> None:
        """Take note that whoever answers a request has done so, or has failed."""
        request = exchange.request
        if not (request.finished or request.disconnected):
            # The answer to an error is still to come.
            request.onEnd(partial(self.over, exchange))
            return
        exchange.seconds = perf_counter() - exchange.began
        self.inFlight -= 1
        over = self._over
        over.append(exchange)
        if len(over) >= TOGETHER:
            self.tell()
        elif self._timer is None:
            self._timer = self._clock.callLater(WAIT_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        self.tell()

    def stop(self) -> None:
        """Tell of what is over, and wait for nothing more."""
        self.tell()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def tell(self) -> None:
        """Tell at once of the requests that are over."""
        over, self._over = self._over, []
        if not over:
            return
        for exchange in over:
            request = exchange.request
            exchange.status = request.status if request.finished else _lostStatus(request)
            exchange.bytesIn = request.body.taken
            exchange.bytesOut = request.bodySent
        for observer in self._observers:
            try:
                observer.ended(over)
            except Exception:
                _log.failure("an observer of S3 requests failed")


def _lostStatus(request: Request) -> int:
    """Give the status of a request that has no whole answer of this room."""
    error = request.lostReason.value if request.lostReason is not None else None
    # What the connection itself refused, a body that came too slowly or was framed wrongly.
    return error.code if isinstance(error, BadRequest) else LOST_STATUS
