"""The gateway's own interface: services, hooks, counts. No socket is opened."""

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.definitions import DefinitionError, ServiceDefinition, readService
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import OptionError
from storagegate.gateway.gateway import ProtocolGateway, createProtocolGateway
from storagegate.gateway.host import TransportContext
from storagegate.gateway.metrics import CallMetrics
from storagegate.gateway.monitoring import NUMBERS, TEXTS, userName
from storagegate.telemetry.tracecontext import newTracing


async def echo(request: Any, context: Any) -> Any:
    """Give the request back."""
    return request


async def fail(request: Any, context: Any) -> Any:
    """Find nothing."""
    raise codedError("NOT_FOUND", "nothing")


def call(gateway: ProtocolGateway, method: str = "echo", protocol: str = "http") -> Any:
    """Call a method of C{S} as an adapter does."""
    client = ClientInfo("c", "192.0.2.1", 1)
    context = RequestContext(protocol, "S", method, client, newTracing())
    calling = gateway.invoker.call(context, {"a": 1}, CallCredentials("k", None))
    return Deferred.fromCoroutine(calling)


class ServiceTests(SynchronousTestCase):
    """Both forms of addService."""

    def test_forms(self) -> None:
        """A service is a name and a mapping, a mapping with its name, keywords, or a definition."""
        methods = {"echo": echo}
        definition = readService({"name": "D", "methods": methods})
        gateway = createProtocolGateway()
        gateway.addService("A", {"methods": methods})
        gateway.addService({"name": "B", "methods": {"echo": {"handler": echo}}})
        gateway.addService(name="C", methods=methods)
        gateway.addService(definition).addService("E", definition)
        self.assertEqual(list(gateway.services), ["A", "B", "C", "D", "E"])
        for service in gateway.services.values():
            self.assertIsInstance(service, ServiceDefinition)
            self.assertEqual(list(service.methods), ["echo"])

    def test_providers(self) -> None:
        """A service whose tokens have no provider is refused by its name; keys may be its own."""
        services = {
            name: {"methods": {"echo": echo}, "authentication": {"methods": [name]}}
            for name in ("jwt", "oauth", "apikey")
        }
        for name in ("jwt", "oauth"):
            gateway = createProtocolGateway().addService("A", services[name])
            error = self.assertRaises(DefinitionError, gateway.start, MemoryReactorClock())
            self.assertIn(f"the service A authenticates by {name}", str(error))
        gateway = createProtocolGateway().addService("A", services["apikey"])
        gateway.start(MemoryReactorClock())
        self.assertRaises(DefinitionError, gateway.addService, "B", services["jwt"])
        provider = {"secret": "x" * 32, "algorithms": ["HS256"]}
        gateway = createProtocolGateway().configureAuthentication(providers={"jwt": provider})
        gateway.addService("A", services["jwt"]).start(MemoryReactorClock())

    def test_mountedRoutes(self) -> None:
        """A mounted route for a method that does not exist is logged when the program runs."""
        logged: list[Any] = []
        globalLogPublisher.addObserver(logged.append)
        self.addCleanup(globalLogPublisher.removeObserver, logged.append)
        routes = {"GET /x": "A.echo", "GET /y": "A.ehco"}
        gateway = createProtocolGateway(http={"routes": routes})
        reactor = MemoryReactorClock()
        gateway.start(reactor)
        gateway.middleware()
        gateway.addService("A", {"methods": {"echo": echo}})
        self.assertEqual(logged, [])
        for function, arguments, keywords in reactor.whenRunningHooks:
            function(*arguments, **keywords)
        (event,) = logged
        self.assertIn("GET /y is for A.ehco", str(event["error"]))

    def test_wrong(self) -> None:
        """What is no service is refused, and the message says why."""
        gateway = createProtocolGateway().addService("A", {"methods": {"echo": echo}})
        for arguments, expected in (
            (("A", {"methods": {"echo": echo}}), "the service A already exists"),
            (("B",), "the service B has no methods"),
            (("B", {"methods": {}}), "the service B has no methods"),
            (("B", {"methods": {"echo": echo}, "mehtods": 1}), "mehtods"),
            (("B", [echo]), "a service is a mapping with methods"),
            (({"methods": {"echo": echo}},), "name"),
        ):
            error = self.assertRaises(DefinitionError, gateway.addService, *arguments)
            self.assertIn(expected, str(error))
        self.assertEqual(list(gateway.services), ["A"])


class CallCase(SynchronousTestCase):
    """Calls that come by no wire."""

    def gateway(self) -> ProtocolGateway:
        """Make a gateway with a service."""
        return createProtocolGateway().addService("S", methods={"echo": echo, "fail": fail})

    def calls(self, gateway: ProtocolGateway) -> None:
        """Make three calls, one of which fails."""
        for method, protocol in (("echo", "http"), ("fail", "http"), ("echo", "tcp")):
            calling = call(gateway, method, protocol)
            if method == "fail":
                self.failureResultOf(calling, ServiceError)
            else:
                self.assertEqual(self.successResultOf(calling), {"a": 1})


