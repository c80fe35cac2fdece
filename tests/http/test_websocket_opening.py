"""WebSockets that are being opened: their session is saved before the response."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.application import Application
from storagegate.http.testing import Client, StillWaiting
from storagegate.http.websocket import WebSocket


class OpeningTests(SynchronousTestCase):
    """Limit and drain are checked when a WebSocket is accepted, after all waiting."""

    def setUp(self) -> None:
        """Make a route behind middleware that holds the response, as a session store does."""
        self.app = Application().withOptions(
            ws={"maxConnections": 2, "maxConnectionsPerAddress": 2}
        )
        self.client = Client(self.app)
        self.saving: list[Deferred[None]] = []
        self.opened: list[WebSocket] = []

        def hold(req: Any, res: Any, next: Any) -> Any:
            saved: Deferred[None] = Deferred()
            self.saving.append(saved)
            res.holdEnd(lambda: saved)
            return next()

        async def handler(socket: WebSocket) -> None:
            self.opened.append(socket)
            async for _ in socket:
                pass

        self.app.use(hold).ws("/", handler)

    def begin(self) -> Any:
        """Send a handshake, and return its connection."""
        with self.assertRaises(StillWaiting) as caught:
            self.client.webSocket("/")
        return caught.exception.call

    def test_limit(self) -> None:
        """Of six that wait together two open; four get a 503."""
        sockets = [self.begin() for _ in range(6)]
        for saved in self.saving:
            saved.callback(None)
        self.client.flush()
        lines = sorted(socket.response.split(b"\r\n")[0] for socket in sockets)
        self.assertEqual(len(self.opened), 2)
        self.assertEqual([line[9:12] for line in lines], [b"101"] * 2 + [b"503"] * 4)
        self.assertEqual(self.app.webSockets.connections, 2)

    def test_drain(self) -> None:
        """One that was begun before the application closed gets a 503 when that has ended."""
        socket = self.begin()
        server = self.app.webSockets
        closing = self.app.close(1000)
        self.successResultOf(closing)
        self.saving[0].callback(None)
        self.client.flush()
        self.assertEqual(self.opened, [])
        self.assertEqual(server.connections, 0)
        self.assertIn(b" 503 ", socket.response.split(b"\r\n")[0])
