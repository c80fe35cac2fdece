"""Uploads in parts, by hand, with every checksum; single puts with every checksum."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from awscrt import checksums

from tests.support.journal import inParts
from tests.wire.s3.fixture import S3Case

MIB = 1 << 20
PARTS = [b"a" * 5 * MIB, b"b" * 5 * MIB, b"the rest"]


def _crc(function: Callable[[bytes], int], width: int) -> Callable[[bytes], bytes]:
    return lambda body: function(body).to_bytes(width, "big")


DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32": _crc(checksums.crc32, 4),
    "CRC32C": _crc(checksums.crc32c, 4),
    "CRC64NVME": _crc(checksums.crc64nvme, 8),
    "SHA1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "SHA256": lambda body: hashlib.sha256(body).digest(),
}


def base64Of(digest: bytes) -> str:
    """Write a digest as the headers do."""
    return base64.b64encode(digest).decode()


class ChecksumTests(S3Case):
    """Checksums of objects that come in one piece."""

    def test_everyAlgorithm(self) -> None:
        """Each algorithm's value is kept, given back when asked for, and checked."""
        bucket = self.makeBucket()
        for name, digest in DIGESTS.items():
            member = f"Checksum{name}"
            right = base64Of(digest(b"content"))
            put = self.s3.put_object(Bucket=bucket, Key=name, Body=b"content", **{member: right})
            self.assertEqual(put[member], right)
            head = self.s3.head_object(Bucket=bucket, Key=name, ChecksumMode="ENABLED")
            self.assertEqual(head[member], right)
            self.assertEqual(head["ChecksumType"], "FULL_OBJECT")
            silent = self.s3.head_object(Bucket=bucket, Key=name)
            self.assertNotIn(member, silent)
            read = self.s3.get_object(Bucket=bucket, Key=name, ChecksumMode="ENABLED")
            self.assertEqual(read["Body"].read(), b"content")
            self.assertRefused(
                400,
                "BadDigest",
                self.s3.put_object,
                Bucket=bucket,
                Key="wrong",
                Body=b"content",
                **{member: base64Of(digest(b"other"))},
            )
            self.assertMissing(bucket, "wrong")

    def test_contentMD5(self) -> None:
        """C{Content-MD5} is checked, and one that is no MD5 is refused as such."""
        bucket = self.makeBucket()
        right = base64Of(hashlib.md5(b"content", usedforsecurity=False).digest())
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"content", ContentMD5=right)
        for value, code in (
            (base64Of(hashlib.md5(b"other", usedforsecurity=False).digest()), "BadDigest"),
            ("bm90IGFuIG1kNQ==", "InvalidDigest"),
        ):
            self.assertRefused(
                400,
                code,
                self.s3.put_object,
                Bucket=bucket,
                Key="wrong",
                Body=b"content",
                ContentMD5=value,
            )
            self.assertMissing(bucket, "wrong")


