"""An application in a group: its listeners, and warnings about its state."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.http import (
    MemoryRateLimitStore,
    MemorySessionStore,
    Router,
    SQLiteSessionStore,
    rateLimit,
    session,
)
from storagegate.http.serving import ApplicationFront

SECRET = "0123456789abcdef0123456789abcdef"


class ListenerTests(SynchronousTestCase):
    """The listeners that a supervisor binds."""

    def test_options(self) -> None:
        """The options have the address, unless another one is set."""
        front = ApplicationFront(server.http().withOptions(port=8080, hostname="::1"))
        [own] = front.listeners()
        self.assertEqual((own.name, own.sharing), ("", "stream"))
        self.assertEqual(own.endpoint, "tcp:8080:interface=\\:\\:1")
        front.relocate("http", "0.0.0.0:80")
        self.assertEqual(front.listeners()[0].endpoint, "tcp:80:interface=0.0.0.0")

    def test_gateways(self) -> None:
        """The transports of gateways in the options are listeners, too, with shared memory."""
        gateway = createProtocolGateway(protocols=["grpc", "udp", "websocket"])
        gateway.configureGRPC(port=1)
        gateway.configureUDP(port=2)
        app = server.http().withOptions(
            gateway.getGRPCConfig(), **gateway.getUDPConfig(), **gateway.getWebSocketConfig()
        )
        front = ApplicationFront(app)
        found = [(each.name, each.endpoint, each.sharing) for each in front.listeners()[1:]]
        expected = [("grpc", "127.0.0.1:1", "reuseport"), ("udp", "127.0.0.1:2", "datagram")]
        self.assertEqual(found, expected)
        self.assertEqual(list(front.memory), ["answers"])


class WarningTests(SynchronousTestCase):
    """State in the memory of one process."""

    def warnings(self, *middleware: Any) -> list[str]:
        """Return the warnings of an application with middleware in a mounted router."""
        app, router = server.http(), Router()
        router.use(*middleware)
        app.use("/below", router)
        router.use(router)
        return list(ApplicationFront(app).warnings())

    def test_sessions(self) -> None:
        """Sessions in memory give a warning that names a store; sessions in a file do not."""
        for store in (None, MemorySessionStore()):
            [text] = self.warnings(session(secret=SECRET, store=store))
            self.assertIn("each worker has its own sessions; to share them, use session(", text)
            self.assertIn("SQLiteSessionStore(path)", text)
        shared = SQLiteSessionStore(self.mktemp())
        self.assertEqual(self.warnings(session(secret=SECRET, store=shared)), [])

    def test_rateLimits(self) -> None:
        """Workers share the default store of limits, but not a given store in memory."""
        self.assertEqual(self.warnings(rateLimit()), [])
        [text] = self.warnings(rateLimit(store=MemoryRateLimitStore()))
        self.assertIn("each worker has its own counts of rateLimit", text)
        self.assertIn("the default store", text)

    def test_webSockets(self) -> None:
        """WebSocket routes give a warning that names the function to reach all of them."""
        app = server.http()
        app.get("/", lambda req, res: None)
        self.assertEqual(list(ApplicationFront(app).warnings()), [])

        @app.ws("/chat")
        async def chat(socket: Any) -> None:
            """Do nothing."""

        [text] = ApplicationFront(app).warnings()
        self.assertIn("storagegate.server.broadcast", text)

    def test_refused(self) -> None:
        """An application that already listens, or reloads itself, is not run in workers."""
        app = server.http().withOptions(development={"hmr": True})
        error = self.assertRaises(SystemExit, app.run, 0, workers=2)
        self.assertIn("development.hmr restarts the program itself", str(error))
        for workers in (0, 257, "2"):
            plain: Any = server.http()
            self.assertRaises(ValueError, plain.run, 0, workers=workers)
