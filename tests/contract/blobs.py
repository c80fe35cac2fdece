"""What every L{IBlobStore} must keep; mixed into a case for each implementation."""

import os
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface.verify import verifyObject

from storagegate.storage.errors import CorruptBlob
from storagegate.storage.interfaces import IBlobReader, IBlobStore, IBlobWriter
from storagegate.storage.records import Content

KIB = 1024
MIB = 1024 * KIB


async def store(blobs: Any, body: bytes, inlineLimit: int = 0, step: int = 64 * KIB) -> Content:
    """Bring a body in, in chunks of C{step} bytes, as a polite connection would."""
    sink = blobs.sink(inlineLimit)
    for start in range(0, len(body), step):
        waiting = sink.write(body[start : start + step])
        if waiting is not None:
            await waiting
    content: Content = await sink.finish()
    return content


async def claim(blobs: Any, blob: str) -> Any:
    """Open a blob, cached or not."""
    opened = blobs.open(blob)
    return await opened if isinstance(opened, Deferred) else opened


async def load(blobs: Any, content: Content) -> bytes:
    """Read a content back."""
    if content.inline is not None:
        return content.inline
    body = b""
    for segment in content.segments:
        handle = await claim(blobs, segment.blob)
        body += os.pread(handle.fd, segment.length, segment.offset)
        handle.release()
    return body


class BlobsContract:
    """
    The promises of L{IBlobStore}, L{IBlobWriter} and L{IBlobReader}.

    Mix into a trial C{TestCase} whose C{setUp} sets C{self.blobs}.
    """

    blobs: Any

    async def test_provides(self: Any) -> None:
        """The blobs, their sinks and their handles provide their interfaces."""
        self.assertTrue(verifyObject(IBlobStore, self.blobs))
        self.assertTrue(verifyObject(IBlobWriter, self.blobs.sink(0)))
        content = await store(self.blobs, b"bytes")
        handle = await claim(self.blobs, content.segments[0].blob)
        self.assertTrue(verifyObject(IBlobReader, handle))
        self.assertEqual(handle.size, 5)
        handle.release()

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
            sink = self.blobs.sink(64 * KIB, declared)
            for start in range(0, len(body), 50_000):
                waiting = sink.write(body[start : start + 50_000])
                if waiting is not None:
                    await waiting
            self.assertTrue(await load(self.blobs, await sink.finish()) == body)

    async def test_apart(self: Any) -> None:
        """Uploads at one time do not mix, and no two have one id."""
        sinks = [self.blobs.sink(0) for _ in range(20)]
        for number, sink in enumerate(sinks):
            sink.write(b"%d" % number)
        contents = [await sink.finish() for sink in sinks]
        self.assertEqual(len({c.segments[0].blob for c in contents}), 20)
        for number, content in enumerate(contents):
            self.assertEqual(await load(self.blobs, content), b"%d" % number)

    async def test_cached(self: Any) -> None:
        """A blob that was read lately opens at once."""
        content = await store(self.blobs, b"hot")
        (await claim(self.blobs, content.segments[0].blob)).release()
        handle = self.blobs.open(content.segments[0].blob)
        self.assertNotIsInstance(handle, Deferred)
        self.assertEqual(os.pread(handle.fd, 10, 0), b"hot")
        handle.release()

    async def test_readersShare(self: Any) -> None:
        """Each reader has its own claim: one that goes takes nothing from the others."""
        content = await store(self.blobs, b"shared")
        blob = content.segments[0].blob
        opened = [self.blobs.open(blob) for _ in range(3)]
        handles = [await o if isinstance(o, Deferred) else o for o in opened]
        handles[0].release()
        handles[2].release()
        self.assertEqual(os.pread(handles[1].fd, 10, 0), b"shared")
        handles[1].release()

    async def test_missing(self: Any) -> None:
        """A blob that is not there is damage, not a programming error."""
        with self.assertRaises(CorruptBlob):
            await claim(self.blobs, "0123456789abcdef" * 2)

    async def test_discard(self: Any) -> None:
        """A discarded blob is gone, except for those who are reading it."""
        content = await store(self.blobs, b"old bytes")
        blob = content.segments[0].blob
        reader = await claim(self.blobs, blob)
        await self.blobs.discard([blob])
        self.assertEqual(os.pread(reader.fd, 20, 0), b"old bytes")
        reader.release()
        with self.assertRaises(CorruptBlob):
            await claim(self.blobs, blob)

    async def test_discardTwice(self: Any) -> None:
        """Discarding what is not there, or nothing, does no harm."""
        content = await store(self.blobs, b"bytes")
        blob = content.segments[0].blob
        await self.blobs.discard([blob])
        await self.blobs.discard([blob, "0123456789abcdef" * 2])
        await self.blobs.discard([])

    async def test_settle(self: Any) -> None:
        """A settled blob stays as it is; settling what is gone does no harm."""
        content = await store(self.blobs, b"kept")
        self.blobs.settle([content.segments[0].blob])
        self.blobs.settle(["0123456789abcdef" * 2])
        self.assertEqual(await load(self.blobs, content), b"kept")

    async def test_abort(self: Any) -> None:
        """An aborted sink takes no more, and aborting again does no harm."""
        for size in (10, 2 * MIB):
            sink = self.blobs.sink(64 * KIB)
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
        sink = self.blobs.sink(0)
        sink.write(b"kept")
        content = await sink.finish()
        sink.abort()
        self.assertEqual(await load(self.blobs, content), b"kept")

    async def test_finishTwice(self: Any) -> None:
        """A sink ends once: then it takes neither chunk nor finish."""
        for inlineLimit in (0, 100):
            sink = self.blobs.sink(inlineLimit)
            await sink.finish()
            with self.assertRaises(RuntimeError):
                sink.write(b"late")
            with self.assertRaises(RuntimeError):
                await sink.finish()

    async def test_releaseOnce(self: Any) -> None:
        """Releasing a claim twice is a mistake that shows."""
        content = await store(self.blobs, b"bytes")
        handle = await claim(self.blobs, content.segments[0].blob)
        handle.release()
        with self.assertRaises(RuntimeError):
            handle.release()
