"""Watches of buckets on several nodes, which are daemons."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.patroni import until
from tests.support.selection import long
from tests.wire.services.test_userworkers import Socket

GATEWAY = ("--http", "tcp:0:interface=127.0.0.1")

# A stop waits as long for a watch, which does not end by itself.
BRIEF = {"STORAGEGATE_SHUTDOWN_GRACE_SECONDS": "1"}


@long("starts a cluster")
class WatchTests(SynchronousTestCase):
    """C{WatchBucket} on one node, of what others do."""

    timeout = 120

    def test_watch(self) -> None:
        """
        Every change by any node is reported once, in order; a node that is killed, and one that
        stops, leave no watch behind, so that nothing is written for it.
        """
        cluster = Cluster()
        self.addCleanup(cluster.close)
        nodes = [cluster.node(*GATEWAY, expect=("s3", "http"), environment=BRIEF) for _ in range(2)]
        for node in nodes:
            node.launch()
        for node in nodes:
            node.waitForListeners()
        clients = [cluster.client(node) for node in nodes]
        clients[0].create_bucket(Bucket="box")
        sockets = [Socket(self, node, ROOT) for node in (nodes[1], nodes[1], nodes[0])]
        for socket in sockets:
            socket.begin(1, "WatchBucket", {"bucket": "box", "prefix": "k"}, "Storage")
        until(lambda: cluster.rows("SELECT count(*) FROM watches") == [(2,)])
        expected: list[Any] = []
        for number in range(10):
            clients[number % 2].put_object(Bucket="box", Key=f"k{number}", Body=b"x" * number)
            expected.append(("created", f"k{number}", number))
        keys = [{"Key": f"k{number}"} for number in range(10)]
        clients[1].delete_objects(Bucket="box", Delete={"Objects": keys})
        expected += [("removed", f"k{number}", None) for number in range(10)]
        clients[1].put_object(Bucket="box", Key="not watched")
        clients[1].put_object(Bucket="box", Key="k", Body=b"last")
        expected.append(("created", "k", 4))
        for socket in sockets:
            items = [socket.take()["data"] for _ in expected]
            found = [(each["event"], each["object"]["key"]) for each in items]
            self.assertEqual(found, [each[:2] for each in expected])
            sizes = [each["object"].get("size", 0) for each in items if each["event"] == "created"]
            self.assertEqual(sizes, [each[2] for each in expected if each[0] == "created"])
        sockets[2].send({"id": 1, "type": "cancel"})
        nodes[1].kill()
        until(lambda: cluster.rows("SELECT count(*) FROM watches") == [(0,)])
        self.assertEqual(cluster.rows("SELECT count(*) FROM buckets WHERE watched"), [(0,)])
        socket = Socket(self, nodes[0], ROOT)
        socket.begin(1, "WatchBucket", {"bucket": "box"}, "Storage")
        until(lambda: cluster.rows("SELECT count(*) FROM watches") == [(1,)])
        clients[0].delete_objects(Bucket="box", Delete={"Objects": [{"Key": "k"}, {"Key": "x"}]})
        self.assertEqual(socket.take()["data"], {"event": "removed", "object": {"key": "k"}})
        until(lambda: cluster.rows("SELECT count(*) FROM events") == [(0,)])
        self.assertEqual(nodes[0].stop(), 0)
        self.assertEqual(cluster.rows("SELECT count(*) FROM watches"), [(0,)])
        self.assertNotRegex("".join(node.log for node in nodes), "Traceback|Unhandled")