class MultipartTests(S3Case):
    """The life of an upload in parts."""

    def setUp(self) -> None:
        """Have a bucket."""
        super().setUp()
        self.bucket = self.makeBucket()

    def begin(self, key: str = "k", **settings: Any) -> dict[str, str]:
        """Begin an upload and give what names it."""
        made = self.s3.create_multipart_upload(Bucket=self.bucket, Key=key, **settings)
        return {"Bucket": self.bucket, "Key": key, "UploadId": made["UploadId"]}

    def sendParts(self, upload: dict[str, str], **settings: Any) -> list[dict[str, Any]]:
        """Send all parts, the last one first, and list them as completing wants them."""
        listed: list[dict[str, Any]] = []
        for number, body in reversed(list(enumerate(PARTS, 1))):
            sent = self.s3.upload_part(**upload, PartNumber=number, Body=body, **settings)
            sums = {name: value for name, value in sent.items() if name.startswith("Checksum")}
            listed.insert(0, {"PartNumber": number, "ETag": sent["ETag"], **sums})
        return listed

    def test_byHand(self) -> None:
        """Parts in any order of arrival become one object with the ETag of parts."""
        upload = self.begin(ContentType="text/parts", Metadata={"m": "1"})
        parts = self.sendParts(upload)
        self.assertMissing(self.bucket, "k")
        done = self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        self.assertEqual(done["ETag"], inParts(PARTS).etag)
        head = self.s3.head_object(Bucket=self.bucket, Key="k")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/parts", {"m": "1"}))
        self.assertEqual(head["ETag"], inParts(PARTS).etag)
        self.assertHolds(self.bucket, "k", b"".join(PARTS))

    def test_compositeChecksums(self) -> None:
        """A composite checksum is that of the parts' checksums, with their count."""
        for name in ("CRC32", "CRC32C", "SHA1", "SHA256"):
            upload = self.begin(name, ChecksumAlgorithm=name, ChecksumType="COMPOSITE")
            parts = self.sendParts(upload, ChecksumAlgorithm=name)
            digest = DIGESTS[name]
            expected = base64Of(digest(b"".join(map(digest, PARTS)))) + "-3"
            member = f"Checksum{name}"
            self.assertEqual(
                [part[member] for part in parts], [base64Of(digest(part)) for part in PARTS]
            )
            done = self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
            self.assertEqual((done[member], done["ChecksumType"]), (expected, "COMPOSITE"))
            head = self.s3.head_object(Bucket=self.bucket, Key=name, ChecksumMode="ENABLED")
            self.assertEqual((head[member], head["ChecksumType"]), (expected, "COMPOSITE"))

    def test_completeWithCount(self) -> None:
        """The object's checksum may be given to Complete with the count of its parts."""
        upload = self.begin(ChecksumAlgorithm="SHA256")
        parts = self.sendParts(upload, ChecksumAlgorithm="SHA256")
        digest = DIGESTS["SHA256"]
        composite = base64Of(digest(b"".join(map(digest, PARTS))))
        for value in (f"{composite}-2", f"{base64Of(digest(b''))}-3"):
            self.assertRefused(
                400,
                "BadDigest",
                self.s3.complete_multipart_upload,
                **upload,
                MultipartUpload={"Parts": parts},
                ChecksumSHA256=value,
            )
        done = self.s3.complete_multipart_upload(
            **upload, MultipartUpload={"Parts": parts}, ChecksumSHA256=f"{composite}-3"
        )
        self.assertEqual(done["ChecksumSHA256"], f"{composite}-3")
        # As Amazon: here, and only here, without the count.
        shown = self.s3.get_object_attributes(
            Bucket=self.bucket, Key="k", ObjectAttributes=["Checksum", "ObjectParts"]
        )
        self.assertEqual(shown["Checksum"]["ChecksumSHA256"], composite)
        self.assertEqual(shown["Checksum"]["ChecksumType"], "COMPOSITE")

    def test_completeWithoutChecksums(self) -> None:
        """Where the upload named a composite checksum, Complete must name those of the parts."""
        for name in ("SHA256", "CRC32"):
            upload = self.begin(ChecksumAlgorithm=name, ChecksumType="COMPOSITE")
            parts = self.sendParts(upload, ChecksumAlgorithm=name)
            bare = [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in parts]
            answer = self.assertRefused(
                400,
                "InvalidRequest",
                self.s3.complete_multipart_upload,
                **upload,
                MultipartUpload={"Parts": [parts[0], *bare[1:]]},
            )
            self.assertIn("missing for part 2", answer["Error"]["Message"])
            self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        whole = self.begin(ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
        parts = self.sendParts(whole, ChecksumAlgorithm="CRC32")
        bare = [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in parts]
        self.s3.complete_multipart_upload(**whole, MultipartUpload={"Parts": bare})

    def test_partChecksums(self) -> None:
        """A read by part number gives the part's checksum and its type, of a single PUT too."""
        upload = self.begin(ChecksumAlgorithm="SHA256")
        parts = self.sendParts(upload, ChecksumAlgorithm="SHA256")
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        self.s3.put_object(Bucket=self.bucket, Key="single", Body=b"x", ChecksumAlgorithm="CRC32")
        crc = base64Of(DIGESTS["CRC32"](b"x"))
        for call in (self.s3.get_object, self.s3.head_object):
            part = call(Bucket=self.bucket, Key="k", PartNumber=3, ChecksumMode="ENABLED")
            self.assertEqual(part["ChecksumSHA256"], parts[2]["ChecksumSHA256"])
            self.assertEqual(part["ChecksumType"], "COMPOSITE")
            one = call(Bucket=self.bucket, Key="single", PartNumber=1, ChecksumMode="ENABLED")
            self.assertEqual((one["ChecksumCRC32"], one["ChecksumType"]), (crc, "FULL_OBJECT"))
            ranged = call(Bucket=self.bucket, Key="k", Range="bytes=0-1", ChecksumMode="ENABLED")
            self.assertNotIn("ChecksumSHA256", ranged)

    def test_fullObjectChecksums(self) -> None:
        """A full-object checksum is that of the bytes, though the store never saw them in a row."""
        for name in ("CRC32", "CRC32C", "CRC64NVME"):
            upload = self.begin(name, ChecksumAlgorithm=name, ChecksumType="FULL_OBJECT")
            parts = self.sendParts(upload, ChecksumAlgorithm=name)
            member = f"Checksum{name}"
            expected = base64Of(DIGESTS[name](b"".join(PARTS)))
            done = self.s3.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": parts}, **{member: expected}
            )
            self.assertEqual((done[member], done["ChecksumType"]), (expected, "FULL_OBJECT"))
            head = self.s3.head_object(Bucket=self.bucket, Key=name, ChecksumMode="ENABLED")
            self.assertEqual((head[member], head["ChecksumType"]), (expected, "FULL_OBJECT"))

    def test_wrongFullChecksum(self) -> None:
        """Completing with a checksum of other bytes is refused, and the upload stays."""
        upload = self.begin(ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
        parts = self.sendParts(upload, ChecksumAlgorithm="CRC32")
        self.assertRefused(
            400,
            "BadDigest",
            self.s3.complete_multipart_upload,
            **upload,
            MultipartUpload={"Parts": parts},
            ChecksumCRC32=base64Of(b"\0\0\0\0"),
        )
        self.assertMissing(self.bucket, "k")
        self.assertEqual(len(self.s3.list_parts(**upload)["Parts"]), 3)

    def test_completeRefusals(self) -> None:
        """Wrong order, an unknown part, a wrong ETag and a small middle part are each refused."""
        upload = self.begin()
        parts = self.sendParts(upload)
        small = self.s3.upload_part(**upload, PartNumber=4, Body=b"after a small one")
        fourth = {"PartNumber": 4, "ETag": small["ETag"]}
        for listed, code in (
            ([parts[1], parts[0]], "InvalidPartOrder"),
            ([parts[0], {"PartNumber": 9, "ETag": parts[0]["ETag"]}], "InvalidPart"),
            ([{"PartNumber": 1, "ETag": parts[1]["ETag"]}], "InvalidPart"),
            ([*parts, fourth], "EntityTooSmall"),
        ):
            self.assertRefused(
                400,
                code,
                self.s3.complete_multipart_upload,
                **upload,
                MultipartUpload={"Parts": listed},
            )
            self.assertMissing(self.bucket, "k")
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [parts[1]]})
        self.assertHolds(self.bucket, "k", PARTS[1])

    def test_abort(self) -> None:
        """An aborted upload is gone, with its parts."""
        upload = self.begin()
        self.sendParts(upload)
        self.s3.abort_multipart_upload(**upload)
        self.assertRefused(404, "NoSuchUpload", self.s3.list_parts, **upload)
        self.assertRefused(
            404, "NoSuchUpload", self.s3.upload_part, **upload, PartNumber=1, Body=b"late"
        )
        self.assertNotIn("Uploads", self.s3.list_multipart_uploads(Bucket=self.bucket))

    def test_bucketWithUploads(self) -> None:
        """A bucket without objects is deleted with its uploads; one with objects keeps them."""
        upload = self.begin()
        self.sendParts(upload)
        self.begin("other")
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        self.assertRefused(
            409, "BucketNotEmpty", self.impatient().delete_bucket, Bucket=self.bucket
        )
        self.assertEqual(len(self.s3.list_parts(**upload)["Parts"]), 3)
        self.s3.delete_object(Bucket=self.bucket, Key="k")
        self.s3.delete_bucket(Bucket=self.bucket)
        self.s3.create_bucket(Bucket=self.bucket)
        self.assertNotIn("Uploads", self.s3.list_multipart_uploads(Bucket=self.bucket))
        self.assertRefused(404, "NoSuchUpload", self.s3.list_parts, **upload)

    def test_lists(self) -> None:
        """Parts and uploads are listed in order and in pages."""
        uploads = [self.begin(key) for key in ("a", "b", "b", "c/d")]
        pages = self.s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.bucket, PaginationConfig={"PageSize": 2}
        )
        found = [entry["Key"] for page in pages for entry in page["Uploads"]]
        self.assertEqual(found, ["a", "b", "b", "c/d"])
        grouped = self.s3.list_multipart_uploads(Bucket=self.bucket, Delimiter="/", Prefix="c")
        self.assertEqual(grouped["CommonPrefixes"], [{"Prefix": "c/"}])
        for number in (1, 2, 5, 10_000):
            self.s3.upload_part(**uploads[0], PartNumber=number, Body=b"%d" % number)
        pages = self.s3.get_paginator("list_parts").paginate(
            **uploads[0], PaginationConfig={"PageSize": 3}
        )
        sizes = [(part["PartNumber"], part["Size"]) for page in pages for part in page["Parts"]]
        self.assertEqual(sizes, [(1, 1), (2, 1), (5, 1), (10_000, 5)])

    def test_partNumbers(self) -> None:
        """Part numbers run from 1 to 10,000."""
        upload = self.begin()
        for number in (0, 10_001):
            self.assertRefused(
                400, "InvalidArgument", self.s3.upload_part, **upload, PartNumber=number, Body=b"x"
            )

    def test_partCopy(self) -> None:
        """Parts are taken from an object, whole or by range, and the object may go after that."""
        source = b"".join(PARTS)
        self.s3.put_object(Bucket=self.bucket, Key="source", Body=source)
        upload = self.begin()
        listed = []
        for number, span in enumerate((None, f"bytes=3-{5 * MIB + 2}", "bytes=0-0"), 1):
            ranged = {"CopySourceRange": span} if span else {}
            copied = self.s3.upload_part_copy(
                **upload, PartNumber=number, CopySource=f"{self.bucket}/source", **ranged
            )
            listed.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
        self.s3.delete_object(Bucket=self.bucket, Key="source")
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": listed})
        self.assertHolds(self.bucket, "k", source + source[3 : 5 * MIB + 3] + source[:1])

    def test_readByPartNumber(self) -> None:
        """A part of a completed object is read by its number, and the count is told."""
        upload = self.begin()
        parts = self.sendParts(upload)
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        found = self.s3.get_object(Bucket=self.bucket, Key="k", PartNumber=3)
        self.assertEqual((found["Body"].read(), found["PartsCount"]), (PARTS[2], 3))
        self.assertRefused(
            416,
            "InvalidPartNumber",
            self.s3.get_object,
            Bucket=self.bucket,
            Key="k",
            PartNumber=4,
        )
