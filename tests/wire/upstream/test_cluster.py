"""Three instances as processes, a gateway in front of them, and what happens when one is killed."""

import itertools
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.host import GatewayResources
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracecontext import newTracing
from tests.support.selection import long
from tests.support.upstreamgateway import UpstreamGateway

INTERVAL_MS = 200
"""Between two checks of health."""


class ClusterTests(TestCase):
    """A cluster."""

    timeout = 120

    async def setUp(self) -> None:
        """Start three instances."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.tally = Path(self.mktemp())
        self.upstreams = [UpstreamGateway(self, str(self.tally)) for _ in range(3)]
        self.ids = itertools.count()
        self.succeeded = 0
        starting = [Deferred.fromCoroutine(each.start()) for each in self.upstreams]
        for each in self.upstreams:
            self.addCleanup(each.kill)
        await gatherResults(starting)

    def serve(self, **options: Any) -> None:
        """Put a gateway in front of them."""
        self.meters = MetricsRegistry()
        self.gateway = ProtocolGateway(
            protocols=[], surroundings=GatewayResources(meters=self.meters)
        )
        self.gateway.configureServiceDiscovery(
            services={
                "Probe": {
                    "instances": [
                        {"host": "127.0.0.1", "port": each.port} for each in self.upstreams
                    ],
                    "methods": {"echo": {"idempotent": True}},
                    "healthCheck": "/api/health",
                    "healthIntervalMs": INTERVAL_MS,
                    # Who is there is well, however long it had no turn.
                    "healthTimeoutMs": 30_000,
                    "connectTimeoutMs": 30_000,
                    **options,
                }
            }
        )
        self.gateway.start(self.reactor)
        self.addCleanup(self.gateway.stop, 0)

    def call(self, method: str, request: Any) -> Deferred[Any]:
        """Call through the gateway."""
        context = RequestContext(
            "tcp", "Probe", method, ClientInfo("me", "127.0.0.1", 1), newTracing()
        )
        return Deferred.fromCoroutine(self.gateway.invoker.call(context, request))

    def counted(self, name: str) -> dict[str, float]:
        """Give what a meter has counted, by its second label."""
        families = {family.name: family for family in self.meters.snapshot()}
        samples = families[f"storagegate_upstream_{name}"].samples
        return {labels[1]: count for labels, count in samples if count}

    def states(self) -> dict[str, float]:
        """Count the instances by what is known of them."""
        return self.counted("instances")

    async def load(self, method: str, errors: list[ServiceError]) -> int:
        """Call, one call after the other, until C{isLoading} says no; give how many succeeded."""
        succeeded = 0
        while self.isLoading:
            try:
                await self.call(method, {"seconds": 0.002, "id": next(self.ids)})
                succeeded += 1
                self.succeeded += 1
            except ServiceError as error:
                errors.append(error)
        return succeeded

    async def until(self, condition: Any) -> None:
        """Wait until something is so; the test's timeout ends the waiting."""
        while not condition():
            await deferLater(self.reactor, 0.01)

    def checksUntilIll(self) -> list[float]:
        """Note how many checks had failed whenever the log says that an instance is not well."""
        noted: list[float] = []

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            if "is unhealthy" in formatEvent(event):
                noted.append(self.counted("checks_total")["unhealthy"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        return noted

    @long("takes a second or more")
    async def test_kill(self) -> None:
        """
        No idempotent call fails when an instance is killed under load, and no other call arrives
        twice; within two checks it gets no more calls, and when it is back it gets its share again.
        """
        self.serve()
        failed: list[ServiceError] = []
        lost: list[ServiceError] = []
        self.isLoading = True
        loads = [
            Deferred.fromCoroutine(self.load(method, errors))
            for method, errors in (("echo", failed), ("once", lost))
            for _ in range(6)
        ]
        checks = self.checksUntilIll()
        await self.until(lambda: self.succeeded > 50)
        await self.upstreams[0].kill()
        await self.until(lambda: checks)
        self.assertEqual((checks, self.states().get("healthy")), ([2.0], 2))
        await self.upstreams[0].start()
        await self.until(lambda: self.states() == {"healthy": 3, "well": 3})
        before = self.succeeded
        await self.until(lambda: self.succeeded > before + 50)
        self.isLoading = False
        counts = await gatherResults(loads)
        self.assertEqual(failed, [])
        # Those fail that were with it when it died, and no others.
        self.assertEqual({error.code for error in lost} | {"UNAVAILABLE"}, {"UNAVAILABLE"})
        self.assertLessEqual(len(lost), 6)
        seen = self.tally.read_text().split()
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual(sum(counts[6:]), len(seen))
        pids = [(await self.call("echo", {}))["pid"] for _ in range(6)]
        self.assertEqual(sorted(pids), sorted(each.pid for each in self.upstreams for _ in "12"))
