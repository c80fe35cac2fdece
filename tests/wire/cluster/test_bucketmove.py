"""The move of one bucket from one cluster to another, both of which serve, with real servers."""

import hashlib
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from botocore.exceptions import ClientError
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.cluster.fsck import check
from storagegate.cluster.options import ClusterOptions
from storagegate.cluster.tables import MigrationError
from storagegate.migration.command import abandonBucket, moveBucket
from storagegate.migration.engine import Outcome
from storagegate.storage.versionids import VersionIds
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.journal import Journal, afterWrite, whole
from tests.support.selection import long, rounds
from tests.wire.cluster.agreement import disagreements, sharedFiles, waitUntilSettled
from tests.wire.cluster.case import ask, put
from tests.wire.cluster.nodeprogram import LATE, PROGRAM
from tests.wire.s3.bulk import objectTarget
from tests.wire.s3.fixture import eventually
from tests.wire.s3.verdict import judge

BUCKET = "moving"

LARGE = 70_000
"""Bytes of an object that is a blob."""

MOST = 250
"""Writes of one client that come one after the other: all versions are in one page of a list."""

STEPS = {
    "follow",
    "clear",
    "claim",
    "claimBlobs",
    "copy buckets",
    "copy bucketsettings",
    "copy objects",
    "copy versions",
    "copy uploads",
    "intend blobs",
    "copy bytes",
    "name blobs",
    "update objects",
    "drop notes",
    "seal",
    "settle",
    "finish",
    "retire",
    "open",
    "clear source",
    "clear target",
}


class Interrupted(BaseException):
    """The end of a run, as a crash would be: nothing handles it."""


class Pair:
    """Two clusters of a node each; the first has a bucket."""

    def __init__(self, addCleanup: Callable[..., object]) -> None:
        self.clusters = [Cluster(), Cluster()]
        self.clients: list[Any] = []
        self.nodes: list[Daemon] = []
        for cluster in self.clusters:
            addCleanup(cluster.close)
        for cluster in self.clusters:
            # What a killed run has left is swept after a second, not after a minute.
            node = cluster.node(environment={LATE: "1"}, program=PROGRAM)
            node.launch()
            self.nodes.append(node)
        for cluster, node in zip(self.clusters, self.nodes, strict=True):
            node.waitForListeners()
            self.clients.append(cluster.client(node, patient=False))
        self.options = [ClusterOptions(**cluster.options) for cluster in self.clusters]
        self.ids = [
            VersionIds(cluster.rows("SELECT value FROM meta WHERE name = 'secret'")[0][0])
            for cluster in self.clusters
        ]

    def serving(self, bucket: str = BUCKET) -> list[bool]:
        """Return which clusters have a bucket."""
        return [self.has(s3, bucket) for s3 in self.clients]

    def has(self, s3: Any, bucket: str) -> bool:
        """Return whether a cluster has a bucket."""
        try:
            s3.head_bucket(Bucket=bucket)
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 404, error
            return False
        return True

    def assertSound(self, case: Any) -> None:
        """Check both clusters, and that neither has anything of a move any more."""
        from twisted.internet import reactor

        for cluster in self.clusters:
            waitUntilSettled(cluster.conninfos[0])
            found = disagreements(cluster.conninfos[0], sharedFiles(cluster.directory / "blobs"))
            case.assertEqual(found, [])
            # What storagegate cluster fsck --verify does.
            lines: list[str] = []
            options = ClusterOptions(**cluster.options)
            case.assertEqual((check(options, False, True, lines.append, reactor), lines), (0, []))
            for table in ("bucketmoves", "arriving", "arrivedblobs"):
                case.assertEqual(cluster.rows(f"SELECT * FROM {table}"), [])
            case.assertEqual(
                cluster.rows(
                    "SELECT proname FROM pg_proc WHERE proname LIKE 'migration%'"
                    " UNION ALL SELECT relname FROM pg_class WHERE relname LIKE 'migration%'"
                ),
                [],
            )

    def newId(self, versionId: str) -> str:
        """Return the id of a version in the second cluster."""
        sequence = self.ids[0].read(versionId)
        return versionId if sequence is None else self.ids[1].make(sequence)


