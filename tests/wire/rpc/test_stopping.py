"""Listening and stopping, in every order and under load."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from hyperframe.frame import PingFrame
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.application import GRPCServer
from tests.support.h2client import H2Client
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
OK = grpc.StatusCode.OK
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

LONG_MS = 60_000
PATIENCE = 45.0


class SlowService:
    """
    Handlers that take their time.

    @ivar open: How many are at work.
    """

    def __init__(self) -> None:
        self.open = 0
        self._slow: list[Deferred[None]] = []

    def unary(self, call: Any) -> str:
        """Answer at once."""
        return str(call.request)

    async def slow(self, call: Any) -> str:
        """Answer when the test lets it."""
        self.open += 1
        waiting: Deferred[None] = Deferred()
        self._slow.append(waiting)
        await waiting
        self.open -= 1
        return str(call.request)

    def letGo(self) -> None:
        """Have the slow ones answer."""
        while self._slow:
            self._slow.pop().callback(None)

    async def endless(self, call: Any) -> AsyncIterator[str]:
        """Send for ever."""
        self.open += 1
        try:
            while True:
                yield "more"
        finally:
            self.open -= 1

    async def stuck(self, call: Any) -> AsyncIterator[str]:
        """Wait for ever, to clean up."""
        self.open += 1
        try:
            while True:
                yield "more"
        finally:
            self.open -= 1
            await Deferred()

    async def stubborn(self, call: Any) -> str:
        """Do not hear of a cancel."""
        self.open += 1
        while True:
            try:
                await Deferred()
            except CancelledError:
                self.open -= 1


class StopCase(RPCCase):
    """An application, and channels of grpcio."""

    def setUp(self) -> None:
        """Make both."""
        super().setUp()
        self.app = self.make()

    def make(self) -> GRPCServer:
        """Make an application."""
        self.service = SlowService()
        unary, streams = ("Unary", "Slow", "Stubborn"), ("Endless", "Stuck")
        kinds = dict.fromkeys(unary, "none") | dict.fromkeys(streams, "server")
        definition = textService(**kinds)
        app = server.grpc().withOptions(grpc={"health": False})
        return app.addService(definition=definition, implementation=self.service)

    def channel(self, port: int) -> Any:
        """Connect."""
        # Two channels of the same arguments would share one connection.
        channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self.addCleanup(channel.close)
        return channel

    async def call(self, port: int) -> Any:
        """Make a call; give how it ends."""
        future = self.channel(port).unary_unary("/test.Service/Unary").future(b"", timeout=PATIENCE)
        return await deferToThread(future.code)

    async def opened(self, count: int) -> None:
        """Wait until so many handlers are at work."""
        while self.service.open != count:
            await deferLater(self.reactor, 0.001)


class LoadTests(StopCase):
    """C{stop} while calls are open."""

    @long("takes seconds")
    async def test_grace(self) -> None:
        """Within the grace calls end as they should, streams without end at its end; then all."""
        threads = set(threading.enumerate())
        port = await self.listen(self.app)
        channel = self.channel(port)
        slow = channel.unary_unary("/test.Service/Slow")
        calls = [slow.future(b"%d" % at, timeout=PATIENCE) for at in range(20)]
        streams = [
            channel.unary_stream("/test.Service/Endless")(b"", timeout=PATIENCE) for _ in range(5)
        ]
        ended = [deferToThread(lambda stream=stream: list(_taken(stream))) for stream in streams]
        await self.opened(25)
        stopping = self.app.stop(1500)
        self.service.letGo()
        await stopping
        self.assertEqual({await deferToThread(each.code) for each in calls}, {OK})
        for each in ended:
            await each
        self.assertEqual({stream.code() for stream in streams}, {UNAVAILABLE})
        self.assertEqual((self.app.activeCalls, self.service.open), (0, 0))
        left = {each.name for each in set(threading.enumerate()) - threads}
        self.assertNotIn("storagegate-grpc", left)

    async def test_stubborn(self) -> None:
        """A handler that does not hear of its cancel does not keep a server from stopping."""
        port = await self.listen(self.app)
        call = self.channel(port).unary_unary("/test.Service/Stubborn").future(b"")
        await self.opened(1)
        await self.app.stop(50)
        self.assertEqual(await deferToThread(call.code), UNAVAILABLE)
        await self.opened(0)

    async def test_stuck(self) -> None:
        """Nor does a generator that never comes to its end, once it was closed."""
        port = await self.listen(self.app)
        stream = self.channel(port).unary_stream("/test.Service/Stuck")(b"")
        ended = deferToThread(lambda: list(_taken(stream)))
        await self.opened(1)
        await self.app.stop(50)
        await ended
        await self.opened(0)

    async def test_newCalls(self) -> None:
        """During the grace no call is accepted any more, and those that are there go on."""
        port = await self.listen(self.app)
        slow = self.channel(port).unary_unary("/test.Service/Slow").future(b"", timeout=PATIENCE)
        await self.opened(1)
        stopping = self.app.stop(LONG_MS)
        self.assertEqual(await self.call(port), UNAVAILABLE)
        self.service.letGo()
        self.assertEqual(await deferToThread(slow.code), OK)
        await stopping

    async def test_waitingCalls(self) -> None:
        """Calls that had come when a server stops are answered, were they looked at or not."""
        port = await self.listen(self.app)
        clients = [H2Client(port) for _ in range(6)]
        for client in clients:
            self.addCleanup(client.close)
            await deferToThread(client.call, "/test.Service/Unary", b"")
        # Nothing of this gives the reactor a turn.
        calls = []
        for client in clients:
            for _ in range(40):
                stream = client.begin("/test.Service/Unary")
                client.sendMessage(stream, b"", isLast=True)
                calls.append((client, stream))
        for client in clients:
            # What was sent before a ping that is answered has been read.
            for count in (1, 2):
                client.ping()
                client.readUntil(lambda client=client, count=count: pongs(client) == count)
        stopping = self.app.stop(LONG_MS)
        statuses = [(await deferToThread(each.finish, stream)).status for each, stream in calls]
        await stopping
        # A few may be on their way still, from the connection to where calls wait.
        self.assertGreater(statuses.count(0), 200)


def pongs(client: H2Client) -> int:
    """Count the pings that were answered."""
    return sum(isinstance(each, PingFrame) and "ACK" in each.flags for each in client.frames)


def _taken(stream: Any) -> Any:
    """Take what comes, up to an end of any kind."""
    try:
        yield from stream
    except grpc.RpcError:
        return


class OrderTests(StopCase):
    """C{listen}, C{stop} and C{withOptions} again and again."""

    async def test_stopTwice(self) -> None:
        """Who stops again waits for the same end, and may shorten the grace but not prolong it."""
        port = await self.listen(self.app)
        call = self.channel(port).unary_unary("/test.Service/Stubborn").future(b"")
        await self.opened(1)
        before = time.monotonic()
        first = self.app.stop(LONG_MS)
        second = self.app.stop(100)
        third = self.app.stop(LONG_MS)
        await second
        self.assertGreater(time.monotonic() - before, 0.09)
        self.assertEqual(self.service.open, 0)
        await first
        await third
        await deferToThread(call.code)

    async def test_stopEarly(self) -> None:
        """To stop what never listened, or has stopped, takes no time."""
        self.successResultOf(self.app.stop())
        await self.listen(self.app)
        await self.app.stop()
        self.successResultOf(self.app.stop())

    async def test_listenTwice(self) -> None:
        """An application may have several ports; one that is taken does not harm the others."""
        first = await self.listen(self.app)
        second = await self.listen(self.app)
        await self.assertFailure(self.app.listen(first, reactor=self.reactor), CannotListenError)
        self.assertEqual([await self.call(first), await self.call(second)], [OK, OK])
        await self.app.stop(0)
        self.assertEqual(
            [await self.call(first), await self.call(second)], [UNAVAILABLE, UNAVAILABLE]
        )

    async def test_unixTaken(self) -> None:
        """A UNIX socket that is served is taken; what a server left behind is not."""
        with tempfile.TemporaryDirectory() as directory:
            place = f"unix:{directory}/socket"
            await self.app.listen(place, reactor=self.reactor)
            other = self.make()
            await self.assertFailure(other.listen(place, reactor=self.reactor), CannotListenError)
            await self.app.stop(0)
            with socket.socket(socket.AF_UNIX) as left:
                if not os.path.exists(f"{directory}/socket"):
                    left.bind(f"{directory}/socket")
            await other.listen(place, reactor=self.reactor)
            await other.stop(0)

    async def test_again(self) -> None:
        """An application that has stopped may listen again, at the same place."""
        port = await self.listen(self.app)
        await self.app.stop(0)
        again = await self.app.listen(port, reactor=self.reactor)
        self.assertEqual(again.getHost().port, port)
        self.assertEqual(await self.call(port), OK)

    async def test_optionsLater(self) -> None:
        """Options that are set while a port is open hold for the next one, and not for it."""
        first = await self.listen(self.app)
        self.app.withOptions(grpc={"maxConcurrentRpcs": 1})
        second = await self.listen(self.app)
        slow = self.channel(first).unary_unary("/test.Service/Slow").future(b"", timeout=PATIENCE)
        await self.opened(1)
        self.assertEqual([await self.call(first), await self.call(second)], [OK, EXHAUSTED])
        self.service.letGo()
        self.assertEqual(await deferToThread(slow.code), OK)
