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
        self._stopped = False
        # Whether what we wait for may be cancelled: not while the server is at work above us, nor
        # while the source closes.
        self._cancellable = False
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
        self._stopped = True
        if self._running is not None and self._cancellable:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            while not self._stopped:
                self._cancellable = True
                piece = await self._nextPiece()
                self._cancellable = False
                if piece is None:
                    self._send(self._request.encodeEnd())
                    break
                self._send(self._request.encodePiece(piece))
        finally:
            self._cancellable = False
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()

    async def _nextPiece(self) -> bytes | None:
        """Give the next piece when one is wanted, C{None} at the end."""
        piece = b""
        while not piece:
            while not self._wanted:
                self._waiter = Deferred()
                await self._waiter
            try:
                piece = await anext(self._source)
            except StopAsyncIteration:
                return None
        # Before it is sent, for the handler may take it and want another meanwhile.
        self._wanted = False
        return piece
