"""The client for tests of gateways: every transport in memory."""

from typing import Any

from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.trial.unittest import SynchronousTestCase

from storagegate import GrpcError, ServiceError, createProtocolGateway
from storagegate.gateway.messages.frames import ERROR
from storagegate.gateway.testing import GatewayClient, NoReply
from storagegate.gateway.transports.registry import transports
from storagegate.http.testing import WebSocketRefused

KINDS: tuple[tuple[str, dict[str, str]], ...] = (
    ("websocket", {}),
    ("websocket", {"format": "binary"}),
    ("websocket", {"format": "msgpack"}),
    ("grpc", {}),
    ("tcp", {}),
    ("tcp", {"format": "lines"}),
    ("udp", {}),
)

PADDING = "x" * 400
"""What a client of UDP sends in addition, so that replies fit."""

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Case(SynchronousTestCase):
    """Tests with a gateway."""

    def setUp(self) -> None:
        """Make it, and a client."""

        async def double(request: Any, context: Any) -> Any:
            return {"n": 2 * request["n"]}

        async def wait(request: Any, context: Any) -> Any:
            await deferLater(self.client.clock, request["n"])
            return {"n": request["n"]}

        async def count(request: Any, context: Any) -> Any:
            for n in range(request["n"]):
                yield {"n": n}

        async def total(requests: Any, context: Any) -> Any:
            return {"n": sum([request["n"] async for request in requests])}

        def method(handler: Any, streaming: str = "none") -> dict[str, Any]:
            return {"handler": handler, "streaming": streaming, "input": NUMBER, "output": NUMBER}

        numbers = {
            "name": "Numbers",
            "methods": {
                "double": method(double),
                "wait": method(wait),
                "count": method(count, "server"),
                "total": method(total, "client"),
            },
        }
        secret = {
            "name": "Secret",
            "methods": {"double": method(double)},
            "authentication": {"required": True, "methods": ["apikey"]},
        }
        gateway = createProtocolGateway(
            tcp={"maxFrameSize": 2000}, websocket={"maxMessageSize": 2000}
        )
        gateway.configureAuthentication(
            providers={"apikey": {"validate": lambda key: key == "the-key" and {"sub": "ada"}}}
        ).addService(numbers).addService(secret)
        self.client = GatewayClient(gateway, address="192.0.2.7")

    def connect(self, name: str, options: dict[str, str]) -> tuple[Any, dict[str, Any]]:
        """Connect; give what each call needs besides."""
        more = {} if name == "grpc" else {"padding": PADDING}
        return self.client.connect(name, **options), more


