"""Tokens of an issuer that is a process of its own, signed by another library."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import PrivateCertificate
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, FileBodyProducer, readBody
from twisted.web.http_headers import Headers

from storagegate.auth.oauth import MAX_DOCUMENT_BYTES, MetadataFetcher, readOAuth, readURL
from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.net.http.client import HTTPStatusError
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.net.tls import ClientTLSOptions
from tests.support.certificates import Authority
from tests.support.issuerprocess import IssuerProcess
from tests.support.tokens import AUDIENCE, claims, ecKey, makeContext, rsaKey, signed

HERE = frozenset({"127.0.0.1", "localhost"})


class OAuthCase(TestCase):
    """What the cases of this file share."""

    timeout = 60

    async def setUp(self) -> None:
        """Start an issuer."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.issuer = IssuerProcess(Path(self.mktemp()).absolute())
        await self.issuer.start(reactor)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.issuer.stop()))
        self.issuer.publish(f"{self.issuer.issuer}/keys", rsaKey(), ecKey())

    def token(self, **more: Any) -> str:
        """Sign a token of this issuer."""
        given = claims(**{"iss": self.issuer.issuer, **more})
        return signed(rsaKey(), "RS256", given, kid="rsa")

    async def user(self, token: str, provider: Any = None) -> Any:
        """Find out whose a token is."""
        options = {"issuer": self.issuer.issuer, "audience": AUDIENCE}
        provider = provider or readOAuth(options)
        user = provider.verify(token, makeContext())
        return await user if hasattr(user, "__await__") else user