def dump(s3: Any, newId: Callable[[str], str] = lambda id: id) -> dict[str, Any]:
    """Read all that clients see of the bucket."""
    found = s3.list_object_versions(Bucket=BUCKET)
    versions = [
        (
            each["Key"],
            newId(each["VersionId"]),
            each["IsLatest"],
            "ETag" in each,
            each["LastModified"],
        )
        for each in (*found.get("Versions", []), *found.get("DeleteMarkers", []))
    ]
    contents = []
    for each in found.get("Versions", []):
        name = {"Bucket": BUCKET, "Key": each["Key"], "VersionId": each["VersionId"]}
        got = s3.get_object(**name)
        body = hashlib.sha256(got["Body"].read()).hexdigest()
        tags = s3.get_object_tagging(**name)["TagSet"]
        kept = {field: got.get(field) for field in ("ETag", "Metadata", "ObjectLockMode")}
        kept["hold"] = got.get("ObjectLockLegalHoldStatus")
        contents.append((each["Key"], body, tags, kept, s3.get_object_acl(**name)["Grants"]))
    uploads = []
    for each in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        name = {"Bucket": BUCKET, "Key": each["Key"], "UploadId": each["UploadId"]}
        parts = s3.list_parts(**name).get("Parts", [])
        uploads.append((name, [(part["PartNumber"], part["ETag"], part["Size"]) for part in parts]))
    settings = {
        "versioning": s3.get_bucket_versioning(Bucket=BUCKET).get("Status"),
        "lock": s3.get_object_lock_configuration(Bucket=BUCKET)["ObjectLockConfiguration"],
        "tags": s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"],
        "acl": s3.get_bucket_acl(Bucket=BUCKET)["Grants"],
    }
    return {"versions": versions, "contents": contents, "uploads": uploads, **settings}


class Changes:
    """Changes of the bucket by a client, of all kinds."""

    def __init__(self, s3: Any, seed: int) -> None:
        self._s3 = s3
        self._random = random.Random(seed)
        self._uploads: list[tuple[str, str]] = []
        s3.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
        self._tagBucket()

    def change(self, times: int = 1) -> None:
        """Change something."""
        for _ in range(times):
            key = f"key/{self._random.randrange(6)}"
            try:
                self._random.choice(
                    (
                        self._put,
                        self._put,
                        self._put,
                        self._copy,
                        self._delete,
                        self._drop,
                        self._hold,
                        self._tag,
                        self._begin,
                        self._end,
                    )
                )(key)
            except ClientError as error:
                # The key is not there, or locked, or would be copied to itself.
                assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403, 404), (
                    error
                )

    def _put(self, key: str) -> None:
        body = self._random.randbytes(self._random.choice((0, 100, LARGE)))
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata={"a": key})

    def _copy(self, key: str) -> None:
        other = f"key/{self._random.randrange(6)}"
        self._s3.copy_object(Bucket=BUCKET, Key=other, CopySource={"Bucket": BUCKET, "Key": key})
        self._s3.copy_object(Bucket="staying", Key=key, CopySource={"Bucket": BUCKET, "Key": key})

    def _delete(self, key: str) -> None:
        self._s3.delete_object(Bucket=BUCKET, Key=key)

    def _drop(self, key: str) -> None:
        found = self._s3.list_object_versions(Bucket=BUCKET, Prefix=key).get("Versions", [])
        if found:
            id = self._random.choice(found)["VersionId"]
            self._s3.delete_object(Bucket=BUCKET, Key=key, VersionId=id)

    def _hold(self, key: str) -> None:
        status = {"Status": self._random.choice(("ON", "OFF"))}
        self._s3.put_object_legal_hold(Bucket=BUCKET, Key=key, LegalHold=status)

    def _tag(self, key: str) -> None:
        tags = [{"Key": "a", "Value": str(self._random.random())}]
        self._s3.put_object_tagging(Bucket=BUCKET, Key=key, Tagging={"TagSet": tags})
        self._tagBucket()

    def _tagBucket(self) -> None:
        tags = [{"Key": "a", "Value": str(self._random.random())}]
        self._s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": tags})

    def _begin(self, key: str) -> None:
        id = self._s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        self._uploads.append((key, id))
        name = {"Bucket": BUCKET, "Key": key, "UploadId": id}
        self._s3.upload_part(**name, PartNumber=1, Body=self._random.randbytes(LARGE))
        self._s3.upload_part_copy(
            **name, PartNumber=2, CopySource={"Bucket": BUCKET, "Key": "key/0"}
        )

    def _end(self, key: str) -> None:
        if self._uploads:
            key, id = self._uploads.pop(0)
            name = {"Bucket": BUCKET, "Key": key, "UploadId": id}
            etag = self._s3.list_parts(**name)["Parts"][0]["ETag"]
            parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
            self._s3.complete_multipart_upload(**name, MultipartUpload=parts)


