"""What a gateway counts of calls that come over real wires."""

import http.client
import socket
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.messages.frames import REQUEST, encodeFrame
from storagegate.gateway.metrics import COLLECTORS
from storagegate.gateway.transports.metrics import metricsOf
from storagegate.gateway.transports.registry import transportNames, transports
from tests.support.gateway import Probe
from tests.support.gatewayclients import CLIENTS

GREETING = {"text": "hello"}

PROTOCOL_METRICS = {row.name: tuple(metricsOf(row.name)) for row in transports()}
"""Everything that may be chosen of transports."""


class MetricsTests(TestCase):
    """All five wires, with everything chosen."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve over all wires."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        free = {"port": 0}
        self.gateway = createProtocolGateway(
            port=0, tcp=free, udp=free, grpc={"port": 0, "reflection": True}
        )
        self.gateway.configureMonitoring(
            metrics={"collectors": COLLECTORS, "protocolMetrics": PROTOCOL_METRICS}
        )
        self.gateway.addService(Probe(self.reactor).definition())
        ports = await self.gateway.listen(reactor=self.reactor)
        self.addCleanup(self.gateway.stop, 0)
        self.ports = {name: port.getHost().port for name, port in ports.items()}

    async def call(self, wire: str, method: str, kind: str = "none", *requests: Any) -> Any:
        """Call a method on a connection of its own, which is open until the test ends."""
        client = await deferToThread(CLIENTS[wire], self.ports[wire])
        self.addCleanup(deferToThread, client.close)

        def run() -> Any:
            return client.begin("Probe", method, kind, requests or [GREETING]).finish()

        return client, await deferToThread(run)

    def metrics(self, *path: str) -> Any:
        """Give a part of what getMetrics tells."""
        found: Any = self.gateway.getMetrics()
        for name in path:
            found = found[name]
        return found

    async def test_collectors(self) -> None:
        """Each wire's calls are counted, timed and rated; connections and bytes as well."""
        for wire in transportNames():
            for _ in range(2):
                await self.call(wire, "askNone")
        for wire in transportNames():
            self.assertEqual(self.metrics("request_count", wire), {"Probe.askNone": 2})
            self.assertEqual(set(self.metrics("request_duration", wire)), {"Probe.askNone"})
            self.assertEqual(self.metrics("error_rate", wire), 0.0)
            self.assertGreater(self.metrics("throughput", wire), 0.0)
        connections = self.metrics("active_connections")
        # Those of HTTP are closed after the answer, and of gRPC both clients share one.
        del connections["http"]
        self.assertEqual(connections, {"websocket": 2, "grpc": 1, "tcp": 2, "udp": 2})
        for family in self.gateway._metrics.meters.snapshot():
            if family.name == "storagegate_wire_bytes_total":
                sizes = dict(family.samples)
        self.assertEqual(
            set(sizes), {(wire, way) for wire in transportNames() for way in ("in", "out")}
        )
        self.assertGreater(min(sizes.values()), 2 * len("hello"))

    async def test_http(self) -> None:
        """Answers are counted by status whoever gave them, and clients by family."""

        def ask() -> list[int]:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=45)
            codes = []
            for method, path in (
                ("POST", "/api/Probe/askNone"),
                ("POST", "/api/Probe/nothing"),
                ("GET", "/api/Probe/askNone"),
                ("GET", "/elsewhere"),
            ):
                fields = {"Content-Type": "application/json", "User-Agent": "curl/8.5"}
                connection.request(method, path, b'{"text": "a"}', fields)
                response = connection.getresponse()
                response.read()
                codes.append(response.status)
            connection.close()
            return codes

        codes = await deferToThread(ask)
        self.assertEqual(codes, [200, 404, 405, 404])
        found = self.metrics("http")
        self.assertEqual(found["status_codes"], {"200": 1, "404": 2, "405": 1})
        self.assertEqual(found["user_agents"], {"curl": 4})

    async def test_unknown(self) -> None:
        """A call for what is not there is one of an unknown method, on each wire."""
        for wire in transportNames():
            for method in ("nothing", "less"):
                await self.call(wire, method)
        for wire in transportNames():
            self.assertEqual(self.metrics("request_count", wire), {"unknown.unknown": 2}, wire)
            self.assertEqual(self.metrics("error_rate", wire), 1.0, wire)

    async def test_websocket(self) -> None:
        """Messages are counted both ways, and a connection when it has gone."""
        client, _ = await self.call("websocket", "askNone")
        found = self.metrics("websocket")
        self.assertEqual(found["message_frequency"], {"in": 1, "out": 1})
        self.assertEqual(found["connection_duration"]["count"], 0)
        await deferToThread(client.close)
        while self.metrics("active_connections", "websocket"):
            await deferToThread(lambda: None)
        self.assertEqual(self.metrics("websocket", "connection_duration", "count"), 1)

    async def test_tcp(self) -> None:
        """The pool tells who came, who is there and who has gone; buffers what is incomplete."""
        await self.call("tcp", "askNone")
        client, _ = await self.call("tcp", "askNone")
        await deferToThread(client.close)
        while self.metrics("active_connections", "tcp") > 1:
            await deferToThread(lambda: None)
        pool = {"open": 1, "accepted": 2, "closed": 1}
        self.assertEqual(self.metrics("tcp", "connection_pool"), pool)
        self.assertEqual(self.metrics("tcp", "buffer_utilization"), 0)
        with socket.create_connection(("127.0.0.1", self.ports["tcp"])) as half:
            half.sendall(encodeFrame(REQUEST, b"x" * 100_000)[:-1])
            while not self.metrics("tcp", "buffer_utilization"):
                await deferToThread(lambda: None)

    async def test_grpc(self) -> None:
        """Streams are counted by kind when they have ended, and every call has its latency."""
        await self.call("grpc", "askNone")
        await self.call("grpc", "askServer", "server")
        await self.call("grpc", "askBidirectional", "bidirectional")
        found = self.metrics("grpc")
        self.assertEqual(found["stream_count"], {"server": 1, "bidirectional": 1})
        methods = {"Probe.askNone", "Probe.askServer", "Probe.askBidirectional"}
        self.assertEqual(set(found["rpc_latency"]), methods)

    async def test_udp(self) -> None:
        """Datagrams that come again, and those that are none, are counted with their sizes."""

        def ask() -> int:
            message = b'{"id": "1", "service": "Probe", "method": "askNone", "data": {}}'
            datagram = encodeFrame(REQUEST, message)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(45)
                client.connect(("127.0.0.1", self.ports["udp"]))
                client.send(b"no frame")
                for _ in range(2):
                    client.send(datagram)
                    client.recv(65_536)
            return len(datagram)

        size = await deferToThread(ask)
        found = self.metrics("udp")
        self.assertEqual(
            found["packet_loss"], {"lost": 0, "duplicates": 1, "dropped": {"frame": 1}}
        )
        self.assertEqual(found["packet_size"]["in"], (8 + 2 * size) / 3)
        self.assertGreater(found["packet_size"]["out"], 0)
