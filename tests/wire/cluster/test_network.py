"""
The network between any two parts is cut, refused, slow, and mended, under load: clients and nodes,
nodes and the servers of the catalog, these among each other, nodes and the store of blobs.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from tests.support.ceph import cephEnvironment, loadLibrados, runningCluster
from tests.support.clients import botoClient
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import rounds, soak
from tests.support.upstreams3 import Upstream, ownServer
from tests.wire.cluster.agreement import BlobBytes, joined
from tests.wire.cluster.case import ClusterCase, ask, get, put
from tests.wire.cluster.proxy import Proxy
from tests.wire.s3.bulk import objectTarget

ROUNDS = rounds(3, 3, soak=40)

FAULT_SECONDS = rounds(1, 1, soak=4)

BUCKET = "faults"

ANSWER_SECONDS = 8.0
"""An answer comes within five seconds, on a machine that is busy."""

LARGE = b"l" * 200_000
"""More than the other server keeps in its catalog."""


def bucketBytes(upstream: Upstream, bucket: str) -> BlobBytes:
    """Return the reader of the blobs in a bucket of another server."""

    def read() -> Mapping[str, bytes]:
        s3 = botoClient(upstream.url)
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return joined(
            {
                entry["Key"].removeprefix("blobs/"): s3.get_object(Bucket=bucket, Key=entry["Key"])[
                    "Body"
                ].read()
                for page in pages
                for entry in page.get("Contents", ())
            }
        )

    return read


class NetworkCase(ClusterCase):
    """Nodes whose blobs are in another S3 server, each with links of its own."""

    def setUp(self) -> None:
        """Make the bucket of the blobs."""
        super().setUp()
        self.upstream = ownServer()
        self.address = self.upstream.newBucket()
        self.links: dict[str, Proxy] = {}

    def link(self, name: str, port: int) -> int:
        """Make a link to a port; return its own."""
        proxy = self.links[name] = Proxy(port)
        self.addCleanup(proxy.stop)
        return proxy.port

    def blobsBy(self, name: str) -> str:
        """Return the option of the blobs, by a link."""
        port = self.link(name, int(self.upstream.url.rpartition(":")[2]))
        return f"s3:http://127.0.0.1:{port}/{self.address.bucket}/{self.address.prefix}"

    def makeLinked(self, **options: Any) -> Cluster:
        """Make a cluster with blobs in the bucket."""
        return self.makeCluster(
            blobs=f"s3:{self.upstream.url}/{self.address.bucket}/{self.address.prefix}", **options
        )

    def startLinked(self, cluster: Cluster, name: str) -> Daemon:
        """Start a node that has a link to each of the others."""
        catalog = []
        for number, conninfo in enumerate(cluster.conninfos):
            parts = dict(each.split("=") for each in conninfo.split())
            port = self.link(f"{name} catalog{number}", int(parts["port"]))
            catalog.append(" ".join(f"{k}={v}" for k, v in {**parts, "port": port}.items()))
        path = cluster.configuration(catalog=catalog, blobs=self.blobsBy(f"{name} blobs"))
        return self.startNode(cluster, configuration=path)


@soak("takes minutes")
class CutTests(NetworkCase):
    """Links fail at random, under load."""

    def test_anyTwoParts(self) -> None:
        """No answer contradicts another, nothing is lost, and service is back by itself."""
        cluster = self.makeLinked(isSynchronous=True, options={"synchronous": "off"})
        assert cluster.standby is not None
        port = self.link("replication", cluster.primary.port)
        cluster.standby.stop()
        cluster.standby.follow(cluster.primary, "standby", port=port)
        nodes = [self.startLinked(cluster, name) for name in ("one", "two")]
        addresses = [
            ("127.0.0.1", self.link(f"client {number}", node.address()[1]))
            for number, node in enumerate(nodes)
        ]
        load = self.startLoad(cluster)
        load.setAddresses(addresses)
        waits = []
        for _ in range(ROUNDS):
            name = self.random.choice(sorted(self.links))
            fault = self.random.choice(("cut", "refuse", "slow"))
            self.where += f", {fault} {name}"
            proxy = self.links[name]
            if fault == "slow":
                proxy.setDelay(self.random.choice((0.05, 0.5, 6.0)))
            else:
                getattr(proxy, fault)()
            self.letPass(self.random.uniform(0.2, 2.0) * FAULT_SECONDS)
            proxy.setDelay(0.0)
            proxy.mend()
            waits.append(round(self.waitForWrites(load), 1))
        read = bucketBytes(self.upstream, self.address.bucket)
        report = self.finish(cluster, load, blobs=read)
        self.figures(f"{ROUNDS} faults, back after {waits} s: {report}")


class BlobFaultCase(NetworkCase):
    """A node whose store of blobs fails."""

    cluster: Cluster
    node: Daemon

    def prepare(self) -> None:
        """Make a bucket and an object with a blob."""
        self.cluster.client(self.node).create_bucket(Bucket=BUCKET)
        self.assertEqual(put(self.node, BUCKET, "large", LARGE).status, 200)

    def assertFaulty(self, status: int, reads: int) -> None:
        """Check what is answered while blobs cannot be written: inline objects go on."""
        began = time.monotonic()
        self.assertEqual(put(self.node, BUCKET, "other", LARGE).status, status)
        self.assertLess(time.monotonic() - began, ANSWER_SECONDS)
        began = time.monotonic()
        self.assertEqual(get(self.node, BUCKET, "large").status, reads)
        self.assertLess(time.monotonic() - began, ANSWER_SECONDS)
        self.assertEqual(put(self.node, BUCKET, "small", b"s").status, 200)
        self.assertEqual(get(self.node, BUCKET, "small").body, b"s")

    def assertBack(self) -> None:
        """Check that service is back by itself."""
        self.waitFor(lambda: put(self.node, BUCKET, "other", LARGE).status == 200, "no service")
        self.assertEqual(get(self.node, BUCKET, "large").body, LARGE)

    def assertEmpty(self, conninfo: str, read: BlobBytes) -> None:
        """Check that nothing is left when all objects are removed."""
        for key in ("large", "other"):
            self.assertEqual(ask(self.node, "DELETE", objectTarget(BUCKET, key)).status, 204)
        self.settle(conninfo)
        self.waitFor(lambda: not read(), "blobs are left")


@soak("takes minutes")
class BucketFaultTests(BlobFaultCase):
    """Blobs in another S3 server."""

    def test_faults(self) -> None:
        """It is killed, cut off, slow, full: 503 or 507 within seconds."""
        self.cluster = self.makeLinked()
        self.node = self.startLinked(self.cluster, "one")
        proxy = self.links["one blobs"]
        self.prepare()
        proxy.refuse()
        self.assertFaulty(503, 503)
        proxy.mend()
        self.assertBack()
        proxy.cut()
        self.assertFaulty(503, 503)
        proxy.mend()
        self.assertBack()
        proxy.setDelay(10.0)
        self.assertFaulty(503, 503)
        proxy.setDelay(0.0)
        self.assertBack()
        self.upstream.full.touch()
        self.addCleanup(self.upstream.full.unlink, missing_ok=True)
        self.assertFaulty(507, 200)
        self.upstream.full.unlink()
        self.assertBack()
        read = bucketBytes(self.upstream, self.address.bucket)
        self.assertEmpty(self.cluster.conninfos[0], read)


@soak("takes minutes")
class RadosFaultTests(BlobFaultCase):
    """Blobs in RADOS."""

    def test_faults(self) -> None:
        """The OSD is killed, silent, full: 503 or 507 within seconds."""
        ceph = runningCluster()
        loadLibrados()
        ceph.makePool("faults")
        for name, value in cephEnvironment().items():
            # For the nodes and commands.
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        self.cluster = self.makeCluster(blobs=f"rados:faults?conf={ceph.configuration}")
        self.node = self.startNode(self.cluster)
        self.prepare()
        ceph.killStorage()
        self.assertFaulty(503, 503)
        ceph.startStorage()
        self.assertBack()
        ceph.pauseStorage()
        self.assertFaulty(503, 503)
        ceph.resumeStorage()
        self.assertBack()
        ceph.setFull(True)
        self.assertFaulty(507, 200)
        ceph.setFull(False)
        self.assertBack()
