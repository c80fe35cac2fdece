"""aws-cli with its defaults."""

import json
from pathlib import Path

from tests.support.clients import ToolFailed, awsEnvironment, runTool
from tests.support.programs import needProgram
from tests.support.s3signer import Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.test_boto_presigned import targetOf
from tests.wire.s3.trees import makeTree, readTree


class AWSTests(S3Case):
    """What a user types."""

    def setUp(self) -> None:
        """Find the program."""
        super().setUp()
        self.program = needProgram("aws")
        self.files = self.makeDirectory()
        self.environment = awsEnvironment(self.endpoint, self.files)

    def aws(self, *arguments: str | Path) -> str:
        """Run a command and give its output."""
        return runTool([self.program, *arguments], self.environment)

    @long("takes seconds")
    def test_fromBucketToNothing(self) -> None:
        """mb, cp up, ls, cp down, rm, rb."""
        bucket = self.makeName("aws")
        self.aws("s3", "mb", f"s3://{bucket}")
        (self.files / "small").write_bytes(b"small file")
        self.aws("s3", "cp", self.files / "small", f"s3://{bucket}/a b/\u00fc+.txt")
        self.assertIn("10 \u00fc+.txt", self.aws("s3", "ls", f"s3://{bucket}/a b/"))
        self.aws("s3", "cp", f"s3://{bucket}/a b/\u00fc+.txt", self.files / "back")
        self.assertEqual((self.files / "back").read_bytes(), b"small file")
        self.aws("s3", "rm", f"s3://{bucket}/a b/\u00fc+.txt")
        self.assertEqual(self.aws("s3", "ls", f"s3://{bucket}"), "")
        self.aws("s3", "rb", f"s3://{bucket}")
        self.assertNotIn(bucket, self.aws("s3", "ls"))

    @long("takes seconds")
    def test_largeFile(self) -> None:
        """A file of 40 MB goes in parts both ways, and between two keys."""
        bucket = self.makeBucket("aws")
        tree = self.files / "tree"
        makeTree(tree, 40_000_000)
        self.aws("s3", "cp", tree / "large.bin", f"s3://{bucket}/large")
        self.aws("s3", "mv", f"s3://{bucket}/large", f"s3://{bucket}/moved")
        self.aws("s3", "cp", f"s3://{bucket}/moved", self.files / "back")
        self.assertTrue((self.files / "back").read_bytes() == (tree / "large.bin").read_bytes())

    @long("takes seconds")
    def test_encryption(self) -> None:
        """Files go both ways and between kinds with clients' keys and named kinds, in parts."""
        bucket = self.makeBucket("aws")
        tree = self.files / "tree"
        makeTree(tree, 20_000_000)
        (self.files / "key").write_bytes(bytes(range(32)))
        key = f"fileb://{self.files / 'key'}"
        customer = ("--sse-c", "AES256", "--sse-c-key", key)
        source = ("--sse-c-copy-source", "AES256", "--sse-c-copy-source-key", key)
        remote = f"s3://{bucket}"
        for name in ("large.bin", "plain.txt"):
            self.aws("s3", "cp", *customer, tree / name, f"{remote}/c/{name}")
            with self.assertRaises(ToolFailed):
                self.aws("s3", "cp", f"{remote}/c/{name}", self.files / "back")
            self.aws("s3", "cp", *customer, f"{remote}/c/{name}", self.files / "back")
            self.assertTrue((self.files / "back").read_bytes() == (tree / name).read_bytes())
            for kind in ("AES256", "aws:kms"):
                self.aws("s3", "cp", *source, "--sse", kind, f"{remote}/c/{name}", f"{remote}/k")
                self.assertEqual(self.kindOf(bucket, "k"), kind)
                self.aws("s3", "cp", f"{remote}/k", self.files / "back")
                self.assertTrue((self.files / "back").read_bytes() == (tree / name).read_bytes())
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        configuration = json.dumps({"Rules": [rule]})
        named = ("--bucket", bucket)
        self.aws(
            "s3api",
            "put-bucket-encryption",
            *named,
            "--server-side-encryption-configuration",
            configuration,
        )
        found = json.loads(self.aws("s3api", "get-bucket-encryption", *named))
        self.assertEqual(found["ServerSideEncryptionConfiguration"]["Rules"], [rule])
        self.aws("s3", "sync", tree, f"{remote}/tree")
        self.assertEqual(self.kindOf(bucket, "tree/large.bin"), "AES256")
        self.assertEqual(self.aws("s3", "sync", tree, f"{remote}/tree"), "")
        self.aws("s3", "sync", f"{remote}/tree", self.files / "down")
        self.assertEqual(readTree(self.files / "down"), readTree(tree))

    def kindOf(self, bucket: str, key: str) -> str:
        """Return the encryption of an object."""
        kind: str = self.s3.head_object(Bucket=bucket, Key=key)["ServerSideEncryption"]
        return kind

    @long("takes seconds")
    def test_sync(self) -> None:
        """A tree is synced up and down whole; a second sync does nothing; rm takes it all."""
        bucket = self.makeBucket("aws")
        up, down = self.files / "up", self.files / "down"
        makeTree(up, 9_000_000)
        self.aws("s3", "sync", up, f"s3://{bucket}/tree")
        self.assertEqual(self.aws("s3", "sync", up, f"s3://{bucket}/tree"), "")
        self.aws("s3", "sync", f"s3://{bucket}/tree", down)
        self.assertEqual(readTree(down), readTree(up))
        (up / "plain.txt").unlink()
        self.aws("s3", "sync", "--delete", up, f"s3://{bucket}/tree")
        self.assertMissing(bucket, "tree/plain.txt")
        self.aws("s3", "rm", "--recursive", f"s3://{bucket}")
        self.s3.delete_bucket(Bucket=bucket)

    @long("takes seconds")
    def test_multipartByHand(self) -> None:
        """The single steps of an upload in parts, from s3api."""
        bucket = self.makeBucket("aws")
        (self.files / "part").write_bytes(b"the only part")
        common = ("--bucket", bucket, "--key", "k")
        made = json.loads(self.aws("s3api", "create-multipart-upload", *common))
        named = (*common, "--upload-id", made["UploadId"])
        body = ("--part-number", "1", "--body", self.files / "part")
        part = json.loads(self.aws("s3api", "upload-part", *named, *body))
        found = json.loads(self.aws("s3api", "list-parts", *named))
        self.assertEqual([entry["ETag"] for entry in found["Parts"]], [part["ETag"]])
        listed = json.dumps({"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
        self.aws("s3api", "complete-multipart-upload", *named, "--multipart-upload", listed)
        self.assertHolds(bucket, "k", b"the only part")

    def test_presign(self) -> None:
        """What C{aws s3 presign} prints opens the object to anybody."""
        bucket = self.makeBucket("aws")
        self.s3.put_object(Bucket=bucket, Key="a b", Body=b"for you")
        url = self.aws("s3", "presign", f"s3://{bucket}/a b").strip()
        answer = self.send(Outgoing("GET", targetOf(url)))
        self.assertEqual((answer.status, answer.body), (200, b"for you"))
        curled = runTool([needProgram("curl"), "--silent", "--fail", url], {})
        self.assertEqual(curled, "for you")

    @long("takes seconds")
    def test_versions(self) -> None:
        """A bucket is versioned, an object deleted, brought back, and removed for good."""
        bucket = self.makeBucket("aws")
        named = ("--bucket", bucket)
        api = ("s3api",)
        self.aws(
            *api, "put-bucket-versioning", *named, "--versioning-configuration", "Status=Enabled"
        )
        file = self.files / "file"
        for text in ("one", "two"):
            file.write_text(text)
            self.aws("s3", "cp", file, f"s3://{bucket}/k")
        self.aws("s3", "rm", f"s3://{bucket}/k")
        self.assertEqual(self.aws("s3", "ls", f"s3://{bucket}"), "")
        found = json.loads(self.aws(*api, "list-object-versions", *named))
        [marker] = found["DeleteMarkers"]
        key = (*named, "--key", "k", "--version-id")
        self.aws(*api, "delete-object", *key, marker["VersionId"])
        self.aws("s3", "cp", f"s3://{bucket}/k", self.files / "back")
        self.assertEqual((self.files / "back").read_text(), "two")
        old = found["Versions"][1]["VersionId"]
        self.aws(*api, "get-object", *key, old, self.files / "old")
        self.assertEqual((self.files / "old").read_text(), "one")
        for version in found["Versions"]:
            self.aws(*api, "delete-object", *key, version["VersionId"])
        self.aws("s3", "rb", f"s3://{bucket}")
