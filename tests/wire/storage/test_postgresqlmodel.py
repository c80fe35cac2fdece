"""
Random histories, done to the embedded catalog and to that in PostgreSQL: both answer the same, and
hold the same.
"""

import os
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.storage.cluster.catalog import PostgreSQLCatalog, openPostgreSQL
from storagegate.storage.embedded.catalog import SQLiteCatalog
from storagegate.storage.errors import StoreError
from storagegate.storage.mutations import (
    AbortUpload,
    CompleteUpload,
    CreateBucket,
    CreateUpload,
    DeleteObjects,
    ForgetBlobs,
    PutLegalHold,
    PutObject,
    PutPart,
    PutRetention,
    PutTags,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    GOVERNANCE,
    NULL_VERSION,
    UNLOCKED,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    Attributes,
    DefaultRetention,
    Expiry,
    ObjectLock,
    ObjectRecord,
    Removal,
    WriteCondition,
)
from tests.contract.catalogcase import (
    ALWAYS,
    IF_ABSENT,
    blobRecord,
    bucketNamed,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)
from tests.storage.embedded.test_catalog import openCatalog
from tests.support.postgresql import sharedServer
from tests.support.selection import long

KEYS = [b"a", b"a/b", b"a/c", b"b\0", "é/x".encode(), b"z"]
STEPS = int(os.environ.get("STORAGEGATE_HISTORY", "120"))

Act = Callable[[Any, "Names"], Any]
"""Does something to one catalog, with its names of versions."""


class Names:
    """The versions of one catalog by their place: key, and how many of it are newer."""

    def __init__(self, catalog: Any) -> None:
        self.catalog = catalog
        self.ids: dict[bytes, list[str]] = {}
        self.places: dict[str, tuple[bytes, int]] = {}
        # Of writes, in the order of their numbers: they differ between catalogs.
        self.sequences: dict[int, int] = {}

    async def read(self) -> list[Any]:
        """Read all versions; return them without what differs between catalogs."""
        page = await self.catalog.listVersions("b", b"", b"", b"", None, 10_000)
        self.ids = {}
        self.places = {}
        for sequence in sorted({each.sequence for each in page.versions}):
            self.sequences.setdefault(sequence, len(self.sequences))
        found = []
        for each in page.versions:
            ids = self.ids.setdefault(each.key.encode(), [])
            if each.versionId != NULL_VERSION:
                self.places[each.versionId] = (each.key.encode(), len(ids))
            ids.append(each.versionId)
            isNull = each.versionId == NULL_VERSION
            flags = (isNull, each.isDeleteMarker, each.isLatest)
            found.append((each.key, each.size, each.etag, each.modifiedMs, each.account, *flags))
        return found

    def at(self, key: bytes, place: int) -> str | None:
        """Return the id of a version; L{None} if the key has none."""
        ids = self.ids.get(key, [])
        return ids[place % len(ids)] if ids else None


def plain(record: ObjectRecord | None) -> Any:
    """Return a record without what differs between catalogs."""
    if record is None:
        return None
    isNull = record.versionId == NULL_VERSION
    return replace(record, sequence=0, versionId="null" if isNull else "numbered")


def comparable(outcome: Any) -> Any:
    """Return an outcome without what differs between catalogs."""
    if isinstance(outcome, BaseException):
        return type(outcome)
    if isinstance(outcome, list):
        return [comparable(each) for each in outcome]
    if isinstance(outcome, ObjectRecord):
        return plain(outcome)
    if isinstance(outcome, Removal):
        isNull = outcome.versionId in ("", NULL_VERSION)
        version = outcome.versionId if isNull else "numbered"
        return replace(outcome, versionId=version, current=plain(outcome.current))
    return outcome


