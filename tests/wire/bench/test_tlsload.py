"""The bench's loads over TLS and HTTP/2 against servers that answer by script."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLContextFactory, IReactorProcess
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase
from zope.interface import implementer

from bench import loads, peers
from bench.cases import MeasureError, Server
from bench.processes import Running, Session
from storagegate import server
from tests.support.certificates import Authority
from tests.support.programs import needs
from tests.support.selection import long

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@implementer(IOpenSSLContextFactory)
class Contexts:
    """One TLS context for all connections; its tickets can be switched off."""

    def __init__(self, folder: Path) -> None:
        certificate, key = Authority(folder).issue()
        self.context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self.context.use_certificate_file(str(certificate))
        self.context.use_privatekey_file(str(key))

    def withoutTickets(self) -> None:
        """Resume no session."""
        self.context.set_options(SSL.OP_NO_TICKET)
        self.context.set_session_cache_mode(SSL.SESS_CACHE_OFF)

    def getContext(self) -> SSL.Context:
        """Return the context."""
        return self.context


class Once(Protocol):
    """Answers one request, and closes."""

    def connectionMade(self) -> None:
        """Begin with nothing received."""
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        """Answer a whole request."""
        self.received += data
        if self.received.endswith(b"\r\n\r\n"):
            self.factory.requests.append(self.received)
            self.transport.write(self.factory.reply)
            self.transport.loseConnection()


@long("measures programs of the bench")
class TLSloadTests(TestCase):
    """The client resumes a session on each connection, and tells wrong answers."""

    timeout = 120

    def setUp(self) -> None:
        """Build the client and start the scripted server."""
        if shutil.which("gcc") is None or not Path("/usr/include/openssl/ssl.h").exists():
            raise SkipTest("no gcc, or no headers of OpenSSL, to build the load client with")
        from twisted.internet import reactor

        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.patch(peers, "peersFolder", lambda: self.folder)
        self.contexts = Contexts(self.folder)
        self.factory = Factory.forProtocol(Once)
        self.factory.requests = []
        self.factory.reply = HELLO
        port = reactor.listenSSL(0, self.factory, self.contexts, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.port = port.getHost().port
        self.reactor: IReactorProcess = reactor

    async def runClient(self, version: str = "1.3") -> tuple[bytes, bytes, int]:
        """Run the client for a moment on three connections."""
        request = self.folder / "request"
        request.write_bytes(REQUEST)
        words = ["-p", self.port, "-c", 3, "-d", 0.3, "-f", request, "-n", 5, "-v", version]
        program, texts = peers.compiled("tlsload"), list(map(str, words))
        return await getProcessOutputAndValue(program, texts, reactor=self.reactor)

    async def report(self, version: str = "1.3") -> loads.TLSReport:
        """Run the client, and read its report."""
        out, err, code = await self.runClient(version)
        self.assertEqual((code, err), (0, b""))
        return msgspec.json.decode(out, type=loads.TLSReport)

    async def test_resumed(self) -> None:
        """With both versions every connection resumes, and every body is counted."""
        for version in ("1.2", "1.3"):
            self.factory.requests.clear()
            report = await self.report(version)
            self.assertGreater(report.calls, 3)
            # Each of the three got its first session before the time ran.
            self.assertEqual(self.factory.requests, [REQUEST] * (report.calls + 3))
            self.assertEqual((report.wrong, report.full), (0, 0))
            self.assertEqual(report.received, 5 * report.calls)
            self.assertLessEqual(report.p50Ms > 0, report.p99Ms)

    async def test_notResumed(self) -> None:
        """A server without tickets makes full handshakes, which are counted."""
        self.contexts.withoutTickets()
        report = await self.report("1.2")
        self.assertGreater(report.calls, 0)
        self.assertEqual((report.wrong, report.full), (0, report.calls))

    async def test_wrong(self) -> None:
        """An error, a short body and no answer are told, before the time runs."""
        for reply in (HELLO.replace(b"200", b"403"), HELLO[:-1], b""):
            self.factory.reply = reply
            out, err, code = await self.runClient()
            self.assertEqual((code, out), (2, b""))
            self.assertIn(b"a wrong answer", err)


@needs("nghttp")
class AskTests(TestCase):
    """One exchange over HTTP/2, as the check before a load."""

    def ask(self, port: int, fields: dict[str, str]) -> Any:
        """Ask a server on a port."""
        folder = Path(self.mktemp())
        folder.mkdir()
        running = Running(Server("ours", None), Session(folder, None))  # type: ignore[arg-type]
        running.host = f"127.0.0.1:{port}"
        return deferToThread(loads.askOverHTTP2, running, "/x", fields)

    async def test_answer(self) -> None:
        """Status, media type and body are those of the server, which gets the fields."""
        app = server.http()
        app.get("/x", lambda req, res: res.status(201).type("text/plain").send(req.get("x-a")))
        port = await app.listen(0, "127.0.0.1")
        self.addCleanup(app.close)
        answer = await self.ask(port.getHost().port, {"x-a": "b c"})
        self.assertEqual((answer.status, answer.contentType), (201, "text/plain"))
        self.assertEqual(answer.body, b"b c")

    async def test_none(self) -> None:
        """A server of HTTP/1.1 alone is no server of HTTP/2."""
        app = server.http().withOptions(http2=False)
        port = await app.listen(0, "127.0.0.1")
        self.addCleanup(app.close)
        await self.assertFailure(self.ask(port.getHost().port, {}), MeasureError)
