"""
One of several processes on one store. It reads operations from standard input, one JSON object a
line, and answers on standard output.

C{python -m tests.support.storeworker MEMORY INDEX COUNT}. A request is C{{"id", "do", "with":
{...}}}, its answer C{{"id", "result"}} or C{{"id", "error"}}. Messages between workers are
C{{"topic", "payload"}}.
"""

import errno
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, gatherResults
from twisted.internet.stdio import StandardIO
from twisted.internet.task import deferLater
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.expiry import LifecycleScanner
from storagegate.objects.lifecycle import LIFECYCLE, Calendar
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.embedded.sharedmemory import STARTED, ProcessGroupConfig
from storagegate.storage.errors import NoSuchKey
from storagegate.storage.mutations import (
    AbortUpload,
    AddAccessKey,
    AddBucket,
    CreateUpload,
    PutLegalHold,
    PutRetention,
    PutSettings,
    PutTags,
    RemoveAccessKey,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.ranges import ObjectRange, VersionRange
from storagegate.storage.records import (
    AccessKey,
    Attributes,
    Bucket,
    Content,
    DefaultRetention,
    MultipartUpload,
    ObjectChange,
    ObjectRecord,
    Part,
    Removal,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore
from storagegate.storage.versionids import VersionIds
from tests.support.faultyfiles import Fault, FaultyFiles
from tests.support.model import etagOf
from tests.support.stores import secondsOf

_INLINE_LIMIT = 100
# So small that short bodies become blobs.


def conditionOf(plain: dict[str, Any]) -> WriteCondition:
    """Parse a condition."""
    return WriteCondition(plain.get("absent", False), tuple(plain.get("etags", ())))


class Worker:
    """The operations; each is a method with plain arguments and a plain result."""

    def __init__(self, reactor: Any, sharing: ProcessGroupConfig) -> None:
        self.reactor = reactor
        self.sharing = sharing
        self.store: Any = None
        self.credentials: AccessKeyStore | None = None
        self.nowMs = 1
        self.changes: list[list[Any]] = []
        self._reading: Deferred[None] = Deferred()

    async def open(self, directory: str, durability: str = "full", lone: bool = False) -> None:
        """Open a store, as part of the group or alone."""
        self.files = FaultyFiles()
        self.store = openStore(
            directory,
            self.reactor,
            durability=durability,
            files=self.files,
            sharing=None if lone else self.sharing,
        )

    async def openNode(self, directory: str, options: dict[str, Any]) -> None:
        """
        Open a store over several machines, as one of its nodes.

        @param options: See L{storagegate.storage.backends.BackEndContext}.
        """
        from storagegate.cluster import lease
        from storagegate.cluster.node import ClusterNode

        # Prevents collection until all nodes have renewed their leases twice.
        lease._BEATS = 100
        self.store = ObjectStore.open(
            directory,
            self.reactor,
            catalog="postgresql",
            blobs="shared",
            options=options,
            node=ClusterNode,
        )
        self.store._node.sweeper._pauseSeconds = 0.05
        self.store._node.collector._pauseSeconds = 0.05

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def createBucket(self, bucket: str) -> None:
        """Create a bucket."""
        await self.store.catalog.commit(AddBucket(Bucket(bucket, "account", 1, "us-east-1")))

    async def deleteBucket(self, bucket: str) -> None:
        """Remove a bucket."""
        await self.store.deleteBucket(bucket)

    async def put(
        self,
        bucket: str,
        key: str,
        body: str,
        condition: dict[str, Any] | None = None,
    ) -> str:
        """Store an object; return its ETag."""
        sink, content = await self._upload(body.encode(), _INLINE_LIMIT)
        record = self._record(bucket, key, content, etagOf(body.encode()))
        await self.store.putObject(record, sink, conditionOf(condition or {}))
        return record.etag

    async def copy(self, bucket: str, source: str, key: str, version: str | None = None) -> None:
        """Copy an object, or a version of it."""
        _, there = await self.store.catalog.object(bucket, source.encode(), version)
        if there is None or there.isDeleteMarker:
            raise NoSuchKey(source)
        await self.store.putObject(
            self._record(bucket, key, there.content, there.etag), None, WriteCondition()
        )

    async def get(
        self, bucket: str, key: str, pauseSeconds: float = 0.0, waits: bool = False
    ) -> list[Any] | None:
        """
        Read an object; return its ETag, and the size and digest of its bytes, or C{None}.

        @param waits: Whether to read bytes only after L{letRead}.
        """
        _, record = await self.store.catalog.object(bucket, key.encode())
        if record is None:
            return None
        hold = self.store.hold(record.content)
        digest = hashlib.md5(record.content.inline or b"", usedforsecurity=False)
        size = len(record.content.inline or b"")
        try:
            if waits:
                await self._reading
            for segment in record.content.segments:
                if pauseSeconds:
                    await deferLater(self.reactor, pauseSeconds)
                handle = await self.store.blobs.open(segment)
                try:
                    data = await handle.read(segment.offset, segment.length)
                finally:
                    handle.close()
                size += len(data)
                digest.update(data)
        finally:
            hold.release()
        return [record.etag, digest.hexdigest(), size]

    async def letRead(self) -> None:
        """Resume the waiting read."""
        self._reading.callback(None)

    async def setVersioning(self, bucket: str, versioning: str) -> None:
        """Enable or suspend versioning."""
        await self.store.catalog.commit(SetVersioning(bucket, versioning))

    def _versionId(self, version: str) -> str:
        return version or VersionIds(self.store.catalog.secret()).make(1 << 40)

    async def setTime(self, nowMs: int) -> None:
        """Set the clock."""
        self.nowMs = nowMs

    async def setRules(self, bucket: str, rules: str) -> None:
        """Set the lifecycle rules of a bucket."""
        await self.store.catalog.commit(PutSettings(bucket, {LIFECYCLE: rules.encode()}))

    async def scan(self) -> list[int]:
        """Apply the rules of all buckets; return the numbers of removed and of locked versions."""
        calendar = Calendar(corrected=self.store.correctedMs)
        scanner = LifecycleScanner(self.store, calendar, self.reactor, secondsOf(self.nowMs))
        await scanner.scan()
        return [scanner.removed, scanner.kept]

    async def tag(self, bucket: str, key: str, version: str, tags: str) -> None:
        """Set the tags of a version; an empty id selects an unused one."""
        version = self._versionId(version)
        await self.store.catalog.commit(PutTags(bucket, key.encode(), version, tags))

    async def setObjectLock(self, bucket: str, mode: str) -> None:
        """Enable object lock, with a default retention of a day unless the mode is empty."""
        default = DefaultRetention(mode, days=1) if mode else None
        await self.store.catalog.commit(SetObjectLock(bucket, default))

    async def retain(
        self, bucket: str, key: str, version: str, mode: str, untilMs: int, bypass: bool
    ) -> None:
        """Change the retention of a version; an empty id selects an unused one."""
        version = self._versionId(version)
        await self.store.catalog.commit(
            PutRetention(bucket, key.encode(), version, mode, untilMs, self.nowMs + 1, bypass)
        )

    async def hold(self, bucket: str, key: str, version: str, isOn: bool) -> None:
        """Place or release the legal hold of a version."""
        version = self._versionId(version)
        await self.store.catalog.commit(PutLegalHold(bucket, key.encode(), version, isOn))

    async def versions(self, bucket: str) -> list[list[Any]]:
        """Return all versions: key, ETag, whether it is the latest, id."""
        page = await self.store.catalog.listVersions(VersionRange(bucket, b"", b"", b"", 1000))
        return [
            [
                each.key,
                None if each.isDeleteMarker else each.etag,
                bool(each.isLatest),
                each.versionId,
            ]
            for each in page.versions
        ]

    async def delete(
        self,
        bucket: str,
        keys: list[str],
        versions: list[str] | None = None,
        bypass: bool = False,
    ) -> list[bool]:
        """Remove objects, or versions of them; an empty id selects an unused one."""
        none = self._versionId("")
        ids = [None] * len(keys) if versions is None else [each or none for each in versions]
        condition = WriteCondition(bypass=bypass)
        entries = [(key.encode(), id, condition) for key, id in zip(keys, ids, strict=True)]
        removed = await self.store.deleteObjects(bucket, entries, "account", self.nowMs + 1)
        return [isinstance(each, Removal) and each.isFound for each in removed]

    async def listing(self, bucket: str, prefix: str = "") -> list[str]:
        """Return all keys with a prefix."""
        page = await self.store.catalog.listObjects(
            ObjectRange(bucket, prefix.encode(), b"", b"", 1000)
        )
        return [entry.key for entry in page.objects]

    async def createUpload(self, uploadId: str, bucket: str, key: str) -> None:
        """Start a multipart upload."""
        upload = MultipartUpload(
            bucket, key.encode(), uploadId, "account", self.nowMs, Attributes()
        )
        await self.store.catalog.commit(CreateUpload(upload))

    async def putPart(self, bucket: str, key: str, uploadId: str, number: int, body: str) -> None:
        """Store a part."""
        sink, content = await self._upload(body.encode(), 0)
        part = Part(number, len(body), etagOf(body.encode()), 1, content)
        await self.store.putPart(bucket, key.encode(), uploadId, part, sink)

    async def complete(
        self,
        bucket: str,
        key: str,
        uploadId: str,
        parts: list[list[Any]],
        etag: str,
        condition: dict[str, Any] | None = None,
    ) -> None:
        """Complete an upload of parts, given as number and ETag."""
        record = self._record(bucket, key, Content(0), etag)
        named = [(number, name) for number, name in parts]
        await self.store.completeUpload(uploadId, record, named, conditionOf(condition or {}))

    async def abort(self, bucket: str, key: str, uploadId: str) -> None:
        """Abort an upload."""
        await self.store.catalog.commit(AbortUpload(bucket, key.encode(), uploadId))

    async def burst(self, bucket: str, count: int) -> int:
        """Store objects concurrently; return the number of commits."""
        memory = self.store._node._group._memory
        begun = memory.word(STARTED, memory.slot)
        bodies = [b"%d" % number for number in range(count)]
        records = [
            self._record(
                bucket, f"{self.sharing.index}/{body.decode()}", Content(len(body), body), "e"
            )
            for body in bodies
        ]
        await gatherResults(
            [self.store.putObject(record, None, WriteCondition()) for record in records]
        )
        commits: int = memory.word(STARTED, memory.slot) - begun
        return commits

    async def failSyncs(self) -> None:
        """Make every fsync of a blob fail from now on."""
        self.files.arm(Fault(1, errno.EIO, sticky=True, only=frozenset({"sync"})))

    async def begin(self, size: int) -> None:
        """Start an upload that never ends."""
        await self._upload(b"l" * size, 0)

    async def watch(self) -> None:
        """Collect changes from now on."""
        self.store.observers.append(self._changed)

    async def seen(self) -> list[list[Any]]:
        """Return the collected changes."""
        changes, self.changes = self.changes, []
        return changes

    async def state(self) -> dict[str, Any]:
        """Return the health of the store."""
        return {
            "readOnly": self.store.readOnly,
            "health": self.store.health(),
            "damaged": len(self.store.blobs.corrupt),
        }

    async def idle(self) -> None:
        """Wait until deleted objects are removed."""
        await self.store.idle()

    async def addKey(self, accessKey: str) -> None:
        """Issue a key."""
        await self.store.catalog.commit(AddAccessKey(AccessKey(accessKey, "secret", "account")))

    async def removeKey(self, accessKey: str) -> bool:
        """Revoke a key."""
        removed: bool = await self.store.catalog.commit(RemoveAccessKey(accessKey))
        return removed

    async def knowsKey(self, accessKey: str) -> bool:
        """Return whether a key is valid."""
        if self.credentials is None:
            self.credentials = AccessKeyStore(self.store.accessKeys, "root", "rootsecret")
        return self.credentials.find(accessKey) is not None

    def _changed(self, change: ObjectChange) -> None:
        key = None if change.key is None else change.key.decode()
        etag = None if change.record is None else change.record.etag
        self.changes.append([change.bucket, key, etag])

    def _record(self, bucket: str, key: str, content: Content, etag: str) -> ObjectRecord:
        name, attributes = key.encode(), Attributes()
        return ObjectRecord(
            bucket, name, content.size, etag, self.nowMs, "account", attributes, content
        )

    async def _upload(self, body: bytes, inlineLimit: int) -> tuple[Any, Content]:
        sink = self.store.blobs.writer(inlineLimit)
        for start in range(0, len(body), 200_000):
            waiting = sink.write(body[start : start + 200_000])
            if waiting is not None:
                await waiting
        content: Content = await sink.finish()
        return sink, content


class Lines(LineReceiver):
    """The standard input and output."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 24

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.subscribers: dict[str, Callable[[Any], object]] = {}
        self.worker: Any = None

    def tell(self, **plain: Any) -> None:
        """Write a line."""
        self.sendLine(json.dumps(plain).encode())

    def lineReceived(self, line: bytes) -> None:
        """Execute a line."""
        asked = json.loads(line)
        if "topic" in asked:
            subscriber = self.subscribers.get(asked["topic"])
            if subscriber is not None:
                subscriber(asked["payload"])
            return
        did: Deferred[Any] = ensureDeferred(getattr(self.worker, asked["do"])(**asked["with"]))
        did.addCallbacks(
            lambda result: self.tell(id=asked["id"], result=result),
            lambda failure: self.tell(id=asked["id"], error=_errorOf(failure)),
        )

    def connectionLost(self, reason: Any = None) -> None:
        """Stop: the parent has ended."""
        if self.reactor.running:
            self.reactor.stop()


def _errorOf(failure: Failure) -> list[str]:
    return [failure.type.__name__, failure.getErrorMessage()]


def main(memory: str, index: str, count: str) -> None:
    """Serve until standard input ends."""
    from twisted.internet import reactor

    lines = Lines(reactor)
    sharing = ProcessGroupConfig(
        int(index),
        int(count),
        int(memory),
        lambda topic, payload: lines.tell(topic=topic, payload=payload),
        lines.subscribers.__setitem__,
    )
    lines.worker = Worker(reactor, sharing)
    StandardIO(lines)
    reactor.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
