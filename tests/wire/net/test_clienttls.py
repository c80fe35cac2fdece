"""Whole requests over TLS, to a server that has another name."""

from pathlib import Path
from typing import Any

from service_identity import pyopenssl
from twisted.internet import _sslverify
from twisted.internet.ssl import PrivateCertificate
from twisted.trial.unittest import TestCase

from storagegate.net.endpoints import processReactor
from storagegate.net.http.client import HTTPClient
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.net.tls import ClientTLSOptions
from tests.support.certificates import Authority
from tests.support.rawupstream import RawConnection, RawUpstream


class NameTests(TestCase):
    """The client of discovery, of signing keys and of token endpoints."""

    timeout = 60

    def setUp(self) -> None:
        """Have an authority."""
        self.authority = Authority(Path(self.mktemp()).absolute())

    def serve(self, **issued: Any) -> None:
        """Have a server with a certificate."""
        certificate, key = self.authority.issue(**issued)
        pair = PrivateCertificate.loadPEM(certificate.read_bytes() + key.read_bytes())
        self.server = RawUpstream(
            processReactor(),
            lambda connection: RawConnection.json(connection, b"{}"),
            pair.options(),
        )
        self.addCleanup(self.server.stop)

    async def ask(self, host: str = "localhost") -> Any:
        """Send a request that has a secret."""
        tls = ClientTLSOptions(caFile=str(self.authority.path))
        client = HTTPClient(processReactor(), f"https://{host}:{self.server.port}", tls)
        return await client.request("GET", "/", {"Authorization": "Bearer secret"})

    async def refusal(self) -> str:
        """Return why a request is refused, of which nothing was sent."""
        try:
            await self.ask()
        except HTTPClientError as error:
            self.assertEqual(self.server.requests, 0)
            return str(error)
        raise AssertionError("the request was sent")

    async def test_named(self) -> None:
        """A server with the name of the URL, or its address, gets the request."""
        self.serve()
        self.assertEqual((await self.ask()).status, 200)
        self.assertEqual((await self.ask("127.0.0.1")).status, 200)

    async def test_otherName(self) -> None:
        """A server with another name gets nothing."""
        self.serve(host="other.example", address="127.0.0.2")
        self.assertIn("has another name", await self.refusal())

    async def test_noNames(self) -> None:
        """A certificate without names is for no server."""
        self.serve(isNamed=False)
        self.assertIn("does not contain any", await self.refusal())
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    async def test_brokenLibrary(self) -> None:
        """A library that fails in an unexpected way has verified no name."""

        def broken(*arguments: Any, **more: Any) -> None:
            raise TypeError("the library has changed")

        for each in (_sslverify, pyopenssl):
            self.patch(each, "verify_service_identity", broken)
        self.serve(host="other.example")
        self.assertIn("the library has changed", await self.refusal())
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)
