"""s3cmd with nothing but its endpoint set: the first version of lists, C{?location} first."""

from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.trees import makeTree, readTree


@long("runs s3cmd")
class S3cmdTests(S3Case):
    """What a user types."""

    def setUp(self) -> None:
        """Prepare the program, and have a directory."""
        super().setUp()
        self.call = self.s3cmd()
        self.files = self.makeDirectory()

    def test_fromBucketToNothing(self) -> None:
        """mb, put in parts of 15 MiB, ls, info, get, del, rb."""
        bucket = self.makeName("s3cmd")
        tree = self.files / "tree"
        makeTree(tree, 20_000_000)
        self.call("mb", f"s3://{bucket}")
        self.call("put", tree / "large.bin", f"s3://{bucket}/in/large.bin")
        self.assertRegex(self.s3.head_object(Bucket=bucket, Key="in/large.bin")["ETag"], r'-2"$')
        self.call("put", tree / "with space.txt", f"s3://{bucket}")
        listed = self.call("ls", f"s3://{bucket}")
        self.assertIn(f"DIR  s3://{bucket}/in/", listed)
        self.assertIn(f"s3://{bucket}/with space.txt", listed)
        self.assertIn("20000000", self.call("info", f"s3://{bucket}/in/large.bin"))
        self.call("info", f"s3://{bucket}")
        self.call("get", f"s3://{bucket}/in/large.bin", self.files / "back")
        self.assertTrue((self.files / "back").read_bytes() == (tree / "large.bin").read_bytes())
        self.call("del", "--recursive", "--force", f"s3://{bucket}")
        self.call("rb", f"s3://{bucket}")
        self.assertNotIn(bucket, self.call("ls"))

    def test_tags(self) -> None:
        """Tags in a header of a put arrive."""
        bucket = self.makeBucket("s3cmd")
        (self.files / "k").write_bytes(b"x")
        self.call("put", "--add-header=x-amz-tagging:a=b", self.files / "k", f"s3://{bucket}")
        found = self.s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
        self.assertEqual(found, [{"Key": "a", "Value": "b"}])

    def test_encryption(self) -> None:
        """Files are stored by a named kind, and by the default of their bucket, in parts too."""
        bucket = self.makeBucket("s3cmd")
        (self.files / "k").write_bytes(b"s3cmd")
        for flags, kind in (
            (("--server-side-encryption",), "AES256"),
            (("--server-side-encryption-kms-id=default",), "aws:kms"),
        ):
            self.call("put", *flags, self.files / "k", f"s3://{bucket}")
            head = self.s3.head_object(Bucket=bucket, Key="k")
            self.assertEqual(head["ServerSideEncryption"], kind)
        self.assertEqual(head["SSEKMSKeyId"], "default")
        # s3cmd compares the MD5 of files, which only this kind shows.
        default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        self.s3.put_bucket_encryption(
            Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [default]}
        )
        makeTree(self.files / "up", 20_000_000)
        self.call("sync", f"{self.files}/up/", f"s3://{bucket}/tree/")
        self.assertNotIn("upload:", self.call("sync", f"{self.files}/up/", f"s3://{bucket}/tree/"))
        head = self.s3.head_object(Bucket=bucket, Key="tree/large.bin")
        self.assertEqual(head["ServerSideEncryption"], "AES256")
        (self.files / "down").mkdir()
        self.call("sync", f"s3://{bucket}/tree/", f"{self.files}/down/")
        self.assertEqual(readTree(self.files / "down"), readTree(self.files / "up"))

    def test_sync(self) -> None:
        """A tree is synced up and down, and a second sync has nothing to do."""
        bucket = self.makeBucket("s3cmd")
        up, down = self.files / "up", self.files / "down"
        makeTree(up)
        down.mkdir()
        self.call("sync", f"{up}/", f"s3://{bucket}/tree/")
        self.assertNotIn("upload:", self.call("sync", f"{up}/", f"s3://{bucket}/tree/"))
        self.call("sync", f"s3://{bucket}/tree/", f"{down}/")
        self.assertEqual(readTree(down), readTree(up))

    def test_copyAndMove(self) -> None:
        """Objects are copied and moved inside the server."""
        bucket = self.makeBucket("s3cmd")
        self.s3.put_object(Bucket=bucket, Key="a", Body=b"content")
        self.call("cp", f"s3://{bucket}/a", f"s3://{bucket}/b")
        self.call("mv", f"s3://{bucket}/a", f"s3://{bucket}/c")
        self.assertMissing(bucket, "a")
        for key in ("b", "c"):
            self.assertHolds(bucket, key, b"content")
