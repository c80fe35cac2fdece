"""The Storage service: the bytes of objects, in and out, and what becomes of streams that break."""

import os
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.errors import ServiceError, codedError
from storagegate.storage.errors import CorruptBlob, StoreFull
from storagegate.storage.identity import MARKER
from storagegate.storage.layout import BlobLayout
from storagegate.storage.threadpool import BoundedThreadPool
from tests.services.objectcase import BIG, StorageCase, etagOf, upload
from tests.services.usercase import Requests, ended

CHUNK = 64 * 1024


class BytesCase(StorageCase):
    """A test with a bucket."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Make it."""
        super().setUp()
        await self.call("CreateBucket", {"bucket": "box"})

    def blobs(self) -> list[str]:
        """Give the names of the files of all blobs, also those that are being written."""
        return self.paths() + os.listdir(BlobLayout(self.directory).staging)

    def paths(self) -> list[str]:
        """Give the paths of the files of all blobs, of either back end."""
        return [
            os.path.join(folder, name)
            for top in (BlobLayout(self.directory).blobs, os.path.join(self.directory, "ranged"))
            for folder, _, names in os.walk(top)
            for name in names
            if name != MARKER
        ]

    async def assertNothingHeld(self) -> None:
        """See that an object that is deleted leaves no file, and no file open."""
        await self.call("DeleteObject", {"bucket": "box", "key": "k"})
        await self.store.idle()
        self.assertEqual(self.blobs(), [])
        # A thread that was reading closes the file of a read that was cancelled.
        while self.opened():
            await self.store.run(os.getpid)

    def opened(self) -> list[str]:
        """List the files of blobs that this process has open."""
        names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        paths = [os.readlink(name) for name in names if os.path.lexists(name)]
        blobs = BlobLayout(self.directory).blobs
        return [path for path in paths if path.startswith(blobs)]


class ReadTests(BytesCase):
    """C{GetObject}."""

    jobsOfFive = 1
    """Jobs of the pool for five chunks."""

    async def test_items(self) -> None:
        """The object comes first, then chunks of 64 KiB."""
        made = await self.put("box", "k", BIG)
        first, *rest = await self.stream("GetObject", {"bucket": "box", "key": "k"})
        self.assertEqual(first, {"object": made})
        sizes = [len(item["chunk"]) for item in rest]
        self.assertEqual(sizes, [CHUNK] * 20 + [3])
        self.assertEqual(b"".join(item["chunk"] for item in rest), BIG)
        self.assertEqual({tuple(item) for item in rest}, {("chunk",)})
        await self.assertNothingHeld()

    async def test_datagrams(self) -> None:
        """Over UDP a chunk has 768 bytes, and over nothing else."""
        for body in (b"x" * 1000, BIG):
            await self.put("box", "k", body)
            request = {"bucket": "box", "key": "k"}
            _, *rest = await self.stream("GetObject", request, protocol="udp")
            sizes = [len(item["chunk"]) for item in rest]
            self.assertEqual(max(sizes), 768)
            self.assertEqual(b"".join(item["chunk"] for item in rest), body)

    async def test_empty(self) -> None:
        """An empty object has no chunks."""
        await self.put("box", "k")
        self.assertEqual(len(await self.stream("GetObject", {"bucket": "box", "key": "k"})), 1)

    async def test_ranges(self) -> None:
        """Offset and length choose bytes; what is behind the end is left out."""
        for body in (BIG[:1000], BIG):
            await self.put("box", "k", body)
            size = len(body)
            for offset, length in (
                (0, 0),
                (0, 1),
                (1, 10),
                (size - 1, 5),
                (size, 5),
                (700, size),
                (5, 1 << 62),
            ):
                read = await self.read("box", "k", offset=offset, length=length)
                self.assertEqual(read, body[offset : offset + length], (size, offset, length))
            self.assertEqual(await self.read("box", "k", offset=size - 4), body[-4:])
            request = {"bucket": "box", "key": "k", "offset": size + 1}
            await self.refused("INVALID_ARGUMENT", "GetObject", request)
        for wrong in ({"offset": -1}, {"length": -1}, {"length": 1 << 63}, {"offset": 0.5}):
            request = {"bucket": "box", "key": "k", **wrong}
            await self.refused("VALIDATION_ERROR", "GetObject", request)

    async def test_parts(self) -> None:
        """An object of several parts is read across their borders."""
        started = await self.s3("POST", "/box/k?uploads")
        uploadId = started.body.partition(b"<UploadId>")[2].partition(b"<")[0].decode()
        parts = (os.urandom(5 << 20), b"the end")
        etags = ""
        for number, part in enumerate(parts, 1):
            target = f"/box/k?partNumber={number}&uploadId={uploadId}"
            etag = (await self.s3("PUT", target, part)).headers["etag"]
            etags += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        document = f"<CompleteMultipartUpload>{etags}</CompleteMultipartUpload>".encode()
        await self.s3("POST", f"/box/k?uploadId={uploadId}", document)
        whole = b"".join(parts)
        self.assertEqual(await self.read("box", "k"), whole)
        border = (5 << 20) - 3
        self.assertEqual(await self.read("box", "k", offset=border, length=6), whole[border:][:6])
        # The second part was not open yet when the object was replaced.
        items = await self.call("GetObject", {"bucket": "box", "key": "k"})
        await anext(items)
        read = (await anext(items))["chunk"]
        await self.put("box", "k", b"new")
        await self.store.idle()
        async for item in items:
            read += item["chunk"]
        self.assertEqual(read, whole)

    async def test_replaced(self) -> None:
        """A read that is under way gives the object that it began with, until it is left."""
        await self.put("box", "k", BIG)
        items = await self.call("GetObject", {"bucket": "box", "key": "k"})
        await anext(items)
        read = (await anext(items))["chunk"]
        await self.put("box", "k", b"new")
        async for item in items:
            read += item["chunk"]
        self.assertEqual(read, BIG)
        await self.store.idle()
        self.assertEqual(self.blobs(), [])

    async def test_left(self) -> None:
        """A reader that goes away leaves nothing held."""
        await self.put("box", "k", BIG)
        items = await self.call("GetObject", {"bucket": "box", "key": "k"})
        await anext(items)
        await anext(items)
        await items.aclose()
        await self.assertNothingHeld()

    async def test_slowReader(self) -> None:
        """Nothing is read ahead of a slow reader: one job gives four chunks of a file."""
        await self.put("box", "k", BIG)
        # The blob is open from now on.
        await self.read("box", "k")
        jobs = 0
        run = BoundedThreadPool.run

        def counted(*args: Any) -> Deferred[Any]:
            nonlocal jobs
            jobs += 1
            return run(*args)

        self.patch(BoundedThreadPool, "run", counted)
        items = await self.call("GetObject", {"bucket": "box", "key": "k"})
        for _ in range(5):
            await anext(items)
        self.assertEqual(jobs, self.jobsOfFive)
        await anext(items)
        self.assertEqual(jobs, self.jobsOfFive + 1)
        await items.aclose()

    async def test_short(self) -> None:
        """A blob that has lost bytes ends the call with an error, which is logged."""
        await self.put("box", "k", BIG)
        [path] = self.paths()
        items = await self.call("GetObject", {"bucket": "box", "key": "k"})
        for _ in range(5):
            await anext(items)
        os.truncate(path, 300_000)
        with self.assertRaises(ServiceError) as caught:
            async for _ in items:
                pass
        self.assertEqual(caught.exception.code, "INTERNAL_ERROR")
        self.assertEqual(len(self.flushLoggedErrors(CorruptBlob)), 1)


