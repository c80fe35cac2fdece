"""WebSockets of others on our channel, over real sockets."""

from typing import Any

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import (
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString
from twisted.protocols.wire import Echo
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from tests.net.support import statuses
from tests.wire.http.support import RawClient, Rendering, ServedCase, get
from tests.wire.http.tls import makeCertificate


class EchoServer(WebSocketServerProtocol):
    """A WebSocket that says everything again."""

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Say it again."""
        self.sendMessage(payload, isBinary)


class WebSocketTests(ServedCase):
    """Autobahn's resource, which takes the connection away from us."""

    def tree(self) -> Resource:
        """Make a tree with a WebSocket in it."""
        factory = WebSocketServerFactory()
        factory.protocol = EchoServer
        # Autobahn would start timers that outlive the test.
        factory.setProtocolOptions(openHandshakeTimeout=0, closeHandshakeTimeout=0)
        root = Resource()
        root.putChild(b"ws", WebSocketResource(factory))
        return root

    async def converse(self, description: str, url: str) -> None:
        """Say two things, and hear them again."""
        heard: list[bytes] = []
        closed: Deferred[None] = Deferred()

        class Client(WebSocketClientProtocol):
            def onOpen(self) -> None:
                self.sendMessage(b"one")

            def onMessage(self, payload: bytes, isBinary: bool) -> None:
                heard.append(payload)
                if len(heard) == 1:
                    self.sendMessage(b"x" * 200_000)
                else:
                    self.sendClose()

            def onClose(self, wasClean: bool, code: int, reason: str) -> None:
                closed.callback(None)

        factory = WebSocketClientFactory(url)
        factory.protocol = Client
        factory.setProtocolOptions(openHandshakeTimeout=0, closeHandshakeTimeout=0)
        await clientFromString(self.reactor, description).connect(factory)
        await closed
        self.assertEqual(heard, [b"one", b"x" * 200_000])

    async def test_tcp(self) -> None:
        """A WebSocket works, and the site forgets its connection."""
        address: Any = (await self.serve(self.tree())).getHost()
        await self.converse(f"tcp:127.0.0.1:{address.port}", f"ws://127.0.0.1:{address.port}/ws")
        self.assertEqual(self.sites[0].requests, 0)
        self.assertEqual(self.sites[0]._channels, set())

    async def test_tls(self) -> None:
        """So it does over TLS."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(self.tree(), f"ssl:0:interface=127.0.0.1:privateKey={certificate}")
        address: Any = port.getHost()
        await self.converse(f"ssl:127.0.0.1:{address.port}", f"wss://127.0.0.1:{address.port}/ws")

    async def test_leftover(self) -> None:
        """What a client sends right behind its handshake is not lost."""
        client: RawClient = await self.connect(await self.serve(self.tree()))
        handshake = get(
            b"/ws",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        )
        client.write(handshake + b"\x82\x83\0\0\0\0abc")
        await client.until(b"\x82\x03abc")

    async def test_twisted(self) -> None:
        """Twisted's own WebSocket takes the connection in its own way."""

        def render(request: Any) -> int:
            protocol = Echo()
            request.channel._protocolUpgradeForWebsockets(protocol)
            return NOT_DONE_YET

        client = await self.connect(await self.serve(Rendering(render)))
        client.write(get(b"/") + b"hello")
        await client.until(b"hello")

    async def test_notAWebSocket(self) -> None:
        """An ordinary request to it gets Autobahn's own refusal."""
        client = await self.connect(await self.serve(self.tree()))
        client.write(get(b"/ws", b"Connection: Upgrade", b"Upgrade: other"))
        self.assertEqual(statuses(await client.until(b"\r\n\r\n"))[0] // 100, 4)
