"""The page on HTTP/2, held against the code."""

import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.errors import ResponseSent
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http2.interfaces import HTTP2Limits
from tests.http.test_websocket_http2 import AppSite
from tests.net.http2.support import Peer
from tests.net.support import head, statuses
from tests.support.documents import DOCS, runBlocks, table

PAGE = DOCS / "http2.rst"

UNITS = {"": 1, "KiB": 1024, "MiB": 1024 * 1024}


def sizes(text: str) -> list[int]:
    """Read the numbers of a text, with their units."""
    found = re.findall(r"([0-9][0-9,]*)(?: (KiB|MiB))?", text)
    return [int(number.replace(",", "")) * UNITS[unit] for number, unit in found]


class PageTests(SynchronousTestCase):
    """What the page says."""

    def test_limits(self) -> None:
        """Its limits are those of the code."""
        limits = HTTP2Limits()
        rows = [sizes(row[1]) for row in table(PAGE, "Limits of a connection")]
        self.assertEqual(
            rows,
            [
                [limits.streams],
                [limits.streamWindow + 1],
                [limits.connectionWindow],
                [limits.headerList],
                [limits.headerBlock],
                [limits.headerTable],
                [limits.frame],
                [limits.control, limits.controlRate],
                [limits.resets, limits.resetRate],
            ],
        )
        self.assertEqual(HTTPLimits().headSize, limits.headerList)
        self.assertEqual(HTTPLimits().bodyWindow, 1024 * 1024)

    def test_hints(self) -> None:
        """Its program sends hints first, over both versions, and none to HTTP/1.0."""
        app = runBlocks(PAGE)["app"]
        site = AppSite(app)
        answer = Peer(site).ask()  # type: ignore[arg-type]
        self.assertEqual((answer.interim, answer.status), ([103], 200))
        received = site.connect().send(head())
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n"
        self.assertTrue(received.startswith(hints + b"HTTP/1.1 200 OK\r\n"), received)
        self.assertEqual(statuses(site.connect().send(b"GET / HTTP/1.0\r\n\r\n")), [200])

    def test_misplacedHints(self) -> None:
        """Hints that are malformed, or too late, are errors of the handler."""
        app = server.http()
        failures: list[type] = []

        @app.get("/")
        async def page(req: Any, res: Any) -> None:
            for hints in ({"Link": "a\r\nb"}, {"a b": "c"}):
                try:
                    res.writeEarlyHints(hints)
                except ValueError as error:
                    failures.append(type(error))
            await res.write("a")
            try:
                res.writeEarlyHints({"Link": "</a>"})
            except ResponseSent as error:
                failures.append(type(error))
            res.end()

        answer = Peer(AppSite(app)).ask()  # type: ignore[arg-type]
        self.assertEqual((answer.interim, answer.body), ([], b"a"))
        self.assertEqual(failures, [ValueError, ValueError, ResponseSent])
