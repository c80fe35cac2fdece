"""Calls over HTTP, through sockets and by other people's clients."""

import http.client
import json
import shutil
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue

from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.gateway.transports.http.listener import HTTPTransport
from storagegate.http.application import Application
from tests.support.gateway import makeHost
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.http.support import RawClient, ServedCase, get, post

CHUNKED = b"Transfer-Encoding: chunked"
NDJSON = b"Content-Type: application/x-ndjson"


def chunk(data: bytes) -> bytes:
    """Write a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chat(text: bytes) -> bytes:
    """Write what a chat is sent and answers, as a chunk."""
    return chunk(b'{"text":"%b"}\n' % text)


def answer(text: bytes) -> bytes:
    """Write what it answers."""
    return chunk(b'{"data":{"text":"%b"}}\n' % text)


class GatewayCase(ServedCase):
    """A test with the services of tests on a listener."""

    async def open(self, services: Any = (), **http: Any) -> None:
        """Serve."""
        settings = readOptions(GatewayOptions(), {"http": http})
        host, self.probe = makeHost(self.reactor, services, settings=settings)
        self.app = Application()
        HTTPTransport(host, settings.of("http")).install(self.app)
        self.port: Any = await self.app.listen(0, reactor=self.reactor)
        self.addCleanup(self.app.close, 0)
        self.number = self.port.getHost().port

    async def begin(self, path: bytes, *fields: bytes) -> RawClient:
        """Begin a call with a stream of requests."""
        client = await self.connect(self.port)
        client.write(get(path, CHUNKED, NDJSON, *fields, method=b"POST"))
        return client


class StreamTests(GatewayCase):
    """Streams on the wire."""

    async def test_duplex(self) -> None:
        """Answers go out while requests come in, on one connection."""
        await self.open()
        client = await self.begin(b"/api/Probe/chat")
        for text in (b"a", b"b"):
            client.write(chat(text))
            await client.until(answer(text.upper()))
        client.write(b"0\r\n\r\n")
        received = await client.closed
        self.assertTrue(received.endswith(answer(b"goodbye") + b"0\r\n\r\n"))
        self.assertEqual(self.probe.cancelled, [])

    async def test_cut(self) -> None:
        """An upload that is cut never looks like its end, however it was to be framed."""
        await self.open()
        sized = post(b"/api/Probe/collect", b'{"text":"a"}\n{"text":"b"}\n', NDJSON)[:-13]
        for number, wire in enumerate((None, sized)):
            if wire is None:
                client = await self.begin(b"/api/Probe/collect")
                client.write(chat(b"a"))
            else:
                client = await self.connect(self.port)
                client.write(wire)
            await self.answeredElsewhere()
            client.drop()
            await self.turnUntil(lambda: len(self.probe.cancelled) > number)  # noqa: B023
        self.assertEqual(self.probe.cancelled, ["collect", "collect"])

    async def answeredElsewhere(self) -> None:
        """See another client answered, so that what was sent before has been read."""
        client = await self.connect(self.port)
        client.write(post(b"/api/Probe/echo", b"{}"))
        await client.until(b'{"data":{}}')
        client.drop()

    async def test_broken(self) -> None:
        """One whose framing breaks is refused, and its handler cancelled."""
        await self.open()
        client = await self.begin(b"/api/Probe/collect")
        client.write(chat(b"a"))
        await self.answeredElsewhere()
        client.write(b"nonsense\r\n")
        received = await client.closed
        self.assertTrue(received.startswith(b"HTTP/1.1 400 "), received)
        self.assertEqual(self.probe.cancelled, ["collect"])

    async def test_failsLater(self) -> None:
        """After a failure in the middle the body has its end, and the connection goes on."""
        await self.open()
        client = await self.connect(self.port)
        client.write(post(b"/api/Probe/countAnything", b'{"to":1,"fail":true}'))
        received = await client.until(b"\r\n0\r\n\r\n")
        self.assertIn(b'{"error":"NOT_FOUND","message":"no more numbers"}\n\r\n', received)
        client.write(post(b"/api/Probe/echo", b"{}"))
        await client.until(b'{"data":{}}')

    async def test_gone(self) -> None:
        """Closing the connection cancels, a call that waits and a stream that is silent."""
        await self.open()
        for path, body in (
            (b"/api/Probe/slow", b"{}"),
            (b"/api/Probe/countAnything", b'{"to":1,"hang":true}'),
        ):
            client = await self.connect(self.port)
            client.write(post(path, body))
            if b"count" in path:
                await client.until(b'{"number":0}')
            else:
                await self.turnUntil(lambda: "slow" in self.probe.begun)
            client.drop()
        await self.turnUntil(lambda: len(self.probe.cancelled) == 2)
        self.assertEqual(self.probe.cancelled, ["slow", "count"])

    async def test_slowReader(self) -> None:
        """A client that does not read stops its producer and nobody else's."""
        made: list[int] = []

        async def produce(request: Any, context: Any) -> Any:
            for number in range(1_000):
                made.append(number)
                yield "x" * 64_000

        await self.open([{"name": "Large", "methods": {"produce": produce}}])
        client = await self.connect(self.port)
        client.pause()
        client.write(post(b"/api/Large/produce", b"{}"))
        await self.turnUntil(lambda: len(made) > 0)
        before = -1
        while before != len(made):
            before = len(made)
            for _ in range(20):
                await self.answeredElsewhere()
        # What the kernel takes for both ends, and no more.
        self.assertLess(len(made), 500)
        read: list[int] = []
        client.dataReceived = lambda data: read.append(len(data))  # type: ignore[method-assign]
        client.resume()
        await self.turnUntil(lambda: sum(read) > 64_000_000)
        self.assertEqual(len(made), 1_000)

    async def test_slowHandler(self) -> None:
        """A handler that does not take requests stops the client that sends them."""

        async def lazy(requests: Any, context: Any) -> Any:
            async for _ in requests:
                await Deferred()

        method = {"handler": lazy, "streaming": "client"}
        await self.open([{"name": "Lazy", "methods": {"lazy": method}}])
        client = await self.begin(b"/api/Lazy/lazy")
        transport: Any = client.transport
        piece = chat(b"x" * 60_000)
        sent = 0
        while sent < 64_000_000 and not transport.dataBuffer and not transport._tempDataBuffer:
            client.write(piece)
            sent += len(piece)
            await self.answeredElsewhere()
        self.assertLess(sent, 64_000_000)

    @long("takes seconds")
    async def test_expect(self) -> None:
        """A client that waits for 100 Continue gets it when its requests are wanted."""
        await self.open()
        client = await self.begin(b"/api/Probe/chat", b"Expect: 100-continue")
        await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.write(chat(b"a") + b"0\r\n\r\n")
        self.assertIn(answer(b"A"), await client.closed)

    async def test_refusedEarly(self) -> None:
        """What is refused by its head is refused before its body comes."""
        await self.open(maxRequestBodySize=10)
        client = await self.connect(self.port)
        fields = (b"Content-Length: 11", b"Expect: 100-continue")
        client.write(get(b"/api/Probe/echo", *fields, method=b"POST"))
        received = await client.closed
        self.assertTrue(received.startswith(b"HTTP/1.1 413 "), received)
        self.assertIn(b'"PAYLOAD_TOO_LARGE"', received)

    async def test_stop(self) -> None:
        """At a stop calls are finished, and streams without an end cut at the end of the grace."""
        await self.open()
        endless = await self.connect(self.port)
        endless.write(post(b"/api/Probe/countAnything", b'{"to":1,"hang":true}'))
        await endless.until(b'{"number":0}')
        short = await self.connect(self.port)
        short.write(post(b"/api/Probe/slow", b'{"seconds":0.1}'))
        await self.turnUntil(lambda: "slow" in self.probe.begun)
        await self.app.close(500)
        self.assertIn(b'{"data":{"seconds":0.1}}', await short.closed)
        self.assertFalse((await endless.closed).endswith(b"0\r\n\r\n"))
        self.assertEqual(self.probe.cancelled, ["count"])