class BucketCase(TestCase):
    """Two clusters."""

    timeout = 300

    def setUp(self) -> None:
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.pair = Pair(self.addCleanup)
        self.old, self.new = self.pair.clients
        for s3 in (self.old, self.new):
            s3.create_bucket(Bucket="staying")
        self.lines: list[str] = []

    def move(
        self, onStep: Callable[[str], object] = lambda name: None, bucket: str = BUCKET
    ) -> Deferred[Outcome]:
        """Move the bucket, in small pages."""
        from twisted.internet import reactor

        source, target = self.pair.options
        args = (source, bucket, target, reactor, self.lines.append, onStep)
        return deferToThread(moveBucket, *args, mostRows=8)


@long("starts a cluster")
class CrashTests(BucketCase):
    """A run that ends anywhere."""

    async def test_anywhere(self) -> None:
        """
        Runs that end at each step, while the bucket changes: the next goes on. Never have both
        clusters the bucket. In the end all is in the second: bytes, versions in their order, tags,
        locks, settings, uploads with their parts.
        """
        changes = Changes(self.old, self.seed)
        changes.change(30)
        ended: set[str] = set()
        before: list[dict[str, Any]] = []

        count = itertools.count()

        def onStep(name: str) -> None:
            if "seal" not in ended:
                if name not in ended or next(count) % 6 == 0:
                    changes.change()
            elif name == "settle":
                before[:] = [dump(self.old, self.pair.newId)]
                self.assertRaises(ClientError, self.old.delete_bucket_tagging, Bucket=BUCKET)
                self.old.put_object(Bucket="staying", Key="key", Body=b"")
            if name not in ended:
                ended.add(name)
                raise Interrupted

        while True:
            try:
                await self.move(onStep)
            except Interrupted:
                isOld, isNew = "open" not in ended, "clear source" in ended
                self.assertEqual(self.pair.serving(), [isOld, isNew], f"{ended}")
                if isOld:
                    self.old.put_object(Bucket=BUCKET, Key="more", Body=b"1")
            else:
                break
        self.assertEqual(STEPS - ended, set(), f"seed {self.seed}")
        self.assertEqual(self.pair.serving(), [False, True])
        self.assertEqual(dump(self.new), before[0], f"seed {self.seed}")
        await self.assertWritable()

    async def assertWritable(self) -> None:
        """Check that the bucket is one like others, and can move back."""
        stack = self.new.list_object_versions(Bucket=BUCKET, Prefix="more")["Versions"]
        self.new.put_object(Bucket=BUCKET, Key="more", Body=b"2" * LARGE)
        again = self.new.list_object_versions(Bucket=BUCKET, Prefix="more")["Versions"]
        self.assertEqual(
            [each["VersionId"] for each in again[1:]], [each["VersionId"] for each in stack]
        )
        for upload in self.new.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            name = {"Bucket": BUCKET, "Key": upload["Key"], "UploadId": upload["UploadId"]}
            found = self.new.list_parts(**name).get("Parts", [])[:1]
            parts = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in found]
            self.new.complete_multipart_upload(**name, MultipartUpload={"Parts": parts})
        # Its name is free in the old cluster.
        self.old.create_bucket(Bucket=BUCKET)
        self.old.delete_bucket(Bucket=BUCKET)
        after = dump(self.new, lambda id: self.pair.ids[0].make(self.pair.ids[1].read(id) or 0))
        self.pair.options.reverse()
        await self.move()
        self.assertEqual(dump(self.old), after)
        self.assertEqual(self.pair.serving(), [True, False])
        self.pair.assertSound(self)


