"""HTTP/2 on real listeners, with clients of other makers, over TLS and without it."""

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
from hyperframe.frame import WindowUpdateFrame
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.web.resource import Resource
from twisted.web.static import Data, File
from twisted.web.wsgi import WSGIResource

from storagegate.http import HTTPRequest, HTTPResponse
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2.frames import PREFACE
from tests.net.support import head, hello, statuses
from tests.support.h2client import H2Client
from tests.support.programs import needProgram
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import TCP, RawClient, ServedCase
from tests.wire.http.tls import makeCertificate

CONTENT = bytes(range(256)) * 8192

_NODE = """
const http2 = require("http2");
const session = http2.connect(process.argv[2]);
const found = {};
session.on("goaway", (code) => { found.goAway = code });
function ask(path, body) {
    return new Promise((done, failed) => {
        const method = body ? "PUT" : "GET";
        const stream = session.request({":path": path, ":method": method}), pieces = [];
        stream.on("error", failed);
        stream.on("data", (piece) => pieces.push(piece));
        stream.on("end", () => done(Buffer.concat(pieces)));
        stream.end(body);
    });
}
async function main() {
    const all = [...Array(20)].map(() => ask("/version"));
    found.version = (await Promise.all(all)).map((each) => JSON.parse(each)[0]);
    found.upload = JSON.parse(await ask("/upload", Buffer.alloc(SIZE))).length;
    const last = ask("/file"), stop = ask("/stop");
    found.stop = (await stop).toString();
    found.last = (await last).length;
    await new Promise((done) => session.on("close", done));
    console.log(JSON.stringify(found));
}
main();
""".replace("SIZE", str(len(CONTENT)))
"""A program for Node, whose keys stand in its output in any order."""


def portOf(listening: IListeningPort) -> int:
    """Return the number of a port."""
    address: Any = listening.getHost()
    number: int = address.port
    return number


class NegotiationTests(ServedCase):
    """Which protocol a client speaks on one port."""

    async def listenTLS(self, **limits: Any) -> int:
        """Serve over TLS; return the port."""
        self.pem = makeCertificate(self.mktemp())
        return portOf(
            await self.serve(hello, f"ssl:0:interface=127.0.0.1:privateKey={self.pem}", **limits)
        )

    async def talk(self, port: int, protocols: list[str], wire: bytes) -> tuple[str | None, bytes]:
        """Offer protocols, send bytes, and return the protocol and all that comes."""
        context = ssl.create_default_context(cafile=self.pem)
        context.set_alpn_protocols(protocols)

        def run() -> tuple[str | None, bytes]:
            import socket

            with (
                socket.create_connection(("127.0.0.1", port), 60) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as client,
            ):
                client.sendall(wire)
                received = b""
                while data := client.recv(65_536):
                    received += data
                    if b"hello" in received:
                        break
                return client.selected_alpn_protocol(), received

        return await deferToThread(run)

    async def test_protocols(self) -> None:
        """TLS clients get what they negotiate, and must speak it."""
        port = await self.listenTLS()
        self.assertEqual(
            [
                (await self.talk(port, offered, head(b"Connection: close")))[0]
                for offered in (["http/1.1"], ["h2", "http/1.1"], ["http/1.1", "h2"], [])
            ],
            ["http/1.1", "h2", "h2", None],
        )
        for offered in (["http/1.1"], []):
            _, received = await self.talk(port, offered, head())
            self.assertEqual(statuses(received), [200])
            # Without the negotiation, the preface is a request of an unknown version.
            _, received = await self.talk(port, offered, PREFACE)
            self.assertEqual(statuses(received), [505])
        # SETTINGS, and GOAWAY: a request of HTTP/1.1 is no preface.
        _, received = await self.talk(port, ["h2"], head())
        self.assertEqual((received[3], statuses(received)), (4, []))
        self.assertNotIn(b"hello", received)

    async def test_off(self) -> None:
        """A listener without HTTP/2 offers only HTTP/1.1."""
        port = await self.listenTLS(http2=False)
        self.assertEqual((await self.talk(port, ["h2", "http/1.1"], head()))[0], "http/1.1")
        _, received = await self.talk(port, ["http/1.1"], PREFACE)
        self.assertEqual(statuses(received), [505])

    async def test_pieces(self) -> None:
        """The preface and a request may come byte by byte."""
        port = await self.serve(hello)
        # A request whose fields are in the static table: GET / of http.
        headers = b"\x82\x84\x86\x41\x01x"
        wire = PREFACE + bytes(3) + b"\x04" + bytes(5)
        wire += len(headers).to_bytes(3, "big") + b"\x01\x05\0\0\0\x01" + headers
        client: RawClient = await self.connect(port)
        await self.sendSlowly(client, [wire[at : at + 1] for at in range(len(wire))])
        received = await client.until(b"hello")
        self.assertEqual(received[3], 4)

    async def test_probed(self) -> None:
        """The system probes a silent client, over TLS as well: a call of gRPC has no timeout."""
        probed: list[bool] = []

        async def look(request: ChannelRequest) -> None:
            probed.append(request.channel.connection.transport.getTcpKeepAlive())
            await hello(request)

        self.pem = makeCertificate(self.mktemp())
        for place in (TCP, f"ssl:0:interface=127.0.0.1:privateKey={self.pem}"):
            port = portOf(await self.serve(look, place))
            scheme = "http" if place == TCP else "https"

            def run(url: str = f"{scheme}://localhost:{port}/") -> str:
                trusted = ssl.create_default_context(cafile=self.pem)
                with httpx.Client(http1=False, http2=True, verify=trusted) as client:
                    return client.get(url).text

            self.assertEqual(await deferToThread(run), "hello")
        self.assertEqual(probed, [True, True])