class ClientTests(GatewayCase):
    """Other people's clients."""

    async def curl(self, path: str, *words: str) -> str:
        """Run curl, and give what it prints."""
        words = ("--silent", "--show-error", "--max-time", "45", *words)
        program, url = shutil.which("curl") or "curl", f"http://127.0.0.1:{self.number}{path}"
        out, err, code = await getProcessOutputAndValue(program, [*words, url])
        self.assertEqual((code, err), (0, b""))
        printed: str = out.decode()
        return printed

    @needs("curl")
    async def test_curl(self) -> None:
        """curl calls, reads lines and events, sends lines, and sees errors."""
        await self.open(routes={"GET /numbers/:to": "Probe.count"})
        asJSON = ("-H", "Content-Type: application/json")
        echoed = await self.curl("/api/Probe/echo", *asJSON, "-d", '{"a":1}')
        self.assertEqual(json.loads(echoed), {"data": {"a": 1}})
        counted = await self.curl("/api/Probe/count", "-N", *asJSON, "-d", '{"to":2}')
        self.assertEqual(len(counted.splitlines()), 2)
        events = await self.curl("/api/numbers/1", "-N", "-H", "Accept: text/event-stream")
        self.assertEqual(events, 'data: {"number":0}\n\n')
        lines = '{"text":"a"}\n{"text":"b"}\n'
        asLines = ("-H", NDJSON.decode())
        collected = await self.curl("/api/Probe/collect", *asLines, "--data-binary", lines)
        self.assertEqual(json.loads(collected), {"data": {"texts": ["a", "b"]}})
        chunked = (*asLines, "-H", CHUNKED.decode(), "--data-binary", lines)
        chatted = await self.curl("/api/Probe/chat", *chunked)
        self.assertEqual(len(chatted.splitlines()), 3)
        refused = await self.curl("/api/Probe/echo", "-d", "a=1", "-w", " %{http_code}")
        self.assertEqual(refused[-4:], " 400")
        untyped = await self.curl("/api/Probe/echo", "-d", '{"a":1}')
        self.assertEqual(json.loads(untyped), {"data": {"a": 1}})

    async def test_standardClient(self) -> None:
        """Python's own client keeps its connection over results, streams and errors."""
        await self.open()

        def calls() -> list[Any]:
            connection = http.client.HTTPConnection("127.0.0.1", self.number, timeout=45)
            answers: list[Any] = []
            for method, body in (
                ("echo", b'{"a":1}'),
                ("countAnything", b'{"to":2,"fail":true}'),
                ("fail", b'{"code":"X","statusCode":409}'),
                ("echo", b""),
            ):
                connection.request("POST", f"/api/Probe/{method}", body)
                response = connection.getresponse()
                answers.append((response.status, response.read()))
            connection.request("POST", "/api/Probe/chat", iter([b'{"text":"a"}\n'] * 3))
            response = connection.getresponse()
            answers.append((response.status, response.read().count(b"\n")))
            connection.close()
            return answers

        answers = await deferToThread(calls)
        self.assertEqual([status for status, _ in answers], [200, 200, 409, 200, 200])
        self.assertEqual(answers[1][1].count(b"\n"), 3)
        self.assertEqual(answers[-1][1], 4)

    async def test_address(self) -> None:
        """A handler knows where its client is, the port included."""
        seen: list[Any] = []

        async def look(request: Any, context: Any) -> None:
            seen.append(context.client)

        await self.open([{"name": "Look", "methods": {"look": look}}])
        client = await self.connect(self.port)
        client.write(post(b"/api/Look/look", b""))
        await client.until(b'{"data":null}')
        transport: Any = client.transport
        port = transport.getHost().port
        self.assertEqual((seen[0].address, seen[0].port), ("127.0.0.1", port))
        self.assertEqual(seen[0].id, f"127.0.0.1:{port}")