class ProviderTests(OAuthCase):
    """The provider alone."""

    async def test_good(self) -> None:
        """Discovery and keys are fetched once, and tokens of two kinds of keys are good."""
        provider = readOAuth({"issuer": self.issuer.issuer, "audience": AUDIENCE})
        self.assertEqual((await self.user(self.token(), provider))["sub"], "ann")
        given = claims(iss=self.issuer.issuer, sub="bob")
        token = signed(ecKey(), "ES256", given, kid="ec")
        self.assertEqual(await self.user(token, provider), given)
        self.assertEqual(
            await self.issuer.requests(), ["/.well-known/openid-configuration", "/keys"]
        )

    async def test_older(self) -> None:
        """An issuer that describes itself as RFC 8414 has it is found, too."""
        known = self.issuer.directory / ".well-known"
        (known / "openid-configuration").rename(known / "oauth-authorization-server")
        self.assertEqual((await self.user(self.token()))["sub"], "ann")

    async def test_redirected(self) -> None:
        """A redirection of the keys is not followed."""
        (self.issuer.directory / "moved").mkdir()
        (self.issuer.directory / "keys").rename(self.issuer.directory / "moved" / "index.html")
        self.issuer.publish(f"{self.issuer.issuer}/moved", rsaKey())
        await self.unavailable()
        self.assertEqual((await self.issuer.requests())[1:], ["/moved"])

    async def test_elsewhere(self) -> None:
        """Keys at an address that only the document names are not fetched from this machine."""
        connected = []

        class Listening(Factory):
            def buildProtocol(self, addr: Any) -> Protocol:
                connected.append(addr)
                return Protocol()

        port = self.reactor.listenTCP(0, Listening(), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.issuer.publish(f"https://localhost:{port.getHost().port}/keys", rsaKey())
        await self.unavailable()
        self.assertEqual(len(await self.issuer.requests()), 1)
        self.assertEqual(connected, [])

    async def test_large(self) -> None:
        """Keys that are too large are not read."""
        with (self.issuer.directory / "keys").open("ab") as keys:
            keys.write(b" " * MAX_DOCUMENT_BYTES)
        await self.unavailable()

    async def test_away(self) -> None:
        """When the issuer is not there, a token is neither good nor bad."""
        await self.issuer.stop()
        await self.unavailable()

    async def unavailable(self) -> None:
        """Ask; nobody knows."""
        with self.assertRaises(ServiceError) as caught:
            await self.user(self.token())
        self.assertEqual(caught.exception.code, "UNAVAILABLE")


class GatewayTests(OAuthCase):
    """A gateway that is asked over HTTP."""

    async def ask(self, port: int, token: str | None) -> tuple[int, Any]:
        """Call a method."""
        headers = Headers({b"Content-Type": [b"application/json"]})
        if token is not None:
            headers.addRawHeader(b"Authorization", b"Bearer " + token.encode())
        response = await Agent(self.reactor).request(
            b"POST",
            f"http://127.0.0.1:{port}/api/Probe/whoami".encode(),
            headers,
            FileBodyProducer(BytesIO(b"{}")),
        )
        return response.code, json.loads(await readBody(response))

    async def test_call(self) -> None:
        """Who has a token of the issuer may call; nobody else may."""

        async def whoami(request: Any, context: Any) -> Any:
            return {"user": context.authentication["sub"]}

        gateway = createProtocolGateway(protocols=["http"], port=0, hostname="127.0.0.1")
        gateway.addService(
            "Probe", {"methods": {"whoami": whoami}, "authentication": {"required": True}}
        )
        gateway.configureAuthentication(
            providers={"oauth": {"issuer": self.issuer.issuer, "audience": AUDIENCE}}
        )
        ports = await gateway.listen(reactor=self.reactor)
        self.addCleanup(gateway.stop, 0)
        port = ports["http"].getHost().port
        status, body = await self.ask(port, self.token())
        self.assertEqual((status, body), (200, {"data": {"user": "ann"}}))
        for token in (
            None,
            self.token(aud="other"),
            self.token(exp=1000),
            self.token(iss="https://evil.example"),
            self.token()[:-4] + "AAAA",
        ):
            status, _ = await self.ask(port, token)
            self.assertEqual(status, 401)


class Raw(Protocol):
    """Answers whatever is asked with some bytes, again and again."""

    answer = b""
    again = False

    def dataReceived(self, data: bytes) -> None:
        """Answer."""
        self.transport.write(self.answer)  # type: ignore[union-attr]
        if self.again:
            self.transport.registerProducer(self, False)  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        """Answer more."""
        self.transport.write(b"X-More: " + b"x" * 8000 + b"\r\n")  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        """Nobody listens any more."""


class FetcherTests(TestCase):
    """Documents of servers that are not what they should be."""

    timeout = 60

    def setUp(self) -> None:
        """Find the reactor."""
        from twisted.internet import reactor

        self.reactor: Any = reactor

    def serve(self, kind: type[Protocol], context: Any = None) -> int:
        """Serve on a port."""
        factory = Factory.forProtocol(kind)
        if context is None:
            port = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
        else:
            port = self.reactor.listenSSL(0, factory, context, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def fetch(self, url: str, tls: Any = None) -> bytes:
        """Fetch a document."""
        body: bytes = await MetadataFetcher(self.reactor, HERE, tls).fetch(readURL(url))
        return body

    async def test_endlessHead(self) -> None:
        """A head that never ends is not read to its end."""

        class Endless(Raw):
            answer = b"HTTP/1.1 200 OK\r\n"
            again = True

        port = self.serve(Endless)
        with self.assertRaises(HTTPClientError):
            await self.fetch(f"http://127.0.0.1:{port}/")

    async def test_answers(self) -> None:
        """Only a whole document with 200 is one."""

        class Cut(Raw):
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"

            def dataReceived(self, data: bytes) -> None:
                super().dataReceived(data)
                self.transport.loseConnection()  # type: ignore[union-attr]

        class Moved(Raw):
            answer = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"

        class Good(Raw):
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

        self.assertEqual(await self.fetch(f"http://127.0.0.1:{self.serve(Good)}/"), b"{}")
        with self.assertRaises(HTTPClientError):
            await self.fetch(f"http://127.0.0.1:{self.serve(Cut)}/")
        with self.assertRaises(HTTPStatusError) as caught:
            await self.fetch(f"http://127.0.0.1:{self.serve(Moved)}/")
        self.assertEqual(caught.exception.status, 302)

    async def test_certificates(self) -> None:
        """Over TLS the server is who the URL says, as an authority that is trusted has it."""

        class Good(Raw):
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

        authority = Authority(Path(self.mktemp()))
        certificate, key = authority.issue("localhost")
        pem = certificate.read_bytes() + key.read_bytes()
        port = self.serve(Good, PrivateCertificate.loadPEM(pem).options())
        trusting = ClientTLSOptions(caFile=str(authority.path))
        url = f"https://localhost:{port}/"
        self.assertEqual(await self.fetch(url, trusting), b"{}")
        other = Authority(Path(self.mktemp()), "other")
        for tls in (None, ClientTLSOptions(caFile=str(other.path))):
            with self.assertRaises(HTTPClientError) as caught:
                await self.fetch(url, tls)
            self.assertIn("certificate verify failed", str(caught.exception))
