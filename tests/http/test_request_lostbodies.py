"""Handlers that read a body while something else has responded."""

import json
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.middleware import bodyparser
from storagegate.http.middleware.upload import upload
from storagegate.http.resource import AppResource
from storagegate.net.http.interfaces import BodyLost, HTTPLimits
from storagegate.net.http.site import Site
from tests.net.support import Connection, head, statuses

FORM = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + b"z" * 1000


class LostBodyTests(SynchronousTestCase):
    """Each way to read a body ends when the response is sent, and when the connection is lost."""

    def setUp(self) -> None:
        """Make an application with a timer's 503 before its readers."""
        self.app = server.http()
        self.late: list[Any] = []
        self.ends: list[Any] = []
        self.app.use(self.watch)
        self.site = Site(AppResource(self.app), HTTPLimits(), Clock())

    def watch(self, req: Any, res: Any, next: Any) -> Any:
        """Keep the response for the timer."""
        self.late.append(res)
        return next()

    def post(self, kind: bytes, body: bytes) -> Connection:
        """Send a head and a part of its body."""
        connection = Connection(self.site)
        fields = [b"Content-Type: " + kind, b"Content-Length: %d" % (len(body) + 10)]
        for piece in (head(*fields, line=b"POST / HTTP/1.1"), body):
            connection.channel.dataReceived(piece)
        return connection

    def respondLate(self) -> None:
        """Let the timer respond to all."""
        for res in self.late:
            res.status(503).send("late")
        self.late.clear()

    def noteEnd(self, middleware: Any) -> Any:
        """Run a middleware inside of one that notes its end."""

        async def noted(req: Any, res: Any, next: Any) -> None:
            try:
                await middleware(req, res, next)
            finally:
                self.ends.append(type(middleware).__name__)

        return noted

    def test_semaphore(self) -> None:
        """Four requests that a timer has answered leave a semaphore of four to the fifth."""
        four = DeferredSemaphore(4)
        parse = bodyparser.json()

        async def limited(req: Any, res: Any, next: Any) -> None:
            await four.acquire()
            try:
                await parse(req, res, next)
            finally:
                four.release()

        self.app.post("/", limited, lambda req, res: res.json(req.body))
        for _ in range(4):
            connection = self.post(b"application/json", b'{"a":')
            self.respondLate()
            self.assertEqual(statuses(connection.received()), [503])
        whole = json.dumps({"a": 1}).encode()
        fields = [b"Content-Type: application/json", b"Content-Length: %d" % len(whole)]
        answer = Connection(self.site).send(head(*fields, line=b"POST / HTTP/1.1"), whole)
        self.assertEqual(statuses(answer), [200])

    def test_readers(self) -> None:
        """Parsers, uploads and loops end at a response, and at the loss of the connection."""

        async def loop(req: Any, res: Any, next: Any) -> None:
            async for _ in req:
                pass

        readers: list[tuple[bytes, bytes, Any]] = [
            (b"application/json", b'{"a":', bodyparser.json()),
            (b"application/x-www-form-urlencoded", b"a=", bodyparser.urlencoded()),
            (b"application/octet-stream", b"a", bodyparser.raw()),
            (b"text/plain", b"a", bodyparser.text()),
            (b"multipart/form-data; boundary=x", FORM, upload().any()),
            (b"text/plain", b"a", loop),
        ]
        for answers in (True, False):
            for kind, body, reader in readers:
                app = self.app = server.http()
                app.use(self.watch)
                self.site.resource = AppResource(app)
                app.post("/", self.noteEnd(reader))
                self.ends.clear()
                connection = self.post(kind, body)
                self.assertEqual(self.ends, [], kind)
                if answers:
                    self.respondLate()
                else:
                    connection.lose()
                self.assertEqual(len(self.ends), 1, (kind, answers))
                self.late.clear()

    def test_afterResponse(self) -> None:
        """A handler that has responded reads on to an error, which is not logged."""

        async def handler(req: Any, res: Any) -> None:
            res.send("early")
            try:
                async for _ in req:
                    pass
            except BodyLost:
                self.ends.append("lost")
                raise

        self.app.post("/", handler)
        connection = self.post(b"text/plain", b"a")
        self.assertEqual(self.ends, ["lost"])
        self.assertEqual(statuses(connection.received()), [200])

    def test_filter(self) -> None:
        """An upload whose filter never decides is let go with its bytes, at both ends."""

        async def decide(req: Any, file: Any, cb: Any) -> bool:
            await Deferred()
            return True

        self.app.post("/", self.noteEnd(upload(fileFilter=decide).any()))
        before = self.site.budget.total
        for number, end in enumerate((self.respondLate, None), 1):
            connection = self.post(b"multipart/form-data; boundary=x", FORM)
            (end or connection.lose)()
            connection.lose()
            self.assertEqual(len(self.ends), number)
            self.assertEqual(self.site.budget.total, before)
            self.late.clear()