class CallTests(Case):
    """The same calls over each transport."""

    def test_unary(self) -> None:
        """A call gives its result."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            for n in (1, 2):
                found = connection.call("Numbers", "double", {"n": n}, **more)
                self.assertEqual(found, {"n": 2 * n}, kind)

    def test_streams(self) -> None:
        """A stream of results gives the list of its items, one of requests takes them."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            for size in (0, 1, 3):
                found = connection.call("Numbers", "count", {"n": size}, **more)
                self.assertEqual(found, [{"n": n} for n in range(size)], kind)
            call = connection.start("Numbers", "total", **more)
            for n in (3, 4):
                call.send({"n": n})
            self.assertFalse(call.isDone, kind)
            call.end()
            self.assertEqual(call.result, {"n": 7}, kind)

    def test_errors(self) -> None:
        """Input that does not fit its schema is refused."""
        for kind in KINDS:
            if kind[0] == "grpc":
                # A message of gRPC cannot hold it.
                continue
            connection, more = self.connect(*kind)
            with self.assertRaises(ServiceError) as caught:
                connection.call("Numbers", "double", {"n": "one"}, **more)
            self.assertEqual(caught.exception.code, "VALIDATION_ERROR", kind)

    def test_authentication(self) -> None:
        """A service that needs a key refuses calls without."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            with self.assertRaises((ServiceError, GrpcError)):
                connection.call("Secret", "double", {"n": 1}, **more)
            if kind[0] == "grpc":
                more["metadata"] = {"x-api-key": "the-key"}
                found = connection.call("Secret", "double", {"n": 1}, **more)
            else:
                found = connection.call("Secret", "double", {"n": 1}, token="the-key", **more)
            self.assertEqual(found, {"n": 2}, kind)

    def test_threads(self) -> None:
        """A function for a thread runs at once, with its keywords."""
        pool = self.client.clock.getThreadPool()
        called = deferToThreadPool(self.client.clock, pool, int, "12", base=3)
        self.assertEqual(self.successResultOf(called), 5)

    def test_time(self) -> None:
        """A call that waits is answered when time has passed."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            with self.assertRaises(NoReply if kind[0] != "grpc" else AssertionError):
                connection.call("Numbers", "wait", {"n": 5}, **more)
            call = connection.start("Numbers", "wait", {"n": 5}, **more)
            self.client.advance(4)
            self.assertFalse(call.isDone, kind)
            self.client.advance(1)
            self.assertEqual(call.result, {"n": 5}, kind)

    def test_deadline(self) -> None:
        """A deadline ends a call."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            call = connection.start("Numbers", "wait", {"n": 60}, deadlineMs=2000, **more)
            self.client.advance(3)
            self.assertIn(
                "DEADLINE_EXCEEDED", f"{call.error} {getattr(call.error, 'statusName', '')}"
            )

    def test_cancel(self) -> None:
        """A call that is given up ends."""
        for kind in KINDS:
            connection, more = self.connect(*kind)
            call = connection.start("Numbers", "wait", {"n": 60}, **more)
            call.cancel()
            self.client.advance(1)
            self.assertTrue(call.isDone, kind)

    def test_http(self) -> None:
        """HTTP has the client of the framework, with the same clock."""
        self.client.connect("websocket")
        http = self.client.connect("http")
        self.assertEqual(http.post("/api/Numbers/double", json={"n": 1}).json(), {"data": {"n": 2}})
        call = http.start("POST", "/api/Numbers/wait", json={"n": 5})
        self.client.advance(5)
        self.assertEqual(call.response.json(), {"data": {"n": 5}})

    def test_everyTransport(self) -> None:
        """Every transport of the registry has such a client."""
        for row in transports():
            self.assertIsNotNone(self.client.connect(row.name), row.name)
        self.assertRaises(KeyError, self.client.connect, "smtp")
        self.assertRaises(ValueError, self.client.connect, "tcp", format="xml")
        self.assertRaises(ValueError, self.client.connect, "websocket", format="xml")


class LimitTests(Case):
    """What each transport refuses by itself."""

    def test_tcp(self) -> None:
        """A frame that is too long, and one of another version, end the connection."""
        for data in (b"\x01\x01\x00\x10\x00\x00", b"\x02\x01\x00\x00\x00\x00"):
            connection = self.client.connect("tcp")
            connection.send(data)
            self.client.advance(60)
            self.assertEqual(connection.unexpected[0][0], ERROR)
            self.assertTrue(connection.connection.isOver)

    def test_websocket(self) -> None:
        """A message that is too long closes with 1009; a page of another host is refused."""
        connection = self.client.connect("websocket")
        connection.socket.send("x" * 2001)
        self.assertEqual(connection.socket.closeCode, 1009)
        with self.assertRaises(WebSocketRefused) as caught:
            self.client.connect("websocket", headers={"Origin": "https://evil.example"})
        self.assertEqual(caught.exception.response.status, 403)

    def test_udp(self) -> None:
        """A reply that is too large for its request is an error; what is no frame is dropped."""
        connection = self.client.connect("udp")
        connection.send(b"nonsense")
        self.assertEqual(connection.unexpected, [])
        with self.assertRaises(NoReply):
            connection.call("Numbers", "wait", {"n": 1}, padding=PADDING)

    def test_dropped(self) -> None:
        """A client that is lost cancels its calls."""
        connection = self.client.connect("tcp")
        connection.start("Numbers", "wait", {"n": 60})
        connection.connection.drop()
        self.client.flush()
        self.assertEqual(self.client._transports.get("tcp").connections, 0)
