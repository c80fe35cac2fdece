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

from storagegate.core.authentication import DEFAULT_RULES, Authentication
from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceDefinition, readRateLimit, readService
from storagegate.core.invocation import CallCredentials, Invoker, Observer
from storagegate.core.optionvalues import OptionError
from storagegate.gateway.host import ErrorHook, GatewayHost
from storagegate.gateway.metrics import CallMetrics
from storagegate.gateway.options import GatewayOptions, readOptions
from storagegate.gateway.wires import Wires
from storagegate.net.reactors import processReactor

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


class ProtocolGateway:
    """
    Services and the wires that they are called over.

    Every C{configure} takes a mapping or keywords, in any order, until the gateway serves.

    @ivar settings: The options of the wires.
    @ivar invoker: Calls the methods.
    @ivar authentication: Who knows whom.
    @ivar protos: Services of protos that are loaded already, by full name, beside those of the
        option C{grpc.protoFiles}.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, **more: Any) -> None:
        """
        @raise OptionError: If there is no such option, or its value is none.
        """
        self.settings = readOptions(GatewayOptions(), {**(options or {}), **more})
        self.authentication = Authentication({}, DEFAULT_RULES)
        self.protos: dict[str, Any] = {}
        # Their options are not even loaded unless somebody configures them.
        self._monitoring: Any = None
        self._discovery: Any = None
        self._transformError: ErrorHook | None = None
        self._metrics = CallMetrics()
        self.invoker = Invoker(self, [self._metrics])
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
        """Find out who calls, by what L{configureAuthentication} has set."""
        return self.authentication.authenticate(context, credentials, methods)

    # Configuration.

    def configureHTTP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure HTTP, see L{HTTPOptions<storagegate.gateway.options.HTTPOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("http", config, more)

    def configureWebSocket(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure WebSocket, see L{WebSocketOptions<storagegate.gateway.options.WebSocketOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("websocket", config, more)

    def configureGRPC(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure gRPC, see L{GRPCOptions<storagegate.gateway.options.GRPCOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("grpc", config, more)

    def configureUDP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure UDP, see L{UDPOptions<storagegate.gateway.options.UDPOptions>}; C{protocol} may
        hold C{parseMessage} and C{formatResponse}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        given = {**(config or {}), **more}
        protocol = given.pop("protocol", {})
        if not isinstance(protocol, Mapping):
            raise OptionError("the option udp.protocol is a mapping of functions")
        return self._change("udp", given, protocol)

    def configureTCP(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure TCP, see L{TCPOptions<storagegate.gateway.options.TCPOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        return self._change("tcp", config, more)

    def configureAuthentication(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure who is known: C{providers} and C{rules}, see L{storagegate.core.authentication}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        # What tokens need is a good deal, and nobody needs it who configures none.
        from storagegate.gateway.oauth import readProviders

        self._checkIdle()
        ownKeys = self.authentication.ownKeys
        self.authentication = readProviders({**(config or {}), **more})
        self.authentication.ownKeys.update(ownKeys)
        return self

    def configureErrorHandling(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure what clients see of errors: C{transformError(error, protocol)} gives an error, or
        a mapping in the wire's own shape.

        @raise OptionError: If there is another option, or it is no function.
        """
        self._checkIdle()
        given = {**(config or {}), **more}
        hook = given.pop("transformError", None)
        if given:
            raise OptionError(f"there is no option {next(iter(given))}; there is transformError")
        if not callable(hook):
            raise OptionError("the option transformError is a function")
        self._transformError = hook
        return self

    def configureMonitoring(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Configure what is counted, traced and logged, see
        L{MonitoringOptions<storagegate.gateway.monitoring.MonitoringOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        from storagegate.gateway.monitoring import MonitoringOptions, readMonitoring

        self._checkIdle()
        before = self._monitoring or MonitoringOptions()
        self._monitoring = readMonitoring(before, {**(config or {}), **more})
        return self

    def configureServiceDiscovery(
        self, config: Mapping[str, Any] | None = None, **more: Any
    ) -> Self:
        """
        Configure where services are that are not here, see
        L{DiscoveryOptions<storagegate.discovery.options.DiscoveryOptions>}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        from storagegate.discovery.options import DiscoveryOptions, readDiscovery

        self._checkIdle()
        before = self._discovery or DiscoveryOptions()
        self._discovery = readDiscovery(before, {**(config or {}), **more})
        return self

    def configureRateLimit(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """
        Limit every method that has no limit of its own: C{requests} in a C{window} of milliseconds.

        @raise DefinitionError: If it is none.
        """
        self._checkIdle()
        self.invoker.limitAll(readRateLimit("the gateway", {**(config or {}), **more}))
        return self

    def _change(
        self, group: str, config: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> Self:
        self._checkIdle()
        self.settings = readOptions(self.settings, {group: {**(config or {}), **more}})
        return self

    def _checkIdle(self) -> None:
        if self._wires is not None:
            raise RuntimeError("the gateway serves already: configure it before")

    # Serving.

    def listen(self, *, reactor: Any = None) -> Deferred[dict[str, IListeningPort]]:
        """
        Begin to serve over every wire that is enabled.

        @return: The ports by wire; WebSocket has that of HTTP. Fails with C{CannotListenError} if a
            place is taken: then no port is left open.
        """
        isFirst = self._wires is None
        wires = self.start(reactor)
        settings = self.settings

        def refused(reason: Failure) -> Failure:
            if isFirst and self._wires is wires:
                # It may be told another place.
                self._wires = None
            return reason

        opening = Deferred.fromCoroutine(wires.openAll(settings.enabled, settings.hostname))
        return opening.addErrback(refused)

    def start(self, reactor: Any = None) -> Wires:
        """Make the wires; the gateway cannot be configured any more."""
        if self._wires is not None:
            return self._wires
        if reactor is None:
            reactor = processReactor()
        self.invoker.observers[:] = self._observers()
        if self._discovery is not None:
            _log.warn("not built: discovery")

        def run(function: Any, *arguments: Any) -> Deferred[Any]:
            return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

        host = GatewayHost(self.invoker, reactor, run, self._transformError)
        header = getattr(self.authentication.providers.get("apikey"), "header", "X-API-Key")
        self._wires = Wires(host, self.settings, reactor, self.protos, header)
        for service in self.services.values():
            self._wires.add(service)
        return self._wires

    def _observers(self) -> list[Observer]:
        """Make what is told of each call."""
        observers: list[Observer] = []
        if self._monitoring is None or self._monitoring.metrics.enabled:
            observers.append(self._metrics)
        logging = None if self._monitoring is None else self._monitoring.logging
        if logging is not None:
            from storagegate.gateway.calllog import CallLog

            observers.append(CallLog(logging.level, logging.fields, logging.format))
        return observers

    def stop(self, graceMs: float = DEFAULT_GRACE_MS) -> Deferred[None]:
        """
        Stop serving: accept nothing more, let calls end.

        @param graceMs: After this, calls are cancelled and connections dropped.
        @return: Fires when all is closed.
        """
        if self._wires is None:
            return succeed(None)
        return Deferred.fromCoroutine(self._wires.close(graceMs / 1000))

    def run(self, *, graceMs: int = RUN_GRACE_MS) -> None:
        """
        Serve until the process is told to stop: for scripts.

        @raise SystemExit: If a place is taken.
        """
        reactor = processReactor()
        failures: list[str] = []

        def failed(reason: Any) -> None:
            failures.append(reason.getErrorMessage())
            reactor.callWhenRunning(reactor.stop)

        self.listen(reactor=reactor).addErrback(failed)
        reactor.addSystemEventTrigger("before", "shutdown", lambda: self.stop(graceMs))
        reactor.run()
        if failures:
            raise SystemExit(failures[0])

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
