"""The names, sizes and ends of pieces, in a store that is in memory."""

import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from storagegate.storage.cluster.blobs.pieces import (
    MARKER,
    IPieceStore,
    MissingPiece,
    PiecePlace,
    PieceRange,
    findSize,
    removeBlob,
    splitBuffers,
)
from storagegate.storage.cluster.blobs.rados import PoolAddress, RadosPieces
from storagegate.storage.cluster.blobs.remote import RemoteBlobs, claimPieces
from storagegate.storage.cluster.blobs.s3 import BucketAddress, BucketPieces, BufferStream
from storagegate.storage.cluster.blobs.shared import SharedFiles
from storagegate.storage.errors import CorruptBlob, StoreBusy, StoreReadOnly
from storagegate.storage.files import FailStopLatch
from storagegate.storage.layout import BlobIds
from tests.contract.blobs import load, store
from tests.support.pools import ImmediatePool

STORE = "0" * 32


@implementer(IPieceStore)
class MemoryPieces:
    """
    A store of pieces in memory.

    @ivar pieces: The bytes by name.
    @ivar fails: What every operation fails with; L{None} if it does not.
    """

    name = "memory"
    bufferSize = 100
    buffersSize = 10_000
    unconfirmedWrites = rereads = 0

    def __init__(self, pieceSize: int, growsPieces: bool) -> None:
        self.pieceSize, self.growsPieces = pieceSize, growsPieces
        self.pieces: dict[str, bytes] = {}
        self.fails: Exception | None = None
        self.onError = lambda error: None
        self.count = 0

    def _run(self, function: Any) -> Any:
        self.count += 1
        if self.fails is not None:
            return fail(self.fails)
        try:
            return succeed(function())
        except KeyError:
            return fail(MissingPiece())

    def put(self, name: str, offset: int, body: Any, isLast: bool) -> Any:
        """Write a piece."""

        def write() -> None:
            before = self.pieces.get(name, b"")
            assert len(before) == offset, (name, len(before), offset)
            after = before + b"".join(body)
            assert len(after) <= self.pieceSize or "." not in name
            self.pieces[name] = after

        return self._run(write)

    def get(self, name: str, offset: int, length: int) -> Any:
        """Read a range."""
        return self._run(
            lambda: PieceRange(self.pieces[name][offset : offset + length], len(self.pieces[name]))
        )

    def size(self, name: str) -> Any:
        """Return the size."""
        return self._run(lambda: len(self.pieces[name]))

    def remove(self, name: str) -> Any:
        """Remove a piece."""
        return self._run(lambda: self.pieces.pop(name, None) is not None)

    async def names(self) -> Any:
        """List the names."""
        yield sorted(self.pieces)

    def create(self, name: str, body: bytes) -> Any:
        """Write a piece unless it exists."""
        return self._run(lambda: self.pieces.setdefault(name, body) and None)

    def wait(self, result: Any) -> Any:
        """Give the result that is there."""
        raise NotImplementedError

    def detach(self) -> None:
        """Do nothing."""

    def close(self) -> Any:
        """Do nothing."""
        return succeed(None)


class PieceCase(SynchronousTestCase):
    """A store of pieces."""

    def made(self, pieceSize: int = 100, growsPieces: bool = True) -> RemoteBlobs:
        """Claim a new store of pieces, and open it."""
        self.pieces = MemoryPieces(pieceSize, growsPieces)
        self.successResultOf(Deferred.fromCoroutine(claimPieces(self.pieces, STORE)))
        self.clock = Clock()
        self.latch = FailStopLatch()
        return RemoteBlobs(self.pieces, ImmediatePool(), self.clock, self.newId, STORE, self.latch)

    newId = staticmethod(BlobIds().new)

    def settle(self, awaitable: Any) -> Any:
        """Return the result of what has one."""
        return self.successResultOf(
            awaitable if isinstance(awaitable, Deferred) else Deferred.fromCoroutine(awaitable)
        )