class StockTests(ServedCase):
    """Stock Twisted resources over HTTP/2."""

    async def test_tree(self) -> None:
        """A tree of resources answers as it does over HTTP/1.1, apart from what is HTTP/1.1's."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "file").write_bytes(CONTENT)

        def application(environ: Any, start: Any) -> list[bytes]:
            body = environ["wsgi.input"].read()
            start("200 OK", [("Content-Type", "text/plain"), ("X-Length", str(len(body)))])
            return [b"a" * 10, environ["SERVER_PROTOCOL"].encode(), body[:3]]

        root = Resource()
        root.putChild(b"data", Data(b"hello", "text/plain"))
        root.putChild(b"files", File(str(folder)))
        root.putChild(
            b"wsgi", WSGIResource(self.reactor, self.reactor.getThreadPool(), application)
        )
        port = portOf(await self.serve(root))

        def run(http2: bool) -> list[Any]:
            found = []
            with httpx.Client(
                http1=not http2, http2=http2, base_url=f"http://127.0.0.1:{port}", timeout=60
            ) as client:
                for method, path, body in (
                    ("GET", "/data", b""),
                    ("HEAD", "/data", b""),
                    ("GET", "/files/file", b""),
                    ("POST", "/wsgi", b"abc" * 100_000),
                    ("GET", "/none", b""),
                ):
                    response = client.request(method, path, content=body)
                    fields = {
                        name: value
                        for name, value in response.headers.items()
                        if name not in ("date", "transfer-encoding", "connection")
                    }
                    content = response.content.replace(b"HTTP/2", b"HTTP/1.1")
                    found.append((response.status_code, fields, content))
                self.assertEqual(response.http_version, "HTTP/2" if http2 else "HTTP/1.1")
            return found

        self.assertEqual(await deferToThread(run, True), await deferToThread(run, False))


class ApplicationTests(AppServedCase):
    """An application, with independent clients."""

    def setUp(self) -> None:
        """Make an application with a route of each kind."""
        super().setUp()
        app = self.app
        folder = Path(self.mktemp())
        folder.mkdir()
        self.file = folder / "file"
        self.file.write_bytes(CONTENT)

        async def upload(req: HTTPRequest, res: HTTPResponse) -> None:
            length = 0
            async for chunk in req.raw.body:
                length += len(chunk)
            res.json({"length": length, "trailers": len(req.raw.body.trailers)})

        async def stream(req: HTTPRequest, res: HTTPResponse) -> None:
            res.type("text/event-stream")
            for number in range(3):
                await res.write(f"data: {number}\n\n")
            res.end()

        app.get("/version", lambda req, res: res.json([req.httpVersion, req.secure, req.host]))
        app.get("/file", lambda req, res: res.sendFile(str(self.file.absolute())))
        app.put("/upload", upload)
        app.post("/json", lambda req, res: res.json(req.raw.headers[b"content-length"].decode()))
        app.get("/stream", stream)
        app.get(
            "/cookies", lambda req, res: res.cookie("a", "1").cookie("b", "2").json(req.cookies)
        )
        app.get("/empty", lambda req, res: res.status(204).end())

    async def ports(self) -> tuple[int, int]:
        """Listen without TLS and with it."""
        self.pem = makeCertificate(self.mktemp())
        plain = await self.listen()
        encrypted = await self.app.listen(
            f"ssl:0:interface=127.0.0.1:privateKey={self.pem}", reactor=self.reactor
        )
        return portOf(plain), portOf(encrypted)

    def check(self, client: httpx.Client, secure: bool) -> None:
        """Make a request of each kind."""
        first = client.get("/version")
        self.assertEqual(first.http_version, "HTTP/2")
        self.assertEqual(first.json()[:2], ["2.0", secure])
        self.assertEqual(client.get("/file").content, CONTENT)
        part = client.get("/file", headers={"Range": "bytes=1000-300000"})
        self.assertEqual((part.status_code, part.content), (206, CONTENT[1000:300_001]))
        fresh = client.get("/file", headers={"If-None-Match": part.headers["etag"]})
        self.assertEqual((fresh.status_code, fresh.content), (304, b""))
        size = client.head("/file")
        self.assertEqual((size.headers["content-length"], size.content), (str(len(CONTENT)), b""))
        for content in (CONTENT, iter([CONTENT, CONTENT])):
            answer = client.put("/upload", content=content).json()
            self.assertEqual(answer["length"] % len(CONTENT), 0)
        self.assertEqual(client.get("/stream").text, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
        self.assertEqual(client.get("/empty").status_code, 204)
        cookies = client.get("/cookies")
        self.assertEqual(cookies.headers.get_list("set-cookie"), ["a=1; Path=/", "b=2; Path=/"])
        self.assertEqual(client.get("/cookies").json(), {"a": "1", "b": "2"})
        self.assertEqual(client.get("/none").status_code, 404)

    async def test_httpx(self) -> None:
        """httpx, without TLS and with it."""
        plain, encrypted = await self.ports()
        context = ssl.create_default_context(cafile=self.pem)

        def run() -> None:
            for url, secure in (
                (f"http://127.0.0.1:{plain}", False),
                (f"https://localhost:{encrypted}", True),
            ):
                with httpx.Client(
                    http1=secure, http2=True, verify=context, base_url=url, timeout=60
                ) as client:
                    self.check(client, secure)

        await deferToThread(run)

    async def run_(self, *command: str) -> str:
        """Run a program; return its output."""

        def run() -> str:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        return await deferToThread(run)

    @long("needs curl")
    async def test_curl(self) -> None:
        """curl, with prior knowledge and by ALPN, with uploads, downloads and expectations."""
        curl = needProgram("curl")
        plain, encrypted = await self.ports()
        for options, url in (
            (["--http2-prior-knowledge"], f"http://127.0.0.1:{plain}"),
            (["--http2", "--cacert", self.pem], f"https://localhost:{encrypted}"),
        ):
            command = [curl, "-sS", "--max-time", "60", *options]
            text = await self.run_(*command, "-w", "%{http_version}", f"{url}/version")
            self.assertTrue(text.endswith("2"), text)
            path = self.mktemp()
            await self.run_(*command, "-o", path, f"{url}/file")
            self.assertEqual(Path(path).read_bytes(), CONTENT)
            for expect in ("Expect:", "Expect: 100-continue"):
                text = await self.run_(
                    *command, "-H", expect, "-T", str(self.file), f"{url}/upload"
                )
                self.assertEqual(json.loads(text)["length"], len(CONTENT))
        # The form by Upgrade is not offered, and the request is answered all the same.
        text = await self.run_(
            curl, "-sS", "--http2", "-w", "%{http_version}", f"http://127.0.0.1:{plain}/version"
        )
        self.assertTrue(text.endswith("1.1"), text)

    @long("needs Node.js")
    async def test_node(self) -> None:
        """Node's client: requests beside each other, an upload, and the end of the server."""
        node = needProgram("node")
        plain, _ = await self.ports()
        stopped: list[Any] = []

        def stop(req: HTTPRequest, res: HTTPResponse) -> None:
            # The answers to requests that the client has sent by now still arrive.
            stopped.append(self.app.close(60_000))
            res.send("stopping")

        self.app.get("/stop", stop)
        script = Path(self.mktemp())
        script.write_text(_NODE)
        text = await self.run_(node, str(script), f"http://127.0.0.1:{plain}")
        self.assertEqual(
            json.loads(text),
            {
                "version": 20 * ["2.0"],
                "upload": len(CONTENT),
                "stop": "stopping",
                "last": len(CONTENT),
                "goAway": 0,
            },
        )
        await stopped[0]

    @long("needs nghttp2-client")
    async def test_nghttp(self) -> None:
        """nghttp and h2load, with many streams on a connection."""
        nghttp, h2load = needProgram("nghttp"), needProgram("h2load")
        plain, encrypted = await self.ports()
        for url in (f"http://127.0.0.1:{plain}", f"https://localhost:{encrypted}"):
            text = await self.run_(nghttp, "-nv", f"{url}/file")
            self.assertIn(":status: 200", text)
            self.assertIn("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):100", text)
            for path, count in (("/version", 2000), ("/file", 100)):
                text = await self.run_(h2load, "-n", str(count), "-c2", "-m64", f"{url}{path}")
                self.assertIn(f"{count} succeeded, 0 failed, 0 errored", text)
                self.assertIn(f"status codes: {count} 2xx", text)


