"""Instances over TLS: who is believed, who we are, and what becomes of calls if it fails."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from OpenSSL.crypto import FILETYPE_PEM
from twisted.internet.defer import Deferred
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    KeyPair,
    TLSVersion,
    trustRootFromCertificates,
)
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, formatEvent, globalLogPublisher
from zope.interface import implementer

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.telemetry.tracecontext import newTracing
from tests.support.certificates import Authority
from tests.support.rawupstream import RawConnection, RawUpstream
from tests.support.selection import long
from tests.support.services import PLACES, openRoom
from tests.wire.upstream.upstreamcase import CHUNKED, UpstreamCase, chunk

UNREACHABLE = "^An instance of Probe is unreachable"


def one(connection: RawConnection) -> None:
    """Answer with a result."""
    connection.json(b'{"data": 1}')


class SecuredCase(UpstreamCase):
    """Instances over TLS, and an authority that vouches for them."""

    timeout = 120

    def setUp(self) -> None:
        """Have an authority."""
        super().setUp()
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder)
        self.trust = {"caFile": str(self.authority.path)}
        self.lines: list[str] = []
        observe = implementer(ILogObserver)(lambda event: self.lines.append(formatEvent(event)))
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def secured(
        self, answer: Any = one, files: tuple[Path, Path] | None = None, **more: Any
    ) -> RawUpstream:
        """Make an instance."""
        certificate, key = files or self.authority.issue("probe.example")
        options = CertificateOptions(
            certificate=Certificate.loadPEM(certificate.read_bytes()).original,
            privateKey=KeyPair.load(key.read_bytes(), FILETYPE_PEM).original,
            acceptableProtocols=[b"h2", b"http/1.1"],
            **more,
        )
        return self.upstream(answer, options)

    def knowing(self, authority: Authority, answer: Any = one, **more: Any) -> RawUpstream:
        """Make an instance that takes calls only with a certificate of an authority."""
        trust = trustRootFromCertificates([Certificate.loadPEM(authority.path.read_bytes())])
        return self.secured(answer, trustRoot=trust, **more)

    def serveTLS(self, *upstreams: RawUpstream, tls: Any = None, **options: Any) -> None:
        """Put a gateway in front of instances."""
        options = {"ejectAfter": 100, **options}
        self.serve(*(each.port for each in upstreams), tls=tls or self.trust, **options)


class SecuredTests(SecuredCase):
    """What is as it should be."""

    async def test_kinds(self) -> None:
        """Unary calls and streams go over TLS, and all of them over one connection."""
        seen: list[Any] = []

        def answer(connection: RawConnection) -> None:
            seen.append(connection.transport.negotiatedProtocol)  # type: ignore[union-attr]
            if b"/server" in connection.received:
                connection.write(CHUNKED + chunk(b'{"data": 1}\n') + chunk(b'{"data": 2}\n'))
                connection.write(chunk(b""))
            else:
                one(connection)
            connection.received = b""

        upstream = self.secured(answer)
        self.serveTLS(upstream)
        self.assertEqual(await self.call("unary"), 1)
        self.assertEqual(await self.collect("server"), ([1, 2], None))
        self.assertEqual(await self.call("unary"), 1)
        self.assertEqual((upstream.requests, upstream.made), (3, 1))
        self.assertEqual(seen, [b"http/1.1"] * 3)

    async def test_large(self) -> None:
        """A request and an answer that are many records of TLS come whole."""
        body = b'{"data": "%b"}' % (b"x" * 4000)

        def answer(connection: RawConnection) -> None:
            self.whole = connection

        upstream = self.secured(answer)
        self.serveTLS(upstream)
        text = "y" * 1_000_000
        calling = self.call("unary", {"text": text})
        while upstream.requests == 0 or text.encode() not in self.whole.received:
            await deferLater(self.reactor, 0.005)
        self.whole.json(body)
        self.assertEqual(await calling, "x" * 4000)

    async def test_closedMeanwhile(self) -> None:
        """A connection that the instance has closed while it was idle is not used for a call."""
        upstream = self.secured(lambda connection: (one(connection), connection.close()))
        self.serveTLS(upstream)
        for _ in range(3):
            self.assertEqual(await self.call("unary"), 1)
        self.assertEqual((upstream.requests, upstream.made), (3, 3))

    async def test_serverName(self) -> None:
        """The certificate may be for a name of the options instead of that of the host."""
        upstream = self.secured()
        self.serveTLS(upstream, tls={**self.trust, "serverName": "probe.example"})
        self.assertEqual(await self.call("unary"), 1)
        self.assertEqual(self.shown(upstream), b"probe.example")

    def shown(self, upstream: RawUpstream) -> Any:
        """Give the name that the client asked for."""
        transport: Any = upstream.connections[0].transport
        return transport.getHandle().get_servername()

    async def test_known(self) -> None:
        """Who asks for our certificate gets it."""
        clients = Authority(self.folder / "clients", "clients")
        certificate, key = clients.issue("gateway")
        upstream = self.knowing(clients)
        own = {"certFile": str(certificate), "keyFile": str(key)}
        self.serveTLS(upstream, tls={**self.trust, **own})
        self.assertEqual(await self.call("unary"), 1)
        transport: Any = upstream.connections[0].transport
        subject = transport.getPeerCertificate().get_subject()
        self.assertEqual(subject.commonName, "gateway")

    async def test_exchanged(self) -> None:
        """Certificates that are exchanged are shown from the next connection on."""
        clients = Authority(self.folder / "clients", "clients")
        strangers = Authority(self.folder / "strangers", "strangers")
        upstream = self.knowing(clients, lowerMaximumSecurityTo=TLSVersion.TLSv1_2)
        files = strangers.issue("gateway")
        own = {"certFile": str(files[0]), "keyFile": str(files[1])}
        self.serveTLS(upstream, tls={**self.trust, **own})
        self.assertRegex(await self.refused(self.call("unary")), UNREACHABLE)
        for before, after in zip(files, clients.issue("gateway"), strict=True):
            after.replace(before)
        self.assertEqual(await self.call("unary"), 1)

    @long("takes a second or more")
    async def test_gateway(self) -> None:
        """A gateway of ours is an instance as any, with C{ssl:} in the place of C{tcp:}."""
        certificate, key = self.authority.issue()
        room = openRoom(self, http=PLACES["http"])
        place = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        port = room.open("http", place)
        gateway = ProtocolGateway(protocols=[])
        instance = {"host": "127.0.0.1", "port": port.port}
        service = {"instances": [instance], "tls": self.trust, "connectTimeoutMs": 20_000}
        gateway.configureServiceDiscovery(services={"UserService": service})
        gateway.start(self.reactor)
        self.addCleanup(gateway.stop, 0)
        client = ClientInfo("me", "127.0.0.1", 1)
        context = RequestContext("tcp", "UserService", "CreateUser", client, newTracing())
        result = await gateway.invoker.call(context, {"name": "Ada", "email": "ada@example.com"})
        self.assertEqual(result["name"], "Ada")

    async def test_unverified(self) -> None:
        """Without verification anybody is called, and the log says so at the start."""
        stranger = Authority(self.folder / "strangers", "strangers")
        upstream = self.secured(files=stranger.issue("other.example"))
        self.serveTLS(upstream, tls={"verify": False, "serverName": "probe.example"})
        self.assertEqual(await self.call("unary"), 1)
        self.assertEqual(self.shown(upstream), b"probe.example")
        self.assertEqual(sum("verify is false" in line for line in self.lines), 1)

    async def test_mixed(self) -> None:
        """An instance says itself what it speaks, before the service does."""
        secured, plain = self.secured(), self.upstream(one)
        self.serve(
            tls=self.trust,
            instances=[
                {"host": "127.0.0.1", "port": secured.port},
                {"host": "127.0.0.1", "port": plain.port, "tls": False},
            ],
        )
        for _ in range(4):
            self.assertEqual(await self.call("unary"), 1)
        self.assertEqual((secured.requests, plain.requests), (2, 2))

    async def test_health(self) -> None:
        """Checks of health go over TLS as well: who cannot prove its name is ill."""

        def healthy(connection: RawConnection) -> None:
            connection.json(b"{}")

        good = self.secured(healthy)
        bad = self.secured(healthy, self.authority.issue("x", "expired", days=-1))
        self.serveTLS(
            good,
            bad,
            healthCheck="/health",
            healthIntervalMs=50,
            healthTimeoutMs=20_000,
            unhealthyAfter=1,
        )
        while not (self.value("checks_total", "Probe", "healthy") and self.ill()):
            await deferLater(self.reactor, 0.01)
        self.assertEqual(self.value("instances", "Probe", "healthy"), 1)
        self.assertEqual(bad.requests, 0)

    def ill(self) -> Any:
        """Count the instances that are ill."""
        return self.value("instances", "Probe", "unhealthy")


class UntrustedTests(SecuredCase):
    """What is not as it should be: nothing is sent, and others get the call."""

    async def refusals(self, bad: RawUpstream, tls: Any = None) -> None:
        """Check what becomes of calls to an instance whose handshake fails."""
        self.serveTLS(bad, tls=tls, ejectAfter=3)

        async def requests() -> AsyncIterator[Any]:
            yield {}

        for _ in range(3):
            self.assertRegex(await self.refused(self.call("unary")), UNREACHABLE)
        self.assertEqual(await self.collect("bidirectional", requests()), ([], "UNAVAILABLE"))
        self.assertEqual(bad.requests, 0)
        self.assertGreaterEqual(self.value("attempts_total", "Probe", "failed"), 4)
        self.assertEqual(self.value("instances", "Probe", "ejected"), 1)
        good = self.upstream(one)
        self.serve(
            tls=tls or self.trust,
            instances=[
                {"host": "127.0.0.1", "port": bad.port},
                {"host": "127.0.0.1", "port": good.port, "tls": False},
            ],
        )
        # Not one of them is marked idempotent.
        for _ in range(4):
            self.assertEqual(await self.call("unary"), 1)
        self.assertEqual((bad.requests, good.requests), (0, 4))

    async def test_wrongName(self) -> None:
        """An instance that is trusted and has another name."""
        tls = {**self.trust, "serverName": "other.example"}
        await self.refusals(self.secured(), tls)
        self.told("the certificate has another name")

    async def test_untrusted(self) -> None:
        """An instance whose authority is not trusted."""
        stranger = Authority(self.folder / "strangers", "strangers")
        await self.refusals(self.secured(files=stranger.issue()))
        self.told("certificate verify failed")

    async def test_system(self) -> None:
        """Without a file those are believed that the system believes: not the tests' authority."""
        await self.refusals(self.secured(), tls={"serverName": "probe.example"})

    async def test_expired(self) -> None:
        """Whose time is over."""
        await self.refusals(self.secured(files=self.authority.issue(days=-1)))

    async def test_plain(self) -> None:
        """Who does not speak TLS."""

        def taken(connection: RawConnection) -> None:
            raise AssertionError("a request in plain text")

        bad = self.upstream(taken)
        original = RawConnection.dataReceived

        def dataReceived(connection: RawConnection, data: bytes) -> None:
            if connection.upstream is bad:
                connection.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            original(connection, data)

        self.patch(RawConnection, "dataReceived", dataReceived)
        await self.refusals(bad)

    async def test_closing(self) -> None:
        """Who hangs up in the middle of the handshake."""
        bad = self.upstream(one)
        self.patch(RawConnection, "dataReceived", lambda connection, data: connection.close())
        self.serveTLS(bad)
        self.assertRegex(await self.refused(self.call("unary")), UNREACHABLE)

    async def test_unknown(self) -> None:
        """An instance that does not trust the certificate of the client."""
        clients = Authority(self.folder / "clients", "clients")
        old = {"lowerMaximumSecurityTo": TLSVersion.TLSv1_2}
        await self.refusals(self.knowing(clients, **old))

    async def test_unknownLater(self) -> None:
        """The same where the protocol lets the client hear of it after it has sent its call."""
        clients = Authority(self.folder / "clients", "clients")
        bad, good = self.knowing(clients), self.upstream(one)
        self.serve(
            tls=self.trust,
            instances=[
                {"host": "127.0.0.1", "port": bad.port},
                {"host": "127.0.0.1", "port": good.port, "tls": False},
            ],
        )
        for _ in range(4):
            self.assertEqual(await self.call("unary"), 1)
        self.assertEqual((bad.requests, good.requests), (0, 4))

    async def test_unknownStream(self) -> None:
        """A stream of requests is not begun again: they have been taken from their caller."""
        clients = Authority(self.folder / "clients", "clients")
        bad = self.knowing(clients)
        self.serveTLS(bad)

        async def requests() -> AsyncIterator[Any]:
            yield {"a": 1}
            await waiting

        waiting: Deferred[None] = Deferred()
        with self.assertRaises(ServiceError) as raised:
            async for _ in await self.call("bidirectional", requests()):
                pass
        self.assertEqual(raised.exception.code, "UNAVAILABLE")
        self.assertEqual((bad.requests, self.value("retries_total", "Probe")), (0, 0))

    def told(self, reason: str) -> None:
        """Check that the log says once what is wrong, and the caller is not told."""
        self.assertEqual(sum(reason in line for line in self.lines), 2, self.lines)
