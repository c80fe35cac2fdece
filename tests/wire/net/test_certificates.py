"""Certificates of listeners that are renewed while they are in use."""

import os
import socket
import ssl
from pathlib import Path
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.net.endpoints import listen, processReactor
from tests.support.certificates import Authority


class FolderTests(TestCase):
    """A listener C{tls:}, whose folder has a certificate for each name."""

    timeout = 60

    async def setUp(self) -> None:
        """Serve with two names."""
        self.authority = Authority(Path(self.mktemp()).absolute())
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        for host in ("a.example", "b.example"):
            self.issue(host)
        factory = Factory.forProtocol(Protocol)
        self.port: Any = await listen(
            processReactor(), f"tls:{self.folder}:0:interface=127.0.0.1", factory
        )
        self.addCleanup(self.port.stopListening)

    def issue(self, host: str, keyOf: str | None = None) -> bytes:
        """Write a certificate with its key, or another one; return the certificate."""
        certificate, key = self.authority.issue(host)
        if keyOf is not None:
            key = self.authority.issue(keyOf)[1]
        new = self.folder / "new"
        new.write_bytes(certificate.read_bytes() + key.read_bytes())
        os.replace(new, self.folder / f"{host}.pem")
        return ssl.PEM_cert_to_DER_cert(certificate.read_text())

    async def served(self, host: str) -> bytes | None:
        """Return the certificate that a client receives."""

        def handshake() -> bytes | None:
            context = ssl.create_default_context(cafile=str(self.authority.path))
            address = ("127.0.0.1", self.port.getHost().port)
            with (
                socket.create_connection(address, 20) as plain,
                context.wrap_socket(plain, server_hostname=host) as secured,
            ):
                return secured.getpeercert(True)

        return await deferToThread(handshake)

    async def test_renewed(self) -> None:
        """A file that is replaced is served to the next client; others stay."""
        before = await self.served("a.example")
        after = self.issue("b.example")
        self.assertEqual(await self.served("b.example"), after)
        self.assertEqual(await self.served("a.example"), before)
        self.assertEqual(len(self.port.certificates.ends), 2)

    async def test_broken(self) -> None:
        """A file whose key belongs to another certificate changes nothing in the folder."""
        before = await self.served("a.example")
        self.issue("a.example", keyOf="c.example")
        self.issue("b.example")
        self.assertEqual(await self.served("a.example"), before)
        self.assertIn("a.example.pem belongs to no certificate", self.port.certificates.problem)
        after = self.issue("a.example")
        self.assertEqual(await self.served("a.example"), after)
        self.assertIsNone(self.port.certificates.problem)
