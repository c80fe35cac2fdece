"""How a server hands over to another process: answers wait while clients are told to go there."""

from collections.abc import Callable
from typing import Any

import grpc
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.gateway.gateway import createProtocolGateway
from tests.wire.rpc.support import RPCCase

PATIENCE = 45.0
LONG_MS = 60_000
SETTLE_MS = 1000

OK = grpc.StatusCode.OK
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class SlowedReactor:
    """
    A reactor whose delays are the test's.

    @ivar clock: What is to be done later, other than in the next turn.
    @ivar leave: What it would call when it stops.
    """

    leave: Callable[[], Any]

    def __init__(self, reactor: Any) -> None:
        self.clock = Clock()
        self._reactor = reactor

    def callLater(self, delay: float, *arguments: Any) -> Any:
        """Call later."""
        return (self.clock if delay else self._reactor).callLater(delay, *arguments)

    def addSystemEventTrigger(self, phase: str, event: str, function: Callable[[], Any]) -> Any:
        """Keep what is to be called at the end."""
        self.leave = function
        return self._reactor.addSystemEventTrigger(phase, event, function)

    def seconds(self) -> float:
        """Give the test's time."""
        return self.clock.seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


class SettlingTests(RPCCase):
    """C{stop} with C{settleMs}."""

    async def breakIt(self, request: Any, call: Any) -> Any:
        """Wait, and put what cannot be sent past C{setTrailers}."""
        await self.mayBreak
        call.trailers.append(("wrong", 5))
        return request

    async def serve(self) -> None:
        """Serve, and connect."""
        self.mayBreak: Deferred[None] = Deferred()
        self.slowed = SlowedReactor(self.reactor)
        self.clock = self.slowed.clock
        self.app = server.grpc().withOptions(grpc={"health": False})
        self.app.addService("Probe", {"echo": lambda request: request, "broken": self.breakIt})
        port = await self.app.listen(0, "127.0.0.1", reactor=self.slowed)
        self.addCleanup(self.app.stop, 0)
        channel = grpc.insecure_channel(
            f"127.0.0.1:{port.getHost().port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self.addCleanup(lambda: deferToThread(channel.close))
        self.echo = channel.unary_unary("/Probe/echo")
        self.broken = channel.unary_unary("/Probe/broken")
        await deferToThread(self.echo, b"", timeout=PATIENCE)

    async def arrived(self, count: int) -> None:
        """Wait until the server has so many calls."""
        while self.app.activeCalls < count:
            await deferLater(self.reactor, 0.001)

    async def test_settles(self) -> None:
        """Calls that come before clients are told to go are answered, but not before that."""
        await self.serve()
        stopping = self.app.stop(LONG_MS, SETTLE_MS)
        calls = [self.echo.future(b"", timeout=PATIENCE) for _ in range(3)]
        await self.arrived(3)
        self.clock.advance(SETTLE_MS / 1000)
        self.assertEqual([call.done() for call in calls], [False] * 3)
        self.assertNoResult(stopping)
        self.clock.advance(SETTLE_MS / 1000)
        self.assertEqual([await deferToThread(call.code) for call in calls], [OK] * 3)
        await stopping
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_broken(self) -> None:
        """An answer that cannot be sent keeps none of the others back."""
        await self.serve()
        waiting = self.broken.future(b"", timeout=PATIENCE)
        await self.arrived(1)
        stopping = self.app.stop(LONG_MS, SETTLE_MS)
        self.mayBreak.callback(None)
        # Its answer waits now. Otherwise this one would be taken for the next.
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
        call = self.echo.future(b"", timeout=PATIENCE)
        await self.arrived(1)
        self.clock.advance(SETTLE_MS / 1000)
        self.clock.advance(SETTLE_MS / 1000)
        self.assertEqual(await deferToThread(call.code), OK)
        waiting.cancel()
        await stopping
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    async def test_nothingThere(self) -> None:
        """Where no call is under way, the end is there as soon as clients were told."""
        await self.serve()
        stopping = self.app.stop(LONG_MS, SETTLE_MS)
        again = self.app.stop(LONG_MS, SETTLE_MS)
        self.clock.advance(SETTLE_MS / 1000)
        await stopping
        await again
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_hurried(self) -> None:
        """Who stops again, and does not want to wait, is not kept waiting."""
        await self.serve()
        stopping = self.app.stop(LONG_MS, SETTLE_MS)
        call = self.echo.future(b"", timeout=PATIENCE)
        await self.arrived(1)
        await self.app.stop(0)
        await stopping
        self.assertIn(await deferToThread(call.code), (OK, UNAVAILABLE))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_reactorStops(self) -> None:
        """A reactor that stops meanwhile waits, and nothing is cut for it."""
        await self.serve()
        stopping = self.app.stop(LONG_MS, SETTLE_MS)
        call = self.echo.future(b"", timeout=PATIENCE)
        await self.arrived(1)
        left = self.slowed.leave()
        await deferLater(self.reactor, 0)
        self.clock.advance(SETTLE_MS / 1000)
        self.clock.advance(SETTLE_MS / 1000)
        self.assertEqual(await deferToThread(call.code), OK)
        await left
        await stopping

    async def test_cut(self) -> None:
        """A grace that ends first cuts what is held, and nothing is started for it any more."""
        await self.serve()
        stopping = self.app.stop(SETTLE_MS / 2, SETTLE_MS)
        call = self.echo.future(b"", timeout=PATIENCE)
        await self.arrived(1)
        self.clock.advance(SETTLE_MS / 1000)
        self.clock.advance(SETTLE_MS / 2000)
        self.assertEqual(await deferToThread(call.code), UNAVAILABLE)
        self.clock.advance(SETTLE_MS / 2000)
        await stopping
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_gateway(self) -> None:
        """A gateway does so where another process serves the same port, and only there."""
        for patienceMs, expected in ((2000, 1), (0, 0)):
            slowed = SlowedReactor(self.reactor)
            gateway = createProtocolGateway(protocols=["grpc"], grpc={"port": 0})
            await gateway.listen(reactor=slowed)
            closing = gateway.stop(0, patienceMs)
            waiting = slowed.clock.getDelayedCalls()
            self.assertEqual(len(waiting), expected)
            for each in waiting:
                slowed.clock.advance(each.getTime())
            await closing
