"""The header fields that describe an object, which S3 and the console share."""

import hashlib

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.documents.fields import (
    LEGAL_HOLD,
    MODE,
    UNTIL,
    attributesFrom,
    contentMD5,
    declared,
    lockFrom,
    tagsOfHeader,
    writeCondition,
)
from storagegate.objects.errors import (
    InvalidArgument,
    InvalidDigest,
    InvalidRequest,
    InvalidStorageClass,
    InvalidTag,
    MetadataTooLarge,
    UnsupportedFeature,
)
from storagegate.objects.tags import encodeTags
from storagegate.storage.records import UNCONDITIONAL, UNLOCKED, ObjectLock, WriteCondition
from tests.objects.test_tags import TAGS

ETAG = "d41d8cd98f00b204e9800998ecf8427e"


class TagTests(SynchronousTestCase):
    """C{x-amz-tagging}."""

    def test_parse(self) -> None:
        """Pairs are decoded as a query is; what has neither key nor value is no tag."""
        for header, tags in (
            (b"", {}),
            (b"&", {}),
            (b"a=b", {"a": "b"}),
            (b" a=b&c=d ", {"a": "b", "c": "d"}),
            (b"a", {"a": ""}),
            (b"a=&&b", {"a": "", "b": ""}),
            (b"a=b=c", {"a": "b=c"}),
            (b"a+b=c%2Bd%20e", {"a b": "c+d e"}),
            ("Größe=東京".encode(), {"Größe": "東京"}),
            (b"Gr%C3%B6%C3%9Fe=1", {"Größe": "1"}),
        ):
            self.assertEqual(tagsOfHeader(header), tags, header)

    def test_refused(self) -> None:
        """What is not encoded well is C{InvalidArgument}, what breaks a rule C{InvalidTag}."""
        for header in (b"a=%", b"a=%zz", b"%ff=a", b"\xff"):
            error = self.assertRaises(InvalidArgument, tagsOfHeader, header)
            self.assertEqual(error.details["name"], "x-amz-tagging")
        for header in (b"=a", b"a=1&a=2", b"a%26=1", b"aws:a=1"):
            self.assertRaises(InvalidTag, tagsOfHeader, header)

    @given(tags=TAGS)
    def test_encoded(self, tags: dict[str, str]) -> None:
        """What was encoded is read again."""
        header = encodeTags(tags)
        self.assertTrue(header.isascii())
        found = tagsOfHeader(header.encode())
        self.assertEqual(list(found.items()), list(tags.items()))


class AttributeTests(SynchronousTestCase):
    """Attributes of an object."""

    def test_kept(self) -> None:
        """Type, stored fields, metadata, tags and class are kept as they came, and nothing else."""
        found = attributesFrom(
            {
                b"content-type": b"text/plain",
                b"cache-control": b"no-cache",
                b"content-encoding": b"aws-chunked, gzip",
                b"expires": b"",
                b"x-amz-meta-a": b"1",
                b"x-amz-meta-b": "\xe4".encode(),
                b"x-amz-meta-c": b"\xe4",
                b"x-amz-tagging": b"a=b",
                b"x-amz-storage-class": b"GLACIER_IR",
                b"x-other": b"x",
            }
        )
        self.assertEqual((found.contentType, found.tags), ("text/plain", "a=b"))
        self.assertEqual(found.headers, {"cache-control": "no-cache", "content-encoding": "gzip"})
        self.assertEqual(found.metadata, {"a": "1", "b": "=?utf-8?b?w6Q=?=", "c": "\xe4"})
        self.assertEqual((found.storageClass, found.lock), ("GLACIER_IR", UNLOCKED))

    def test_defaults(self) -> None:
        """Without fields, an object has the type that S3 gives it."""
        found = attributesFrom({})
        self.assertEqual((found.contentType, found.headers), ("binary/octet-stream", {}))

    def test_refused(self) -> None:
        """Metadata have a limit, and a class must be known."""
        attributesFrom({b"x-amz-meta-a": b"x" * 2047})
        self.assertRaises(MetadataTooLarge, attributesFrom, {b"x-amz-meta-a": b"x" * 2048})
        headers = {b"x-amz-storage-class": b"GLACIER"}
        self.assertRaises(InvalidStorageClass, attributesFrom, headers)