@long("starts a cluster")
class RefusalTests(BucketCase):
    """What cannot be moved, or not there; and moves that are given up."""

    async def assertRefuses(self, text: str, bucket: str = BUCKET) -> None:
        """Check that a move is refused with one line, before anything is written."""
        before = [self.notes(cluster) for cluster in self.pair.clusters]
        error = await self.assertFailure(self.move(bucket=bucket), MigrationError)
        self.assertIn(text, str(error))
        self.assertNotIn("\n", str(error))
        self.assertEqual([self.notes(cluster) for cluster in self.pair.clusters], before)

    def notes(self, cluster: Cluster) -> list[Any]:
        """Read what a move writes."""
        return cluster.rows(
            "SELECT name, 0 FROM bucketmoves UNION ALL SELECT relname, 1 FROM pg_class"
            " WHERE relname LIKE 'migration%'"
        ) + cluster.rows("SELECT name FROM buckets ORDER BY name")

    async def test_refused(self) -> None:
        """
        A bucket that does not exist, one whose name the target has, a watched one; the same
        cluster; one that another run moves, or that is being moved elsewhere; a reserved name.
        """
        first, second = self.pair.clusters
        await self.assertRefuses(f"has no bucket {BUCKET}")
        await self.assertRefuses("exists already", "staying")
        Changes(self.old, self.seed).change(20)
        first.rows("UPDATE buckets SET watched = true WHERE name = %s", BUCKET)
        await self.assertRefuses("is watched by clients")
        first.rows("UPDATE buckets SET watched = false WHERE name = %s", BUCKET)
        options = self.pair.options
        self.pair.options = [options[0], options[0]]
        await self.assertRefuses("both configurations name the same cluster")
        self.pair.options = options

        def onStep(name: str) -> None:
            if name == "copy objects":
                with self.assertRaises(ClientError) as caught:
                    self.new.create_bucket(Bucket=BUCKET)
                self.assertEqual(caught.exception.response["Error"]["Code"], "SlowDown")
                raise Interrupted

        await self.assertFailure(self.move(onStep), Interrupted)
        self.pair.options = options[::-1]
        await self.assertRefuses("is itself the target of a migration")
        self.pair.options = options
        code, text = first.command(
            "cluster",
            "migrate",
            "--bucket",
            BUCKET,
            "--abandon",
            "--to-config",
            str(second.configuration()),
        )
        self.assertEqual((code, text), (0, ""))
        self.assertEqual(self.pair.serving(), [True, False])
        self.assertRaises(MigrationError, abandonBucket, options[0], BUCKET, options[1])
        await self.move()
        self.assertEqual(self.pair.serving(), [False, True])
        self.pair.assertSound(self)

    async def test_deleted(self) -> None:
        """A bucket that is deleted meanwhile ends the move; it can be given up."""
        self.old.create_bucket(Bucket=BUCKET)

        def onStep(name: str) -> None:
            if name == "settle":
                # Not while it is sealed.
                self.assertRaises(ClientError, self.old.delete_bucket, Bucket=BUCKET)
            if name == "copy objects":
                self.old.delete_bucket(Bucket=BUCKET)

        error = await self.assertFailure(self.move(onStep), MigrationError)
        self.assertIn("was deleted", str(error))
        error = await self.assertFailure(self.move(), MigrationError)
        self.assertIn("use --abandon to end the migration", str(error))
        abandonBucket(self.pair.options[0], BUCKET, self.pair.options[1])
        self.old.create_bucket(Bucket=BUCKET)
        await self.move()
        self.assertEqual(self.pair.serving(), [False, True])


