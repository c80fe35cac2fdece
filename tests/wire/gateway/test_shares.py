"""An address that takes what it can get of a listener, and another one that is served."""

import json
import socket
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import grpc
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase
from websockets.sync.client import connect

from storagegate.gateway.gateway import createProtocolGateway
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.gateway.test_trustedproxies import CLIENT

OTHER = ("127.0.0.2", 0)
"""Where the second client is."""

CHUNKED = (
    b"POST /api/Echo/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
)

SHARE = 3 * 4096 // 4


class DaemonTests(SynchronousTestCase):
    """The limits of the daemon, as they are."""

    def setUp(self) -> None:
        """Start a daemon."""
        stream = "tcp:0:interface=127.0.0.1"
        flags = ("--http", stream, "--tcp", stream, "--service", "tests.support.greedyclients:ECHO")
        self.daemon = Daemon(self.mktemp(), *flags, expect=("s3", "http", "tcp")).start()
        self.addCleanup(self.daemon.kill)

    def connect(self, name: str, count: int, opening: bytes = b"") -> list[socket.socket]:
        """Open connections to a listener."""
        address = self.daemon.address(name)
        clients = []
        for _ in range(count):
            client = socket.create_connection(address, 30)
            self.addCleanup(client.close)
            client.sendall(opening)
            clients.append(client)
        return clients

    def status(self, name: str, method: str, path: str, body: bytes | None = None) -> int:
        """Send a request from elsewhere, and return the status of the response."""
        host, port = self.daemon.address(name)
        with closing(HTTPConnection(host, port, timeout=30, source_address=OTHER)) as client:
            client.request(method, path, body, {"Content-Type": "application/json"})
            return client.getresponse().status

    @long("takes a second or more")
    def test_bodies(self) -> None:
        """1,030 bodies of a byte that never end leave another client its place."""
        clients = self.connect("http", 1030, CHUNKED)
        self.assertEqual(self.status("http", "POST", "/api/Echo/echo", b"{}"), 200)
        refused = [client.recv(12) for client in clients[768:]]
        self.assertEqual(set(refused), {b"HTTP/1.1 503"})
        clients[0].close()

    @long("takes seconds")
    def test_silent(self) -> None:
        """4,096 connections that say nothing, to S3 and to TCP, leave another client its place."""
        greedy = self.connect("s3", 4096)
        self.assertEqual(self.status("s3", "GET", "/"), 403)
        self.assertEqual(greedy[SHARE].recv(12), b"HTTP/1.1 503")
        greedy = self.connect("tcp", 4096)
        with closing(socket.create_connection(self.daemon.address("tcp"), 30, OTHER)) as client:
            client.sendall(b'{"id": 1, "service": "Echo", "method": "echo"}\n')
            self.assertIn(b'"size":0', client.recv(1000))
        self.assertIn(b"Too many connections", greedy[SHARE].recv(1000))


class CallTests(TestCase):
    """C{maxCallsPerAddress}, with proxies that are trusted where they can name their clients."""

    timeout = 60

    async def serve(self) -> dict[str, int]:
        """Serve a method that waits and one that does not; an address has two calls at a time."""
        from twisted.internet import reactor

        self.waiting: list[Deferred[dict[str, Any]]] = []
        options: dict[str, Any] = {
            name: {"port": 0, "maxCallsPerAddress": 2} for name in ("tcp", "grpc")
        }
        gateway = createProtocolGateway(
            port=0,
            udp={"port": 0},
            hostname="127.0.0.1",
            trustedProxies="loopback",
            websocket={"maxCallsPerAddress": 2},
            **options,
        )
        gateway.addService({"name": "Echo", "methods": {"wait": self.wait, "echo": lambda _: {}}})
        ports = await gateway.listen(reactor=reactor)
        self.addCleanup(gateway.stop, 0)
        return {name: port.getHost().port for name, port in ports.items()}

    def wait(self, request: Any) -> Deferred[dict[str, Any]]:
        """Begin to wait."""
        self.waiting.append(Deferred())
        return self.waiting[-1]

    async def begun(self, count: int) -> None:
        """Wait until so many calls are with their handler."""
        while len(self.waiting) < count:
            # Each call of another thread lets the reactor turn.
            await deferToThread(lambda: None)

    def release(self) -> None:
        """Answer what waits."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback({})

    async def assertShared(self, call: Any, one: Any, other: Any) -> None:
        """
        Check that a client has two calls, and another one as many.

        @param call: C{(client, method)} calls, and returns the answer. Called in threads.
        """
        first = [deferToThread(call, one, "wait") for _ in range(2)]
        await self.begun(2)
        self.assertIn("oo many calls", await deferToThread(call, one, "echo"))
        self.assertNotIn("oo many calls", await deferToThread(call, other, "echo"))
        self.release()
        for answer in await gatherResults(first):
            self.assertNotIn("oo many calls", answer)
        self.assertNotIn("oo many calls", await deferToThread(call, one, "echo"))

    async def test_http(self) -> None:
        """768 unfinished requests of a client that a trusted proxy names leave others a place."""
        port = (await self.serve())["http"]

        def call(client: str) -> int:
            headers = {"Content-Type": "application/json", "X-Forwarded-For": client}
            with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request("POST", "/api/Echo/echo", b"{}", headers)
                return connection.getresponse().status

        def use() -> list[int]:
            clients = []
            for _ in range(768):
                client = socket.create_connection(("127.0.0.1", port), 30)
                clients.append(client)
                named = f"\r\nX-Forwarded-For: {CLIENT}\r\nHost:".encode()
                client.sendall(CHUNKED.replace(b"\r\nHost:", named))
            try:
                return [call(CLIENT), call("192.0.2.1")]
            finally:
                for client in clients:
                    client.close()

        self.assertEqual(await deferToThread(use), [503, 200])

    async def test_websocket(self) -> None:
        """So many on all WebSockets of an address that a trusted proxy names."""
        port = (await self.serve())["http"]

        def call(client: str, method: str) -> str:
            headers = {"X-Forwarded-For": client}
            with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=headers) as connection:
                connection.send(json.dumps({"id": 1, "service": "Echo", "method": method}))
                return str(connection.recv(30))

        await self.assertShared(call, CLIENT, "192.0.2.1")

    async def test_grpc(self) -> None:
        """So many on all connections of gRPC."""
        port = (await self.serve())["grpc"]

        def call(client: str, method: str) -> str:
            metadata = [("x-forwarded-for", client)]
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                try:
                    run = channel.unary_unary(f"/Echo/{method}")
                    return repr(run(b"", metadata=metadata, timeout=30))
                except grpc.RpcError as error:
                    self.assertIs(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                    return str(error.details())

        await self.assertShared(call, CLIENT, "192.0.2.1")

    async def test_tcp(self) -> None:
        """So many on all connections of TCP, where a proxy is an address like others."""
        port = (await self.serve())["tcp"]

        def call(client: str, method: str) -> str:
            address = ("127.0.0.1", port)
            with closing(socket.create_connection(address, 30, (client, 0))) as connection:
                message = {"id": 1, "service": "Echo", "method": method}
                connection.sendall(json.dumps(message).encode() + b"\n")
                return connection.recv(1000).decode()

        await self.assertShared(call, "127.0.0.1", "127.0.0.2")
