"""Requests that are allowed, and whose heads are as full as they may be."""

import os
from typing import Any

from storagegate.http import compression, staticFiles
from tests.net.support import statuses
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get

# What is left of a head when its first lines are taken off.
_ROOM = 15_000


def filled(piece: bytes) -> bytes:
    """Repeat something until a head is full of it."""
    return piece * (_ROOM // len(piece))


class FullHeadTests(AppServedCase):
    """Fields as long as a head may be."""

    def look(self, req: Any, res: Any) -> None:
        """Ask the request for everything that it knows."""
        values = [
            req.accepts("json", "html"),
            req.acceptsEncodings("br", "gzip"),
            req.acceptsCharsets("utf-8"),
            req.acceptsLanguages("en"),
            req.range(1000),
            req.cookies,
            req.ip,
            req.ips,
            req.protocol,
            req.hostname,
            req.query,
            req.is_("json"),
            dict(req.headers),
        ]
        self.assertEqual(len(values), 13)
        res.send("served")

    async def test_fields(self) -> None:
        """Lists of thousands, open quotes and rows of separators are read, or left out."""
        self.app.withOptions(trustProxy=True)
        self.app.get("/look", compression(), self.look)
        self.app.get("/second", self.answer)
        port = await self.listen()
        client, second = await self.connect(port), await self.connect(port)
        asked = 0
        for name in (
            b"Accept",
            b"Accept-Encoding",
            b"Accept-Language",
            b"Accept-Charset",
            b"Cookie",
            b"X-Forwarded-For",
            b"X-Forwarded-Proto",
            b"If-None-Match",
            b"If-Modified-Since",
            b"Content-Type",
            b"Range",
        ):
            for piece in (b"a/b;q=0.5,", b'"', b'W/"a",', b",", b";", b"= ", b"*/*,", b'\\"', b"1"):
                client.write(get(b"/look", name + b": " + filled(piece) + b"x"))
                asked += 1
        await client.until(lambda received: received.count(b"served") == asked)
        self.assertEqual(statuses(client.received), [200] * asked)
        await self.assertUnharmed(second)

    async def test_queries(self) -> None:
        """Queries of thousands of parameters are read as far as a thousand."""
        counts: list[int] = []
        self.app.get("/", lambda req, res: (counts.append(len(req.query)), res.send("served")))
        port = await self.listen()
        client = await self.connect(port)
        queries = (
            b"a&" * 7000,
            b"".join(b"a%d&" % number for number in range(2000)),
            b"a" + b"[a]" * 4500,
            b"%" * 14_000,
        )
        for query in queries:
            client.write(get(b"/?" + query))
        await client.until(lambda received: received.count(b"served") == len(queries))
        self.assertEqual(counts, [1, 1000, 1, 1])

    async def test_ranges(self) -> None:
        """A thousand ranges are 416, a hundred small ones are what they ask for."""
        folder = self.mktemp()
        os.mkdir(folder)
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(b"x" * 200_000)
        self.app.use(staticFiles(root=folder))
        port = await self.listen()
        for count, code in ((1000, 416), (90, 206)):
            ranges = b",".join(b"%d-%d" % (at * 9, at * 9 + 1) for at in range(count))
            received = await self.exchange(
                port, get(b"/file", b"Range: bytes=" + ranges, b"Connection: close")
            )
            self.assertEqual(statuses(received), [code])
            self.assertLess(len(received), 20_000)
