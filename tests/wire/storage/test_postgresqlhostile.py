"""Texts that a client has chosen, put through the catalog in PostgreSQL: they never are SQL."""

import re
import unicodedata
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from storagegate.storage.cluster import statements
from storagegate.storage.cluster.schema import MIGRATIONS
from storagegate.storage.errors import BucketExists, NoSuchBucket, NoSuchUpload
from storagegate.storage.mutations import (
    AbortUpload,
    AddAccessKey,
    AddBucket,
    CompleteUpload,
    CreateUpload,
    PutObject,
    PutPart,
    PutSettings,
    RemoveAccessKey,
    RemoveBucket,
    RemoveObjects,
)
from storagegate.storage.ranges import ObjectRange, UploadRange, VersionRange
from storagegate.storage.records import (
    AccessKey,
    Attributes,
    ObjectRecord,
    UploadListing,
    WriteCondition,
)
from tests.contract.catalogcase import ALWAYS, bucketNamed, inlineRecord, partOf, uploadOf
from tests.support.selection import long
from tests.wire.storage.nodescase import NodesCase

HOSTILE = (
    "'; DROP TABLE objects; --",
    "\\'; DROP TABLE objects; --",
    "1); DELETE FROM buckets; SELECT (1",
    '"\\',
    '","x","y',
    "$1 %s %(x)s {} :a",
    "$$; DROP TABLE objects; $$",
    "{a,NULL}",
    '{"a","b"}',
    "NULL",
    "\\N",
    "\\x00",
    "E'\\x00'",
    "\\u0000",
    "a\0b",
    "\0",
    "\x01",
    "\n\r\t",
    "\x1b[31m",
    "\ufffe\uffff",
    "é\U0010ffff\u202e",
    unicodedata.normalize("NFC", "\u00e9t\u00e9"),
    unicodedata.normalize("NFD", "\u00e9t\u00e9"),
    "../../etc/passwd",
    "%2e%2e%2f",
    "a//b",
    "/",
    ".",
    "..",
    "trailing/",
    "back\\slash",
    "a+b",
    "a b",
    "a%20b",
    "a%2Bb",
    "CASE",
    "case",
    "x" * 1024,
)

TEXTS = tuple(text for text in HOSTILE if "\0" not in text)
"""Those that a text of PostgreSQL can hold; no account, ETag or bucket has a NUL."""


