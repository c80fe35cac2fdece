"""Lets two bodies have the bytes of one source."""

from collections import deque

from twisted.internet.defer import Deferred

from storagegate.http.fetchsource import ByteSource

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
