"""s5cmd, which has many requests under way at once."""

from pathlib import Path

from tests.support.clients import ROOT, runTool
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.trees import makeTree, readTree


class S5cmdTests(S3Case):
    """What a user types."""

    def setUp(self) -> None:
        """Find the program, and have a bucket and a directory."""
        super().setUp()
        self.program = needProgram("s5cmd")
        self.bucket = self.makeBucket("s5cmd")
        self.files = self.makeDirectory()

    def call(self, *words: str | Path) -> str:
        """Run it, and return what it prints."""
        environment = {
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
            "AWS_REGION": "us-east-1",
            "S3_ENDPOINT_URL": self.endpoint,
        }
        return runTool([self.program, *words], environment)

    @long("takes seconds")
    def test_tree(self) -> None:
        """A tree with a file of several parts is synced both ways; again there is nothing to do."""
        up, down = self.files / "up", self.files / "down"
        makeTree(up, 120_000_000)
        for n in range(100):
            (up / f"small {n}.txt").write_text(str(n))
        self.call("sync", f"{up}/", f"s3://{self.bucket}/tree/")
        # By their times the files would be newer, which S3 lists in whole seconds.
        again = self.call("sync", "--size-only", f"{up}/", f"s3://{self.bucket}/tree/")
        self.assertEqual(again, "")
        self.call("sync", f"s3://{self.bucket}/tree/*", f"{down}/")
        self.assertEqual(readTree(down), readTree(up))
        self.assertIn("objects", self.call("du", f"s3://{self.bucket}/*"))

    def test_copyMoveAndRemove(self) -> None:
        """Objects are copied, moved and removed by a pattern, and so are their buckets."""
        self.s3.put_object(Bucket=self.bucket, Key="a/1", Body=b"content")
        self.call("cp", f"s3://{self.bucket}/a/1", f"s3://{self.bucket}/b/2")
        self.call("mv", f"s3://{self.bucket}/a/1", f"s3://{self.bucket}/b/3")
        self.assertMissing(self.bucket, "a/1")
        for key in ("b/2", "b/3"):
            self.assertHolds(self.bucket, key, b"content")
        self.assertEqual(self.call("cat", f"s3://{self.bucket}/b/2"), "content")
        self.call("rm", f"s3://{self.bucket}/b/*")
        self.call("rb", f"s3://{self.bucket}")
        self.assertNotIn(self.bucket, self.call("ls"))
