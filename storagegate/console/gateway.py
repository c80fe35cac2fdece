"""The gateway in the console: services, methods, wires and rate limits."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from twisted.internet.defer import Deferred

from storagegate.console.call import ConsoleCall
from storagegate.console.listeners import GatewayListener, openListeners
from storagegate.core.components import SchemaCollection
from storagegate.core.context import rateLimitKey
from storagegate.core.errors import codedError
from storagegate.core.invoker import MethodEntry
from storagegate.gateway.transports.registry import GRPC, HTTP, transports
from storagegate.telemetry.prometheus import askMeters

_REFLECTION_SECONDS = 5.0


class GatewayQuery(Struct, forbid_unknown_fields=True):
    """
    Options of the gateway's description.

    @ivar address: The client whose use of rate limits is shown; empty for the client of the
        request.
    """

    address: str = ""


class WireView(Struct):
    """
    A wire.

    @ivar address: The address of the listener; empty if it is not open.
    @ivar path: The path of the services, for HTTP and WebSocket.
    @ivar isSecure: Whether the listener uses TLS.
    @ivar providers: The token providers of its calls.
    """

    name: str
    title: str
    address: str
    path: str
    isSecure: bool
    providers: list[str]


class RateLimitView(Struct):
    """
    A rate limit.

    @ivar requests: Calls per window and client.
    @ivar used: Calls of the shown client in its current window.
    @ivar endsMs: The end of that window; 0 if there is none.
    @ivar refused: Refused calls of all clients since the start; C{None} if calls are not counted.
    """

    requests: int
    windowMs: int
    used: int
    endsMs: int
    refused: int | None


class MethodView(Struct):
    """
    A method.

    @ivar streaming: C{none}, C{client}, C{server} or C{bidirectional}.
    @ivar input: The schema of a request, which may refer to C{schemas}; empty for any value.
    @ivar output: The schema of a response, or of a stream's item.
    @ivar isPublic: Whether anonymous calls are allowed.
    """

    name: str
    streaming: str
    input: Mapping[str, Any]
    output: Mapping[str, Any]
    isPublic: bool
    isIdempotent: bool
    rateLimit: RateLimitView | None


class ServiceView(Struct):
    """
    A service.

    @ivar providers: The token providers of its calls; empty for the providers of the wire.
    @ivar isAuthorized: Whether each call is authorised for its user.
    @ivar takesOthers: Whether the service accepts methods that it does not describe.
    @ivar isForwarded: Whether calls are forwarded to instances elsewhere.
    """

    name: str
    methods: list[MethodView]
    providers: list[str]
    isAuthorized: bool
    takesOthers: bool
    isForwarded: bool


class RPCMethodView(Struct):
    """
    A gRPC method.

    @ivar path: C{/package.Service/Method}.
    """

    name: str
    path: str
    streaming: str


class RPCServiceView(Struct):
    """A gRPC service."""

    name: str
    methods: list[RPCMethodView]


class ReflectionView(Struct):
    """
    The result of gRPC reflection.

    @ivar problem: Why reflection failed; empty if it succeeded.
    """

    services: list[RPCServiceView]
    problem: str


class GatewayView(Struct):
    """
    The gateway.

    @ivar schemas: The schemas of methods, by name.
    @ivar client: The address whose use of rate limits is shown.
    """

    wires: list[WireView]
    services: list[ServiceView]
    schemas: Mapping[str, Any]
    grpc: ReflectionView
    client: str
    openapi: Mapping[str, Any]
    asyncapi: Mapping[str, Any]


async def showGateway(call: ConsoleCall, query: GatewayQuery) -> GatewayView:
    """
    Describe the gateway.

    @raise ServiceError: C{NOT_FOUND}: no listener of the gateway is enabled.
    """
    daemon = call.services.daemon.gateway
    if daemon is None:
        raise codedError("NOT_FOUND", "No listener of the gateway is enabled")
    # Imported late: descriptions are rare.
    from storagegate.gateway.asyncapi import describeMessages
    from storagegate.gateway.openapi import describeHTTP

    gateway = daemon.gateway
    listeners = openListeners(call.services)
    forwarded = () if gateway.forwarding is None else gateway.forwarding.names
    collection = SchemaCollection(modern=True)
    client = query.address or call.address
    refusals = await _refusals(call)
    services: list[ServiceView] = []
    entries: list[MethodEntry] = []
    for service in gateway.services.values():
        methods = []
        for name in service.methods:
            entry = gateway.invoker.find(service.name, name)
            entries.append(entry)
            limit = await _rateLimit(entry, client, refusals)
            methods.append(_method(entry, collection, limit))
        services.append(
            ServiceView(
                service.name,
                methods,
                list(service.authentication.methods),
                service.authentication.authorize is not None,
                service.others is not None,
                service.name in forwarded,
            )
        )
    base = gateway.settings.of(HTTP.name).basePath
    return GatewayView(
        _wires(gateway, listeners),
        services,
        collection.schemas,
        await _reflected(listeners.get(GRPC.name)),
        client,
        describeHTTP(entries, gateway.settings, base),
        describeMessages(entries, gateway.settings, base),
    )


def _wires(gateway: Any, listeners: Mapping[str, GatewayListener]) -> list[WireView]:
    """Describe each wire, open or not."""
    wires = []
    has = {
        *gateway.authentication.providers,
        *(["apikey"] if gateway.authentication.ownKeys else ()),
    }
    for row in transports():
        listener = listeners.get(row.name)
        providers = gateway.authentication.rules.get(row.name, ())
        known = [name for name in providers if name in has]
        if listener is None:
            wires.append(WireView(row.name, row.title, "", "", False, known))
        else:
            shown, path = listener.shownAddress, listener.path
            wires.append(WireView(row.name, row.title, shown, path, listener.isSecure, known))
    return wires


def _method(
    entry: MethodEntry, collection: SchemaCollection, limit: RateLimitView | None
) -> MethodView:
    return MethodView(
        entry.name,
        entry.streaming,
        collection.request(entry),
        collection.response(entry),
        entry.isPublic,
        entry.method.idempotent,
        limit,
    )


async def _rateLimit(
    entry: MethodEntry, client: str, refusals: Mapping[tuple[str, str], int] | None
) -> RateLimitView | None:
    """Describe the rate limit of a method, and its use by a client."""
    if entry.limit is None or entry.rates is None:
        return None
    count: Any = entry.rates.get(rateLimitKey(client))
    if hasattr(count, "__await__"):
        count = await count
    used, end = (0, 0.0) if count is None else count
    refused = None if refusals is None else refusals.get((entry.service.name, entry.name), 0)
    return RateLimitView(entry.limit.requests, entry.limit.window, used, int(end * 1000), refused)


async def _refusals(call: ConsoleCall) -> Mapping[tuple[str, str], int] | None:
    """Count the calls that were refused for their rate, by service and method, in all workers."""
    families: Iterable[Any] = await askMeters(call.services.link, call.services.meters)
    for family in families:
        if family.name == "storagegate_requests_total":
            names = list(family.labels)
            places = [names.index(name) for name in ("service", "method", "status")]
            found: dict[tuple[str, str], int] = {}
            for labels, value in family.samples:
                service, method, status = (labels[place] for place in places)
                if status == "RATE_LIMITED":
                    key = (service, method)
                    found[key] = found.get(key, 0) + int(value)
            return found
    return None


async def _reflected(listener: GatewayListener | None) -> ReflectionView:
    """Query the gRPC listener for its services by reflection."""
    if listener is None:
        return ReflectionView([], "The gRPC listener is not enabled")
    import time

    from storagegate.gateway.transports.grpc.client import makeEngine
    from storagegate.rpc.reflectionclient import fetchServices

    engine = makeEngine(listener.target({}))
    try:
        deadline = time.time() + _REFLECTION_SECONDS
        fetching = Deferred.fromCoroutine(fetchServices(engine, deadline, False, None))
        found = await fetching.addTimeout(_REFLECTION_SECONDS, listener.reactor)
    except Exception as error:
        # The listener may lack reflection, or be stopping.
        return ReflectionView([], f"{error!s:.300}")
    finally:
        engine.close()
    services = []
    for name, service in sorted(found.items()):
        methods = [
            RPCMethodView(each.name, each.path, each.streaming) for each in service.methods.values()
        ]
        services.append(RPCServiceView(name, methods))
    return ReflectionView(services, "")
