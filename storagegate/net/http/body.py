"""The body of a request: a stream with back pressure, or bytes that came with the head."""

from storagegate.core.streams import BoundedStream
from storagegate.net.http.interfaces import BodyTooLarge


class RequestBody:
    """
    A body that is complete, or still arriving.

    C{async for chunk in body} reads it in pieces, C{await body.read(limit)} whole. A client that
    goes away raises L{BodyLost<storagegate.net.http.interfaces.BodyLost>} in the reader.

    @ivar length: Declared length in bytes, C{None} for a chunked body.
    @ivar complete: Whether all of it has arrived, or no more will.
    @ivar taken: Bytes that were read.
    @ivar trailers: The fields after a chunked body, once it is complete; names in lower case.
    """

    __slots__ = ("_content", "_stream", "complete", "length", "taken", "trailers")

    def __init__(
        self, length: int | None, stream: BoundedStream[bytes] | None, content: bytes = b""
    ) -> None:
        """
        @param stream: Where the bytes arrive; C{None} for a body that is complete.
        @param content: A complete body.
        """
        self.length = length
        self.complete = stream is None
        self.taken = 0
        self.trailers: tuple[tuple[bytes, bytes], ...] = ()
        self._stream = stream
        self._content = content

    # For readers

    def readAvailable(self) -> bytes | None:
        """
        Return what has not been read, if all of it has arrived: a small body costs no waiting.

        @return: C{None} if more is to come, or the body was lost.
        """
        stream = self._stream
        if stream is None:
            content, self._content = self._content, b""
        elif self.complete and stream.error is None:
            content = b"".join(stream.takeAll())
        else:
            return None
        self.taken += len(content)
        return content

    async def read(self, limit: int) -> bytes:
        """
        Read the whole body.

        @param limit: Bytes.
        @raise BodyTooLarge: If it is longer; if that is declared, before any byte is read.
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
        if self._stream is None:
            chunk, self._content = self._content, b""
        else:
            stream = self._stream
            # As stream.getAll(), without a coroutine of its own for each read.
            while not stream.held:
                if stream.error is not None:
                    raise stream.error
                if stream.isEnded:
                    raise StopAsyncIteration
                await stream.readable()
            chunks = stream.takeAll()
            chunk = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if not chunk:
            raise StopAsyncIteration
        self.taken += len(chunk)
        return chunk

    # For the channel

    def end(self, chunk: bytes, trailers: tuple[tuple[bytes, bytes], ...]) -> None:
        """Complete an arriving body with its last bytes, perhaps none."""
        assert self._stream is not None
        self.complete = True
        self.trailers = trailers
        if chunk:
            self._stream.put(chunk, last=True)
        else:
            self._stream.end()

    def fail(self, error: Exception) -> None:
        """Drop what has not been read; reads raise C{error}. Does nothing to a complete body."""
        if self._stream is not None and not self.complete:
            self.complete = True
            self._stream.fail(error)


def completeBody(content: bytes) -> RequestBody:
    """Make a body that has arrived."""
    return RequestBody(len(content), None, content)


NO_BODY = completeBody(b"")
"""The body of a request without one; it never changes, so all of them share it."""
