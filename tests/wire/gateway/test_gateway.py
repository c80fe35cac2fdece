"""A whole gateway on real ports: what listens, and the applications it is part of."""

import json
import socket
from http.client import HTTPConnection
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.gateway.gateway import ProtocolGateway, createProtocolGateway
from storagegate.gateway.messages.frames import HEADER_LENGTH, REQUEST, RESPONSE, encodeFrame

SECONDS = 45


async def echo(request: Any, context: Any) -> Any:
    """Give the request back, and say how it came."""
    return {"request": request, "protocol": context.protocol}


def callHTTP(port: int, path: str, request: Any) -> tuple[int, Any]:
    """Call over HTTP, in a thread."""
    client = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        client.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
        response = client.getresponse()
        return response.status, json.loads(response.read())
    finally:
        client.close()


def callTCP(port: int, request: Any) -> tuple[int, Any]:
    """Call over TCP, in a thread; give the type of the answer's frame, and what it carries."""
    payload = json.dumps({"service": "S", "method": "echo", "data": request}).encode()
    with socket.create_connection(("127.0.0.1", port), SECONDS) as client:
        client.sendall(encodeFrame(REQUEST, payload))
        with client.makefile("rb") as answers:
            head = answers.read(HEADER_LENGTH)
            return head[1], json.loads(answers.read(int.from_bytes(head[2:], "big")))


def openWebSocket(port: int, path: str) -> bytes:
    """Ask for a WebSocket, in a thread; give the first line of the answer."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as client:
        client.sendall(
            b"GET %b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            % path.encode()
        )
        with client.makefile("rb") as answer:
            return answer.readline().rstrip()


def isOpen(port: int) -> bool:
    """Tell whether somebody listens."""
    with socket.socket() as client:
        client.settimeout(SECONDS)
        return client.connect_ex(("127.0.0.1", port)) == 0


class GatewayCase(TestCase):
    """Gateways in the reactor that runs the tests."""

    timeout = 60

    def setUp(self) -> None:
        """Take that reactor."""
        from twisted.internet import reactor

        self.reactor: Any = reactor

    def gateway(self, *protocols: str, **options: Any) -> ProtocolGateway:
        """Make a gateway whose ports are free ones."""
        free = {"port": 0}
        gateway = createProtocolGateway(
            protocols=protocols or None,
            **{"port": 0, "grpc": free, "tcp": free, "udp": free, **options},
        )
        self.addCleanup(gateway.stop, 0)
        return gateway.addService("S", methods={"echo": echo})

    def taken(self) -> int:
        """Give a port that somebody has."""
        port = self.reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    def ask(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Ask in a thread."""
        return deferToThread(function, *arguments)


class ListenTests(GatewayCase):
    """What listen opens."""

    async def test_ports(self) -> None:
        """Each wire has a port; WebSocket has that of HTTP."""
        ports = await self.gateway().listen(reactor=self.reactor)
        self.assertEqual(set(ports), {"http", "websocket", "grpc", "tcp", "udp"})
        self.assertIs(ports["http"], ports["websocket"])
        number = ports["http"].getHost().port
        answer = await self.ask(callHTTP, number, "/api/S/echo", {"a": 1})
        self.assertEqual(answer, (200, {"data": {"request": {"a": 1}, "protocol": "http"}}))
        self.assertIn(b" 101 ", await self.ask(openWebSocket, number, "/ws"))
        frame = await self.ask(callTCP, ports["tcp"].getHost().port, {"a": 1})
        self.assertEqual(frame, (RESPONSE, {"request": {"a": 1}, "protocol": "tcp"}))
        for port in ports.values():
            self.assertEqual(port.getHost().host, "127.0.0.1")

    async def test_only(self) -> None:
        """A wire that is not enabled is not there, even on a port that is."""
        ports = await self.gateway("http").listen(reactor=self.reactor)
        self.assertEqual(set(ports), {"http"})
        number = ports["http"].getHost().port
        self.assertIn(b" 404 ", await self.ask(openWebSocket, number, "/ws"))

    async def test_webSocketAlone(self) -> None:
        """WebSocket without HTTP has the port that both would have, and no services under /api."""
        ports = await self.gateway("websocket").listen(reactor=self.reactor)
        self.assertEqual(set(ports), {"websocket"})
        number = ports["websocket"].getHost().port
        self.assertIn(b" 101 ", await self.ask(openWebSocket, number, "/ws"))
        self.assertEqual((await self.ask(callHTTP, number, "/api/S/echo", {}))[0], 404)

    async def test_taken(self) -> None:
        """If a place is taken, that is an error; and another place may be named then."""
        for wire in ("http", "tcp", "grpc"):
            taken = self.taken()
            place = {"port": taken} if wire == "http" else {wire: {"port": taken}}
            gateway = self.gateway("http", "tcp", "grpc", **place)
            await self.assertFailure(gateway.listen(reactor=self.reactor), CannotListenError)
            if wire == "tcp":
                gateway.configureTCP(port=0)
                ports = await gateway.listen(reactor=self.reactor)
                self.assertEqual((await self.ask(callTCP, ports["tcp"].getHost().port, {}))[0], 2)

    async def test_takenLeavesNothing(self) -> None:
        """Of the wires that could be opened before the one that cannot, none is left open."""
        free = self.taken()
        await self.doCleanupOfOne()
        taken = self.taken()
        gateway = self.gateway("http", "tcp", port=free, tcp={"port": taken})
        await self.assertFailure(gateway.listen(reactor=self.reactor), CannotListenError)
        self.assertFalse(await self.ask(isOpen, free))

    async def doCleanupOfOne(self) -> None:
        """Give back the port that was taken last."""
        function, arguments, keywords = self._cleanups.pop()
        await function(*arguments, **keywords)

    async def test_stop(self) -> None:
        """After stop nobody listens, and it may listen again."""
        gateway = self.gateway("http", "tcp")
        for _ in range(2):
            ports = await gateway.listen(reactor=self.reactor)
            numbers = [port.getHost().port for port in ports.values()]
            for number in numbers:
                self.assertTrue(await self.ask(isOpen, number))
            await gateway.stop()
            for number in numbers:
                self.assertFalse(await self.ask(isOpen, number))

    async def test_laterService(self) -> None:
        """A service that comes when the gateway serves is served."""
        gateway = self.gateway("http")
        ports = await gateway.listen(reactor=self.reactor)
        number = ports["http"].getHost().port
        self.assertEqual((await self.ask(callHTTP, number, "/api/T/echo", {}))[0], 404)
        gateway.addService("T", methods={"echo": echo})
        self.assertEqual((await self.ask(callHTTP, number, "/api/T/echo", {}))[0], 200)


