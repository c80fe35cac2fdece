"""
Services over gRPC, through the server of L{storagegate.rpc}.

A service is served under its own name with messages generated from its schemas, or under the name
of a mapped proto service with that service's messages. The server itself handles error statuses,
error details and the cancellation of calls.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from storagegate.auth.tokens import bearerToken
from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.core.errors import GrpcError, ServiceError, causedBy, codedError
from storagegate.core.invoker import CallCredentials
from storagegate.core.schemas import methodProjection
from storagegate.core.task import resolve
from storagegate.gateway.host import TransportContext
from storagegate.gateway.metrics import UNKNOWN
from storagegate.gateway.transports.grpc import GRPCOptions
from storagegate.gateway.transports.grpc.protos import MappedProtos
from storagegate.gateway.transports.registry import ITransport
from storagegate.net.forwarded import Trust, compileTrust, metadataAddress
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.call import Call
from storagegate.rpc.health import NOT_SERVING, OVERALL, SERVING
from storagegate.rpc.options import SETTLE_MS
from storagegate.rpc.protos import RPCMethod
from storagegate.serving import currentWorker
from storagegate.telemetry.tracecontext import receiveTracing

if TYPE_CHECKING:
    from storagegate.core.schemashapes import Project

PROTOCOL = "grpc"

TRACE_ID = "x-trace-id"
"""The metadata that carries the trace id of a call, in both directions."""

_MAX_PATH = 200
"""How many characters of an unknown path are logged."""

_STATUSES = {True: SERVING, False: NOT_SERVING}


@implementer(ITransport)
class GRPCTransport:
    """
    The gRPC listener of a gateway.

    @ivar server: The server, which has no port until L{open}.
    """

    def __init__(self, host: TransportContext, options: GRPCOptions) -> None:
        """
        @raise ProtoError: If a proto of the options cannot be loaded.
        @raise DefinitionError: If the options name an unknown service.
        """
        self._host = host
        self._options = options
        # The paths of methods that need a token.
        self._guarded: set[str] = set()
        self._trust = compileTrust(host.settings.trustedProxies)
        self.server = GRPCServer(self._trust, host.budget, self._guarded).withOptions(
            tls=options.tls,
            grpc={
                "reflection": options.reflection,
                "reusePort": options.reusePort or currentWorker() is not None,
                "maxReceiveMessageLength": options.maxMessageSize,
                "maxSendMessageLength": options.maxMessageSize,
                "maxConnections": options.maxConnections,
                "maxCallsPerAddress": options.maxCallsPerAddress,
                "protoLock": options.protoLock,
                "engine": options.engine,
            },
        )
        meter = host.meter(PROTOCOL)
        meter.connections = lambda: self.server.connections
        self.server.traffic = meter
        self.server.onRefused = self._refused
        # The service and method of each RPC path, under their names on the other transports.
        self._methods: dict[str, tuple[str, str]] = {}
        self._namesOf: dict[str, set[str]] = {}
        self._protos = MappedProtos(options, host.protos)

    @property
    def paths(self) -> dict[tuple[str, str], str]:
        """Return the paths of RPCs by the service and method that they call."""
        return {names: path for path, names in self._methods.items()}

    @property
    def methods(self) -> dict[tuple[str, str], RPCMethod]:
        """Return the RPCs by the service and method that they call."""
        found = {}
        for definition in self.server.services.values():
            for each in definition.methods.values():
                if each.path in self._methods:
                    found[self._methods[each.path]] = each
        return found

    def add(self, service: ServiceDefinition) -> None:
        """
        Serve a service, before the listener is opened or later.

        @raise DefinitionError: If its names or schemas are not possible in gRPC.
        """
        definitions = found = self._protos.of(service)
        if not definitions:
            definitions = [self.server.messages.add(service)]
        for definition in definitions:
            implementation = {}
            for name, rpc in definition.methods.items():
                gatewayMethod = self._protos.methodOf(service, rpc)
                if gatewayMethod is not None:
                    method = service.methods[gatewayMethod]
                    project = None if found else methodProjection(method)
                    implementation[name] = self._answer(service, rpc, gatewayMethod, project)
                    self._methods[rpc.path] = service.name, gatewayMethod
                    if not self._host.invoker.find(service.name, gatewayMethod).isPublic:
                        self._guarded.add(rpc.path)
            self.server.addService(definition=definition, implementation=implementation)
        # Its name on the other transports, which may differ from its name in the proto.
        self.server.setServingStatus(service.name, SERVING)
        self._namesOf[service.name] = {service.name, *(each.name for each in definitions)}

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """
        Publish the health of services through gRPC's health service.

        @param services: Whether each is healthy, by its name on the other transports.
        """
        for name, isServing in services.items():
            for known in self._namesOf.get(name, ()):
                self.server.setServingStatus(known, _STATUSES[isServing])
        self.server.setServingStatus(OVERALL, _STATUSES[overall])

    def open(self, address: str) -> Deferred[Any]:
        """
        Start listening.

        @param address: C{HOST:PORT}; port 0 takes a free one.
        @return: The port. Fails with C{CannotListenError} if the address cannot be bound.
        """
        return self.server.listen(address, reactor=self._host.reactor)

    def install(self, application: Any) -> None:
        """
        Also serve the calls on the listener of HTTP.

        @param application: Its L{Application<storagegate.http.application.Application>}.
        """
        application.useRPC(self.server)

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept nothing more, let calls end, and cancel the remaining calls after the grace.

        @param idleGraceSeconds: Above 0 if another process serves the same port.
        """
        settleMs = min(SETTLE_MS, idleGraceSeconds * 1000)
        return self.server.stop(graceSeconds * 1000, settleMs)

    def _refused(self, call: Call, error: Exception) -> None:
        """Notify the observers of a call that the server refused."""
        known = self._methods.get(call.path)
        if known is not None:
            context = contextOf(call, *known, self._trust)
            self._host.refuse(context, error)
        elif self._isUnknown(call):
            context = contextOf(call, UNKNOWN, UNKNOWN, self._trust)
            context.metadata["path"] = call.path[:_MAX_PATH]
            self._host.refuse(context, error, isUnknown=True)
        else:
            # Successful health and reflection calls are not observed either.
            return
        call.prepareMetadata({TRACE_ID: context.tracing.traceId})

    def _isUnknown(self, call: Call) -> bool:
        """Return whether neither a service nor the server itself has the method of a call."""
        service = self.server.services.get(call.service)
        if service is None or call.method not in service.methods:
            return True
        return any(call.service in names for names in self._namesOf.values())

    def _answer(
        self, service: ServiceDefinition, rpc: RPCMethod, name: str, project: "Project | None"
    ) -> Callable[[Call], Any]:
        """
        Make the handler of an RPC.

        @param project: Reduces results to the fields of the response message; C{None} for no
            reduction.
        """
        streams = rpc.streaming in ("client", "bidirectional")
        kind = service.methods[name].streaming
        if kind != rpc.streaming:
            raise DefinitionError(
                f"{service.name}.{name} has the streaming {kind}, and {rpc.path} {rpc.streaming}"
            )
        whole = f"{service.name}.{name}"
        invoker = self._host.invoker

        async def begin(call: Call) -> Any:
            context = contextOf(call, service.name, name, self._trust)
            credentials = credentialsOf(call, context.headers)
            call.prepareMetadata({TRACE_ID: context.tracing.traceId})
            request: Any = call.requests if streams else call.request
            transform = self._options.transformRequest
            receive = None
            if not streams and call.requests is not None:
                receive = partial(self._receive, call.requests, whole)
            elif transform is not None and streams:
                request = _transformed(request, transform, whole)
            elif transform is not None:
                try:
                    request = await resolve(transform(request, whole))
                except Exception as error:
                    if not isinstance(error, CancelledError):
                        self._host.refuse(context, error)
                    raise
            bound = invoker.findTyped(service.name, name, PROTOCOL)
            return await invoker.call(context, request, credentials, bound, receive)

        async def once(call: Call) -> Any:
            try:
                result = await begin(call)
                if project is not None:
                    result = project(result)
                if self._options.transformResponse is None:
                    return result
                return await self._shaped(result, whole)
            except ServiceError as error:
                raise causedBy(self._described(error), error)  # noqa: B904

        async def each(call: Call) -> AsyncIterator[Any]:
            try:
                results = await begin(call)
                try:
                    async for result in results:
                        if project is not None:
                            result = project(result)
                        yield await self._shaped(result, whole)
                finally:
                    await results.aclose()
            except ServiceError as error:
                raise causedBy(self._described(error), error)  # noqa: B904

        return each if rpc.streaming in ("server", "bidirectional") else once

    async def _receive(self, requests: AsyncIterator[Any], method: str) -> Any:
        """Read the request of an admitted call that has no token in its metadata."""
        request = await anext(requests, None)
        if request is None:
            raise codedError("INVALID_ARGUMENT", f"{method} takes exactly one request")
        if await anext(requests, None) is not None:
            raise GrpcError("UNIMPLEMENTED", f"{method} takes exactly one request")
        transform = self._options.transformRequest
        return request if transform is None else await resolve(transform(request, method))

    async def _shaped(self, result: Any, method: str) -> Any:
        transform = self._options.transformResponse
        return result if transform is None else await resolve(transform(result, method))

    def _described(self, error: ServiceError) -> Exception:
        """Return an error in the form that the gateway's hook gives it."""
        described = self._host.describe(error, PROTOCOL)
        if isinstance(described, Mapping):
            return GrpcError(
                described.get("code", error.grpcStatus),
                str(described.get("message", error.message)),
                described.get("details"),
            )
        return described


