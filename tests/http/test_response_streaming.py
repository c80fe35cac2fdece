"""Bodies in pieces, both ways."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import HTTPError, compression
from storagegate.http.testing import Client
from storagegate.net.http.interfaces import ClientLost, HTTPLimits
from storagegate.net.http.site import Site


class WriteTests(SynchronousTestCase):
    """C{res.write}."""

    def setUp(self) -> None:
        """Make an application."""
        self.app = server.http()
        self.client = Client(self.app)
        self.seen: list[Any] = []

    def test_pieces(self) -> None:
        """Pieces of text and bytes arrive in their order, without a length or an ETag."""

        async def stream(req: Any, res: Any) -> None:
            res.type("text/plain")
            await res.write("é")
            await res.write(b"b")
            res.end("c")

        self.app.get("/", stream)
        response = self.client.get("/")
        self.assertEqual(response.body, "ébc".encode())
        for name in ("content-length", "etag"):
            self.assertNotIn(name, response.headers)

    def test_plain(self) -> None:
        """A plain function may write without waiting."""
        self.app.get("/", lambda req, res: [res.write("a"), res.write("b"), res.end()])
        self.assertEqual(self.client.get("/").text, "ab")

    def test_atOnce(self) -> None:
        """What is written arrives at once, event by event, also under compression."""
        self.app.use(compression())

        async def events(req: Any, res: Any) -> None:
            res.type("text/event-stream")
            for number in range(3):
                await res.write(f"data: {number}\n\n")
                await deferLater(self.client.clock, 1, lambda: None)
            res.end()

        self.app.get("/", events)
        for headers in ({}, {"Accept-Encoding": "gzip"}):
            call = self.client.start("GET", "/", headers=headers)
            sizes = [len(call.received)]
            for _ in range(2):
                self.client.advance(1)
                sizes.append(len(call.received))
            self.assertEqual(sorted(set(sizes)), sizes, headers)
            self.assertGreater(sizes[0], 0)
            self.client.advance(1)
            self.assertTrue(call.done)
        self.assertEqual(call.response.headers.get("content-encoding"), "gzip")

    def test_backPressure(self) -> None:
        """A client that does not read makes the writer wait, after a bounded number of bytes."""
        written = [0]

        async def endless(req: Any, res: Any) -> None:
            while written[0] < 10_000_000:
                await res.write(bytes(10_000))
                written[0] += 10_000
            res.end()

        self.app.get("/", endless)
        call = self.client.start("GET", "/", reading=False)
        self.client.advance(10)
        stalled = written[0]
        self.assertLess(stalled, 1_000_000)
        self.client.advance(10)
        self.assertEqual(written[0], stalled)
        call.reading = True
        self.client.advance(1)
        self.assertEqual(len(call.response.body), 10_000_000)

    def test_fairness(self) -> None:
        """A writer whose client takes everything lets others have their turn all the same."""

        async def endless(req: Any, res: Any) -> None:
            for _ in range(200):
                await res.write(bytes(50_000))
            res.end()

        self.app.get("/", endless)
        site = Site(self.app.resource, HTTPLimits(), self.client.clock)
        channel, transport = site.buildProtocol(None), StringTransport()
        channel.makeConnection(transport)
        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertLess(len(transport.value()), 1_000_000)
        self.client.flush()
        self.assertGreater(len(transport.value()), 10_000_000)
        channel.connectionLost()

    def test_clientLost(self) -> None:
        """Waiting for a client that has gone raises; writing without waiting does nothing."""

        async def endless(req: Any, res: Any) -> None:
            req.on("close", lambda: self.seen.append("close"))
            try:
                while True:
                    await res.write(bytes(10_000))
                    await deferLater(self.client.clock, 1, lambda: None)
            except ClientLost:
                self.seen.append("lost")
                res.write(b"nobody")
                res.end()
                raise

        self.app.get("/", endless)
        call = self.client.start("GET", "/")
        self.client.advance(1)
        call.disconnect()
        self.assertEqual(self.seen, ["close"])
        self.client.advance(1)
        self.assertEqual(self.seen, ["close", "lost"])

    def test_waitingClientLost(self) -> None:
        """A writer that waits for its client goes on when that has gone, and finds out."""

        async def endless(req: Any, res: Any) -> None:
            try:
                while True:
                    await res.write(bytes(10_000))
            finally:
                self.seen.append("ended")

        self.app.get("/", endless)
        call = self.client.start("GET", "/", reading=False)
        self.assertEqual(self.seen, [])
        call.disconnect()
        self.client.advance(1)
        self.assertEqual(self.seen, ["ended"])

    def test_afterEnd(self) -> None:
        """Nothing can be written behind the end, nor sent whole behind a piece."""

        def handler(req: Any, res: Any) -> None:
            res.write("a")
            self.assertRaises(RuntimeError, res.send, "whole")
            res.end()
            self.assertRaises(RuntimeError, res.write, "b")
            self.assertRaises(RuntimeError, res.end)

        self.app.get("/", handler)
        self.assertEqual(self.client.get("/").text, "a")

    def test_notAPiece(self) -> None:
        """A number is no piece of a body: it would become as many NULs."""

        def handler(req: Any, res: Any) -> None:
            for wrong in (5, [104, 105], {"a": 1}, None, 1.5):
                self.assertRaises(TypeError, res.write, wrong)
            self.assertRaises(TypeError, res.end, 5)
            res.write(memoryview(b"a"))
            res.end(bytearray(b"b"))

        self.app.get("/", handler)
        self.assertEqual(self.client.get("/").text, "ab")

    def test_finish(self) -> None:
        """C{finish} comes once, when the response has been sent; not for a lost client."""

        def listen(req: Any, res: Any, next: Any) -> Any:
            started = self.client.clock.seconds()
            res.on("finish", lambda: self.seen.append(self.client.clock.seconds() - started))
            res.on("close", lambda: self.seen.append("close"))
            return next()

        async def slow(req: Any, res: Any) -> None:
            await deferLater(self.client.clock, 2, lambda: None)
            await res.write("x")
            res.end()

        self.app.use(listen)
        self.app.get("/whole", lambda req, res: res.send("x"))
        self.app.get("/slow", slow)
        self.client.get("/whole")
        self.client.start("GET", "/slow")
        self.client.advance(2)
        self.assertEqual(self.seen, [0, 2])
        self.client.start("GET", "/slow").disconnect()
        self.client.advance(3)
        self.assertEqual(self.seen, [0, 2, "close"])

    def test_listenerFails(self) -> None:
        """A listener that fails is logged, and hurts neither the response nor the others."""

        def handler(req: Any, res: Any) -> None:
            res.on("finish", lambda: 1 / 0).on("finish", lambda: self.seen.append("second"))
            self.assertRaises(ValueError, res.on, "data", print)
            res.send("x")

        self.app.get("/", handler)
        self.assertEqual(self.client.get("/").text, "x")
        self.assertEqual(self.seen, ["second"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class ReadTests(SynchronousTestCase):
    """C{async for chunk in req}."""

    def test_backPressure(self) -> None:
        """A body is taken no faster than its handler reads it."""
        app = server.http()
        client = Client(app)
        gates = [Deferred() for _ in range(3)]  # type: ignore[var-annotated]
        sent: list[int] = []
        read: list[int] = []

        @app.post("/")
        async def slow(req: Any, res: Any) -> None:
            async for chunk in req:
                read.append(len(chunk))
                if len(read) <= 3:
                    await gates[len(read) - 1]
            res.json(sum(read))

        async def body() -> Any:
            for number in range(100):
                sent.append(number)
                yield bytes(50_000)

        call = client.start("POST", "/", body=body())
        client.flush()
        self.assertLess(len(sent), 10)
        for gate in gates:
            gate.callback(None)
        client.flush()
        self.assertEqual(call.response.json(), 5_000_000)

    def test_lost(self) -> None:
        """A client that goes away in the middle of its body ends the reading, without a log."""
        app = server.http()
        client = Client(app)
        seen: list[str] = []

        @app.post("/")
        async def read(req: Any, res: Any) -> None:
            try:
                async for _ in req:
                    seen.append("chunk")
            finally:
                seen.append("ended")

        async def body() -> Any:
            yield b"x"
            await Deferred()

        call = client.start("POST", "/", body=body())
        client.flush()
        self.assertEqual(seen, ["chunk"])
        call.disconnect()
        client.flush()
        self.assertEqual(seen, ["chunk", "ended"])

    def test_errorWhileReading(self) -> None:
        """An error in the middle of the body is answered, and the rest is not waited for."""
        app = server.http()
        client = Client(app)

        @app.post("/")
        async def read(req: Any, res: Any) -> None:
            async for _ in req:
                raise HTTPError(422, "no")

        async def body() -> Any:
            yield b"x"
            await Deferred()

        call = client.start("POST", "/", body=body())
        client.flush()
        self.assertEqual(call.response.status, 422)