class MonitoringTests(CallCase):
    """What is counted and logged."""

    def setUp(self) -> None:
        """Catch what is logged."""
        self.events: list[Any] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def lines(self) -> list[str]:
        """Give the lines of calls."""
        return [event["call"] for event in self.events if "call" in event]

    def test_metrics(self) -> None:
        """Calls are counted by wire, without being asked to; times are milliseconds."""
        gateway = self.gateway()
        self.assertEqual(gateway.getMetrics()["requests_total"], {})
        self.calls(gateway)
        metrics = gateway.getMetrics()
        self.assertEqual(metrics["requests_total"], {"http": 2, "tcp": 1})
        self.assertEqual(metrics["errors_total"], {"http": 1, "tcp": 0})
        self.assertEqual(metrics["active_requests"], {"http": 0, "tcp": 0})
        self.assertEqual(set(metrics["avg_response_time"]), {"http", "tcp"})

    def test_average(self) -> None:
        """The average is of calls that have ended, in milliseconds."""
        metrics = CallMetrics()
        context = RequestContext("udp", "S", "m", ClientInfo("c", "a", 1), newTracing())
        for seconds in (0.25, 0.75):
            metrics.callStarted(context)
            metrics.callEnded(context, None, seconds)
        metrics.callStarted(context)
        counts = metrics.snapshot()
        self.assertEqual(counts["avg_response_time"], {"udp": 500.0})
        self.assertEqual(counts["active_requests"], {"udp": 1})

    def test_metricsOff(self) -> None:
        """They are not counted if that is switched off."""
        gateway = self.gateway().configureMonitoring(metrics={"enabled": False})
        gateway.start()
        self.calls(gateway)
        self.assertEqual(gateway.getMetrics()["requests_total"], {})

    def test_callLog(self) -> None:
        """Once there are options of logging, each call is a line of JSON with the fields asked."""
        fields = ["protocol", "service", "method", "client_id", "status"]
        gateway = self.gateway().configureMonitoring(logging={"fields": fields})
        gateway.start()
        self.calls(gateway)
        lines = [json.loads(line) for line in self.lines()]
        shared = {"service": "S", "client_id": "c"}
        expected = [
            {"protocol": "http", "method": "echo", "status": "ok", **shared},
            {"protocol": "http", "method": "fail", "status": "NOT_FOUND", **shared},
            {"protocol": "tcp", "method": "echo", "status": "ok", **shared},
        ]
        self.assertEqual(lines, expected)

    def test_callLogFields(self) -> None:
        """Unless they are named, all fields are there, numbers as numbers."""
        gateway = self.gateway().configureMonitoring({"logging": {"level": "info"}})
        gateway.start()
        self.calls(gateway)
        line = json.loads(self.lines()[0])
        self.assertRegex(line["timestamp"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertGreaterEqual(line["duration"], 0)
        self.assertEqual(len(line["trace_id"]), 32)
        more = {name: line[name] for name in (*NUMBERS, *TEXTS)}
        self.assertEqual(list(more.values()), [200, "", "", "192.0.2.1", ""])
        failed = json.loads(self.lines()[1])
        self.assertEqual((failed["status_code"], failed["error_code"]), (404, "NOT_FOUND"))

    def test_userName(self) -> None:
        """A user is named by its subject, key, id or name, and by nothing else of it."""
        self.assertEqual(userName({"password": "x", "name": "Ada", "sub": "1"}), "1")
        self.assertEqual(userName({"id": 7, "token": "secret"}), "7")
        self.assertEqual(userName({"token": "secret", "id": True}), "")
        self.assertEqual(userName("it may be the token"), "")
        self.assertEqual(userName(ClientInfo("c", "a", 1)), "c")

    def test_callLogAsText(self) -> None:
        """Lines may be text, and the level is that of calls that go well."""
        gateway = self.gateway()
        fields = ["method", "status"]
        logging = {"format": "text", "fields": fields, "level": "debug"}
        gateway.configureMonitoring(logging=logging).start()
        self.calls(gateway)
        self.assertEqual(self.lines()[1], "method=fail status=NOT_FOUND")
        levels = [event["log_level"].name for event in self.events if "call" in event]
        self.assertEqual(levels, ["debug", "warn", "debug"])

    def test_noCallLog(self) -> None:
        """Other options of monitoring switch no log on."""
        gateway = self.gateway().configureMonitoring(metrics={"enabled": True})
        gateway.start()
        self.calls(gateway)
        self.assertEqual(self.lines(), [])

    def test_discovery(self) -> None:
        """Discovery is read and checked, in any order; what it names is served."""
        gateway = self.gateway()
        instance = {"host": "10.0.0.1", "port": 80, "weight": 2}
        gateway.configureServiceDiscovery(
            services={
                "A": {"strategy": "weighted", "healthCheck": "/h", "instances": [instance]},
                "B": {"instances": "auto-discover"},
            },
            routing={
                "http": {"sticky_sessions": True, "session_header": "X-Session-ID"},
                "websocket": {"connection_affinity": True},
                "grpc": {"load_balancing": "round_robin"},
            },
            provider="static",
        )
        gateway.configureServiceDiscovery(provider="consul")
        gateway.start(MemoryReactorClock())
        self.assertEqual(sorted(gateway.services), ["A", "B", "S"])
        problem = gateway.discoveryProblem
        self.assertIn("no instance of B is known", problem or "")
        self.successResultOf(gateway.stop(0))
        self.assertIsNone(gateway.discoveryProblem)

    def test_discoveryProvider(self) -> None:
        """Instances that nobody names need somebody who knows them."""
        gateway = self.gateway()
        gateway.configureServiceDiscovery(services={"B": {"instances": "auto-discover"}})
        with self.assertRaisesRegex(OptionError, "services.B.instances"):
            gateway.start(MemoryReactorClock())

    def test_noDiscovery(self) -> None:
        """Nothing is said of it where nobody asked for it."""
        self.gateway().start()
        self.assertEqual(self.events, [])


class ErrorTests(SynchronousTestCase):
    """What transformError makes of errors, whatever the wire."""

    def described(self, hook: Any) -> Any:
        """Describe an error."""
        host = TransportContext(None, None, None, hook)  # type: ignore[arg-type]
        return host.describe(self.error, "tcp")

    def setUp(self) -> None:
        """Make an error."""
        self.error = codedError("NOT_FOUND", "nothing")

    def test_given(self) -> None:
        """A hook gives an error or a mapping, at once or as a coroutine that has it at once."""
        other = ServiceError("X", "other")

        async def later(error: ServiceError, protocol: str) -> Any:
            return {"error": error.code, "on": await succeed(protocol)}

        self.assertIs(self.described(None), self.error)
        self.assertIs(self.described(lambda error, protocol: other), other)
        self.assertIs(self.described(lambda error, protocol: None), self.error)
        self.assertEqual(self.described(later), {"error": "NOT_FOUND", "on": "tcp"})
        self.assertEqual(self.described(lambda error, protocol: succeed({})), {})

    def test_failing(self) -> None:
        """If it fails, or would have to be waited for, the error stays as it was."""
        closed = []

        async def waits(error: ServiceError, protocol: str) -> Any:
            try:
                await Deferred()
            finally:
                closed.append(protocol)

        async def fails(error: ServiceError, protocol: str) -> Any:
            raise KeyError(protocol)

        def failsAtOnce(error: ServiceError, protocol: str) -> Any:
            raise KeyError(protocol)

        for hook in (waits, fails, failsAtOnce, lambda error, protocol: 1):
            self.assertIs(self.described(hook), self.error)
        self.assertEqual(closed, ["tcp"])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 2)


class LifeTests(CallCase):
    """When it can be configured, and what it asks."""

    def test_started(self) -> None:
        """What serves cannot be configured any more, but takes further services."""
        gateway = self.gateway()
        gateway.middleware()
        for configure in (
            gateway.configureHTTP,
            gateway.configureUDP,
            gateway.configureAuthentication,
            gateway.configureErrorHandling,
            gateway.configureMonitoring,
            gateway.configureServiceDiscovery,
            gateway.configureRateLimit,
        ):
            error = self.assertRaises(RuntimeError, configure, {})
            self.assertIn("configure it before", str(error))
        gateway.addService("T", methods={"echo": echo})
        self.assertEqual(list(gateway.services), ["S", "T"])

    def test_stopUnstarted(self) -> None:
        """What does not serve is stopped at once."""
        self.assertIsNone(self.successResultOf(self.gateway().stop()))

    def test_authentication(self) -> None:
        """The providers are asked who calls."""
        seen: list[Any] = []

        def validate(key: str, context: RequestContext) -> Any:
            seen.append((key, context.protocol))
            return {"sub": "ann"}

        async def who(request: Any, context: Any) -> Any:
            return context.authentication

        gateway = createProtocolGateway().addService("S", methods={"echo": who})
        gateway.configureAuthentication(providers={"apikey": {"validate": validate}})
        self.assertEqual(self.successResultOf(call(gateway, protocol="tcp")), {"sub": "ann"})
        self.assertEqual(seen, [("k", "tcp")])

    def test_rateLimit(self) -> None:
        """A limit of the gateway holds for methods that have none of their own."""
        gateway = self.gateway().configureRateLimit(requests=2, window=60_000)
        for _ in range(2):
            self.successResultOf(call(gateway))
        error = self.failureResultOf(call(gateway), ServiceError).value
        self.assertEqual(error.code, "RATE_LIMITED")