class ReplacedReadTests(BytesCase):
    """A blob that is missing because its object was replaced, which another node may do."""

    def replace(self, *bodies: bytes | None) -> None:
        """Have the next openings of a blob fail, each after a write or, for L{None}, a removal."""
        opened = self.store.blobs.open
        left = [*bodies]

        async def replaced(segment: Any) -> Any:
            if not left:
                return await opened(segment)
            body = left.pop(0)
            if body is None:
                await self.call("DeleteObject", {"bucket": "box", "key": "k"})
            else:
                await self.put("box", "k", body)
            raise CorruptBlob("it is missing")

        self.patch(self.store.blobs, "open", replaced)

    async def test_replaced(self) -> None:
        """The object is looked up anew and read, by S3 as well."""
        for body in (BIG[::-1], b"small"):
            await self.put("box", "k", BIG)
            self.replace(body)
            self.assertEqual(await self.read("box", "k"), body)
            await self.put("box", "k", BIG)
            self.replace(body)
            answer = await self.s3("GET", "/box/k", range="bytes=1-2", status=206)
            self.assertEqual(
                (answer.body, answer.headers["etag"]), (body[1:3], f'"{etagOf(body)}"')
            )
        await self.assertNothingHeld()

    async def test_removed(self) -> None:
        """An object that was removed is not there."""
        await self.put("box", "k", BIG)
        self.replace(None)
        await self.refused("NOT_FOUND", "GetObject", {"bucket": "box", "key": "k"})
        await self.put("box", "k", BIG)
        self.replace(None)
        await self.s3("GET", "/box/k", status=404)
        await self.assertNothingHeld()

    async def test_always(self) -> None:
        """A read that is overtaken each time may be tried again."""
        bodies = [BIG + b"%d" % number for number in range(3)]
        await self.put("box", "k", BIG)
        self.replace(*bodies)
        await self.refused("UNAVAILABLE", "GetObject", {"bucket": "box", "key": "k"})
        self.replace(*bodies)
        await self.s3("GET", "/box/k", status=503)
        self.assertEqual(await self.read("box", "k"), bodies[-1])
        await self.assertNothingHeld()

    async def test_same(self) -> None:
        """A blob that the object still has is damaged."""
        await self.put("box", "k", BIG)
        [path] = self.paths()
        os.truncate(path, 300_000)
        await self.s3("GET", "/box/k", status=500)
        self.assertEqual(self.store.damagedCount, 1)
        self.assertEqual(len(self.flushLoggedErrors(CorruptBlob)), 1)


