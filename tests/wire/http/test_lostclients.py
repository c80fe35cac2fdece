"""Clients that go away, at every stage of a request: nothing is logged, and nothing stays."""

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http import compression, json, upload
from storagegate.net.http.interfaces import BodyLost, ClientLost
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import RawClient, get, post

# More than all buffers on the way to a client hold.
_SIZE = 12_000_000


def openFiles() -> int:
    """Count what this process has open."""
    return len(os.listdir("/proc/self/fd"))


class LostClientTests(AppServedCase):
    """An application whose client is soon gone."""

    def setUp(self) -> None:
        """Make a file to send."""
        super().setUp()
        self.events: list[str] = []
        self.folder = os.path.abspath(self.mktemp())
        os.mkdir(self.folder)
        self.file = os.path.join(self.folder, "file")
        with open(self.file, "wb") as file:
            file.write(b"x" * _SIZE)

    def watch(self, req: Any, res: Any, next: Any) -> Any:
        """Note what becomes of a request."""
        self.events.append("began")
        req.on("close", lambda: self.events.append("close"))
        res.on("finish", lambda: self.events.append("finish"))
        return next()

    async def lose(
        self, request: bytes, when: Callable[[RawClient], bool], ending: bool = True
    ) -> None:
        """Send a request, go away, and check that nothing is left of it."""
        port = await self.listen()
        second = await self.connect(port)
        # Its connection is one of those that are counted, and was accepted when it is answered.
        await self.assertUnharmed(second)
        # What a first use of threads and modules opens is not counted.
        before = openFiles()
        for drops in (True, False):
            self.events.clear()
            client = await self.connect(port)
            client.write(request)
            await self.turnUntil(lambda client=client: when(client))  # type: ignore[misc]
            if drops:
                client.drop()
            else:
                client.transport.loseConnection()  # type: ignore[union-attr]
            await client.closed
            if ending:
                await self.turnUntil(lambda: "close" in self.events)
            await self.assertUnharmed(second)
            await self.turnUntil(lambda: openFiles() <= before)
        self.assertNotIn("finish", self.events)

    def answerSecond(self) -> None:
        """Answer the second client."""
        self.app.get("/second", self.answer)

    async def test_bodies(self) -> None:
        """In the middle of a body, read by a handler or by a parser; the file of one is removed."""
        lost: list[Exception] = []

        async def read(req: Any, res: Any) -> None:
            try:
                await req.read()
            except BodyLost as error:
                lost.append(error)
                raise

        self.answerSecond()
        self.app.use(self.watch)
        self.app.post("/read", read)
        self.app.post("/json", json(), self.answer)
        self.app.post("/upload", upload(dest=self.folder).any(), self.answer)
        kind = b"Content-Type: application/json"
        form = b"Content-Type: multipart/form-data; boundary=b"
        part = (
            b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n' + b"a" * 70_000
        )
        for request in (
            post(b"/read", b"a" * 100)[:-1],
            get(b"/read", b"Transfer-Encoding: chunked", method=b"POST") + b"5\r\nab",
            post(b"/json", b'{"a": 1}', kind)[:-1],
            post(b"/upload", part * 2, form)[:-70_000],
        ):
            await self.lose(request, lambda client: "began" in self.events)
        self.assertEqual(len(lost), 4)
        await self.turnUntil(lambda: os.listdir(self.folder) == ["file"])

    async def test_held(self) -> None:
        """While the end of the response is held: it was not sent, so C{finish} is not called."""
        held: list[Deferred[None]] = []

        def hold(req: Any, res: Any) -> None:
            held.append(Deferred())
            res.holdEnd(lambda: held[-1])
            res.send("x")

        self.answerSecond()
        self.app.use(self.watch)
        self.app.get("/", hold)
        await self.lose(get(b"/"), lambda client: "began" in self.events)
        for each in held:
            each.callback(None)
        self.assertNotIn("finish", self.events)

    async def test_files(self) -> None:
        """While a file is sent, by the kernel or through an encoder, at its start or later."""

        async def send(req: Any, res: Any) -> None:
            await res.sendFile(self.file, headers={"Content-Type": "text/plain"})

        self.answerSecond()
        self.app.use(self.watch)
        self.app.get("/plain", send)
        self.app.get("/encoded", compression(), send)
        for request in (get(b"/plain"), get(b"/encoded", b"Accept-Encoding: gzip")):
            # Gone before the server has looked at the request.
            for _ in range(10):
                await self.lose(request, lambda client: True, ending=False)
        await self.lose(get(b"/plain"), lambda client: b"\r\n\r\n" in client.received, ending=False)

    async def test_compressed(self) -> None:
        """While a thread compresses a whole body."""

        def send(req: Any, res: Any) -> None:
            res.type("txt").send(os.urandom(1000) * 8_000)

        self.answerSecond()
        self.app.use(self.watch)
        self.app.get("/", compression(), send)
        await self.lose(get(b"/", b"Accept-Encoding: gzip"), lambda client: "began" in self.events)

    async def test_streams(self) -> None:
        """While a handler writes: the next piece raises."""
        lost: list[ClientLost] = []

        async def write(req: Any, res: Any) -> None:
            try:
                while True:
                    await res.write(b"x" * 1000)
            except ClientLost as error:
                lost.append(error)
                raise

        self.answerSecond()
        self.app.use(self.watch)
        self.app.get("/plain", write)
        self.app.get("/encoded", compression(), write)
        for request in (get(b"/plain"), get(b"/encoded", b"Accept-Encoding: gzip")):
            await self.lose(request, lambda client: b"\r\n\r\n" in client.received)
        await self.turnUntil(lambda: len(lost) == 4)

    async def test_pipelined(self) -> None:
        """With requests waiting behind the one that is answered: they are not begun."""
        paths: list[str] = []

        turns: list[Deferred[None]] = []

        async def wait(req: Any, res: Any) -> None:
            paths.append(req.path)
            turns.append(Deferred())
            await turns[-1]
            res.send("x")

        self.answerSecond()
        self.app.use(self.watch)
        self.app.get("/*", wait)
        await self.lose(get(b"/a") + get(b"/b") * 10, lambda client: "/a" in paths)
        for turn in turns:
            turn.callback(None)
        self.assertEqual(paths, ["/a", "/a"])
