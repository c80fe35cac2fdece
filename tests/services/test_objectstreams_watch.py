"""The Storage service: watches of buckets."""

from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.streams import MAX_ITEMS
from storagegate.storage.errors import StoreError
from storagegate.storage.mutations import RemoveAccessKey
from tests.services.objectcase import StorageCase, etagOf, upload
from tests.support.clients import ROOT, Account


class WatchTests(StorageCase):
    """C{WatchBucket}."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Make a bucket."""
        super().setUp()
        await self.call("CreateBucket", {"bucket": "box"})

    async def watch(self, account: Account = ROOT, **more: Any) -> "Watch":
        """Begin to watch."""
        return Watch(await self.call("WatchBucket", {"bucket": "box", **more}, account))

    async def test_created(self) -> None:
        """Whatever is stored, here, by S3, as a copy or of parts, is told of as it is listed."""
        watch = await self.watch()
        await self.put("box", "one", b"1", contentType="text/x", metadata={"a": "b"})
        await self.s3("PUT", "/box/two", b"22")
        await self.call(
            "CopyObject", {"fromBucket": "box", "fromKey": "one", "bucket": "box", "key": "three"}
        )
        events = [await watch.next() for _ in range(3)]
        listed = (await self.call("ListObjects", {"bucket": "box"}))["objects"]
        rows = {row["key"]: row for row in listed}
        self.assertEqual(
            events,
            [{"event": "created", "object": rows[key]} for key in ("one", "two", "three")],
        )
        self.assertEqual(rows["one"]["contentType"], "text/x")
        await self.multipart("four", b"4444")
        self.assertEqual((await watch.next())["object"]["size"], 4)
        await watch.close()

    async def test_removed(self) -> None:
        """What is removed is told of by its key; what was not there is not."""
        for key in ("a", "b", "c"):
            await self.put("box", key, b"x")
        watch = await self.watch()
        await self.call("DeleteObject", {"bucket": "box", "key": "none"})
        await self.call("DeleteObject", {"bucket": "box", "key": "a"})
        await self.s3("DELETE", "/box/b", status=204)
        many = "".join(f"<Object><Key>{key}</Key></Object>" for key in ("none", "c"))
        await self.s3("POST", "/box?delete", f"<Delete>{many}</Delete>".encode())
        for key in ("a", "b", "c"):
            self.assertEqual(await watch.next(), {"event": "removed", "object": {"key": key}})
        await watch.close()

    async def test_prefix(self) -> None:
        """A prefix leaves the others out, and so does another bucket."""
        await self.call("CreateBucket", {"bucket": "other"})
        watch = await self.watch(prefix="a/")
        for bucket, key in (("box", "b"), ("other", "a/1"), ("box", "a/2"), ("box", "a")):
            await self.put(bucket, key, b"x")
        await self.call("DeleteObject", {"bucket": "box", "key": "b"})
        await self.call("DeleteObject", {"bucket": "box", "key": "a/2"})
        self.assertEqual((await watch.next())["object"]["key"], "a/2")
        self.assertEqual((await watch.next())["event"], "removed")
        self.assertFalse(watch.isReady)
        await watch.close()

    async def test_failed(self) -> None:
        """What was not stored is not told of."""
        watch = await self.watch()
        await self.refused("VALIDATION_ERROR", "PutObject", upload("box", "k", "?"))  # type: ignore[arg-type]
        await self.s3("PUT", "/box/k", b"x", if_match='"no"', status=404)
        await self.put("box", "last", b"x")
        self.assertEqual((await watch.next())["object"]["key"], "last")
        await watch.close()

    async def test_bucketDeleted(self) -> None:
        """The end of the bucket is the end of the watch, after all that happened before."""
        for deleted in ("here", "S3"):
            for key in ("k", "l"):
                await self.put("box", key, b"x")
            watch = await self.watch()
            for key in ("k", "l"):
                await self.call("DeleteObject", {"bucket": "box", "key": key})
            if deleted == "here":
                await self.call("DeleteBucket", {"bucket": "box"})
            else:
                await self.s3("DELETE", "/box", status=204)
            for key in ("k", "l"):
                self.assertEqual(await watch.next(), {"event": "removed", "object": {"key": key}})
            await self.call("CreateBucket", {"bucket": "box"})
            await self.put("box", "of-another-bucket", b"x")
            with self.assertRaises(StopAsyncIteration):
                await watch.next()
            await self.call("DeleteObject", {"bucket": "box", "key": "of-another-bucket"})

    async def test_slow(self) -> None:
        """A reader that falls too far behind ends with an error; others and writers do not wait."""
        slow, quick, elsewhere = (
            await self.watch(),
            await self.watch(),
            await self.watch(prefix="x"),
        )
        for _ in range(MAX_ITEMS // 4 + 1):
            await self.put("box", "a", b"1")
            await self.put("box", "b", b"1")
            await self.put("box", "a", b"2")
            await self.put("box", "b", b"2")
            for _ in range(4):
                await quick.next()
        # One was given out already.
        await slow.next()
        failure = await slow.failure()
        self.assertEqual(failure.code, "RATE_LIMITED")
        self.assertEqual(etagOf(b"2"), (await self.call("HeadObject", KEY))["etag"])
        # What a watch does not ask for takes none of its room.
        await self.put("box", "x", b"1")
        self.assertEqual((await elsewhere.next())["object"]["key"], "x")
        await quick.close()
        await elsewhere.close()

    async def test_revoked(self) -> None:
        """A watch with a key that was revoked tells nothing more."""
        key = await self.issue("ann", account="root")
        watch = await self.watch(key)
        await self.put("box", "before", b"x")
        await watch.next()
        await self.store.catalog.commit(RemoveAccessKey(key.accessKey))
        await self.store.accessKeys.refresh()
        await self.put("box", "after", b"x")
        self.assertEqual((await watch.failure()).code, "UNAUTHENTICATED")

    async def test_left(self) -> None:
        """Whoever goes away is forgotten, and the store tells nobody when nobody watches."""
        watches = [await self.watch(), await self.watch()]
        for watch in watches:
            self.assertFalse(watch.isReady)
        self.assertEqual(len(self.store.observers), 1)
        for watch in watches:
            await watch.close()
        self.assertEqual(self.store.observers, [])

    async def test_observers(self) -> None:
        """An observer that fails spoils neither the write nor the others."""
        seen: list[Any] = []

        def fail(change: Any) -> None:
            raise StoreError("no")

        self.store.observers += [fail, seen.append]
        await self.put("box", "k", b"x")
        self.assertEqual([change.key for change in seen], [b"k"])
        self.assertEqual(len(self.flushLoggedErrors(StoreError)), 1)

    async def multipart(self, key: str, body: bytes) -> None:
        """Store an object of one part."""
        started = await self.s3("POST", f"/box/{key}?uploads")
        uploadId = started.body.partition(b"<UploadId>")[2].partition(b"<")[0].decode()
        target = f"/box/{key}?partNumber=1&uploadId={uploadId}"
        etag = (await self.s3("PUT", target, body)).headers["etag"]
        part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        document = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"
        await self.s3("POST", f"/box/{key}?uploadId={uploadId}", document.encode())


KEY = {"bucket": "box", "key": "a"}


class Watch:
    """A stream of events that is asked for the first at once, as a wire does."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self._ask()

    @property
    def isReady(self) -> bool:
        """Tell whether an event is there."""
        return bool(self._asked.called)

    async def next(self) -> Any:
        """Give the next event."""
        event = await self._asked
        self._ask()
        return event

    async def failure(self) -> Any:
        """Give the error of the end."""
        return await self._asked.addErrback(lambda failure: failure.value)

    async def close(self) -> None:
        """Go away."""
        self._asked.addErrback(lambda failure: None).cancel()
        await self._items.aclose()

    def _ask(self) -> None:
        async def ask() -> Any:
            return await anext(self._items)

        self._asked: Deferred[Any] = Deferred.fromCoroutine(ask())
