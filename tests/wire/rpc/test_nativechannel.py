"""
A client on the native engine does what one on grpc core does: their cases are the same.

Cases that differ are here in full, with what the specification wants.
"""

import socket
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import DefaultOpenSSLContextFactory
from twisted.python.failure import Failure

from storagegate.core.errors import GrpcError
from storagegate.rpc.client import createGrpcClient
from tests.support.certificates import Authority
from tests.support.nativeengine import WithNativeClients, casesWith
from tests.wire.rpc import (
    clientcase,
    test_client,
    test_clientends,
    test_clientlearning,
    test_clientpressure,
    test_clienttls,
    test_clientwithserver,
    test_generated,
    test_lyingserver,
    test_typed,
)

_MODULES = (
    test_client,
    test_clientends,
    test_clientlearning,
    test_clientpressure,
    test_clienttls,
    test_clientwithserver,
    test_generated,
    test_lyingserver,
    test_typed,
)


class NativeChannelManyTests(WithNativeClients, test_clientends.ManyTests):
    """Very many calls."""

    threads = 0


class NativeChannelErrorTests(WithNativeClients, test_client.ErrorTests):
    """Errors."""

    surplus = "INTERNAL"


class NativeChannelPlaceTests(WithNativeClients, clientcase.ClientCase):
    """Servers at several addresses, and some that do not speak HTTP/2."""

    async def test_several(self) -> None:
        """A server at one of several addresses is found."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            absent = taken.getsockname()[1]
            place = f"ipv4:127.0.0.1:{absent},127.0.0.1:{self.server.port}"
            client = createGrpcClient(place, "insecure", self.server.loaded.Echo)
            self.addCleanup(self.closeClean, client)
            self.assertEqual(await client.send(text="x"), {"text": "x"})

    async def test_noDelay(self) -> None:
        """A message is sent at once, also while another one is not acknowledged yet."""
        client: Any = self.connect()
        await client.send(text="x")
        transport = client._engine._connection.transport
        self.assertEqual((transport.getTcpNoDelay(), transport.getTcpKeepAlive()), (True, True))

    async def test_name(self) -> None:
        """A name is looked up; one that does not exist is told."""
        client: Any = self.connect(host="localhost")
        self.assertEqual(await client.send(text="x"), {"text": "x"})
        client = self.connect(host="nothing.invalid")
        error = await self.assertEnds(client.send(text="x"), "UNAVAILABLE")
        self.assertIn("nothing.invalid", error.message)

    async def test_noHTTP2(self) -> None:
        """A server whose TLS offers no HTTP/2 is told so."""
        authority = Authority(Path(self.mktemp()))
        certificate, key = authority.issue("localhost")
        loop: Any = reactor
        context = DefaultOpenSSLContextFactory(str(key), str(certificate))
        port = loop.listenSSL(0, Factory.forProtocol(Protocol), context, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        ca = {"ca": authority.path}
        client: Any = self.connect(credentials=ca, port=port.getHost().port, host="localhost")
        error = await self.assertEnds(client.send(text="x"), "UNAVAILABLE")
        self.assertIn("no HTTP/2 by ALPN", error.message)

    async def test_closedInHandshake(self) -> None:
        """A client that is closed before the server has answered by TLS closes its connection."""
        accepted: Deferred[None] = Deferred()
        lost: Deferred[None] = Deferred()

        class Silent(Protocol):
            def dataReceived(self, data: bytes) -> None:
                if not accepted.called:
                    accepted.callback(None)

            def connectionLost(self, reason: Failure = connectionDone) -> None:
                lost.callback(None)

        loop: Any = reactor
        port = loop.listenTCP(0, Factory.forProtocol(Silent), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        ca = {"ca": Authority(Path(self.mktemp())).path}
        client: Any = self.connect(credentials=ca, port=port.getHost().port)
        call = client.send(text="x").deferred()
        await accepted
        await client.close()
        await self.assertFailure(call, GrpcError)
        await lost.addTimeout(5, loop)

    async def test_badPair(self) -> None:
        """A key that does not belong to the certificate is refused at once."""
        authority = Authority(Path(self.mktemp()))
        (certificate, _), (_, key) = authority.issue("a"), authority.issue("b")
        pair = {"ca": authority.path, "cert": certificate, "key": key}
        error = self.assertRaises(ValueError, self.connect, credentials=pair)
        self.assertIn("does not belong to the certificate", str(error))


globals().update(casesWith(WithNativeClients, "NativeChannel", _MODULES, __name__, globals()))
