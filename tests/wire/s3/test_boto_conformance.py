"""Corners of the protocol that clients lean on when something went wrong before."""

from datetime import timedelta
from typing import Any

from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case

MIB = 1 << 20
PARTS = (b"a" * 5 * MIB, b"the rest")


class ConformanceCase(S3Case):
    """Have a bucket."""

    def setUp(self) -> None:
        """Make the bucket."""
        super().setUp()
        self.bucket = self.makeBucket()


class DeleteTests(ConformanceCase):
    """Deletes with conditions."""

    def test_ifMatch(self) -> None:
        """What is deleted is what was meant: another ETag is 412, any of several will do."""
        etag = self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")["ETag"]
        delete = self.s3.delete_object
        named = {"Bucket": self.bucket, "Key": "k"}
        self.assertRefused(412, "PreconditionFailed", delete, **named, IfMatch='"0"')
        self.assertHolds(self.bucket, "k", b"x")
        delete(**named, IfMatch=f'"0", {etag}')
        self.assertMissing(self.bucket, "k")
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        delete(**named, IfMatch="*")
        self.assertMissing(self.bucket, "k")
        self.assertRefused(404, "NoSuchKey", delete, **named, IfMatch=etag)

    def test_directoryConditions(self) -> None:
        """A size and a time are conditions of what exists, and of nothing but a DELETE."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        modified = self.s3.head_object(Bucket=self.bucket, Key="k")["LastModified"]
        delete = self.s3.delete_object
        named = {"Bucket": self.bucket, "Key": "k"}
        early = modified - timedelta(seconds=1)
        for condition in ({"IfMatchSize": 7}, {"IfMatchLastModifiedTime": early}):
            self.assertRefused(412, "PreconditionFailed", delete, **named, **condition)
        answer = self.sendSigned(
            Outgoing("PUT", f"/{self.bucket}/k", {"x-amz-if-match-size": "1"}, b"y")
        )
        self.assertAnswer(answer, 501, "NotImplemented")
        for headers in ({"x-amz-if-match-size": "a"}, {"x-amz-if-match-last-modified-time": "x"}):
            answer = self.sendSigned(Outgoing("DELETE", f"/{self.bucket}/k", headers))
            self.assertAnswer(answer, 400, "InvalidArgument")
        self.assertHolds(self.bucket, "k", b"x")
        for _ in range(2):
            delete(**named, IfMatchSize=1, IfMatchLastModifiedTime=modified)
            self.assertMissing(self.bucket, "k")
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        entries = [
            {"Key": "k", "Size": 7},
            {"Key": "k", "LastModifiedTime": early},
            {"Key": "absent", "Size": 7},
        ]
        answer = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": entries})
        codes = [each["Code"] for each in answer["Errors"]]
        self.assertEqual(codes, ["PreconditionFailed"] * 2)
        self.assertEqual([each["Key"] for each in answer["Deleted"]], ["absent"])

    def test_versions(self) -> None:
        """C{null} is the version that there is; an empty one is an error and deletes nothing."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        answer = self.sendSigned(Outgoing("DELETE", f"/{self.bucket}/k?versionId="))
        self.assertAnswer(answer, 400, "InvalidArgument")
        self.assertHolds(self.bucket, "k", b"x")
        self.s3.delete_object(Bucket=self.bucket, Key="k", VersionId="null")
        self.assertMissing(self.bucket, "k")


