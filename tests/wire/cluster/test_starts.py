"""What stops a node from starting: one line and exit code 1, before a port is open."""

import os
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import closing
from tempfile import mkdtemp
from typing import Any

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster.schema import MIGRATIONS
from storagegate.storage.identity import ForeignBlobs
from tests.support.cluster import Cluster
from tests.support.daemon import START_SECONDS
from tests.support.http import request
from tests.support.lyingupstream import LyingUpstream, Reply, notFound
from tests.support.patroni import until
from tests.support.postgresql import Server, sharedServer
from tests.support.selection import long


def assertRefused(
    case: SynchronousTestCase,
    cluster: Cluster,
    expected: str,
    *flags: str,
    environment: Mapping[str, str] = {},
    **options: Any,
) -> None:
    """
    Check that a node ends at once, and says why in one line.

    @param expected: A part of the line.
    @param options: Of the table, in place of those of the cluster.
    """
    path = cluster.configuration(**{"connectWait": 0, **options})
    node = cluster.node(*flags, environment=environment, configuration=path)
    node.launch()
    case.assertEqual(node.wait(START_SECONDS), 1)
    lines = [line for line in node.log.splitlines() if "error] " in line]
    case.assertEqual(len(lines), 1, node.log)
    case.assertIn("error] storagegate: cannot open the store: ", lines[0])
    case.assertIn(expected, lines[0])
    case.assertNotIn("Traceback", node.log)
    case.assertIsNone(re.search("listening", node.log), node.log)


class StartCase(SynchronousTestCase):
    """A cluster, and what its nodes say."""

    def cluster(self, **settings: Any) -> Cluster:
        """Make a cluster."""
        made = Cluster(**settings)
        self.addCleanup(made.close)
        return made

    def assertRefused(self, cluster: Cluster, expected: str, *flags: str, **options: Any) -> None:
        """See the function."""
        assertRefused(self, cluster, expected, *flags, **options)


