"""Sends the body of a request as its handler reads it."""

from collections.abc import AsyncIterator, Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from storagegate.http.fetchwire import RequestWire


class BodySending:
    """A body on its way: a piece is asked of its source whenever the handler wants one."""

    def __init__(
        self,
        request: RequestWire,
        source: AsyncIterator[bytes],
        send: Callable[[bytes], None],
        failed: Callable[[Failure], None],
    ) -> None:
        """
        @param send: Takes bytes for the wire.
        @param failed: Takes what the source raises.
        """
        self._request = request
        self._source = source
        self._send = send
        self._wanted = False
        self._waiter: Deferred[None] | None = None
        self._running: Deferred[None] | None = None
        self._failed = failed

    def start(self) -> None:
        """Begin."""
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._failed)

    def want(self) -> None:
        """Let another piece be sent."""
        self._wanted = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def stop(self) -> None:
        """Send no more, and let the source go."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            while await self._sendPiece():
                pass
        finally:
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()

    async def _sendPiece(self) -> bool:
        while not self._wanted:
            self._waiter = Deferred()
            await self._waiter
        try:
            piece = await anext(self._source)
        except StopAsyncIteration:
            self._send(self._request.encodeEnd())
            return False
        if piece:
            # Before sending, for the handler may take the piece and want another meanwhile.
            self._wanted = False
            self._send(self._request.encodePiece(piece))
        return True
