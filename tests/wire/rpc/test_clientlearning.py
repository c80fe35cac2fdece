"""What the client learns of a server by reflection."""

from typing import Any

from twisted.internet.defer import gatherResults

from storagegate.core.errors import GrpcError
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.reflectionclient import ReflectionError
from tests.support.ports import heldPort
from tests.support.selection import long
from tests.wire.rpc.clientcase import ClientCase, spawn


class LearningTests(ClientCase):
    """Against grpcio's own reflection, which has version 1alpha only."""

    async def test_only(self) -> None:
        """The only service of a server is that of its client; calls wait until it is known."""
        client = self.connect(None)
        calls = [client.send(text="x", sentAt="2026-01-02T03:04:05Z") for _ in range(3)]
        for response in await gatherResults([call.deferred() for call in calls]):
            self.assertEqual(response, {"text": "x", "sentAt": "2026-01-02T03:04:05Z"})
        self.assertEqual(list(client.services), ["probe.Echo"])
        received = [parcel.get("count", 0) async for parcel in client.split(count=3)]
        self.assertEqual(received, [0, 1, 2])

    async def test_firstIsStream(self) -> None:
        """Streams wait as well, both ways."""
        requests = [{"text": "a"}, {"text": "b"}]
        seen = [parcel["text"] async for parcel in self.connect(None).chat(requests)]
        self.assertEqual(seen, ["a", "b"])

    async def test_named(self) -> None:
        """A service that is named is learned alone."""
        client = self.connect("probe.Other")
        self.assertEqual(await client.only(text="x"), {"text": "x"})
        self.assertEqual(list(client.services), ["probe.Other"])

    async def test_ready(self) -> None:
        """After C{ready} the methods are known."""
        client = self.connect(None)
        self.assertIs(await client.ready(), client)
        self.assertRaises(AttributeError, getattr, client, "sned")
        self.assertRaises(ConversionError, client.send, {"count": "x"})

    async def test_several(self) -> None:
        """Of several services, those methods are the client's own that one has alone."""
        self.server = await self.serve(reflect=("probe.Echo", "probe.Other"))
        client = await self.connect(None).ready()
        self.assertEqual(await client.only(text="x"), {"text": "x"})
        self.assertEqual((await client.join([{"text": "y"}]))["seen"], ["y"])
        error = self.assertRaises(AttributeError, getattr, client, "send")
        self.assertIn("probe.Echo, probe.Other", str(error))
        other = client.service("probe.Other")
        self.assertEqual(await other.send(text="z"), {"text": "z"})
        self.assertRaises(AttributeError, getattr, other, "split")
        again = self.connect(None).service("probe.Echo")
        self.assertEqual(await again.send(text="z"), {"text": "z"})

    async def test_wrong(self) -> None:
        """What is found out to be wrong later ends the call, with the error that it is."""
        client = self.connect(None)
        await self.assertFailure(client.sned().deferred(), AttributeError)
        client = self.connect(None)
        await self.assertFailure(client.send(count="x").deferred(), ConversionError)
        client = self.connect(None)
        await self.assertFailure(client.split(count=1).deferred(), TypeError)

        async def take() -> None:
            async for _ in self.connect(None).send():
                pass

        await self.assertFailure(spawn(take()), TypeError)

    async def test_unknownService(self) -> None:
        """A service that the server does not have is an error that names it."""
        error = await self.assertFailure(self.connect("probe.No").ready(), ReflectionError)
        self.assertIn("probe.No", str(error))

    async def test_noReflection(self) -> None:
        """A server without reflection is UNIMPLEMENTED."""
        self.server = await self.serve(reflect=None)
        await self.assertEnds(self.connect(None).send(), "UNIMPLEMENTED")

    @long("takes a second or more")
    async def test_again(self) -> None:
        """Learning that has failed is tried again by the next call."""
        number = heldPort(self)
        client = self.connect(None, port=number)
        await self.assertEnds(client.send(), "UNAVAILABLE")
        await self.serve(address=f"127.0.0.1:{number}")
        call = client.send(text="x", waitForReady=True)
        self.assertEqual(await call, {"text": "x"})

    async def test_cancelled(self) -> None:
        """A call that is given up before its method is known is never made."""
        client = self.connect(None)
        call = client.send(text="x")
        call.cancel()
        await self.assertEnds(call, "CANCELLED")
        self.assertEqual(len(await call.trailers()), 0)
        await client.ready()

    async def test_closed(self) -> None:
        """To close the client ends the calls that wait."""
        client = self.connect(None)
        call: Any = client.send(text="x", deadlineMs=50_000)
        await client.close()
        error = await self.assertFailure(call.deferred(), GrpcError)
        self.assertEqual(error.statusName, "CANCELLED")

    async def test_closedAtLast(self) -> None:
        """So does it when the services have just become known."""
        client = self.connect(None)
        closed = client.ready().addCallback(lambda known: client.close())
        call: Any = client.send(text="x")
        await closed
        await self.assertEnds(call, "CANCELLED")
