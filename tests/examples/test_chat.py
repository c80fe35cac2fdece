"""The chat of C{examples/chat.py}, with the client of websockets."""

import http.client
import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.examples.support import Example
from tests.support.http import REQUEST_SECONDS


class ChatTests(SynchronousTestCase):
    """What the people in a room see."""

    def setUp(self) -> None:
        """Start the example."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.example = Example("chat", directory)
        self.addCleanup(self.example.kill)
        self.example.start()

    def join(self, room: str) -> ClientConnection:
        """Open a WebSocket, as the page does."""
        socket = connect(
            f"ws://{self.example.base.removeprefix('http://')}/rooms/{room}",
            origin=self.example.base,  # type: ignore[arg-type]
            open_timeout=REQUEST_SECONDS,
        )
        self.addCleanup(socket.close)
        return socket

    def receive(self, socket: ClientConnection) -> Any:
        """Return the text of the next message."""
        return json.loads(socket.recv(REQUEST_SECONDS))["text"]

    def test_rooms(self) -> None:
        """What one says, all in the room see, and no others."""
        ada, grace, other = self.join("red"), self.join("red"), self.join("blue")
        ada.send("hello")
        self.assertEqual([self.receive(ada), self.receive(grace)], ["hello", "hello"])
        other.send("alone")
        self.assertEqual(self.receive(other), "alone")
        grace.close()
        ada.send("still here")
        self.assertEqual(self.receive(ada), "still here")

    def test_refused(self) -> None:
        """A room that is none, and a message that is too long."""
        with self.assertRaises(InvalidStatus) as caught:
            self.join("7")
        self.assertEqual(caught.exception.response.status_code, 404)
        socket = self.join("red")
        socket.send("x" * 1001)
        with self.assertRaises(ConnectionClosed) as closed:
            socket.recv(REQUEST_SECONDS)
        self.assertEqual(closed.exception.rcvd and closed.exception.rcvd.code, 4000)

    def test_page(self) -> None:
        """The page has the same path."""
        connection = http.client.HTTPConnection(*self.example.place, timeout=REQUEST_SECONDS)
        self.addCleanup(connection.close)
        connection.request("GET", "/rooms/red")
        self.assertIn(b"new WebSocket", connection.getresponse().read())
