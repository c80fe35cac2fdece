"""The lines that Autobahn logs."""

import txaio
from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.application import Application
from storagegate.http.testing import Client
from storagegate.http.websocket import WebSocket
from storagegate.net.websocket.connection import WebSocketConnection, WebSocketFactory

_RESERVED = 5


class AutobahnLogTests(SynchronousTestCase):
    """Autobahn's log is txaio's, at one level."""

    def setUp(self) -> None:
        """Collect the log."""
        self.events: list[LogEvent] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def test_errors(self) -> None:
        """Errors of Autobahn, which are mistakes of the program, are logged."""
        for kind in (WebSocketConnection, WebSocketFactory):
            kind.log.error("Firing signal {name} failed", name="message")
        self.assertEqual(
            [(each["log_level"], each["name"]) for each in self.events],
            [(LogLevel.error, "message")] * 2,
        )
        self.assertEqual(
            {each["log_namespace"] for each in self.events},
            {"storagegate.net.websocket.connection"},
        )

    def test_mistakesOfClients(self) -> None:
        """A client's mistake logs no line, whatever level a program sets for txaio."""
        self.addCleanup(txaio.set_global_log_level, txaio.get_global_log_level())
        app = Application()

        async def echo(socket: WebSocket) -> None:
            async for message in socket:
                await socket.send(message)

        app.ws("/", echo)
        for level in ("info", "trace"):
            txaio.set_global_log_level(level)
            socket = Client(app).webSocket("/", headers={"authorization": "Bearer secret"})
            self.events.clear()
            socket._client.sendFrame(_RESERVED)
            self.assertEqual((socket.messages, socket.closeCode), ([], 1002))
            self.assertEqual(self.events, [], level)
