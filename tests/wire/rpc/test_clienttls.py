"""The client's ways to know its server."""

import os
from pathlib import Path
from typing import Any

import grpc

from tests.support.certificates import Authority
from tests.wire.rpc.clientcase import ClientCase


class TLSTests(ClientCase):
    """TLS, with certificates of an authority of our own."""

    async def setUp(self) -> None:
        """Make certificates and a server that has one."""
        self.authority = Authority(Path(self.mktemp()))
        certificate, key = self.authority.issue("localhost")
        self.pair = (key.read_bytes(), certificate.read_bytes())
        credentials = grpc.ssl_server_credentials([self.pair])
        self.server = await self.serve(credentials)

    async def assertServed(self, credentials: Any, **options: Any) -> None:
        """See that a client is served."""
        client = self.connect(credentials=credentials, **options)
        self.assertEqual(await client.send(text="x"), {"text": "x"})

    async def assertRefused(self, credentials: Any, **options: Any) -> None:
        """See that there is no connection."""
        await self.assertEnds(
            self.connect(credentials=credentials, **options).send(), "UNAVAILABLE"
        )

    async def test_trusted(self) -> None:
        """A server is trusted whose authority is named, by path or by content."""
        path = self.authority.path
        for ca in (str(path), path, path.read_bytes()):
            await self.assertServed({"ca": ca}, host="localhost")

    async def test_untrusted(self) -> None:
        """One of another authority is not, nor is one without TLS."""
        other = Authority(Path(self.mktemp()), "other")
        await self.assertRefused({"ca": other.path})
        await self.assertRefused("insecure")
        self.server = await self.serve()
        await self.assertRefused({"ca": self.authority.path})

    async def test_system(self) -> None:
        """C{tls}, and a mapping without C{ca}, trust the authorities that the system trusts."""
        self.patch(os, "environ", {"SSL_CERT_FILE": str(self.authority.path)})
        await self.assertServed("tls")
        await self.assertServed({})

    async def test_systemRefuses(self) -> None:
        """They do not trust everybody."""
        await self.assertRefused("tls")

    async def test_name(self) -> None:
        """The certificate has to have the name of the address, or the one that is given."""
        certificate, key = self.authority.issue("elsewhere.example")
        pair = (key.read_bytes(), certificate.read_bytes())
        self.server = await self.serve(grpc.ssl_server_credentials([pair]))
        ca = self.authority.path
        await self.assertRefused({"ca": ca}, host="localhost")
        await self.assertServed({"ca": ca, "serverName": "elsewhere.example"}, host="localhost")

    async def test_mutual(self) -> None:
        """A server that wants a certificate gets one."""
        credentials = grpc.ssl_server_credentials(
            [self.pair], self.authority.path.read_bytes(), require_client_auth=True
        )
        self.server = await self.serve(credentials)
        certificate, key = self.authority.issue("another")
        ca = self.authority.path
        await self.assertServed({"ca": ca, "cert": certificate, "key": key})
        await self.assertServed({"ca": ca, "cert": certificate.read_bytes(), "key": str(key)})
        await self.assertRefused({"ca": ca})
