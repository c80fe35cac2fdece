"""What every L{IBlobStore} must keep; mixed into a case for each implementation."""

import hashlib
import os
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from storagegate.core.files import crc32c
from storagegate.storage.blobinterfaces import IBlobReader, IBlobStore, IBlobWriter
from storagegate.storage.errors import CorruptBlob, StoreReadOnly
from storagegate.storage.records import Content, Segment

KIB = 1024
MIB = 1024 * KIB


async def store(blobs: Any, body: bytes, inlineLimit: int = 0, step: int = 64 * KIB) -> Content:
    """Bring a body in, in chunks of C{step} bytes, as a polite connection would."""
    sink = blobs.writer(inlineLimit)
    for start in range(0, len(body), step):
        waiting = sink.write(body[start : start + step])
        if waiting is not None:
            await waiting
    content: Content = await sink.finish()
    return content


async def claim(blobs: Any, blob: str) -> Any:
    """Open a blob."""
    return await blobs.open(Segment(blob, 0, 0))


async def load(blobs: Any, content: Content) -> bytes:
    """Read a content back."""
    if content.inline is not None:
        return content.inline
    body = b""
    for segment in content.segments:
        handle = await blobs.open(segment)
        offset, end = segment.offset, segment.offset + segment.length
        while offset < end:
            piece = await handle.read(offset, min(256 * KIB, end - offset))
            body += piece
            offset += len(piece)
        handle.close()
    return body


def complement(data: bytes) -> bytes:
    """Complement all bits."""
    return bytes(data).translate(bytes(range(255, -1, -1)))


class Complement:
    """A L{storagegate.storage.blobinterfaces.BlobFilter} between a head and a tail."""

    def __init__(self) -> None:
        self.size = 0

    def update(self, buffers: Sequence[Any], isLast: bool) -> list[bytes]:
        """Complement all bytes."""
        changed = [complement(each) for each in buffers]
        if not self.size:
            changed.insert(0, b"head")
        if isLast:
            changed.append(b"tail")
        self.size += sum(map(len, changed))
        return changed

    def whole(self, data: bytes) -> bytes:
        """Complement inline content."""
        return b"whole" + complement(data)


class SlowResponse:
    """
    A response that has begun, to a client that takes each chunk a little later.

    @ivar body: What was sent.
    """

    def __init__(self) -> None:
        self.body = b""

    def send(self, chunk: bytes) -> Deferred[None]:
        """Take a chunk."""
        from twisted.internet import reactor

        self.body += chunk
        return deferLater(reactor, 0.001)

    async def sendFile(self, fd: int, offset: int, count: int, run: Any) -> None:
        """Take a run of a file."""
        self.body += await run(os.pread, fd, count, offset)


