"""
The bodies of the Fetch standard: streams of bytes that are read once.

Where the bytes of standard bodies come from.

Lets two bodies have the bytes of one source.
"""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Protocol, TypeAlias

import msgspec
from twisted.internet.defer import Deferred

# What a body may be made of.
BodyInit: TypeAlias = "bytes | bytearray | memoryview | str | AsyncIterable[bytes] | None"


class ByteSource(Protocol):
    """Where a body's bytes come from."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """Give all of them."""
        ...


class WholeSource:
    """
    Bytes that are all here.

    @ivar content: They.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self) -> bytes:
        """Give them."""
        return self.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.content:
            yield self.content


class StreamSource:
    """The bytes of an asynchronous iterator."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks

    async def read(self) -> bytes:
        """Give them all."""
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._chunks)
        try:
            async for chunk in chunks:
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise TypeError(f"a body is made of bytes, not of {type(chunk).__name__}")
                yield bytes(chunk)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()


def makeSource(init: Any) -> tuple[ByteSource, str | None]:
    """
    Find out what a body is made of.

    @return: Where its bytes come from, and the content type that goes without saying.
    @raise TypeError: If it is nothing that a body can be made of.
    """
    if init is None:
        return WholeSource(b""), None
    if isinstance(init, str):
        return WholeSource(init.encode("utf-8")), "text/plain;charset=UTF-8"
    if isinstance(init, bytes | bytearray | memoryview):
        return WholeSource(bytes(init)), None
    if hasattr(init, "__aiter__"):
        return StreamSource(init), None
    raise TypeError(
        "a body is bytes, str, an asynchronous iterator of bytes or None, not "
        f"{type(init).__name__}; for JSON use json.dumps or Response.json"
    )


_BACKLOG = 10 * 1024 * 1024
"""How far one of two clones may fall behind the other; as much as a body may have in memory."""


def tee(source: ByteSource) -> tuple[ByteSource, ByteSource]:
    """
    Make two sources of one.

    Whoever reads ahead makes the bytes wait in memory for the other. Reading fails where too many
    would wait; a source that is cancelled wants none.
    """
    shared = _Tee(source)
    return _Branch(shared, 0), _Branch(shared, 1)


class _Tee:
    """Reads a source for two branches: whoever is ahead reads, the other finds it in its queue."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._pieces = aiter(source)
        self._queues: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._dropped = [False, False]
        self._held = [0, 0]
        self._error: Exception | None = None
        self._ended = False
        # Those who wait while the other branch's reader is reading.
        self._waiting: list[Deferred[None]] | None = None

    async def next(self, branch: int) -> bytes:
        """
        Give a branch its next piece.

        @raise ValueError: If the other branch would fall too far behind.
        """
        queue = self._queues[branch]
        while not queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if self._waiting is None:
                await self._pull(1 - branch)
            else:
                turn: Deferred[None] = Deferred()
                self._waiting.append(turn)
                await turn
        piece = queue.popleft()
        self._held[branch] -= len(piece)
        return piece

    def drop(self, branch: int) -> None:
        """Keep nothing for a branch any more; without branches, want nothing of the source."""
        self._dropped[branch] = True
        self._queues[branch].clear()
        self._held[branch] = 0
        cancel = getattr(self._source, "cancel", None)
        if all(self._dropped) and cancel is not None:
            cancel()

    async def _pull(self, other: int) -> None:
        if self._held[other] > _BACKLOG:
            raise ValueError("the other clone of this body is not being read")
        self._waiting = []
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            self._ended = True
        except Exception as error:
            self._error = error
        else:
            for branch in (0, 1):
                if not self._dropped[branch]:
                    self._queues[branch].append(piece)
                    self._held[branch] += len(piece)
        finally:
            waiting, self._waiting = self._waiting, None
            for turn in waiting:
                turn.callback(None)


class _Branch:
    """One of two readers of a source."""

    def __init__(self, tee: _Tee, branch: int) -> None:
        self._tee = tee
        self._branch = branch

    async def read(self) -> bytes:
        """Give all bytes."""
        return b"".join([chunk async for chunk in self])

    def __aiter__(self) -> "_Branch":
        return self

    async def __anext__(self) -> bytes:
        return await self._tee.next(self._branch)

    def cancel(self) -> None:
        """Want no more."""
        self._tee.drop(self._branch)


class FetchBody:
    """
    What a request and a response have in common.

    @ivar bodyUsed: Whether somebody has begun to read.
    """

    bodyUsed = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    @property
    def body(self) -> "BodyStream":
        """Give the body in pieces: C{async for chunk in message.body}."""
        return BodyStream(self)

    async def bytes(self) -> bytes:
        """
        Give the whole body.

        @raise TypeError: If it was read before.
        """
        return await self._use().read()

    # What the standard calls it that most programs know; Python has no other buffer to give.
    arrayBuffer = bytes

    async def text(self) -> str:
        """
        Give the whole body, read as UTF-8; what is none becomes U+FFFD.

        @raise TypeError: If it was read before.
        """
        return (await self.bytes()).decode("utf-8-sig", "replace")

    async def readJSON(self) -> Any:
        """
        Give what the body says in JSON.

        @raise TypeError: If it was read before.
        @raise ValueError: If it is no JSON.
        """
        return decodeJSON(await self.bytes())

    def cancel(self) -> None:
        """Want no more of the body: whoever sends it is told, as if this client had gone."""
        self.bodyUsed = True
        cancel = getattr(self._source, "cancel", None)
        if cancel is not None:
            cancel()

    def _use(self) -> ByteSource:
        """Begin to read."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        self.bodyUsed = True
        return self._source

    def _fork(self) -> ByteSource:
        """Let this body and another one have the same bytes."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        if isinstance(self._source, WholeSource):
            return self._source
        self._source, second = tee(self._source)
        return second


class BodyStream:
    """A body, as an asynchronous iterator of its pieces."""

    def __init__(self, message: FetchBody) -> None:
        self._message = message
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> "BodyStream":
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return await anext(self._pieces)


def decodeJSON(content: bytes) -> Any:
    """
    Read JSON.

    @raise ValueError: If it is none, or nested deeper than anybody means.
    """
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