class ReadTests(ConformanceCase):
    """Reads that go on with what is there already, or ask for less than all."""

    def read(self, query: str = "", **headers: str) -> tuple[int, bytes]:
        """Read the object; give status and body."""
        outgoing = Outgoing("GET", f"/{self.bucket}/k{query}").adding(**headers)
        answer = self.sendSigned(outgoing)
        return answer.status, answer.body

    def test_ifRange(self) -> None:
        """A range counts only while the object is what C{If-Range} names."""
        put = self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"0123456789")
        head = self.s3.head_object(Bucket=self.bucket, Key="k")
        date = head["ResponseMetadata"]["HTTPHeaders"]["last-modified"]
        for value, whole in (
            (put["ETag"], False),
            # Of an object that was just written: it could be that of two.
            (date, True),
            (f'{put["ETag"]}, "0123"', True),
            ('"0123"', True),
            (f"W/{put['ETag']}", True),
            ("Mon, 01 Jan 2001 00:00:00 GMT", True),
            ("yesterday", True),
        ):
            expected = (200, b"0123456789") if whole else (206, b"89")
            self.assertEqual(self.read(range="bytes=8-", If_Range=value), expected, value)

    def test_conditionBeforeRange(self) -> None:
        """A condition is judged before the range: 304 and 412 win over 206 and 416."""
        etag = self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"0123456789")["ETag"]
        for span in ("bytes=0-1", "bytes=100-"):
            self.assertEqual(self.read(range=span, If_None_Match=etag), (304, b""))
            self.assertEqual(self.read(range=span, If_Match='"0"')[0], 412)
        self.assertEqual(self.read(range="bytes=0-1", If_Match=etag), (206, b"01"))

    def test_notModified(self) -> None:
        """A 304 carries what a cache needs and no body."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x", CacheControl="max-age=5")
        etag = self.s3.head_object(Bucket=self.bucket, Key="k")["ETag"]
        answer = self.sendSigned(
            Outgoing("GET", f"/{self.bucket}/k", {"If-None-Match": etag, "Range": "bytes=0-0"})
        )
        self.assertEqual((answer.status, answer.body), (304, b""))
        self.assertEqual(answer.headers["etag"], etag)
        self.assertEqual(answer.headers["cache-control"], "max-age=5")
        self.assertIn("last-modified", answer.headers)

    def test_attributesNotModified(self) -> None:
        """GetObjectAttributes takes conditions too."""
        etag = self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")["ETag"]
        for headers, status in (
            ({"If-None-Match": etag}, 304),
            ({"If-Match": '"0"'}, 412),
            ({"If-Match": etag}, 200),
        ):
            asked = {**headers, "x-amz-object-attributes": "ETag"}
            answer = self.sendSigned(Outgoing("GET", f"/{self.bucket}/k?attributes", asked))
            self.assertEqual(answer.status, status, answer)

    def test_firstPartOfOne(self) -> None:
        """An object in one piece has one part; an empty one too."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"abc")
        self.assertEqual(self.read("?partNumber=1"), (206, b"abc"))
        self.assertEqual(self.read("?partNumber=2")[0], 416)
        self.assertEqual(self.read("?partNumber=1", range="bytes=0-1")[0], 400)
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"")
        self.assertEqual(self.read("?partNumber=1"), (200, b""))

    def test_folder(self) -> None:
        """An empty object whose key ends in a slash is an object like any other."""
        answer = self.sendSigned(
            Outgoing("PUT", f"/{self.bucket}/dir/", {"Content-Type": "application/x-directory"})
        )
        self.assertEqual(answer.status, 200, answer)
        head = self.s3.head_object(Bucket=self.bucket, Key="dir/")
        self.assertEqual(
            (head["ContentLength"], head["ContentType"]), (0, "application/x-directory")
        )
        self.assertMissing(self.bucket, "dir")


