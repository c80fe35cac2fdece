"""A real store that is driven step by step."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from storagegate.objects.expiry import LifecycleScanner
from storagegate.objects.lifecycle import LIFECYCLE, Calendar, LifecycleRule
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.clock import StoreClock
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.errors import NoSuchKey, ObjectLocked
from storagegate.storage.files import Files
from storagegate.storage.identity import MARKER
from storagegate.storage.layout import BlobLayout
from storagegate.storage.mutations import (
    AbortUpload,
    AddBucket,
    CreateUpload,
    PutLegalHold,
    PutRetention,
    PutSettings,
    PutTags,
    RemoveBucket,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.ranges import ObjectRange, VersionRange
from storagegate.storage.records import (
    NULL_VERSION,
    Attributes,
    Bucket,
    Content,
    DefaultRetention,
    ListedVersion,
    MultipartUpload,
    ObjectRecord,
    Part,
    Removal,
    WriteCondition,
)
from storagegate.storage.versionids import VersionIds
from tests.support.delayed import PassingReactor, TurnedReactor
from tests.support.model import VersionSummary, etagOf

ALWAYS = WriteCondition()


def fastDirectory(case: Any) -> str:
    """Return a new directory, in memory if possible, for tests that open many stores."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = tempfile.mkdtemp(prefix="storagegate-test-", dir=where)
    case.addCleanup(shutil.rmtree, path, ignore_errors=True)
    return os.path.join(path, "data")


def secondsOf(nowMs: int) -> Callable[[], float]:
    """Return a fixed clock; its milliseconds are the integer part of a floating point product."""
    return lambda: (nowMs + 0.5) / 1000


