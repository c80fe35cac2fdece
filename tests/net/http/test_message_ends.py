"""What is known of a response when it has ended."""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.message import ChannelRequest
from tests.net.support import TestSite, head


class EndTests(SynchronousTestCase):
    """onEnd, and what can be counted then."""

    def setUp(self) -> None:
        """Begin with no ends."""
        self.ends: list[tuple[int, int, int, bool]] = []

    def site(self, handle: Any) -> TestSite:
        """Make a site that notes how each response ends."""

        async def noted(request: ChannelRequest) -> None:
            def end() -> None:
                facts = (request.status, request.body.taken, request.bodySent, request.finished)
                self.ends.append(facts)

            request.onEnd(end)
            await handle(request)

        return TestSite(noted)

    def test_whole(self) -> None:
        """A whole response has ended when it was given; both bodies count."""

        async def handle(request: ChannelRequest) -> None:
            await request.body.read(10)
            request.respond(201, [], b"hello")
            self.assertEqual(self.ends, [(201, 3, 5, True)])

        self.site(handle).connect().send(head(b"Content-Length: 3"), b"abc")
        self.assertEqual(len(self.ends), 1)

    def test_unsent(self) -> None:
        """What is not sent does not count: the body in answer to HEAD, and that of a 304."""

        async def handle(request: ChannelRequest) -> None:
            if request.path == b"/parts":
                request.begin(200, [], 4)
                request.send(b"four")
                request.finish()
            else:
                request.respond(304 if request.path == b"/304" else 200, [], b"hello")

        connection = self.site(handle).connect()
        for line in (b"HEAD /", b"GET /304", b"HEAD /parts"):
            connection.send(head(line=line + b" HTTP/1.1"))
        self.assertEqual([end[:3] for end in self.ends], [(200, 0, 0), (304, 0, 0), (200, 0, 0)])

    def test_parts(self) -> None:
        """A response in parts ends with its last, and chunks count without their framing."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            request.send(b"12345")
            request.send(b"678")
            self.assertEqual(self.ends, [])
            request.finish()

        self.site(handle).connect().send(head())
        self.assertEqual(self.ends, [(200, 0, 8, True)])

    def test_written(self) -> None:
        """A response whose fields were written before is counted like any other."""

        async def handle(request: ChannelRequest) -> None:
            request.respondWith(200, b"X-A: b\r\n", b"hello")

        self.site(handle).connect().send(head())
        self.assertEqual(self.ends, [(200, 0, 5, True)])

    def test_lost(self) -> None:
        """A client that goes ends it too, once: with what was sent until then."""
        waiting: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], 100)
            request.send(b"12345")
            await waiting

        connection = self.site(handle).connect()
        connection.send(head())
        self.assertEqual(self.ends, [])
        connection.lose()
        self.assertEqual(self.ends, [(200, 0, 5, False)])

    def test_lostUnanswered(self) -> None:
        """Before it has begun there is no status."""
        waiting: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            await waiting

        connection = self.site(handle).connect()
        connection.send(head())
        connection.lose()
        self.assertEqual(self.ends, [(0, 0, 0, False)])

    def test_file(self) -> None:
        """A file counts as far as it was sent."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"x" * 3000)
        fd = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        reads: list[Deferred[bytes]] = []

        def run(function: Any, *arguments: Any) -> Deferred[bytes]:
            reads.append(Deferred())
            return reads[-1]

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], 6000)
            await request.sendFile(fd, 0, 3000, run)
            await request.sendFile(fd, 0, 3000, run)

        connection = self.site(handle).connect()
        connection.send(head())
        reads[0].callback(b"x" * 3000)
        connection.lose()
        self.assertEqual(self.ends, [(200, 0, 3000, False)])

    def test_several(self) -> None:
        """Everybody who asked is called, in order."""
        called: list[str] = []

        async def handle(request: ChannelRequest) -> None:
            request.onEnd(lambda: called.append("first"))
            request.onEnd(lambda: called.append("second"))
            request.respond(200, [], b"")

        self.site(handle).connect().send(head())
        self.assertEqual(called, ["first", "second"])
