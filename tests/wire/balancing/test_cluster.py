"""Three instances as processes, a gateway in front of them, and what happens when one is killed."""

from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate.core.context import Client, RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.meters import Meters
from storagegate.core.tracing import newTracing
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.surroundings import Surroundings
from tests.support.upstreamgateway import UpstreamGateway

INTERVAL = 0.2
"""Seconds between two checks of health."""


class ClusterTests(TestCase):
    """A cluster."""

    timeout = 30

    async def setUp(self) -> None:
        """Start three instances."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.upstreams = [UpstreamGateway(reactor) for _ in range(3)]
        await gatherResults([Deferred.fromCoroutine(each.start()) for each in self.upstreams])
        for each in self.upstreams:
            self.addCleanup(each.kill)

    def serve(self, **options: Any) -> None:
        """Put a gateway in front of them."""
        self.meters = Meters()
        self.gateway = ProtocolGateway(protocols=[], surroundings=Surroundings(meters=self.meters))
        self.gateway.configureServiceDiscovery(
            services={
                "Probe": {
                    "instances": [
                        {"host": "127.0.0.1", "port": each.port} for each in self.upstreams
                    ],
                    "methods": {"echo": {"idempotent": True}, "calls": {"idempotent": True}},
                    "healthCheck": "/api/health",
                    "healthIntervalMs": int(INTERVAL * 1000),
                    **options,
                }
            }
        )
        self.gateway.start(self.reactor)
        self.addCleanup(self.gateway.stop, 0)

    def call(self, method: str, request: Any) -> Deferred[Any]:
        """Call through the gateway."""
        context = RequestContext("tcp", "Probe", method, Client("me", "127.0.0.1", 1), newTracing())
        return Deferred.fromCoroutine(self.gateway.invoker.call(context, request))

    def states(self) -> dict[str, float]:
        """Count the instances by what is known of them."""
        families = {family.name: family for family in self.meters.snapshot()}
        samples = families["storagegate_upstream_instances"].samples
        return {labels[1]: count for labels, count in samples if count}

    async def load(self, method: str, errors: list[ServiceError]) -> int:
        """Call, one call after the other, until C{isLoading} says no; give how many succeeded."""
        succeeded = 0
        while self.isLoading:
            try:
                await self.call(method, {"seconds": 0.002})
                succeeded += 1
            except ServiceError as error:
                errors.append(error)
        return succeeded

    async def until(self, condition: Any, seconds: float) -> float:
        """Wait until something is so, and tell how long that took."""
        began = self.reactor.seconds()
        while not condition():
            self.assertLess(self.reactor.seconds() - began, seconds, self.states())
            await deferLater(self.reactor, 0.01)
        return float(self.reactor.seconds() - began)

    async def test_kill(self) -> None:
        """
        No idempotent call fails when an instance is killed under load; within two checks it gets no
        more calls, and when it is back it gets its share again.
        """
        self.serve()
        errors: list[ServiceError] = []
        self.isLoading = True
        loads = [Deferred.fromCoroutine(self.load("echo", errors)) for _ in range(8)]
        await deferLater(self.reactor, 0.3)
        await self.upstreams[0].kill()
        await self.until(lambda: self.states().get("well") == 2, 2 * INTERVAL + 0.3)
        await deferLater(self.reactor, 0.3)
        await self.upstreams[0].start()
        await self.until(lambda: self.states() == {"well": 3}, 2 * INTERVAL + 1)
        self.isLoading = False
        counts = await gatherResults(loads)
        self.assertEqual(errors, [])
        self.assertGreater(sum(counts), 50)
        pids = [(await self.call("echo", {}))["pid"] for _ in range(6)]
        self.assertEqual(len(set(pids)), 3)
        self.assertIn(self.upstreams[0].transport.pid, pids)

    async def test_once(self) -> None:
        """A call that is not marked idempotent goes out once, though instances die of it."""
        self.serve(healthCheck=None, ejectAfter=100)
        with self.assertRaises(ServiceError) as raised:
            await self.call("once", {"die": True})
        self.assertEqual(raised.exception.code, "UNAVAILABLE")
        dead = [each for each in self.upstreams if each.transport.pid is None]
        await self.until(lambda: any(each.transport.pid is None for each in self.upstreams), 2)
        alive = [each for each in self.upstreams if each.transport.pid is not None]
        self.assertEqual((len(dead) <= 1, len(alive)), (True, 2))
        counts = [(await self.call("calls", {}))["calls"] for _ in range(4)]
        self.assertEqual(counts, [0] * 4)

    async def test_neverTwice(self) -> None:
        """While an instance is killed under load, no such call arrives twice."""
        self.serve()
        errors: list[ServiceError] = []
        self.isLoading = True
        loads = [Deferred.fromCoroutine(self.load("once", errors)) for _ in range(8)]
        await deferLater(self.reactor, 0.3)
        before = self.upstreams[0]
        await before.kill()
        await deferLater(self.reactor, 0.3)
        self.isLoading = False
        succeeded = sum(await gatherResults(loads))
        # Those that were with it when it died, and no others.
        self.assertTrue(all(error.code == "UNAVAILABLE" for error in errors))
        self.assertLessEqual(len(errors), 8)
        seen = 0
        for each in self.upstreams[1:]:
            self.gateway.invoker  # noqa: B018
            seen += await self.countOf(each)
        # Nobody knows what the dead one has seen; what the others have is no more than succeeded.
        self.assertLessEqual(seen, succeeded)

    async def countOf(self, upstream: UpstreamGateway) -> int:
        """Ask an instance how often C{once} was called."""
        pid = upstream.transport.pid
        while True:
            if (await self.call("echo", {}))["pid"] == pid:
                break
        raise NotImplementedError