class StoreDriver:
    """
    The operations of a store; each waits for its end, and raises the error of the store.

    @ivar store: The open store.
    @ivar inlineLimit: The largest inline objects in bytes, so small that short bodies become blobs.
    @ivar nowMs: The time of writes; removals and changes are later by one.
    """

    def __init__(
        self,
        directory: str,
        files: Files,
        durability: str = "full",
        catalog: str = DEFAULT_CATALOG,
        blobs: str = DEFAULT_BLOBS,
        clock: StoreClock | None = None,
    ) -> None:
        self.clock = clock
        self.directory = directory
        self.files = files
        self.durability = durability
        self.catalog = catalog
        self.blobs = blobs
        self.inlineLimit = 100
        self.nowMs = 1
        self.open()

    def open(self) -> None:
        """Open the store."""
        isLate = (self.catalog, self.blobs) != (DEFAULT_CATALOG, DEFAULT_BLOBS)
        self.reactor = PassingReactor() if isLate else TurnedReactor()
        self.store = openStore(
            self.directory,
            self.reactor,
            durability=self.durability,
            files=self.files,
            catalog=self.catalog,
            blobs=self.blobs,
            clock=self.clock,
        )

    def close(self) -> None:
        """Close the store; if garbage has a grace period, wait for it first."""
        if self.store.catalog.graceSeconds:
            self.reactor.settle(self.store.idle())
        self.reactor.settle(self.store.close())

    def createBucket(self, name: str) -> None:
        """Create a bucket."""
        bucket = Bucket(name, "account", 1, "us-east-1")
        self.reactor.settle(self.store.catalog.commit(AddBucket(bucket)))

    def deleteBucket(self, name: str) -> None:
        """Remove a bucket."""
        self.reactor.settle(self.store.catalog.commit(RemoveBucket(name)))

    def put(self, bucket: str, key: bytes, body: bytes, condition: WriteCondition = ALWAYS) -> None:
        """Store an object."""
        sink, content = self.upload(body, self.inlineLimit)
        record = self.record(bucket, key, content, etagOf(body))
        self.reactor.settle(self.store.putObject(record, sink, condition))

    def setVersioning(self, bucket: str, versioning: str) -> None:
        """Enable or suspend versioning."""
        self.reactor.settle(self.store.catalog.commit(SetVersioning(bucket, versioning)))

    def setTime(self, nowMs: int) -> None:
        """Set the clock."""
        self.nowMs = nowMs

    def setRules(self, bucket: str, rules: tuple[LifecycleRule, ...]) -> None:
        """Set the lifecycle rules of a bucket."""
        document = {LIFECYCLE: msgspec.json.encode(rules)}
        self.reactor.settle(self.store.catalog.commit(PutSettings(bucket, document)))

    def scan(self) -> tuple[int, int]:
        """Apply the rules of all buckets; return the numbers of removed and of locked versions."""
        calendar = Calendar(corrected=self.store.correctedMs)
        scanner = LifecycleScanner(self.store, calendar, self.reactor, secondsOf(self.nowMs))
        self.reactor.settleWith(scanner.scan(), lambda: self.reactor.advance(1))
        return scanner.removed, scanner.kept

    def tag(self, bucket: str, key: bytes, age: int, tags: str) -> None:
        """Set the tags of the version of a key with the given age."""
        version = self.versionId(bucket, key, age)
        self.reactor.settle(self.store.catalog.commit(PutTags(bucket, key, version, tags)))

    def setObjectLock(self, bucket: str, mode: str) -> None:
        """Enable object lock, with a default retention of a day unless the mode is empty."""
        default = DefaultRetention(mode, days=1) if mode else None
        self.reactor.settle(self.store.catalog.commit(SetObjectLock(bucket, default)))

    def retain(
        self, bucket: str, key: bytes, age: int, mode: str, untilMs: int, bypass: bool
    ) -> None:
        """Change the retention of the version of a key with the given age."""
        version = self.versionId(bucket, key, age)
        self.reactor.settle(
            self.store.catalog.commit(
                PutRetention(bucket, key, version, mode, untilMs, self.nowMs + 1, bypass)
            )
        )

    def hold(self, bucket: str, key: bytes, age: int, isOn: bool) -> None:
        """Place or release the legal hold of the version of a key with the given age."""
        version = self.versionId(bucket, key, age)
        self.reactor.settle(self.store.catalog.commit(PutLegalHold(bucket, key, version, isOn)))

    def copy(self, bucket: str, source: bytes, key: bytes, age: int = 0) -> None:
        """Copy the version of a key with the given age."""
        there = self.find(bucket, source, self.versionId(bucket, source, age) if age else None)
        if there is None or there.isDeleteMarker:
            raise NoSuchKey(source)
        record = self.record(bucket, key, there.content, there.etag)
        self.reactor.settle(self.store.putObject(record, None, ALWAYS))

    def find(self, bucket: str, key: bytes, versionId: str | None = None) -> ObjectRecord | None:
        """Look up an object."""
        return self.reactor.settle(self.store.catalog.object(bucket, key, versionId))[1]

    def get(self, bucket: str, key: bytes, versionId: str | None = None) -> bytes | None:
        """Read an object; return C{None} if it does not exist."""
        record = self.find(bucket, key, versionId)
        return None if record is None else self.read(record.content)

    def read(self, content: Content) -> bytes:
        """Read the bytes of a content."""
        if content.inline is not None:
            return content.inline
        body = b""
        for segment in content.segments:
            handle = self.reactor.settle(self.store.blobs.open(segment))
            body += self.reactor.settle(handle.read(segment.offset, segment.length))
            handle.close()
        return body

    def delete(self, bucket: str, keys: Sequence[bytes]) -> list[bool | Exception]:
        """Remove objects."""
        entries = [(key, None, ALWAYS) for key in keys]
        return self._delete(bucket, entries)

    def deleteVersions(
        self, bucket: str, names: Sequence[tuple[bytes, int]], bypass: bool = False
    ) -> list[bool | Exception]:
        """Remove versions, by key and age before the call."""
        ids = [self.versionId(bucket, key, age) for key, age in names]
        condition = WriteCondition(bypass=bypass)
        entries = [(key, id, condition) for (key, _), id in zip(names, ids, strict=True)]
        return self._delete(bucket, entries)

    def deleteVersion(self, bucket: str, key: bytes, versionId: str) -> list[bool | Exception]:
        """Remove a version of a key."""
        return self._delete(bucket, [(key, versionId, ALWAYS)])

    def stack(self, bucket: str, key: bytes) -> list[tuple[str, bool]]:
        """
        Return the versions of a key, the newest first: ids, and whether they are delete markers.
        """
        return [
            (each.versionId, bool(each.isDeleteMarker))
            for each in self.listed(bucket, prefix=key)[0]
            if each.key.encode() == key
        ]

    def _delete(self, bucket: str, entries: Sequence[Any]) -> list[bool | Exception]:
        removed = self.reactor.settle(
            self.store.deleteObjects(bucket, entries, "account", self.nowMs + 1)
        )
        return [
            each.isFound
            if isinstance(each, Removal)
            else not isinstance(each, ObjectLocked) and each
            for each in removed
        ]

    def listed(
        self, bucket: str, limit: int = 1000, prefix: bytes = b"", delimiter: bytes = b""
    ) -> tuple[list[ListedVersion], list[str]]:
        """List all versions and common prefixes, in pages."""
        versions: list[ListedVersion] = []
        prefixes: list[str] = []
        after, versionAfter = b"", None
        while True:
            page = self.reactor.settle(
                self.store.catalog.listVersions(
                    VersionRange(bucket, prefix, delimiter, after, limit, versionAfter)
                )
            )
            versions += page.versions
            prefixes += page.prefixes
            if page.last is None:
                return versions, prefixes
            assert len(page.versions) + len(page.prefixes) == limit
            after, versionAfter = page.last.encode(), page.lastVersion

    def versions(self, bucket: str) -> list[VersionSummary]:
        """Return all versions by key, the newest first; check that all page sizes list the same."""
        whole, _ = self.listed(bucket)
        for limit in (1, 2, 3):
            assert self.listed(bucket, limit) == (whole, [])
            versions, prefixes = self.listed(bucket, limit, delimiter=b"/")
            assert versions == [each for each in whole if "/" not in each.key], versions
            groups = {each.key.partition("/")[0] + "/" for each in whole if "/" in each.key}
            assert prefixes == sorted(groups), prefixes
        return [
            (
                each.key.encode(),
                None if each.isDeleteMarker else each.etag,
                each.versionId == NULL_VERSION,
                bool(each.isLatest),
            )
            for each in whole
        ]

    def versionId(self, bucket: str, key: bytes, age: int) -> str:
        """
        Return the id of the version with the given age; an unused id if there are fewer versions.
        """
        ids = [each.versionId for each in self.listed(bucket)[0] if each.key.encode() == key]
        if age < len(ids):
            return ids[age]
        return VersionIds(self.store.catalog.secret()).make(1 << 40)

    def listing(self, bucket: str, prefix: bytes) -> list[bytes]:
        """Return all keys with a prefix."""
        page = self.reactor.settle(
            self.store.catalog.listObjects(ObjectRange(bucket, prefix, b"", b"", 1000))
        )
        return [entry.key.encode() for entry in page.objects]

    def createUpload(self, uploadId: str, bucket: str, key: bytes) -> None:
        """Start a multipart upload."""
        upload = MultipartUpload(bucket, key, uploadId, "account", self.nowMs, Attributes())
        self.reactor.settle(self.store.catalog.commit(CreateUpload(upload)))

    def putPart(self, bucket: str, key: bytes, uploadId: str, number: int, body: bytes) -> None:
        """Store a part."""
        sink, content = self.upload(body, 0)
        part = Part(number, len(body), etagOf(body), 1, content)
        self.reactor.settle(self.store.putPart(bucket, key, uploadId, part, sink))

    def complete(
        self,
        bucket: str,
        key: bytes,
        uploadId: str,
        parts: Sequence[tuple[int, bytes]],
        condition: WriteCondition = ALWAYS,
    ) -> None:
        """Complete an upload of parts with these bodies."""
        whole = b"".join(body for _, body in parts)
        record = self.record(bucket, key, Content(len(whole)), etagOf(whole))
        named = [(number, etagOf(body)) for number, body in parts]
        self.reactor.settle(self.store.completeUpload(uploadId, record, named, condition))

    def abort(self, bucket: str, key: bytes, uploadId: str) -> None:
        """Abort an upload."""
        self.reactor.settle(self.store.catalog.commit(AbortUpload(bucket, key, uploadId)))

    def blobFiles(self) -> tuple[set[str], set[str]]:
        """Return the names of the files under C{blobs/} and C{staging/}."""
        layout = BlobLayout(self.directory)
        blobs = {name for _, _, names in os.walk(layout.blobs) for name in names}
        blobs.discard(MARKER)
        return blobs, set(os.listdir(layout.staging))

    def upload(self, body: bytes, inlineLimit: int) -> tuple[Any, Content]:
        """Write a body; return the finished sink and the content."""
        sink = self.store.blobs.writer(inlineLimit)
        for start in range(0, len(body), 200_000):
            waiting = sink.write(body[start : start + 200_000])
            if waiting is not None:
                self.reactor.settle(waiting)
        return sink, self.reactor.settle(sink.finish())

    def record(self, bucket: str, key: bytes, content: Content, etag: str) -> ObjectRecord:
        """Make the record of an object."""
        attributes = Attributes()
        return ObjectRecord(
            bucket, key, content.size, etag, self.nowMs, "account", attributes, content
        )
