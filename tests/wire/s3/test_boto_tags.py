"""Tags of objects and buckets, as clients set and read them."""

from typing import Any

from tests.support.clients import awsEnvironment, runTool
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.test_refusals import FormCase


def tagSet(**tags: str) -> list[dict[str, str]]:
    """Write tags as boto3 has them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class ObjectTagTests(S3Case):
    """Tags of objects."""

    def setUp(self) -> None:
        """Have a bucket with a tagged object."""
        super().setUp()
        self.bucket = self.makeBucket("tagged")
        self.target = {"Bucket": self.bucket, "Key": "k"}
        self.s3.put_object(**self.target, Body=b"x", Tagging="a=1&b+c=%2B")

    def tags(self, key: str = "k", **more: Any) -> dict[str, str]:
        """Give the tags of an object."""
        found = self.s3.get_object_tagging(Bucket=self.bucket, Key=key, **more)["TagSet"]
        return {each["Key"]: each["Value"] for each in found}

    def count(self, key: str = "k") -> int | None:
        """Give the number of tags that a HEAD and a GET say, which is the same."""
        found = self.s3.head_object(Bucket=self.bucket, Key=key).get("TagCount")
        read = self.s3.get_object(Bucket=self.bucket, Key=key).get("TagCount")
        self.assertEqual(found, read)
        return found

    def test_put(self) -> None:
        """A PUT sets the tags of its header, and the next one replaces or removes them."""
        self.assertEqual(self.tags(), {"a": "1", "b c": "+"})
        self.assertEqual(self.count(), 2)
        self.s3.put_object(**self.target, Body=b"x")
        self.assertEqual(self.tags(), {})
        self.assertIsNone(self.count())

    def test_change(self) -> None:
        """A change of tags leaves the object, its ETag and its date as they are."""
        before = self.s3.head_object(**self.target)
        many = {f"key-{number}": "v" * 256 for number in range(10)}
        answer = self.s3.put_object_tagging(**self.target, Tagging={"TagSet": tagSet(**many)})
        self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 200)
        self.assertEqual(self.tags(), many)
        after = self.s3.head_object(**self.target)
        for name in ("ETag", "LastModified", "ContentLength"):
            self.assertEqual(before[name], after[name])
        self.assertEqual(after["TagCount"], 10)
        answer = self.s3.delete_object_tagging(**self.target)
        self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertEqual((self.tags(), self.count()), ({}, None))
        self.assertHolds(self.bucket, "k", b"x")

    def test_refused(self) -> None:
        """Tags against the rules, and of what is not there, change nothing."""
        for pairs in (
            [*tagSet(a="1"), *tagSet(a="2")],
            tagSet(**{"k" * 129: ""}),
            tagSet(a="v" * 257),
            tagSet(**{"aws:a": ""}),
            tagSet(a="<"),
        ):
            tagging = {"Tagging": {"TagSet": pairs}}
            self.assertRefused(
                400, "InvalidTag", self.s3.put_object_tagging, **self.target, **tagging
            )
        for header in ("a=1&a=2", "aws:a=1", "a=%3C"):
            self.assertRefused(
                400,
                "InvalidTag",
                self.s3.put_object,
                **{**self.target, "Body": b"y", "Tagging": header},
            )
        for call in (self.s3.get_object_tagging, self.s3.delete_object_tagging):
            self.assertRefused(404, "NoSuchKey", call, Bucket=self.bucket, Key="absent")
        answer = self.sendSigned(Outgoing("PUT", f"/{self.bucket}/k?tagging", {}, b"<Tagging/>"))
        self.assertAnswer(answer, 400, "MalformedXML")
        self.assertEqual(self.tags(), {"a": "1", "b c": "+"})
        self.assertHolds(self.bucket, "k", b"x")

    def test_copy(self) -> None:
        """A copy takes the tags of its source over, or those that it names."""
        source = {"Bucket": self.bucket, "CopySource": f"{self.bucket}/k"}
        for metadata in ("COPY", "REPLACE"):
            self.s3.copy_object(**source, Key="same", MetadataDirective=metadata)
            self.assertEqual(self.tags("same"), self.tags())
            for header, tags in (("c=3", {"c": "3"}), ("", {})):
                self.s3.copy_object(
                    **source,
                    Key="other",
                    MetadataDirective=metadata,
                    TaggingDirective="REPLACE",
                    Tagging=header,
                )
                self.assertEqual(self.tags("other"), tags)
        self.assertRefused(400, "InvalidRequest", self.s3.copy_object, **{**source, "Key": "k"})

    def test_multipart(self) -> None:
        """An upload keeps its tags for the object that it becomes."""
        named = {"Bucket": self.bucket, "Key": "parts"}
        upload = self.s3.create_multipart_upload(**named, Tagging="a=1")["UploadId"]
        etag = self.s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"p")["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        self.s3.complete_multipart_upload(**named, UploadId=upload, MultipartUpload=parts)
        self.assertEqual((self.tags("parts"), self.count("parts")), ({"a": "1"}, 1))

    def test_versions(self) -> None:
        """Each version has its own tags, and a change of them makes none."""
        self.s3.put_bucket_versioning(
            Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
        new = self.s3.put_object(**self.target, Body=b"y", Tagging="n=1")["VersionId"]
        for version, key in (("null", "old"), (new, "new")):
            answer = self.s3.put_object_tagging(
                **self.target, VersionId=version, Tagging={"TagSet": tagSet(**{key: "v"})}
            )
            self.assertEqual(answer["VersionId"], version)
        self.assertEqual(self.tags(), {"new": "v"})
        self.assertEqual(self.tags(VersionId="null"), {"old": "v"})
        self.s3.delete_object_tagging(**self.target, VersionId="null")
        self.assertEqual(self.tags(VersionId="null"), {})
        found = self.s3.list_object_versions(Bucket=self.bucket)["Versions"]
        self.assertEqual([each["VersionId"] for each in found], [new, "null"])
        self.s3.delete_object(**self.target)
        self.assertRefused(404, "NoSuchKey", self.s3.get_object_tagging, **self.target)
        self.assertEqual(self.tags(VersionId=new), {"new": "v"})
        self.s3.put_object_tagging(
            **self.target, VersionId=new, Tagging={"TagSet": tagSet(below="v")}
        )
        self.assertEqual(self.tags(VersionId=new), {"below": "v"})

    @long("takes seconds")
    def test_awscli(self) -> None:
        """aws-cli sets and reads tags."""
        tool, environment = needProgram("aws"), awsEnvironment(self.endpoint, self.makeDirectory())
        command = [tool, "s3api"]
        target = ["--bucket", self.bucket, "--key", "k"]
        tags = "TagSet=[{Key=cli,Value=1}]"
        runTool([*command, "put-object-tagging", *target, "--tagging", tags], environment)
        output = runTool([*command, "get-object-tagging", *target], environment)
        self.assertIn('"Key": "cli"', output)


class FormTagTests(FormCase):
    """Tags in a browser's form."""

    def test_form(self) -> None:
        """The field is a document; the name of the header is taken as well."""
        document = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
        for fields in ({"tagging": document}, {"x_amz_tagging": "a=b"}):
            self.assertEqual(self.post(**fields).status, 204)
            found = self.s3.get_object_tagging(Bucket=self.bucket, Key="form")
            self.assertEqual(found["TagSet"], tagSet(a="b"))
        self.assertAnswer(self.post(tagging="<Tagging/>"), 400, "MalformedXML")
        bad = document.replace("<Key>a", "<Key>aws:a")
        self.assertAnswer(self.post(tagging=bad), 400, "InvalidTag")


