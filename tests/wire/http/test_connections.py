"""What an application's options do to its connections."""

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.net.support import statuses
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get, post


class PersistenceTests(AppServedCase):
    """C{keepAlive} and C{keepAliveTimeout}."""

    async def test_kept(self) -> None:
        """A connection has one request after the other, unless the client wants it closed."""
        self.app.use(self.answer)
        client = await self.connect(await self.listen())
        for count in (1, 2, 3):
            client.write(get(b"/%d" % count))
            await client.until(lambda received, n=count: received.count(b"served") == n)
        self.assertFalse(client.closed.called)
        client.write(get(b"/4", b"Connection: close"))
        received = await client.closed
        self.assertEqual(statuses(received), [200] * 4)
        self.assertEqual(received.lower().count(b"connection: close"), 1)

    @long("takes a second or more")
    async def test_idle(self) -> None:
        """
        A connection that idles for C{keepAliveTimeout} is closed; one whose handler works for so
        long is not.
        """
        begun: Deferred[None] = Deferred()
        turn: Deferred[None] = Deferred()

        async def slow(req: Any, res: Any) -> None:
            begun.callback(None)
            await turn
            res.send("slow")

        self.app.get("/slow", slow)
        self.app.use(self.answer)
        port = await self.listen(keepAliveTimeout=1000)
        busy = await self.connect(port)
        # With its first answer the time begins that it may idle.
        busy.write(get(b"/idle"))
        await busy.until(b"served")
        busy.write(get(b"/slow"))
        await begun
        idle = await self.connect(port)
        idle.write(get(b"/idle"))
        self.assertEqual(statuses(await idle.closed), [200])
        turn.callback(None)
        await busy.until(b"slow")


class RepeatedFieldTests(AppServedCase):
    """Fields that a client sends more than once."""

    async def test_repeated(self) -> None:
        """Lists are joined, of other fields the first counts."""
        names = ("accept", "content-type", "user-agent", "authorization", "cookie")
        self.app.get("/", lambda req, res: res.json([req.get(name) for name in names]))
        fields = [b"%b: %d" % (name.encode(), value) for value in (1, 2) for name in names]
        received = await self.exchange(
            await self.listen(), get(b"/", *fields, b"Connection: close")
        )
        self.assertIn(b'["1, 2","1","1","1","1; 2"]', received)


class RuntimeTests(AppServedCase):
    """The threads of a served application."""

    async def test_keywords(self) -> None:
        """C{runtime.run} passes keywords on, whatever their names, as in the test client."""

        async def handle(req: Any, res: Any) -> None:
            run = self.app.runtime.run
            assert await run(dict, function=2, reactor=4) == {"function": 2, "reactor": 4}
            res.send(str(await run(int, "x1", base=36)))

        self.app.get("/", handle)
        received = await self.exchange(await self.listen(), get(b"/", b"Connection: close"))
        self.assertTrue(received.endswith(b"\r\n\r\n1189"), received)


class TimeoutTests(AppServedCase):
    """C{headersTimeout} and C{requestTimeout}."""

    @long("takes a second or more")
    async def test_headers(self) -> None:
        """A head that is not complete in time is 408 and a closed connection."""
        self.app.use(self.answer)
        received = await self.exchange(await self.listen(headersTimeout=200), b"GET / HTTP/1.1\r\n")
        self.assertTrue(self.isRefusal(received, (408,)), received)

    @long("takes a second or more")
    async def test_body(self) -> None:
        """C{headersTimeout} does not hold for the body, however long it takes to come."""
        self.app.use(self.answer)
        port = await self.listen(headersTimeout=1000)
        client = await self.connect(port)
        client.write(get(b"/", b"Content-Length: 9", b"Expect: 100-continue", method=b"POST"))
        await client.until(b"100 Continue")
        # When its time is over so is that of the first, if it were for the body too.
        await (await self.connect(port)).closed
        client.write(b"x" * 9)
        await client.until(b"served")
        self.assertEqual(statuses(client.received), [100, 200])

    @long("takes seconds")
    async def test_stalled(self) -> None:
        """A response whose client reads nothing for C{requestTimeout} is dropped."""
        ended: list[str] = []

        async def endless(req: Any, res: Any) -> None:
            req.on("close", lambda: ended.append("close"))
            while not ended:
                await res.write(b"x" * 65536)

        self.app.get("/", endless)
        client = await self.connect(await self.listen(requestTimeout=400))
        client.pause()
        client.write(get(b"/"))
        await self.turnUntil(lambda: bool(ended))
        client.resume()
        await client.closed


class DisconnectTests(AppServedCase):
    """Clients that go away."""

    async def test_close(self) -> None:
        """The request is told, and who streams to it hears of it where he waits."""
        told: list[str] = []

        async def stream(req: Any, res: Any) -> None:
            req.on("close", lambda: told.append("close"))
            try:
                while True:
                    await res.write(b"tick\n")
                    await deferLater(self.reactor, 0.01)
            finally:
                told.append("stopped")

        self.app.get("/", stream)
        client = await self.connect(await self.listen())
        client.write(get(b"/"))
        await client.until(b"tick")
        client.drop()
        await self.turnUntil(lambda: len(told) == 2)
        self.assertEqual(told, ["close", "stopped"])


class SizeTests(AppServedCase):
    """C{maxRequestBodySize}."""

    async def test_declared(self) -> None:
        """What is declared too long is 413 before a byte of it came, and asked for none."""
        self.app.use(self.answer)
        port = await self.listen(maxRequestBodySize="1kb")
        fields = (b"Content-Length: 1025", b"Expect: 100-continue")
        client = await self.connect(port)
        client.write(get(b"/", *fields, method=b"POST"))
        received = await client.until(b"}")
        self.assertEqual(statuses(received), [413])
        self.assertEqual(
            json.loads(received.partition(b"\r\n\r\n")[2]), {"error": "The body is too large"}
        )
        self.assertEqual(self.served, [])

    async def test_unread(self) -> None:
        """No handler sees such a request, also one that would not look at the body."""
        self.app.all("/", lambda req, res: res.send("unread"))
        port = await self.listen(maxRequestBodySize=10)
        received = await self.exchange(port, post(b"/", b"x" * 11, b"Connection: close"))
        self.assertEqual(statuses(received), [413])

    async def test_edge(self) -> None:
        """What is just as long as it may be is taken, declared or in chunks."""
        self.app.use(self.answer)
        port = await self.listen(maxRequestBodySize="1kb")
        chunked = get(b"/", b"Transfer-Encoding: chunked", b"Connection: close", method=b"POST")
        for wire, status in [
            (post(b"/", b"x" * 1024, b"Connection: close"), 200),
            (chunked + b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n", 200),
            (chunked + b"401\r\n" + b"x" * 1025 + b"\r\n0\r\n\r\n", 413),
        ]:
            self.assertEqual(statuses(await self.exchange(port, wire)), [status])