@long("starts PostgreSQL")
class HistoryTests(TestCase):
    """Random histories."""

    async def setUp(self) -> None:
        """Open both."""
        from twisted.internet import reactor

        self.garbage: list[str] = []
        directory = self.mktemp()
        os.makedirs(directory)
        lite = openCatalog(os.path.join(directory, "catalog.sqlite"), self.garbage, "os")
        self.addCleanup(lite.close)
        self.lite: SQLiteCatalog = lite
        self.cluster: PostgreSQLCatalog = openPostgreSQL(
            reactor, [sharedServer().store()], "node", 60.0
        )
        self.addCleanup(self.cluster.close)
        self.both = [Names(lite), Names(self.cluster)]
        for each in self.both:
            await each.catalog.commit(CreateBucket(bucketNamed("b")))

    async def do(self, act: Act) -> Any:
        """Do something to both; return the outcome, on which they agree."""
        outcomes = []
        for each in self.both:
            try:
                done = act(each.catalog, each)
                outcomes.append(await (done if isinstance(done, Deferred) else _started(done)))
            except StoreError as error:
                outcomes.append(error)
        self.assertEqual(*(comparable(outcome) for outcome in outcomes), self.text)
        return outcomes[0]

    async def agree(self) -> None:
        """Compare all that both hold."""
        versions = [await each.read() for each in self.both]
        self.assertEqual(*versions, self.text)
        for key in KEYS:
            current = await self.do(
                lambda catalog, names, key=key: _second(catalog.object("b", key))
            )
            if current is None:
                await self.do(lambda catalog, names, key=key: catalog.deleteMarker("b", key))
            count = len(self.both[0].ids.get(key, []))
            for place in range(count):
                await self.do(
                    lambda catalog, names, key=key, place=place: _second(
                        catalog.object("b", key, names.at(key, place), verify=True)
                    )
                )
        for query in (
            (b"", b"", b""),
            (b"", b"/", b""),
            (b"a", b"/", b"a"),
            (b"a/", b"/", b""),
            (b"", b"/", b"a/"),
        ):
            for limit in (1, 2, 100):
                await self.do(
                    lambda catalog, names, query=query, limit=limit: catalog.listObjects(
                        "b", *query, limit, contentTypes=True
                    )
                )
                pages = [
                    await each.catalog.listVersions("b", *query, None, limit) for each in self.both
                ]
                shown = [
                    ([(row.key, row.size) for row in page.versions], page.prefixes, page.last)
                    for page in pages
                ]
                self.assertEqual(*shown, self.text)
        await self.do(lambda catalog, names: catalog.usage(10))
        await self.do(lambda catalog, names: catalog.blobRows("", 10_000))
        await self.do(lambda catalog, names: catalog.garbage("", 10_000))
        await self.do(lambda catalog, names: catalog.uploads("b", b"", b"/", b"", "", 100))
        bodies = [await each.catalog.checkInline(None, 10_000) for each in self.both]
        self.assertEqual(bodies[0].bytesRead, bodies[1].bytesRead)
        rows = [await each.catalog.expiryPage("b", b"", None, 10_000) for each in self.both]
        self.assertEqual(
            *([replace(row, sequence=0, versionId="") for row in each] for each in rows), self.text
        )

    def next(self, dice: Random, number: int) -> Act:
        """Choose what is done."""
        key, place = dice.choice(KEYS), dice.randrange(4)
        blob = f"n{number}"
        condition = dice.choice(
            [
                ALWAYS,
                ALWAYS,
                ALWAYS,
                IF_ABSENT,
                WriteCondition(etags=("e1", "e2")),
                WriteCondition(etags=("*",)),
                WriteCondition(unlike=("e1",)),
                WriteCondition(etags=("e1",), unlike=("e2",)),
            ]
        )
        etag = dice.choice(["e1", "e2"])
        what = dice.randrange(100)
        if what < 16:
            lock = dice.choice([UNLOCKED, UNLOCKED, ObjectLock(GOVERNANCE, 5000, True)])
            attributes = Attributes(
                dice.choice(["text/x", "binary/octet-stream"]), tags=dice.choice(["", "a=b"])
            )
            attributes = replace(attributes, lock=lock, acl=dice.choice(["", "[]"]))
            record = inlineRecord(key, b"x" * dice.randrange(9), etag, attributes=attributes)
            return lambda catalog, names: catalog.commit(PutObject(record, condition))
        if what < 28:
            record = blobRecord(key, blob, blob, etag=etag)
            return lambda catalog, names: catalog.commit(
                PutObject(record, condition, newBlobsOf(blob))
            )
        if what < 38:
            record = blobRecord(key, *(f"n{dice.randrange(number + 1)}" for _ in range(2)))
            return lambda catalog, names: catalog.commit(PutObject(record, condition))
        if what < 50:
            chosen = dice.sample(KEYS, dice.randrange(1, 4))
            judged = dice.choice(
                [condition, ALWAYS, WriteCondition(size=100_000), WriteCondition(modifiedSeconds=1)]
            )
            entries = [(each, None, judged) for each in chosen]
            return lambda catalog, names: catalog.commit(
                DeleteObjects("b", entries, "carol", number)
            )
        if what < 68:
            chosen = dice.sample(KEYS, dice.randrange(1, 4))
            judged = dice.choice([condition, ALWAYS, WriteCondition(bypass=True)])
            return lambda catalog, names: catalog.commit(
                DeleteObjects(
                    "b",
                    [(each, names.at(each, place) or "null", judged) for each in chosen],
                    "carol",
                    number,
                )
            )
        if what < 72:
            return lambda catalog, names: catalog.commit(
                PutTags("b", key, names.at(key, place), blob)
            )
        if what < 75:
            return lambda catalog, names: catalog.commit(PutTags("b", key, None, ""))
        if what < 79:
            versioning = dice.choice([VERSIONING_ENABLED, VERSIONING_SUSPENDED])
            return lambda catalog, names: catalog.commit(SetVersioning("b", versioning))
        if what < 82:
            until = dice.randrange(STEPS * 2)
            mode = dice.choice(["", GOVERNANCE])
            return lambda catalog, names: catalog.commit(
                PutRetention(
                    "b",
                    key,
                    names.at(key, place),
                    mode,
                    until if mode else 0,
                    number,
                    bool(place % 2),
                )
            )
        if what < 84:
            isOn = dice.random() < 0.3
            return lambda catalog, names: catalog.commit(
                PutLegalHold("b", key, names.at(key, place), isOn)
            )
        if what < 94:
            return self.upload(dice, number, key, condition)
        if what < 97:
            return lambda catalog, names: self.expire(catalog, key, place, number)
        if self.locks and what == 99:
            default = dice.choice([None, DefaultRetention(GOVERNANCE, days=2)])
            return lambda catalog, names: catalog.commit(SetObjectLock("b", default))
        return lambda catalog, names: catalog.commit(ForgetBlobs([f"n{n}" for n in range(number)]))

    def upload(self, dice: Random, number: int, key: bytes, condition: WriteCondition) -> Act:
        """Choose what is done to an upload; there are few."""
        upload = f"u{dice.randrange(3)}"
        # Always of one key, so that steps of one upload meet.
        key = KEYS[int(upload[1])]
        what = dice.randrange(6)
        if what == 0:

            async def create(catalog: Any, names: Names) -> Any:
                if await catalog.upload("b", key, upload) is None:
                    return await catalog.commit(CreateUpload(uploadOf(key, upload)))
                return await catalog.parts("b", key, upload, 0, 100)

            return create
        if what < 4:
            part, blob = partOf(dice.randrange(1, 4), f"n{number}"), f"n{number}"
            return lambda catalog, names: catalog.commit(
                PutPart("b", key, upload, part, newBlobsOf(blob))
            )
        if what == 4:
            parts = [(n, "p1") for n in range(1, 4) if dice.randrange(2)]
            record = inlineRecord(key, b"", "e1")
            return lambda catalog, names: catalog.commit(
                CompleteUpload(upload, record, parts, condition)
            )
        return lambda catalog, names: catalog.commit(AbortUpload("b", key, upload))

    async def expire(self, catalog: Any, key: bytes, place: int, atMs: int) -> Any:
        """Remove a version as a rule does."""
        rows = await catalog.expiryPage("b", key, None, 100)
        if not rows:
            return None
        row = rows[place % len(rows)]
        bucket = await catalog.bucket("b")
        expiry = Expiry(
            row.sequence, row.noncurrentMs, row.tags, bucket.generation, place % 3, place == 2
        )
        version = None if row.noncurrentMs is None and not row.isDeleteMarker else row.versionId
        entry = (row.key.encode(), version, WriteCondition(expiry=expiry))
        return await catalog.commit(DeleteObjects("b", [entry], "carol", atMs))

    async def history(self, seed: int, locks: bool = False) -> None:
        """Do a history that a number determines."""
        dice = Random(seed)
        self.locks = locks
        for number in range(STEPS):
            self.text = f"history {seed}, step {number}"
            for each in self.both:
                await each.read()
            await self.do(self.next(dice, number))
            # The embedded catalog does so in the transaction.
            await self.cluster.leases.renew(60.0, 1 << 62)
            await self.cluster.cleanup.fold()
            if number % 6 == 0:
                await self.agree()
        await self.agree()

    async def test_neverVersioned(self) -> None:
        """A history most of which is before versioning."""
        await self.history(1)

    async def test_enabled(self) -> None:
        """A history with versioning from the beginning."""
        await self.lite.commit(SetVersioning("b", VERSIONING_ENABLED))
        await self.cluster.commit(SetVersioning("b", VERSIONING_ENABLED))
        await self.history(2)

    async def test_locked(self) -> None:
        """A history with object lock."""
        for each in self.both:
            await each.catalog.commit(SetVersioning("b", VERSIONING_ENABLED))
            await each.catalog.commit(SetObjectLock("b", None))
        await self.history(3, locks=True)

    async def test_mixed(self) -> None:
        """A history in which all of it happens."""
        await self.history(4, locks=True)


async def _second(found: Any) -> Any:
    return (await found)[1]


def _started(done: Any) -> Deferred[Any]:
    return Deferred.fromCoroutine(done)
