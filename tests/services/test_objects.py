"""The Storage service: buckets, listings, copies and what is wrong with requests."""

import json
from base64 import b64encode
from hashlib import md5
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.definitions import readService
from storagegate.core.errors import ServiceError
from storagegate.objects.errors import (
    MasterKeyDisabled,
    MasterKeyNotFound,
    MasterKeysUnavailable,
)
from storagegate.services.objects import domainErrors
from storagegate.storage.mutations import PutSettings, PutTags, SetObjectLock, SetVersioning
from storagegate.storage.records import GOVERNANCE, DefaultRetention
from tests.services.objectcase import BIG, StorageCase, etagOf, upload
from tests.services.usercase import ended
from tests.support.clients import ROOT

KINDS = {
    "ListBuckets": "none",
    "CreateBucket": "none",
    "DeleteBucket": "none",
    "ListObjects": "none",
    "HeadObject": "none",
    "GetObject": "server",
    "PutObject": "client",
    "DeleteObject": "none",
    "CopyObject": "none",
    "WatchBucket": "server",
}

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z"


class DefinitionTests(StorageCase):
    """What the service is."""

    def test_methods(self) -> None:
        """The methods stream as the RPCs do, each has schemas, and none is for everybody."""
        self.assertEqual(self.definition.name, "Storage")
        methods = self.definition.methods
        self.assertEqual({name: each.streaming for name, each in methods.items()}, KINDS)
        for name, method in methods.items():
            self.assertIsNotNone(method.input, name)
            self.assertIsNotNone(method.output, name)
        self.assertTrue(self.definition.authentication.required)
        self.assertEqual(self.definition.authentication.methods, ("apikey",))
        self.assertIs(readService(self.definition), self.definition)


class CodeTests(SynchronousTestCase):
    """The codes of errors of the domain."""

    def test_masterKeys(self) -> None:
        """The errors of master keys have codes that clients know."""
        for error, code in (
            (MasterKeyNotFound(), "INVALID_ARGUMENT"),
            (MasterKeyDisabled(), "INVALID_ARGUMENT"),
            (MasterKeysUnavailable(), "UNAVAILABLE"),
        ):
            with self.assertRaises(ServiceError) as caught, domainErrors():
                raise error
            self.assertEqual(caught.exception.code, code)


class BucketTests(StorageCase):
    """C{AddBucket}, C{ListBuckets} and C{RemoveBucket}."""

    async def test_buckets(self) -> None:
        """A bucket is made, listed with its time, and removed; S3 sees the same."""
        self.assertEqual(await self.call("CreateBucket", {"bucket": "one"}), {})
        await self.s3("HEAD", "/one")
        await self.s3("PUT", "/two")
        listed = (await self.call("ListBuckets", {}))["buckets"]
        self.assertEqual([each["name"] for each in listed], ["one", "two"])
        for each in listed:
            self.assertRegex(each["createdAt"], TIME)
        self.assertEqual(await self.call("DeleteBucket", {"bucket": "one"}), {})
        await self.s3("HEAD", "/one", status=404)

    async def test_refused(self) -> None:
        """What S3 refuses of buckets is refused here, in the codes of services."""
        await self.call("CreateBucket", {"bucket": "one"})
        again = await self.refused("ALREADY_EXISTS", "CreateBucket", {"bucket": "one"})
        self.assertEqual((again.statusCode, again.grpcStatus), (409, 6))
        for name in ("A", "a..b", "192.168.0.1", "\ud800", "a/b"):
            await self.refused("INVALID_ARGUMENT", "CreateBucket", {"bucket": name})
        await self.refused("VALIDATION_ERROR", "CreateBucket", {})
        await self.refused("VALIDATION_ERROR", "CreateBucket", {"bucket": 5})
        none = await self.refused("NOT_FOUND", "DeleteBucket", {"bucket": "none"})
        self.assertEqual((none.statusCode, none.grpcStatus), (404, 5))
        await self.put("one", "key", b"x")
        full = await self.refused("BUCKET_NOT_EMPTY", "DeleteBucket", {"bucket": "one"})
        self.assertEqual((full.statusCode, full.grpcStatus), (409, 6))


