"""Health, asked by the stubs of grpcio's own package."""

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from twisted.internet.task import deferLater
from twisted.internet.threads import blockingCallFromThread, deferToThread, deferToThreadPool
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from tests.support.delayed import TurnedReactor
from tests.wire.rpc.support import RPCCase

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

SECONDS = 45
"""After which a client gives up, and the test fails."""


def asking(service: str) -> Any:
    """Make the question for a service."""
    return health_pb2.HealthCheckRequest(service=service)


class HealthTests(RPCCase):
    """A server, and a client in a thread."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve a service, with reflection."""
        super().setUp()
        self.app = server.grpc().withOptions(grpc={"reflection": True})
        self.app.addService(name="Probe", methods={"echo": {"handler": lambda request: request}})
        port = await self.listen(self.app)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = health_pb2_grpc.HealthStub(self.channel)
        self.addCleanup(deferToThread, self.channel.close)

    def check(self, service: str) -> int:
        """Ask once; in a thread."""
        return int(self.stub.Check(asking(service), timeout=SECONDS).status)

    def inReactor(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have something done in the reactor, from a thread."""
        return blockingCallFromThread(self.reactor, function, *arguments)

    async def test_check(self) -> None:
        """Every service of a server that listens is serving, and so is the server itself."""
        for service in ("", *self.app.services):
            self.assertEqual(await deferToThread(self.check, service), SERVING, service)
        self.assertIn("grpc.health.v1.Health", self.app.services)
        self.assertIn("grpc.reflection.v1.ServerReflection", self.app.services)

    async def test_changed(self) -> None:
        """A status that is set is told, of that service alone."""
        self.app.setServingStatus("Probe", "NOT_SERVING")
        self.assertEqual(await deferToThread(self.check, "Probe"), NOT_SERVING)
        self.assertEqual(await deferToThread(self.check, ""), SERVING)

    async def test_unknown(self) -> None:
        """A check of an unknown service is NOT_FOUND."""
        error = await self.assertFailure(deferToThread(self.check, "Nothing"), grpc.RpcError)
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)

    async def test_list(self) -> None:
        """A list has them all."""
        request = health_pb2.HealthListRequest()
        found = await deferToThread(self.stub.List, request, timeout=SECONDS)
        self.assertEqual(set(found.statuses), {"", *self.app.services})

    async def test_watch(self) -> None:
        """Who watches is told at once, and of every change."""

        def watch() -> list[int]:
            stream = self.stub.Watch(asking("Probe"), timeout=SECONDS)
            told = [next(stream).status]
            for status in ("NOT_SERVING", "SERVING"):
                self.inReactor(self.app.setServingStatus, "Probe", status)
                told.append(next(stream).status)
            stream.cancel()
            return told

        self.assertEqual(await deferToThread(watch), [SERVING, NOT_SERVING, SERVING])

    async def test_watchUnknown(self) -> None:
        """Who watches an unknown service is told so, and told when it becomes known."""

        def watch() -> list[int]:
            stream = self.stub.Watch(asking("Later"), timeout=SECONDS)
            told = [next(stream).status]
            methods = {"echo": {"handler": lambda request: request}}
            self.inReactor(lambda: self.app.addService(name="Later", methods=methods) and None)
            told.append(next(stream).status)
            stream.cancel()
            return told

        self.assertEqual(await deferToThread(watch), [SERVICE_UNKNOWN, SERVING])

    async def test_many(self) -> None:
        """Many watch one service, all are told; nothing is left of them when they go."""

        def watch() -> list[list[int]]:
            streams = [self.stub.Watch(asking("Probe"), timeout=SECONDS) for _ in range(80)]
            told = [[next(stream).status] for stream in streams]
            self.inReactor(self.app.setServingStatus, "Probe", "NOT_SERVING")
            for stream, statuses in zip(streams, told, strict=True):
                statuses.append(next(stream).status)
                stream.cancel()
            return told

        self.assertEqual(await deferToThread(watch), [[SERVING, NOT_SERVING]] * 80)
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.01)
        self.assertEqual(self.app.health.watching, {})

    async def test_stop(self) -> None:
        """A server that stops says that it is not serving, and does not wait for who watches."""

        def watch() -> tuple[list[int], Any]:
            stream = self.stub.Watch(asking("Probe"), timeout=SECONDS)
            told = [next(stream).status]
            # As much as the client has: a stop that waited for its grace would fail the test.
            self.inReactor(self.app.stop, SECONDS * 1000)
            told += [each.status for each in stream]
            return told, stream.code()

        told, code = await deferToThread(watch)
        self.assertEqual(told, [SERVING, NOT_SERVING])
        self.assertEqual(code, grpc.StatusCode.OK)

    async def test_again(self) -> None:
        """A server that listens again is serving again."""
        await self.app.stop(0)
        port = await self.listen(self.app)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            found = await deferToThread(stub.Check, asking(""), timeout=SECONDS)
        self.assertEqual(found.status, SERVING)


class StandingReactor(TurnedReactor):
    """One whose process does not end."""

    def addSystemEventTrigger(self, phase: str, event: str, function: Any) -> None:
        """Take note of nothing: there is no shutdown."""

    def removeSystemEventTrigger(self, trigger: None) -> None:
        """Forget it."""


class PeriodTests(SynchronousTestCase):
    """A server whose time is the test's."""

    def setUp(self) -> None:
        """Serve, and have threads for a client."""
        self.reactor = StandingReactor()
        self.pool = ThreadPool(2, 2)
        self.pool.start()
        self.addCleanup(self.pool.stop)
        self.app = server.grpc()
        port = self.reactor.settle(self.app.listen(0, "127.0.0.1", reactor=self.reactor))
        self.addCleanup(lambda: self.reactor.settle(self.app.stop(0)))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port.getHost().port}")
        self.addCleanup(self.channel.close)
        self.stub = health_pb2_grpc.HealthStub(self.channel)

    def inThread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Begin something in a thread."""
        return deferToThreadPool(self.reactor, self.pool, function, *arguments)

    def test_period(self) -> None:
        """The status comes every 5000 milliseconds for as long as the stream is open."""
        stream = self.stub.Watch(asking(""), timeout=SECONDS)
        told: list[int] = []

        def watch() -> None:
            while len(told) < 5:
                told.append(next(stream).status)
            stream.cancel()

        watching = self.inThread(watch)
        for count in range(1, 5):
            self.reactor.turnUntil(lambda count=count: len(told) == count, lambda: None)
            self.reactor.advance(4.875)
            # What was sent before the answer to another call would have come before it.
            self.reactor.settle(self.inThread(self.stub.Check, asking(""), SECONDS))
            self.assertEqual(len(told), count)
            self.reactor.advance(0.125)
        self.reactor.settle(watching)
        self.assertEqual(told, [SERVING] * 5)
