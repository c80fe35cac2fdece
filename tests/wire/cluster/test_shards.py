"""Two nodes over two PostgreSQLs, each with some of the buckets."""

import json
import os
from contextlib import closing
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster.admin import openForTools
from storagegate.storage.cluster.blobs.pieces import MARKER
from tests.support.ceph import cephEnvironment, runningCluster
from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.http import request
from tests.support.postgresql import Server, execute, sharedServer
from tests.support.selection import long, soak
from tests.support.upstreams3 import ownServer
from tests.wire.cluster.agreement import sharedFiles
from tests.wire.s3.fixture import eventually
from tests.wire.services.test_userworkers import Socket

SIZES = (100, 100_000, (4 << 20) + 5)
"""A row of the catalog; a blob; one of several pieces."""

PART = 5 << 20

PASSWORD = "correcthorse"


def statusOf(call: Any, **named: Any) -> int:
    """Return the status of an answer."""
    try:
        return int(call(**named)["ResponseMetadata"]["HTTPStatusCode"])
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


class ShardsCase(SynchronousTestCase):
    """
    The buckets C{zero} and C{one}, in the shards of these numbers.

    @cvar hasStandby: Whether commits of the second shard wait for a standby.
    @cvar flags: Of each node.
    """

    hasStandby = False

    flags: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Make both shards, start the nodes, and make the buckets."""
        self.cluster = self.make()
        self.addCleanup(self.cluster.close)
        if self.hasStandby:
            self.server = Server.make()
            self.addCleanup(self.server.remove)
        else:
            self.server = sharedServer(1)
            self.addCleanup(self.server.start)
        self.added = self.server.database()
        servers = [self.added]
        if self.hasStandby:
            self.standby = self.server.standby("standby")
            self.addCleanup(self.standby.remove)
            servers.append(self.standby.conninfo(self.added.rpartition("=")[2]))
        # The servers of tests let in clients with any password.
        servers = [f"{each} password={PASSWORD}" for each in servers]
        self.addShard(servers)
        self.nodes = self.cluster.start(2, *self.flags)
        self.one, self.two = map(self.cluster.client, self.nodes)
        self.one.create_bucket(Bucket="zero")
        self.useSecondShard()
        self.one.create_bucket(Bucket="one")

    def addShard(self, servers: list[str]) -> None:
        """Add the second shard."""
        with closing(openForTools(self.cluster.conninfos)) as admin:
            self.assertEqual(admin.addShard(servers), 1)

    def useSecondShard(self) -> None:
        """Open the second shard for new buckets, and close the first."""
        with closing(openForTools(self.cluster.conninfos)) as admin:
            admin.openShard(1, True)
            admin.openShard(0, False)

    def make(self) -> Cluster:
        """Make the cluster."""
        return Cluster()

    def read(self, client: Any, bucket: str, key: str) -> bytes:
        """Read an object."""
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body


@long("starts a cluster")
class CopyTests(ShardsCase):
    """Objects, with their blobs in files."""

    def blobs(self) -> set[str]:
        """Return the names of what is stored as blobs."""
        return {*sharedFiles(self.cluster.directory)()}

    def test_copies(self) -> None:
        """
        Objects of all sizes are stored, read and copied by both nodes, also from shard to shard;
        in the end nothing is left of them.
        """
        one, two = self.one, self.two
        names = sorted(each["Name"] for each in two.list_buckets()["Buckets"])
        self.assertEqual(names, ["one", "zero"])
        for size in SIZES:
            body, key = os.urandom(size), f"key{size}"
            for source, target in (("zero", "one"), ("one", "zero")):
                one.put_object(Bucket=source, Key=key, Body=body, Metadata={"n": source})
                self.assertEqual(self.read(two, source, key), body)
                for bucket in (source, target):
                    copy = f"copy-{source}-{key}"
                    two.copy_object(Bucket=bucket, Key=copy, CopySource=f"{source}/{key}")
                    self.assertEqual(self.read(one, bucket, copy), body)
                    head = one.head_object(Bucket=bucket, Key=copy)
                    self.assertEqual(head["Metadata"]["n"], source)
                one.delete_object(Bucket=source, Key=key)
                self.assertEqual(self.read(two, target, copy), body)
        self._copyPart()
        self.assertGreater(len(self.blobs()), 10)
        self.assertEqual(self.cluster.command("cluster", "fsck", "--verify"), (0, "0 problems\n"))
        self.assertEqual(execute(self.added, "SELECT count(*) FROM directory"), [(0,)])
        self._empty()

    def _copyPart(self) -> None:
        body = os.urandom(PART + 100)
        self.one.put_object(Bucket="zero", Key="source", Body=body)
        where = {"Bucket": "one", "Key": "parts"}
        where["UploadId"] = self.two.create_multipart_upload(**where)["UploadId"]
        parts = []
        for number, run in ((1, f"0-{PART - 1}"), (2, f"{PART}-{PART + 99}")):
            found = self.one.upload_part_copy(
                **where, PartNumber=number, CopySource="zero/source", CopySourceRange=f"bytes={run}"
            )
            parts.append({"PartNumber": number, "ETag": found["CopyPartResult"]["ETag"]})
        self.two.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        self.assertEqual(self.read(self.one, "one", "parts"), body)

    def _empty(self) -> None:
        """Remove all objects; each shard collects its own blobs."""
        for bucket in ("zero", "one"):
            for each in self.one.list_objects_v2(Bucket=bucket).get("Contents", ()):
                self.two.delete_object(Bucket=bucket, Key=each["Key"])
        for conninfo in (self.cluster.conninfos[0], self.added):
            blobs = "SELECT count(*) FROM blobs"
            self.assertTrue(eventually(lambda c=conninfo, s=blobs: execute(c, s) == [(0,)]))
        # The bytes go before the rows.
        self.assertEqual(self.blobs() - {MARKER}, set())
        for node in self.nodes:
            self.assertEqual(node.stop(), 0, node.log)
            self.assertNotIn("Traceback", node.log)
        for conninfo in (self.cluster.conninfos[0], self.added):
            [(left,)] = execute(conninfo, "SELECT count(*) FROM leases")
            self.assertLessEqual(left, self.cluster.lostLeases())


@soak("the same copies as in files and in S3")
class RadosTests(CopyTests):
    """With their blobs in RADOS."""

    def make(self) -> Cluster:
        """Have a pool."""
        ceph = runningCluster()
        ceph.makePool("shards")
        blobs = f"rados:shards?conf={ceph.configuration}"
        return Cluster(blobs, environment=cephEnvironment())

    def blobs(self) -> set[str]:
        """See L{CopyTests.blobs}."""
        return runningCluster().names("shards")


@long("starts a cluster")
class S3Tests(CopyTests):
    """With their blobs in a bucket of our own daemon."""

    def make(self) -> Cluster:
        """Have a bucket."""
        self.address = ownServer().newBucket()
        return Cluster(f"s3:http://{self.address.host}/{self.address.bucket}/blobs")

    def blobs(self) -> set[str]:
        """See L{CopyTests.blobs}."""
        return ownServer().names(self.address)


@long("starts a cluster")
class ShardsTests(ShardsCase):
    """Two nodes."""

    def test_away(self) -> None:
        """While one shard is away its buckets are 503, the others are served, and it comes back."""
        body = os.urandom(100_000)
        for bucket in ("zero", "one"):
            self.one.put_object(Bucket=bucket, Key="k", Body=body)
        self.server.stop()
        get, put = self.two.get_object, self.one.put_object
        self.assertEqual(statusOf(get, Bucket="one", Key="k"), 503)
        self.assertEqual(statusOf(put, Bucket="one", Key="k", Body=b"new"), 503)
        self.assertEqual(self.read(self.two, "zero", "k"), body)
        self.assertEqual(statusOf(put, Bucket="zero", Key="other", Body=body), 200)
        self.assertEqual(statusOf(self.one.list_buckets), 503)
        self.server.start()
        self.assertTrue(eventually(lambda: statusOf(get, Bucket="one", Key="k") == 200))
        self.assertTrue(
            eventually(lambda: statusOf(put, Bucket="one", Key="new", Body=body) == 200)
        )
        self.assertEqual(self.read(self.two, "one", "k"), body)

    def test_console(self) -> None:
        """An object and a part that come by the console are stored in the shard of their bucket."""
        body = os.urandom(100_000)
        ask = partial(request, self.nodes[0].address("admin"), headers=ROOT.plainHeaders())
        for bucket in ("zero", "one"):
            path = f"/console/api/v1/buckets/{bucket}"
            self.assertEqual(ask("PUT", f"{path}/objects/k", body)[0], 200, bucket)
            _, made = ask("POST", f"{path}/uploads", b'{"key": "parts"}')
            upload = f"{path}/uploads/{json.loads(made)['id']}"
            for step in (("PUT", f"{upload}/parts/1", body), ("POST", f"{upload}/complete", b"{}")):
                self.assertEqual(ask(*step)[0], 200, bucket)
            for key in ("k", "parts"):
                self.assertEqual(self.read(self.two, bucket, key), body)

    def test_reusedNames(self) -> None:
        """A policy in the second shard refuses a key of a removed account, in both ways."""
        ask = partial(request, self.nodes[0].address("admin"), headers=ROOT.plainHeaders())
        keys, new = "/console/api/v1/keys", b'{"account": "ada"}'
        made = json.loads(ask("POST", keys, new)[1])["accessKey"]
        for bucket, principal in (("zero", "*"), ("one", {"AWS": "ada"})):
            statement = {
                "Effect": "Deny",
                "Principal": principal,
                "Action": "s3:PutObject",
                "Resource": f"arn:aws:s3:::{bucket}/*",
            }
            policy = json.dumps({"Statement": statement})
            self.one.put_bucket_policy(Bucket=bucket, Policy=policy)
        self.assertEqual(ask("DELETE", f"{keys}/{made}")[0], 204)
        status, body = ask("POST", keys, new)
        self.assertEqual((status, json.loads(body)["details"]), (409, {"buckets": ["one"]}))
        code, text = self.cluster.command("keys", "create", "--account", "ada")
        self.assertEqual((code, "ACL of: one (" in text), (1, True), text)

    def test_killed(self) -> None:
        """What a node that is killed has left in each shard is swept by the other."""
        for bucket in ("zero", "one"):
            self.one.put_object(Bucket=bucket, Key="k", Body=os.urandom(100_000))
        self.nodes[0].kill()
        counts = "SELECT count(*) FROM leases"
        for conninfo in (self.cluster.conninfos[0], self.added):
            # The case of late writes takes a minute; until then the lease is over.
            alive = f"{counts} WHERE alive"
            self.assertTrue(eventually(lambda c=conninfo, s=alive: execute(c, s) == [(1,)]))
        for bucket in ("zero", "one"):
            self.assertEqual(len(self.read(self.two, bucket, "k")), 100_000)

    def test_damage(self) -> None:
        """Each shard is checked: a blob that is gone, and a bucket that the directory has not."""
        self.one.put_object(Bucket="one", Key="k", Body=os.urandom(100_000))
        [(blob,)] = execute(self.added, "SELECT id FROM blobs WHERE refs > 0")
        [path] = self.cluster.directory.glob(f"blobs/**/{blob}")
        path.unlink()
        self.cluster.rows("DELETE FROM directory WHERE bucket = 'one'")
        code, text = self.cluster.command("cluster", "fsck", "--repair")
        self.assertEqual(code, 1)
        self.assertEqual(
            text.splitlines(),
            [
                "bucket one is in shard 1, the directory has it nowhere: repaired",
                f"blob {blob} is missing; referenced by one/'k'",
                "1 problem",
            ],
        )
        self.assertEqual(
            self.cluster.rows("SELECT shard FROM directory WHERE bucket = 'one'"), [(1,)]
        )
        self.server.stop()
        code, text = self.cluster.command("cluster", "status")
        self.assertEqual(code, 1)
        self.assertIn("\nshard 1\nproblem: shard 1: ", text)
        for node in self.nodes:
            self.assertNotIn(PASSWORD, node.log)
        self.assertNotIn(PASSWORD, text)


@long("starts a cluster")
class CommandTests(ShardsCase):
    """The commands make the shards."""

    def shardCommand(self, *arguments: str) -> str:
        """Run C{storagegate cluster shard}."""
        code, text = self.cluster.command("cluster", "shard", *arguments)
        self.assertEqual(code, 0, text)
        return text

    def addShard(self, servers: list[str]) -> None:
        """See L{ShardsCase.addShard}."""
        self.assertIn("shard 1 was added", self.shardCommand("add", *servers))

    def useSecondShard(self) -> None:
        """See L{ShardsCase.useSecondShard}."""
        self.shardCommand("open", "1")
        self.shardCommand("close", "0")

    def test_commands(self) -> None:
        """The commands say what they do not know."""
        self.assertEqual(
            self.shardCommand("list").splitlines(),
            [
                "shard 0 takes no new buckets: the catalog of [cluster]",
                "shard 1 takes new buckets: 127.0.0.1",
            ],
        )
        for bucket in ("zero", "one"):
            self.one.put_object(Bucket=bucket, Key="k", Body=os.urandom(100_000))
        self.assertEqual(self.cluster.command("cluster", "fsck", "--verify"), (0, "0 problems\n"))
        code, text = self.cluster.command("cluster", "status", "--json")
        found = json.loads(text)
        [shard] = found["shards"]
        self.assertEqual((code, shard["number"], shard["takesBuckets"]), (0, 1, True), text)
        self.assertEqual(shard["primary"], f"127.0.0.1:{self.server.port}")
        names = [{each["node"] for each in state["nodes"]} for state in (found, shard)]
        self.assertEqual(names[0], names[1])
        self.assertIn("\nshard 1\nprimary ", self.cluster.command("cluster", "status")[1])
        code, text = self.cluster.command("cluster", "shard", "add", self.added)
        self.assertEqual(code, 1)
        self.assertIn("is already the catalog of a store, or a shard", text)
        code, text = self.cluster.command("cluster", "shard", "add", "host=a,b dbname=c")
        self.assertEqual(code, 1)
        self.assertIn("number 1 names several", text)


@long("starts a cluster")
class FailoverTests(ShardsCase):
    """The second shard has a standby."""

    hasStandby = True

    def test_promoted(self) -> None:
        """
        While the primary of a shard is killed and its standby promoted the buckets of the other
        shard are served, its own are 503 and come back, and nothing acknowledged is lost.
        """
        stop = Event()
        loads = {
            bucket: Load(self.cluster.client(node), bucket, stop)
            for bucket, node in zip(("zero", "one"), self.nodes, strict=True)
        }
        for each in loads.values():
            each.start()
        try:
            self.assertTrue(eventually(lambda: all(len(e.bodies) > 20 for e in loads.values())))
            self.server.kill()
            self.assertTrue(eventually(lambda: 503 in loads["one"].statuses))
            self.standby.promote()
            before = {name: len(each.bodies) for name, each in loads.items()}
            self.assertTrue(
                eventually(lambda: all(len(e.bodies) > before[n] + 20 for n, e in loads.items()))
            )
        finally:
            stop.set()
            for each in loads.values():
                each.join()
        self.assertEqual(loads["zero"].statuses, {200})
        self.assertEqual(loads["one"].statuses, {200, 503})
        for bucket, load in loads.items():
            for key, body in load.bodies.items():
                self.assertEqual(self.read(self.two, bucket, key), body)
        found = self.cluster.command("cluster", "fsck", "--verify")
        self.assertEqual(found, (0, "0 problems\n"))


class Load(Thread):
    """
    Puts objects, one after the other.

    @ivar bodies: What was acknowledged.
    @ivar statuses: Those of all answers.
    """

    def __init__(self, client: Any, bucket: str, stop: Event) -> None:
        super().__init__()
        self._client, self._bucket, self._end = client, bucket, stop
        self.bodies: dict[str, bytes] = {}
        self.statuses: set[int] = set()

    def run(self) -> None:
        """Put rows and blobs in turns."""
        for number in count():
            if self._end.is_set():
                return
            key, body = f"k{number}", os.urandom(100 if number % 2 else 20_000)
            status = statusOf(self._client.put_object, Bucket=self._bucket, Key=key, Body=body)
            self.statuses.add(status)
            if status == 200:
                self.bodies[key] = body


@long("starts a cluster")
class WatchTests(ShardsCase):
    """C{WatchBucket} on a node whose catalog has several shards."""

    flags = ("--http", "tcp:0:interface=127.0.0.1")

    def has(self, conninfo: str, count: int) -> bool:
        """Say whether a shard has so many watches."""
        return execute(conninfo, "SELECT count(*) FROM watches") == [(count,)]

    def test_watch(self) -> None:
        """
        A watch receives what any node changes in its bucket, in each shard; one that ends leaves no
        row, and one of no bucket is refused and hinders no other.
        """
        for bucket, conninfo in (("zero", self.cluster.conninfos[0]), ("one", self.added)):
            with self.subTest(bucket):
                socket = Socket(self, self.nodes[1], ROOT)
                socket.begin(1, "WatchBucket", {"bucket": "absent"}, "Storage")
                self.assertEqual(socket.take()["type"], "error")
                socket.begin(2, "WatchBucket", {"bucket": bucket}, "Storage")
                self.assertTrue(eventually(partial(self.has, conninfo, 1)))
                self.one.put_object(Bucket=bucket, Key="k", Body=b"123")
                self.two.delete_object(Bucket=bucket, Key="k")
                created, removed = (socket.take()["data"] for _ in range(2))
                self.assertEqual(created["object"]["size"], 3)
                self.assertEqual(removed, {"event": "removed", "object": {"key": "k"}})
                socket.send({"id": 2, "type": "cancel"})
                self.assertTrue(eventually(partial(self.has, conninfo, 0)))