class ObjectTests(StorageCase):
    """Objects one at a time."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Make a bucket."""
        super().setUp()
        await self.call("CreateBucket", {"bucket": "box"})

    async def test_head(self) -> None:
        """An object is shown with what was said of it."""
        metadata = {"colour": "blue", "city": "Köln"}
        made = await self.put("box", "ä/key", b"hello", contentType="text/plain", metadata=metadata)
        self.assertRegex(made.pop("lastModified"), TIME)
        wanted = {
            "key": "ä/key",
            "size": 5,
            "etag": etagOf(b"hello"),
            "contentType": "text/plain",
            "metadata": metadata,
        }
        self.assertEqual(made, wanted)
        found = await self.call("HeadObject", {"bucket": "box", "key": "ä/key"})
        self.assertRegex(found.pop("lastModified"), TIME)
        self.assertEqual(found, wanted)

    async def test_fromS3(self) -> None:
        """What S3 has stored is read here: bytes, ETag, content type, metadata and time."""
        for body in (b"", b"small", BIG):
            stored = await self.s3(
                "PUT", "/box/k", body, content_type="image/x", x_amz_meta_colour="red"
            )
            found = await self.call("HeadObject", {"bucket": "box", "key": "k"})
            self.assertEqual(f'"{found["etag"]}"', stored.headers["etag"])
            self.assertEqual(found["contentType"], "image/x")
            self.assertEqual(found["metadata"], {"colour": "red"})
            self.assertEqual(found["size"], len(body))
            self.assertEqual(await self.read("box", "k"), body)

    async def test_toS3(self) -> None:
        """What is stored here S3 reads: the same things, and the checksum that its own PUT has."""
        for body in (b"", b"small", BIG):
            chunks = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
            await self.put("box", "k", *chunks, contentType="image/x", metadata={"Colour": "red"})
            await self.s3("PUT", "/box/twin", body)
            found = await self.s3("GET", "/box/k", x_amz_checksum_mode="ENABLED")
            twin = await self.s3("GET", "/box/twin", x_amz_checksum_mode="ENABLED")
            self.assertEqual(found.body, body)
            self.assertEqual(found.headers["content-type"], "image/x")
            self.assertEqual(found.headers["x-amz-meta-colour"], "red")
            for name in ("etag", "x-amz-checksum-crc64nvme", "x-amz-checksum-type"):
                self.assertEqual(found.headers[name], twin.headers[name], name)
        await self.put("box", "plain", b"x")
        plain = await self.s3("HEAD", "/box/plain")
        self.assertEqual(plain.headers["content-type"], "binary/octet-stream")

    async def test_delete(self) -> None:
        """An object is deleted, and one that is not there is, too."""
        await self.put("box", "k", b"x")
        self.assertEqual(await self.call("DeleteObject", {"bucket": "box", "key": "k"}), {})
        self.assertEqual(await self.call("DeleteObject", {"bucket": "box", "key": "k"}), {})
        await self.s3("HEAD", "/box/k", status=404)
        await self.refused("NOT_FOUND", "DeleteObject", {"bucket": "none", "key": "k"})

    async def test_copy(self) -> None:
        """A copy has bytes, ETag and all that was said of its source."""
        await self.put("box", "k", BIG, contentType="text/x", metadata={"a": "b"})
        request = {"fromBucket": "box", "fromKey": "k", "bucket": "box", "key": "c"}
        made = await self.call("CopyObject", request)
        self.assertEqual((made["key"], made["etag"]), ("c", etagOf(BIG)))
        self.assertEqual((made["contentType"], made["metadata"]), ("text/x", {"a": "b"}))
        self.assertEqual(await self.read("box", "c"), BIG)
        await self.refused("INVALID_ARGUMENT", "CopyObject", {**request, "key": "k"})
        await self.refused("NOT_FOUND", "CopyObject", {**request, "fromKey": "none"})
        await self.refused("NOT_FOUND", "CopyObject", {**request, "bucket": "none"})

    async def test_customerKey(self) -> None:
        """An object with a client's key is described and deleted; its bytes only S3 reads."""
        key = bytes(range(32))
        headers = {
            "x_amz_server_side_encryption_customer_algorithm": "AES256",
            "x_amz_server_side_encryption_customer_key": b64encode(key).decode(),
            "x_amz_server_side_encryption_customer_key_md5": b64encode(md5(key).digest()).decode(),
        }
        for body in (b"small", BIG):
            await self.s3("PUT", "/box/k", body, **headers)
            names = {"bucket": "box", "key": "k"}
            self.assertEqual((await self.call("HeadObject", names))["size"], len(body))
            error = await self.refused("INVALID_ARGUMENT", "GetObject", names)
            self.assertIn("client's key (SSE-C)", error.message)
            copy = {"fromBucket": "box", "fromKey": "k", "bucket": "box", "key": "c"}
            await self.refused("INVALID_ARGUMENT", "CopyObject", copy)
        await self.call("DeleteObject", names)
        await self.s3("HEAD", "/box/k", status=404)

    async def test_versions(self) -> None:
        """Versions have their ids in results, and are read, copied and deleted by them."""
        names = {"bucket": "box", "key": "k"}
        self.assertNotIn("versionId", await self.put("box", "k", b"null"))
        self.assertNotIn("versionId", await self.call("HeadObject", names))
        await self.store.catalog.commit(SetVersioning("box", "Enabled"))
        self.assertEqual((await self.call("HeadObject", names))["versionId"], "null")
        first = (await self.put("box", "k", b"first"))["versionId"]
        second = (await self.put("box", "k", b"second"))["versionId"]
        for versionId, body in (("null", b"null"), (first, b"first"), (second, b"second")):
            found = await self.call("HeadObject", {**names, "versionId": versionId})
            self.assertEqual((found["versionId"], found["etag"]), (versionId, etagOf(body)))
            self.assertEqual(await self.read("box", "k", versionId=versionId), body)
            shown = await self.s3("GET", f"/box/k?versionId={versionId}")
            self.assertEqual((shown.body, shown.headers["x-amz-version-id"]), (body, versionId))
        marked = await self.call("DeleteObject", names)
        self.assertEqual(marked, {"versionId": marked["versionId"], "deleteMarker": True})
        await self.refused("NOT_FOUND", "HeadObject", names)
        byMarker = {**names, "versionId": marked["versionId"]}
        await self.refused("INVALID_ARGUMENT", "GetObject", byMarker)
        source = {"fromBucket": "box", "fromKey": "k", **names}
        await self.refused("NOT_FOUND", "CopyObject", source)
        restored = await self.call("CopyObject", {**source, "fromVersionId": first})
        self.assertNotIn(restored["versionId"], ("null", first, second))
        self.assertEqual(await self.read("box", "k"), b"first")
        again = {**source, "fromVersionId": restored["versionId"]}
        repeated = await self.call("CopyObject", again)
        self.assertNotEqual(repeated["versionId"], restored["versionId"])
        self.assertEqual(await self.call("DeleteObject", byMarker), marked)
        gone = {**names, "versionId": second}
        for _ in range(2):
            self.assertEqual(await self.call("DeleteObject", gone), {"versionId": second})
        await self.refused("NOT_FOUND", "HeadObject", gone)
        for wrong in ("", "none", "\ud800"):
            for method in ("HeadObject", "GetObject", "DeleteObject"):
                request = {**names, "versionId": wrong}
                await self.refused("INVALID_ARGUMENT", method, request)
        self.assertEqual(await self.read("box", "k"), b"first")

    async def test_locks(self) -> None:
        """What is written has the default of its bucket; a locked version is not removed."""
        await self.store.catalog.commit(SetVersioning("box", "Enabled"))
        await self.store.catalog.commit(SetObjectLock("box", DefaultRetention(GOVERNANCE, days=1)))
        put = await self.put("box", "k", b"kept")
        source = {"fromBucket": "box", "fromKey": "k"}
        copied = await self.call("CopyObject", {**source, "bucket": "box", "key": "c"})
        for made in (put, copied):
            named = {"bucket": "box", "key": made["key"], "versionId": made["versionId"]}
            shown = await self.s3("HEAD", f"/box/{made['key']}")
            self.assertEqual(shown.headers["x-amz-object-lock-mode"], GOVERNANCE)
            await self.refused("PERMISSION_DENIED", "DeleteObject", named)
            marked = await self.call("DeleteObject", {"bucket": "box", "key": made["key"]})
            self.assertTrue(marked["deleteMarker"])
            found = await self.read("box", made["key"], versionId=made["versionId"])
            self.assertEqual(found, b"kept")

    async def test_missing(self) -> None:
        """Buckets and keys that are not there are C{NOT_FOUND}; names that are none are refused."""
        for method in ("HeadObject", "GetObject"):
            await self.refused("NOT_FOUND", method, {"bucket": "box", "key": "none"})
            await self.refused("NOT_FOUND", method, {"bucket": "none", "key": "k"})
            await self.refused("INVALID_ARGUMENT", method, {"bucket": "box", "key": "\ud800"})
            await self.refused("INVALID_ARGUMENT", method, {"bucket": "box", "key": "k" * 1025})
            await self.refused("VALIDATION_ERROR", method, {"bucket": "box", "key": ""})
        await self.refused("NOT_FOUND", "WatchBucket", {"bucket": "none"})

    async def test_unspeakable(self) -> None:
        """What no header of S3 could say is not stored: it would forge S3's answers."""
        for more in (
            {"contentType": "a\r\nSet-Cookie: x"},
            {"contentType": "a\x00"},
            {"contentType": " a"},
            {"metadata": {"a": "b\nc"}},
            {"metadata": {"a": "\ud800"}},
            {"metadata": {"a b": "c"}},
            {"metadata": {"a:": "c"}},
            {"metadata": {"": "c"}},
            {"metadata": {"ä": "c"}},
            {"metadata": {"a": "1", "A": "2"}},
            {"metadata": {"a": "x" * 2048}},
        ):
            await self.refused("INVALID_ARGUMENT", "PutObject", upload("box", "k", b"x", **more))
        items = ended({"bucket": "box", "key": "k", "metadata": {"a": 1}})
        await self.refused("VALIDATION_ERROR", "PutObject", items)
        await self.refused("NOT_FOUND", "HeadObject", {"bucket": "box", "key": "k"})

    async def test_encodedWords(self) -> None:
        """Text that S3's clients had to encode is readable here; what is none stays as it is."""
        word = "=?utf-8?b?S8O2bG4=?="
        await self.s3("PUT", "/box/k", b"", x_amz_meta_a=word, x_amz_meta_b="=?x?q?y?=")
        found = await self.call("HeadObject", {"bucket": "box", "key": "k"})
        self.assertEqual(found["metadata"], {"a": "Köln", "b": "=?x?q?y?="})
        await self.put("box", "k", b"", metadata={"a": "Köln"})
        self.assertEqual((await self.s3("HEAD", "/box/k")).headers["x-amz-meta-a"], word)

    async def test_lineSeparators(self) -> None:
        """Separators of lines in metadata stay in its encoded words: the header is one line."""
        for text in ("Köln\u2028x: y", "a\u0085b", "a\u2029"):
            await self.put("box", "k", b"", metadata={"a": text})
            stored = (await self.s3("HEAD", "/box/k")).headers["x-amz-meta-a"]
            self.assertRegex(stored, r"\A=\?utf-8\?[bq]\?[!-~]+\?=\Z")
            found = await self.call("HeadObject", {"bucket": "box", "key": "k"})
            self.assertEqual(found["metadata"], {"a": text})


