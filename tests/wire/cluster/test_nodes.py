"""S3 of nodes that take turns: what one has stored, the other serves."""

import os
from functools import cache
from signal import SIGHUP
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.ceph import cephEnvironment, runningCluster
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.support.upstreams3 import ownServer
from tests.wire.cluster.test_starts import assertRefused

PART = 5 << 20
"""The least bytes of a part but the last."""

BODIES = (b"", b"inline", os.urandom(100_000), os.urandom((4 << 20) + 5))
"""A row of the catalog; a blob; one of several pieces."""


class NodesCase(SynchronousTestCase):
    """Two nodes on files that both have mounted."""

    flags: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start the nodes."""
        self.cluster = self.make()
        self.addCleanup(self.cluster.close)
        self.nodes = self.cluster.start(2, *self.flags)
        self.one, self.two = map(self.cluster.client, self.nodes)
        self.one.create_bucket(Bucket="bucket")

    def make(self) -> Cluster:
        """Make the cluster."""
        return Cluster()

    def read(self, client: Any, key: str, **named: Any) -> bytes:
        """Read an object."""
        body: bytes = client.get_object(Bucket="bucket", Key=key, **named)["Body"].read()
        return body

    def names(self, client: Any) -> list[str]:
        """List the keys."""
        found = client.list_objects_v2(Bucket="bucket").get("Contents", ())
        return [each["Key"] for each in found]

    def assertClean(self, *nodes: Daemon) -> None:
        """
        Stop the nodes in order; catalog and blobs agree to the byte, and no lease is left unless a
        node lost it.
        """
        for each in nodes or self.nodes:
            self.assertEqual(each.stop(), 0, each.log)
            self.assertNotIn("Traceback", each.log)
        self.assertEqual(self.cluster.command("cluster", "fsck", "--verify"), (0, "0 problems\n"))
        [(left,)] = self.cluster.rows("SELECT count(*) FROM leases")
        self.assertLessEqual(left, self.cluster.lostLeases())


@long("starts a cluster")
class FilesTests(NodesCase):
    """Blobs as files."""

    def test_turns(self) -> None:
        """Objects of all sizes: what one node has stored, copied or removed, the other sees."""
        one, two = self.one, self.two
        for number, body in enumerate(BODIES):
            key = f"key{number}"
            one.put_object(Bucket="bucket", Key=key, Body=body, Metadata={"n": str(number)})
            self.assertEqual(self.read(two, key), body)
            head = two.head_object(Bucket="bucket", Key=key)
            self.assertEqual(
                (head["ContentLength"], head["Metadata"]["n"]), (len(body), str(number))
            )
            if body:
                self.assertEqual(self.read(two, key, Range="bytes=1-"), body[1:])
            two.copy_object(Bucket="bucket", Key=f"copy{number}", CopySource=f"bucket/{key}")
            two.put_object(Bucket="bucket", Key=key, Body=b"newer")
            self.assertEqual(self.read(one, key), b"newer")
            self.assertEqual(self.read(one, f"copy{number}"), body)
        keys = [f"{word}{number}" for word in ("copy", "key") for number in range(len(BODIES))]
        self.assertEqual(self.names(one), keys)
        self.assertEqual(self.names(two), keys)
        one.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": key} for key in keys[:4]]})
        self.assertEqual(self.names(two), keys[4:])
        error = self.assertRaises(ClientError, self.read, two, keys[0])
        self.assertEqual(error.response["Error"]["Code"], "NoSuchKey")
        self.checkMultipart()
        self.assertClean()

    def checkMultipart(self) -> None:
        """An upload whose parts came by two nodes, completed by the one that did not begin it."""
        one, two = self.one, self.two
        parts = (os.urandom(PART), os.urandom(PART), b"end")
        upload = one.create_multipart_upload(Bucket="bucket", Key="big")["UploadId"]
        named = {"Bucket": "bucket", "Key": "big", "UploadId": upload}
        done = [
            {
                "PartNumber": number,
                "ETag": client.upload_part(PartNumber=number, Body=body, **named)["ETag"],
            }
            for number, (client, body) in enumerate(zip((two, one, two), parts, strict=True), 1)
        ]
        listed = one.list_parts(**named)["Parts"]
        self.assertEqual([each["Size"] for each in listed], [PART, PART, 3])
        two.complete_multipart_upload(MultipartUpload={"Parts": done}, **named)
        self.assertEqual(self.read(one, "big"), b"".join(parts))
        aborted = two.create_multipart_upload(Bucket="bucket", Key="no")["UploadId"]
        one.upload_part(Bucket="bucket", Key="no", UploadId=aborted, PartNumber=1, Body=parts[0])
        one.abort_multipart_upload(Bucket="bucket", Key="no", UploadId=aborted)
        self.assertEqual(two.list_multipart_uploads(Bucket="bucket").get("Uploads", []), [])


@long("starts a cluster")
class SettingTests(NodesCase):
    """What is not an object."""

    def test_settings(self) -> None:
        """Versioning, a policy, tags and a removed bucket: the other node has them at once."""
        one, two = self.one, self.two
        one.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
        first = two.put_object(Bucket="bucket", Key="k", Body=b"1")["VersionId"]
        second = one.put_object(Bucket="bucket", Key="k", Body=b"2")["VersionId"]
        two.put_object_tagging(
            Bucket="bucket", Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}
        )
        tags = one.get_object_tagging(Bucket="bucket", Key="k")["TagSet"]
        self.assertEqual(tags, [{"Key": "a", "Value": "b"}])
        listed = two.list_object_versions(Bucket="bucket")["Versions"]
        self.assertEqual([each["VersionId"] for each in listed], [second, first])
        self.assertEqual(self.read(one, "k", VersionId=first), b"1")
        rule = {"ID": "r", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}
        for client, other in ((one, two), (two, one)):
            client.put_bucket_lifecycle_configuration(
                Bucket="bucket", LifecycleConfiguration={"Rules": [rule]}
            )
            other.get_bucket_lifecycle_configuration(Bucket="bucket")
            other.delete_bucket_lifecycle(Bucket="bucket")
            error = self.assertRaises(
                ClientError, client.get_bucket_lifecycle_configuration, Bucket="bucket"
            )
            self.assertEqual(error.response["Error"]["Code"], "NoSuchLifecycleConfiguration")
        for version in (first, second):
            two.delete_object(Bucket="bucket", Key="k", VersionId=version)
        one.delete_bucket(Bucket="bucket")
        error = self.assertRaises(ClientError, two.put_object, Bucket="bucket", Key="k", Body=b"")
        self.assertEqual(error.response["Error"]["Code"], "NoSuchBucket")
        self.assertClean()


@long("starts a cluster")
class WorkersTests(NodesCase):
    """Each node has two workers, each of which is a node to the others."""

    flags = ("--workers", "2")

    def test_workers(self) -> None:
        """
        Each worker has a lease of its own, and no worker a part of a store in its directory; what
        one has stored, all others serve, also workers that a reload has put in their place.
        """
        self.assertEqual(self.cluster.rows("SELECT count(*) FROM leases WHERE alive"), [(4,)])
        for each in self.nodes:
            self.assertEqual(
                {path.name for path in each.data.iterdir()}, {"lock", "listeners.json"}
            )
        for number, body in enumerate(BODIES):
            self.one.put_object(Bucket="bucket", Key=f"key{number}", Body=body)
            for node in self.nodes:
                # Each of these connections is one worker's.
                clients = [self.cluster.client(node, connections=n) for n in (20, 21, 22, 23)]
                self.assertEqual({self.read(each, f"key{number}") for each in clients}, {body})
        for each in self.nodes:
            each.signal(SIGHUP)
        for each in self.nodes:
            each.waitForLog("configuration reloaded, 2 workers replaced")
        self.assertEqual(self.read(self.two, "key1"), BODIES[1])
        self.assertClean()


@cache
def _pool() -> str:
    cluster = runningCluster()
    cluster.makePool("nodes")
    return f"rados:nodes?conf={cluster.configuration}"


@long("starts a cluster")
class RadosTests(FilesTests):
    """Blobs in RADOS."""

    def make(self) -> Cluster:
        """Have a namespace."""
        name = self.id().rpartition(".")[2]
        return Cluster(f"{_pool()}&namespace={name}", environment=cephEnvironment())

    def test_refused(self) -> None:
        """A pool that is not there, and one of another cluster."""
        other = Cluster(environment=cephEnvironment())
        self.addCleanup(other.close)
        assertRefused(self, other, "nothing was changed", blobs=self.cluster.blobs)
        missing = self.cluster.blobs.replace("rados:nodes", "rados:missing")
        assertRefused(self, other, "missing", blobs=missing)


@long("starts a cluster")
class S3Tests(FilesTests):
    """Blobs in a bucket of another server, which is our own daemon."""

    def make(self) -> Cluster:
        """Have a bucket."""
        address = ownServer().newBucket()
        return Cluster(f"s3:http://{address.host}/{address.bucket}/blobs")

    def test_refused(self) -> None:
        """A bucket that is not there, one of another cluster, and wrong credentials."""
        other = Cluster()
        self.addCleanup(other.close)
        blobs = self.cluster.blobs
        assertRefused(self, other, "nothing was changed", blobs=blobs)
        assertRefused(self, other, "NoSuchBucket", blobs=blobs.replace("/upstream", "/downstream"))
        wrong = {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}
        assertRefused(self, other, "403", environment=wrong, blobs=blobs)
