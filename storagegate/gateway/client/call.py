"""
One call of a client: an awaitable of the result, or an asynchronous iterable of the results.

The call begins when it is created. A failed attempt is repeated by the L{RetryPolicy
<storagegate.upstream.retry.RetryPolicy>}, but only before the first reply, and after the first
request of a stream was taken only if no part of the call has left this process.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable
from math import ceil
from typing import Any, Self

from attrs import define, evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from storagegate.core.errors import ServiceError, codedError, untraced
from storagegate.core.streams import SharedFuture
from storagegate.core.task import fromCoroutine, portable
from storagegate.gateway.client.formats import Reply
from storagegate.gateway.client.transports import CallHead, ClientTransport, WireCall
from storagegate.gateway.messages.frames import END, ERROR, ITEM
from storagegate.upstream.retry import AttemptFailed, RetryPolicy

Requests = AsyncIterable[Any] | Iterable[Any]


@define(eq=False)
class CallResources:
    """
    The resources of the calls of a client.

    @ivar transport: The transport of the calls.
    @ivar graceSeconds: Time for the server to report that the deadline has passed.
    @ivar isClosed: Whether no further attempts may begin.
    """

    transport: ClientTransport
    retries: RetryPolicy
    clock: Any
    graceSeconds: float = 0.0
    isClosed: bool = False


class GatewayCall:
    """
    A call of a method.

    Await it for the result of a method without a stream of results; iterate over it for a stream.
    A consumer that stops before the end of a stream must call L{cancel}, or use C{async with}.

    @ivar bytesReceived: The size of the replies that the consumer has taken, in bytes of the
        messages of the transport.
    """

    def __init__(
        self, context: CallResources, head: CallHead, requests: Requests | None, isRepeatable: bool
    ) -> None:
        """
        @param requests: The stream of requests; C{None} for one request.
        @param isRepeatable: Whether the call may be repeated after the server may have received it.
        """
        self.bytesReceived = 0
        self._context = context
        self._head = head
        self._requests = requests
        self._isRepeatable = isRepeatable
        self._wire: WireCall | None = None
        self._sending: Deferred[None] | None = None
        self._sendError: Exception | None = None
        self._error: Exception | None = None
        self._isOver = False
        self._hasItems = False
        self._result: SharedFuture[Reply] | None = None
        self._first: SharedFuture[Reply | None] = SharedFuture()
        self._isFirstTaken = False
        self._deadline: float | None = None
        self._timer: IDelayedCall | None = None
        if head.deadlineMs is not None:
            seconds = head.deadlineMs / 1000
            self._deadline = context.clock.seconds() + seconds
            self._timer = context.clock.callLater(seconds + context.graceSeconds, self._expire)
        # Cancelled at the end of a call that still connects or waits for a retry.
        self._beginning: Deferred[None] | None = None
        self._beginning = Deferred.fromCoroutine(self._begin())
        self._beginning.addErrback(self._failed)

    # For the caller

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._result is None:
            self._result = SharedFuture()
            Deferred.fromCoroutine(self._readResult()).addCallback(self._result.set)
        reply: Reply = yield from portable(self._result.wait(self.cancel)).__await__()
        if reply.type == ERROR:
            raise untraced(reply.value)
        return reply.value

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            reply = await portable(Deferred.fromCoroutine(self._read()))
        except CancelledError:
            self.cancel()
            raise
        if reply.type == END:
            raise StopAsyncIteration
        if reply.type == ERROR:
            raise untraced(reply.value)
        return reply.value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel the call, unless it has ended; a waiting consumer gets C{CANCELLED}."""
        self._stop("CANCELLED", "The call was cancelled")

    # The replies

    async def _readResult(self) -> Reply:
        """Return the result, or an error."""
        reply = await self._read()
        if reply.type in (ITEM, END):
            self.cancel()
            name = f"{self._head.service}.{self._head.method}"
            text = f"{name} has a stream of results: iterate over it by 'async for'"
            return Reply(ERROR, None, TypeError(text))
        return reply

    async def _read(self) -> Reply:
        """
        Return the next result, the end or the error.

        An error is returned, because a Deferred that raised it would be part of a cycle.
        """
        if self._isFirstTaken:
            wire = None if self._isOver else self._wire
            reply = None if wire is None else await self._next(wire)
        else:
            reply = await self._first.wait()
            self._isFirstTaken = True
        if reply is not None and reply.type != ITEM:
            self._finish(reply.value if reply.type == ERROR else None)
        if reply is None or reply.type in (END, ERROR):
            error = self._sendError or self._error
            return Reply(END, None, None) if error is None else Reply(ERROR, None, error)
        self.bytesReceived += reply.size
        return reply

    async def _next(self, wire: WireCall) -> Reply | None:
        try:
            reply = await wire.replies.get()
        except AttemptFailed as failed:
            self._finish(failed.error)
            return None
        except ServiceError as error:
            # The stream of replies has overflowed.
            self._finish(error)
            return None
        if reply is None:
            self._finish(codedError("UNAVAILABLE", "The connection ended before the call"))
        return reply

    # Attempts

    async def _begin(self) -> None:
        """Make attempts until one has a reply, or no other may follow."""
        retries = self._context.retries
        retries.called()
        failures = 0
        while not self._isOver:
            try:
                reply = await self._attempt()
            except AttemptFailed as failed:
                failures += 1
                # A request that was taken from a stream cannot be sent again.
                isUsed = self._sending is not None
                if self._isOver:
                    break
                if isUsed or not retries.allows(failed, failures, self._isRepeatable):
                    self._finish(failed.error)
                    break
            else:
                self._begun(reply)
                return
            self._release()
            await retries.wait(failures)
        self._begun(None)

    def _begun(self, reply: Reply | None) -> None:
        # The consumer may cancel the call at once, which must not cancel the caller of this.
        self._beginning = None
        self._first.set(reply)

    async def _attempt(self) -> Reply | None:
        """
        Begin the call, and wait for its first reply.

        @raise AttemptFailed: The call may be repeated, under the conditions of the policy.
        @raise ServiceError: C{CANCELLED}: the client is closed.
        """
        if self._context.isClosed:
            raise codedError("CANCELLED", "The client is closed")
        head = self._head
        if self._deadline is not None:
            left = self._deadline - self._context.clock.seconds()
            head = evolve(head, deadlineMs=max(1, ceil(left * 1000)))
        wire = self._wire = await self._context.transport.begin(head)
        if self._requests is not None:
            self._sending = fromCoroutine(self._send(wire, self._requests))
            # Under asyncio's reactor, a cancelled coroutine fails however it ends.
            self._sending.addErrback(lambda failure: failure.trap(CancelledError))
        reply = await wire.replies.get()
        if reply is None:
            raise AttemptFailed(codedError("UNAVAILABLE", "The connection ended before the call"))
        if reply.type == ERROR and reply.value.code == "UNAVAILABLE" and self._requests is None:
            raise AttemptFailed(reply.value)
        return reply

    def _failed(self, failure: Any) -> None:
        """End a call whose beginning has failed."""
        error = failure.value
        if isinstance(error, CancelledError):
            error = codedError("CANCELLED", "The call was cancelled")
        self._finish(error)
        self._begun(None)

    async def _send(self, wire: WireCall, requests: Requests) -> None:
        """Send the stream of requests, each taken when it can be sent."""
        try:
            if isinstance(requests, AsyncIterable):
                async for each in requests:
                    await wire.send(each)
            else:
                for each in requests:
                    await wire.send(each)
            wire.sendEnd()
        except CancelledError:
            return
        except Exception as error:
            if not self._isOver:
                self._sendError = error
                self._finish(error)
        finally:
            close: Callable[[], Awaitable[Any]] | None = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    # The end

    def _expire(self) -> None:
        self._timer = None
        self._stop("DEADLINE_EXCEEDED", "The deadline has passed")

    def _stop(self, code: str, message: str) -> None:
        """End the call from outside, unless it has ended."""
        if not self._isOver:
            self._finish(codedError(code, message))
            beginning, self._beginning = self._beginning, None
            if beginning is not None:
                beginning.cancel()

    def _finish(self, error: Exception | None) -> None:
        """End the call. Only the first end counts."""
        if not self._isOver:
            self._isOver = True
            self._error = error
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            self._release()

    def _release(self) -> None:
        """Stop sending, and release the attempt."""
        sending = self._sending
        if sending is not None and not sending.called:
            sending.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