class VerifiedReadTests(BytesCase):
    """C{GetObject} where the store compares what it reads."""

    verifyReads = True

    async def test_read(self) -> None:
        """The same bytes come in the same chunks, whole or a part of them."""
        await self.put("box", "k", BIG)
        self.assertEqual(await self.read("box", "k"), BIG)
        self.assertEqual(await self.read("box", "k", offset=9, length=99), BIG[9:108])
        _, *rest = await self.stream("GetObject", {"bucket": "box", "key": "k"})
        self.assertEqual(max(len(item["chunk"]) for item in rest), CHUNK)

    async def test_left(self) -> None:
        """A reader that goes away leaves nothing held, whether it has just been given a piece."""
        for pauses in (False, True):
            await self.put("box", "k", BIG)
            items = await self.call("GetObject", {"bucket": "box", "key": "k"})
            await anext(items)
            await anext(items)
            if pauses:
                await self.store.run(os.getpid)
            await items.aclose()
            await self.assertNothingHeld()

    async def test_damaged(self) -> None:
        """Bytes that are not those that were written never go out whole."""
        await self.put("box", "k", BIG)
        [path] = self.paths()
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"X")
        read = b""
        with self.assertRaises(ServiceError) as caught:
            items = await self.call("GetObject", {"bucket": "box", "key": "k"})
            async for item in items:
                read += item.get("chunk", b"")
        self.assertEqual(caught.exception.code, "INTERNAL_ERROR")
        self.assertLess(len(read), len(BIG))
        self.assertEqual(len(self.flushLoggedErrors(CorruptBlob)), 1)