def credentialsOf(call: Call, headers: Mapping[str, str]) -> CallCredentials:
    """
    Return the credentials of a call.

    @param headers: The metadata by lower-case name; C{authorization} and C{x-api-key} are read.
    """
    field = headers.get("authorization")
    token = bearerToken(field) if field else None
    return CallCredentials(token or None, headers.get("x-api-key"), call, hasFields=True)


def contextOf(call: Call, service: str, method: str, trust: Trust | None) -> RequestContext:
    """
    Return the context of a call, for its handler.

    @param trust: Decides which proxies may name their client in the metadata.
    """
    headers: dict[str, str] = {}
    for name, value in call.metadata:
        if isinstance(value, str):
            headers.setdefault(name, value)
    peer = call.getPeer()
    address, _, port = peer.rpartition(":")
    if peer.startswith("unix:"):
        address, port = peer, "0"
    number = int(port) if port.isdigit() else 0
    address = address.strip("[]")
    if trust is not None:
        believed = metadataAddress(address, trust, call.metadata)
        if believed != address:
            # The port of a client behind a proxy is unknown.
            peer, address, number = believed, believed, 0
    client = ClientInfo(peer, address, number, headers.get("user-agent"))
    tracing = receiveTracing(
        headers.get("traceparent"), headers.get("tracestate"), headers.get(TRACE_ID)
    )
    metadata = {} if call.deadline is None else {"deadline": call.deadline}
    return RequestContext(PROTOCOL, service, method, client, tracing, headers, metadata)


async def _transformed(
    requests: Any, transform: Callable[..., Any], method: str
) -> AsyncIterator[Any]:
    async for request in requests:
        yield await resolve(transform(request, method))