class BlobsContract:
    """
    The promises of L{IBlobStore}, L{IBlobWriter} and L{IBlobReader}.

    Mix into a trial C{TestCase} whose C{setUp} sets C{self.blobs}.
    """

    blobs: Any

    async def test_provides(self: Any) -> None:
        """The blobs, their sinks and their handles provide their interfaces."""
        self.assertTrue(verifyObject(IBlobStore, self.blobs))
        self.assertTrue(verifyObject(IBlobWriter, self.blobs.writer(0)))
        content = await store(self.blobs, b"bytes")
        handle = await claim(self.blobs, content.segments[0].blob)
        self.assertTrue(verifyObject(IBlobReader, handle))
        self.assertEqual(handle.size, 5)
        handle.close()

    async def test_inline(self: Any) -> None:
        """A body of up to the inline limit comes back inline; one byte more makes a blob."""
        for size in (0, 1, 100):
            body = os.urandom(size)
            self.assertEqual(await store(self.blobs, body, 100), Content(size, inline=body))
        content = await store(self.blobs, b"x" * 101, 100)
        self.assertIsNone(content.inline)
        self.assertEqual([(s.offset, s.length) for s in content.segments], [(0, 101)])

    async def test_limitOfZero(self: Any) -> None:
        """An inline limit of zero makes a blob of every body, the empty one too."""
        content = await store(self.blobs, b"")
        self.assertEqual([(s.offset, s.length) for s in content.segments], [(0, 0)])
        self.assertEqual((await claim(self.blobs, content.segments[0].blob)).size, 0)

    async def test_roundTrip(self: Any) -> None:
        """Bodies of all sizes, in chunks of all sizes, come back as they were."""
        sizes = ((1, 1), (5000, 7), (64 * KIB, 4095), (MIB, 64 * KIB), (MIB + 1, 9999))
        for size, step in (*sizes, (3 * MIB + 5, MIB), (3 * MIB, 3 * MIB)):
            body = os.urandom(size)
            content = await store(self.blobs, body, step=step)
            self.assertEqual(content.size, size)
            self.assertTrue(await load(self.blobs, content) == body, (size, step))

    async def test_declaredSize(self: Any) -> None:
        """A declared size changes nothing but speed, even where it is wrong."""
        body = os.urandom(MIB + 300)
        for declared in (0, 10, MIB, MIB + 300, 1 << 40):
            sink = self.blobs.writer(64 * KIB, declared)
            for start in range(0, len(body), 50_000):
                waiting = sink.write(body[start : start + 50_000])
                if waiting is not None:
                    await waiting
            self.assertTrue(await load(self.blobs, await sink.finish()) == body)

    async def test_filtered(self: Any) -> None:
        """
        A filter changes what is stored: the segment, the blob and its checksum are of the changed
        bytes, and the size is of the bytes that came.
        """
        for size, step in ((0, 1), (5000, 7), (MIB + 5, 9999), (3 * MIB, 64 * KIB)):
            body = os.urandom(size)
            sink = self.blobs.writer(0, None, "", Complement())
            for start in range(0, size, step):
                waiting = sink.write(body[start : start + step])
                if waiting is not None:
                    await waiting
            content = await sink.finish()
            self.assertEqual(content.size, size)
            [segment] = content.segments
            self.assertEqual((segment.offset, segment.length), (0, size + 8))
            stored = await load(self.blobs, content)
            self.assertTrue(stored == b"head" + complement(body) + b"tail")
            self.assertEqual(sink.takeNewBlobs(), {segment.blob: crc32c(stored)})
        inline = self.blobs.writer(100, None, "", Complement())
        inline.write(b"\0" * 100)
        self.assertEqual(await inline.finish(), Content(100, b"whole" + b"\xff" * 100))

    async def test_apart(self: Any) -> None:
        """Uploads at one time do not mix, and no two have one id."""
        sinks = [self.blobs.writer(0) for _ in range(20)]
        for number, sink in enumerate(sinks):
            sink.write(b"%d" % number)
        contents = [await sink.finish() for sink in sinks]
        self.assertEqual(len({c.segments[0].blob for c in contents}), 20)
        for number, content in enumerate(contents):
            self.assertEqual(await load(self.blobs, content), b"%d" % number)

    async def test_read(self: Any) -> None:
        """Any run can be read, the end is where the blob ends, and hashers get what is read."""
        body = os.urandom(200 * KIB)
        content = await store(self.blobs, body)
        handle = await self.blobs.open(content.segments[0])
        for offset, length in ((0, 1), (5, 0), (70_000, 100_000), (0, 200 * KIB)):
            md5 = hashlib.md5(usedforsecurity=False)
            run = await handle.read(offset, length, [md5])
            self.assertTrue(run == body[offset : offset + length], (offset, length))
            self.assertEqual(md5.digest(), hashlib.md5(run, usedforsecurity=False).digest())
        self.assertTrue(await handle.read(200 * KIB - 7, 100) == body[-7:])
        self.assertEqual(await handle.read(200 * KIB, 100), b"")
        handle.close()

    async def test_sendTo(self: Any) -> None:
        """A run of a blob is sent as it was written, whatever the pace of the client."""
        body = os.urandom(300 * KIB)
        content = await store(self.blobs, body)
        handle = await self.blobs.open(content.segments[0])
        for offset, length in ((0, 300 * KIB), (1, 150_000), (299 * KIB, KIB), (17, 0)):
            response = SlowResponse()
            await handle.sendTo(response, offset, length)
            self.assertTrue(response.body == body[offset : offset + length], (offset, length))
        handle.close()

    async def test_digest(self: Any) -> None:
        """A run of a blob is fed to all hashers, in order, and the end is told by the count."""
        body = os.urandom(3 * MIB)
        content = await store(self.blobs, body)
        for opened in (self.blobs.open(content.segments[0]), self.openUncached(content)):
            handle = await opened
            for offset, length in ((0, 3 * MIB), (12345, 2 * MIB), (2 * MIB, 2 * MIB), (9, 0)):
                hashers = [hashlib.sha256(), hashlib.md5(usedforsecurity=False)]
                run = body[offset : offset + length]
                self.assertEqual(await handle.digest(hashers, offset, length), len(run))
                self.assertEqual(hashers[0].digest(), hashlib.sha256(run).digest())
                # The memory of the caller changes nothing.
                again, space = hashlib.sha256(), memoryview(bytearray(100_000))
                self.assertEqual(await handle.digest([again], offset, length, space), len(run))
                self.assertEqual(again.digest(), hashlib.sha256(run).digest())
            handle.close()

    async def test_readWarm(self: Any) -> None:
        """What can be read without waiting is what is there, and all of it."""
        body = os.urandom(1000)
        content = await store(self.blobs, body)
        handle = await self.blobs.open(content.segments[0])
        self.assertIn(handle.readWarm(100, 500), (None, body[100:600]))
        self.assertIsNone(handle.readWarm(900, 101))
        handle.close()

    def openUncached(self: Any, content: Content) -> Any:
        """Open the blob of a content as the scrubber does."""
        return self.blobs.openUncached(content.segments[0].blob)

    async def test_reach(self: Any) -> None:
        """A segment that is longer than its blob is damage."""
        content = await store(self.blobs, b"bytes")
        blob = content.segments[0].blob
        (await self.blobs.open(Segment(blob, 1, 4))).close()
        with self.assertRaises(CorruptBlob):
            await self.blobs.open(Segment(blob, 2, 4))

    async def test_markDamaged(self: Any) -> None:
        """A blob that was marked is opened no more, until it is removed."""
        content = await store(self.blobs, b"bytes")
        blob = content.segments[0].blob
        self.blobs.markCorrupt([blob])
        self.assertEqual(self.blobs.corrupt, {blob})
        with self.assertRaises(CorruptBlob):
            await self.blobs.open(content.segments[0])
        await self.blobs.remove([blob])
        self.assertEqual(self.blobs.corrupt, frozenset())

    async def test_unconfirmed(self: Any) -> None:
        """What was written and neither settled nor removed is listed, once it is old enough."""
        contents = [await store(self.blobs, b"%d" % number) for number in range(3)]
        kept, settled, removed = (content.segments[0].blob for content in contents)
        self.blobs.confirm([settled])
        await self.blobs.idle()
        await self.blobs.remove([removed])
        self.assertEqual(list(await self.blobs.unconfirmed(-1.0, int)), [kept])
        self.assertEqual(list(await self.blobs.unconfirmed(3600.0, int)), [])

    async def test_failStop(self: Any) -> None:
        """After a failure nothing is written or removed, and the first reason is reported."""
        content = await store(self.blobs, b"bytes")
        self.assertEqual((self.blobs.failure, self.blobs.health()), (None, {"blobs": None}))
        self.blobs.failStop("told so")
        self.blobs.failStop("again")
        self.assertEqual(self.blobs.failure, "told so")
        self.assertEqual(self.blobs.health(), {"blobs": "told so"})
        with self.assertRaises(StoreReadOnly):
            await store(self.blobs, b"more")
        with self.assertRaises(StoreReadOnly):
            await self.blobs.remove([content.segments[0].blob])
        self.assertEqual(await load(self.blobs, content), b"bytes")
        if hasattr(self, "flushLoggedErrors"):
            self.flushLoggedErrors()

    async def test_readersShare(self: Any) -> None:
        """Each reader has its own claim: one that goes takes nothing from the others."""
        content = await store(self.blobs, b"shared")
        blob = content.segments[0].blob
        handles = [await claim(self.blobs, blob) for _ in range(3)]
        handles[0].close()
        handles[2].close()
        self.assertEqual(await handles[1].read(0, 10), b"shared")
        handles[1].close()

    async def test_missing(self: Any) -> None:
        """A blob that is not there is damage, not a programming error."""
        with self.assertRaises(CorruptBlob):
            await claim(self.blobs, "0123456789abcdef" * 2)

    async def test_discard(self: Any) -> None:
        """A discarded blob is gone."""
        content = await store(self.blobs, b"old bytes")
        blob = content.segments[0].blob
        await self.blobs.remove([blob])
        with self.assertRaises(CorruptBlob):
            await claim(self.blobs, blob)

    async def test_discardTwice(self: Any) -> None:
        """Discarding what is not there, or nothing, does no harm."""
        content = await store(self.blobs, b"bytes")
        blob = content.segments[0].blob
        await self.blobs.remove([blob])
        await self.blobs.remove([blob, "0123456789abcdef" * 2])
        await self.blobs.remove([])

    async def test_settle(self: Any) -> None:
        """A settled blob stays as it is; settling what is gone does no harm."""
        content = await store(self.blobs, b"kept")
        self.blobs.confirm([content.segments[0].blob])
        self.blobs.confirm(["0123456789abcdef" * 2])
        self.assertEqual(await load(self.blobs, content), b"kept")

    async def test_abort(self: Any) -> None:
        """An aborted sink takes no more, and aborting again does no harm."""
        for size in (10, 2 * MIB):
            sink = self.blobs.writer(64 * KIB)
            waiting = sink.write(b"x" * size)
            if waiting is not None:
                await waiting
            sink.abort()
            sink.abort()
            with self.assertRaises(CancelledError):
                sink.write(b"more")
            with self.assertRaises(CancelledError):
                await sink.finish()

    async def test_abortAfterFinish(self: Any) -> None:
        """Aborting after the finish does nothing: the content belongs to the caller."""
        sink = self.blobs.writer(0)
        sink.write(b"kept")
        content = await sink.finish()
        sink.abort()
        self.assertEqual(await load(self.blobs, content), b"kept")

    async def test_finishTwice(self: Any) -> None:
        """A sink ends once: then it takes neither chunk nor finish."""
        for inlineLimit in (0, 100):
            sink = self.blobs.writer(inlineLimit)
            await sink.finish()
            with self.assertRaises(RuntimeError):
                sink.write(b"late")
            with self.assertRaises(RuntimeError):
                await sink.finish()

    async def test_releaseOnce(self: Any) -> None:
        """Releasing a claim twice is a mistake that shows."""
        content = await store(self.blobs, b"bytes")
        handle = await claim(self.blobs, content.segments[0].blob)
        handle.close()
        with self.assertRaises(RuntimeError):
            handle.close()
