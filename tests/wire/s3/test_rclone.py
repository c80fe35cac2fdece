"""rclone with its defaults."""

from pathlib import Path

from tests.support.clients import ToolFailed, rcloneEnvironment, runTool
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.test_boto_lists import KEYS, filledBucket
from tests.wire.s3.trees import makeTree, readTree


class RcloneTests(S3Case):
    """What a user types."""

    def setUp(self) -> None:
        """Find the program."""
        super().setUp()
        self.program = needProgram("rclone")
        self.files = self.makeDirectory()
        self.environment = rcloneEnvironment(self.endpoint, self.files)

    def rclone(self, *arguments: str | Path) -> str:
        """Run a command and give its output."""
        return runTool([self.program, *arguments], self.environment)

    def test_syncBothWays(self) -> None:
        """A tree of odd names and a large file is synced up and down; check agrees both ways."""
        remote = f"gate:{self.makeName('rclone')}"
        up, down = self.files / "up", self.files / "down"
        makeTree(up, 20_000_000)
        self.rclone("sync", up, remote)
        self.rclone("check", "--download", up, remote)
        self.rclone("check", remote, up)
        self.rclone("sync", remote, down)
        self.rclone("check", down, remote)
        self.assertEqual(readTree(down), readTree(up))
        (up / "plain.txt").write_text("changed")
        (up / "#hash").unlink()
        self.rclone("sync", up, remote)
        self.rclone("sync", remote, down)
        self.assertEqual(readTree(down), readTree(up))

    def test_timesKept(self) -> None:
        """A file's time survives the way up and down, so that a second copy moves nothing."""
        remote = f"gate:{self.makeName('rclone')}"
        up = self.files / "up"
        makeTree(up)
        self.rclone("copy", up, remote)
        self.rclone("copy", remote, self.files / "down")
        for name in ("plain.txt", "deep/er/sibling"):
            times = {(self.files / way / name).stat().st_mtime_ns for way in ("up", "down")}
            self.assertEqual(len(times), 1)
        report = self.rclone("copy", "--dry-run", up, remote)
        self.assertEqual(report, "")

    def test_tags(self) -> None:
        """Tags of uploads arrive, and a copy within the server keeps them."""
        bucket = self.makeName("rclone")
        (self.files / "k").write_bytes(b"x")
        header = "x-amz-tagging: a=b%20c&d="
        self.rclone("copy", "--header-upload", header, self.files / "k", f"gate:{bucket}")
        self.rclone("copyto", f"gate:{bucket}/k", f"gate:{bucket}/copy")
        for key in ("k", "copy"):
            found = self.s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
            self.assertEqual(found, [{"Key": "a", "Value": "b c"}, {"Key": "d", "Value": ""}])

    @long("takes seconds")
    def test_encryption(self) -> None:
        """A tree and a file in parts go up and down with a client's key, and by a named kind."""
        tree = self.files / "tree"
        makeTree(tree, 12_000_000)
        # rclone takes the bytes of the key as they are.
        key = "0123456789abcdef0123456789ABCDEF"
        customer = ("--s3-sse-customer-algorithm", "AES256", "--s3-sse-customer-key", key)
        parts = ("--s3-upload-cutoff", "5M", "--s3-chunk-size", "5M")
        for kind, flags in (
            ("c", customer),
            ("kms", ("--s3-server-side-encryption", "aws:kms")),
            ("s3", ("--s3-server-side-encryption", "AES256")),
        ):
            bucket = self.makeName("rclone")
            remote = f"gate:{bucket}"
            self.rclone("sync", *flags, *parts, tree, remote)
            self.rclone("check", "--download", *flags, tree, remote)
            self.rclone("copyto", *flags, f"{remote}/plain.txt", f"{remote}/copied.txt")
            text = self.rclone("cat", *flags, f"{remote}/copied.txt")
            self.assertEqual(text, (tree / "plain.txt").read_text())
            if kind == "c":
                with self.assertRaises(ToolFailed):
                    self.rclone("cat", f"{remote}/plain.txt")
                continue
            for name in ("plain.txt", "large.bin"):
                head = self.s3.head_object(Bucket=bucket, Key=name)
                expected = {"kms": "aws:kms", "s3": "AES256"}[kind]
                self.assertEqual(head["ServerSideEncryption"], expected)

    def test_mkdirTwice(self) -> None:
        """A bucket may be made again by its owner."""
        bucket = self.makeName("rclone")
        self.rclone("mkdir", f"gate:{bucket}")
        self.rclone("mkdir", f"gate:{bucket}")
        self.assertIn(bucket, self.rclone("lsd", "gate:"))

    def test_largeFile(self) -> None:
        """A file over the cutoff goes in parts, and arrives whole."""
        remote = f"gate:{self.makeName('rclone')}"
        tree = self.files / "tree"
        makeTree(tree, 60_000_000)
        self.rclone("copy", "--s3-upload-cutoff", "10M", tree / "large.bin", remote)
        self.rclone("check", "--download", "--include", "large.bin", tree, remote)
        sums = self.rclone("md5sum", remote)
        self.assertEqual(len(sums.split()), 2)

    def test_cat(self) -> None:
        """An object, and a piece of it, is written out."""
        bucket = self.makeBucket("rclone")
        self.s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
        self.assertEqual(self.rclone("cat", f"gate:{bucket}/k"), "0123456789")
        piece = self.rclone("cat", "--offset", "3", "--count", "4", f"gate:{bucket}/k")
        self.assertEqual(piece, "3456")

    def test_serverSideCopyAndMove(self) -> None:
        """Objects are copied, moved and purged inside the server."""
        source, target = (f"gate:{self.makeName('rclone')}" for _ in range(2))
        tree = self.files / "tree"
        makeTree(tree)
        self.rclone("copy", tree, source)
        self.rclone("copy", source, target)
        self.rclone("check", source, target)
        self.rclone("move", target, f"{source}/moved")
        self.rclone("check", tree, f"{source}/moved")
        self.rclone("purge", source)
        self.assertNotIn(source.partition(":")[2], self.rclone("lsd", "gate:"))

    @long("lists ten thousand keys")
    def test_tenThousandKeys(self) -> None:
        """All of 10,000 keys are listed, recursively and one level at a time."""
        bucket = filledBucket(self.address)
        found = self.rclone("lsf", "--recursive", "--files-only", "--fast-list", f"gate:{bucket}")
        self.assertEqual(sorted(found.split()), KEYS)
        top = self.rclone("lsf", f"gate:{bucket}").split()
        self.assertEqual(len(top), 121)

    def test_versions(self) -> None:
        """Old versions are shown with C{--s3-versions}, read, and cleaned up for good."""
        bucket = self.makeBucket("rclone")
        remote = f"gate:{bucket}"
        self.rclone("backend", "versioning", remote, "Enabled")
        self.assertIn("Enabled", self.rclone("backend", "versioning", remote))
        tree = self.files / "tree"
        tree.mkdir()
        for text in ("one", "two", "three"):
            (tree / "name.txt").write_text(text)
            self.rclone("copy", "--ignore-times", tree, remote)
        self.rclone("deletefile", f"{remote}/name.txt")
        self.assertEqual(self.rclone("lsf", remote), "")
        names = self.rclone("lsf", "--s3-versions", remote).split()
        self.assertEqual(len(names), 3)
        # Versions of one second have one name, and are all written for it.
        texts = {self.rclone("cat", "--s3-versions", f"{remote}/{name}") for name in names}
        self.assertEqual(sorted("".join(texts)), sorted("onetwothree"))
        self.rclone("backend", "cleanup-hidden", remote)
        self.assertEqual(self.rclone("lsf", "--s3-versions", remote), "")