class WriteTests(BytesCase):
    """C{PutObject}."""

    async def test_base64(self) -> None:
        """A wire of text sends chunks in base64."""
        items = ended({"bucket": "box", "key": "k"}, {"chunk": "aGVs"}, {"chunk": "bG8="})
        made = await self.call("PutObject", items)
        self.assertEqual(made["etag"], etagOf(b"hello"))
        items = ended({"bucket": "box", "key": "k"}, {"chunk": "?"})
        await self.refused("VALIDATION_ERROR", "PutObject", items)
        self.assertEqual(await self.read("box", "k"), b"hello")

    async def test_misplaced(self) -> None:
        """Names come first and once, bytes behind them; else nothing is stored."""
        named = {"bucket": "box", "key": "k"}
        for items in (
            (),
            ({"bucket": "box"},),
            ({"key": "k"},),
            ({"chunk": b"x"},),
            ({**named, "chunk": b"x"},),
            (named, {"chunk": b"x", "key": "other"}),
            (named, {"chunk": b"x", "bucket": "other"}),
            (named, {"chunk": b"x", "contentType": "a/b"}),
            (named, {"chunk": b"x"}, named),
            (named, {"metadata": {"a": "b"}}),
        ):
            await self.refused("INVALID_ARGUMENT", "PutObject", ended(*items))
        await self.refused("NOT_FOUND", "HeadObject", named)

    async def test_protobuf(self) -> None:
        """Empty fields, which some wires cannot leave out, are none."""
        empty: dict[str, Any] = {"metadata": {}, "contentType": ""}
        first = {"bucket": "box", "key": "k", "chunk": b"", **empty}
        items = ended(first, {"chunk": b"x", "bucket": "", "key": "", **empty}, {"chunk": b""}, {})
        made = await self.call("PutObject", items)
        self.assertEqual((made["size"], made["etag"]), (1, etagOf(b"x")))

    async def test_earlyRefusal(self) -> None:
        """What is sure to be refused is refused before its bytes are read."""
        for bucket, code in (("none", "NOT_FOUND"), ("\ud800", "INVALID_ARGUMENT")):
            items = upload(bucket, "k", b"x", b"y")
            await self.refused(code, "PutObject", items)
            self.assertEqual(items.read, 1)

    async def test_cut(self) -> None:
        """Of an upload that breaks, or is cancelled, nothing is seen and nothing is left."""
        await self.put("box", "k", b"old")
        for cause in (codedError("CANCELLED", "gone"), None):
            items = Requests([{"bucket": "box", "key": "k"}, {"chunk": BIG}])
            call = self.call("PutObject", items)
            while not items.isAwaited:
                await self.turn()
            self.assertEqual(len(await self.keys()), 1)
            if cause is None:
                call.cancel()
            else:
                items.end(cause)
            error = await call.addErrback(lambda failure: failure.value)
            self.assertEqual(error.code, "CANCELLED")
            self.assertEqual(await self.read("box", "k"), b"old")
            await self.emptied()

    async def test_completeness(self) -> None:
        """A size, an end and a checksum are compared on every wire; a difference stores nothing."""
        named = {"bucket": "box", "key": "k"}
        for body in (b"hello", BIG):
            await self.put("box", "k", b"old")
            half = {"chunk": body[: len(body) // 2]}
            rest = {"chunk": body[len(body) // 2 :]}
            sized, end = {**named, "size": len(body)}, {"complete": True}
            for items in (
                (sized, half),
                (sized, half, end),
                (sized, half, rest, rest),
                ({**named, "size": 0}, half),
                (named, half, end, rest),
                (named, half, end, {}),
                (named, half, {**end, "checksum": etagOf(body)}),
                (named, {**half, "checksum": etagOf(body)}, rest, end),
                (named, half, {"size": len(body)}),
                ({**named, **end},),
            ):
                for protocol in ("grpc", "tcp"):
                    await self.refused(
                        "INVALID_ARGUMENT", "PutObject", ended(*items), protocol=protocol
                    )
                self.assertEqual(await self.read("box", "k"), b"old")
            await self.emptied()
            whole = (half, rest)
            for items in (
                (sized, *whole),
                (named, *whole, end),
                (named, half, {**rest, **end}),
                (sized, *whole, {**end, "checksum": etagOf(body).upper()}),
            ):
                for protocol in ("grpc", "tcp"):
                    made = await self.call("PutObject", ended(*items), protocol=protocol)
                    self.assertEqual(made["etag"], etagOf(body))
            await self.call("DeleteObject", named)
            await self.store.idle()

    async def test_provenEnd(self) -> None:
        """On gRPC, where what is cut may look whole, an end that nothing proves stores nothing."""
        named = {"bucket": "box", "key": "k"}
        for chunks in ((), (b"x",), (BIG,)):
            items = upload("box", "k", *chunks)
            await self.refused("INVALID_ARGUMENT", "PutObject", items, protocol="grpc")
        await self.refused("NOT_FOUND", "HeadObject", named)
        for items in ([{**named, "size": 0}], [named, {"complete": True}]):
            made = await self.call("PutObject", ended(*items), protocol="grpc")
            self.assertEqual(made["size"], 0)

    async def test_backPressure(self) -> None:
        """No item is asked for while the disk is busy with the last one."""
        asked = 0
        waiting: Deferred[None] = Deferred()

        class Sink:
            """A disk that lags."""

            def write(self, chunk: bytes) -> Deferred[None]:
                return waiting

            def abort(self) -> None:
                """Nothing was written."""

        async def items() -> AsyncIterator[Any]:
            nonlocal asked
            yield {"bucket": "box", "key": "k"}
            while True:
                asked += 1
                yield {"chunk": b"x" * 1000}

        self.patch(self.store.blobs, "writer", lambda *args: Sink())
        call = self.call("PutObject", items())
        while not asked:
            await self.turn()
        for _ in range(20):
            await self.turn()
        self.assertEqual(asked, 1)
        waiting.errback(StoreFull("no room"))
        error = await call.addErrback(lambda failure: failure.value)
        self.assertEqual(error.code, "UNAVAILABLE")
        self.assertEqual((error.statusCode, error.grpcStatus), (503, 14))
        self.assertEqual(asked, 1)

    async def turn(self) -> None:
        """Let the reactor and the store's threads do something."""
        await self.store.run(os.getpid)

    async def emptied(self) -> None:
        """Wait until there is no file of any upload."""
        while self.blobs():
            await self.turn()

    async def keys(self) -> list[str]:
        """List the bucket."""
        return [
            each["key"] for each in (await self.call("ListObjects", {"bucket": "box"}))["objects"]
        ]


class CancelledReadTests(BytesCase):
    """A read that is cancelled while it waits for the disk."""

    async def test_cancel(self) -> None:
        """It ends at once, and holds nothing."""
        # The first piece is read with the first item.
        for count in (0, 5):
            await self.put("box", "k", BIG)
            items = await self.call("GetObject", {"bucket": "box", "key": "k"})
            for _ in range(count):
                await anext(items)

            async def read(items: Any = items) -> Any:
                return await anext(items)

            reading = Deferred.fromCoroutine(read())
            reading.cancel()
            error = await reading.addErrback(lambda failure: failure.value)
            self.assertTrue(isinstance(error, CancelledError) or error.code == "CANCELLED")
            await self.assertNothingHeld()
