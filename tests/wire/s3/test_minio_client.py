"""minio-py with its defaults."""

from datetime import UTC, datetime, timedelta
from io import BytesIO

from minio import Minio
from minio.commonconfig import COMPLIANCE, GOVERNANCE, ComposeSource, CopySource, Tags
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.objectlockconfig import DAYS, ObjectLockConfig
from minio.retention import Retention

from tests.support.clients import ROOT, runTool
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import MINIO, nodeModules
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case


class MinioTests(S3Case):
    """The client of the server that many come from."""

    def setUp(self) -> None:
        """Make a client, and a bucket with it."""
        super().setUp()
        self.client = Minio(
            self.host, access_key=ROOT.accessKey, secret_key=ROOT.secretKey, secure=False
        )
        self.bucket = self.makeName("minio")
        self.client.make_bucket(self.bucket)

    def read(self, key: str, offset: int = 0, length: int = 0) -> bytes:
        """Read an object, or a span of it."""
        response = self.client.get_object(self.bucket, key, offset=offset, length=length)
        try:
            body: bytes = response.read()
            return body
        finally:
            response.close()
            response.release_conn()

    def test_objects(self) -> None:
        """Objects of one piece and of several parts come back whole, and in spans."""
        self.assertTrue(self.client.bucket_exists(self.bucket))
        for size in (0, 5, 12_000_000):
            body = (b"minio" * (size // 5 + 1))[:size]
            key = f"a b/\u00fc{size}"
            self.client.put_object(
                self.bucket, key, BytesIO(body), size, metadata={"a": "1"}, part_size=5 << 20
            )
            self.assertEqual(self.client.stat_object(self.bucket, key).size, size)
            self.assertTrue(self.read(key) == body)
        self.assertEqual(self.read(key, offset=7, length=9), body[7:16])

    def test_unknownLength(self) -> None:
        """A stream of unknown length is sent in parts."""
        body = b"stream" * 1_500_000
        self.client.put_object(self.bucket, "k", BytesIO(body), -1, part_size=5 << 20)
        self.assertTrue(self.read("k") == body)

    def test_listsAndDeletes(self) -> None:
        """Objects are listed in groups and all, copied, and deleted in one go."""
        for key in ("a/1", "a/2", "b"):
            self.client.put_object(self.bucket, key, BytesIO(b"x"), 1)
        top = [entry.object_name for entry in self.client.list_objects(self.bucket)]
        self.assertEqual(sorted(top), ["a/", "b"])
        self.client.copy_object(self.bucket, "c", CopySource(self.bucket, "b"))
        every = [
            entry.object_name for entry in self.client.list_objects(self.bucket, recursive=True)
        ]
        self.assertEqual(every, ["a/1", "a/2", "b", "c"])
        errors = self.client.remove_objects(self.bucket, [DeleteObject(key) for key in every])
        self.assertEqual(list(errors), [])
        self.client.remove_bucket(self.bucket)
        self.assertFalse(self.client.bucket_exists(self.bucket))

    def test_locks(self) -> None:
        """A default, a retention and a legal hold are set, read and met."""
        bucket = self.makeName("minio")
        self.client.make_bucket(bucket, object_lock=True)
        self.client.set_object_lock_config(bucket, ObjectLockConfig(GOVERNANCE, 2, DAYS))
        found = self.client.get_object_lock_config(bucket)
        self.assertEqual((found.mode, found.duration), (GOVERNANCE, 2))
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
        put = self.client.put_object(
            bucket,
            "k",
            BytesIO(b"x"),
            1,
            retention=Retention(COMPLIANCE, until),
            legal_hold=True,
        )
        retention = self.client.get_object_retention(bucket, "k")
        self.assertEqual((retention.mode, retention.retain_until_date), (COMPLIANCE, until))
        self.assertTrue(self.client.is_object_legal_hold_enabled(bucket, "k"))
        self.client.disable_object_legal_hold(bucket, "k")
        self.assertFalse(self.client.is_object_legal_hold_enabled(bucket, "k"))
        with self.assertRaises(S3Error) as caught:
            self.client.remove_object(bucket, "k", version_id=put.version_id)
        self.assertEqual(caught.exception.code, "AccessDenied")
        later = Retention(COMPLIANCE, until + timedelta(days=1))
        self.client.set_object_retention(bucket, "k", later, version_id=put.version_id)
        self.client.delete_object_lock_config(bucket)

    def test_tags(self) -> None:
        """Tags of an object and of a bucket are set, read and removed."""
        tags = Tags.new_object_tags()
        tags["with blank"] = "\u00fc+=/"
        self.client.put_object(self.bucket, "k", BytesIO(b"x"), 1, tags=tags)
        self.assertEqual(self.client.get_object_tags(self.bucket, "k"), tags)
        tags["more"] = ""
        self.client.set_object_tags(self.bucket, "k", tags)
        self.assertEqual(self.client.get_object_tags(self.bucket, "k"), tags)
        self.client.delete_object_tags(self.bucket, "k")
        self.assertIsNone(self.client.get_object_tags(self.bucket, "k"))
        ofBucket = Tags.new_bucket_tags()
        ofBucket["a"] = "b"
        self.client.set_bucket_tags(self.bucket, ofBucket)
        self.assertEqual(self.client.get_bucket_tags(self.bucket), ofBucket)
        self.client.delete_bucket_tags(self.bucket)
        self.assertIsNone(self.client.get_bucket_tags(self.bucket))

    def test_compose(self) -> None:
        """An object is composed of others inside the server."""
        large = b"L" * (5 << 20)
        self.client.put_object(self.bucket, "one", BytesIO(large), len(large))
        self.client.put_object(self.bucket, "two", BytesIO(b"tail"), 4)
        sources = [ComposeSource(self.bucket, key) for key in ("one", "two")]
        self.client.compose_object(self.bucket, "both", sources)
        self.assertTrue(self.read("both") == large + b"tail")


@long("downloads minio-js, and sends 140 MB")
class MinioJSTests(S3Case):
    """minio-js, which sends headers of encryption as metadata."""

    def test_encryption(self) -> None:
        """Objects of each kind are stored and read, in parts too, and a bucket gets a default."""
        modules = nodeModules(MINIO)
        program = CHECKOUT / "tests" / "support" / "minioclient.js"
        bucket = self.makeBucket("miniojs")
        port = self.endpoint.rpartition(":")[2]
        arguments = ["node", program, port, ROOT.accessKey, ROOT.secretKey, bucket]
        runTool(arguments, {"NODE_PATH": str(modules), "HOME": str(self.makeDirectory())})
        for key, kind in (("s3", "AES256"), ("kms", "aws:kms"), ("default", "aws:kms")):
            head = self.s3.head_object(Bucket=bucket, Key=key)
            self.assertEqual(head["ServerSideEncryption"], kind)