class PieceTests(PieceCase):
    """L{RemoteBlobs} and its pieces."""

    def test_provides(self) -> None:
        """All stores of pieces provide the interface."""
        verifyObject(IPieceStore, MemoryPieces(1, True))
        for kind in (RadosPieces, BucketPieces, SharedFiles):
            self.assertTrue(IPieceStore.implementedBy(kind), kind)

    @given(
        st.integers(0, 1000),
        st.integers(1, 300),
        st.booleans(),
        st.booleans(),
        st.lists(st.integers(0, 1000), min_size=2, max_size=2),
    )
    def test_anySize(
        self, size: int, step: int, growsPieces: bool, isKnown: bool, ends: list[int]
    ) -> None:
        """A body of any size in chunks of any size has its size and its bytes in every range."""
        blobs = self.made(130, growsPieces)
        body = os.urandom(size)
        content = self.settle(store(blobs, body, step=step))
        [segment] = content.segments
        if not isKnown:
            blobs = RemoteBlobs(
                self.pieces, ImmediatePool(), self.clock, self.newId, STORE, self.latch
            )
        self.assertEqual(self.settle(load(blobs, content)), body)
        reader = self.settle(blobs.openUncached(segment.blob))
        self.assertEqual(reader.size, size)
        start, length = min(ends), max(ends) - min(ends)
        self.assertEqual(self.settle(reader.read(start, length)), body[start : start + length])
        self.settle(blobs.remove([segment.blob]))
        self.assertEqual(set(self.pieces.pieces), {MARKER})

    @given(st.integers(1, 60), st.integers(0, 7000), st.integers(1, 100))
    def test_findSize(self, count: int, atLeast: int, last: int) -> None:
        """The size is found from any guess, with few operations."""
        pieces = MemoryPieces(100, True)
        for number in range(count):
            pieces.pieces[f"b.{number}"] = b"x" * (last if number == count - 1 else 100)
        found = self.settle(findSize(pieces, "b", atLeast))
        self.assertEqual(found, PiecePlace("b", 100 * (count - 1) + last, 100))
        self.assertLess(pieces.count, 20)

    @given(st.sets(st.integers(0, 40)))
    def test_removeRest(self, gone: set[int]) -> None:
        """A removal that is repeated finds the pieces that are left in every order of removal."""
        pieces = MemoryPieces(100, True)
        left = sorted(set(range(41)) - gone)
        # Groups go from the last to the first, the first piece at the very end.
        first = min(left, default=0)
        for number in left:
            if number // 8 == first // 8 or number < 8:
                pieces.pieces[f"b.{number}"] = b"x"
        pieces.pieces["b.0"] = b"x"
        self.settle(removeBlob(pieces, "b"))
        self.assertEqual([name for name in pieces.pieces if int(name[2:]) < 8], [])

    @given(st.lists(st.binary(max_size=20)), st.data())
    def test_splitBuffers(self, buffers: list[bytes], data: Any) -> None:
        """Buffers are split behind any byte."""
        whole = b"".join(buffers)
        at = data.draw(st.integers(0, len(whole)))
        head, tail = splitBuffers(buffers, at)
        self.assertEqual((b"".join(head), b"".join(tail)), (whole[:at], whole[at:]))

    @given(st.lists(st.binary(max_size=20)), st.integers(1, 50))
    def test_bufferStream(self, buffers: list[bytes], length: int) -> None:
        """Buffers are read as one file, again from the beginning."""
        stream = BufferStream(buffers)
        for _ in range(2):
            found = b""
            while chunk := stream.read(length):
                found += chunk
            self.assertEqual(found, b"".join(buffers))
            stream.seek(0)
        with self.assertRaises(ValueError):
            stream.seek(1)

    def test_noId(self) -> None:
        """An upload fails while the node may not make ids, and its writer can be aborted."""

        def refuse(bucket: str) -> str:
            raise StoreReadOnly("the lease has ended")

        self.newId = refuse  # type: ignore[assignment]
        blobs = self.made()
        for size in (10, 1000):
            writer = blobs.writer(0)
            writer.write(b"x" * size)
            self.failureResultOf(writer.finish(), StoreReadOnly)
            writer.abort()
        self.assertEqual(set(self.pieces.pieces), {MARKER})
        inline = blobs.writer(100)
        inline.write(b"inline")
        self.assertEqual(self.settle(inline.finish()).inline, b"inline")

    def test_noIdBeforeCheck(self) -> None:
        """An upload that is refused because the store was not reached yet takes no id."""
        taken: list[str] = []

        def take(bucket: str) -> str:
            taken.append(bucket)
            return f"{len(taken):032x}"

        self.newId = take  # type: ignore[assignment]
        blobs = self.made()
        blobs._isChecked = False
        for size in (10, 1000):
            writer = blobs.writer(0)
            writer.write(b"x" * size)
            self.failureResultOf(writer.finish(), StoreBusy)
            writer.abort()
        self.assertEqual(taken, [])

    def test_removedWhenBack(self) -> None:
        """An upload that failed is removed when the store is back, and again much later."""
        blobs = self.made()
        writer = blobs.writer(0)
        writer.write(b"x" * 250)
        self.pieces.fails = StoreBusy("away")
        writer.write(b"x" * 250)
        self.failureResultOf(writer.finish(), StoreBusy)
        self.assertNotEqual(set(self.pieces.pieces), {MARKER})
        self.clock.pump([1.0] * 40)
        self.pieces.fails = None
        late = self.pieces.pieces.copy()
        self.clock.pump([1.0] * 19)
        self.assertEqual(set(self.pieces.pieces), {MARKER})
        # A write that took its time.
        self.pieces.pieces.update(late)
        self.clock.pump([1.0] * 2)
        self.assertEqual(set(self.pieces.pieces), {MARKER})
        idle = blobs.idle()
        self.clock.advance(0)
        self.settle(idle)

    def test_backPressure(self) -> None:
        """While a client takes nothing, no more than the next range is read; then all comes."""
        blobs = self.made()
        body = os.urandom(1000)
        [segment] = self.settle(store(blobs, body)).segments
        reader = self.settle(blobs.open(segment))
        taken: list[bytes] = []
        waits: list[Deferred[None]] = []

        class Response:
            def send(self, chunk: bytes) -> Deferred[None]:
                taken.append(chunk)
                waits.append(Deferred())
                return waits[-1]

        before = self.pieces.count
        sending = Deferred.fromCoroutine(reader.sendTo(Response(), 0, len(body)))
        self.assertEqual((len(taken), self.pieces.count - before), (1, 1))
        while waits:
            waits.pop().callback(None)
        self.successResultOf(sending)
        self.assertEqual(b"".join(taken), body)

    def test_clientGone(self) -> None:
        """A client that goes ends the read ahead of it, and no error is left."""
        blobs = self.made()
        [segment] = self.settle(store(blobs, b"x" * 1000)).segments
        reader = self.settle(blobs.open(segment))

        class Response:
            def send(self, chunk: bytes) -> Deferred[None]:
                return fail(ConnectionError("gone"))

        sending = Deferred.fromCoroutine(reader.sendTo(Response(), 0, 1000))
        self.failureResultOf(sending, ConnectionError)
        reader.close()

    def test_shortPiece(self) -> None:
        """A piece that has become shorter is damage, whose place is reported."""
        blobs = self.made()
        short: list[tuple[str, int]] = []
        blobs.onShort = lambda blob, size: short.append((blob, size))
        [segment] = self.settle(store(blobs, b"x" * 950)).segments
        reader = self.settle(blobs.open(segment))
        name = f"{segment.blob}.3"
        self.pieces.pieces[name] = self.pieces.pieces[name][:-1]
        reading = Deferred.fromCoroutine(reader.read(0, 950))
        self.failureResultOf(reading, CorruptBlob)
        self.assertEqual(short, [(segment.blob, 300)])
        last = f"{segment.blob}.9"
        self.pieces.pieces[last] = self.pieces.pieces[last][:-1]
        again = RemoteBlobs(self.pieces, ImmediatePool(), self.clock, self.newId, STORE, self.latch)
        again.onShort = blobs.onShort
        self.failureResultOf(Deferred.fromCoroutine(again.open(segment)), CorruptBlob)
        self.assertEqual(short[1:], [(segment.blob, 949)])

    def test_refusedWhileAway(self) -> None:
        """A blob that the catalog refuses while the store is away is removed when that is back."""
        blobs = self.made()
        [segment] = self.settle(store(blobs, b"x" * 250)).segments
        [kept] = self.settle(store(blobs, b"kept")).segments
        blobs.confirm([kept.blob])
        self.pieces.fails = StoreBusy("away")
        self.failureResultOf(blobs.remove([segment.blob, kept.blob]), StoreBusy)
        self.pieces.fails = None
        self.clock.pump([1.0] * 3)
        self.assertEqual(set(self.pieces.pieces), {MARKER, kept.blob})
        self.assertEqual(self.settle(blobs.unconfirmed(-1.0, int)), [])

    def test_claimedTwiceAtOnce(self) -> None:
        """A store that another cluster has claimed a moment later is found out."""
        blobs = self.made()
        self.pieces.pieces[MARKER] = b"f" * 32
        self.clock.advance(10)
        self.assertIn("f" * 32, blobs.failure or "")
        self.flushLoggedErrors()

    def test_bounded(self) -> None:
        """However many uploads there are, each holds two buffers at most, and those get smaller."""
        blobs = self.made()
        self.pieces.bufferSize, self.pieces.buffersSize = 4 << 20, 64 << 20
        writers = [blobs.writer(0) for _ in range(100)]
        sizes = [writer._buffer for writer in writers]
        self.assertEqual(sizes[:16], [4 << 20] * 16)
        self.assertLessEqual(sizes[-1], 512 << 10)
        self.assertGreaterEqual(min(sizes), 256 << 10)