@long("starts PostgreSQL")
class HostileTests(NodesCase):
    """The corpus, in all places."""

    async def test_keys(self) -> None:
        """Keys with anything in them are stored, listed and removed as they are."""
        node = self.nodes[0]
        keys = [text.encode() for text in HOSTILE]
        for key in keys:
            await node.commit(PutObject(inlineRecord(key, key), ALWAYS))
        page = await node.listObjects(ObjectRange("b", b"", b"", b"", 100, contentTypes=True))
        self.assertEqual([each.key.encode() for each in page.objects], sorted(keys))
        for key in keys:
            record = (await node.object("b", key))[1]
            assert record is not None
            self.assertEqual(record.content.inline, key)
            prefix, delimiter = key.decode()[:1].encode(), key.decode()[-1:].encode()
            page = await node.listObjects(ObjectRange("b", prefix, delimiter, b"", 100))
            self.assertTrue(page.objects or page.prefixes)
            versions = await node.listVersions(VersionRange("b", prefix, delimiter, b"", 100))
            self.assertTrue(versions.versions or versions.prefixes)
        await node.commit(RemoveObjects("b", [(key, None, ALWAYS) for key in keys]))
        self.assertEqual((await node.listObjects(ObjectRange("b", b"", b"", b"", 9))).objects, ())

    async def test_names(self) -> None:
        """Names with anything in them name nothing, and break nothing."""
        node = self.nodes[0]
        lookUps: Sequence[Callable[[str], Coroutine[Any, Any, object]]] = (
            node.bucket,
            lambda text: node.upload("b", b"k", text),
            lambda text: node.upload(text, b"k", "u"),
            lambda text: node.deleteMarker(text, b"k"),
            lambda text: node.completed("b", b"k", text),
            node.blobRow,
            node.shard,
        )
        for text in HOSTILE:
            for lookUp in lookUps:
                self.assertIsNone(await lookUp(text))
            self.assertEqual(await node.object(text, b"k"), (None, None))
            self.assertEqual(await node.knownBlobs([text]), frozenset())
            self.assertEqual(await node.buckets(None, text, "", 5), [])
            await node.buckets(None, "", text, 5)
            for refused, *more in (
                (node.commit, PutObject(inlineRecord(b"k", bucket=text), ALWAYS)),
                (node.commit, RemoveObjects(text, [(b"k", None, ALWAYS)])),
                (node.commit, RemoveBucket(text)),
                (node.listObjects, ObjectRange(text, b"", b"", b"", 5)),
                (node.settings, text),
            ):
                with self.assertRaises(NoSuchBucket):
                    await refused(*more)
            with self.assertRaises(NoSuchUpload):
                await node.commit(AbortUpload("b", b"k", text))
            uploads = await node.uploads(UploadRange("b", b"", b"", text.encode(), 5, text))
            self.assertEqual(uploads, UploadListing([], [], None))
        self.assertIsNotNone(await node.bucket("b"))

    async def test_texts(self) -> None:
        """What else a client may choose comes back as it was."""
        node = self.nodes[0]
        for text in TEXTS:
            record: ObjectRecord = inlineRecord(b"k", etag=text, account=text)
            stored = await node.commit(PutObject(record, ALWAYS))
            self.assertEqual((await node.object("b", b"k"))[1], stored)
            page = await node.listObjects(ObjectRange("b", b"", b"", b"", 9))
            self.assertEqual((page.objects[0].etag, page.objects[0].account), (text, text))
            condition = WriteCondition(etags=("x", text), unlike=(text + "x",))
            await node.commit(PutObject(record, condition))

    async def test_metadata(self) -> None:
        """Metadata, tags and lists of access come back as they were, from objects and uploads."""
        node = self.nodes[0]
        for number, text in enumerate(HOSTILE):
            key = b"%d" % number
            attributes = Attributes(
                contentType=text, headers={"cache-control": text}, metadata={text: text}
            )
            if "\0" not in text:
                attributes = replace(attributes, storageClass=text, tags=text, acl=text)
            stored = await node.commit(PutObject(inlineRecord(key, attributes=attributes), ALWAYS))
            self.assertEqual((await node.object("b", key))[1], stored)
            page = await node.listObjects(ObjectRange("b", key, b"", b"", 9, contentTypes=True))
            self.assertEqual(page.objects[0].contentType, text)
            upload = uploadOf(key, f"u{number}", attributes=replace(attributes, tags="", acl=""))
            await node.commit(CreateUpload(upload))
            self.assertEqual(await node.upload("b", key, upload.uploadId), upload)
            self.assertIn(
                upload, (await node.uploads(UploadRange("b", key, b"", b"", 100))).uploads
            )
            await node.commit(PutPart("b", key, upload.uploadId, replace(partOf(1), etag="e")))
            done = await node.commit(
                CompleteUpload(
                    upload.uploadId, inlineRecord(key, attributes=attributes), [(1, "e")], ALWAYS
                )
            )
            self.assertEqual(await node.completed("b", key, upload.uploadId), done)
        rows = await node.expiryPage("b", b"", None, 100)
        self.assertEqual(len(rows), len(HOSTILE))

    async def test_buckets(self) -> None:
        """
        Buckets, were their names not checked before, their settings and their accounts are values,
        also in notifications.
        """
        node, other = self.nodes
        told: list[str] = []
        other.onBucketChanged = told.append
        await other._forLists.opened()
        texts = [text for text in TEXTS if len(text) < 100]
        for text in texts:
            bucket = replace(bucketNamed(text), account=text, region=text, ownership=text)
            await node.commit(AddBucket(bucket))
            with self.assertRaises(BucketExists) as caught:
                await node.commit(AddBucket(bucket))
            self.assertEqual(caught.exception.bucket, bucket)
            self.assertEqual(await other.bucket(text), bucket)
            await node.commit(PutSettings(text, {text: text.encode()}))
            self.assertEqual((await other.settings(text))[1], {text: text.encode()})
            self.assertIn(text, await other.bucketsWith(text, "", 100))
            await node.commit(PutObject(inlineRecord(b"k", bucket=text), ALWAYS))
            self.assertIn(text, [each.bucket for each in (await other.usage(100)).buckets])
        found = await other.buckets(None, "", "", 100)
        self.assertEqual([each.name for each in found], sorted([*texts, "b"], key=str.encode))
        while not set(texts) <= set(told):
            await other.bucket("b")

    async def test_accessKeys(self) -> None:
        """Keys, their secrets, accounts and patterns are values."""
        node, other = self.nodes
        keys = [AccessKey(*[text] * 7) for text in TEXTS]
        for key in keys:
            await node.commit(AddAccessKey(key))
        _, found = await other.accessKeys()
        self.assertEqual(found, sorted(keys, key=lambda key: key.accessKey.encode()))
        for text in HOSTILE:
            if "\0" not in text:
                self.assertTrue(await node.commit(RemoveAccessKey(text)))

    def test_noSQLIsMade(self) -> None:
        """No function of the schema makes SQL, and every value of a statement is a parameter."""
        for migration in MIGRATIONS:
            for statement in migration:
                made = re.findall(r"\bEXECUTE\b(?! FUNCTION)|\bquote_\w+|\bformat\(", statement)
                self.assertEqual(made, [], statement)
        everything = {**statements.WRITES, **statements.LOOKUPS, **statements.LISTS}
        self.assertGreater(len(everything), 50)
        for sql in {**everything, **statements.CLUSTER}.values():
            self.assertEqual(re.findall(r"%s|\{|\}", sql), [], sql)
