"""Processes of several machines count together: gateways over UDP, and nodes of the daemon."""

import json
import re
import socket
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cluster.counts.postgresql import createTables
from storagegate.gateway.messages.frames import ERROR, REQUEST, RESPONSE, decodeFrame, encodeFrame
from tests.support.cluster import Cluster
from tests.support.daemon import START_SECONDS, Daemon
from tests.support.postgresql import sharedServer
from tests.support.redis import RedisServer
from tests.support.selection import long
from tests.support.sharing import Sharer

COUNTER = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from storagegate.cluster.counts import openCounts

counts = openCounts(sys.argv[1])
rates, cache = counts.rateLimitStore("limit", 600_000), counts.replyCache()

async def begin(number):
    return number if await cache.begin(("a", number), 1) is None else None

async def main():
    hits, begun = [], []
    await rates.increment("other")
    print("ready", flush=True)
    sys.stdin.readline()
    for first in range(0, 500, 50):
        numbers = range(first, first + 50)
        counted = [Deferred.fromCoroutine(rates.increment("key")) for _ in numbers]
        started = [Deferred.fromCoroutine(begin(number)) for number in numbers]
        hits += [each for each, _ in await gatherResults(counted)]
        begun += [each for each in await gatherResults(started) if each is not None]
    print(*hits, flush=True)
    print(*begun, flush=True)
    counts.close()

Deferred.fromCoroutine(main()).addErrback(lambda failure: print(failure, flush=True))
reactor.run()
"""

GATEWAY = """
import os, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from storagegate import createProtocolGateway
from storagegate.cluster.counts import openCounts
from storagegate.gateway.host import GatewayResources

def note(method):
    with open(sys.argv[2], "a") as file:
        file.write(f"{method} {os.getpid()}\\n")

async def who(request, context):
    note("who")
    return {"pid": os.getpid()}

async def hang(request, context):
    note("hang")
    await Deferred()

counts = openCounts(sys.argv[1])
gateway = createProtocolGateway(
    protocols=["udp"],
    surroundings=GatewayResources(
        rateStore=counts.rateLimitStore, makeReplies=counts.replyCache
    ),
)
gateway.addService("Probe", methods={
    "who": who,
    "hang": hang,
    "limited": {"handler": who, "rateLimit": {"requests": 3, "window": 600_000}},
})
opening = gateway.start(reactor).open("udp", "127.0.0.1:0")
opening.addCallback(lambda port: print(port.getHost().port, flush=True))
reactor.run()
"""


class ProcessCase(SynchronousTestCase):
    """
    Makes a server.

    @ivar where: Its address.
    """

    timeout = 60
    where: str

    def useValkey(self) -> RedisServer:
        """Use Valkey's protocol."""
        server = RedisServer()
        self.addCleanup(server.remove)
        self.where = f"valkey://127.0.0.1:{server.port}/0"
        return server

    def usePostgreSQL(self) -> None:
        """Use a database."""
        server = sharedServer()
        conninfo = server.database()
        createTables([conninfo])
        name = conninfo.rpartition("=")[2]
        self.where = f"postgresql://storagegate@127.0.0.1:{server.port}/{name}"


@long("starts a cluster")
class CounterTests(ProcessCase):
    """Two processes count the same key, and begin the same requests."""

    def check(self) -> None:
        """Assert that each count was seen once, and each request begun once."""
        processes = [Sharer(self, (), COUNTER, self.where) for _ in range(2)]
        self.assertEqual([each.read() for each in processes], ["ready", "ready"])
        for each in processes:
            each.tell("go")
        hits, begun = [], []
        for each in processes:
            hits += each.read().split()
            begun += each.read().split()
        self.assertEqual(sorted(map(int, hits)), list(range(1, 1001)))
        self.assertEqual(sorted(map(int, begun)), list(range(500)))

    def test_valkey(self) -> None:
        """In Valkey."""
        self.useValkey()
        self.check()

    def test_postgresql(self) -> None:
        """In PostgreSQL."""
        self.usePostgreSQL()
        self.check()


