"""
One store of each schema of the catalog that was ever released, opened by this program.

C{schemas/} has the stores as text. The last program with a schema made each, over S3. C{photos} has
an inline object and its copy, an object in a blob and its copy, and an upload of two parts.
C{owned} was created with an object ownership, which the first schema could not keep. A key may read
C{photos}. From the fourth schema on, C{photos} has settings, and C{kept} has versions, a delete
marker and locks. From the sixth schema on, the account C{ann} has a user in a group.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.objects.access.acl import Grant
from storagegate.objects.access.context import PlainCaller
from storagegate.objects.access.decision import PublicAccessBlock
from storagegate.objects.accounts import AccessKeyStore, Identity
from storagegate.objects.contents import OpenContent
from storagegate.objects.domain import openDomain
from storagegate.objects.errors import PolicyNotFound
from storagegate.objects.identities.entities import IAMUser
from storagegate.objects.operations import (
    DeleteObject,
    GetBucketCors,
    GetBucketLifecycleConfiguration,
    GetBucketPolicyStatus,
    GetBucketTagging,
    GetObjectAcl,
    GetObjectLegalHold,
    GetObjectLockConfiguration,
    GetObjectRetention,
    GetPublicAccessBlock,
    ListMultipartUploads,
    ListObjects,
    ListObjectVersions,
    ListParts,
    PutBucketTagging,
    PutBucketVersioning,
)
from storagegate.objects.settings import ownershipOf
from storagegate.services.objectstreams import readContent
from storagegate.storage.embedded.connections import MIGRATIONS
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.errors import ObjectLocked
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import Content, DefaultRetention, ObjectRecord

STORES = Path(__file__).parent / "schemas"

ROOT = PlainCaller(Identity("AK", "root", isRoot=True), "GetObject")

VERSIONED = 4
"""The first schema with versions and settings."""

IDENTITIES = 6
"""The first schema with users and groups."""


def write(schema: int, directory: str) -> None:
    """Write the store of a schema."""
    text = (STORES / f"{schema}.sql").read_text()
    os.makedirs(directory)
    for line in text.splitlines():
        if line.startswith("-- blobs/"):
            name, _, content = line.removeprefix("-- ").partition(": ")
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.loads(content))
    with closing(sqlite3.connect(os.path.join(directory, "catalog.sqlite"))) as catalog:
        catalog.executescript(text)


class SchemaTests(TestCase):
    """The store of each schema holds what was put into it, and can be written."""

    timeout = 60

    def test_each(self) -> None:
        """Each schema has a store, and its file says so."""
        self.assertEqual(
            sorted(path.stem for path in STORES.glob("*.sql")),
            [str(number + 1) for number in range(len(MIGRATIONS))],
        )
        for number in range(1, len(MIGRATIONS) + 1):
            text = (STORES / f"{number}.sql").read_text()
            self.assertTrue(text.endswith(f"PRAGMA user_version = {number};\n"), number)

    def openedAs(self, schema: int) -> None:
        """Open the store of a schema."""
        from twisted.internet import reactor

        self.schema = schema
        directory = os.path.abspath(self.mktemp())
        write(schema, directory)
        self.store = openStore(directory, reactor, durability="os")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        self.keys = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.objects = openDomain(self.store, self.keys, "us-east-1", lambda: 1.8e9)

    async def read(self, content: Content) -> bytes:
        """Read a content."""
        return b"".join(
            [
                each
                async for each in readContent(self.store, OpenContent(content), 0, content.size, 99)
            ]
        )

    async def found(self, bucket: str, key: str, versionId: str | None = None) -> ObjectRecord:
        """Look up an object, whose bytes must have its ETag unless it has parts."""
        _, record = await self.objects.object(ROOT, bucket, key.encode(), versionId)
        if "-" not in record.etag:
            body = await self.read(record.content)
            self.assertEqual(hashlib.md5(body).hexdigest(), record.etag)
        return record

    async def checkObjects(self) -> None:
        """The objects, by their bytes and attributes."""
        page = await self.objects.perform(
            ROOT, ListObjects(ObjectRange("photos", b"", b"/", b"", 9, contentTypes=True))
        )
        self.assertEqual(page.prefixes, ("2026/",))
        self.assertEqual(
            [(each.key, each.size, each.contentType) for each in page.objects],
            [("copy", 12, "text/plain"), ("parts", 15, "video/x"), ("parts again", 15, "video/x")],
        )
        tags = "a=1" if self.schema >= VERSIONED else ""
        for key in ("2026/café.txt", "copy"):
            record = await self.found("photos", key)
            self.assertEqual(await self.read(record.content), b"a small body")
            about = record.attributes
            self.assertEqual((about.contentType, about.storageClass), ("text/plain", "STANDARD_IA"))
            self.assertEqual(about.headers, {"cache-control": "max-age=60"})
            self.assertEqual((about.metadata, about.tags), ({"by": "ann"}, tags))
            self.assertEqual((record.account, record.versionId), ("root", "null"))
        for key in ("parts", "parts again"):
            record = await self.found("photos", key)
            self.assertEqual(await self.read(record.content), b"bytes in a blob")
            (part,) = record.attributes.parts
            self.assertEqual((part.number, part.size), (3, 15))
        rows = await self.store.catalog.blobRows("", 9)
        self.assertEqual(sorted((row.size, row.refs) for row in rows), [(5, 1), (6, 1), (15, 2)])

    async def checkUpload(self) -> None:
        """The upload in progress, with its parts."""
        uploads = await self.objects.perform(
            ROOT, ListMultipartUploads(UploadRange("photos", b"", b"", b"", 9))
        )
        (upload,) = uploads.uploads
        self.assertEqual((upload.key, upload.attributes.metadata), (b"pending", {"by": "bob"}))
        _, parts = await self.objects.perform(
            ROOT, ListParts(PartRange("photos", b"pending", upload.uploadId, 0, 9))
        )
        bodies = [(part.number, await self.read(part.content)) for part in parts]
        self.assertEqual(bodies, [(1, b"first"), (2, b"second")])

    async def checkKeysAndUsage(self) -> None:
        """The issued key, the ownership of a bucket, and the counts of the buckets."""
        _, (key,) = await self.store.catalog.accessKeys()
        self.assertEqual(
            (key.account, key.policy, key.bucketPattern), ("ann", "readonly", "photos")
        )
        self.assertEqual((key.role, key.disabled, key.expiresMs), ("none", False, 0))
        owned = await self.objects.find("owned")
        wanted = "" if self.schema == 1 else "BucketOwnerEnforced"
        self.assertEqual(ownershipOf(owned, {}), wanted)
        counts = {
            each.bucket: (each.objects, each.bytes, each.uploads, each.uploadBytes)
            for each in (await self.store.catalog.usage(9)).buckets
        }
        self.assertEqual(counts["photos"], (4, 54, 1, 11))

    async def checkSettings(self) -> None:
        """The settings of a bucket, typed and compiled."""
        perform = self.objects.perform
        if self.schema < VERSIONED:
            with self.assertRaises(PolicyNotFound):
                await perform(ROOT, GetBucketPolicyStatus("photos"))
            return
        self.assertTrue(await perform(ROOT, GetBucketPolicyStatus("photos")))
        (rule,) = await perform(ROOT, GetBucketCors("photos"))
        self.assertEqual((rule.methods, rule.maxAge), (("GET",), 60))
        self.assertEqual(tuple(rule.origins), ("https://example.com",))
        (expiry,), _ = await perform(ROOT, GetBucketLifecycleConfiguration("photos"))
        self.assertEqual((expiry.id, expiry.prefix, expiry.days), ("old", "2026/", 400))
        self.assertEqual(await perform(ROOT, GetBucketTagging("photos")), {"team": "red"})
        block = await perform(ROOT, GetPublicAccessBlock("photos"))
        self.assertEqual(block, PublicAccessBlock(blockPublicAcls=True))
        listed = await perform(ROOT, GetObjectAcl("photos", b"copy", None))
        grants: Sequence[Grant] = listed.owned.acl.grants
        self.assertEqual([each.permission for each in grants], ["FULL_CONTROL", "READ"])

    async def checkVersions(self) -> None:
        """The versions of a key, its delete marker, and their locks."""
        if self.schema < VERSIONED:
            return
        perform = self.objects.perform
        page = await perform(ROOT, ListObjectVersions(VersionRange("kept", b"", b"", b"", 9)))
        marker, second, first, _ = page.versions
        self.assertEqual([each.key for each in page.versions], ["k", "k", "k", "now"])
        self.assertTrue(marker.isDeleteMarker and marker.isLatest and not second.isLatest)
        for version, body in ((first, b"one"), (second, b"two")):
            record = await self.found("kept", "k", version.versionId)
            self.assertEqual(await self.read(record.content), body)
        lock = await perform(ROOT, GetObjectRetention("kept", b"k", first.versionId))
        self.assertEqual((lock.mode, lock.untilMs), ("GOVERNANCE", 4_070_908_800_000))
        self.assertTrue(await perform(ROOT, GetObjectLegalHold("kept", b"k", second.versionId)))
        default = await perform(ROOT, GetObjectLockConfiguration("kept"))
        self.assertEqual(default, DefaultRetention("GOVERNANCE", days=1))
        with self.assertRaises(ObjectLocked):
            await perform(ROOT, DeleteObject("kept", b"k", second.versionId))

    async def checkIdentities(self) -> None:
        """The user and the group of an account, and a user that is added."""
        state = await self.objects.identities.read("ann")
        if self.schema < IDENTITIES:
            self.assertEqual(state.entities, {})
        else:
            (user,), (group,) = state.users(), state.groups()
            self.assertEqual((user.name, user.groups), ("Eve", (group.key,)))
            self.assertEqual(user.tags, {"team": "red"})
            self.assertIn("s3:GetObject", group.policies["read"])
        await self.objects.identities.change(
            "ann", lambda state: (state.withEntity(IAMUser(name="New")), None)
        )
        state = await self.objects.identities.read("ann")
        self.assertIn("New", [each.name for each in state.users()])

    async def checkWrites(self) -> None:
        """The store takes changes of all kinds that its schema had no columns for."""
        perform = self.objects.perform
        await perform(ROOT, PutBucketVersioning("photos", "Enabled"))
        await perform(ROOT, PutBucketTagging("owned", {"a": "b"}))
        removal = await perform(ROOT, DeleteObject("photos", b"copy", None))
        self.assertTrue(removal.isDeleteMarker)
        page = await perform(ROOT, ListObjectVersions(VersionRange("photos", b"copy", b"", b"", 9)))
        self.assertEqual(
            [(each.versionId, bool(each.isDeleteMarker)) for each in page.versions],
            [(removal.versionId, True), ("null", False)],
        )
        self.assertEqual(await perform(ROOT, GetBucketTagging("owned")), {"a": "b"})

    async def check(self, schema: int) -> None:
        """Open the store of a schema, and check all of it."""
        self.openedAs(schema)
        await self.checkObjects()
        await self.checkUpload()
        await self.checkKeysAndUsage()
        await self.checkSettings()
        await self.checkVersions()
        await self.checkIdentities()
        await self.checkWrites()

    async def test_first(self) -> None:
        """The first schema."""
        await self.check(1)

    async def test_second(self) -> None:
        """The ownership of buckets was added."""
        await self.check(2)

    async def test_third(self) -> None:
        """The counts of buckets were added."""
        await self.check(3)

    async def test_fourth(self) -> None:
        """Versions, locks and settings were added."""
        await self.check(4)

    async def test_fifth(self) -> None:
        """Roles, expiry and use of keys were added."""
        await self.check(5)

    async def test_sixth(self) -> None:
        """Users, groups, roles and policies of accounts were added."""
        await self.check(6)
