"""The certificates of the daemon's listeners: renewed, broken, and near their end."""

import os
import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import grpc
from cryptography.x509 import load_der_x509_certificate
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.support.certificates import Authority
from tests.support.daemon import DaemonFailed
from tests.support.daemonprocess import DaemonProcess
from tests.support.http import getJSON, request
from tests.support.selection import long

METRIC = "storagegate_tls_certificate_expiry_timestamp_seconds"


class CertificateCase(TestCase):
    """Daemons with TLS on several listeners."""

    timeout = 120

    def setUp(self) -> None:
        """Have an authority and a pair."""
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder / "authority")
        self.pair = self.authority.issue(file="served", days=30)

    async def start(self, *arguments: str, names: tuple[str, ...] = ("http", "tcp")) -> None:
        """Start a daemon."""
        certificate, key = self.pair
        tls = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        self.daemon = DaemonProcess(reactor, expect=("s3", "admin", *names))
        self.addCleanup(self.daemon.kill)
        listeners = [part for name in names for part in (f"--{name}", tls)]
        await self.daemon.start(self.folder / "data", "--s3", tls, *listeners, *arguments)

    def renew(self, days: int = 30, which: tuple[int, ...] = (0, 1)) -> int:
        """Put a new pair, or a part of it, in the place of the old one; return its number."""
        files = self.authority.issue(file="new", days=days)
        number = load_der_x509_certificate(
            ssl.PEM_cert_to_DER_cert(files[0].read_text())
        ).serial_number
        for each in which:
            os.replace(files[each], self.pair[each])
        return number

    def served(self, name: str) -> int:
        """Return the number of the certificate of a listener."""
        text = ssl.get_server_certificate(self.daemon.address(name), timeout=20)
        return load_der_x509_certificate(ssl.PEM_cert_to_DER_cert(text)).serial_number

    async def warnings(self) -> Any:
        """Return the warnings of the daemon, which is ready."""
        status, document = await deferToThread(getJSON, self.daemon.address("admin"), "/readyz")
        self.assertEqual(status, 200)
        return document.get("warnings", {})

    async def untilWarned(self, pattern: str) -> None:
        """Wait for a warning; the test's own timeout is the limit."""
        while not re.search(pattern, str(await self.warnings())):
            await deferLater(reactor, 0.1)

    async def ends(self) -> dict[str, float]:
        """Return the metric of the ends of certificates by listener."""
        _, page = await deferToThread(request, self.daemon.address("admin"), "GET", "/metrics")
        found = re.findall(rf'{METRIC}{{file="([^"]+)",listener="(\w+)"}} (\S+)', page.decode())
        self.assertEqual({file for file, _, _ in found}, {str(self.pair[0])})
        return {name: float(end) for _, name, end in found}


class RenewalTests(CertificateCase):
    """Files that change while the daemon serves."""

    async def test_renewed(self) -> None:
        """A renewed pair is served to the next client, by each listener, without a signal."""
        await self.start()
        for _ in range(2):
            number = self.renew()
            for name in ("s3", "http", "tcp"):
                self.assertEqual(await deferToThread(self.served, name), number, name)
        await self.daemon.waitForLog(f"new TLS files are in use: {self.pair[0]}")

    async def test_sessions(self) -> None:
        """Each listener resumes a client's session, until the pair is renewed."""
        await self.start()
        for name in ("s3", "http", "tcp"):
            context = ssl.create_default_context(cafile=str(self.authority.path))
            found, session = [], None
            for number in range(4):
                if number == 2:
                    self.renew()
                session, isResumed = await deferToThread(self.resume, name, context, session)
                found.append(isResumed)
            self.assertEqual(found, [False, True, False, True], name)

    def resume(self, name: str, context: ssl.SSLContext, session: Any) -> tuple[Any, bool]:
        """Connect to a listener; return the session, and whether it was resumed."""
        # Tickets of TLS 1.3 arrive after the handshake, at no certain time without a response.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(self.daemon.address(name), 20) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as client,
        ):
            return client.session, bool(client.session_reused)

    @long("takes a second or more")
    async def test_alone(self) -> None:
        """Without clients, the metric and the log have the renewed pair soon, too."""
        await self.start()
        before = await self.ends()
        self.assertEqual(sorted(before), ["http", "s3", "tcp"])
        self.assertLess(abs(before["s3"] - time.time() - 30 * 86400), 120)
        self.renew(days=60)
        while (await self.ends())["s3"] == before["s3"]:
            await deferLater(reactor, 0.1)
        self.assertLess(abs((await self.ends())["tcp"] - time.time() - 60 * 86400), 120)

    async def test_signal(self) -> None:
        """SIGHUP reads the files at once."""
        await self.start()
        number = self.renew()
        self.daemon.signal("HUP")
        await self.daemon.waitForLog("new TLS files are in use")
        self.assertEqual(await deferToThread(self.served, "s3"), number)

    async def test_broken(self) -> None:
        """A key without its certificate is refused and logged once; the old pair is served."""
        await self.start(names=())
        number = await deferToThread(self.served, "s3")
        self.renew(which=(1,))
        for _ in range(3):
            self.assertEqual(await deferToThread(self.served, "s3"), number)
        await self.untilWarned("certificate of s3.*do not match")
        await self.daemon.waitForLog("the old TLS files stay in use")
        self.assertEqual(self.daemon.log.count("the old TLS files stay in use"), 1)
        number = self.renew()
        self.assertEqual(await deferToThread(self.served, "s3"), number)
        self.assertEqual(await self.warnings(), {})

    @long("takes a second or more")
    async def test_workers(self) -> None:
        """Each of several processes serves the renewed pair."""
        await self.start("--workers", "2", names=())
        number = self.renew()
        for _ in range(8):
            self.assertEqual(await deferToThread(self.served, "s3"), number)