class LockTests(SynchronousTestCase):
    """The lock of an object."""

    def test_read(self) -> None:
        """A retention has a mode and a date, a legal hold stands alone."""
        until = {MODE: b"GOVERNANCE", UNTIL: b"2099-01-01T00:00:00Z"}
        self.assertIs(lockFrom({}), UNLOCKED)
        self.assertEqual(lockFrom(until), ObjectLock("GOVERNANCE", 4_070_908_800_000))
        self.assertEqual(lockFrom({LEGAL_HOLD: b"OFF"}), ObjectLock(legalHold=False))
        held = {**until, LEGAL_HOLD: b" ON "}
        self.assertEqual(lockFrom(held), ObjectLock("GOVERNANCE", 4_070_908_800_000, True))
        self.assertEqual(attributesFrom(held).lock, lockFrom(held))

    def test_refused(self) -> None:
        """One of the two alone, or a value that is none, is refused by the name of its field."""
        mode, until = {MODE: b"COMPLIANCE"}, {UNTIL: b"2099-01-01T00:00:00Z"}
        for headers, name in (
            (mode, UNTIL),
            (until, MODE),
            ({**until, MODE: b"governance"}, MODE),
            ({**mode, UNTIL: b"tomorrow"}, UNTIL),
            ({LEGAL_HOLD: b"on"}, LEGAL_HOLD),
        ):
            error = self.assertRaises(InvalidArgument, lockFrom, headers)
            self.assertEqual(error.details["name"], name.decode(), headers)


class ConditionTests(SynchronousTestCase):
    """Conditions of a write."""

    def test_read(self) -> None:
        """If-Match compares strongly, If-None-Match weakly; this store's ETags need no quotes."""
        for headers, wanted in (
            ({}, UNCONDITIONAL),
            ({b"if-none-match": b"*"}, WriteCondition(absent=True)),
            ({b"if-none-match": b'W/"a", "b"'}, WriteCondition(unlike=("a", "b"))),
            ({b"if-none-match": ETAG.encode()}, WriteCondition(unlike=(ETAG,))),
            ({b"if-match": b'"a" , W/"b"'}, WriteCondition(etags=("a", 'W/"b'))),
            ({b"if-match": b"*"}, WriteCondition(etags=("*",))),
        ):
            self.assertEqual(writeCondition(headers), wanted, headers)

    def test_refused(self) -> None:
        """An empty condition is refused, and an If-None-Match that is none of HTTP's."""
        for name in ("If-Match", "If-None-Match"):
            headers = {name.lower().encode(): b" "}
            error = self.assertRaises(InvalidArgument, writeCondition, headers)
            self.assertEqual(error.details["name"], name)
        error = self.assertRaises(UnsupportedFeature, writeCondition, {b"if-none-match": b"any"})
        self.assertEqual(error.details, {"argument": "If-None-Match"})


class DigestTests(SynchronousTestCase):
    """Digests of the body."""

    def test_declared(self) -> None:
        """One checksum, in Base64 of the right length; a completion may add the parts."""
        self.assertIsNone(declared({b"x-amz-checksum-mode": b"ENABLED"}))
        name = b"x-amz-checksum-crc32"
        self.assertEqual(declared({name: b"AAAAAA=="}), ("CRC32", "AAAAAA=="))
        counted = {name: b"AAAAAA==-2"}
        self.assertEqual(declared(counted, hasCount=True), ("CRC32", "AAAAAA==-2"))
        for headers in (
            counted,
            {name: b"AAAA"},
            {name: b"AAAAAA==", b"x-amz-checksum-sha1": b"x"},
            {b"x-amz-checksum-md4": b"AAAAAA=="},
        ):
            self.assertRaises(InvalidRequest, declared, headers)

    def test_contentMD5(self) -> None:
        """C{Content-MD5} is 16 bytes in Base64."""
        self.assertIsNone(contentMD5({}))
        headers = {b"content-md5": b"1B2M2Y8AsgTpgAmY7PhCfg=="}
        self.assertEqual(contentMD5(headers), hashlib.md5(b"").digest())
        for bad in (b"", b"YWJj", b"1B2M2Y8AsgTpgAmY7PhCfg", b"d41d8cd98f00b204e9800998ecf8427e"):
            error = self.assertRaises(InvalidDigest, contentMD5, {b"content-md5": bad})
            self.assertEqual(error.details, {"contentMD5": bad.decode()})
