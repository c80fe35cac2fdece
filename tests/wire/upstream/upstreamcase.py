"""A gateway in front of instances that a test has written."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.errors import ServiceError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.gateway.host import GatewayResources
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracecontext import newTracing
from tests.support.rawupstream import Answer, RawUpstream

NDJSON = b"application/x-ndjson"

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)

LIMIT = 4096


def chunk(data: bytes) -> bytes:
    """Write a chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class UpstreamCase(TestCase):
    """
    A gateway in front of instances that the test has written.

    @ivar timing: The reactor of the gateway.
    """

    timeout = 120

    def setUp(self) -> None:
        """Have a reactor."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.timing: Any = reactor

    def upstream(self, answer: Answer, tls: Any = None) -> RawUpstream:
        """Make an instance."""
        upstream = RawUpstream(self.reactor, answer, tls)
        self.addCleanup(upstream.stop)
        return upstream

    def serve(self, *ports: int, **options: Any) -> None:
        """Put a gateway in front of them."""
        self.meters = MetricsRegistry()
        gateway = ProtocolGateway(protocols=[], surroundings=GatewayResources(meters=self.meters))
        gateway.configureHTTP(maxRequestBodySize=LIMIT)
        kinds = ("server", "client", "bidirectional")
        methods = {kind: {"streaming": kind} for kind in kinds}
        gateway.configureServiceDiscovery(
            services={
                "Probe": {
                    "instances": [{"host": "127.0.0.1", "port": port} for port in ports],
                    "methods": {
                        **methods,
                        "safe": {"idempotent": True},
                        "safeServer": {"idempotent": True, "streaming": "server"},
                        "safeClient": {"idempotent": True, "streaming": "client"},
                    },
                    # Both ends take turns in this process: a busy machine may need long.
                    "connectTimeoutMs": 20_000,
                    "ejectMs": 60_000,
                    **options,
                }
            }
        )
        gateway.start(self.timing)
        self.addCleanup(gateway.stop, 0)
        self.invoker = gateway.invoker

    def call(self, method: str, request: Any = {}, **metadata: Any) -> Deferred[Any]:  # noqa: B006
        """Call through the gateway."""
        client = ClientInfo("me", "127.0.0.1", 1)
        context = RequestContext("tcp", "Probe", method, client, newTracing(), {}, metadata)
        return Deferred.fromCoroutine(self.invoker.call(context, request))

    async def collect(self, method: str, request: Any = {}) -> tuple[list[Any], Any]:  # noqa: B006
        """Call a method that gives a stream; give its items and the code of its error."""
        items: list[Any] = []
        try:
            async for item in await self.call(method, request):
                items.append(item)
        except ServiceError as error:
            return items, error.code
        return items, None

    async def refused(self, calling: Deferred[Any], code: str = "UNAVAILABLE") -> str:
        """Give the message of the error that a call ends with."""
        with self.assertRaises(ServiceError) as raised:
            await calling
        self.assertEqual(raised.exception.code, code)
        return raised.exception.message

    def value(self, name: str, *labels: str) -> Any:
        """Give what a meter has counted."""
        families = {family.name: family for family in self.meters.snapshot()}
        samples = families[f"storagegate_upstream_{name}"].samples
        return {tuple(key): value for key, value in samples}.get(labels, 0)
