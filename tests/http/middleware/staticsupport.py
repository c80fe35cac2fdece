"""A small site of files."""

import os
import time
from typing import Any

from twisted.internet.defer import execute
from twisted.internet.task import Clock

from storagegate import server
from storagegate.http.middleware.staticfiles import staticFiles
from storagegate.http.options import Runtime
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from tests.http.filesupport import FileCase
from tests.http.middleware.support import Answer, Client

NEXT = 299
"""The status of what comes after the files."""


class StaticCase(FileCase):
    """A test with a small site; requests go out as they are written."""

    def setUp(self) -> None:
        """Make the files."""
        super().setUp()
        for name, content in (
            ("index.html", b"<h1>top</h1>"),
            ("a.txt", b"0123456789"),
            ("a b.txt", b"space"),
            ("\u00e9.txt", b"accent"),
            ("sub/index.html", b"<h1>sub</h1>"),
            ("sub/page.html", b"<p>page</p>"),
            ("bare/file", b"no index here"),
            (".hidden/file", b"hidden"),
            (".dot", b"dot"),
        ):
            self.write(name, content)
        with open(os.path.join(self.top, "secret"), "wb") as file:
            file.write(b"secret")

    def serve(self, mount: str = "/", **options: Any) -> None:
        """Serve the files, and something after them."""
        app = server.http()
        app.runtime = Runtime(Clock(), execute, time.time)
        app.use(mount, staticFiles(self.root, **options))
        app.use(lambda req, res: res.status(NEXT).send("next"))
        self.site = Site(app.resource, HTTPLimits(), Clock())

    def ask(self, path: str, method: str = "GET", **fields: str) -> Answer:
        """Ask, with header fields: C{if_range} is C{If-Range}."""
        client = Client(self.site, "192.0.2.7")
        client.send(method, path, {name.replace("_", "-"): v for name, v in fields.items()})
        return client.answer()

    def gets(self, path: str, body: bytes, **fields: str) -> Answer:
        """Assert what a path leads to."""
        answer = self.ask(path, **fields)
        self.assertEqual((answer.status, answer.body), (200, body), path)
        return answer

    def assertStatus(self, status: int, *paths: str) -> None:
        """Assert how paths are answered."""
        for path in paths:
            self.assertEqual(self.ask(path).status, status, path)
