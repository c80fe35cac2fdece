"""The primary of the catalog goes, and comes back when another has taken its place."""

import time
from typing import Any

from tests.support.cluster import LEASE_SECONDS, Cluster
from tests.support.daemon import Daemon
from tests.support.postgresql import Server, execute
from tests.support.selection import long, rounds, soak
from tests.wire.cluster.case import ClusterCase, get, put
from tests.wire.cluster.proxy import Proxy

ROUNDS = rounds(1, 1, soak=50)

BUCKET = "primary"

SERVED = ((200, b"new"), (503, b""))
"""Answers of a node that reaches the new primary."""

SERVICE_SECONDS = 20.0
"""Within so long after a promotion writes are acknowledged again, on a machine that is busy."""


def databaseOf(cluster: Cluster) -> str:
    """Return the name of the catalog's database."""
    return cluster.conninfos[0].rpartition("=")[2]


class FailoverCase(ClusterCase):
    """A cluster whose commits wait for a standby."""

    def makePair(self, **options: Any) -> tuple[Cluster, Server, Server]:
        """Make a cluster that goes on when it has lost its standby; return its servers, too."""
        cluster = self.makeCluster(isSynchronous=True, options={"synchronous": "off", **options})
        assert cluster.standby is not None
        return cluster, cluster.primary, cluster.standby

    def promote(self, old: Server, new: Server) -> None:
        """Kill a primary, and promote its standby."""
        old.kill()
        new.promote()

    def proxied(self, server: Server) -> Proxy:
        """Make a proxy before a server."""
        proxy = Proxy(server.port)
        self.addCleanup(proxy.stop)
        return proxy

    def conninfoBy(self, cluster: Cluster, port: int) -> str:
        """Return the conninfo of the catalog's database at a port."""
        return f"host=127.0.0.1 port={port} user=storagegate dbname={databaseOf(cluster)}"


@long("starts a cluster")
class PromotionTests(FailoverCase):
    """The primary is killed under load, its standby promoted."""

    def test_promoted(self) -> None:
        """Service is back by itself, and nothing is lost; the old server follows, and so on."""
        cluster, primary, standby = self.makePair()
        self.startNodes(cluster)
        load = self.startLoad(cluster)
        waits = []
        for number in range(ROUNDS):
            self.letPass(self.random.uniform(0.2, 1.0))
            self.promote(primary, standby)
            waits.append(round(self.waitForWrites(load, seconds=SERVICE_SECONDS), 2))
            primary, standby = standby, primary
            if number < ROUNDS - 1:
                standby.follow(primary, "standby")
        report = self.finish(cluster, load, primary.conninfo(databaseOf(cluster)))
        self.figures(f"{ROUNDS} promotions, back after {waits} s: {report}")


