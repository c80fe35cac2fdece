"""What blobs in a store on the network do when that fails: never promise, and come back."""

import os
from collections.abc import Callable
from typing import Any, Self

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from storagegate.storage.cluster.blobs.pieces import MARKER
from storagegate.storage.errors import StoreBusy, StoreFull
from tests.contract.blobs import KIB, MIB, SlowResponse, load, store
from tests.support.contention import Stopwatch

ANSWER_SECONDS = 5.0
"""Every client has its answer after so long."""

WAIT_SECONDS = 90.0
"""A store that is back is used again much earlier, on any machine."""


_TICK_SECONDS = 0.05


class Lateness:
    """
    Measures for how long a busy machine kept this process from running, as a context manager.

    @ivar seconds: The sum of the delays of a call that is due every twentieth of a second.
    """

    def __init__(self, clock: Any) -> None:
        self.seconds = 0.0
        self._clock = clock

    def __enter__(self) -> Self:
        self._tick()
        return self

    def __exit__(self, *error: object) -> None:
        self._call.cancel()

    def _tick(self) -> None:
        due = self._clock.seconds() + _TICK_SECONDS

        def ticked() -> None:
            self.seconds += max(0.0, self._clock.seconds() - due)
            self._tick()

        self._call = self._clock.callLater(_TICK_SECONDS, ticked)


class Faults:
    """
    What the tests of faults share.

    @ivar allowance: Seconds that other processes of a busy machine may add to every answer.
    """

    blobs: Any
    allowance = 1.5

    async def timed(self: Any, operation: Any, error: type[Exception]) -> None:
        """Await an operation, which must fail in time."""
        from twisted.internet import reactor

        begin, watch = reactor.seconds(), Stopwatch()
        with Lateness(reactor) as late, self.assertRaises(error):
            await operation
        passed = reactor.seconds() - begin
        # The threads of clients and the processes of stores are late, too.
        delay = max(late.seconds, watch.waitedSeconds())
        self.assertLess(passed, ANSWER_SECONDS + self.allowance + delay)

    async def eventually(self: Any, holds: Callable[[], Any]) -> None:
        """Wait until something comes true."""
        from twisted.internet import reactor

        end = reactor.seconds() + WAIT_SECONDS
        while not await holds():
            self.assertLess(reactor.seconds(), end, "it never came true")
            await deferLater(reactor, 0.1)

    async def onlyThese(self: Any, contents: list[Any]) -> None:
        """Wait until the store holds these blobs and no other pieces."""
        kept = {segment.blob for content in contents for segment in content.segments}

        async def holds() -> bool:
            found: set[str] = await self.names()
            return {name.partition(".")[0] for name in found if name != MARKER} == kept

        await self.eventually(holds)

    async def stores(self: Any, body: bytes) -> Any:
        """Store a body; try again while the store is not back."""
        stored: list[Any] = []

        async def tries() -> bool:
            try:
                stored.append(await store(self.blobs, body))
            except StoreBusy:
                return False
            return True

        await self.eventually(tries)
        return stored[0]

    async def healthy(self: Any, isHealthy: bool) -> None:
        """Wait until the health says so."""

        async def says() -> bool:
            return (self.blobs.health()["blobs"] is None) == isHealthy

        await self.eventually(says)


