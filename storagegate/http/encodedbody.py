"""A streamed body on its way through an encoder."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail

from storagegate.http.awaitables import READY
from storagegate.http.responsehooks import IBodyEncoder
from storagegate.net.httperrors import ClientLost

INLINE_SIZE = 64 * 1024
"""
Encoding more than this at a time, a few milliseconds' work, is done in a thread. So is the next
piece after as much in small ones: text of which little is left would never fill the wire, and a
handler that never has to wait would keep the reactor for as long as it writes.
"""


class EncodedBody:
    """
    Encodes pieces in their order, most of the small at once, the large in a thread.

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
        self._lost = False
        self._error: Exception | None = None
        self._inline = 0

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
        """
        Send the end, as L{write}.

        @return: Fails if the encoder does, or has before: without that piece there is no end.
        """
        try:
            return self._add(self._encoder.finish, 0)
        except Exception as error:
            return fail(error)

    def _encodePiece(self, chunk: bytes) -> bytes:
        encoded = self._encoder.feed(chunk)
        return encoded + self._encoder.flush() if self._encoder.flushes else encoded

    def _add(self, encode: Callable[[], bytes], size: int) -> Any:
        if self._lost:
            # It is the sender's to say so: an encoder that keeps all for later has nothing to send.
            return self._send(b"")
        if self._error is not None:
            # The end after a gap would make the client take the rest for the whole.
            raise self._error
        if not self._working:
            self._inline += size
            if self._inline <= INLINE_SIZE:
                encoded = self._encodeNow(encode)
                return self._send(encoded) if encoded else READY
            self._inline = 0
        done: Deferred[None] = Deferred()
        self._queue.append((encode, done))
        if not self._working:
            self._working = True
            # Its errors go to those who wait for their pieces.
            Deferred.fromCoroutine(self._work())
        return done

    def _encodeNow(self, encode: Callable[[], bytes]) -> bytes:
        try:
            return encode()
        except Exception as error:
            self._error = error
            raise

    async def _work(self) -> None:
        while self._queue:
            encode, done = self._queue[0]
            try:
                encoded = await self._run(encode)
                if encoded:
                    await self._send(encoded)
            except ClientLost:
                # Not an error, which nobody may be waiting for: the next piece raises it.
                self._lost = True
                self._release(None)
            except Exception as error:
                # Nothing after this piece would make sense to the client.
                self._error = error
                self._release(error)
            else:
                self._queue.popleft()
                done.callback(None)
        self._working = False

    def _release(self, error: Exception | None) -> None:
        """Forget all pieces, and tell those who wait for them."""
        queue, self._queue = self._queue, deque()
        for _, waiting in queue:
            if error is None:
                waiting.callback(None)
            else:
                waiting.errback(error)


def encodeWhole(encoder: IBodyEncoder, body: bytes) -> bytes:
    """Encode a body at once. May be called in a thread."""
    return encoder.feed(body) + encoder.finish()