class ApplicationTests(GatewayCase):
    """A gateway as part of an application."""

    async def listen(self, app: Any) -> int:
        """Serve an application."""
        port = await app.listen(0, reactor=self.reactor)
        self.addCleanup(app.close, 0)
        return int(port.getHost().port)

    async def test_middleware(self) -> None:
        """The mount takes the place of basePath; other paths are the application's."""
        app = server.http()
        app.use("/rpc", self.gateway(http={"basePath": "/v1"}).middleware())
        app.post("/other", lambda req, res: res.json({"mine": True}))
        number = await self.listen(app)
        answer = await self.ask(callHTTP, number, "/rpc/S/echo", {"a": 1})
        self.assertEqual(answer, (200, {"data": {"request": {"a": 1}, "protocol": "http"}}))
        status, body = await self.ask(callHTTP, number, "/rpc/S/nothing", {})
        self.assertEqual((status, body["error"]), (404, "NOT_FOUND"))
        self.assertEqual(await self.ask(callHTTP, number, "/other", {}), (200, {"mine": True}))
        for path in ("/v1/S/echo", "/rpc/v1/S/echo"):
            self.assertEqual((await self.ask(callHTTP, number, path, {}))[0], 404)

    async def test_wires(self) -> None:
        """An application opens the wires whose groups it was given, and closes them."""
        gateway = self.gateway()
        app = server.http()
        # Whoever answers everything has registered before: WebSockets come first all the same.
        app.use(lambda req, res, next: res.json({"mine": True}))
        app.withOptions(
            **gateway.getWebSocketConfig(),
            **gateway.getTCPConfig(),
            **gateway.getUDPConfig(),
            **gateway.getGRPCConfig(),
        )
        number = await self.listen(app)
        ports = gateway.start().ports
        self.assertEqual(set(ports), {"tcp", "udp", "grpc"})
        self.assertIn(b" 101 ", await self.ask(openWebSocket, number, "/ws"))
        self.assertEqual(await self.ask(callHTTP, number, "/x", {}), (200, {"mine": True}))
        frame = await self.ask(callTCP, ports["tcp"].getHost().port, {"a": 1})
        self.assertEqual(frame, (RESPONSE, {"request": {"a": 1}, "protocol": "tcp"}))
        numbers = [number, ports["tcp"].getHost().port]
        await app.close(1000)
        for each in numbers:
            self.assertFalse(await self.ask(isOpen, each))

    async def test_once(self) -> None:
        """A second port of the application opens no second wire."""
        gateway = self.gateway()
        app = server.http().withOptions(**gateway.getTCPConfig())
        await self.listen(app)
        opened = gateway.start().ports["tcp"]
        await self.listen(app)
        self.assertIs(gateway.start().ports["tcp"], opened)

    async def test_taken(self) -> None:
        """If a wire's place is taken, the application does not listen either."""
        gateway = self.gateway(tcp={"port": self.taken()})
        app = server.http().withOptions(**gateway.getTCPConfig())
        free = self.taken()
        function, arguments, keywords = self._cleanups.pop()
        await function(*arguments, **keywords)
        await self.assertFailure(app.listen(free, reactor=self.reactor), CannotListenError)
        self.assertFalse(await self.ask(isOpen, free))
