"""Clients with temporary keys, unchanged, on a bucket whose objects are all encrypted."""

from io import BytesIO
from pathlib import Path
from typing import Any

from minio import Minio
from minio.credentials import AssumeRoleProvider
from minio.error import S3Error

from tests.support.clients import (
    Account,
    awsEnvironment,
    botoClient,
    rcloneEnvironment,
    resticEnvironment,
    runTool,
)
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import MINIO, nodeModules
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.s3.test_sts import STSCase
from tests.wire.s3.trees import makeTree, readTree

SIZE = 6 << 20


@long("runs many clients")
class TemporaryKeysTests(STSCase):
    """A session of a role with all rights of S3."""

    kind = "aws:kms"

    def setUp(self) -> None:
        """Make the session, the encryption of the bucket, and a tree of files."""
        super().setUp()
        made = self.assume(self.makeRole())["Credentials"]
        self.session = Account(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
        self.files = self.makeDirectory()
        self.up, self.down = self.files / "up", self.files / "down"
        self.encrypt(self.kind)

    def encrypt(self, kind: str) -> None:
        """Set the default of the bucket."""
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": kind}}
        self.owner.put_bucket_encryption(
            Bucket=self.bucket, ServerSideEncryptionConfiguration={"Rules": [rule]}
        )

    @property
    def owner(self) -> Any:
        """A client of the account of the bucket."""
        return self.client(self.admin, "s3")

    def assertEncrypted(self, prefix: str, kind: str = "aws:kms") -> None:
        """Check that there are objects below a prefix, and that all are encrypted."""
        found = self.owner.list_objects_v2(Bucket=self.bucket, Prefix=prefix)["Contents"]
        for each in found:
            head = self.owner.head_object(Bucket=self.bucket, Key=each["Key"])
            self.assertEqual(head["ServerSideEncryption"], kind)

    def test_boto3(self) -> None:
        """boto3 uploads in parts, and reads back."""
        makeTree(self.up, SIZE)
        s3 = botoClient(self.endpoint, self.session)
        s3.upload_file(str(self.up / "large.bin"), self.bucket, "t/large")
        s3.download_file(self.bucket, "t/large", str(self.files / "back"))
        self.assertTrue(
            (self.files / "back").read_bytes() == bytes((self.up / "large.bin").read_bytes())
        )
        self.assertEncrypted("t/")

    def test_awscli(self) -> None:
        """aws-cli syncs a tree up and down."""
        makeTree(self.up, 9 << 20)
        environment = awsEnvironment(self.endpoint, self.files, self.session)
        program, remote = needProgram("aws"), f"s3://{self.bucket}/t"
        runTool([program, "s3", "sync", self.up, remote], environment)
        runTool([program, "s3", "sync", remote, self.down], environment)
        self.assertEqual(readTree(self.down), readTree(self.up))
        self.assertEncrypted("t/")

    def test_rclone(self) -> None:
        """rclone syncs a tree up and down, with a key of the client too."""
        makeTree(self.up, SIZE)
        environment = rcloneEnvironment(self.endpoint, self.files, self.session)
        program = needProgram("rclone")
        # rclone compares MD5 and ETag, unless it knows the kind.
        known = ("--s3-server-side-encryption", self.kind)
        customer = ("--s3-sse-customer-algorithm", "AES256", "--s3-sse-customer-key", "k" * 32)
        for name, flags in (("t", known), ("c", customer)):
            remote = f"gate:{self.bucket}/{name}"
            runTool([program, "sync", "--s3-no-check-bucket", *flags, self.up, remote], environment)
            runTool([program, "sync", *flags, remote, self.down], environment)
            self.assertEqual(readTree(self.down), readTree(self.up))
        self.assertEncrypted("t/")

    def test_s3cmd(self) -> None:
        """s3cmd, which compares the MD5 of files, syncs a tree up and down."""
        self.encrypt("AES256")
        makeTree(self.up, SIZE)
        self.down.mkdir()
        call, remote = self.s3cmd(self.session), f"s3://{self.bucket}/t/"
        call("sync", f"{self.up}/", remote)
        self.assertNotIn("upload:", call("sync", f"{self.up}/", remote))
        call("sync", remote, f"{self.down}/")
        self.assertEqual(readTree(self.down), readTree(self.up))
        self.assertEncrypted("t/", "AES256")

    def test_s5cmd(self) -> None:
        """s5cmd copies a tree up and down."""
        makeTree(self.up, SIZE)
        environment = awsEnvironment(self.endpoint, self.files, self.session)
        command = [needProgram("s5cmd"), "--endpoint-url", self.endpoint, "cp"]
        runTool([*command, f"{self.up}/", f"s3://{self.bucket}/t/"], environment)
        runTool([*command, f"s3://{self.bucket}/t/*", f"{self.down}/"], environment)
        self.assertEqual(readTree(self.down), readTree(self.up))
        self.assertEncrypted("t/")

    def test_restic(self) -> None:
        """restic keeps a repository."""
        makeTree(self.files / "source", SIZE)
        environment = resticEnvironment(self.endpoint, self.bucket, self.files, self.session)
        environment["RESTIC_REPOSITORY"] += "/t"
        program = needProgram("restic")
        for arguments in (
            ("init",),
            ("backup", "source"),
            ("check", "--read-data"),
            ("restore", "latest", "--target", "restored"),
        ):
            runTool([program, *arguments], environment, directory=self.files)
        restored = self.files / "restored" / "source"
        self.assertEqual(readTree(restored), readTree(self.files / "source"))
        self.assertEncrypted("t/")

    def test_minioPy(self) -> None:
        """minio-py works with a given session, and its provider gets one of a role and of a key."""
        body = b"minio" * (SIZE // 5)
        given = Minio(
            self.host,
            access_key=self.session.accessKey,
            secret_key=self.session.secretKey,
            session_token=self.session.sessionToken,
            secure=False,
        )
        given.put_object(self.bucket, "t/k", BytesIO(body), len(body), part_size=5 << 20)
        self.assertEncrypted("t/")
        named = {"role_arn": self.makeRole(name="more"), "role_session_name": "minio"}
        for mayWrite, more in ((True, named), (False, {})):
            provider = AssumeRoleProvider(
                sts_endpoint=self.endpoint,
                access_key=self.ann.accessKey,
                secret_key=self.ann.secretKey,
                **more,
            )
            client = Minio(self.host, credentials=provider, secure=False)
            self.assertTrue(self.read(client, "t/k") == body)
            if mayWrite:
                client.put_object(self.bucket, "t/other", BytesIO(b"x"), 1)
            else:
                with self.assertRaises(S3Error) as caught:
                    client.put_object(self.bucket, "t/other", BytesIO(b"x"), 1)
                self.assertEqual(caught.exception.code, "AccessDenied")

    def read(self, client: Minio, key: str) -> bytes:
        """Read an object."""
        response = client.get_object(self.bucket, key)
        try:
            return bytes(response.read())
        finally:
            response.close()
            response.release_conn()

    def test_minioJS(self) -> None:
        """minio-js works with a given session, and its provider gets one of a key."""
        modules = nodeModules(MINIO)
        program: Path = CHECKOUT / "tests" / "support" / "miniosession.js"
        arguments = [
            "node",
            program,
            self.endpoint.rpartition(":")[2],
            self.session.accessKey,
            self.session.secretKey,
            self.session.sessionToken,
            self.bucket,
            self.ann.accessKey,
            self.ann.secretKey,
        ]
        runTool(arguments, {"NODE_PATH": str(modules), "HOME": str(self.files)})
        self.assertEncrypted("large")
