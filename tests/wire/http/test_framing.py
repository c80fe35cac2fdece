"""Requests that are none, and clients that take their time, against an application."""

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.net.support import statuses
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.corpus import CORPUS
from tests.wire.http.replaying import SMUGGLED, Cut, ThreeWays
from tests.wire.http.support import get

_PIPELINED = 10_000


class CorpusTests(ThreeWays, AppServedCase):
    """The corpus of what no request may look like."""

    async def replay(self, cut: Cut) -> None:
        """Refuse each in the application's shape, and let a second client notice nothing."""
        self.app.use(self.answer)
        port = await self.listen()
        second = await self.connect(port)
        wrong: list[str] = []
        for case in CORPUS:
            received = await self.exchange(port, *cut(case.wire))
            if not self.isRefusal(received, case.codes):
                wrong.append(f"{case.name}: {received!r}")
            await self.assertUnharmed(second)
        self.assertEqual(wrong, [])
        self.assertEqual(self.served, [])
        # And nothing in the log: trial fails a test that has logged an error.


class TargetTests(AppServedCase):
    """Targets that say more than a path."""

    async def test_absoluteForm(self) -> None:
        """The authority of an absolute target takes the place of Host (RFC 9112 section 3.2.2)."""
        hosts: list[tuple[str, str]] = []

        def look(req: object, res: object) -> None:
            hosts.append((req.host, req.path))  # type: ignore[attr-defined]
            res.end()  # type: ignore[attr-defined]

        self.app.use(look)
        port = await self.listen()
        client = await self.connect(port)
        client.write(b"GET http://evil.example:81/a?b HTTP/1.1\r\nHost: good.example\r\n\r\n")
        await client.until(b"\r\n\r\n")
        self.assertEqual(hosts, [("evil.example:81", "/a")])

    async def test_methodsOfProxies(self) -> None:
        """CONNECT and TRACE reach no handler, not even one for all methods."""
        self.app.all("/*", self.answer)
        self.app.use(self.answer)
        port = await self.listen()
        for line in (b"CONNECT x:1", b"CONNECT /", b"TRACE /", b"TRACE *"):
            received = await self.exchange(port, line + b" HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED)
            self.assertTrue(self.isRefusal(received, (405, 400)), received)
        self.assertEqual(self.served, [])


class PatienceTests(AppServedCase):
    """Clients that send too much at once, or too little."""

    async def test_pipelined(self) -> None:
        """Ten thousand requests in a row are answered in order; a second client gets its turn."""
        order: list[int] = []

        def answer(req: object, res: object) -> None:
            order.append(int(req.params["number"]))  # type: ignore[attr-defined]
            res.send(str(order[-1]))  # type: ignore[attr-defined]

        self.app.get("/count/:number", answer)
        self.app.use(self.answer)
        port = await self.listen()
        second = await self.connect(port)
        client = await self.connect(port)
        client.write(b"".join(get(b"/count/%d" % number) for number in range(_PIPELINED)))
        await client.until(b"HTTP/1.1 200 OK")
        await self.assertUnharmed(second)
        self.assertLess(len(order), _PIPELINED)
        await client.until(lambda received: received.count(b"HTTP/1.1 200 OK") == _PIPELINED)
        await client.until(lambda received: received.endswith(b"%d" % (_PIPELINED - 1)))
        self.assertEqual(order, list(range(_PIPELINED)))

    @long("takes a second or more")
    async def test_slowHead(self) -> None:
        """A head that does not come to its end is 408, however steadily it comes."""
        self.app.use(self.answer)
        port = await self.listen(headersTimeout=500)
        second = await self.connect(port)
        # Until its first request it would be one more head that does not come.
        await self.assertUnharmed(second)
        client = await self.connect(port)
        client.write(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        while not client.closed.called:
            client.write(b"a")
            await deferLater(self.reactor, 0.1)
            await self.assertUnharmed(second)
        self.assertTrue(self.isRefusal(client.received, (408,)), client.received)
        self.assertEqual(self.served, [])

    @long("takes seconds")
    async def test_slowBody(self) -> None:
        """A body that stops coming is 408; its handler gets none of it."""
        self.app.use(self.answer)
        port = await self.listen(requestTimeout=500)
        for fields, part in (
            (b"Content-Length: 10", b"abc"),
            (b"Transfer-Encoding: chunked", b"5\r\nabc"),
            (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n"),
        ):
            client = await self.connect(port)
            client.write(get(b"/", fields, method=b"POST") + part)
            received = await client.closed
            self.assertTrue(self.isRefusal(received, (408,)), received)
        self.assertEqual(self.served, [])

    @long("takes seconds")
    async def test_lateAnswer(self) -> None:
        """A request that no handler answers is 503 in the end, as JSON too."""
        self.app.get("/never", lambda req, res: Deferred())
        port = await self.listen(requestTimeout=500)
        received = await self.exchange(port, get(b"/never"))
        self.assertEqual(statuses(received), [503])
        self.assertIn(b'{"error":', received)
