"""How a node of a cluster stops: it leaves discovery, is not ready, drains, and ends its lease."""

import http.client
import json
import signal
from typing import Any

from twisted.internet.threads import deferToThread

from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.discovering import DiscoveryCase
from tests.support.http import request
from tests.support.selection import long
from tests.support.sourceprocess import Etcd, encoded

GATEWAY = ("--http", "tcp:0:interface=127.0.0.1")

KEYS = "/storagegate/services/Storage"

CONFIGURATION = """
[gateway.discovery]
provider = "etcd"
register = {{}}
[gateway.discovery.etcd]
addresses = ["{}"]
"""


@long("starts a cluster")
class StopTests(DiscoveryCase):
    """Two nodes that register in etcd."""

    async def test_order(self) -> None:
        """
        A node that stops leaves etcd and is not ready, while a request in progress comes to its
        end under the lease, which ends after it. The other node serves on.
        """
        etcd = Etcd(self, self.folder())
        await etcd.start()
        self.addCleanup(etcd.kill)

        def registered() -> int:
            keys = {"key": encoded(f"{KEYS}/"), "range_end": encoded(f"{KEYS}0")}
            return len(etcd.call("kv/range", keys).get("kvs", []))

        cluster = Cluster()
        self.addCleanup(cluster.close)
        path = cluster.configuration(CONFIGURATION.format(etcd.url))
        nodes: list[Daemon] = [
            cluster.node(*GATEWAY, configuration=path, expect=("s3", "http", "admin"))
            for _ in range(2)
        ]
        for node in nodes:
            node.launch()
        for node in nodes:
            await deferToThread(node.waitForListeners)
        await self.see(lambda: registered() == 2)
        await deferToThread(request, nodes[0].address(), "PUT", "/box", None, ROOT.plainHeaders())
        upload = http.client.HTTPConnection(*nodes[0].address(), timeout=60)
        upload.putrequest("PUT", "/box/key")
        for name, value in {**ROOT.plainHeaders(), "Content-Length": "100000"}.items():
            upload.putheader(name, value)
        upload.endheaders(b"x" * 50_000)
        await self.see(lambda: self.inProgress(nodes[0]) == 1)
        nodes[0].signal(signal.SIGTERM)
        await self.see(lambda: registered() == 1)
        status, body = await deferToThread(request, nodes[0].address("admin"), "GET", "/readyz")
        self.assertEqual((status, json.loads(body)["status"]), (503, "draining"))
        alive = "SELECT count(*) FROM leases WHERE alive"
        self.assertEqual(cluster.rows(alive), [(2,)])

        def finish() -> int:
            upload.send(b"x" * 50_000)
            return upload.getresponse().status

        self.assertEqual(await deferToThread(finish), 200)
        upload.close()
        self.assertEqual(await deferToThread(nodes[0].wait), 0)
        self.assertEqual(cluster.rows(alive), [(1,)])
        client = cluster.client(nodes[1])
        found: Any = await deferToThread(client.head_object, Bucket="box", Key="key")
        self.assertEqual(found["ContentLength"], 100_000)
        self.assertEqual(registered(), 1)

    def inProgress(self, node: Daemon) -> int:
        """Return the requests of S3 that a node has in progress."""
        _, body = request(node.address("admin"), "GET", "/metrics")
        for line in body.decode().splitlines():
            if line.startswith("storagegate_s3_requests_in_flight"):
                return int(float(line.split()[-1]))
        return 0