@long("starts a cluster")
class OldPrimaryTests(FailoverCase):
    """The old primary comes back beside the new one."""

    def written(self, node: Daemon, key: str, body: bytes) -> bool:
        """Return whether a write is acknowledged."""
        return put(node, BUCKET, key, body).status == 200

    def test_comesBack(self) -> None:
        """
        No node uses it, and no new one, though it is the first of the list; where the newest
        timeline does not win, what was acknowledged is gone.
        """
        cluster, primary, standby = self.makePair()
        nodes = self.startNodes(cluster)
        careless = self.startNode(cluster, "timeline")
        cluster.client(nodes[0]).create_bucket(Bucket=BUCKET)
        self.assertTrue(self.written(nodes[0], "k", b"old"))
        self.promote(primary, standby)
        for node in cluster.nodes:
            self.waitFor(lambda node=node: self.written(node, "k", b"new"), "no service")
        primary.start()
        # It waits for a standby that has left it; an operator has it go on.
        primary.execute("ALTER SYSTEM RESET synchronous_standby_names")
        primary.execute("SELECT pg_reload_conf()")
        standby.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        nodes.append(self.startNode(cluster))
        for node in nodes:
            self.waitFor(lambda node=node: get(node, BUCKET, "k").status == 200, "no service")
            self.assertEqual(get(node, BUCKET, "k").body, b"new")
            self.assertTrue(self.written(node, "after", b"x"))
        found = execute(cluster.conninfos[0], "SELECT count(*) FROM objects WHERE key = 'after'")
        self.assertEqual(found, [(0,)], "the old primary was written to")
        self.waitFor(lambda: get(careless, BUCKET, "k").body == b"old", "all is well")

    @soak("takes minutes")
    def test_openSockets(self) -> None:
        """Connections that stayed open while the old primary was stopped are not used either."""
        cluster, primary, standby = self.makePair()
        nodes = self.startNodes(cluster)
        cluster.client(nodes[0]).create_bucket(Bucket=BUCKET)
        self.assertTrue(self.written(nodes[0], "k", b"old"))
        primary.suspend()
        standby.promote()
        self.waitFor(lambda: self.written(nodes[0], "k", b"new"), "no service")
        primary.resume()
        end = time.monotonic() + 2 * LEASE_SECONDS
        while time.monotonic() < end:
            for node in nodes:
                answer = get(node, BUCKET, "k")
                self.assertIn((answer.status, answer.body[:3]), ((200, b"new"), (503, b"<?x")))
        for number in range(10):
            for node in nodes:
                self.assertTrue(self.written(node, f"after{number}", b"x"))

    def test_divided(self) -> None:
        """
        A node that reaches the old primary only serves nothing that another contradicts; one that
        serves without a lease returns what is old.
        """
        cluster, primary, standby = self.makePair()
        known = list(cluster.conninfos)
        links = {side: self.proxied(server) for side, server in (("a", primary), ("b", standby))}
        one = [known[0], self.conninfoBy(cluster, links["b"].port)]
        two = [self.conninfoBy(cluster, links["a"].port), known[1]]
        path = cluster.configuration(catalog=one)
        left = self.startNode(cluster, configuration=path)
        ungated = self.startNode(cluster, "gate", configuration=path)
        right = self.startNode(cluster, configuration=cluster.configuration(catalog=two))
        cluster.client(left).create_bucket(Bucket=BUCKET)
        self.assertTrue(self.written(left, "k", b"old"))
        # The servers are cut from each other, too: a promoted one follows no other.
        for link in links.values():
            link.cut()
        standby.promote()
        self.waitFor(lambda: self.written(right, "k", b"new"), "no service")
        self.waitFor(lambda: get(left, BUCKET, "k").status == 503, "it serves")
        self.assertEqual(put(left, BUCKET, "k", b"stale").status, 503)
        end = time.monotonic() + LEASE_SECONDS
        while time.monotonic() < end:
            self.assertEqual(get(left, BUCKET, "k").status, 503)
            found = get(right, BUCKET, "k")
            # On a busy machine it may lose its lease, too.
            self.assertIn((found.status, found.body if found.status == 200 else b""), SERVED)
            self.letPass(0.05)
        # While its connections are tried again it serves nothing either.
        self.waitFor(lambda: get(ungated, BUCKET, "k").body == b"old", "all is well")
        for link in links.values():
            link.mend()
        self.waitFor(lambda: get(left, BUCKET, "k").status == 200, "no service")
        self.assertEqual(get(left, BUCKET, "k").body, b"new")


@long("starts a cluster")
class StandbyTests(FailoverCase):
    """The synchronous standby stops answering."""

    def test_cancelled(self) -> None:
        """
        A commit whose wait an operator cancels is no success; where it counts as one, what was
        acknowledged is lost.
        """
        cluster, primary, standby = self.makePair(leaseSeconds=30)
        nodes = self.startNode(cluster), self.startNode(cluster, "unknown")
        cluster.client(nodes[0]).create_bucket(Bucket=BUCKET)
        for key in ("0", "1"):
            self.assertEqual(put(nodes[0], BUCKET, key, b"old").status, 200)
        standby.kill()
        waiting = [
            self.begin(put, node, BUCKET, str(number), b"new") for number, node in enumerate(nodes)
        ]
        while not all(each.done() for each in waiting):
            primary.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
            self.letPass(0.05)
        self.assertEqual([each.result().status for each in waiting], [503, 200])
        primary.kill()
        standby.start()
        standby.promote()
        for number, node in enumerate(nodes):
            self.waitFor(lambda node=node: get(node, BUCKET, "0").status == 200, "no service")
            self.assertEqual(get(node, BUCKET, str(number)).body, b"old")

    @soak("takes minutes")
    def test_required(self) -> None:
        """Where a standby is required, no write is acknowledged while none confirms commits."""
        cluster, _, standby = self.makePair(synchronous="required")
        node = self.startNode(cluster)
        cluster.client(node).create_bucket(Bucket=BUCKET)
        standby.suspend()
        began = time.monotonic()
        answer = put(node, BUCKET, "k", b"x")
        self.assertEqual(answer.status, 503, answer)
        self.assertLess(time.monotonic() - began, 10)
        standby.resume()
        self.waitFor(lambda: put(node, BUCKET, "k", b"y").status == 200, "no service")
        self.assertEqual(get(node, BUCKET, "k").body, b"y")
