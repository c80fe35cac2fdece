"""How many connections a server has, and how many bytes of messages it has seen."""

from typing import Any

import grpc
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.engine import server as engineserver
from storagegate.rpc.interfaces import NullByteCounter
from tests.wire.rpc.support import RPCCase

TIMEOUT = 20

STRUCT = b"\x0a\x07\x0a\x01a\x12\x02\x20\x01"
"""A google.protobuf.Struct, C{{"a": True}}."""


class ConnectionTests(RPCCase):
    """Servers in one process."""

    def makeApp(self) -> Any:
        """Make an application that gives requests back."""
        return server.grpc().addService(name="Probe", methods={"echo": lambda request: request})

    async def connect(self, port: int) -> Any:
        """Make a connection of its own, and one call."""
        own = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", own)
        self.addCleanup(lambda: deferToThread(channel.close))

        def call() -> None:
            channel.unary_unary("/Probe/echo")(STRUCT, timeout=TIMEOUT)

        await deferToThread(call)
        return channel

    async def test_connections(self) -> None:
        """Each server counts its own, as long as they are there."""
        first, second = self.makeApp(), self.makeApp()
        self.assertEqual(first.connections, 0)
        ports = [await self.listen(first), await self.listen(second)]
        channels = [await self.connect(ports[0]) for _ in range(3)]
        await self.connect(ports[1])
        self.assertEqual((first.connections, second.connections), (3, 1))
        await deferToThread(channels[0].close)
        while first.connections > 2:
            await deferToThread(lambda: None)
        await first.stop(0)
        self.assertEqual((first.connections, second.connections), (0, 1))

    async def test_severalPorts(self) -> None:
        """An application counts those of all its ports; a port tells of its own."""
        app = self.makeApp()
        first, _ = await self.listen(app), await self.listen(app)
        await self.connect(first)
        self.assertEqual(app.connections, 1)
        self.assertEqual([port.connections() for port in app._ports], [1, 0])

    async def test_pages(self) -> None:
        """They are counted to the last, however few are read at a time."""
        self.patch(engineserver, "_PAGE", 2)
        app = self.makeApp()
        port = await self.listen(app)
        for count in range(1, 6):
            await self.connect(port)
            self.assertEqual(app.connections, count)

    async def test_bytes(self) -> None:
        """The bytes of messages are counted both ways."""
        app = self.makeApp()
        traffic = app.traffic = NullByteCounter()
        port = await self.listen(app)
        for count in range(1, 3):
            await self.connect(port)
            expected = count * len(STRUCT)
            self.assertEqual((traffic.bytesIn, traffic.bytesOut), (expected, expected))
