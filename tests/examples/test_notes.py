"""The notes application of C{examples/notes/}: in memory."""

import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from examples.notes.app import makeApplication
from examples.notes.calls import makeServer
from storagegate import GrpcError
from storagegate.http.testing import Client, WebSocketRefused
from storagegate.rpc.testing import RPCTestClient
from tests.support.modules import CHECKOUT

ADA = {"name": "ada", "password": "correct horse"}


class NotesTests(SynchronousTestCase):
    """Both front ends with one store."""

    def setUp(self) -> None:
        """Make them, and an account."""
        before = os.environ.get("NOTES_DATA")
        os.environ["NOTES_DATA"] = self.mktemp()
        self.addCleanup(self._restore, before)
        self.app, self.rpc = makeApplication(), makeServer()
        self.rpc.dependencies = self.app.dependencies
        self.client = Client(self.app)
        self.addCleanup(lambda: self.successResultOf(self.app.close()))
        self.assertEqual(self.client.post("/users", json=ADA).status, 201)
        self.token = self.client.post("/login", json=ADA).json()["token"]

    def _restore(self, before: str | None) -> None:
        if before is None:
            del os.environ["NOTES_DATA"]
        else:
            os.environ["NOTES_DATA"] = before

    def add(self, text: str, **more: Any) -> Any:
        """Add a note."""
        response = self.client.post("/notes", json={"text": text, **more})
        self.assertEqual(response.status, 201, response.text)
        return response.json()

    def test_accounts(self) -> None:
        """A name is taken once, a wrong password is refused, and a login is needed."""
        self.assertEqual(self.client.get("/me").json(), {"id": 1, "name": "ada"})
        self.assertEqual(self.client.post("/users", json=ADA).status, 409)
        for wrong in ({**ADA, "password": "wrong horse"}, {**ADA, "name": "eve"}):
            self.assertEqual(self.client.post("/login", json=wrong).status, 401)
        self.client.cookies.clear()
        self.assertEqual(self.client.get("/me").status, 401)
        bearer = {"authorization": f"Bearer {self.token}"}
        self.assertEqual(self.client.get("/me", headers=bearer).json()["name"], "ada")
        response = self.client.post("/users", json={"name": "", "password": "short"})
        paths = [each["path"] for each in response.json()["details"]]
        self.assertEqual(paths, ["name", "password"])

    def test_notes(self) -> None:
        """Notes are added, found, shown and removed by their author."""
        first, second = self.add("buy pens", tags=["shop"]), self.add("call Bob")
        self.assertEqual((first["author"], first["tags"]), ("ada", ["shop"]))
        found = self.client.get("/notes?search=pens").json()
        self.assertEqual([note["id"] for note in found], [first["id"]])
        self.assertEqual(self.client.get("/notes?limit=0").status, 400)
        other = {"name": "bob", "password": "correct horse"}
        self.client.post("/users", json=other)
        bob = self.client.post("/login", json=other).json()["token"]
        self.client.cookies.clear()
        path = f"/notes/{second['id']}"
        headers = {"authorization": f"Bearer {bob}"}
        self.assertEqual(self.client.delete(path, headers=headers).status, 403)
        headers = {"authorization": f"Bearer {self.token}"}
        self.assertEqual(self.client.delete(path, headers=headers).status, 204)
        self.assertEqual(self.client.get(path, headers=headers).status, 404)

    def test_attachments(self) -> None:
        """A file is attached and downloaded; without a login nothing is stored."""
        note = self.add("with a file")
        path = f"/notes/{note['id']}/attachments"
        files = {"file": ("a.txt", b"content", "text/plain")}
        attached = self.client.post(path, files=files).json()
        self.assertEqual((attached["name"], attached["size"]), ("a.txt", 7))
        response = self.client.get(f"/attachments/{attached['id']}")
        self.assertEqual(response.body, b"content")
        self.assertIn("a.txt", response.headers["content-disposition"])
        self.client.cookies.clear()
        self.assertEqual(self.client.post(path, files=files).status, 401)
        self.assertEqual(len(list(Path(os.environ["NOTES_DATA"], "uploads").iterdir())), 1)

    def test_feed(self) -> None:
        """New notes reach WebSockets and gRPC, from either front end."""
        rpc = RPCTestClient(self.rpc)
        metadata = {"authorization": f"Bearer {self.token}"}
        socket = self.client.websocket("/feed")
        following = rpc.start("Notes/follow", {}, metadata=metadata)
        self.add("over HTTP")
        added = rpc.call("Notes/add", {"text": "over gRPC"}, metadata=metadata)
        self.assertEqual((added["author"], added["text"]), ("ada", "over gRPC"))
        texts = [socket.receiveJSON()["text"] for _ in range(2)]
        self.assertEqual(texts, ["over HTTP", "over gRPC"])
        rpc.flush()
        self.assertEqual([each["text"] for each in following.responses], texts)
        found = rpc.call("Notes/find", {"text": "gRPC"}, metadata=metadata)
        self.assertEqual([each["text"] for each in found], ["over gRPC"])
        socket.close()
        following.cancel()
        rpc.flush()

    def test_refused(self) -> None:
        """All front ends refuse a client without a login, each in its own form."""
        self.client.cookies.clear()
        error = self.assertRaises(WebSocketRefused, self.client.websocket, "/feed")
        self.assertEqual(error.response.json()["error"], "UNAUTHENTICATED")
        rpc = RPCTestClient(self.rpc)
        for method in ("add", "find"):
            refused = self.assertRaises(GrpcError, rpc.call, f"Notes/{method}", {"text": "x"})
            self.assertEqual(refused.statusName, "UNAUTHENTICATED")

    def test_page(self) -> None:
        """The page, the description, and middleware as in Express."""
        response = self.client.get("/")
        self.assertIn("<h1>Notes</h1>", response.text)
        self.assertEqual(response.headers["x-notes"], "1")
        paths = self.client.get("/openapi.json").json()["paths"]
        self.assertIn("/notes/{id}/attachments", paths)


class NotesTypeTests(SynchronousTestCase):
    """Its files, which the tests of type checkers also check."""

    def test_noExceptions(self) -> None:
        """None has a cast, an exception for a checker, or a value of any type."""
        files = sorted((CHECKOUT / "examples" / "notes").glob("*.py"))
        self.assertGreater(len(files), 6)
        for path in files:
            self.assertNotRegex(path.read_text(), r"\bcast\b|type: ignore|pyright:|\bAny\b", path)
