"""What boto3 with its default settings stores, it gets back."""

import hashlib
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

from botocore.exceptions import ClientError

from tests.support.s3signer import ANSWER_SECONDS, Outgoing, Signer, exchange, wireBytes
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case, makeDaemon, ownDirectory

KIB = 1 << 10
MIB = 1 << 20


def pattern(size: int) -> bytes:
    """Make bytes in which every place can be told from its neighbours."""
    block = b"".join(b"%015d\n" % number for number in range(min(size, 65536) // 16 + 1))
    return (block * (size // len(block) + 1))[:size]


class BucketTests(S3Case):
    """Buckets come and go."""

    def test_lifeOfABucket(self) -> None:
        """A bucket is made, found, listed, and gone once it is deleted."""
        name = self.makeName()
        self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)
        made = self.s3.create_bucket(Bucket=name)
        self.assertEqual(made["Location"], f"/{name}")
        self.assertEqual(made["ResponseMetadata"]["HTTPStatusCode"], 200)
        self.s3.head_bucket(Bucket=name)
        self.assertIn(name, [bucket["Name"] for bucket in self.s3.list_buckets()["Buckets"]])
        gone = self.s3.delete_bucket(Bucket=name)
        self.assertEqual(gone["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)

    def test_sameBucketTwice(self) -> None:
        """
        In us-east-1 one's own bucket can be created again, which resets its ACL and nothing else; a
        request that names what the bucket lacks is a conflict.
        """
        name = self.makeBucket()
        self.s3.put_object(Bucket=name, Key="k", Body=b"x")
        self.s3.put_bucket_acl(Bucket=name, ACL="public-read")
        for acl, count in (({"ACL": "public-read"}, 2), ({}, 1), ({"ACL": "private"}, 1)):
            made = self.s3.create_bucket(Bucket=name, **acl)
            self.assertEqual(made["ResponseMetadata"]["HTTPStatusCode"], 200)
            self.assertEqual(made["Location"], f"/{name}")
            self.assertEqual(len(self.s3.get_bucket_acl(Bucket=name)["Grants"]), count)
        self.assertHolds(name, "k", b"x")
        tags = {"Tags": [{"Key": "team", "Value": "blue"}]}
        for more in (
            {"ObjectLockEnabledForBucket": True},
            {"ObjectOwnership": "BucketOwnerEnforced"},
            {"CreateBucketConfiguration": tags},
        ):
            self.assertRefused(
                409, "BucketAlreadyOwnedByYou", self.s3.create_bucket, Bucket=name, **more
            )
        controls = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        self.s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=controls)
        self.s3.create_bucket(Bucket=name, ObjectOwnership="BucketOwnerEnforced")
        self.assertRefused(
            400,
            "AccessControlListNotSupported",
            self.s3.create_bucket,
            Bucket=name,
            ACL="public-read",
        )

    @long("starts a daemon")
    def test_elsewhere(self) -> None:
        """In another region one's own bucket that is created again is a conflict."""
        daemon = makeDaemon(ownDirectory("elsewhere") / "data", STORAGEGATE_REGION="eu-west-1")
        self.addCleanup(daemon.kill)
        host = daemon.start().url("s3").partition("://")[2]
        request = Signer(host, region="eu-west-1").sign(Outgoing("PUT", "/twice"))
        self.assertEqual(exchange(daemon.address("s3"), request).status, 200)
        again = exchange(daemon.address("s3"), request)
        self.assertAnswer(again, 409, "BucketAlreadyOwnedByYou")

    def test_regions(self) -> None:
        """A region that is not one of Amazon's differs from one that is elsewhere."""
        for region, code in (
            ("junk", "InvalidLocationConstraint"),
            ("eu_west_1", "InvalidLocationConstraint"),
            ("eu-west-1", "IllegalLocationConstraintException"),
        ):
            body = f"<LocationConstraint>{region}</LocationConstraint>"
            document = f"<CreateBucketConfiguration>{body}</CreateBucketConfiguration>".encode()
            answer = self.sendSigned(Outgoing("PUT", f"/{self.makeName()}", {}, document))
            self.assertAnswer(answer, 400, code)
            self.assertEqual(body.encode() in answer.body, region != "eu-west-1")
        for region in ("", "us-east-1"):
            body = f"<LocationConstraint>{region}</LocationConstraint>"
            document = f"<CreateBucketConfiguration>{body}</CreateBucketConfiguration>".encode()
            answer = self.sendSigned(Outgoing("PUT", f"/{self.makeName()}", {}, document))
            self.assertEqual(answer.status, 200, answer)

    def test_bucketWithObjects(self) -> None:
        """A bucket that holds an object stays."""
        name = self.makeBucket()
        self.s3.put_object(Bucket=name, Key="k", Body=b"x")
        answer = self.assertRefused(409, "BucketNotEmpty", self.s3.delete_bucket, Bucket=name)
        self.assertEqual(answer["Error"]["BucketName"], name)
        self.assertHolds(name, "k", b"x")

    def test_missingBucketAndKey(self) -> None:
        """What is not there is said by name, and deleting it is no error."""
        missing = self.makeName()
        self.assertRefused(404, "NoSuchBucket", self.s3.get_object, Bucket=missing, Key="k")
        self.assertRefused(
            404, "NoSuchBucket", self.s3.put_object, Bucket=missing, Key="k", Body=b"x"
        )
        self.assertRefused(404, "NoSuchBucket", self.s3.list_objects_v2, Bucket=missing)
        self.assertRefused(404, "NoSuchBucket", self.s3.delete_bucket, Bucket=missing)
        name = self.makeBucket()
        self.assertRefused(404, "NoSuchKey", self.s3.get_object, Bucket=name, Key="k")
        gone = self.s3.delete_object(Bucket=name, Key="k")
        self.assertEqual(gone["ResponseMetadata"]["HTTPStatusCode"], 204)

    def test_listBucketsInPages(self) -> None:
        """C{list_buckets} keeps a prefix and pages by a token."""
        names = [self.makeBucket("paged") for _ in range(3)]
        pages = self.s3.get_paginator("list_buckets").paginate(
            Prefix="paged-", PaginationConfig={"PageSize": 2}
        )
        found = [[bucket["Name"] for bucket in page["Buckets"]] for page in pages]
        self.assertEqual(found, [names[:2], names[2:]])

    def test_bucketsOfARegion(self) -> None:
        """Another region has no buckets and no further page; a region of no form is refused."""
        names = [self.makeBucket("region") for _ in range(3)]
        listed = {"Prefix": "region-", "MaxBuckets": 2}
        other = self.s3.list_buckets(**listed, BucketRegion="eu-west-1")
        self.assertEqual(other["Buckets"], [])
        self.assertNotIn("ContinuationToken", other)
        own = self.s3.list_buckets(**listed, BucketRegion="us-east-1")
        self.assertEqual([each["Name"] for each in own["Buckets"]], names[:2])
        rest = {"Prefix": "region-", "ContinuationToken": own["ContinuationToken"]}
        own = self.s3.list_buckets(**rest, BucketRegion="us-east-1")
        self.assertEqual([each["Name"] for each in own["Buckets"]], names[2:])
        for region in ("abc", "eu-west", "EU-WEST-1"):
            self.assertRefused(400, "InvalidArgument", self.s3.list_buckets, BucketRegion=region)


class SizeTests(S3Case):
    """Objects of every size that a boundary is at."""

    def test_sizes(self) -> None:
        """From nothing to over the row's 64 KiB and the part's 5 MiB, bytes come back whole."""
        bucket = self.makeBucket()
        for size in (0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB + 7, 5 * MIB):
            body = pattern(size)
            put = self.s3.put_object(Bucket=bucket, Key=str(size), Body=body)
            etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
            self.assertEqual(put["ETag"], etag)
            head = self.s3.head_object(Bucket=bucket, Key=str(size))
            self.assertEqual((head["ContentLength"], head["ETag"]), (size, etag))
            self.assertHolds(bucket, str(size), body)

    @long("takes seconds")
    def test_200MBTransfer(self) -> None:
        """A file of 200 MB goes up in parallel parts and comes down in parallel ranges, whole."""
        bucket = self.makeBucket()
        directory = self.makeDirectory()
        body = pattern(200_000_000)
        (directory / "up").write_bytes(body)
        self.s3.upload_file(str(directory / "up"), bucket, "large")
        head = self.s3.head_object(Bucket=bucket, Key="large")
        self.assertEqual(head["ContentLength"], len(body))
        self.assertRegex(head["ETag"], r'^"[0-9a-f]{32}-24"$')
        self.s3.download_file(bucket, "large", str(directory / "down"))
        self.assertTrue((directory / "down").read_bytes() == body)

    def test_uploadFileobj(self) -> None:
        """A stream whose size nobody knows is stored whole."""
        bucket = self.makeBucket()
        body = pattern(9 * MIB + 3)
        self.s3.upload_fileobj(BytesIO(body), bucket, "stream")
        found = BytesIO()
        self.s3.download_fileobj(bucket, "stream", found)
        self.assertTrue(found.getvalue() == body)


class HeaderTests(S3Case):
    """What is said about an object is kept and given back."""

    def test_bucketKey(self) -> None:
        """A bucket key without a kind asks for no encryption."""
        bucket = self.makeBucket()
        for value, status in (("false", 200), ("TRUE", 200), ("perhaps", 400)):
            headers = {"x-amz-server-side-encryption-bucket-key-enabled": value}
            for method, target in (("PUT", "k"), ("POST", "m?uploads")):
                answer = self.sendSigned(Outgoing(method, f"/{bucket}/{target}", headers))
                self.assertEqual(answer.status, status, answer)
                self.assertNotIn("x-amz-server-side-encryption", answer.headers)

    def test_allHeadersKept(self) -> None:
        """The six content headers and the user's metadata come back on GET and HEAD."""
        bucket = self.makeBucket()
        said = {
            "ContentType": "text/x-test; charset=utf-8",
            "ContentEncoding": "x-unknown",
            "ContentDisposition": 'attachment; filename="a b.txt"',
            "ContentLanguage": "de-AT",
            "CacheControl": "max-age=60, private",
            "Metadata": {"one": "1", "mixed-case": "Kept As Is", "empty": ""},
        }
        expires = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x", Expires=expires, **said)
        for call in (self.s3.get_object, self.s3.head_object):
            found = call(Bucket=bucket, Key="k")
            self.assertEqual({name: found[name] for name in said}, said)
            self.assertEqual(found["ExpiresString"], "Mon, 03 Feb 2031 04:05:06 GMT")
            self.assertEqual(found["AcceptRanges"], "bytes")
            self.assertEqual(found.get("StorageClass", "STANDARD"), "STANDARD")

    def test_contentEncoding(self) -> None:
        """An encoding is kept as it came, without C{aws-chunked}; repeated fields are joined."""
        bucket = self.makeBucket()
        for number, (sent, kept) in enumerate(
            (
                ("deflate, gzip", "deflate, gzip"),
                ("deflate,gzip", "deflate,gzip"),
                ("aws-chunked, deflate,  gzip", "deflate,  gzip"),
                ("gzip ,AWS-chunked", "gzip"),
                ("gzip,aws-chunked,br", "gzip,br"),
                ("aws-chunked", None),
            )
        ):
            key = str(number)
            self.s3.put_object(Bucket=bucket, Key=key, Body=b"x", ContentEncoding=sent)
            found = self.s3.head_object(Bucket=bucket, Key=key).get("ContentEncoding")
            self.assertEqual(found, kept, sent)
        # Signed, they are joined by the comma alone.
        signed = self.signer.sign(
            Outgoing("PUT", f"/{bucket}/k", {"content-encoding": "deflate,gzip"}, b"x")
        )
        wire = wireBytes(signed, self.host).replace(
            b"content-encoding: deflate,gzip",
            b"content-encoding: deflate\r\nCONTENT-encoding: gzip",
        )
        with socket.create_connection(self.address, ANSWER_SECONDS) as connection:
            connection.sendall(wire)
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200"))
        found = self.s3.head_object(Bucket=bucket, Key="k")["ContentEncoding"]
        self.assertEqual(found, "deflate, gzip")

    def test_defaultContentType(self) -> None:
        """An object without a stated type is C{binary/octet-stream}, as on S3."""
        bucket = self.makeBucket()
        answer = self.sendSigned(Outgoing("PUT", f"/{bucket}/k", {}, b"x"))
        self.assertEqual(answer.status, 200)
        found = self.s3.head_object(Bucket=bucket, Key="k")
        self.assertEqual(found["ContentType"], "binary/octet-stream")

    def test_encodedWordsKept(self) -> None:
        """Metadata that a client sent as RFC 2047 words goes back as it came."""
        bucket = self.makeBucket()
        words = {"name": "=?UTF-8?B?R3LDvMOfZQ==?=", "other": "=?UTF-8?Q?Gr=C3=BC=C3=9Fe?="}
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata=words)
        self.assertEqual(self.s3.head_object(Bucket=bucket, Key="k")["Metadata"], words)

    def test_metadataTooLarge(self) -> None:
        """2 KiB of metadata pass, one byte more is refused and nothing is stored."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"a": "v" * 2047})
        self.assertRefused(
            400,
            "MetadataTooLarge",
            self.s3.put_object,
            Bucket=bucket,
            Key="over",
            Body=b"x",
            Metadata={"a": "v" * 2048},
        )
        self.assertMissing(bucket, "over")


class ReadTests(S3Case):
    """Parts of objects, and reads under a condition."""

    def setUp(self) -> None:
        """Store one object."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.body = pattern(300_000)
        self.etag = self.s3.put_object(Bucket=self.bucket, Key="k", Body=self.body)["ETag"]

    def test_ranges(self) -> None:
        """Every form of a single range gives those bytes, and says which they are."""
        for asked, first, last in (
            ("bytes=0-0", 0, 0),
            ("bytes=10-19", 10, 19),
            ("bytes=299990-", 299_990, 299_999),
            ("bytes=-5", 299_995, 299_999),
            ("bytes=65530-131080", 65_530, 131_080),
            ("bytes=299999-999999", 299_999, 299_999),
            ("bytes=-999999", 0, 299_999),
        ):
            found = self.s3.get_object(Bucket=self.bucket, Key="k", Range=asked)
            self.assertEqual(found["ResponseMetadata"]["HTTPStatusCode"], 206)
            self.assertEqual(found["ContentRange"], f"bytes {first}-{last}/300000")
            self.assertTrue(found["Body"].read() == self.body[first : last + 1], asked)

    def test_rangePastTheEnd(self) -> None:
        """A range outside the object is 416, and says how large the object is."""
        answer = self.assertRefused(
            416,
            "InvalidRange",
            self.s3.get_object,
            Bucket=self.bucket,
            Key="k",
            Range="bytes=300000-",
        )
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        self.assertEqual(headers["content-range"], "bytes */300000")

    def test_rangeOfAnotherObjectSinceHead(self) -> None:
        """A ranged read that names the ETag it began with is refused after an overwrite."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"other")
        self.assertRefused(
            412,
            "PreconditionFailed",
            self.s3.get_object,
            Bucket=self.bucket,
            Key="k",
            Range="bytes=0-1",
            IfMatch=self.etag,
        )

    def test_conditions(self) -> None:
        """The four conditions hold or fail as S3 has them, on GET and HEAD."""
        modified = self.s3.head_object(Bucket=self.bucket, Key="k")["LastModified"]
        before, after = modified - timedelta(hours=1), modified + timedelta(hours=1)
        for call in (self.s3.get_object, self.s3.head_object):
            for holds in (
                {"IfMatch": self.etag},
                {"IfMatch": "*"},
                {"IfNoneMatch": '"0"'},
                {"IfModifiedSince": before},
                {"IfUnmodifiedSince": after},
                {"IfMatch": self.etag, "IfUnmodifiedSince": before},
            ):
                found = call(Bucket=self.bucket, Key="k", **holds)
                self.assertEqual(found["ETag"], self.etag, holds)
            for fails, status in (
                ({"IfMatch": '"0"'}, 412),
                ({"IfUnmodifiedSince": before}, 412),
                ({"IfNoneMatch": self.etag}, 304),
                ({"IfModifiedSince": after - timedelta(hours=1)}, 304),
                ({"IfNoneMatch": self.etag, "IfModifiedSince": before}, 304),
            ):
                self.assertStatus(status, call, **fails)

    def assertStatus(self, status: int, call: Callable[..., Any], **condition: Any) -> None:
        """Check the status of a refused read; HEAD and 304 have no code."""
        with self.assertRaises(ClientError) as caught:
            call(Bucket=self.bucket, Key="k", **condition)
        found = caught.exception.response["ResponseMetadata"]["HTTPStatusCode"]
        self.assertEqual(found, status, condition)

    def test_attributes(self) -> None:
        """C{get_object_attributes} tells ETag, size, class and checksum."""
        found = self.s3.get_object_attributes(
            Bucket=self.bucket,
            Key="k",
            ObjectAttributes=["ETag", "ObjectSize", "StorageClass", "Checksum"],
        )
        self.assertEqual(found["ETag"], self.etag.strip('"'))
        self.assertEqual(found["ObjectSize"], 300_000)
        self.assertEqual(found["StorageClass"], "STANDARD")
        # boto3 sends a CRC32 unless told otherwise.
        stored = self.s3.head_object(Bucket=self.bucket, Key="k", ChecksumMode="ENABLED")
        self.assertEqual(found["Checksum"]["ChecksumCRC32"], stored["ChecksumCRC32"])
        self.assertEqual(found["Checksum"]["ChecksumType"], "FULL_OBJECT")

    def test_noChecksumOnAPart(self) -> None:
        """A ranged answer carries no checksum of the whole: boto3 would take it for the part's."""
        found = self.s3.get_object(
            Bucket=self.bucket, Key="k", Range="bytes=0-9", ChecksumMode="ENABLED"
        )
        names = found["ResponseMetadata"]["HTTPHeaders"]
        crcs = [name for name in names if name.startswith("x-amz-checksum-crc")]
        self.assertEqual(crcs, [])
        self.assertEqual(found["Body"].read(), self.body[:10])


class CopyTests(S3Case):
    """Objects are copied inside the store."""

    def setUp(self) -> None:
        """Store a source."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.body = pattern(100_000)
        self.etag = self.s3.put_object(
            Bucket=self.bucket,
            Key="from",
            Body=self.body,
            ContentType="text/plain",
            Metadata={"a": "1"},
        )["ETag"]

    def test_copy(self) -> None:
        """A copy has the bytes, type and metadata of its source, and outlives it."""
        other = self.makeBucket()
        done = self.s3.copy_object(
            Bucket=other, Key="to", CopySource={"Bucket": self.bucket, "Key": "from"}
        )
        self.assertEqual(done["CopyObjectResult"]["ETag"], self.etag)
        self.s3.delete_object(Bucket=self.bucket, Key="from")
        head = self.s3.head_object(Bucket=other, Key="to")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/plain", {"a": "1"}))
        self.assertHolds(other, "to", self.body)

    def test_replace(self) -> None:
        """A copy with C{REPLACE} takes the request's own type and metadata, also onto itself."""
        self.s3.copy_object(
            Bucket=self.bucket,
            Key="from",
            CopySource=f"{self.bucket}/from",
            MetadataDirective="REPLACE",
            ContentType="text/html",
            Metadata={"b": "2"},
        )
        head = self.s3.head_object(Bucket=self.bucket, Key="from")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/html", {"b": "2"}))
        self.assertHolds(self.bucket, "from", self.body)

    def test_ontoItself(self) -> None:
        """A copy onto itself that changes nothing is refused, as on S3."""
        self.assertRefused(
            400,
            "InvalidRequest",
            self.s3.copy_object,
            Bucket=self.bucket,
            Key="from",
            CopySource=f"{self.bucket}/from",
        )

    def test_conditions(self) -> None:
        """A copy happens only if the source is what the caller says it is."""
        target = {"Bucket": self.bucket, "Key": "to", "CopySource": f"{self.bucket}/from"}
        for failing in ({"CopySourceIfMatch": '"0"'}, {"CopySourceIfNoneMatch": self.etag}):
            self.assertRefused(412, "PreconditionFailed", self.s3.copy_object, **target, **failing)
            self.assertMissing(self.bucket, "to")
        self.s3.copy_object(**target, CopySourceIfMatch=self.etag)
        self.assertHolds(self.bucket, "to", self.body)

    def test_missingSource(self) -> None:
        """A copy of nothing says so."""
        self.assertRefused(
            404,
            "NoSuchKey",
            self.s3.copy_object,
            Bucket=self.bucket,
            Key="to",
            CopySource=f"{self.bucket}/nothing",
        )