class Command:
    """C{storagegate cluster migrate --bucket} as a process."""

    def __init__(self, pair: Pair, bucket: str) -> None:
        source, target = pair.clusters
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "storagegate",
                "cluster",
                "migrate",
                "--bucket",
                bucket,
                "--to-config",
                str(target.configuration()),
                "--config",
                str(source.configuration()),
            ],
            env=daemonEnvironment(source.environment()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill(self) -> bool:
        """End it at once; return whether it had not ended by itself."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
        return self._process.returncode == -signal.SIGKILL

    def wait(self) -> tuple[int, str]:
        """Wait until it ends; return its exit code, and what it has said."""
        text, _ = self._process.communicate(timeout=120)
        return self._process.returncode, text


@long("starts a cluster")
class LoadTests(BucketCase):
    """A bucket that is written to while it is moved, by runs that are killed."""

    def write(self, bucket: str, number: int, journal: Journal, isEnding: Event) -> None:
        """Write to keys of one client until the bucket is not there any more."""
        chance = random.Random(f"{self.seed}/{bucket}/{number}")
        node = self.pair.nodes[0]
        written = 0
        while not isEnding.wait(0.03 if written < MOST else 0.5):
            written += 1
            key = f"w{number}/{chance.randrange(20)}"
            body = chance.randbytes(16) * (chance.choice((10, LARGE, 10 * LARGE)) // 16)
            content = None if chance.random() < 0.2 else whole(body)
            journal.attempt(key, afterWrite(journal.newest(key), "Enabled", content))
            if content is None:
                answer = ask(node, "DELETE", objectTarget(bucket, key))
            else:
                answer = put(node, bucket, key, body)
            if answer.status in (200, 204):
                journal.acknowledge(key, self.pair.newId(answer.headers["x-amz-version-id"]))
                continue
            assert answer.status in (503, 404), answer
            journal.refuse(key)
            if answer.status == 404:
                break

    def moveUnderLoad(self, bucket: str) -> None:
        """Move a bucket that is written to, with runs that are killed, and judge."""
        self.old.create_bucket(Bucket=bucket)
        status = {"Status": "Enabled"}
        self.old.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
        journal, isEnding = Journal(), Event()
        threads = [
            Thread(target=self.write, args=(bucket, number, journal, isEnding))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        self.addCleanup(isEnding.set)
        self.assertTrue(eventually(lambda: journal.acknowledged > 50))
        chance = random.Random(f"{self.seed}/{bucket}")
        for _ in range(rounds(1, 1, soak=3)):
            command = Command(self.pair, bucket)
            Event().wait(chance.uniform(0.7, 2.0))
            isKilled = command.kill()
            isOld, isNew = self.pair.serving(bucket)
            self.assertFalse(isOld and isNew)
            self.assertTrue(isKilled or isNew)
        code, text = Command(self.pair, bucket).wait()
        if code:
            # The run before had come to its end.
            self.assertIn(f"has no bucket {bucket}", text)
        for thread in threads:
            thread.join(30)
        self.assertEqual(self.pair.serving(bucket), [False, True])
        judge(self.pair.nodes[1], bucket, journal, f"seed {self.seed}")
        print(f"{journal.acknowledged} writes; {text}", file=sys.stderr)

    def test_load(self) -> None:
        """All that was acknowledged is in the new cluster, under ids of the same writes."""
        for number in range(rounds(1, 1, soak=20)):
            self.moveUnderLoad(f"{BUCKET}{number}")
        self.pair.assertSound(self)
