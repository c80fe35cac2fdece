"""Services that are elsewhere, as the wires see them."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.definitions import ServiceDefinition
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import OTHERS
from storagegate.core.options import OptionError
from storagegate.gateway.gateway import ProtocolGateway
from storagegate.telemetry.tracecontext import newTracing

INSTANCES = [{"host": "127.0.0.1", "port": 9}]


class ForwardingTests(SynchronousTestCase):
    """What becomes of definitions."""

    def start(self, services: Any, *definitions: Any) -> ProtocolGateway:
        """Start a gateway that forwards."""
        gateway = ProtocolGateway(protocols=[])
        for definition in definitions:
            gateway.addService(definition)
        gateway.configureServiceDiscovery(services=services)
        gateway.start(MemoryReactorClock())
        self.addCleanup(gateway.stop, 0)
        return gateway

    def local(self, **more: Any) -> dict[str, Any]:
        """Define a service whose handlers must not be called."""

        async def never(request: Any, context: RequestContext) -> Any:
            raise AssertionError("this is elsewhere")

        schema = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}
        method = {"handler": never, "input": schema, "idempotent": True, **more}
        return {"name": "Probe", "methods": {"ask": method}}

    def call(self, gateway: ProtocolGateway, method: str, request: Any = None) -> Deferred[Any]:
        """Begin a call."""
        context = RequestContext(
            "tcp", "Probe", method, ClientInfo("a", "127.0.0.1", 1), newTracing()
        )
        self.context = context
        return Deferred.fromCoroutine(gateway.invoker.call(context, request or {}))

    def refused(self, calling: Deferred[Any]) -> Any:
        """Give the error with which a call ends at once."""
        return self.failureResultOf(calling, ServiceError).value

    def forwarded(self, calling: Deferred[Any]) -> None:
        """Check that a call is on its way, and end it."""
        self.assertNoResult(calling)
        calling.cancel()
        self.assertEqual(self.refused(calling).code, "CANCELLED")

    def test_described(self) -> None:
        """What was said of a service here holds, and its calls go elsewhere."""
        gateway = self.start({"Probe": {"instances": INSTANCES}}, self.local())
        method = gateway.services["Probe"].methods["ask"]
        self.assertTrue(method.idempotent)
        error = self.refused(self.call(gateway, "ask", {"text": 1}))
        self.assertEqual(error.code, "VALIDATION_ERROR")
        self.forwarded(self.call(gateway, "ask", {"text": "a"}))

    def test_options(self) -> None:
        """Discovery may describe methods, and say more of those that are described."""
        methods = {
            "ask": {"idempotent": True},
            "watch": {"streaming": "server"},
            "put": {"streaming": "client", "idempotent": True},
        }
        gateway = self.start(
            {"Probe": {"instances": INSTANCES, "methods": methods}}, self.local(idempotent=False)
        )
        found = {
            name: (method.streaming, method.idempotent)
            for name, method in gateway.services["Probe"].methods.items()
        }
        self.assertEqual(
            found,
            {"ask": ("none", True), "watch": ("server", False), "put": ("client", True)},
        )

    def test_others(self) -> None:
        """Methods that are not described are forwarded; none of them is kept."""
        gateway = self.start({"Probe": {"instances": INSTANCES}})
        invoker = gateway.invoker
        for at in range(100):
            bound = invoker.find("Probe", f"made-up-{at}")
            self.assertEqual((bound.name, bound.streaming), (f"made-up-{at}", "none"))
            self.assertIsNot(bound, invoker.find("Probe", f"made-up-{at}"))
        self.assertEqual(dict(gateway.services["Probe"].methods), {})
        self.forwarded(self.call(gateway, "made-up"))
        self.assertEqual(self.context.metadata["route"], OTHERS)

    def test_paths(self) -> None:
        """Nor do their paths fill anything; those of described methods are remembered."""
        gateway = self.start({"Probe": {"instances": INSTANCES}}, self.local())
        adapter = gateway.start().get("http")
        for name in ("made-up", "ask", "another"):
            adapter._findEndpoint(f"/Probe/{name}")
        self.assertEqual(list(adapter._endpoints), ["/Probe/ask"])

    def test_noNames(self) -> None:
        """What can be no name is no method."""
        gateway = self.start({"Probe": {"instances": INSTANCES}})
        for name in ("", "..", ".", "a/b", "a b", "a\r\nb", "x" * 201):
            with self.assertRaises(ServiceError) as raised:
                gateway.invoker.find("Probe", name)
            self.assertEqual(raised.exception.code, "NOT_FOUND")

    def test_limited(self) -> None:
        """They have one limit together, however many there are."""
        gateway = ProtocolGateway(protocols=[])
        gateway.configureRateLimit(requests=2, window=60_000)
        gateway.configureServiceDiscovery(services={"Probe": {"instances": []}})
        gateway.start(MemoryReactorClock())
        self.addCleanup(gateway.stop, 0)
        codes = [self.refused(self.call(gateway, f"made-up-{at}")).code for at in range(4)]
        self.assertEqual(codes, ["UNAVAILABLE"] * 2 + ["RATE_LIMITED"] * 2)

    def test_late(self) -> None:
        """A service that is added here while it is elsewhere has its name taken."""
        gateway = self.start({"Probe": {"instances": INSTANCES}})
        with self.assertRaisesRegex(ValueError, "the service Probe already exists"):
            gateway.addService(self.local())

    def test_notRefused(self) -> None:
        """A service without instances here is served from here."""
        service = ServiceDefinition("Other", {})
        gateway = self.start({"Probe": {"instances": INSTANCES}}, service)
        self.assertIs(gateway.services["Other"], service)

    def test_certificateName(self) -> None:
        """Who was found by DNS proves the name that was asked for, and not what DNS said."""
        for provider, name, expected in (
            ("dns", "_http._tcp.orders.example.", "orders.example"),
            ("dns", "orders.example", "orders.example"),
            ("consul", "orders", None),
        ):
            gateway = ProtocolGateway(protocols=[])
            gateway.configureServiceDiscovery(provider=provider, services={"Probe": {"name": name}})
            gateway.start(MemoryReactorClock())
            self.addCleanup(gateway.stop, 0)
            forwarding: Any = gateway._forwarding
            options = forwarding.options.services["Probe"]
            self.assertEqual(forwarding._certificateName("Probe", options), expected)

    def test_files(self) -> None:
        """Files that cannot be used stop the start of a gateway."""
        gateway = ProtocolGateway(protocols=[])
        service = {"instances": INSTANCES, "tls": {"caFile": "/nowhere/ca"}}
        gateway.configureServiceDiscovery(services={"Probe": service})
        error = self.assertRaises(OptionError, gateway.start, MemoryReactorClock())
        self.assertIn("the option services.Probe.tls.caFile: /nowhere/ca: No such", str(error))

    def test_problem(self) -> None:
        """It can be seen that there are no instances, or that none is well."""
        gateway = self.start({"Probe": {"instances": INSTANCES}, "Other": {"instances": []}})
        self.assertEqual(gateway.discoveryProblem, "no instance of Other is known")
        for member in gateway._forwarding.clusters["Probe"].members.values():
            member.isHealthy = False
        self.assertEqual(
            gateway.discoveryProblem,
            "no instance of Probe is healthy; no instance of Other is known",
        )
