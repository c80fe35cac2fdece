"""Much work for one client, while a second one waits."""

import os
from typing import Any

from storagegate.http import compression, staticFiles
from tests.net.support import statuses
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get

_LARGE = 12_000_000
"""More than is sent in one turn, and more than all buffers on the way hold."""


class GreedyTests(AppServedCase):
    """Much work for one client, while a second one waits."""

    async def test_writesForEver(self) -> None:
        """A handler that writes for ever, encoded or not, to GET or HEAD, lets others in."""

        async def write(req: Any, res: Any) -> None:
            res.type("txt")
            while True:
                await res.write(b"x" * 1000)

        self.app.get("/second", self.answer)
        self.app.get("/plain", write)
        self.app.get("/encoded", compression(), write)
        port = await self.listen()
        second = await self.connect(port)
        for request in (
            get(b"/plain"),
            get(b"/encoded", b"Accept-Encoding: gzip"),
            get(b"/plain", method=b"HEAD"),
        ):
            client = await self.connect(port)
            client.write(request)
            await client.until(b"\r\n\r\n")
            for _ in range(5):
                await self.assertUnharmed(second)
            client.drop()
            await client.closed

    async def test_large(self) -> None:
        """A large body is tagged and encoded in threads, while others are answered."""
        body = os.urandom(1000) * (_LARGE // 1000)
        self.app.get("/second", self.answer)
        self.app.get("/large", compression(), lambda req, res: res.type("txt").send(body))
        port = await self.listen()
        second = await self.connect(port)
        for field in (b"Accept-Encoding: identity", b"Accept-Encoding: gzip"):
            client = await self.connect(port)
            client.write(get(b"/large", field, b"Connection: close"))
            await self.assertUnharmed(second)
            received = await client.closed
            self.assertEqual(statuses(received), [200])
            self.assertIn(b'\r\nETag: W/"%x-' % len(body), received)
            if b"identity" in field:
                self.assertTrue(received.endswith(b"\r\n\r\n" + body))
        tag = received.partition(b"\r\nETag: ")[2].partition(b"\r\n")[0]
        received = await self.exchange(
            port, get(b"/large", b"If-None-Match: " + tag, b"Connection: close")
        )
        self.assertEqual(statuses(received), [304])

    async def test_pipelinedFiles(self) -> None:
        """A thousand requests for a file in one write are answered in turn with others."""
        folder = self.mktemp()
        os.mkdir(folder)
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(b"x" * 3000)
        self.app.get("/second", self.answer)
        self.app.use(staticFiles(root=folder))
        port = await self.listen()
        second, client = await self.connect(port), await self.connect(port)
        client.write(get(b"/file") * 1000)
        await client.until(b"\r\n\r\n")
        await self.assertUnharmed(second)
        self.assertLess(client.received.count(b"HTTP/1.1 200"), 1000)
        await client.until(lambda received: received.count(b"x" * 3000) == 1000)