class ListingTests(StorageCase):
    """C{ListObjects}."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Make a bucket with some objects."""
        super().setUp()
        await self.call("CreateBucket", {"bucket": "box"})
        for key in ("a/1", "a/2", "b", "c/1", "ä"):
            await self.put("box", key, key.encode(), contentType=f"text/{len(key)}")
        await self.put("box", "z", b"")

    async def list(self, **more: Any) -> Any:
        """List."""
        return await self.call("ListObjects", {"bucket": "box", **more})

    async def test_rows(self) -> None:
        """A row has key, size, ETag, content type and time, and no more."""
        listed = await self.list()
        self.assertEqual(sorted(listed), ["commonPrefixes", "objects"])
        self.assertEqual(
            [each["key"] for each in listed["objects"]], ["a/1", "a/2", "b", "c/1", "z", "ä"]
        )
        row = listed["objects"][2]
        self.assertRegex(row.pop("lastModified"), TIME)
        self.assertEqual(
            row, {"key": "b", "size": 1, "etag": etagOf(b"b"), "contentType": "text/1"}
        )
        self.assertEqual(listed["objects"][4]["contentType"], "binary/octet-stream")

    async def test_groups(self) -> None:
        """A delimiter makes common prefixes, a prefix narrows."""
        listed = await self.list(delimiter="/")
        self.assertEqual(listed["commonPrefixes"], ["a/", "c/"])
        types = {each["key"]: each["contentType"] for each in listed["objects"]}
        self.assertEqual(types, {"b": "text/1", "z": "binary/octet-stream", "ä": "text/1"})
        listed = await self.list(prefix="a/")
        self.assertEqual([each["key"] for each in listed["objects"]], ["a/1", "a/2"])

    async def test_pages(self) -> None:
        """Pages follow each other by a token, which is good for this bucket alone."""
        keys: list[str] = []
        more: dict[str, Any] = {}
        while more is not None:
            page = await self.list(maxKeys=4, **more)
            keys += [each["key"] for each in page["objects"]]
            token = page.get("nextContinuationToken")
            more = {"continuationToken": token} if token else None  # type: ignore[assignment]
            if len(keys) == 4:
                self.assertIsNotNone(token)
                await self.call("CreateBucket", {"bucket": "other"})
                request = {"bucket": "other", "continuationToken": token}
                await self.refused("INVALID_ARGUMENT", "ListObjects", request)
        self.assertEqual(keys, ["a/1", "a/2", "b", "c/1", "z", "ä"])
        for name, value in (("continuationToken", "x"), ("prefix", "\ud800")):
            await self.refused("INVALID_ARGUMENT", "ListObjects", {"bucket": "box", name: value})
        await self.refused("VALIDATION_ERROR", "ListObjects", {"bucket": "box", "maxKeys": -1})
        self.assertEqual(len((await self.list(maxKeys=1 << 40))["objects"]), 6)