class EndTests(CertificateCase):
    """Certificates near their end."""

    async def test_near(self) -> None:
        """A certificate that ends within two weeks is a warning, until it is renewed."""
        self.pair = self.authority.issue(file="served", days=5)
        await self.start(names=("http",))
        await self.untilWarned("certificate of s3.* expires on 20")
        self.assertIn("certificate of http", await self.warnings())
        self.renew(days=90)
        while await self.warnings():
            await deferLater(reactor, 0.1)

    async def test_over(self) -> None:
        """One that has ended is a warning; the daemon is ready."""
        self.pair = self.authority.issue(file="served", days=-1)
        await self.start(names=())
        await self.untilWarned("expired on 20")


class TableTests(CertificateCase):
    """TLS of the gateway's listeners by the tables of the configuration."""

    async def configure(self, *arguments: str, **tls: Path) -> None:
        """Start a daemon whose gateway has a table C{tls} for each listener."""
        certificate, key = self.pair
        files = {"cert": certificate, "key": key, **tls}
        lines = [f'{name} = "{path}"' for name, path in files.items()]
        names = ("http", "tcp", "grpc")
        file = self.folder / "storagegate.toml"
        file.write_text(
            "\n".join(line for name in names for line in (f"[gateway.{name}.tls]", *lines))
        )
        plain = "tcp:0:interface=127.0.0.1"
        self.daemon = DaemonProcess(reactor, expect=("s3", "admin", *names))
        self.addCleanup(self.daemon.kill)
        await self.daemon.start(
            self.folder / "data",
            "--http",
            plain,
            "--tcp",
            plain,
            "--grpc",
            "127.0.0.1:0",
            "--config",
            str(file),
            *arguments,
        )

    def call(self, pair: tuple[Path, Path] | None = None) -> dict[str, str]:
        """Call a method over each transport; return the results, or the kinds of errors."""
        found: dict[str, str] = {}
        for name, use in (("http", self.http), ("tcp", self.tcp), ("grpc", self.grpc)):
            try:
                found[name] = use(pair)
            except (OSError, grpc.RpcError):
                found[name] = "refused"
        return found

    def connect(self, name: str, pair: tuple[Path, Path] | None) -> ssl.SSLSocket:
        """Connect to a listener."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if pair is not None:
            context.load_cert_chain(*pair)
        plain = socket.create_connection(self.daemon.address(name), 20)
        return context.wrap_socket(plain, server_hostname="localhost")

    def http(self, pair: tuple[Path, Path] | None) -> str:
        """Call over HTTP."""
        with self.connect("http", pair) as secured:
            secured.sendall(
                b"POST /api/UserService/ListUsers HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            )
            return "called" if b" 200 " in secured.recv(65536) else "refused"

    def tcp(self, pair: tuple[Path, Path] | None) -> str:
        """Call over TCP, by a line."""
        with self.connect("tcp", pair) as secured:
            secured.sendall(
                b'{"id": 1, "service": "UserService", "method": "ListUsers", "data": {}}\n'
            )
            return "called" if b'"stream_end"' in secured.recv(65536) else "refused"

    def grpc(self, pair: tuple[Path, Path] | None) -> str:
        """Call over gRPC."""
        certificate, key = (None, None) if pair is None else (each.read_bytes() for each in pair)
        roots = self.authority.path.read_bytes()
        credentials = grpc.ssl_channel_credentials(roots, key, certificate)
        port = self.daemon.address("grpc")[1]
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            list(channel.unary_stream("/user.UserService/ListUsers")(b"", timeout=20))
        return "called"

    async def test_called(self) -> None:
        """Calls go over TLS; a renewed pair is served, and its end is in the metric."""
        await self.configure()
        called = dict.fromkeys(("http", "tcp", "grpc"), "called")
        self.assertEqual(await deferToThread(self.call), called)
        number = self.renew()
        for name in called:
            self.assertEqual(await deferToThread(self.served, name), number, name)
        self.assertEqual(sorted(await self.ends()), ["grpc", "http", "tcp"])

    @long("takes seconds")
    async def test_clients(self) -> None:
        """With C{ca} a client needs a certificate that it has signed, with workers too."""
        clients = Authority(self.folder / "clients", "clients")
        await self.configure("--workers", "2", ca=clients.path)
        names = ("http", "tcp", "grpc")
        self.assertEqual(await deferToThread(self.call), dict.fromkeys(names, "refused"))
        strange = self.authority.issue("stranger")
        self.assertEqual(await deferToThread(self.call, strange), dict.fromkeys(names, "refused"))
        own = clients.issue("client")
        self.assertEqual(await deferToThread(self.call, own), dict.fromkeys(names, "called"))

    async def test_badFiles(self) -> None:
        """A file that cannot be used stops the start with one line."""
        await self.assertFailure(
            Deferred.fromCoroutine(self.configure(key=self.folder / "gone")), DaemonFailed
        )
        self.assertIn(f"the option tls.key: {self.folder / 'gone'}: No such file", self.daemon.log)
        self.assertNotIn("Traceback", self.daemon.log)
