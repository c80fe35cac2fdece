"""Stock Twisted resources in an application."""

import gzip
from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPullProducer
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from twisted.web.static import Data, File
from zope.interface import implementer

from storagegate import server
from storagegate.http import Router, compression
from storagegate.http.testing import Client
from tests.http.fetching import pieces


class Showing(Resource):
    """A resource that shows where it is."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        """Show it."""
        return repr((request.prepath, request.postpath, request.content.read())).encode()


class ResourceTests(SynchronousTestCase):
    """Resources at paths of an application."""

    def setUp(self) -> None:
        """Make the application and its client."""
        self.app = server.http()
        self.client = Client(self.app)

    def test_mounted(self) -> None:
        """A resource answers its path and everything below, and sees both parts of the path."""
        self.app.withRoutes({"/a%20b/:x": Showing()})
        self.app.use("/used", Showing())
        self.app.get("/used/later", lambda req, res: res.end("not reached"))
        for path, seen in (
            ("/a%20b/c", ([b"a b", b"c"], [])),
            ("/a%20b/c/", ([b"a b", b"c"], [b""])),
            ("/a%20b/c/d%2Fe/f", ([b"a b", b"c"], [b"d/e", b"f"])),
            ("/used/later", ([b"used"], [b"later"])),
        ):
            response = self.client.post(path, body=b"body")
            self.assertEqual(response.text, repr((*seen, b"body")))
        self.assertEqual(self.client.get("/usedup").status, 404)

    def test_root(self) -> None:
        """A resource may be mounted at the root, in place of a 404."""
        root = Resource()
        root.putChild(b"d", Data(b"hello", "text/plain"))
        self.app.get("/mine", lambda req, res: res.end("mine"))
        self.app.use(root)
        self.assertEqual(self.client.get("/mine").text, "mine")
        response = self.client.get("/d")
        self.assertEqual(
            (response.text, response.headers["content-type"]),
            ("hello", "text/plain; charset=utf-8"),
        )
        self.assertEqual(self.client.get("/nope").status, 404)
        self.assertEqual(self.client.head("/d").headers["content-length"], "5")

    def test_nested(self) -> None:
        """In nested routers all that is before counts to the prefix."""
        router = Router()
        router.use("/c", Showing())
        self.app.use("/a/b", router)
        self.assertEqual(self.client.get("/a/b/c/d").text, repr(([b"a", b"b", b"c"], [b"d"], b"")))

    def test_throughTheApplication(self) -> None:
        """What middleware sets and waits for holds for a resource's response, too."""
        finished: list[int] = []

        def middleware(req: Any, res: Any, next: Any) -> Any:
            res.header("X-Mine", "1").vary("Origin").cookie("m", "1")
            res.beforeHead(lambda: res.header("X-Late", str(res.statusCode)))
            res.on("finish", lambda: finished.append(res.statusCode))
            return next()

        class Child(Resource):
            isLeaf = True

            def render(self, request: Any) -> bytes:
                request.setResponseCode(202)
                request.setHeader(b"Vary", b"Accept")
                request.addCookie(b"r", b"2")
                return b"x"

        self.app.use(middleware)
        self.app.use("/r", Child())
        response = self.client.get("/r")
        self.assertEqual((response.status, response.body), (202, b"x"))
        self.assertEqual((response.headers["x-mine"], response.headers["x-late"]), ("1", "202"))
        self.assertEqual(response.headers["vary"], "Origin, Accept")
        self.assertEqual(response.headers.getSetCookie(), ["m=1; Path=/", "r=2"])
        self.assertEqual(finished, [202])

    def test_later(self) -> None:
        """A resource may answer in pieces, later, at the pace of the client."""
        requests: list[Any] = []
        self.app.use("/l", Later(requests))
        call = self.client.start("GET", "/l")
        requests[0].write(b"one")
        self.assertEqual(call.received, b"one")
        requests[0].write(b"two")
        requests[0].finish()
        self.assertEqual(call.response.text, "onetwo")

    def test_producer(self) -> None:
        """A resource that sends by a producer is asked for as much as the client reads."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"x" * 1_000_000)
        self.app.use("/f", File(path))
        self.assertEqual(len(self.client.get("/f").body), 1_000_000)
        call = self.client.start("GET", "/f", reading=False)
        self.client.flush()
        call.reading = True
        self.assertLess(len(call.received), 500_000)
        call.disconnect()

    def test_compressed(self) -> None:
        """A producer is asked for no more while a thread still compresses what it sent."""
        waiting: list[Callable[[], None]] = []

        def run(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            done: Deferred[Any] = Deferred()
            waiting.append(lambda: done.callback(function(*arguments)))
            return done

        producer = Counting(50)
        self.app.use(compression())
        self.app.use("/p", producer)
        self.app.runtime = evolve(self.app.runtime, run=run)
        call = self.client.start("GET", "/p", headers={"accept-encoding": "gzip"})
        for _ in range(100):
            self.client.flush()
        self.assertLess(producer.asked, 5)
        while waiting:
            waiting.pop()()
            self.client.flush()
        self.assertEqual(gzip.decompress(call.response.body), producer.piece * 50)

    def test_lost(self) -> None:
        """A resource hears that its client has gone."""
        requests: list[Any] = []
        lost: list[Any] = []
        self.app.use("/l", Later(requests))
        call = self.client.start("GET", "/l")
        requests[0].notifyFinish().addErrback(lost.append)
        call.disconnect()
        self.assertEqual(len(lost), 1)

    def test_tooLarge(self) -> None:
        """A body over the application's limit is 413."""
        self.app.withOptions(maxRequestBodySize=10)
        client = Client(self.app)
        self.app.use("/r", Showing())
        body = pieces(b"x" * 8, b"x" * 8)
        self.assertEqual(client.post("/r", body=body).status, 413)

    def test_broken(self) -> None:
        """A resource that raises is 500, and logged."""

        class Broken(Resource):
            isLeaf = True

            def render(self, request: Any) -> bytes:
                raise KeyError("boom")

        self.app.use("/r", Broken())
        self.assertEqual(self.client.get("/r").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_needsATransport(self) -> None:
        """One that takes over the connection cannot do so without a listener, and is told why."""

        class Taking(Resource):
            isLeaf = True

            def render(self, request: Any) -> int:
                request.channel.transport = None
                return NOT_DONE_YET

        self.app.use("/r", Taking())
        self.assertEqual(self.client.get("/r").status, 500)
        [failure] = self.flushLoggedErrors(RuntimeError)
        self.assertIn("needs a listener", str(failure.value))


@implementer(IPullProducer)
class Counting(Resource):
    """
    A resource that sends text by a producer.

    @ivar asked: How often it was asked for more.
    """

    isLeaf = True
    piece = b"storage gate\n" * 5_000

    def __init__(self, count: int) -> None:
        super().__init__()
        self.asked = 0
        self._count = count

    def render(self, request: Any) -> int:
        """Begin."""
        self._request = request
        request.setHeader(b"content-type", b"text/plain")
        request.registerProducer(self, False)
        return NOT_DONE_YET

    def resumeProducing(self) -> None:
        """Send a piece."""
        self.asked += 1
        self._request.write(self.piece)
        if self.asked == self._count:
            self._request.unregisterProducer()
            self._request.finish()

    def stopProducing(self) -> None:
        """Send no more."""


class Later(Resource):
    """A resource that leaves answering to the test."""

    isLeaf = True

    def __init__(self, requests: list[Any]) -> None:
        super().__init__()
        self._requests = requests

    def render(self, request: Any) -> int:
        """Take note of the request."""
        self._requests.append(request)
        return NOT_DONE_YET
