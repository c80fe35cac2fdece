"""What is counted, logged and traced of gRPC calls that no handler is asked about."""

import json
from pathlib import Path
from typing import Any

import grpc
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.host import GatewayResources
from tests.support.gateway import Probe
from tests.support.log import Sink
from tests.support.spans import KeptTracer
from tests.wire.gateway.test_grpc import PROTO, TIMEOUT
from tests.wire.rpc.support import RPCCase

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class RefusedTests(RPCCase):
    """A gateway over gRPC, whose requests have at most 1,000 bytes."""

    async def serve(self, **options: Any) -> None:
        """Serve a fixture, and connect a client."""
        self.sink = Sink()
        self.tracer = KeptTracer()
        around = GatewayResources(logSink=self.sink, tracer=self.tracer)
        self.gateway = createProtocolGateway(
            protocols=["grpc"],
            grpc={"port": 0, "maxMessageSize": 1000, **options},
            surroundings=around,
        )
        self.gateway.configureMonitoring(
            logging={}, metrics={"protocolMetrics": {"grpc": ["stream_count", "rpc_latency"]}}
        )
        self.gateway.addService(Probe(self.reactor).definition())
        ports = await self.gateway.listen(reactor=self.reactor)
        self.addCleanup(self.gateway.stop, 0)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc'].getHost().port}")
        self.addCleanup(lambda: deferToThread(self.channel.close))

    def ask(self, path: str, *requests: bytes, **metadata: str) -> Deferred[Any]:
        """Call a method with any number of requests; give the error."""

        def call() -> Any:
            begun = self.channel.stream_stream(path)(
                iter(requests), timeout=TIMEOUT, metadata=tuple(metadata.items())
            )
            try:
                list(begun)
            except grpc.RpcError as error:
                return error
            return None

        return deferToThread(call)

    async def line(self) -> Any:
        """Wait for the one line of the log."""
        while not self.sink.lines:
            await deferToThread(lambda: None)
        [text] = self.sink.lines
        return json.loads(text)

    def samples(self, name: str) -> Any:
        """Give a family's samples."""
        for family in self.gateway._metrics.meters.snapshot():
            if family.name == f"storagegate_{name}":
                return dict(family.samples)
        return {}

    async def test_unknown(self) -> None:
        """A method or a service that is not there is one call, one line and one span."""
        for path in ("/Probe/nothing", "/a.b.Strange/get", "/grpc.health.v1.Health/Nothing"):
            await self.serve()
            error = await self.ask(path, b"", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
            self.assertEqual(error.code().name, "UNIMPLEMENTED")
            self.assertIn(("x-trace-id", TRACE), [tuple(e) for e in error.initial_metadata()])
            labels = ("grpc", "unknown", "unknown", "UNIMPLEMENTED")
            self.assertEqual(self.samples("requests_total"), {labels: 1})
            self.assertEqual(self.samples("errors_total"), {("grpc", "UNIMPLEMENTED"): 1})
            line = await self.line()
            told = [line[name] for name in ("service", "method", "status", "path", "trace_id")]
            self.assertEqual(told, ["unknown", "unknown", "UNIMPLEMENTED", path, TRACE])
            [span] = self.tracer.spans
            self.assertEqual((span.tracing.traceId, span.name), (TRACE, "unknown/unknown"))

    async def test_longPath(self) -> None:
        """Whoever makes names up fills neither the log nor the page."""
        await self.serve()
        await self.ask("/" + "x" * 3000, b"")
        self.assertLess(len((await self.line())["path"]), 300)

    async def test_requests(self) -> None:
        """A request that cannot be read, is too long or is not there is its method's."""
        for requests, status, code in (
            ((b"\xff",), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
            ((bytes(2000),), "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE"),
            ((), "UNIMPLEMENTED", "UNIMPLEMENTED"),
        ):
            await self.serve()
            error = await self.ask("/Probe/echo", *requests)
            self.assertEqual(error.code().name, status)
            line = await self.line()
            self.assertEqual((line["method"], line["status"]), ("echo", code))
            self.assertEqual(self.samples("requests_total"), {("grpc", "Probe", "echo", code): 1})
            self.assertEqual(len(self.tracer.spans), 1)

    async def test_missing(self) -> None:
        """An RPC of a proto that nothing answers is as unknown as any other."""
        path = Path(self.mktemp()).absolute().with_suffix(".proto")
        path.write_text(PROTO)
        await self.serve(protoFiles=[str(path)], services={"shop.Front": "Probe"})
        await self.ask("/shop.Front/Missing", b"")
        line = await self.line()
        self.assertEqual((line["method"], line["path"]), ("unknown", "/shop.Front/Missing"))

    async def test_hook(self) -> None:
        """A request that transformRequest refuses is its method's, and has its trace."""

        def transform(request: Any, method: str) -> Any:
            raise ValueError("no such request")

        await self.serve(transformRequest=transform)
        error = await self.ask("/Probe/echo", b"")
        line = await self.line()
        self.assertEqual((line["method"], line["status"]), ("echo", "INTERNAL_ERROR"))
        self.assertIn(("x-trace-id", line["trace_id"]), list(map(tuple, error.initial_metadata())))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    async def test_ownServices(self) -> None:
        """Health is not observed when it answers, and not when it cannot."""
        await self.serve()
        error = await self.ask("/grpc.health.v1.Health/Check", b"\xff")
        self.assertEqual(error.code().name, "INVALID_ARGUMENT")
        self.assertIsNone(await self.ask("/Probe/echo", b""))
        self.assertEqual((await self.line())["service"], "Probe")
