"""Sessions over real sockets, threads, files and processes."""

import json
import subprocess
import sys
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.http import SQLiteSessionStore, session
from storagegate.http.options import reactorRuntime
from storagegate.http.sessions import stores
from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.wire.http.support import ServedCase, get
from tests.wire.http.tls import makeCertificate

# Keeps sessions one after the other, and says so after each; or as many as it is told, and ends.
WRITER = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from storagegate.http.options import reactorRuntime
from storagegate.http.sessions import stores
from storagegate.http.sessions.stores import SQLiteSessionStore

# Another writer may be kept from its work for longer than an application would wait.
stores._BUSY_MS = 100_000
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = SQLiteSessionStore(path, reactorRuntime(reactor))

async def write():
    for number in range(count):
        await store.set(f"{name}-{number}", {"cookie": {}, "number": number, "pad": "x" * 500})
        print(number, flush=True)
    await store.close()

def start():
    Deferred.fromCoroutine(write()).addErrback(print).addBoth(lambda _: reactor.stop())

reactor.callWhenRunning(start)
reactor.run()
"""


def cookieOf(wire: bytes) -> bytes:
    """Find the cookie that a response sets, as the header that sends it back."""
    _, _, rest = wire.partition(b"Set-Cookie: ")
    return b"Cookie: " + rest.partition(b";")[0]


class SessionCase(ServedCase):
    """Applications that count visits, with sessions in a file."""

    def setUp(self) -> None:
        """Choose a file, and wait for its lock as long as it takes."""
        super().setUp()
        self.patch(stores, "_BUSY_MS", 100_000)
        self.path = self.mktemp()

    def open(self) -> SQLiteSessionStore:
        """Open the file."""
        store = SQLiteSessionStore(self.path, reactorRuntime(self.reactor))
        self.addCleanup(store.close)
        return store

    async def listen(self, port: Any = 0, **options: Any) -> Any:
        """Serve an application."""
        app = server.http()
        app.use(session(**{"secret": "s", "store": self.open(), **options}))

        @app.get("/")
        def count(req: Any, res: Any) -> None:
            req.session.count = req.session.get("count", 0) + 1
            res.send(f"{req.session.count}.")

        listening = await app.listen(port, reactor=self.reactor)
        self.addCleanup(app.close, 0)
        return listening

    async def visit(self, port: Any, *fields: bytes) -> bytes:
        """Visit, on a connection of its own."""
        return await self.exchange(port, get(b"/", b"Connection: close", *fields))


class SharedFileTests(SessionCase):
    """A file that several have open."""

    async def test_twoApplications(self) -> None:
        """What one application keeps the other finds, at once: the response comes after."""
        ports = [await self.listen(), await self.listen()]
        cookie = cookieOf(await self.visit(ports[0]))
        for number in range(2, 12):
            wire = await self.visit(ports[number % 2], cookie)
            self.assertTrue(wire.endswith(b"\r\n\r\n%d." % number), wire)

    async def test_manyAtOnce(self) -> None:
        """Many visitors at once each have their own session."""
        port = await self.listen()
        cookies = [cookieOf(await self.visit(port)) for _ in range(20)]
        for number in (2, 3):
            wires = await gatherResults([self.once(port, cookie) for cookie in cookies])
            for wire in wires:
                self.assertTrue(wire.endswith(b"\r\n\r\n%d." % number), wire)

    def once(self, port: Any, cookie: bytes) -> Deferred[bytes]:
        """Visit without waiting."""
        return Deferred.fromCoroutine(self.visit(port, cookie))

    @long("takes seconds")
    async def test_processes(self) -> None:
        """Processes that begin together share one file, from its making on; nothing is lost."""
        writers = [self.write(name, 200) for name in "abcd"]
        store = self.open()
        for number in range(200):
            await store.set(f"own-{number}", {"cookie": {}, "number": number})
        for writer in writers:
            output, _ = await deferToThread(writer.communicate)
            self.assertEqual(output.split(), [f"{number}".encode() for number in range(200)])
        for name in ("own", *"abcd"):
            for number in range(200):
                found: Any = await store.get(f"{name}-{number}")
                self.assertEqual(found["number"], number)

    async def test_killed(self) -> None:
        """What was acknowledged before C{kill -9} is there, and the file can be used at once."""
        writer = self.write("x", 1_000_000)
        last = await deferToThread(self.killLater, writer)
        store = self.open()
        for number in range(last + 1):
            found: Any = await store.get(f"x-{number}")
            self.assertEqual(found["number"], number)
        await store.set("after", {"cookie": {}})
        self.assertEqual(await store.get("after"), {"cookie": {}})

    def write(self, name: str, count: int) -> "subprocess.Popen[bytes]":
        """Start a process that writes."""
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, self.path, name, f"{count}"],
            env={"PYTHONPATH": str(CHECKOUT)},
            stdout=subprocess.PIPE,
        )
        output: Any = process.stdout
        for cleanup in (output.close, process.wait, process.kill):
            self.addCleanup(cleanup)
        return process

    def killLater(self, process: "subprocess.Popen[bytes]") -> int:
        """Kill a writer in the middle of its work; say what it acknowledged last."""
        output: Any = process.stdout
        lines = [output.readline() for _ in range(100)]
        process.kill()
        lines += output.read().splitlines(keepends=True)
        return max(int(line) for line in lines if line.endswith(b"\n"))


class EncryptedTests(SessionCase):
    """Cookies over TLS."""

    async def test_secure(self) -> None:
        """A secure cookie is sent over TLS and not without it."""
        pem = makeCertificate(self.mktemp()).replace(":", "\\:")
        options = {"cookie": {"secure": True}}
        plain = await self.listen(**options)
        self.assertNotIn(b"Set-Cookie", await self.visit(plain))
        port = await self.listen(f"ssl:0:interface=127.0.0.1:privateKey={pem}", **options)
        script = (
            "import ssl, sys, urllib.request, json\n"
            "context = ssl._create_unverified_context()\n"
            "answer = urllib.request.urlopen(sys.argv[1], context=context)\n"
            "print(json.dumps(answer.headers.get_all('Set-Cookie')))"
        )
        url = f"https://127.0.0.1:{port.getHost().port}/"
        output = await deferToThread(
            subprocess.check_output, [sys.executable, "-c", script, url], timeout=self.timeout
        )
        (cookie,) = json.loads(output)
        self.assertIn("Secure", cookie.split("; "))