class BucketTagTests(S3Case):
    """Tags of buckets."""

    def tags(self, bucket: str) -> dict[str, str]:
        """Give the tags of a bucket."""
        found = self.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
        return {each["Key"]: each["Value"] for each in found}

    def test_change(self) -> None:
        """Fifty tags are set, read and removed."""
        bucket = self.makeBucket()
        many = {f"key-{number}": "ü" * 200 for number in range(50)}
        answer = self.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tagSet(**many)})
        self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertEqual(self.tags(bucket), many)
        tooMany = {"TagSet": tagSet(**many, more="")}
        self.assertRefused(
            400, "BadRequest", self.s3.put_bucket_tagging, Bucket=bucket, Tagging=tooMany
        )
        self.assertEqual(self.tags(bucket), many)
        for call in (
            lambda: self.s3.delete_bucket_tagging(Bucket=bucket),
            lambda: self.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": []}),
        ):
            answer = call()
            self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 204)
            self.assertRefused(404, "NoSuchTagSet", self.s3.get_bucket_tagging, Bucket=bucket)
            self.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tagSet(again="1")})

    def test_create(self) -> None:
        """A bucket is created with its tags, or not at all."""
        name = self.makeName()
        configuration = {"Tags": tagSet(a="1", b="")}
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration=configuration)
        self.assertEqual(self.tags(name), {"a": "1", "b": ""})
        other = self.makeName()
        self.assertRefused(
            400,
            "InvalidTag",
            self.s3.create_bucket,
            Bucket=other,
            CreateBucketConfiguration={"Tags": tagSet(**{"aws:a": "1"})},
        )
        self.assertRefused(404, "404", self.s3.head_bucket, Bucket=other)

    def test_other(self) -> None:
        """Another account neither reads nor changes them."""
        bucket = self.makeBucket()
        stranger = self.impatient(self.issueKey("stranger"))
        for call, more in (
            ("get_bucket_tagging", {}),
            ("put_bucket_tagging", {"Tagging": {"TagSet": tagSet(a="1")}}),
            ("delete_bucket_tagging", {}),
        ):
            self.assertRefused(403, "AccessDenied", getattr(stranger, call), Bucket=bucket, **more)
