"""Ten thousand messages that no honest client sends: none of them costs a traceback in the log."""

import contextlib
import json
import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from zope.interface import implementer

from storagegate import server
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.http.middleware.bodyparser import json as jsonBody
from storagegate.http.middleware.bodyparser import urlencoded
from storagegate.http.middleware.upload import upload
from tests.support.selection import long
from tests.wire.http.corpus import CORPUS
from tests.wire.http.h2corpus import H2_CORPUS
from tests.wire.http.h2replaying import HELLO
from tests.wire.s3.fixture import makeDaemon, ownDirectory

ROUNDS = 1250
"""Of each of the eight kinds of listeners."""

INTERVAL_SECONDS = 10
"""Between two lines of one kind."""

RESET = struct.pack("ii", 1, 0)
"""C{SO_LINGER}: a client that goes without waiting resets its connection."""

TEXTS = (
    b"{",
    b"[",
    b"nul",
    b'"\\ud800"',
    b"\xff\xfe",
    b"[" * 4000,
    b'{"a":' * 2000,
    b"1e999",
    b"",
    b"NaN",
    b"-",
    b'{"id":{}}',
    b'{"id":1}',
    b"[]",
    b"7",
    b"null",
    b'"x"',
    b"\0" * 40,
    b'{"id":1,"service":7,"method":[],"data":{}}',
    b'{"id":1,"type":"cancel"}',
    b'{"id":[],"service":"Probe","method":"echo"}',
    b'{"id":1,"type":"stream_data","data":1}',
    b'{"id":1,"service":"Probe","method":"echo","data":{"text":7}}',
    b'{"type":{}}',
    b'{"id":1,"service":"Probe","method":"__class__"}',
    b'{"id":1,"service":"\\u0000"}',
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

WIRES = [each.wire for each in CORPUS] + [HELLO + each.form.wire for each in H2_CORPUS]
"""Requests of both versions of HTTP that are none."""


def mutated(chance: random.Random, wire: bytes) -> bytes:
    """Change, remove, repeat or append some bytes."""
    found = bytearray(wire)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(4):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[at : at + chance.randrange(1, 9)]
            case 2:
                found[at:at] = found[at : at + chance.randrange(1, 40)]
            case _:
                found += chance.randbytes(chance.randrange(30))
    return bytes(found)


def requests(paths: Sequence[str]) -> Iterator[bytes]:
    """Make requests of HTTP that are wrong, from their lines to their documents."""
    chance = random.Random(26)
    methods = ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH")
    fields = (
        "Content-Type: application/json",
        "Content-Type: multipart/form-data; boundary=b",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Encoding: gzip",
        "Range: bytes=9-1",
        "If-Range: x",
        "If-None-Match: \x80",
        "Cookie: a=%zz; =; ;;",
        "Authorization: Basic %%%",
        "Authorization: AWS4-HMAC-SHA256 Credential=/////, SignedHeaders=, Signature=",
        "Authorization: Bearer eyJ.e.e",
        "Expect: 100-continue",
        "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "x-amz-copy-source: %zz",
        "x-amz-tagging: a=%ff&a",
        "X-Forwarded-For: \xff",
        "traceparent: 00-x",
        "Sec-WebSocket-Key: x",
        "Upgrade: websocket",
    )
    while True:
        if chance.random() < 0.2:
            yield mutated(chance, chance.choice(WIRES))
            continue
        body = chance.choice(TEXTS)
        head = [f"{chance.choice(methods)} {chance.choice(paths)} HTTP/1.1", "Host: x"]
        head += chance.sample(fields, chance.randrange(4))
        short = chance.choice((0, 0, 0, 5))
        head += [f"Content-Length: {len(body) + short}", "Connection: close"]
        wire = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
        yield mutated(chance, wire) if chance.random() < 0.3 else wire


def sendHTTP(address: tuple[str, int], paths: Sequence[str], rounds: int) -> None:
    """Send requests, each on a connection of its own; some clients do not wait."""
    for number, wire in zip(range(rounds), requests(paths), strict=False):
        with socket.create_connection(address, 10) as client, contextlib.suppress(OSError):
            client.sendall(wire)
            if number % 4:
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            else:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def sendBytes(address: tuple[str, int], start: bytes, rounds: int) -> None:
    """Send bytes that are none of a protocol's frames, or nearly some."""
    chance = random.Random(27)
    for number in range(rounds):
        with socket.create_connection(address, 10) as client, contextlib.suppress(OSError):
            frame = chance.randbytes(9) + chance.choice(TEXTS)
            if number % 3 == 0:
                text = chance.choice(TEXTS)
                frame = b"\x01\x01\0\0" + len(text).to_bytes(4, "big") + text
            client.sendall((start if number % 5 else b"") + frame)
            if number % 4:
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            else:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def sendDatagrams(address: tuple[str, int], rounds: int) -> None:
    """Send datagrams."""
    chance = random.Random(28)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for number in range(rounds):
            text = chance.choice(TEXTS)[:1000]
            client.sendto(text if number % 2 else mutated(chance, b"\x01\x01\0\0" + text), address)


def sendMessages(url: str, rounds: int) -> Counter[Any]:
    """Send messages of a WebSocket; return how connections ended."""
    chance = random.Random(29)
    codes: Counter[Any] = Counter()
    sent = 0
    while sent < rounds:
        with contextlib.suppress(ConnectionClosed), connect(url, open_timeout=10) as client:
            try:
                for _ in range(20):
                    text = chance.choice(TEXTS)
                    isText = chance.random() < 0.5
                    client.send(text.decode("utf-8", "replace") if isText else text)
                    sent += 1
                    with contextlib.suppress(TimeoutError):
                        client.recv(0.001)
            except ConnectionClosed as closed:
                codes[closed.rcvd and closed.rcvd.code] += 1
    return codes


def kinds(lines: Sequence[str]) -> Counter[str]:
    """Count lines of the log, without what differs between two of a kind."""
    return Counter(re.sub(r"[0-9]+|'.*?'|\".*?\"", "#", line)[:60] for line in lines)


class HostileCase(SynchronousTestCase):
    """What the log may say."""

    def assertQuiet(self, lines: Sequence[str], seconds: float) -> None:
        """No traceback, and of each kind one line each ten seconds at most."""
        text = "\n".join(lines)
        self.assertNotIn("Traceback", text)
        most = 1 + seconds / INTERVAL_SECONDS
        self.assertEqual({kind: n for kind, n in kinds(lines).items() if n > most}, {})


@long("sends 10,000 messages")
class DaemonTests(HostileCase):
    """S3, console and metrics of a daemon."""

    def test_daemon(self) -> None:
        """Requests to both listeners."""
        daemon = makeDaemon(ownDirectory("hostile") / "data").start()
        self.addCleanup(daemon.kill)
        before, began = len(daemon.log), monotonic()
        s3 = ("/", "/b", "/b/k", "/b/k?uploadId=x&partNumber=0", "/b?delete", "/b?policy", "/%ff")
        api = "/console/api/v1/"
        admin = ("/metrics", "/readyz", api + "session", api + "buckets/%00", api + "x?limit=-1")
        more = ("/b?tagging", "/b?X-Amz-Signature=x&X-Amz-Algorithm=y", "/b/k?versionId=%ff", "*")
        sendHTTP(daemon.address("s3"), s3 + more, ROUNDS)
        sendHTTP(daemon.address("admin"), admin, ROUNDS)
        self.assertQuiet(daemon.log[before:].splitlines(), monotonic() - began)


@long("sends 10,000 messages")
class TransportTests(TestCase, HostileCase):
    """The framework and every transport of the gateway."""

    timeout = 120

    def setUp(self) -> None:
        """Listen to the log."""
        self.events: list[LogEvent] = []

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            self.events.append(event)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def assertSilent(self, began: float) -> None:
        """Check the log since a moment."""
        lines = [
            formatEvent(each) + (" Traceback" if "log_failure" in each else "")
            for each in self.events
            if each["log_time"] >= began and each["log_level"].name != "debug"
        ]
        self.assertQuiet([line for line in lines if line], monotonic() - self.began)

    async def test_framework(self) -> None:
        """Requests and messages to an application."""
        from twisted.internet import reactor

        app = server.http()
        app.use(jsonBody(), urlencoded(), upload().any())

        async def read(req: Any, res: Any) -> None:
            await req.read()
            res.json([str(req.query), req.cookies, req.ip, req.hostname])

        async def receive(socket: Any) -> None:
            while True:
                await socket.sendJSON(await socket.receiveJSON())

        app.get("/", read).post("/", read).put("/b/:name", read)
        app.ws("/ws", receive)
        app.withOptions(trustProxy="loopback")
        port = await app.listen(0, reactor=reactor)
        self.addCleanup(app.close, 0)
        address = ("127.0.0.1", port.getHost().port)
        self.began, started = monotonic(), self.now()
        await deferToThread(sendHTTP, address, ("/", "/b/%ff", "/b/x?a[b][c", "/ws"), ROUNDS)
        codes = await deferToThread(sendMessages, f"ws://127.0.0.1:{address[1]}/ws", ROUNDS)
        # Those that no message closed before are closed by what was no JSON.
        self.assertLessEqual(set(codes), {1007, 1000, None})
        self.assertGreater(codes[1007], 20)
        self.assertSilent(started)

    async def test_gateway(self) -> None:
        """Requests, messages, frames and datagrams to a gateway."""
        from twisted.internet import reactor

        names: Any = ["http", "websocket", "grpc", "tcp", "udp"]
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        gateway = createProtocolGateway(
            port=0, protocols=names, grpc={"port": 0}, tcp={"port": 0}, udp={"port": 0}
        )
        methods = {"echo": {"handler": lambda request, context: request, "input": text}}
        gateway.addService({"name": "Probe", "methods": methods})
        ports = await gateway.listen(reactor=reactor)
        self.addCleanup(gateway.stop, 0)
        at = {name: ("127.0.0.1", ports[name].getHost().port) for name in names}
        self.began, started = monotonic(), self.now()
        paths = ("/api/Probe/echo", "/api/Probe/%00", "/api/x/y", "/ws", "/openapi.json?x=%")
        await deferToThread(sendHTTP, at["http"], paths, ROUNDS)
        await deferToThread(sendMessages, f"ws://127.0.0.1:{at['websocket'][1]}/ws", ROUNDS)
        await deferToThread(sendBytes, at["tcp"], b"", ROUNDS)
        await deferToThread(sendBytes, at["grpc"], PREFACE, ROUNDS // 4)
        await deferToThread(sendDatagrams, at["udp"], ROUNDS)
        self.assertSilent(started)

    async def test_hooks(self) -> None:
        """Hooks that take messages apart, on whatever a client sends."""
        from twisted.internet import reactor

        gateway = createProtocolGateway(
            port=0,
            protocols=["websocket", "udp"],
            websocket={"routeMessage": lambda message: {"service": message["to"]["name"]}},
            udp={"port": 0, "parseMessage": lambda datagram: {"id": datagram[90], "a": 1}},
        )
        gateway.addService({"name": "Probe", "methods": {"echo": {"handler": json.dumps}}})
        ports = await gateway.listen(reactor=reactor)
        self.addCleanup(gateway.stop, 0)
        at = {name: ("127.0.0.1", ports[name].getHost().port) for name in ("websocket", "udp")}
        self.began, started = monotonic(), self.now()
        await deferToThread(sendMessages, f"ws://127.0.0.1:{at['websocket'][1]}/ws", 200)
        await deferToThread(sendDatagrams, at["udp"], 200)
        self.assertSilent(started)

    def now(self) -> float:
        """Return the time as the log has it."""
        from time import time

        return time()