@long("starts a cluster")
class CatalogTests(StartCase):
    """The catalog."""

    def test_uninitialised(self) -> None:
        """A cluster has to be made before its nodes start, which does not happen by itself."""
        cluster = self.cluster(isInitialised=False)
        text = "the catalog is not initialised: see storagegate cluster init"
        self.assertRefused(cluster, text)
        tables = cluster.rows("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        self.assertEqual(tables, [(0,)])

    def test_conninfo(self) -> None:
        """A server, user or database that is not there; the password is not repeated."""
        cluster = self.cluster()
        there = sharedServer().conninfo("postgres")
        for wrong in (
            "host=127.0.0.1 port=1 user=x password=pass-word-1",
            f"{there} dbname=missing password=pass-word-1",
        ):
            self.assertRefused(cluster, "the catalog cannot be used", catalog=[wrong])
            self.assertNotIn("pass-word-1", cluster.nodes[-1].log)

    def test_newer(self) -> None:
        """A schema of a newer program."""
        cluster = self.cluster()
        cluster.rows("UPDATE schemaversion SET version = %s", len(MIGRATIONS) + 1)
        self.assertRefused(cluster, "it was written by a newer version")

    def test_synchronousCommit(self) -> None:
        """A database whose commits are not durable; the supervisor of workers says so as well."""
        cluster = self.cluster()
        name = cluster.conninfos[0].rpartition("=")[2]
        cluster.rows(f"ALTER DATABASE {name} SET synchronous_commit = local")
        self.assertRefused(cluster, "synchronous_commit of the catalog is local", "--workers", "2")

    def test_encoding(self) -> None:
        """A database that cannot hold all texts."""
        cluster = self.cluster()
        conninfo = sharedServer().database(encoding="LATIN1")
        self.assertRefused(cluster, "LATIN1, not UTF8", catalog=[conninfo])

    def test_oldServer(self) -> None:
        """A server that is too old, for which the least version of this program is raised."""
        cluster = self.cluster()
        program = (
            "from storagegate.storage.cluster import schema; schema.OLDEST = 99;"
            " from twisted.scripts.twistd import run; run()"
        )
        node = cluster.node(program=program)
        node.launch()
        self.assertEqual(node.wait(START_SECONDS), 1)
        self.assertRegex(node.log, r"(?m) storagegate: .* is too old: 99 is required$")


@long("starts a cluster")
class BlobsTests(StartCase):
    """The blobs."""

    def test_otherCluster(self) -> None:
        """Two clusters on one store of blobs: the second one is refused, at init and at a start."""
        first, second = self.cluster(), self.cluster()
        self.assertRefused(second, "nothing was changed", blobs=first.blobs)
        second.blobs = first.blobs
        error = self.assertRaises(ForeignBlobs, second.initialise)
        self.assertIn("nothing was changed", str(error))

    def test_missing(self) -> None:
        """A directory that does not exist, or where nothing is mounted."""
        cluster = self.cluster()
        missing = f"files:{cluster.directory / 'missing'}"
        self.assertRefused(cluster, "is it mounted?", blobs=missing)
        (cluster.directory / "missing").mkdir()
        self.assertRefused(cluster, "has no store-id", blobs=missing)

    def test_address(self) -> None:
        """A text that is no address; a server that does not answer; a bucket that is not there."""
        cluster = self.cluster()
        self.assertRefused(cluster, "'rados:' is not rados:POOL?", blobs="rados:")
        upstream = LyingUpstream().start()
        self.addCleanup(upstream.stop)
        body = b"<Error><Code>NoSuchBucket</Code></Error>"
        upstream.change = lambda sent, reply: Reply(404, {"x-amz-request-id": "1"}, body)
        blobs = f"s3:http://127.0.0.1:{upstream.port}/b"
        self.assertRefused(cluster, "answered 404 NoSuchBucket", blobs=blobs)


@long("starts a cluster")
class WaitTests(StartCase):
    """A node whose catalog, or whose blobs, come later."""

    def test_catalog(self) -> None:
        """The node waits for the catalog, tells the log and the service manager, and serves."""
        server = Server.make()
        self.addCleanup(server.remove)
        conninfo = server.database()
        cluster = self.cluster(isInitialised=False)
        cluster.conninfos = [conninfo]
        cluster.initialise()
        server.stop()
        for flags in ((), ("--workers", "2")):
            # The paths of sockets are short.
            folder = mkdtemp()
            self.addCleanup(shutil.rmtree, folder)
            path = os.path.join(folder, "notify")
            with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
                manager.bind(path)
                manager.settimeout(60)
                node = cluster.node(*flags, environment={"NOTIFY_SOCKET": path})
                node.launch()
                message = manager.recv(1000).decode()
                self.assertRegex(message, r"\ASTATUS=.*cluster.*\nEXTEND_TIMEOUT_USEC=\d{8,9}\Z")
                until(lambda node=node: "waiting up to 60 s for the cluster" in node.log)
                server.start()
                while not message.startswith("READY=1"):
                    self.assertNotIn("READY", message)
                    message = manager.recv(1000).decode()
            node.waitForListeners()
            self.assertEqual(node.log.count("waiting up to 60 s for the cluster"), 1)
            cluster.client(node).list_buckets()
            node.stop()
            server.stop()

    def test_catalogTooLate(self) -> None:
        """After the time the node ends with the line that it would have ended with at once."""
        cluster = self.cluster()
        wrong = "host=127.0.0.1 port=1 user=x"
        self.assertRefused(cluster, "the catalog cannot be used", catalog=[wrong], connectWait=1)
        self.assertIn("waiting up to 1 s for the cluster", cluster.nodes[-1].log)

    def test_blobs(self) -> None:
        """Without the blobs small objects are served; when the blobs answer, all objects are."""
        upstream = LyingUpstream().start()
        self.addCleanup(upstream.stop)
        cluster = self.cluster(blobs=f"s3:http://127.0.0.1:{upstream.port}/bucket/blobs")
        upstream.change = notFound
        [node] = cluster.start()
        client = cluster.client(node, patient=False)
        client.create_bucket(Bucket="box")
        client.put_object(Bucket="box", Key="small", Body=b"small")
        self.assertEqual(client.get_object(Bucket="box", Key="small")["Body"].read(), b"small")
        with self.assertRaises(ClientError) as caught:
            client.put_object(Bucket="box", Key="large", Body=bytes(100_000))
        self.assertEqual(caught.exception.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        self.assertEqual(request(node.address("admin"), "GET", "/readyz")[0], 503)
        upstream.change = lambda sent, reply: reply
        until(lambda: request(node.address("admin"), "GET", "/readyz")[0] == 200)
        client.put_object(Bucket="box", Key="large", Body=bytes(100_000))

    def test_otherBlobs(self) -> None:
        """Blobs that answer later and are another store's are never written to."""
        upstream = LyingUpstream().start()
        self.addCleanup(upstream.stop)
        cluster = self.cluster(blobs=f"s3:http://127.0.0.1:{upstream.port}/bucket/blobs")
        upstream.change = notFound
        [node] = cluster.start()
        client = cluster.client(node, patient=False)
        client.create_bucket(Bucket="box")
        upstream.objects["blobs/store-id"] = (b"f" * 32, {})
        upstream.change = lambda sent, reply: reply
        until(lambda: "is of store" in request(node.address("admin"), "GET", "/readyz")[1].decode())
        with self.assertRaises(ClientError):
            client.put_object(Bucket="box", Key="large", Body=bytes(100_000))
        self.assertEqual(set(upstream.objects), {"blobs/store-id"})
