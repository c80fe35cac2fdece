"""restic backs up into a bucket: signed chunks, many objects, and it checks every byte."""

import json
import shutil

from tests.support.clients import resticEnvironment, runTool
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.trees import makeTree, readTree


@long("runs restic")
class ResticTests(S3Case):
    """One repository through its life."""

    def test_backupCheckRestore(self) -> None:
        """Two backups are made, every byte is checked, and both come back as they were."""
        program = needProgram("restic")
        files = self.makeDirectory()
        source = files / "source"
        makeTree(source, 30_000_000)
        environment = resticEnvironment(self.endpoint, self.makeName("restic"), files)

        def restic(*arguments: str) -> str:
            return runTool([program, *arguments], environment, directory=files)

        restic("init")
        restic("backup", "source")
        first = readTree(source)
        (source / "plain.txt").write_text("changed between the backups")
        (source / "more.bin").write_bytes(b"more" * 500_000)
        restic("backup", "source")
        restic("check", "--read-data")
        snapshots = [entry["id"] for entry in json.loads(restic("snapshots", "--json"))]
        self.assertEqual(len(snapshots), 2)
        for snapshot, expected in zip(snapshots, (first, readTree(source)), strict=True):
            restic("restore", snapshot, "--target", "restored")
            self.assertEqual(readTree(files / "restored" / "source"), expected)
            shutil.rmtree(files / "restored")
        restic("forget", "--keep-last", "1", "--prune")
        restic("check", "--read-data")

    def test_encryptedBucket(self) -> None:
        """A repository lives in a bucket that encrypts all objects with a master key."""
        program = needProgram("restic")
        files, bucket = self.makeDirectory(), self.makeBucket("restic")
        default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
        self.s3.put_bucket_encryption(
            Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [default]}
        )
        makeTree(files / "source", 20_000_000)
        environment = resticEnvironment(self.endpoint, bucket, files)
        for arguments in (
            ("init",),
            ("backup", "source"),
            ("check", "--read-data"),
            ("restore", "latest", "--target", "restored"),
            ("forget", "--keep-last", "1", "--prune"),
        ):
            runTool([program, *arguments], environment, directory=files)
        self.assertEqual(readTree(files / "restored" / "source"), readTree(files / "source"))
        for each in self.s3.list_objects_v2(Bucket=bucket)["Contents"]:
            head = self.s3.head_object(Bucket=bucket, Key=each["Key"])
            self.assertEqual(head["ServerSideEncryption"], "aws:kms")

    def test_lockedBucket(self) -> None:
        """A repository lives in a bucket whose versions are retained: nothing of it is lost."""
        program = needProgram("restic")
        files, bucket = self.makeDirectory(), self.makeName("restic")
        self.s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        default = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
        self.s3.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": default}
        )
        makeTree(files / "source", 100_000)
        environment = resticEnvironment(self.endpoint, bucket, files)
        for arguments in (
            ("init",),
            ("backup", "source"),
            ("backup", "--force", "source"),
            ("forget", "--keep-last", "1", "--prune"),
            ("check", "--read-data"),
        ):
            runTool([program, *arguments], environment, directory=files)
        found = self.s3.list_object_versions(Bucket=bucket)
        self.assertTrue(found["DeleteMarkers"])
        for each in found["Versions"]:
            head = self.s3.head_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
            self.assertEqual(head["ObjectLockMode"], "COMPLIANCE")
