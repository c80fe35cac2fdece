"""
The context that the transports of a gateway share, and the set of transports in use.

L{TransportContext} holds the invoker, the clock, the options and the metrics; L{GatewayResources}
holds the resources of the process. L{TransportSet} creates, opens and closes transports.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from attrs import Factory, field, frozen
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.context import RequestContext, Tracing
from storagegate.core.definitions import ServiceDefinition
from storagegate.core.errors import ServiceError, asServiceError
from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBytes
from storagegate.core.invoker import InvocationObserver, Invoker
from storagegate.core.ratelimit import RateStoreMaker
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.metrics import TransportMetrics
from storagegate.gateway.transports.registry import (
    GRPC,
    HTTP,
    Transport,
    findTransport,
    loadReference,
    transports,
)
from storagegate.telemetry.log import BufferedLogWriter
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracecontext import tracingOfFields


class SocketOwnership(Protocol):
    """
    The right to read a worker's datagram socket, which a reload hands to the worker's successor:
    one of the two processes reads at a time.

    @ivar isWaiting: Whether the other process still reads.
    @ivar entered: Called when the other process stops reading.
    """

    isWaiting: bool
    entered: Callable[[], object]

    def leave(self) -> None:
        """Let the other process read."""


ErrorHook = Callable[[ServiceError, str], Any]
"""
C{transformError(error, protocol)}: returns another error, or a mapping in the transport's own
shape.
"""

ReplyCacheMaker = Callable[[], Any]
"""
Makes an L{IReplyCache<storagegate.gateway.transports.udp.replycache.IReplyCache>} when UDP opens.
"""

_log = Logger()


@frozen(kw_only=True)
class GatewayResources:
    """
    The resources of the process that a gateway shares; by default it has its own.

    @ivar meters: The registry of metrics.
    @ivar logSink: Receives the lines of the access log; C{None} for Twisted's log.
    @ivar tracer: The tracer of all services; with C{None} the gateway creates its own if tracing is
        configured.
    @ivar rateStore: Creates the rate limiters of methods, see
        L{Invoker<storagegate.core.invoker.Invoker>}; C{None} limits each process by itself.
    @ivar makeReplies: Creates the reply cache of UDP; with C{None} this process has its own.
    @ivar turn: Decides when this process may read datagrams; C{None} for always.
    @ivar affinitySecret: Returns the key that signs the cookies of sticky sessions, the same in all
        processes that serve a client; with C{None} one is generated. Called when the first cookie
        is signed.
    @ivar places: The addresses to listen on instead of those of the options, by transport.
    """

    meters: MetricsRegistry = Factory(MetricsRegistry)
    logSink: BufferedLogWriter | None = None
    tracer: Any = None
    rateStore: RateStoreMaker | None = None
    makeReplies: ReplyCacheMaker | None = None
    turn: SocketOwnership | None = None
    affinitySecret: Callable[[], bytes] | None = None
    places: dict[str, str] = Factory(dict)


@frozen
class TransportContext:
    """
    The parts of a gateway that its transports use.

    @ivar invoker: Calls the methods.
    @ivar clock: For deadlines and delays.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar meters: The counts of transports, by protocol.
    @ivar unknown: Observers of calls to unknown methods, on transports that know the call's
        context.
    @ivar settings: The options of the gateway and of all its transports.
    @ivar reactor: The whole reactor: each transport listens through a different interface of it.
    @ivar resources: The resources that the gateway shares.
    @ivar protos: Services of loaded protos by full name.
    @ivar budget: Counts the bytes of incomplete messages.
    @ivar apiKeyHeader: The header field of API keys.
    @ivar correlationHeader: The HTTP field that carries the trace id of a call.
    @ivar traceName: The same in lower case.
    @ivar traceKey: The same as bytes, as requests store it.
    """

    invoker: Invoker
    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    transformError: ErrorHook | None = None
    meters: Mapping[str, TransportMetrics] = field(factory=dict)
    correlationHeader: str = "X-Trace-ID"
    unknown: Iterable[InvocationObserver] = ()
    settings: GatewayOptions = field(factory=GatewayOptions)
    reactor: Any = None
    resources: GatewayResources = field(factory=GatewayResources)
    protos: Mapping[str, Any] = field(factory=dict)
    budget: HeldBytes = PROCESS_BUDGET
    apiKeyHeader: str = "X-API-Key"
    traceName: str = Factory(lambda self: self.correlationHeader.lower(), takes_self=True)
    traceKey: bytes = Factory(lambda self: self.traceName.encode("ascii"), takes_self=True)

    def nameTrace(self, headers: Mapping[bytes, bytes], res: Any) -> Tracing:
        """
        Set the trace id of a request on its HTTP response.

        @param headers: The fields of the request.
        @param res: The response of the application, before its headers are sent.
        @return: The trace.
        """
        tracing = tracingOfFields(headers, self.traceKey)
        res.setChecked({self.traceName: (self.correlationHeader, tracing.traceId)})
        return tracing

    def meter(self, protocol: str) -> TransportMetrics:
        """
        Return the metrics of a transport; unregistered ones if metrics are off.

        @param protocol: The transport's name.
        """
        return self.meters.get(protocol) or TransportMetrics()

    def refuse(self, context: RequestContext, error: Exception, isUnknown: bool = False) -> None:
        """
        Notify the observers of a call that fails before it runs.

        @param context: The call, as far as it could be read.
        @param error: The reason, also sent to the client.
        @param isUnknown: Whether the method is unknown; otherwise the request cannot be read.
        """
        known = asServiceError(error)
        for observer in self.unknown if isUnknown else self.invoker.observers:
            observer.callStarted(context)
            observer.callEnded(context, known, 0.0)

    def describe(self, error: ServiceError, protocol: str) -> ServiceError | Mapping[str, Any]:
        """
        Return an error in the form that clients of a transport see.

        @param error: The error of the call, or of the request.
        @param protocol: The transport's name, as C{transformError} receives it.
        @return: The error itself, another one, or a mapping in the transport's shape.
        """
        if self.transformError is None:
            return error
        try:
            described = self.transformError(error, protocol)
        except Exception:
            _log.failure("transformError failed")
            return error
        if hasattr(described, "__await__"):
            described = _settled(described)
        if isinstance(described, ServiceError | Mapping):
            return described
        if described is not None:
            _log.error(
                "transformError returned {kind} instead of an error", kind=type(described).__name__
            )
        return error


def _settled(described: Any) -> Any:
    """
    Return the result of an C{async} C{transformError} that does not suspend.

    Errors are written synchronously: the call or its connection has often ended by then.
    """
    steps = described.__await__()
    try:
        next(steps)
    except StopIteration as returned:
        return returned.value
    except Exception:
        _log.failure("transformError failed")
        return None
    if hasattr(steps, "close"):
        steps.close()
    _log.error("transformError must not be asynchronous")
    return None


def listenerAddresses(
    settings: GatewayOptions, names: tuple[str, ...], hostname: str
) -> dict[str, str]:
    """
    Return the address of each listener, as L{TransportSet.open} takes it.

    @param names: The enabled transports.
    @param hostname: The interface for transports whose options name none.
    """
    addresses = {}
    for row in transports():
        # The first enabled transport of a shared listener opens it.
        sharing = [each.name for each in transports() if each.shares == row.shares]
        isOwn = row.shares is None
        if row.name in names and (
            isOwn or row.name == next(each for each in (row.shares, *sharing) if each in names)
        ):
            addresses[row.name] = _addressOf(settings, row, hostname)
    return addresses


def _addressOf(settings: GatewayOptions, row: Transport, hostname: str) -> str:
    own = settings.of(row.name)
    address: str | None = getattr(own, "address", None)
    if address is not None:
        return address
    port = getattr(own, "port", settings.port)
    interface = getattr(own, "hostname", None)
    if row.address == "hostport":
        bracketed = f"[{hostname}]" if ":" in hostname else hostname
        return f"{interface or bracketed}:{port}"
    escaped = (interface or hostname).replace(":", "\\:")
    return f"tcp:{port}:interface={escaped}"


class TransportSet:
    """
    The transports that a gateway has in use.

    A transport is imported when it is created, so a gateway pays only for the ones that it uses.

    @ivar host: The context that they share.
    @ivar ports: The open ports by transport; one without a listener of its own has the port of the
        transport that it shares.
    """

    def __init__(self, host: TransportContext) -> None:
        self.host = host
        self.ports: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._services: list[ServiceDefinition] = []

    def add(self, service: ServiceDefinition) -> None:
        """
        Serve a service.

        @param service: The service; passed to every transport, including transports created later.
        """
        self._services.append(service)
        for each in self._made.values():
            each.add(service)

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """
        Publish the health of services, on transports with a health protocol.

        @param services: Whether each is healthy, by name.
        @param overall: Whether the server as a whole is healthy.
        """
        for each in self._made.values():
            each.setHealth(services, overall)

    def get(self, name: str) -> Any:
        """
        Return the C{ITransport} or C{IGuest} of a transport; create it on the first call.

        @param name: The name of its row in the registry.
        @raise KeyError: If there is no transport of that name.
        """
        made = self._made.get(name)
        if made is None:
            make = loadReference(findTransport(name).make)
            made = make(self.host, self.host.settings.of(name))
            for service in self._services:
                made.add(service)
            self._made[name] = made
        return made

    async def openAll(self, names: Iterable[str], hostname: str) -> dict[str, Any]:
        """
        Open transports at the addresses that the options name.

        @param names: The enabled transports.
        @param hostname: The interface for transports whose options name none.
        @return: The ports by transport.
        @raise CannotListenError: If an address is taken; no port is left open then.
        """
        try:
            places = self.host.resources.places
            addresses = listenerAddresses(self.host.settings, tuple(names), hostname)
            for name, address in addresses.items():
                await self.open(name, places.get(name, address))
        except Exception:
            await self.close(0)
            raise
        return dict(self.ports)

    def open(self, name: str, address: str) -> Deferred[Any]:
        """
        Open a listener.

        @param name: A transport with a listener, which also serves the enabled transports that
            share it; or a transport that shares a listener, which is then served there alone.
        @param address: The address, in the form that the listener's row names.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        """
        carrier, guests = self._carrier(name)

        def opened(port: Any) -> Any:
            self.ports.update(dict.fromkeys((name, *guests), port))
            return port

        opening: Deferred[Any] = carrier.open(address)
        return opening.addCallback(opened)

    def _carrier(self, name: str) -> tuple[Any, list[str]]:
        """Return the transport with the listener of a transport, and the names of its guests."""
        row = findTransport(name)
        carrier = self.get(row.shares or name)
        enabled = self.host.settings.enabled
        sharing = [each.name for each in transports() if each.shares == (row.shares or name)]
        guests = [each for each in sharing if each in enabled or each == name]
        carried = [self.get(each) for each in guests]
        hasCalls = name == HTTP.name and GRPC.name in enabled
        if hasCalls and self.host.settings.of(GRPC.name).onHTTP:
            # It has a port of its own as well.
            carried.append(self.get(GRPC.name))
        if carried:
            carrier.carry(carried, row.shares is None)
        return carrier, guests

    def join(self, site: Any) -> Any:
        """
        Serve HTTP and the enabled transports that share its listener on the connections of another
        server, in addition to a listener of their own.

        @param site: The L{Site<storagegate.net.http.site.Site>} of the server.
        @return: The resource that its root passes requests on to.
        """
        carrier, _ = self._carrier(HTTP.name)
        return carrier.join(site)

    async def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> None:
        """
        Close all transports, each with the same grace; failures are logged.

        @param idleGraceSeconds: How long clients of this process are still served while another
            process serves the same addresses.
        @param graceSeconds: After this, calls are cancelled and connections dropped.
        """
        made = self._made
        # Connections of a shared listener may still use these transports.
        guests = {name: each for name, each in made.items() if findTransport(name).shares}
        self._made = dict(guests)
        self.ports.clear()

        def close(name: str, closeOne: Callable[..., Any], *graces: float) -> Deferred[Any]:
            def failed(failure: Any) -> None:
                _log.failure("the transport {name} failed to close", failure, name=name)

            return maybeDeferred(closeOne, *graces).addErrback(failed)

        graces = (graceSeconds, idleGraceSeconds)
        await gatherResults([close(name, each.close, *graces) for name, each in made.items()])
        await gatherResults([close(name, each.closeLate) for name, each in guests.items()])
        for name in guests:
            self._made.pop(name, None)
