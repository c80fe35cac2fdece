"""
The gateway: one service definition, called over HTTP, WebSocket, gRPC, UDP and TCP::

    gateway = createProtocolGateway(protocols=["http", "tcp"], port=8080)
    gateway.addService("Orders", {"methods": {"get": getOrder}})
    gateway.run()
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from attrs import asdict, evolve, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.auth.authentication import (
    Authentication,
    AuthenticationDict,
    readAuthentication,
)
from storagegate.auth.throttle import AuthFailureThrottle
from storagegate.core.definitions import (
    DefinitionError,
    RateLimitDict,
    ServiceDefinition,
    ServiceDefinitionDict,
    readRateLimit,
    readService,
)
from storagegate.core.invoker import InvocationObserver, Invoker
from storagegate.core.options import joinOptions, makeOptions, readFunction
from storagegate.core.task import callInThread, portable
from storagegate.gateway.host import (
    ErrorHook,
    GatewayResources,
    TransportContext,
    TransportSet,
    listenerAddresses,
)
from storagegate.gateway.metrics import CallMetrics, UnknownCalls
from storagegate.gateway.options import GatewayOptions, GatewayOptionsDict, readOptions
from storagegate.gateway.transports.registry import (
    GRPC,
    HTTP,
    TCP,
    UDP,
    WEBSOCKET,
    defaultRules,
    findTransport,
    loadReference,
)
from storagegate.net.endpoints import (
    ListeningPort,
    chooseReactor,
    processReactor,
    runUntilStopped,
)
from storagegate.serving import claimRun, currentWorker
from storagegate.telemetry.log import hasLogBegun, logScript, standardError

if TYPE_CHECKING:
    from storagegate.core.dependencies import DependencyContainer
    from storagegate.gateway.monitoring import MonitoringOptionsDict
    from storagegate.gateway.transports.grpc import GRPCOptionsDict
    from storagegate.gateway.transports.http import HTTPOptionsDict
    from storagegate.gateway.transports.tcp import TCPOptionsDict
    from storagegate.gateway.transports.udp import UDPConfigurationDict
    from storagegate.gateway.transports.websocket import WebSocketOptionsDict
    from storagegate.serving.supervisor import SharedListener
    from storagegate.upstream.options import DiscoveryOptionsDict


Options = Mapping[str, Any] | None
"""Options by name; keywords may add to them."""


class ErrorOptionsDict(TypedDict, total=False):
    """The keywords of L{ErrorOptions}."""

    transformError: ErrorHook


@frozen(kw_only=True)
class ErrorOptions:
    """
    How clients see errors.

    @ivar transformError: C{(error, protocol)} returns an error, or a mapping in the transport's own
        shape; it cannot await anything.
    """

    transformError: ErrorHook = field(converter=readFunction)


DEFAULT_GRACE_MS = 30_000
"""How long a stop waits for calls in flight; most load balancers wait no longer."""

RUN_GRACE_MS = 5_000
"""The same for L{ProtocolGateway.run}, where a user waits after Ctrl-C."""

_ANSWERS = "storagegate.gateway.transports.udp.replycache:makeAnswerMemory"

_log = Logger()


def createProtocolGateway(
    options: Mapping[str, Any] | None = None, **more: Unpack[GatewayOptionsDict]
) -> "ProtocolGateway":
    """
    Make a gateway.

    @param options: See L{GatewayOptions<storagegate.gateway.options.GatewayOptions>}; as a mapping,
        by keywords, or both; keywords take precedence.
    @raise OptionError: If an option is unknown or its value invalid.
    """
    return ProtocolGateway(options, **more)


def _processResources() -> GatewayResources:
    """Return the resources that a gateway of a script shares with other workers of the script."""
    worker = currentWorker()
    if worker is None:
        return GatewayResources()
    secret = worker.secret
    answers = worker.link.memory.get("answers")
    makeReplies = None
    if answers is not None:

        def makeReplies() -> Any:
            from storagegate.core.sharedtable import SharedTable
            from storagegate.gateway.transports.udp.replycache import SharedReplyCache

            return SharedReplyCache(SharedTable(answers))

    return GatewayResources(
        turn=worker.link, makeReplies=makeReplies, affinitySecret=lambda: secret
    )


class ProtocolGateway:
    """
    Services, and the transports that clients call them over.

    A gateway is configured before it serves. Each C{configure} method takes options as a mapping,
    by keywords, or both, and returns the gateway; keywords take precedence. The methods may be
    called in any order. They raise L{OptionError<storagegate.core.options.OptionError>} if an
    option is unknown or its value invalid, and C{RuntimeError} if the gateway already serves.

    @ivar settings: The options of the gateway and its transports.
    @ivar authentication: Verifies the credentials of calls.
    @ivar invoker: Calls the methods.
    @ivar tracer: Traces the calls. If it is unset when the gateway starts to serve and tracing is
        configured, the gateway creates one.
    @ivar protos: Services of loaded protos by full name, in addition to the files of the option
        C{grpc.protoFiles}.
    @ivar awaited: The names of services that will be added after the start.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        surroundings: GatewayResources | None = None,
        **more: Unpack[GatewayOptionsDict],
    ) -> None:
        """
        @param options: Options by name; a transport's name holds its own options. Keywords take
            precedence.
        @param surroundings: Resources shared with other parts of the process; C{None} for none.
        @raise OptionError: If an option is unknown or its value invalid.
        """
        self.settings = readOptions(GatewayOptions(), joinOptions(options, more))
        self.authentication = Authentication({}, defaultRules())
        # Their options are imported only when they are configured.
        self.monitoring: Any = None
        self.discovery: Any = None
        self.transformError: ErrorHook | None = None
        self._resources = around = surroundings or _processResources()
        self.protos: dict[str, Any] = {}
        self.awaited: frozenset[str] = frozenset()
        self._metrics = CallMetrics(
            around.meters, lambda service, method: self.invoker.find(service, method).streaming
        )
        self.invoker = Invoker(self.authentication, [self._metrics], rateStore=around.rateStore)
        self.invoker.isServing = lambda: bool(self.ports)
        self._unknownObservers: list[InvocationObserver] = []
        self.tracer: Any = around.tracer
        self._ownTracer: Any = None
        self._forwarding: Any = None
        self._transports: TransportSet | None = None

    # Configuration.

    def _checkIdle(self) -> None:
        if self._transports is not None:
            raise RuntimeError("the gateway is already serving: configure it before")

    def configure(self, name: str, config: Options = None, **more: Any) -> Self:
        """
        Configure a transport.

        @param name: A name in the registry, see L{storagegate.gateway.transports.registry}.
        @param config: Options of the class that its row names.
        @raise KeyError: If there is no transport of that name.
        """
        given = joinOptions(config, more)
        kind = loadReference(findTransport(name).options)
        self._checkIdle()
        if hasattr(kind, "flattened"):
            given = kind.flattened(given)
        self.settings = readOptions(self.settings, {name: given})
        return self

    def configureHTTP(self, config: Options = None, **more: Unpack["HTTPOptionsDict"]) -> Self:
        """Configure HTTP, see L{HTTPOptions<storagegate.gateway.transports.http.HTTPOptions>}."""
        return self.configure(HTTP.name, config, **more)

    def configureWebSocket(
        self, config: Options = None, **more: Unpack["WebSocketOptionsDict"]
    ) -> Self:
        """
        Configure WebSocket, see
        L{WebSocketOptions<storagegate.gateway.transports.websocket.WebSocketOptions>}.
        """
        return self.configure(WEBSOCKET.name, config, **more)

    def configureGRPC(self, config: Options = None, **more: Unpack["GRPCOptionsDict"]) -> Self:
        """Configure gRPC, see L{GRPCOptions<storagegate.gateway.transports.grpc.GRPCOptions>}."""
        return self.configure(GRPC.name, config, **more)

    def configureUDP(self, config: Options = None, **more: Unpack["UDPConfigurationDict"]) -> Self:
        """
        Configure UDP, see L{UDPOptions<storagegate.gateway.transports.udp.UDPOptions>};
        C{protocol} may hold C{parseMessage} and C{formatResponse}.
        """
        return self.configure(UDP.name, config, **more)

    def configureTCP(self, config: Options = None, **more: Unpack["TCPOptionsDict"]) -> Self:
        """Configure TCP, see L{TCPOptions<storagegate.gateway.transports.tcp.TCPOptions>}."""
        return self.configure(TCP.name, config, **more)

    def configureAuthentication(
        self, config: Options = None, **more: Unpack[AuthenticationDict]
    ) -> Self:
        """Configure authentication, see L{storagegate.auth.authentication}."""
        self._checkIdle()
        ownKeys = self.authentication.ownKeys
        self.authentication = readAuthentication(joinOptions(config, more), defaultRules())
        self.authentication.ownKeys.update(ownKeys)
        self.invoker.authenticator = self.authentication
        return self

    def configureErrorHandling(
        self, config: Options = None, **more: Unpack[ErrorOptionsDict]
    ) -> Self:
        """
        Configure how clients see errors, see
        L{ErrorOptions<storagegate.gateway.gateway.ErrorOptions>}.
        """
        self._checkIdle()
        self.transformError = makeOptions(ErrorOptions, joinOptions(config, more)).transformError
        return self

    def configureMonitoring(
        self, config: Options = None, **more: Unpack["MonitoringOptionsDict"]
    ) -> Self:
        """
        Configure metrics, tracing and the access log, see
        L{MonitoringOptions<storagegate.gateway.monitoring.MonitoringOptions>}.
        """
        from storagegate.gateway.monitoring import readMonitoring

        self._checkIdle()
        self.monitoring = readMonitoring(joinOptions(config, more), self.monitoring)
        return self

    def configureServiceDiscovery(
        self, config: Options = None, **more: Unpack["DiscoveryOptionsDict"]
    ) -> Self:
        """
        Configure the discovery of remote services, see
        L{DiscoveryOptions<storagegate.upstream.options.DiscoveryOptions>}.
        """
        from storagegate.upstream.options import DiscoveryOptions, readDiscovery

        self._checkIdle()
        before = self.discovery or DiscoveryOptions()
        self.discovery = readDiscovery(before, joinOptions(config, more))
        return self

    def configureRateLimit(self, config: Options = None, **more: Unpack[RateLimitDict]) -> Self:
        """
        Limit every method that has no limit of its own: C{requests} in a C{window} of milliseconds.

        @raise DefinitionError: If the limit is invalid.
        """
        self._checkIdle()
        self.invoker.limitAll(readRateLimit("the gateway", joinOptions(config, more)))
        return self

    # Services.

    def addService(
        self,
        name: str | Mapping[str, Any] | ServiceDefinition | None = None,
        definition: Mapping[str, Any] | ServiceDefinition | None = None,
        **more: Unpack[ServiceDefinitionDict],
    ) -> Self:
        """
        Add a service: C{addService("Orders", {...})}, or a definition that contains its name.

        @param definition: A mapping, see L{readService<storagegate.core.definitions.readService>},
            or a C{ServiceDefinition}.
        @param name: The service's name, or a definition that contains it.
        @raise DefinitionError: If the definition is invalid or its name is taken.
        """
        if not isinstance(name, str | None):
            name, definition = None, name
        if more:
            if isinstance(definition, ServiceDefinition):
                raise DefinitionError(f"the service {definition.name} is already defined")
            definition = {**(definition or {}), **more}
        service = readService({} if definition is None else definition, name)
        return self.addKnown(service, isKnown=False)

    def addKnown(self, service: ServiceDefinition, isKnown: bool = True) -> Self:
        """
        Add a service whose schemas are known to be valid: they are compiled on the first call.

        @param service: Its name must be unused in the gateway.
        @param isKnown: Whether to trust the schemas; otherwise they are compiled and checked here.
        @raise DefinitionError: If its name is taken.
        """
        self.invoker.add(service, isKnown)
        if self._transports is not None:
            self._scheduleEnds(self._transports.host.reactor)
            self._checkProviders(service)
            self._mapMessages([service])
            self._transports.add(service)
        return self

    def _mapMessages(self, services: Iterable[ServiceDefinition]) -> None:
        """
        Give the messages of mapped protos their JSON form, whether or not gRPC is enabled.

        @raise ProtoError: If a proto of the options cannot be loaded.
        @raise DefinitionError: If the options name an unknown service, or a file is not used.
        """
        options = self.settings.groups.get(GRPC.name)
        if options is None or not (options.services or options.protoFiles):
            return
        # Imported late: protobuf's descriptors take 0.6 MB.
        from storagegate.gateway.transports.grpc.protos import MappedProtos

        protos = MappedProtos(options, self.protos)
        protos.checkUse(self.services.keys() | self.awaited)
        for service in services:
            protos.mapJSON(service, self.invoker)

    @property
    def services(self) -> Mapping[str, ServiceDefinition]:
        """Return the services by name."""
        return self.invoker.services

    @property
    def dependencies(self) -> "DependencyContainer":
        """
        Return the dependencies of the handlers.

        Assign those of an application or a gRPC server to share the values with the scope of an
        application; they end when the last one that serves has closed.
        """
        return self.invoker.dependencies

    @dependencies.setter
    def dependencies(self, dependencies: "DependencyContainer") -> None:
        self.invoker.dependencies = dependencies

    def _scheduleEnds(self, reactor: Any) -> None:
        """Let dependencies end after answers."""
        if self.invoker.hasDependencies:
            self.dependencies.clock = reactor

    @property
    def overrides(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Return the functions that are called in place of dependencies, for tests."""
        return self.dependencies.overrides

    # Serving.

    def listen(self, *, reactor: Any = None) -> Deferred[dict[str, ListeningPort]]:
        """
        Start serving over every enabled transport.

        @param reactor: C{None} for the reactor of the process.
        @return: The ports by transport; WebSocket has the port of HTTP. Fails with
            C{CannotListenError} if an address is taken; no port is left open then.
        """
        isFirst = self._transports is None
        transports = self.start(reactor)

        def refused(reason: Failure) -> Any:
            if not isFirst or self._transports is not transports:
                return reason
            # The gateway may now be configured with another address.
            self._transports = None
            return self._stopForwarding().addCallback(lambda stopped: reason)

        names, hostname = self.settings.enabled, self.settings.hostname
        opening = Deferred.fromCoroutine(transports.openAll(names, hostname))
        return portable(opening.addErrback(refused))

    def start(self, reactor: Any = None) -> TransportSet:
        """
        Create the transports; the gateway can no longer be configured.

        @param reactor: C{None} for the reactor of the process; ignored once started.
        """
        if self._transports is not None:
            return self._transports
        reactor = processReactor(reactor)
        around = self._resources
        self.invoker.onUnknown = self._metrics.unknown
        traced: dict[str, Any] = {}
        others = self._unknownObservers
        if self.monitoring is None:
            self._metrics.choose()
        else:
            from storagegate.gateway.monitoring import makeObservers, makeTracer

            if self.tracer is None:
                self.tracer = self._ownTracer = makeTracer(self.monitoring, reactor, around.meters)
            self.invoker.observers[:], others[:] = makeObservers(
                self.monitoring, self._metrics, around.logSink, self.tracer
            )
            traced["correlationHeader"] = self.monitoring.tracing.correlationHeader

        def run(function: Any, *arguments: Any) -> Deferred[Any]:
            return callInThread(reactor, function, *arguments)

        self._scheduleEnds(reactor)
        self.authentication.throttle = AuthFailureThrottle(reactor)
        apiKeys = self.authentication.providers.get("apikey")
        host = TransportContext(
            invoker=self.invoker,
            clock=reactor,
            run=run,
            transformError=self.transformError,
            meters=self._metrics.transports,
            unknown=(UnknownCalls(self._metrics, others),),
            settings=self.settings,
            reactor=reactor,
            resources=around,
            protos=self.protos,
            apiKeyHeader=getattr(apiKeys, "header", "X-API-Key"),
            **traced,
        )
        if self.discovery is not None and self.discovery.services:
            self._forward(host)
        for service in self.services.values():
            self._checkProviders(service)
        self._mapMessages(self.services.values())
        self._transports = TransportSet(host)
        for service in self.services.values():
            self._transports.add(service)
        return self._transports

    def observe(self, observer: InvocationObserver) -> None:
        """Add an observer to a started gateway; it also sees calls to unknown methods."""
        self.invoker.observers.append(observer)
        self._unknownObservers.append(observer)

    def _checkProviders(self, service: ServiceDefinition) -> None:
        """
        Check that the providers that a service allows exist.

        @raise DefinitionError: If a token provider is missing. API keys need none: a service may
            have its own.
        """
        for name in service.authentication.methods:
            if name != "apikey" and name not in self.authentication.providers:
                raise DefinitionError(
                    f"the service {service.name} authenticates by {name}, and there is no "
                    f"authentication.providers.{name}"
                )

    def _forward(self, host: TransportContext) -> None:
        """
        Proxy the calls of remote services.

        @raise OptionError: If an option of discovery conflicts with another.
        """
        from storagegate.upstream.proxy import ProxiedServices

        forwarding = ProxiedServices(
            self.discovery,
            host.reactor,
            self._metrics.meters,
            run=host.run,
            now=host.invoker.now,
            apiKeyHeader=host.apiKeyHeader,
            maxSize=self.settings.of(HTTP.name).maxRequestBodySize,
            secret=self._resources.affinitySecret,
            tracer=self.tracer,
        )
        for name in forwarding.names:
            self.invoker.replace(forwarding.define(name, self.services.get(name)))
        self._forwarding = forwarding
        forwarding.start()

    @property
    def discoveryProblem(self) -> str | None:
        """Return the problem with remote services in one line; C{None} if there is no problem."""
        return None if self._forwarding is None else self._forwarding.problem

    @property
    def forwarding(self) -> Any:
        """
        Return the L{ProxiedServices<storagegate.upstream.proxy.ProxiedServices>}; C{None} without
        remote services.
        """
        return self._forwarding

    @property
    def ports(self) -> Mapping[str, ListeningPort]:
        """Return the open ports by transport."""
        return {} if self._transports is None else self._transports.ports

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """
        Set the status of services in the gRPC health service.

        @param services: Whether each is healthy, by name in the gateway; others keep their status.
        @param overall: Whether the server as a whole is healthy.
        """
        if self._transports is not None:
            self._transports.setHealth(services, overall)

    def stop(self, graceMs: float = DEFAULT_GRACE_MS, patienceMs: float = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing new and let calls in flight end.

        @param graceMs: After this, calls are cancelled and connections dropped.
        @param patienceMs: How long idle HTTP connections may stay open while another process serves
            the same port.
        @return: Fires when all is closed.
        """
        if self._transports is None:
            return portable(succeed(None))
        transports = self._transports

        async def stop() -> None:
            try:
                await transports.close(graceMs / 1000, patienceMs / 1000)
                await self._stopForwarding()
                if self.invoker.hasDependencies:
                    await self.dependencies.close()
            finally:
                if self._ownTracer is not None:
                    await self._ownTracer.stop()

        return portable(Deferred.fromCoroutine(stop()))

    def _stopForwarding(self) -> Deferred[None]:
        forwarding, self._forwarding = self._forwarding, None
        return succeed(None) if forwarding is None else forwarding.stop()

    def logToStandardError(self, reactor: Any) -> None:
        """
        Write the access log to standard error unless the process has a log: for scripts.

        @param reactor: Buffers the lines while it runs.
        """
        isLogged = self.monitoring is not None and self.monitoring.logging is not None
        if isLogged and self._resources.logSink is None and not hasLogBegun():
            self._resources = evolve(self._resources, logSink=standardError(reactor))

    def run(
        self,
        *,
        graceMs: int = RUN_GRACE_MS,
        quiet: bool = False,
        reactor: str | None = None,
        workers: int | None = None,
    ) -> None:
        """
        Serve until a signal stops the process: for scripts.

        @param graceMs: How long calls in flight may take after the signal, in milliseconds.
        @param quiet: Whether to print no listening addresses.
        @param reactor: C{asyncio} lets handlers await asyncio libraries; C{None} is the reactor of
            the process.
        @param workers: The number of processes that serve; this process then becomes their
            supervisor, see L{ServerGroup.run<storagegate.serving.group.ServerGroup.run>}. C{None}
            to serve in this process.
        @raise SystemExit: If an address is taken, or a worker cannot start.
        @raise ValueError: If C{workers} is not a number from 1 to 256.
        """
        if claimRun() is not None or workers is not None:
            # Imported late: a single process does not need it.
            from storagegate.serving.group import makeGroup

            group = makeGroup(self)
            group.run(workers=workers, graceMs=graceMs, quiet=quiet, reactor=reactor)
            return
        running = chooseReactor(reactor)
        self.logToStandardError(running)
        logScript(running)
        runUntilStopped(
            running,
            self.listen(reactor=running),
            lambda: self.stop(graceMs),
            lambda: () if quiet else self.ports.items(),
        )

    def middleware(self) -> Any:
        """
        Return the middleware that mounts the gateway in an application.

        C{app.use("/rpc", gateway.middleware())} answers C{POST /rpc/{Service}/{method}}. The
        gateway can no longer be configured.
        """
        return self.start().get(HTTP.name).middleware()

    def getConfig(self, name: str) -> dict[str, Any]:
        """
        Return C{{name: {...}}} for an application's C{withOptions}.

        @param name: A transport.
        @raise KeyError: If there is no transport of that name.
        """
        return {name: {**asdict(self.settings.of(name), recurse=False), "gateway": self}}

    def getWebSocketConfig(self) -> dict[str, Any]:
        """Return C{{"websocket": {...}}} for an application's C{withOptions}."""
        return self.getConfig(WEBSOCKET.name)

    def getGRPCConfig(self) -> dict[str, Any]:
        """Return C{{"grpc": {...}}} for an application's C{withOptions}."""
        return self.getConfig(GRPC.name)

    def getUDPConfig(self) -> dict[str, Any]:
        """Return C{{"udp": {...}}} for an application's C{withOptions}."""
        return self.getConfig(UDP.name)

    def getTCPConfig(self) -> dict[str, Any]:
        """Return C{{"tcp": {...}}} for an application's C{withOptions}."""
        return self.getConfig(TCP.name)

    def configureFor(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """
        Apply the options that an application got from L{getTCPConfig} and similar methods, possibly
        changed.

        @param groups: Options by name of transport.
        @raise OptionError: If an option is unknown or its value invalid.
        """
        settings = readOptions(self.settings, groups)
        if settings != self.settings:
            self._checkIdle()
            self.settings = settings

    def sharedListeners(self, names: Sequence[str] | None = None) -> "list[SharedListener]":
        """
        Return the listeners of transports, for a supervisor.

        @param names: Transports of an application with a listener of its own, see L{openFor};
            C{None} for all that L{listen} opens.
        """
        from storagegate.serving.supervisor import SharedListener

        enabled = self.settings.enabled if names is None else tuple(names)
        found = []
        for name, address in listenerAddresses(
            self.settings, enabled, self.settings.hostname
        ).items():
            row = findTransport(name)
            if names is None or row.shares is None:
                sharing = findTransport(row.shares or name).inherit
                found.append(SharedListener(name, address, sharing))
        return found

    def sharedMemory(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """
        Return the makers of the memory that workers share, see
        L{ProgramPlan<storagegate.serving.supervisor.ProgramPlan>}.

        @param names: See L{sharedListeners}.
        """
        enabled = self.settings.enabled if names is None else names
        return {"answers": _ANSWERS} if UDP.name in enabled else {}

    def place(self, places: Mapping[str, str]) -> None:
        """
        Set addresses to listen on instead of those of the options.

        @param places: Addresses by transport; others keep theirs.
        """
        self._resources.places.update(places)

    def openFor(self, names: Sequence[str], reactor: Any) -> Deferred[dict[str, Any]]:
        """
        Open transports for an application with a listener of its own.

        Transports that are open, or have no listener of their own, stay as they are.

        @param names: Names of transports.
        @param reactor: C{None} for the reactor of the process; ignored once started.
        @return: The ports by transport. Fails with C{CannotListenError} if an address is taken.
        """
        started = self.start(reactor)
        closed = [name for name in names if name not in started.ports]
        wanted = [name for name in closed if findTransport(name).shares is None]
        return Deferred.fromCoroutine(started.openAll(wanted, self.settings.hostname))

    def webSocketMiddleware(self) -> Callable[[Any, Any, Callable[[], Any]], Any]:
        """Return the middleware that upgrades requests for the configured path to WebSocket."""

        def answer(req: Any, res: Any, next: Callable[[], Any]) -> Any:
            if req.path != (self.settings.of(WEBSOCKET.name).path or "/"):
                return next()
            return self.start().get(WEBSOCKET.name).answer(req, res)

        return answer

    def getMetrics(self) -> dict[str, Any]:
        """
        Return the counts so far.

        @return: C{requests_total} and C{avg_response_time} (milliseconds), each a mapping of
            protocols to numbers, and the other counts of
            L{CallMetrics.snapshot<storagegate.gateway.metrics.CallMetrics.snapshot>}.
        """
        return self._metrics.snapshot()
