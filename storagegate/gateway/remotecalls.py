"""
One attempt of a call that is forwarded to an instance, in each of the four ways to stream.

The requests of a stream go out while the responses come in, each as fast as the slower end takes
them. However an attempt ends, its lease is told so once, and its connection is given back or
closed; closing it is how an instance learns that nobody waits any more.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.balancing.members import Lease
from storagegate.balancing.upstream import AttemptFailed
from storagegate.balancing.upstreammeters import UpstreamMeters
from storagegate.balancing.wire import Exchange, ExchangeLost, ResponseHead
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.tracing import forwardedTracing
from storagegate.gateway.codecs import JSON
from storagegate.gateway.httpstreams import NDJSON, LineDecoder, LineTooLong
from storagegate.gateway.remoteanswers import AnswerError, readItem, readResult, unavailable
from storagegate.gateway.remoterequests import RequestHeads

INLINE_SIZE = 64 * 1024
"""An answer that is read at once, in a millisecond at most. A longer one is read in a thread."""

# Statuses by which a server says that it, or what it needs, is not there.
_AWAY = (502, 503)


def encodeRequest(request: Any) -> bytes:
    """
    Write a request.

    @raise ServiceError: C{INVALID_ARGUMENT} if JSON has no words for it, as for C{NaN}.
    """
    try:
        return JSON.encode(request)
    except ValueError as error:
        raise codedError("INVALID_ARGUMENT", f"A request is JSON: {error!s:.200}") from None


@frozen
class Road:
    """
    What all attempts of a service's calls share.

    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar maxSize: Bytes of an answer, or of a line of a stream of them.
    @ivar tracer: Records attempts, see L{Tracer.forwarded
        <storagegate.telemetry.tracer.Tracer.forwarded>}; C{None} for none.
    """

    service: str
    heads: RequestHeads
    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    meters: UpstreamMeters
    maxSize: int
    tracer: Any = None


class Attempt:
    """
    An attempt.

    @ivar exchange: The request and its response, once there is a connection.
    """

    def __init__(
        self,
        road: Road,
        lease: Lease,
        context: RequestContext,
        leftSeconds: float | None,
        timeoutSeconds: float | None = None,
    ) -> None:
        """
        @param leftSeconds: How long the caller waits; C{None} for ever.
        @param timeoutSeconds: How long the instance may take; C{None} for as long as it likes.
        """
        self._road = road
        self._lease = lease
        self._context = context
        self._tracing = context.tracing
        if road.tracer is not None and context.tracing.sampled:
            self._tracing = forwardedTracing(context.tracing)
        self._began = road.clock.seconds()
        seconds = [each for each in (leftSeconds, timeoutSeconds) if each is not None]
        self._seconds = min(seconds) if seconds else None
        # Where its caller has no time, the instance is not the one that is slow.
        self._isPatient = self._seconds == timeoutSeconds and timeoutSeconds is not None
        self._timer: Any = None
        self._isLate = False
        self._isOver = False
        self._pumping: Deferred[None] | None = None
        self._pumpError: Exception | None = None
        self._hasPumped = False
        self.exchange: Exchange | None = None

    # The request

    async def begin(self, body: bytes | None) -> Exchange:
        """
        Send a request.

        @param body: The body; C{None} for a stream, see L{pump}.
        @raise AttemptFailed: If nobody is there.
        @raise ServiceError: If the call goes in circles.
        """
        member = self._lease.member
        length = None if body is None else len(body)
        try:
            head = self._road.heads.write(
                member.instance, self._context, self._tracing, self._seconds, length
            )
        except ServiceError:
            self._end("cancelled")
            raise
        try:
            connection = await member.connections.take()
        except CancelledError:
            self._end("cancelled")
            raise
        except Exception as error:
            self._end("failed")
            raise AttemptFailed(self._away("cannot be reached"), isUnsent=True) from error
        self.exchange = connection.begin(head, body)
        if self._isPatient and self._seconds is not None:
            self._timer = self._road.clock.callLater(self._seconds, self._late)
        return self.exchange

    def pump(self, requests: AsyncIterable[Any]) -> None:
        """Send the items of the caller's stream as they come, while responses are read."""
        self._hasPumped = True
        self._pumping = Deferred.fromCoroutine(self._pump(requests))
        self._pumping.addErrback(self._pumpFailed)

    async def _pump(self, requests: AsyncIterable[Any]) -> None:
        exchange = self.exchange
        assert exchange is not None
        try:
            async for request in requests:
                await exchange.write(encodeRequest(request) + b"\n")
            exchange.finish()
        except ExchangeLost:
            # Whoever reads the responses is told the same.
            return
        finally:
            close = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    def _pumpFailed(self, failure: Any) -> None:
        """End the call with what the caller's own stream raised."""
        if not self._isOver and self.exchange is not None:
            self._pumpError = failure.value
            self.exchange.giveUp(ExchangeLost("the requests broke off"))

    # The response

    async def result(self) -> Any:
        """
        Read the answer of a call that gives one.

        @raise AttemptFailed: If that is no answer.
        @raise ServiceError: If it is an error.
        """
        try:
            head = await self._head()
            self._checkType(head, b"application/json")
            return await self._body(head)
        except BaseException as error:
            told = self._ended(error)
            if told is error:
                raise
            raise told from error
        finally:
            self.close()

    async def items(self) -> "RemoteItems":
        """
        Wait for the first answer of a stream.

        @raise AttemptFailed: If none comes.
        @raise ServiceError: If it is an error.
        """
        try:
            head = await self._head()
            if head.status != 200:
                self._checkType(head, b"application/json")
                await self._body(head)
            self._checkType(head, NDJSON.encode())
            items = RemoteItems(self, self._road)
            await items.fill()
        except BaseException as error:
            self.close()
            told = self._ended(error)
            if told is error:
                raise
            raise told from error
        self._observe()
        return items

    async def _head(self) -> ResponseHead:
        assert self.exchange is not None
        return await self.exchange.head()

    async def _body(self, head: ResponseHead) -> Any:
        """Read a whole body; errors that it tells are raised."""
        assert self.exchange is not None
        pieces: list[bytes] = []
        size = 0
        while piece := await self.exchange.read():
            pieces.append(piece)
            size += len(piece)
            if size > self._road.maxSize:
                raise AnswerError(f"an answer of more than {self._road.maxSize} bytes")
        self._observe()
        body = b"".join(pieces)
        try:
            result = await self.decode(readResult, head.status, body)
        except ServiceError as error:
            if head.status in _AWAY or (head.status == 504 and self._isPatient):
                raise _Away(error) from error
            raise
        self._end("ok")
        return result

    async def decode(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Read bytes, the last of the arguments, in a thread if they are many."""
        if len(arguments[-1]) <= INLINE_SIZE:
            return read(*arguments)
        return await self._road.run(read, *arguments)

    def _checkType(self, head: ResponseHead, wanted: bytes) -> None:
        found = head.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if found != wanted:
            raise AnswerError(f"{found.decode('latin-1')!r:.60} with the status {head.status}")

    # The end

    def close(self) -> None:
        """Stop whatever goes on."""
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        pumping, self._pumping = self._pumping, None
        if pumping is not None and not pumping.called:
            pumping.cancel()
        if self.exchange is not None:
            self.exchange.close()

    def finished(self, error: BaseException | None) -> BaseException | None:
        """
        Take note of the end of a stream that had begun; give what its caller is told.

        @param error: What ended it; C{None} for its own end.
        """
        self.close()
        if error is None:
            self._end("ok")
            return None
        told = self._ended(error)
        return told.error if isinstance(told, AttemptFailed) else told

    def _ended(self, error: BaseException) -> BaseException:
        """Tell the lease of an end, and give what is to be raised for it."""
        if self._pumpError is not None:
            self._end("cancelled")
            return self._pumpError
        if isinstance(error, _Away):
            self._end("failed")
            return AttemptFailed(error.error)
        if isinstance(error, ServiceError):
            self._end("error")
            return error
        if isinstance(error, ExchangeLost | AnswerError | LineTooLong):
            self._end("late" if self._isLate else "failed")
            isUnread = isinstance(error, ExchangeLost) and error.isUnread
            # The requests of a stream were taken from their caller, whoever has read them or not.
            return AttemptFailed(self._reason(error), isUnread and not self._hasPumped)
        self._end("cancelled")
        return error

    def _reason(self, error: Exception) -> ServiceError:
        if self._isLate:
            return codedError("DEADLINE_EXCEEDED", self._away("did not answer in time").message)
        if isinstance(error, ExchangeLost):
            return self._away("broke off")
        return self._away("gave no answer that makes sense")

    def _away(self, what: str) -> ServiceError:
        return unavailable(self._road.service, what)

    def _end(self, outcome: str) -> None:
        self._trace(outcome)
        self._road.meters.attempts.add(1, (self._road.service, outcome))
        if outcome in ("ok", "error"):
            self._lease.succeeded()
        elif outcome == "cancelled":
            self._lease.gaveUp()
        else:
            self._lease.failed()

    def _trace(self, outcome: str) -> None:
        road, instance = self._road, self._lease.member.instance
        if road.tracer is not None:
            road.tracer.forwarded(
                self._tracing,
                road.service,
                self._context.method,
                (instance.host, instance.port),
                road.clock.seconds() - self._began,
                None if outcome == "ok" else outcome,
            )

    def _observe(self) -> None:
        seconds = self._road.clock.seconds() - self._began
        self._road.meters.seconds.observe(seconds, (self._road.service,))

    def _late(self) -> None:
        self._isLate = True
        if self.exchange is not None:
            self.exchange.giveUp(ExchangeLost("it is late"))


class _Away(Exception):
    """An instance says itself that it cannot serve."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(error.message)
        self.error = error


class RemoteItems:
    """The items of a stream that an instance sends."""

    def __init__(self, attempt: Attempt, road: Road) -> None:
        self._attempt = attempt
        self._decoder = LineDecoder(road.maxSize)
        self._lines: list[bytes] = []
        self._isAtEnd = False

    async def fill(self) -> None:
        """Wait until there is a line, or the end."""
        exchange = self._attempt.exchange
        assert exchange is not None
        while not self._lines and not self._isAtEnd:
            piece = await exchange.read()
            self._isAtEnd = not piece
            self._lines = self._decoder.feed(piece) if piece else self._decoder.end()

    async def each(self) -> AsyncIterator[Any]:
        """
        Give the items.

        @raise ServiceError: If the stream ends with an error, or breaks off.
        """
        error: BaseException | None = None
        try:
            while self._lines or not self._isAtEnd:
                lines, self._lines = self._lines, []
                for line in lines:
                    yield await self._attempt.decode(readItem, line)
                await self.fill()
        except BaseException as raised:
            error = raised
        told = self._attempt.finished(error)
        if told is not None:
            raise told
