"""A streamed body on its way through an encoder."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http.pipeline import READY
from storagegate.http.responsehooks import IBodyEncoder

INLINE_SIZE = 64 * 1024
"""Encoding more than this at a time, a few milliseconds' work, is done in a thread."""


class EncodedBody:
    """
    Encodes pieces in their order, the small at once, the large in a thread.

    Pieces that come while a thread works wait for it.
    """

    def __init__(
        self,
        encoder: IBodyEncoder,
        send: Callable[[bytes], Any],
        run: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param send: Sends bytes; gives something to await until more may follow.
        @param run: Calls a function in a thread.
        """
        self._encoder = encoder
        self._send = send
        self._run = run
        self._queue: deque[tuple[Callable[[], bytes], Deferred[None]]] = deque()
        self._working = False

    def write(self, chunk: bytes) -> Any:
        """
        Encode a piece and send what there is to send.

        @return: Something to await until more may follow.
        """
        return self._add(lambda: self._encodePiece(chunk), len(chunk))

    def flush(self) -> Any:
        """Send whatever the encoder holds back, as L{write}."""
        return self._add(self._encoder.flush, 0)

    def finish(self) -> Any:
        """Send the end, as L{write}."""
        return self._add(self._encoder.finish, 0)

    def _encodePiece(self, chunk: bytes) -> bytes:
        encoded = self._encoder.feed(chunk)
        return encoded + self._encoder.flush() if self._encoder.flushes else encoded

    def _add(self, encode: Callable[[], bytes], size: int) -> Any:
        if not self._working and size <= INLINE_SIZE:
            encoded = encode()
            return self._send(encoded) if encoded else READY
        done: Deferred[None] = Deferred()
        self._queue.append((encode, done))
        if not self._working:
            self._working = True
            # Its errors go to those who wait for their pieces.
            Deferred.fromCoroutine(self._work())
        return done

    async def _work(self) -> None:
        while self._queue:
            encode, done = self._queue.popleft()
            try:
                encoded = await self._run(encode)
                if encoded:
                    await self._send(encoded)
            except Exception as error:
                self._working = False
                done.errback(error)
                return
            done.callback(None)
        self._working = False
