"""The header fields of an upload to the console."""

from base64 import b64encode
from hashlib import md5, sha256

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.uploadfields import (
    attributesOf,
    uploadAttributes,
    uploadExpectation,
    writeCondition,
)
from storagegate.core.errors import ServiceError
from storagegate.objects.checksums import ExpectedChecksum
from storagegate.objects.documents.fields import attributesFrom
from storagegate.objects.errors import InvalidDigest, InvalidTag, MetadataTooLarge
from storagegate.storage.records import WriteCondition


class UploadFieldTests(SynchronousTestCase):
    """Conditions, attributes and declarations."""

    def test_conditions(self) -> None:
        """Conditions are those of HTTP; any other text is refused."""
        for headers, expected in (
            ({}, WriteCondition()),
            ({b"if-none-match": b"*"}, WriteCondition(absent=True)),
            ({b"if-none-match": b'W/"a", "b"'}, WriteCondition(unlike=("a", "b"))),
            ({b"if-match": b'"a"'}, WriteCondition(etags=("a",))),
        ):
            self.assertEqual(writeCondition(headers), expected, headers)
        for wrong in ({b"if-none-match": b"any"}, {b"if-match": b" "}):
            error = self.assertRaises(ServiceError, writeCondition, wrong)
            self.assertEqual(error.statusCode, 400, wrong)

    def test_attributes(self) -> None:
        """Type, stored fields, metadata and tags are kept, and nothing else."""
        found = uploadAttributes(
            {
                b"content-type": b"text/plain",
                b"content-language": b"de",
                b"cache-control": b"max-age=1",
                b"x-amz-meta-of": "\xe4".encode(),
                b"x-amz-tagging": b"a=b&c=%20d",
                b"x-amz-storage-class": b"GLACIER_IR",
            }
        )
        self.assertEqual(found.contentType, "text/plain")
        self.assertEqual(found.headers, {"content-language": "de"})
        self.assertEqual(found.metadata, {"of": "=?utf-8?b?w6Q=?="})
        self.assertEqual((found.tags, found.storageClass), ("a=b&c=+d", "STANDARD"))
        self.assertEqual(uploadAttributes({}).contentType, "binary/octet-stream")
        self.assertRaises(MetadataTooLarge, uploadAttributes, {b"x-amz-meta-a": b"x" * 2048})
        self.assertRaises(InvalidTag, uploadAttributes, {b"x-amz-tagging": b"aws:a=b"})
        for wrong in (b"a=%zz", b"a=%ff"):
            headers = {b"x-amz-tagging": wrong}
            self.assertRaises(ServiceError, uploadAttributes, headers)

    def test_asS3(self) -> None:
        """Bytes that are not UTF-8 are kept as S3 keeps them."""
        headers = {b"content-type": b"a/\xe4", b"x-amz-meta-of": b"\xe4"}
        found = uploadAttributes(headers)
        self.assertEqual(found, attributesFrom(headers))
        self.assertEqual((found.contentType, found.metadata), ("a/\xe4", {"of": "\xe4"}))

    def test_declarations(self) -> None:
        """A digest is declared as in S3: an MD5, or one checksum."""
        digest, value = md5(b"x").digest(), b64encode(sha256(b"x").digest())
        headers = {b"content-md5": b64encode(digest), b"x-amz-checksum-sha256": value}
        found = uploadExpectation(headers, 1, "CRC32")
        self.assertEqual((found.length, found.md5, found.algorithm), (1, digest, "CRC32"))
        self.assertEqual(found.checksum, ExpectedChecksum("SHA256", value.decode()))
        for wrong in (
            {b"x-amz-checksum-sha256": b"x"},
            {b"x-amz-checksum-sha256": value, b"x-amz-checksum-crc32": b"AAAAAA=="},
            {b"x-amz-trailer": b"x-amz-checksum-crc32"},
        ):
            error = self.assertRaises(ServiceError, uploadExpectation, wrong, 1, "CRC32")
            self.assertEqual(error.statusCode, 400, wrong)
        self.assertRaises(InvalidDigest, uploadExpectation, {b"content-md5": b"x"}, 1, "CRC32")

    def test_json(self) -> None:
        """Attributes from JSON have the same form, and no text that a header cannot have."""
        found = attributesOf("a/b", {"Of": "\xe4"}, {"Content-Language": "de", "X-Other": "x"})
        self.assertEqual(found.metadata, {"of": "=?utf-8?b?w6Q=?="})
        self.assertEqual((found.contentType, found.headers), ("a/b", {"content-language": "de"}))
        for wrong in (("a\nb", {}, {}), ("", {"a b": "x"}, {}), ("", {}, {"a": "\x00"})):
            self.assertRaises(ServiceError, attributesOf, *wrong)
