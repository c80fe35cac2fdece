"""The body of a request: a stream that its reader can let wait."""

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.net.http.interfaces import BodyTooLarge, IBodySource


class RequestBody:
    """
    A body that may still be coming.

    C{async for chunk in body} gives it in pieces, C{await body.read(limit)} whole. A client that
    goes away raises L{BodyLost<storagegate.net.http.interfaces.BodyLost>} in the reader.

    @ivar length: How long it is, C{None} if nobody knows.
    @ivar complete: Whether its end has come.
    @ivar taken: How many bytes its reader has got.
    @ivar trailers: The fields after a chunked body, once it is complete; names in lower case.
    """

    __slots__ = (
        "_capacity",
        "_chunks",
        "_error",
        "_held",
        "_source",
        "_waiter",
        "complete",
        "length",
        "taken",
        "trailers",
    )

    def __init__(self, source: IBodySource, length: int | None, capacity: int) -> None:
        """
        @param capacity: How many bytes to hold before C{source} is asked to stop.
        """
        self.length = length
        self.complete = False
        self.taken = 0
        self.trailers: tuple[tuple[bytes, bytes], ...] = ()
        self._source = source
        self._capacity = capacity
        self._chunks: list[bytes] = []
        self._held = 0
        self._error: Exception | None = None
        self._waiter: Deferred[None] | None = None

    # For readers

    def takeReady(self) -> bytes | None:
        """
        Give the whole body if it is all here, so that a small one costs no waiting.

        @return: C{None} if some of it is still to come, or was lost.
        """
        return self._take() if self.complete and self._error is None else None

    async def read(self, limit: int) -> bytes:
        """
        Give the whole body.

        @raise BodyTooLarge: If it is over C{limit} bytes; if that is declared, before any is read.
        @raise BodyLost: If the client goes away.
        """
        if self.length is not None and self.length > limit:
            raise BodyTooLarge(limit)
        chunks: list[bytes] = []
        size = 0
        async for chunk in self:
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge(limit)
            chunks.append(chunk)
        return b"".join(chunks)

    def __aiter__(self) -> "RequestBody":
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self.complete:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("a body has one reader")
            waiter = self._waiter = Deferred(self._forgetWaiter)
            # A source that has something in hand may bring it before this returns.
            self._source.bodyWanted()
            await waiter
        return self._take()

    # For the channel

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came."""
        if chunk:
            self._chunks.append(chunk)
            self._held += len(chunk)
            self._wake()
            if self._held >= self._capacity:
                self._source.bodyFull()

    def end(self, chunk: bytes, trailers: tuple[tuple[bytes, bytes], ...]) -> None:
        """Take the last bytes."""
        if chunk:
            self._chunks.append(chunk)
        self.complete = True
        self.trailers = trailers
        self._wake()

    def fail(self, error: Exception) -> None:
        """Give up: no more will come. What nobody has read yet is dropped."""
        if not self.complete:
            self.complete = True
            self._error = error
            self._chunks = []
            self._wake()

    def _take(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        self._held = 0
        chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.taken += len(chunk)
        return chunk

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _forgetWaiter(self, waiter: Deferred[None]) -> None:
        self._waiter = None


@implementer(IBodySource)
class _NoSource:
    """Never asked: a complete body wants nothing."""

    def bodyWanted(self) -> None: ...

    def bodyFull(self) -> None: ...


def completeBody(content: bytes) -> RequestBody:
    """Make a body that is all here."""
    body = RequestBody(_NoSource(), len(content), len(content) + 1)
    body.end(content, ())
    return body


NO_BODY = completeBody(b"")
"""The body of a request without one; it never changes, so all of them share it."""
