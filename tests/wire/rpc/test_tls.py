"""TLS: who gets in, what a handler learns of him, and new certificates while calls go on."""

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.core.options import OptionError
from tests.support.certificates import Authority
from tests.support.h2client import H2Client
from tests.support.ports import heldPort
from tests.wire.rpc.optioncase import ECHO, OptionCase, struct


def read(path: Path | None) -> bytes | None:
    """Read a file, if there is one."""
    return None if path is None else path.read_bytes()


class TLSCase(OptionCase):
    """A case with an authority and the files of a server."""

    def setUp(self) -> None:
        """Make them."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.directory = Path(self.mktemp())
        self.authority = Authority(self.directory)
        self.cert, self.key = self.authority.issue()

    async def serveTLS(self, **tls: Any) -> int:
        """Serve with these files."""
        return await self.serve(tls={"cert": self.cert, "key": self.key, **tls})

    async def call(
        self, port: int, ca: Path, pair: tuple[Path, Path] | None = None
    ) -> grpc.StatusCode:
        """
        Call by grpcio.

        @param ca: Who vouches for the server.
        @param pair: The client's certificate and key.
        """
        cert, key = pair or (None, None)

        def run() -> grpc.StatusCode:
            credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(cert))
            with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
                echo = channel.unary_unary(ECHO)
                try:
                    self.assertEqual(echo(struct(a="b"), timeout=20), struct(a="b"))
                except grpc.RpcError as error:
                    return error.code()
                return grpc.StatusCode.OK

        return await deferToThread(run)


class ClientTests(TLSCase):
    """Who gets in."""

    async def test_handshake(self) -> None:
        """A client that trusts the server's authority calls it; nothing is known of the client."""
        port = await self.serveTLS()
        self.assertEqual(await self.call(port, self.authority.path), grpc.StatusCode.OK)
        self.assertNotIn("x509_common_name", self.context)

    async def test_http2(self) -> None:
        """The protocol is agreed on by ALPN, RFC 9113 section 3.2, and calls are as ever."""
        port = await self.serveTLS()
        context = ssl.create_default_context(cafile=str(self.authority.path))
        stream = await self.within(
            port, lambda client: client.call(ECHO, struct(a="b")), context=context
        )
        self.assertEqual(stream.messages, [(False, struct(a="b"))])

    async def test_otherAuthority(self) -> None:
        """A client that trusts another authority does not call it."""
        port = await self.serveTLS()
        other = Authority(self.directory / "other")
        self.assertEqual(await self.call(port, other.path), grpc.StatusCode.UNAVAILABLE)

    async def test_inTheClear(self) -> None:
        """A client without TLS gets nowhere, and the server goes on."""
        port = await self.serveTLS()

        def use(client: H2Client) -> bool:
            client.readToEnd()
            return bool(client.frames)

        self.assertFalse(await self.within(port, use))
        self.assertEqual(await self.call(port, self.authority.path), grpc.StatusCode.OK)

    async def test_required(self) -> None:
        """With C{ca} a client needs a certificate that it vouches for; handlers see its name."""
        port = await self.serveTLS(ca=self.authority.path)
        mine = self.authority.issue("another")
        stranger = Authority(self.directory / "other").issue("stranger")
        ca = self.authority.path
        self.assertEqual(await self.call(port, ca), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(await self.call(port, ca, stranger), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(self.context, {})
        self.assertEqual(await self.call(port, ca, mine), grpc.StatusCode.OK)
        self.assertEqual(self.context["x509_common_name"], [b"another"])
        self.assertEqual(
            x509.load_pem_x509_certificate(self.context["x509_pem_cert"][0]),
            x509.load_pem_x509_certificate(mine[0].read_bytes()),
        )

    async def test_left(self) -> None:
        """A handler learns of the client even when it has left."""
        mine = self.authority.issue("another")
        left: Deferred[Any] = Deferred()
        begun: Deferred[None] = Deferred()

        async def wait(request: Any, call: Any) -> None:
            begun.callback(None)
            try:
                await Deferred()
            finally:
                deferLater(self.reactor, 0.3, lambda: call.authContext).chainDeferred(left)

        app = server.grpc().withOptions(
            tls={"cert": self.cert, "key": self.key, "ca": self.authority.path},
            grpc={"health": False},
        )
        app.addService(name="Probe", methods={"wait": wait})
        port = await app.listen(0)
        self.addCleanup(app.stop, 0)
        credentials = grpc.ssl_channel_credentials(
            read(self.authority.path), read(mine[1]), read(mine[0])
        )
        channel = grpc.secure_channel(f"localhost:{port.getHost().port}", credentials)
        asked = channel.unary_unary("/Probe/wait").future(struct(a="b"))
        await begun
        self.assertFalse(asked.done())
        await deferToThread(channel.close)
        self.assertEqual((await left)["x509_common_name"], [b"another"])

    async def test_none(self) -> None:
        """With C{clientAuth} none is asked for, though there is C{ca}."""
        port = await self.serveTLS(ca=self.authority.path, clientAuth="none")
        self.assertEqual(await self.call(port, self.authority.path), grpc.StatusCode.OK)

    async def test_badFiles(self) -> None:
        """Files that cannot be used are an error of listen, and the port stays free."""
        app = server.grpc().withOptions(
            tls={"cert": self.cert, "key": self.directory / "gone"}, grpc={"health": False}
        )
        port = heldPort(self)
        error = self.assertRaises(OptionError, app.listen, port)
        self.assertIn("gone", str(error))
        socket.create_server(("127.0.0.1", port)).close()

    async def test_several(self) -> None:
        """Two certificates are more than grpcio can serve by algorithm."""
        app = server.grpc().withOptions(
            tls={"cert": [self.cert] * 2, "key": [self.key] * 2}, grpc={"health": False}
        )
        error = self.assertRaises(OptionError, app.listen, 0)
        self.assertIn("tls.cert: grpcio serves one certificate", str(error))


class ReloadTests(TLSCase):
    """New files."""

    async def shown(self, port: int) -> int:
        """Give the serial number of the certificate that a new client is shown."""

        def run() -> bytes:
            context = ssl.create_default_context(cafile=str(self.authority.path))
            context.set_alpn_protocols(["h2"])
            with (
                socket.create_connection(("127.0.0.1", port), 20) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                return secured.getpeercert(binary_form=True) or b""

        return x509.load_der_x509_certificate(await deferToThread(run)).serial_number

    def serial(self) -> int:
        """Give the serial number of the certificate that is in the file."""
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number

    def exchange(self) -> None:
        """Put another certificate into the place of the one that is there."""
        cert, key = self.authority.issue(file="new")
        os.replace(cert, self.cert)
        os.replace(key, self.key)

    async def test_new(self) -> None:
        """The next handshake shows the new certificate; no listener is opened anew."""
        port = await self.serveTLS()
        first = self.serial()
        self.assertEqual(await self.shown(port), first)
        self.exchange()
        second = self.serial()
        self.assertNotEqual(first, second)
        self.assertEqual([await self.shown(port) for _ in range(2)], [second, second])

    async def test_open(self) -> None:
        """A connection that is open goes on as it is."""
        port = await self.serveTLS()
        context = ssl.create_default_context(cafile=str(self.authority.path))

        def use(client: H2Client) -> list[int | None]:
            before = client.call(ECHO, struct()).status
            self.exchange()
            return [before, client.call(ECHO, struct()).status]

        self.assertEqual(await self.within(port, use, context=context), [0, 0])

    async def test_bad(self) -> None:
        """Bad files change nothing, until they are good again."""
        port = await self.serveTLS()
        first = self.serial()
        good = self.cert.read_bytes()
        self.cert.write_bytes(good[: len(good) // 2])
        self.assertEqual([await self.shown(port) for _ in range(2)], [first, first])
        self.exchange()
        self.assertEqual(await self.shown(port), self.serial())

    async def test_clients(self) -> None:
        """A new C{ca} decides about the clients of the next handshakes."""
        trusted = self.directory / "trusted.pem"
        trusted.write_bytes(self.authority.path.read_bytes())
        port = await self.serveTLS(ca=trusted)
        other = Authority(self.directory / "other")
        pairs = [self.authority.issue("old"), other.issue("new")]

        async def admitted() -> list[bool]:
            ca = self.authority.path
            found = [await self.call(port, ca, pair) for pair in pairs]
            return [status is grpc.StatusCode.OK for status in found]

        self.assertEqual(await admitted(), [True, False])
        trusted.write_bytes(other.path.read_bytes())
        self.assertEqual(await admitted(), [False, True])
