"""
The gateway: services that are written once and called over HTTP, WebSocket, gRPC, UDP and TCP::

    gateway = createProtocolGateway(protocols=["http", "tcp"], port=8080)
    gateway.addService("Orders", {"methods": {"get": getOrder}})
    gateway.run()
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import asdict
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceDefinition, readService
from storagegate.core.invocation import CallCredentials, Invoker
from storagegate.gateway.configuring import Configurable
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.metrics import CallMetrics
from storagegate.gateway.observing import (
    CORRELATION_HEADER,
    makeObservers,
    makeTracer,
)
from storagegate.gateway.options import readOptions
from storagegate.gateway.surroundings import Surroundings
from storagegate.gateway.wires import Wires
from storagegate.net.reactors import processReactor, runUntilStopped

DEFAULT_GRACE_MS = 30_000
"""What a call in flight is given to end in; the longest that most balancers wait."""

RUN_GRACE_MS = 5_000
"""The same for L{ProtocolGateway.run}: whoever presses Ctrl-C waits for it."""

_log = Logger()


def createProtocolGateway(
    options: Mapping[str, Any] | None = None, **more: Any
) -> "ProtocolGateway":
    """
    Make a gateway.

    @param options: See L{GatewayOptions<storagegate.gateway.options.GatewayOptions>}; as a mapping,
        by keywords, or both.
    @raise OptionError: If there is no such option, or its value is none.
    """
    return ProtocolGateway(options, **more)


class ProtocolGateway(Configurable):
    """
    Services and the wires that they are called over.

    Every C{configure} takes a mapping or keywords, in any order, until the gateway serves.

    @ivar tracer: What traces the calls. A gateway that is given none before it serves makes its
        own, if it was told to trace.
    @ivar protos: Services of protos that are loaded already, by full name, beside those of the
        option C{grpc.protoFiles}.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        surroundings: Surroundings | None = None,
        **more: Any,
    ) -> None:
        """
        @param surroundings: What it shares with others; C{None} for nothing.
        @raise OptionError: If there is no such option, or its value is none.
        """
        super().__init__({**(options or {}), **more})
        self._surroundings = around = surroundings or Surroundings()
        self.protos: dict[str, Any] = {}
        self._metrics = CallMetrics(around.meters, self._streaming)
        self.invoker = Invoker(self, [self._metrics], rateStore=around.rateStore)
        self.tracer: Any = around.tracer
        self._ownTracer: Any = None
        self._forwarding: Any = None
        self._wires: Wires | None = None

    # Services.

    def addService(self, name: Any = None, definition: Any = None, **more: Any) -> Self:
        """
        Add a service: C{addService("Orders", {...})}, or a definition that has its name.

        @param definition: A mapping, see L{readService<storagegate.core.definitions.readService>},
            or a C{ServiceDefinition}.
        @raise DefinitionError: If it is none, or its name is taken.
        """
        if not isinstance(name, str | None):
            name, definition = None, name
        if more:
            definition = {**(definition or {}), **more}
        service = readService({} if definition is None else definition, name)
        return self.addKnown(service, isKnown=False)

    def addKnown(self, service: ServiceDefinition, isKnown: bool = True) -> Self:
        """
        Add a service whose schemas are known to be good: they are compiled with the first call.

        @raise DefinitionError: If its name is taken.
        """
        self.invoker.add(service, isKnown)
        if self._wires is not None:
            self._wires.add(service)
        return self

    @property
    def services(self) -> Mapping[str, ServiceDefinition]:
        """Give the services by name."""
        return self.invoker.services

    def authenticate(
        self, context: RequestContext, credentials: CallCredentials, methods: tuple[str, ...]
    ) -> Any:
        """Find out who calls, by what C{configureAuthentication} has set."""
        return self.authentication.authenticate(context, credentials, methods)

    # Serving.

    def _checkIdle(self) -> None:
        """
        Refuse to be configured while serving.

        @raise RuntimeError: If the gateway serves.
        """
        if self._wires is not None:
            raise RuntimeError("the gateway serves already: configure it before")

    def listen(self, *, reactor: Any = None) -> Deferred[dict[str, IListeningPort]]:
        """
        Begin to serve over every wire that is enabled.

        @return: The ports by wire; WebSocket has that of HTTP. Fails with C{CannotListenError} if a
            place is taken: then no port is left open.
        """
        isFirst = self._wires is None
        wires = self.start(reactor)
        settings = self.settings

        def refused(reason: Failure) -> Any:
            if not isFirst or self._wires is not wires:
                return reason
            # It may be told another place.
            self._wires = None
            return self._stopForwarding().addCallback(lambda stopped: reason)

        opening = Deferred.fromCoroutine(wires.openAll(settings.enabled, settings.hostname))
        return opening.addErrback(refused)

    def start(self, reactor: Any = None) -> Wires:
        """Make the wires; the gateway cannot be configured any more."""
        if self._wires is not None:
            return self._wires
        if reactor is None:
            reactor = processReactor()
        around = self._surroundings
        if self.tracer is None:
            self.tracer = self._ownTracer = makeTracer(self.monitoring, reactor, around.meters)
        observers, unknown = makeObservers(
            self.monitoring, self._metrics, around.logSink, self.tracer
        )
        self.invoker.observers[:] = observers
        self.invoker.onUnknown = self._metrics.unknown

        def run(function: Any, *arguments: Any) -> Deferred[Any]:
            return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

        traced = CORRELATION_HEADER
        if self.monitoring is not None:
            traced = self.monitoring.tracing.correlationHeader
        wires = self._metrics.wires
        host = GatewayHost(
            self.invoker, reactor, run, self.transformError, wires, traced, (unknown,)
        )
        header = getattr(self.authentication.providers.get("apikey"), "header", "X-API-Key")
        if self.discovery is not None and self.discovery.services:
            self._forward(host, reactor, header)
        self._wires = Wires(
            host, self.settings, reactor, self.protos, header, around.makeAnswers, around.turn
        )
        for service in self.services.values():
            self._wires.add(service)
        return self._wires

    def _forward(self, host: GatewayHost, reactor: Any, apiKeyHeader: str) -> None:
        """
        Send the calls of services that are elsewhere on.

        @raise OptionError: If an option of discovery does not fit the others.
        """
        from storagegate.gateway.forwarding import Forwarding

        forwarding = Forwarding(
            self.discovery,
            reactor,
            self._metrics.meters,
            run=host.run,
            now=host.invoker.now,
            apiKeyHeader=apiKeyHeader,
            maxSize=self.settings.http.maxRequestBodySize,
            secret=self._surroundings.affinitySecret,
            tracer=self.tracer,
        )
        for name in forwarding.names:
            self.invoker.replace(forwarding.define(name, self.services.get(name)))
        self._forwarding = forwarding
        forwarding.start()

    @property
    def discoveryProblem(self) -> str | None:
        """Tell in one line what is wrong with services that are elsewhere; C{None} if nothing."""
        return None if self._forwarding is None else self._forwarding.problem

    def _streaming(self, service: str, method: str) -> str:
        return self.invoker.find(service, method).streaming

    @property
    def ports(self) -> Mapping[str, Any]:
        """Give the ports that are open, by wire."""
        return {} if self._wires is None else self._wires.ports

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """
        Have the health service of gRPC say which services are well.

        @param services: By the names that they have here; others stay as they are.
        @param overall: How the server as a whole is.
        """
        if self._wires is not None:
            self._wires.setHealth(services, overall)

    def stop(self, graceMs: float = DEFAULT_GRACE_MS, patienceMs: float = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing more, let calls end.

        @param graceMs: After this, calls are cancelled and connections dropped.
        @param patienceMs: How long idle connections of HTTP may stay, where another process serves
            the same port.
        @return: Fires when all is closed.
        """
        if self._wires is None:
            return succeed(None)
        return Deferred.fromCoroutine(self._stop(self._wires, graceMs / 1000, patienceMs / 1000))

    async def _stop(self, wires: Wires, graceSeconds: float, patienceSeconds: float) -> None:
        try:
            await wires.close(graceSeconds, patienceSeconds)
            await self._stopForwarding()
        finally:
            if self._ownTracer is not None:
                await self._ownTracer.recorder.stop()

    def _stopForwarding(self) -> Deferred[None]:
        forwarding, self._forwarding = self._forwarding, None
        return succeed(None) if forwarding is None else forwarding.stop()

    def run(self, *, graceMs: int = RUN_GRACE_MS) -> None:
        """
        Serve until the process is told to stop: for scripts.

        @raise SystemExit: If a place is taken.
        """
        reactor = processReactor()
        runUntilStopped(reactor, self.listen(reactor=reactor), lambda: self.stop(graceMs))

    def middleware(self) -> Any:
        """
        Give what attaches the gateway to an application under a path.

        C{app.use("/rpc", gateway.middleware())} answers C{POST /rpc/{Service}/{method}}. The
        gateway cannot be configured any more.
        """
        return self.start().http().middleware()

    def getWebSocketConfig(self) -> dict[str, Any]:
        """Give C{{"websocket": {...}}} for an application's C{withOptions}."""
        return self._config("websocket")

    def getGRPCConfig(self) -> dict[str, Any]:
        """Give C{{"grpc": {...}}} for an application's C{withOptions}."""
        return self._config("grpc")

    def getUDPConfig(self) -> dict[str, Any]:
        """Give C{{"udp": {...}}} for an application's C{withOptions}."""
        return self._config("udp")

    def getTCPConfig(self) -> dict[str, Any]:
        """Give C{{"tcp": {...}}} for an application's C{withOptions}."""
        return self._config("tcp")

    def configureFor(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """
        Take what an application was given of L{getTCPConfig} and the like, perhaps changed.

        @raise OptionError: If there is no such option, or its value is none.
        """
        settings = readOptions(self.settings, groups)
        if settings != self.settings:
            self._checkIdle()
            self.settings = settings

    def openFor(self, wires: Sequence[str], reactor: Any) -> Deferred[dict[str, Any]]:
        """
        Open wires for an application that listens itself; those that are open stay as they are.

        @return: The ports by wire. Fails with C{CannotListenError} if a place is taken.
        """
        started = self.start(reactor)
        wanted = [wire for wire in wires if wire not in started.ports]
        return Deferred.fromCoroutine(started.openAll(wanted, self.settings.hostname))

    def webSocketMiddleware(self) -> Callable[[Any, Any, Callable[[], Any]], Any]:
        """Give what makes WebSockets of requests for the path that the options name."""

        def answer(req: Any, res: Any, next: Callable[[], Any]) -> Any:
            if req.path != (self.settings.websocket.path or "/"):
                return next()
            return self.start().webSocket().answer(req, res)

        return answer

    def _config(self, wire: str) -> dict[str, Any]:
        options = asdict(getattr(self.settings, wire), recurse=False)
        return {wire: {**options, "gateway": self}}

    def getMetrics(self) -> dict[str, Any]:
        """
        Give the counts so far.

        @return: C{requests_total} and C{avg_response_time} (milliseconds), each a mapping of
            protocols to numbers, and more of the kind.
        """
        return self._metrics.snapshot()
