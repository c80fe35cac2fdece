"""The commands of docs/minio.rst, pasted into a shell beside a daemon as an operator would."""

from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.documents import DOCS, literal, table
from tests.support.http import request
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.test_readme import ReadmeCase, blocks

PAGE = DOCS / "minio.rst"

SETUP, IMPORT, MIRROR = range(3)
"""The positions of the blocks of the page."""


@long("starts rclone and aws-cli dozens of times")
class PageTests(ReadmeCase):
    """The table of commands, the import and the mirror."""

    def scripts(self) -> Path:
        """Have aws-cli and rclone, too."""
        directory = super().scripts()
        for name in ("aws", "rclone"):
            if not (directory / name).exists():
                (directory / name).symlink_to(needProgram(name))
        return directory

    def makeFiles(self) -> None:
        """Make the files that the commands upload, and an empty configuration of rclone."""
        (self.directory / ".config" / "rclone").mkdir(parents=True)
        (self.directory / ".config" / "rclone" / "rclone.conf").touch()
        (self.directory / "cat.jpg").write_bytes(b"meow" * 1000)
        (self.directory / "album").mkdir()
        for number in range(3):
            (self.directory / "album" / f"{number}.jpg").write_bytes(b"%d" % number * 1000)

    def other(self, accessKey: str, secretKey: str) -> Daemon:
        """Start a second daemon with a root key pair."""
        keys = {"STORAGEGATE_ACCESS_KEY": accessKey, "STORAGEGATE_SECRET_KEY": secretKey}
        daemon = Daemon(Path(self.mktemp()).absolute(), environment=keys).start()
        self.addCleanup(daemon.kill)
        return daemon

    def test_commands(self) -> None:
        """Each command in place of one of mc works, in the order of the table."""
        self.makeFiles()
        commands = [literal(here) for _, here in table(PAGE, "Commands of mc")]
        self.assertGreater(len(commands), 25)
        separated = [f"{command}\necho; echo '--- next'" for command in commands]
        script = "\n".join([blocks(PAGE)[SETUP], *separated])
        outputs = self.shell(script).split("--- next")
        # An empty piece follows the last command.
        printed = dict(zip(commands, outputs[:-1], strict=True))
        self.assertIn("meow", printed["rclone cat gate:photos/cat.jpg"])
        self.assertIn("Total objects: 5", printed["rclone size gate:photos"])
        self.assertIn("0 differences", printed["rclone check album gate:photos/album"])
        shared = printed["aws s3 presign s3://photos/cat.jpg --expires-in 3600"]
        self.assertIn("Signature=", shared)
        listed = printed["rclone lsf --recursive --include '*.jpg' gate:photos"].split()
        self.assertEqual(listed[:4], ["album/0.jpg", "album/1.jpg", "album/2.jpg", "cat.jpg"])
        self.assertIn("VersionId", printed["aws s3api list-object-versions --bucket photos"])
        # The bucket policy lets anyone read.
        path = "/photos/cat.jpg"
        answer = request(self.daemon.address(), "GET", path, headers={})
        self.assertEqual(answer, (200, b"meow" * 1000))

    def test_importAndMirror(self) -> None:
        """All buckets of another server come over, and go on to a mirror, which follows."""
        source = self.other("minioadmin", "minioadmin")
        mirror = self.other("mirror", "mirror-secret")
        self.makeFiles()
        setup = blocks(PAGE)[SETUP]
        imported = blocks(PAGE)[IMPORT].replace("10.0.0.9:9000", self.at(source))
        mirrored = blocks(PAGE)[MIRROR].replace("10.0.0.8:9000", self.at(mirror))
        fill = "rclone copy cat.jpg minio:one\nrclone copy album minio:two/album\n"
        head, _, _ = imported.partition("rclone copy")
        printed = self.shell("\n".join([setup, head, fill, imported, mirrored]))
        self.assertEqual(printed.count("0 differences found"), 2, printed)
        self.shell(f"{setup}\n{mirrored}\nrclone delete gate:two/album/1.jpg\n{mirrored}")
        listed = self.shell(f"{setup}\n{mirrored}\nrclone lsf --recursive mirror:")
        files = listed.partition("matching files")[2].split()
        wanted = ["one/", "two/", "one/cat.jpg", "two/album/", "two/album/0.jpg", "two/album/2.jpg"]
        self.assertEqual(sorted(files), sorted(wanted))

    def at(self, daemon: Daemon) -> str:
        """Return the address of a daemon's S3 listener."""
        return ":".join(map(str, daemon.address("s3")))