@long("takes seconds")
class GreedyTests(AppServedCase):
    """Much work for one client of HTTP/2, while a second one waits."""

    def begin(self, port: int, path: str, count: int) -> H2Client:
        """Open streams on one connection, with windows that never close."""
        client = H2Client(port, settings={4: 2**31 - 1})
        client.send(WindowUpdateFrame(0, window_increment=2**31 - 65_536))
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)]
        for _ in range(count):
            client.begin("", headers=fields, isEnded=True)
        return client

    async def test_writesForEver(self) -> None:
        """Handlers that write for ever on a hundred streams let others in."""

        async def write(req: HTTPRequest, res: HTTPResponse) -> None:
            res.type("txt")
            while True:
                await res.write(b"x" * 1000)

        self.app.get("/second", self.answer)
        self.app.get("/plain", write)
        port = await self.listen()
        second = await self.connect(port)
        client = await deferToThread(self.begin, portOf(port), "/plain", 100)
        isOver = False

        def read() -> None:
            while not isOver:
                client.discard(1.0)

        reading = deferToThread(read)
        try:
            for _ in range(5):
                await self.assertUnharmed(second)
        finally:
            isOver = True
            await reading
            client.close()

    async def test_unread(self) -> None:
        """A client that reads nothing of a hundred large responses keeps little of them."""
        size = 1_000_000
        self.app.get("/second", self.answer)
        taken = []

        async def write(req: HTTPRequest, res: HTTPResponse) -> None:
            for _ in range(size // 1000):
                await res.write(b"x" * 1000)
                taken.append(1000)

        self.app.get("/plain", write)
        port = await self.listen()
        second = await self.connect(port)
        client = await deferToThread(self.begin, portOf(port), "/plain", 100)
        try:
            for _ in range(5):
                await self.assertUnharmed(second)
            await deferLater(self.reactor, 0.5)
            # The queue of each stream, and the buffers of the kernel.
            self.assertLess(sum(taken), 100 * 70_000 + 8_000_000)
        finally:
            client.close()
