"""Endpoint strings, over real sockets."""

import os
import socket
from typing import Any

from twisted.internet import endpoints
from twisted.internet.error import CannotListenError

from storagegate.net.endpoints import listen
from storagegate.net.http.message import ChannelRequest
from storagegate.net.transport import FastServer
from tests.net.support import head
from tests.wire.http.support import TCP, ServedCase
from tests.wire.http.tls import makeCertificate


class EndpointTests(ServedCase):
    """Each kind of endpoint, with our transport under it."""

    def setUp(self) -> None:
        """Notice what a request comes over."""
        super().setUp()
        self.seen: list[tuple[bool, bool, str]] = []

    async def handle(self, request: ChannelRequest) -> None:
        """Answer, and remember the transport."""
        wire: Any = request.channel.connection
        below = getattr(wire.transport, "transport", wire.transport)
        self.seen.append((isinstance(below, FastServer), request.secure, request.clientHost))
        request.respond(200, [], b"hello")

    async def assertWorks(self, server: str, client: str, secure: bool, host: str) -> None:
        """Assert that requests come through, over our transport."""
        port = await self.serve(self.handle, server)
        number = getattr(port.getHost(), "port", 0)
        connection = await self.connect(port, client.format(port=number))
        for _ in range(2):
            connection.received = b""
            connection.write(head())
            await connection.until(b"hello")
        self.assertEqual(self.seen, [(True, secure, host)] * 2)

    async def test_tcp(self) -> None:
        """C{tcp:} is TCP."""
        await self.assertWorks(TCP, "tcp:127.0.0.1:{port}", False, "127.0.0.1")

    async def test_tcp6(self) -> None:
        """C{tcp6:} is TCP over IPv6."""
        await self.assertWorks(r"tcp6:0:interface=\:\:1", r"tcp:\:\:1:{port}", False, "::1")

    async def test_unix(self) -> None:
        """C{unix:} is a socket in the file system; nobody has an address there."""
        path = os.path.relpath(self.mktemp())
        await self.assertWorks(f"unix:{path}", f"unix:{path}", False, "")

    async def test_ssl(self) -> None:
        """C{ssl:} is TLS with one certificate."""
        certificate = makeCertificate(self.mktemp())
        await self.assertWorks(
            f"ssl:0:interface=127.0.0.1:privateKey={certificate}:certKey={certificate}",
            "ssl:127.0.0.1:{port}",
            True,
            "127.0.0.1",
        )

    async def test_tls(self) -> None:
        """C{tls:} is TLS with a directory of certificates, chosen by name."""
        directory = self.mktemp()
        makeCertificate(directory)
        await self.assertWorks(
            f"tls:{directory}:0:interface=127.0.0.1",
            f"tls:localhost:{{port}}:trustRoots={directory}",
            True,
            "127.0.0.1",
        )

    async def test_adopted(self) -> None:
        """A socket that another process has opened is listened on, as C{systemd:} hands it over."""
        opened = socket.socket()
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        opened.setblocking(False)
        # What systemd would have told when this process started.
        self.patch(endpoints._SystemdParser._sddaemon, "_descriptors", [opened.detach()])
        port = await self.serve(self.handle, "systemd:domain=INET:index=0")
        connection = await self.connect(port)
        connection.write(head())
        await connection.until(b"hello")
        self.assertEqual(self.seen, [(True, False, "127.0.0.1")])

    async def test_taken(self) -> None:
        """A place that is taken fails."""
        port: Any = (await self.serve(self.handle)).getHost().port
        taken = listen(self.reactor, f"tcp:{port}:interface=127.0.0.1", self.sites[0])
        await self.assertFailure(taken, CannotListenError)

    async def test_noEndpoint(self) -> None:
        """What is no endpoint is an error at once."""
        self.assertRaises(ValueError, listen, self.reactor, "nonsense:1", self.sites)
