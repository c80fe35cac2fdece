"""Moves and tags beside other writes: neither may lose what the other has stored."""

import os
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.console.jobs import JobManager, NewJob, startJob
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, AccountKey, Identity
from storagegate.objects.checksums import BodyExpectation, ingest
from storagegate.objects.domain import openDomain
from storagegate.objects.operations import (
    CreateBucket,
    DeleteObject,
    ListObjects,
    PutObjectTagging,
)
from storagegate.storage.embedded.consolerecords import EmbeddedConsoleRecords
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import Attributes
from tests.objects.test_service_overwriting import WholeBody

ROOT = Identity("AK", "root", isRoot=True)
CALLER = PlainCaller(ROOT, "")


class _Objects:
    """
    The domain, where jobs wait before they remove or tag an object.

    @ivar waiting: The waiting jobs, by key.
    """

    def __init__(self, objects: Any) -> None:
        self._objects = objects
        self.waiting: dict[bytes, Deferred[None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def perform(self, caller: Any, operation: Any) -> Any:
        """Perform an operation."""
        if caller is not CALLER and isinstance(operation, DeleteObject | PutObjectTagging):
            await self.waiting.setdefault(operation.key, Deferred())
        return await self._objects.perform(caller, operation)


class JobTests(TestCase):
    """Jobs that move or tag objects; the test decides when they remove the sources, or tag."""

    timeout = 60

    def setUp(self) -> Deferred[None]:
        """Have a bucket and a manager of jobs."""
        from twisted.internet import reactor

        directory = os.path.abspath(self.mktemp())
        self.store = openStore(directory, reactor, durability="os")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.objects = _Objects(openDomain(self.store, accounts, "us-east-1", lambda: 1.8e9))
        services: Any = SimpleNamespace(
            records=EmbeddedConsoleRecords(directory, self.store.pool),
            store=self.store,
            accounts=SimpleNamespace(renew=lambda key: key),
            objects=self.objects,
            reactor=reactor,
            now=lambda: 1.8e9,
            link=None,
            keep=lambda name, make: self.manager,
        )
        self.manager = JobManager(services)
        self.console: Any = SimpleNamespace(
            services=services,
            note=lambda **values: None,
            caller=lambda *arguments, **options: CALLER,
            request=SimpleNamespace(ip="127.0.0.1", secure=True),
            who=SimpleNamespace(key=AccountKey(ROOT, "secret")),
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(self.manager.close()))
        return Deferred.fromCoroutine(self._begin())

    async def _begin(self) -> None:
        await self.objects.perform(CALLER, CreateBucket("box"))

    async def put(self, key: bytes, body: bytes, tags: str = "") -> None:
        """Store an object."""
        _, owner = await self.objects.checkWrite(CALLER, "box", key)
        received = await ingest(WholeBody(body), BodyExpectation(), self.store.blobs, 1024, "box")
        await self.objects.putObject(owner, "box", key, received, Attributes(tags=tags))

    async def contents(self) -> dict[str, bytes | None]:
        """Read all objects."""
        wanted = ListObjects(ObjectRange("box", b"", b"", b"", 1000))
        found = {}
        for each in (await self.objects.perform(CALLER, wanted)).objects:
            _, record = await self.objects.object(CALLER, "box", each.key.encode())
            found[each.key] = record.content.inline
        return found

    async def move(self, prefix: str, toPrefix: str) -> str:
        """Start a job; return its id."""
        wanted = NewJob(kind="movePrefix", bucket="box", prefix=prefix, toPrefix=toPrefix)
        return (await startJob(self.console, wanted)).id

    async def waits(self, key: bytes) -> None:
        """Wait until a job is about to remove or tag an object."""
        from twisted.internet import reactor

        while key not in self.objects.waiting:
            await deferLater(reactor, 0.005)

    async def goOn(self, key: bytes, id: str) -> tuple[str, int]:
        """Let a job go on with an object; return its state at its end, and its failures."""
        self.objects.waiting[key].callback(None)
        while True:
            [job] = [each for each in await self.manager.jobs() if each.id == id]
            if job.state != "running":
                return job.state, job.failures

    async def test_crossing(self) -> None:
        """Two jobs in opposite directions: the second has moved the copy back over its source."""
        await self.put(b"a/x", b"one")
        there = await self.move("a/", "b/")
        await self.waits(b"a/x")
        back = await self.move("b/", "a/")
        await self.waits(b"b/x")
        self.assertEqual(await self.goOn(b"a/x", there), ("done", 1))
        self.assertEqual(await self.goOn(b"b/x", back), ("done", 0))
        self.assertEqual(await self.contents(), {"a/x": b"one"})

    async def test_writtenAgain(self) -> None:
        """The same bytes with other tags are another write, and so are new tags."""
        for key in (b"a/x", b"a/y"):
            await self.put(key, b"one")
        job = await self.move("a/", "b/")
        await self.waits(b"a/x")
        await self.put(b"a/x", b"one", "of=mine")
        self.objects.waiting[b"a/x"].callback(None)
        await self.waits(b"a/y")
        wanted = PutObjectTagging("box", b"a/y", None, {"of": "mine"})
        await self.objects.perform(CALLER, wanted)
        self.assertEqual(await self.goOn(b"a/y", job), ("done", 2))
        expected = dict.fromkeys(["a/x", "a/y", "b/x", "b/y"], b"one")
        self.assertEqual(await self.contents(), expected)
        self.assertEqual(await self.tags(b"a/x"), "of=mine")

    async def test_tagged(self) -> None:
        """Tags that are set while a job adds others stay, also those of a new object."""
        for key in (b"x", b"y"):
            await self.put(key, b"one", "old=1")
        wanted = NewJob(kind="tagObjects", bucket="box", tags={"of": "job"})
        job = (await startJob(self.console, wanted)).id
        await self.waits(b"x")
        await self.objects.perform(CALLER, PutObjectTagging("box", b"x", None, {"new": "2"}))
        self.objects.waiting[b"x"].callback(None)
        await self.waits(b"y")
        await self.put(b"y", b"two", "new=3")
        self.assertEqual(await self.goOn(b"y", job), ("done", 0))
        self.assertEqual(await self.tags(b"x"), "new=2&of=job")
        self.assertEqual(await self.tags(b"y"), "new=3&of=job")
        self.assertEqual(await self.contents(), {"x": b"one", "y": b"two"})

    async def tags(self, key: bytes) -> str:
        """Return the tags of an object."""
        _, record = await self.objects.object(CALLER, "box", key)
        return record.attributes.tags