class PolicyTests(StorageCase):
    """Accounts, keys and what their policies allow."""

    async def test_unauthenticated(self) -> None:
        """Only a whole key pair of the store is somebody, root's or an issued one."""
        ann = await self.issue("ann")
        self.assertEqual(await self.call("ListBuckets", {}, ann), {"buckets": []})
        account = type(ROOT)
        for key, secret in (
            (ROOT.accessKey, ann.secretKey),
            (ROOT.accessKey, ""),
            ("", ROOT.secretKey),
            ("none", "\0"),
            (ROOT.accessKey, ROOT.secretKey + "x"),
            (ROOT.accessKey, "\ud800"),
        ):
            await self.refused("UNAUTHENTICATED", "ListBuckets", {}, account(key, secret))

    async def test_foreignUser(self) -> None:
        """A user whom something else has admitted is nobody to the store."""
        from tests.services.usercase import contextOf

        for method, definition in self.definition.methods.items():
            context = contextOf(method)
            context.authentication = {"sub": "ann", "isRoot": True}
            names = {"bucket": "box", "key": "k", "fromBucket": "box", "fromKey": "k"}
            request: Any = ended(names) if method == "PutObject" else names
            called = definition.handler(request, context)
            waiting = anext(called) if hasattr(called, "__anext__") else called

            async def wait(waiting: Any = waiting) -> Any:
                return await waiting

            failed = await Deferred.fromCoroutine(wait()).addErrback(lambda failure: failure.value)
            self.assertEqual(getattr(failed, "code", failed), "UNAUTHENTICATED", method)

    async def test_accounts(self) -> None:
        """An account sees its own buckets; those of others are closed to it, but not to root."""
        ann, bob = await self.issue("ann"), await self.issue("bob")
        await self.call("CreateBucket", {"bucket": "anns"}, ann)
        await self.call("PutObject", upload("anns", "k", b"x"), ann)
        self.assertEqual(await self.call("ListBuckets", {}, bob), {"buckets": []})
        for method in self.definition.methods:
            if method in ("ListBuckets", "CreateBucket"):
                continue
            names = {"bucket": "anns", "key": "k", "fromBucket": "anns", "fromKey": "k"}
            request: Any = ended(names) if method == "PutObject" else names
            denied = await self.refused("PERMISSION_DENIED", method, request, bob)
            self.assertEqual((denied.statusCode, denied.grpcStatus), (403, 7))
        await self.refused("ALREADY_EXISTS", "CreateBucket", {"bucket": "anns"}, bob)
        self.assertEqual(await self.read("anns", "k"), b"x")

    async def test_bucketPolicy(self) -> None:
        """The policy of a bucket decides on calls as it does on requests of S3."""
        ann, bob = await self.issue("ann"), await self.issue("bob")
        await self.call("CreateBucket", {"bucket": "anns"}, ann)
        await self.call("PutObject", upload("anns", "k", b"x"), ann)

        async def setPolicy(*statements: dict[str, Any]) -> None:
            policy = json.dumps({"Statement": statements}).encode()
            await self.store.catalog.commit(PutSettings("anns", {"policy": policy}))

        resources = ["arn:aws:s3:::anns", "arn:aws:s3:::anns/*"]
        allow = {
            "Effect": "Allow",
            "Principal": {"AWS": "bob"},
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": resources,
        }
        await setPolicy(allow)
        names = {"bucket": "anns", "key": "k"}
        self.assertEqual((await self.call("HeadObject", names, bob))["size"], 1)
        self.assertEqual(
            len((await self.call("ListObjects", {"bucket": "anns"}, bob))["objects"]), 1
        )
        await self.refused("PERMISSION_DENIED", "DeleteObject", names, bob)
        await self.refused("PERMISSION_DENIED", "PutObject", ended(names), bob)
        await self.store.catalog.commit(SetVersioning("anns", "Enabled"))
        old = {**names, "versionId": "null"}
        await self.refused("PERMISSION_DENIED", "HeadObject", old, bob)
        copy = {"fromBucket": "anns", "fromKey": "k", "bucket": "bobs", "key": "k"}
        await self.call("CreateBucket", {"bucket": "bobs"}, bob)
        await self.call("CopyObject", copy, bob)
        byVersion = {**copy, "fromVersionId": "null"}
        await self.refused("PERMISSION_DENIED", "CopyObject", byVersion, bob)
        await setPolicy({**allow, "Action": ["s3:GetObjectVersion", "s3:DeleteObjectVersion"]})
        await self.call("CopyObject", byVersion, bob)
        # The tags that a copy takes over count as those that it gives.
        tagged = {"StringEquals": {"s3:RequestObjectTag/a": "b"}}
        objects = ["arn:aws:s3:::bobs/*"]
        denied = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:PutObject",
            "Resource": objects,
            "Condition": tagged,
        }
        await self.call("PutObject", upload("bobs", "own", b"x"), bob)
        await self.store.catalog.commit(PutTags("bobs", b"own", None, "a=b"))
        policy = json.dumps({"Statement": denied}).encode()
        await self.store.catalog.commit(PutSettings("bobs", {"policy": policy}))
        own = {"fromBucket": "bobs", "fromKey": "own", "bucket": "bobs", "key": "second"}
        await self.refused("PERMISSION_DENIED", "CopyObject", own, bob)
        await self.call("CopyObject", byVersion, bob)
        # Tags are copied only for those that may read them.
        await self.store.catalog.commit(PutTags("anns", b"k", None, "a=b"))
        await self.refused("PERMISSION_DENIED", "CopyObject", byVersion, bob)
        self.assertEqual((await self.call("HeadObject", old, bob))["size"], 1)
        await self.refused("PERMISSION_DENIED", "HeadObject", names, bob)
        await self.refused("PERMISSION_DENIED", "DeleteObject", names, bob)
        await setPolicy({**allow, "Effect": "Deny", "Principal": "*"})
        await self.refused("PERMISSION_DENIED", "HeadObject", names, ann)
        self.assertEqual(await self.read("anns", "k"), b"x")

    async def test_copySourceOfPolicy(self) -> None:
        """A policy can forbid copies of a source, as in S3."""
        ann = await self.issue("ann")
        for bucket in ("here", "there"):
            await self.call("CreateBucket", {"bucket": bucket}, ann)
        secret = "secret/\u00e9"
        for key in ("open", secret):
            await self.call("PutObject", upload("there", key, b"x"), ann)
        denied = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:PutObject",
            "Resource": "arn:aws:s3:::here/*",
            "Condition": {"StringLike": {"s3:x-amz-copy-source": "there/secret/*"}},
        }
        policy = json.dumps({"Statement": denied}).encode()
        await self.store.catalog.commit(PutSettings("here", {"policy": policy}))
        copy = {"fromBucket": "there", "fromKey": "open", "bucket": "here", "key": "k"}
        await self.call("CopyObject", copy, ann)
        await self.refused("PERMISSION_DENIED", "CopyObject", {**copy, "fromKey": secret}, ann)
        await self.call("PutObject", upload("here", "k", b"y"), ann)

    async def test_policies(self) -> None:
        """A key may do what its policy says, to the buckets and keys that it names."""
        await self.call("CreateBucket", {"bucket": "logs"})
        await self.put("logs", "k", b"x")
        reader = await self.issue("r", account="root", policy="readonly")
        writer = await self.issue("w", account="root", policy="writeonly")
        names = {"bucket": "logs", "key": "k"}
        await self.call("HeadObject", names, reader)
        await self.call("PutObject", upload("logs", "k", b"y"), writer)
        for method in ("CreateBucket", "DeleteBucket", "DeleteObject"):
            await self.refused("PERMISSION_DENIED", method, names, reader)
        await self.refused("PERMISSION_DENIED", "PutObject", upload("logs", "k"), reader)
        for method in ("ListBuckets", "ListObjects", "HeadObject", "GetObject", "WatchBucket"):
            await self.refused("PERMISSION_DENIED", method, names, writer)
        # Whoever copies reads.
        copy = {"fromBucket": "logs", "fromKey": "k", "bucket": "logs", "key": "c"}
        await self.refused("PERMISSION_DENIED", "CopyObject", copy, writer)

    async def test_patterns(self) -> None:
        """A key of some prefixes lists and watches below them alone, and sees its buckets only."""
        wide = await self.issue("wide")
        narrow = await self.issue(
            "narrow", account="wide", bucketPattern="logs*", prefixPattern="a/*"
        )
        for bucket in ("logs", "other"):
            await self.call("CreateBucket", {"bucket": bucket}, wide)
            await self.call("PutObject", upload(bucket, "a/1", b"x"), wide)
        listed = await self.call("ListBuckets", {}, narrow)
        self.assertEqual([each["name"] for each in listed["buckets"]], ["logs"])
        listed = await self.call("ListObjects", {"bucket": "logs", "prefix": "a/"}, narrow)
        self.assertEqual([each["key"] for each in listed["objects"]], ["a/1"])
        for request in ({"bucket": "logs"}, {"bucket": "other", "prefix": "a/"}):
            await self.refused("PERMISSION_DENIED", "ListObjects", request, narrow)
            await self.refused("PERMISSION_DENIED", "WatchBucket", request, narrow)
        await self.call("HeadObject", {"bucket": "logs", "key": "a/1"}, narrow)
        # The prefix alone matches; what may stand behind it does not.
        single = await self.issue("single", account="wide", prefixPattern="a/?")
        for method in ("ListObjects", "WatchBucket"):
            request = {"bucket": "logs", "prefix": "a/1"}
            await self.refused("PERMISSION_DENIED", method, request, single)
        for bucket, key in (("logs", "b"), ("other", "a/1")):
            names = {"bucket": bucket, "key": key}
            await self.refused("PERMISSION_DENIED", "HeadObject", names, narrow)
            await self.refused("PERMISSION_DENIED", "PutObject", upload(bucket, key), narrow)
            copy = {"fromBucket": bucket, "fromKey": key, "bucket": "logs", "key": "a/2"}
            await self.refused("PERMISSION_DENIED", "CopyObject", copy, narrow)