class MultipartTests(ConformanceCase):
    """Uploads in parts."""

    def begin(self, **settings: Any) -> dict[str, str]:
        """Begin an upload."""
        made = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k", **settings)
        return {"Bucket": self.bucket, "Key": "k", "UploadId": made["UploadId"]}

    def sendParts(self, upload: dict[str, str]) -> dict[str, Any]:
        """Send both parts; give what completing takes."""
        listed = []
        for number, body in enumerate(PARTS, 1):
            sent = self.s3.upload_part(**upload, PartNumber=number, Body=body)
            sums = {name: value for name, value in sent.items() if name.startswith("Checksum")}
            listed.append({"PartNumber": number, "ETag": sent["ETag"], **sums})
        return {"Parts": listed}

    def test_completedTwice(self) -> None:
        """A completion that is repeated because its answer was lost succeeds as it did before."""
        upload = self.begin()
        parts = self.sendParts(upload)
        first = self.s3.complete_multipart_upload(**upload, MultipartUpload=parts)
        again = self.s3.complete_multipart_upload(**upload, MultipartUpload=parts)
        self.assertEqual(again["ETag"], first["ETag"])
        complete = self.impatient().complete_multipart_upload
        fewer = {"Parts": parts["Parts"][:1]}
        odd = {"Parts": [{"PartNumber": 1, "ETag": '"zz"'}, parts["Parts"][1]]}
        for other in (fewer, odd):
            self.assertRefused(404, "NoSuchUpload", complete, **upload, MultipartUpload=other)
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"written since")
        self.assertRefused(404, "NoSuchUpload", complete, **upload, MultipartUpload=parts)
        self.assertHolds(self.bucket, "k", b"written since")

    def test_partChecksums(self) -> None:
        """A part that is read by its number comes with its own checksum, and HEAD tells it."""
        upload = self.begin(ChecksumAlgorithm="CRC32")
        parts = self.sendParts(upload)
        listed = self.s3.list_parts(**upload)["Parts"]
        for part, entry in zip(parts["Parts"], listed, strict=True):
            part["ChecksumCRC32"] = entry["ChecksumCRC32"]
        self.s3.complete_multipart_upload(**upload, MultipartUpload=parts)
        for call in (self.s3.head_object, self.s3.get_object):
            found = call(Bucket=self.bucket, Key="k", PartNumber=2, ChecksumMode="ENABLED")
            self.assertEqual(found["ChecksumCRC32"], listed[1]["ChecksumCRC32"])
            self.assertEqual((found["PartsCount"], found["ContentLength"]), (2, len(PARTS[1])))
        self.assertNotIn("PartsCount", self.s3.head_object(Bucket=self.bucket, Key="k"))

    def test_attributes(self) -> None:
        """The parts of an object are told in pages."""
        upload = self.begin(ChecksumAlgorithm="CRC32")
        parts = self.sendParts(upload)
        self.s3.complete_multipart_upload(**upload, MultipartUpload=parts)
        named = {"Bucket": self.bucket, "Key": "k", "ObjectAttributes": ["ObjectParts"]}
        first = self.s3.get_object_attributes(**named, MaxParts=1)["ObjectParts"]
        self.assertEqual((first["TotalPartsCount"], first["IsTruncated"]), (2, True))
        self.assertEqual([part["PartNumber"] for part in first["Parts"]], [1])
        rest = self.s3.get_object_attributes(
            **named, PartNumberMarker=first["NextPartNumberMarker"]
        )["ObjectParts"]
        self.assertEqual([part["Size"] for part in rest["Parts"]], [len(PARTS[1])])
        self.assertFalse(rest["IsTruncated"])

    def test_defaultChecksum(self) -> None:
        """An upload of which nothing was said has the CRC64NVME of its bytes in the end."""
        upload = self.begin()
        for number, body in enumerate(PARTS, 1):
            target = f"/{self.bucket}/k?partNumber={number}&uploadId={upload['UploadId']}"
            self.assertEqual(self.sendSigned(Outgoing("PUT", target, {}, body)).status, 200)
        listed = [
            {"PartNumber": part["PartNumber"], "ETag": part["ETag"]}
            for part in self.s3.list_parts(**upload)["Parts"]
        ]
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": listed})
        head = self.s3.head_object(Bucket=self.bucket, Key="k", ChecksumMode="ENABLED")
        self.assertIn("ChecksumCRC64NVME", head)
        self.assertEqual(head["ChecksumType"], "FULL_OBJECT")

    def test_otherType(self) -> None:
        """Completing with another kind of checksum than was begun with is refused."""
        upload = self.begin(ChecksumAlgorithm="CRC32", ChecksumType="COMPOSITE")
        parts = self.sendParts(upload)
        complete = self.s3.complete_multipart_upload
        refused = {**upload, "MultipartUpload": parts, "ChecksumType": "FULL_OBJECT"}
        self.assertRefused(400, "InvalidRequest", complete, **refused)
        self.assertMissing(self.bucket, "k")
        complete(**{**refused, "ChecksumType": "COMPOSITE"})

    def test_foreignUpload(self) -> None:
        """An upload id is good for its bucket and key only."""
        upload = self.begin()["UploadId"]
        other = self.makeBucket()
        self.s3.put_object(Bucket=self.bucket, Key="source", Body=b"x")
        for bucket, key in ((self.bucket, "other"), (other, "k")):
            named = {"Bucket": bucket, "Key": key, "UploadId": upload}
            refused = (404, "NoSuchUpload")
            listed = {"Parts": [{"PartNumber": 1, "ETag": '"0"'}]}
            source = f"{self.bucket}/source"
            self.assertRefused(*refused, self.s3.upload_part, **named, PartNumber=1, Body=b"x")
            self.assertRefused(
                *refused, self.s3.upload_part_copy, **named, PartNumber=1, CopySource=source
            )
            self.assertRefused(*refused, self.s3.list_parts, **named)
            self.assertRefused(*refused, self.s3.abort_multipart_upload, **named)
            self.assertRefused(
                *refused, self.s3.complete_multipart_upload, **named, MultipartUpload=listed
            )


class CopyTests(ConformanceCase):
    """Copies with conditions on either side."""

    def test_conditions(self) -> None:
        """The target's conditions are judged in the write, the source's before it."""
        etag = self.s3.put_object(Bucket=self.bucket, Key="source", Body=b"x")["ETag"]
        named = {"Bucket": self.bucket, "Key": "k", "CopySource": f"{self.bucket}/source"}
        copy = self.s3.copy_object
        failed = (412, "PreconditionFailed")
        self.assertRefused(*failed, copy, **named, CopySourceIfMatch='"0"')
        self.assertRefused(*failed, copy, **named, CopySourceIfNoneMatch=etag)
        self.assertRefused(404, "NoSuchKey", copy, **named, IfMatch=etag)
        copy(**named, IfNoneMatch="*", CopySourceIfMatch=etag)
        self.assertRefused(*failed, copy, **named, IfNoneMatch="*")
        self.assertRefused(*failed, copy, **named, IfMatch='"0"')
        copy(**named, IfMatch=etag)
        self.assertHolds(self.bucket, "k", b"x")
