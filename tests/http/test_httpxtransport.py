"""The transport of httpx that calls an application in its own process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
from twisted.internet import reactor as installed
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import Cookie, Form, HTTPResponse, UploadedFile
from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.testing import StillWaiting


class TransportTests(SynchronousTestCase):
    """Both clients of httpx."""

    def setUp(self) -> None:
        """Make an application."""
        assert installed is not None
        self.app = app = server.http()
        self.transport = app.testTransport()

        @app.post("/login")
        def login(name: Annotated[str, Form()], res: HTTPResponse) -> None:
            res.cookie("name", name).redirect("/me")

        @app.get("/me")
        async def me(name: Annotated[str, Cookie()] = "-") -> list[Any]:
            main = threading.main_thread()
            return [name, await deferToThread(lambda: threading.current_thread() is main)]

        @app.post("/files")
        def files(title: Annotated[str, Form()], file: UploadedFile) -> list[Any]:
            return [title, file.originalname, file.mimetype, file.size]

        @app.get("/stream")
        async def stream(res: HTTPResponse) -> None:
            for number in range(3):
                await res.write(f"{number}")
                await deferLater(self.transport.client.clock, 1)
            res.end()

        @app.get("/lost")
        def lose(res: HTTPResponse) -> None:
            res.raw.abort()

    def test_plain(self) -> None:
        """Forms, files, redirects, threads and httpx's own cookies, synchronously."""
        with httpx.Client(
            transport=self.transport, base_url="http://test", follow_redirects=True
        ) as http:
            self.assertEqual(http.get("/me").json(), ["-", False])
            response = http.post("/login", data={"name": "ada"})
            self.assertEqual(response.json(), ["ada", False])
            self.assertEqual(response.history[0].status_code, 302)
            self.assertEqual(http.get("/me").json(), ["ada", False])
            upload = {"file": ("a.png", b"123", "image/png")}
            response = http.post("/files", data={"title": "t"}, files=upload)
            self.assertEqual(response.json(), ["t", "a.png", "image/png", 3])
            self.assertEqual(http.get("/none?a=b").json()["error"], "Not Found")
            http.cookies.clear()
            self.assertEqual(http.get("/me").json(), ["-", False])

    def test_asynchronous(self) -> None:
        """The same by an asynchronous client, with a body that is a stream."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"name="
            yield b"eve"

        async def ask() -> list[Any]:
            async with httpx.AsyncClient(
                transport=self.transport, base_url="http://test", follow_redirects=True
            ) as http:
                headers = {"content-type": "application/x-www-form-urlencoded"}
                response = await http.post("/login", content=pieces(), headers=headers)
                return [response.json(), (await http.get("/me")).json()]

        self.assertEqual(asyncio.run(ask()), [["eve", False]] * 2)

    def test_streams(self) -> None:
        """A body is read as it comes, and time advances by the test."""
        with (
            httpx.Client(transport=self.transport, base_url="http://test") as http,
            http.stream("GET", "/stream") as response,
        ):
            pieces = response.iter_bytes()
            self.assertEqual(next(pieces), b"0")
            self.transport.client.advance(1)
            self.assertEqual(next(pieces), b"1")
            self.assertRaises(StillWaiting, next, pieces)

    def test_lost(self) -> None:
        """A connection that the application drops is an error."""
        http = httpx.Client(transport=self.transport, base_url="http://test")
        self.addCleanup(http.close)
        self.assertRaises(ResponseLost, http.get, "/lost")