class AwayContract(Faults):
    """
    A store that does not answer.

    Mix into a case of L{tests.contract.remoteblobs} that defines the steps.
    """

    async def goAway(self) -> None:
        """Let the store take operations and answer none."""
        raise NotImplementedError

    async def comeBack(self) -> None:
        """Let it answer, also what it was asked before."""
        raise NotImplementedError

    async def test_away(self: Any) -> None:
        """
        While the store is away every operation fails in time, inline bodies are taken, and the
        health says so; afterwards all is as before, and nothing is left of what failed.
        """
        body = os.urandom(2 * MIB)
        before = await store(self.blobs, body)
        removed = await store(self.blobs, b"garbage")
        sink = self.blobs.writer(0)
        sink.write(b"begun")
        await self.goAway()
        await gatherResults(
            [
                Deferred.fromCoroutine(self.timed(operation, StoreBusy))
                for operation in (
                    store(self.blobs, b"new"),
                    store(self.blobs, body),
                    sink.finish(),
                    self.blobs.open(before.segments[0]),
                    self.blobs.openUncached(before.segments[0].blob),
                    self.blobs.remove([segment.blob for segment in removed.segments]),
                )
            ]
        )
        self.assertEqual((await store(self.blobs, b"inline", 100)).inline, b"inline")
        await self.healthy(False)
        await self.comeBack()
        after = await self.stores(b"after")
        self.assertEqual(await load(self.blobs, after), b"after")
        self.assertTrue(await load(self.blobs, before) == body)
        await self.blobs.remove([segment.blob for segment in removed.segments])
        await self.healthy(True)
        await self.onlyThese([before, after])

    async def test_lateAnswers(self: Any) -> None:
        """A write that is acknowledged after it was given up is no blob, and is removed."""
        await self.goAway()
        await self.timed(store(self.blobs, os.urandom(300 * KIB)), StoreBusy)
        await self.comeBack()
        kept = await self.stores(b"kept")
        await self.onlyThese([kept])


class FaultContract(AwayContract):
    """Further faults; the case can also have a full store."""

    async def fill(self) -> None:
        """Leave no space in the store."""
        raise NotImplementedError

    async def free(self) -> None:
        """Give it space again."""
        raise NotImplementedError

    async def test_awayWhileWriting(self: Any) -> None:
        """An upload whose store goes away in its middle fails in time, and leaves nothing."""
        sink = self.blobs.writer(0)
        for _ in range(80):
            waiting = sink.write(b"x" * 64 * KIB)
            if waiting is not None:
                await waiting
        await self.goAway()

        async def goOn() -> None:
            for _ in range(200):
                waiting = sink.write(b"x" * 64 * KIB)
                if waiting is not None:
                    await waiting

        await self.timed(goOn(), StoreBusy)
        with self.assertRaises(StoreBusy):
            await sink.finish()
        self.assertEqual(sink.takeNewBlobs(), {})
        await self.comeBack()
        await self.onlyThese([])

    async def test_awayWhileReading(self: Any) -> None:
        """A read whose store goes away fails in time, without a word of damage."""
        body = os.urandom(6 * MIB)
        content = await store(self.blobs, body)
        self.blobs.onShort = lambda blob, size: self.fail("no blob is short")
        handle = await self.blobs.open(content.segments[0])
        await self.goAway()
        await self.timed(handle.sendTo(SlowResponse(), 0, 6 * MIB), StoreBusy)
        await self.timed(handle.read(5 * MIB, 100), StoreBusy)
        await self.comeBack()

        async def reads() -> bool:
            try:
                return await handle.read(5 * MIB, 100) == body[5 * MIB : 5 * MIB + 100]
            except StoreBusy:
                return False

        await self.eventually(reads)
        handle.close()

    async def test_full(self: Any) -> None:
        """A full store refuses writes as full, at once; reads and removals work."""
        seen: list[int] = []
        self.blobs.onFull = lambda: seen.append(1)
        first = await store(self.blobs, b"first")
        second = await store(self.blobs, b"second")
        await self.fill()
        for size in (100 * KIB, 6 * MIB):
            await self.timed(store(self.blobs, b"x" * size), StoreFull)
        self.assertTrue(seen)
        self.assertEqual(await load(self.blobs, first), b"first")
        await self.blobs.remove([segment.blob for segment in second.segments])
        await self.free()

        async def takes() -> bool:
            try:
                stored.append(await store(self.blobs, b"after"))
            except (StoreBusy, StoreFull):
                return False
            return True

        stored: list[Any] = []
        await self.eventually(takes)
        await self.onlyThese([first, *stored])
