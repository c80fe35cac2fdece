"""Tests of the application. They open no socket."""

import os
from tempfile import TemporaryDirectory
from unittest import TestCase

from storagegate.http.testing import Client
from storagegate.rpc.testing import RPCTestClient

from .accounts import User, browserUser, tokenUser
from .app import makeApplication
from .calls import makeServer


class NotesTests(TestCase):
    """The notes of a user who has logged in."""

    def setUp(self) -> None:
        """Make both front ends with one store, and a login."""
        os.environ["NOTES_DATA"] = self.enterContext(TemporaryDirectory())
        self.addCleanup(os.environ.pop, "NOTES_DATA")
        self.app, self.rpc = makeApplication(), makeServer()
        self.rpc.dependencies = self.app.dependencies
        self.addCleanup(self.app.close)
        self.app.overrides[browserUser] = lambda: User(1, "ada")
        self.rpc.overrides[tokenUser] = lambda: User(2, "bob")
        self.client = Client(self.app)

    def test_owner(self) -> None:
        """A user removes notes of her own only."""
        self.client.post("/notes", json={"text": "hello"})
        RPCTestClient(self.rpc).call("Notes/add", {"text": "hi"})
        self.assertEqual(self.client.delete("/notes/1").status, 204)
        self.assertEqual(self.client.delete("/notes/2").status, 403)

    def test_feed(self) -> None:
        """A note that arrives over gRPC reaches a WebSocket."""
        socket = self.client.websocket("/feed")
        RPCTestClient(self.rpc).call("Notes/add", {"text": "hi"})
        self.assertEqual(socket.receiveJSON(), {"author": "bob", "text": "hi"})
        socket.close()
