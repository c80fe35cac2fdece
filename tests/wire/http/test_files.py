"""Files of an application, over real sockets."""

import os
from typing import Any

from twisted.internet.defer import Deferred

from storagegate import server
from storagegate.http.middleware.staticfiles import staticFiles
from storagegate.net.sendfile import TruncatedFile
from tests.support.openfiles import openFiles
from tests.wire.http.support import RawClient, ServedCase, get

SIZE = 12_000_000
"""More than all buffers between the server and its client hold."""


class FileTests(ServedCase):
    """An application with files."""

    def setUp(self) -> None:
        """Make a large file and a small one."""
        super().setUp()
        self.root = os.path.abspath(self.mktemp())
        os.mkdir(self.root)
        self.content = b"".join(b"%016x" % number for number in range(SIZE // 16))
        for name, content in (("large", self.content), ("small", b"content")):
            with open(os.path.join(self.root, name), "wb") as file:
                file.write(content)
        self.large = os.path.join(self.root, "large")
        self.outcomes: list[Any] = []
        self.app = server.http()
        self.app.use("/static", staticFiles(self.root))

        async def sendFile(req: Any, res: Any) -> None:
            try:
                self.outcomes.append(await res.sendFile(req.path.lstrip("/"), self.root))
            except Exception as error:
                self.outcomes.append(error)
                raise

        self.app.get("/*", sendFile)

    def openFiles(self) -> list[str]:
        """Give which of the files are open."""
        return openFiles(self.root)

    def body(self, client: RawClient, size: int) -> Deferred[bytes]:
        """Wait for one response with a body of a size."""

        def isThere(received: bytes) -> bool:
            return len(received) - received.find(b"\r\n\r\n") - 4 >= size

        return client.until(isThere).addCallback(lambda got: got.partition(b"\r\n\r\n")[2])

    async def client(self) -> RawClient:
        """Connect to the application."""
        return await self.connect(await self.serve(self.app.resource))

    async def test_whole(self) -> None:
        """Large and small files come as they are, one after the other."""
        client = await self.client()
        for path in (b"/large", b"/static/large"):
            client.write(get(path))
            self.assertTrue(await self.body(client, SIZE) == self.content)
            client.received = b""
            client.write(get(path.replace(b"large", b"small")))
            self.assertEqual(await self.body(client, 7), b"content")
            client.received = b""
        await self.turnUntil(lambda: not self.openFiles())

    async def test_parts(self) -> None:
        """Several parts of a large file are one body."""
        client = await self.client()
        client.write(get(b"/static/large", b"Range: bytes=0-5999999,9000000-9000015,-16"))
        received = await client.until(b"--\r\n")
        for part in (self.content[:6_000_000], self.content[9_000_000:][:16]):
            self.assertIn(part + b"\r\n--", received)
        self.assertTrue(received.split(b"\r\n--")[-2].endswith(self.content[-16:]))

    async def test_shrinks(self) -> None:
        """A file that shrinks while it is sent drops the connection, and is an error."""
        client = await self.client()
        client.pause()
        client.write(get(b"/large"))
        await self.turnUntil(lambda: bool(self.openFiles()))
        os.truncate(self.large, 1000)
        client.resume()
        received = await client.closed
        self.assertLess(len(received), SIZE)
        await self.turnUntil(lambda: bool(self.outcomes))
        self.assertIsInstance(self.outcomes.pop(), TruncatedFile)
        self.assertEqual(self.openFiles(), [])
        self.assertEqual(len(self.flushLoggedErrors(TruncatedFile)), 1)

    async def test_grows(self) -> None:
        """Of one that grows comes what was promised."""
        client = await self.client()
        client.pause()
        client.write(get(b"/large"))
        await self.turnUntil(lambda: bool(self.openFiles()))
        with open(self.large, "ab") as file:
            file.write(b"more")
        client.resume()
        await self.body(client, SIZE)
        client.write(get(b"/small"))
        await client.until(b"content")
        self.assertTrue(
            client.received.partition(b"\r\n\r\n")[2].startswith(self.content + b"HTTP")
        )

    async def test_abort(self) -> None:
        """A client that goes away is not an error, and the file is closed."""
        for path in (b"/large", b"/static/large"):
            client = await self.client()
            client.pause()
            client.write(get(path))
            await self.turnUntil(lambda: bool(self.openFiles()))
            client.drop()
            await self.turnUntil(lambda: not self.openFiles())
        self.assertEqual(self.outcomes, [None])
        self.assertEqual(self.flushLoggedErrors(), [])

    async def test_deleted(self) -> None:
        """A file that is deleted while it is sent comes whole, and is closed after."""
        client = await self.client()
        client.pause()
        client.write(get(b"/large"))
        await self.turnUntil(lambda: bool(self.openFiles()))
        os.unlink(self.large)
        client.resume()
        self.assertTrue(await self.body(client, SIZE) == self.content)
        await self.turnUntil(lambda: not self.openFiles())