@long("starts a cluster")
class GatewayTests(ProcessCase):
    """A client whose datagrams come to two gateways, as a balancer may send them."""

    def begin(self) -> None:
        """Start two gateways."""
        self.log = Path(self.mktemp())
        self.log.touch()
        self.gateways = [Sharer(self, (), GATEWAY, self.where, self.log) for _ in range(2)]
        self.ports = [int(each.read()) for each in self.gateways]
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.client.close)

    def send(self, to: int, method: str, id: int) -> None:
        """Send a request to a gateway, long enough for any reply to an unknown client."""
        request = {"service": "Probe", "method": method, "id": id, "padding": "x" * 500}
        payload = encodeFrame(REQUEST, json.dumps(request).encode())
        self.client.sendto(payload, ("127.0.0.1", self.ports[to]))

    def receive(self, seconds: float) -> tuple[int, int, Any] | None:
        """Return type, id and result of a reply; C{None} if none comes."""
        self.client.settimeout(seconds)
        try:
            frame = decodeFrame(self.client.recv(65_536), 65_536)
        except TimeoutError:
            return None
        payload = json.loads(frame.payload)
        found = payload["error"] if frame.type == ERROR else payload["data"]["pid"]
        return frame.type, payload["id"], found

    def call(self, to: int, method: str, id: int) -> tuple[int, Any]:
        """Send a request, and repeat it until there is a reply."""
        end = time.monotonic() + 20
        while True:
            self.send(to, method, id)
            reply = self.receive(0.5)
            while reply is not None and reply[1] != id:
                # To a request that was repeated before.
                reply = self.receive(0.5)
            if reply is not None:
                return reply[0], reply[2]
            self.assertLess(time.monotonic(), end)

    def runs(self, method: str) -> list[int]:
        """Return which processes ran a method, each time."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [int(pid) for name, pid in lines if name == method]

    def check(self) -> None:
        """A repeated request has its reply, and a method runs once, also if a process is killed."""
        one, two = [each.process.pid for each in self.gateways]
        self.assertEqual(self.call(0, "who", 1), (RESPONSE, one))
        self.assertEqual(self.call(1, "who", 1), (RESPONSE, one))
        self.assertEqual(self.call(1, "who", 2), (RESPONSE, two))
        self.assertEqual(self.call(0, "who", 2), (RESPONSE, two))
        limited = [self.call(number % 2, "limited", 10 + number) for number in range(4)]
        self.assertEqual([each[0] for each in limited], [RESPONSE] * 3 + [ERROR])
        self.assertEqual(limited[3], (ERROR, "RATE_LIMITED"))
        self.send(0, "hang", 20)
        # What comes behind it is answered when it has begun.
        self.assertEqual(self.call(0, "who", 21), (RESPONSE, one))
        self.gateways[0].end()
        self.send(1, "hang", 20)
        self.assertEqual(self.call(1, "who", 22), (RESPONSE, two))
        self.assertEqual(self.runs("hang"), [one])
        self.assertEqual(self.call(1, "who", 1), (RESPONSE, one))
        self.assertEqual(self.runs("who"), [one, two, one, two, one, one, two])

    def test_valkey(self) -> None:
        """In Valkey."""
        self.useValkey()
        self.begin()
        self.check()

    def test_postgresql(self) -> None:
        """In PostgreSQL."""
        self.usePostgreSQL()
        self.begin()
        self.check()

    def test_away(self) -> None:
        """
        While the server is stopped a request is dropped by both; repeated to both when it goes on
        it runs once.
        """
        server = self.useValkey()
        self.begin()
        for to in (0, 1):
            self.call(to, "who", 1 + to)
        server.suspend()
        for id in range(10, 15):
            self.send(0, "who", id)
            self.send(1, "who", id)
        self.assertIsNone(self.receive(1.5))
        server.resume()
        replies: dict[int, Any] = {}
        end = time.monotonic() + 20
        while len(replies) < 5:
            self.assertLess(time.monotonic(), end, replies)
            for id in range(10, 15):
                for to in (0, 1):
                    self.send(to, "who", id)
                    while (reply := self.receive(0.05)) is not None:
                        self.assertEqual(replies.setdefault(reply[1], reply), reply)
        self.assertEqual(len(self.runs("who")), 2 + 5)


@long("starts a cluster")
class NodeTests(ProcessCase):
    """Nodes of the daemon."""

    timeout = 120

    def nodes(self, counts: str) -> list[Daemon]:
        """Start two nodes with a limit of five requests."""
        cluster = Cluster(options={"counts": counts})
        self.addCleanup(cluster.close)
        path = cluster.configuration("[gateway.rateLimit]\nrequests = 5\nwindow = 600000\n")
        flags = ("--http", "tcp:0:interface=127.0.0.1", "--service", "Storage")
        expect = ("s3", "admin", "http")
        made = [cluster.node(*flags, configuration=path, expect=expect) for _ in range(2)]
        for each in made:
            each.launch()
        for each in made:
            each.waitForListeners()
        return made

    def get(self, node: Daemon, listener: str, path: str) -> tuple[int, Any]:
        """Return status and document."""
        connection = HTTPConnection(*node.address(listener), timeout=20)
        connection.request("GET" if listener == "admin" else "POST", path, b"{}")
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def statuses(self, nodes: list[Daemon], count: int) -> list[int]:
        """Return the statuses of calls that go to the nodes in turn."""
        return [
            self.get(nodes[number % 2], "http", "/api/Storage/ListBuckets")[0]
            for number in range(count)
        ]

    def ready(self, node: Daemon) -> tuple[int, dict[str, Any]]:
        """Return what the health page says."""
        status, body = self.get(node, "admin", "/readyz")
        return status, json.loads(body)

    def test_postgresql(self) -> None:
        """By default the counts are in the catalog's database; one node removes the old ones."""
        nodes = self.nodes("postgresql")
        self.assertEqual(self.statuses(nodes, 8), [401] * 5 + [429] * 3)
        for each in nodes:
            status, page = self.ready(each)
            self.assertEqual((status, page.get("warnings", {}).get("counts")), (200, None))
        end = time.monotonic() + 20
        while "counts runs on this node" not in nodes[0].log + nodes[1].log:
            self.assertLess(time.monotonic(), end)
            self.ready(nodes[0])
        logs = nodes[0].log + nodes[1].log
        self.assertEqual(logs.count("counts runs on this node"), 1)
        for each in nodes:
            self.assertEqual(each.stop(), 0, each.log)

    def test_valkey(self) -> None:
        """
        In Valkey; while that is away each node counts by itself, and the health page warns of it
        without a change of the status.
        """
        server = self.useValkey()
        nodes = self.nodes(self.where)
        self.assertEqual(self.statuses(nodes, 7), [401] * 5 + [429] * 2)
        server.kill()
        self.assertEqual(self.statuses(nodes, 12), [401] * 10 + [429] * 2)
        self.waitFor(nodes[0], True)
        text = self.get(nodes[0], "admin", "/metrics")[1].decode()
        self.assertRegex(text, r'storagegate_counts_failures_total\{kind="rates"\} [1-9]')
        server.start()
        self.waitFor(nodes[0], False)
        self.waitFor(nodes[1], False)
        self.assertEqual(self.statuses(nodes, 6), [401] * 5 + [429])

    def test_starts(self) -> None:
        """
        A node starts while Valkey is away, and uses it when it is there; one that Valkey does not
        let in ends with one line before a port is open.
        """
        server = self.useValkey()
        server.execute("ACL", "SETUSER", "default", ">right")
        cluster = Cluster()
        self.addCleanup(cluster.close)
        wrong = f"valkey://:SECRET@127.0.0.1:{server.port}"
        node = cluster.node(configuration=cluster.configuration(counts=wrong))
        node.launch()
        self.assertEqual(node.wait(START_SECONDS), 1)
        reason = f"the counts in 127.0.0.1:{server.port} cannot be used: WRONGPASS"
        lines = [line for line in node.log.splitlines() if "error] " in line]
        self.assertEqual(len(lines), 1, node.log)
        self.assertIn(reason, lines[0])
        self.assertIsNone(re.search("Traceback|SECRET|listening", node.log), node.log)
        server.kill()
        [node] = self.nodes(self.where)[:1]
        self.waitFor(node, True)
        server.start()
        self.waitFor(node, False)
        self.assertEqual(self.statuses([node, node], 6), [401] * 5 + [429])

    def waitFor(self, node: Daemon, isWarned: bool) -> None:
        """Wait until the node is ready, and its health page warns of the counts or does not."""
        end = time.monotonic() + 20
        while True:
            status, page = self.ready(node)
            if status == 200 and ("counts" in page.get("warnings", {})) == isWarned:
                return
            self.assertLess(time.monotonic(), end, page)