class AddressTests(SynchronousTestCase):
    """The texts that name stores."""

    def test_pool(self) -> None:
        """A pool has a name, a user, a configuration and a namespace."""
        self.assertEqual(PoolAddress.parse("rados:sg"), PoolAddress("sg"))
        self.assertEqual(
            PoolAddress.parse("rados:sg?user=gate&conf=/etc/c.conf&namespace=a"),
            PoolAddress("sg", "gate", "/etc/c.conf", "a"),
        )
        for text in ("rados:", "rados:a/b", "rados:sg?pool=x", "rados:sg?user"):
            with self.assertRaises(ValueError):
                PoolAddress.parse(text)

    def test_bucket(self) -> None:
        """A bucket has an endpoint, a prefix, a region and authorities; never credentials."""
        self.assertEqual(
            BucketAddress.parse("s3:https://s3.example.com/bucket"),
            BucketAddress("s3.example.com", True, "bucket"),
        )
        self.assertEqual(
            BucketAddress.parse("s3:http://127.0.0.1:9000/b/a/c?region=eu-west-1&ca=/ca.pem"),
            BucketAddress("127.0.0.1:9000", False, "b", "a/c/", "eu-west-1", "/ca.pem"),
        )
        for text in (
            "s3:https://host",
            "s3:bucket",
            "s3:ftp://host/bucket",
            "s3:https://host/bucket?acl=x",
            "s3:https://key:secret@host/bucket",
        ):
            with self.assertRaises(ValueError) as caught:
                BucketAddress.parse(text)
            self.assertNotIn("\n", str(caught.exception))
