"""
Services over HTTP, inside an application of L{storagegate.http}.

Every method has a default path, C{POST {basePath}/{Service}/{method}}, and may have configured
routes::

    {"data": ...}                        the result
    {"error", "message", "details"}      an error, with its status

Streams, in both directions, are lines of JSON, see L{storagegate.net.http.lines}.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.codecs import JSON
from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import ServiceError, codedError, untraced
from storagegate.gateway.host import TransportContext
from storagegate.gateway.transports.http import (
    PROTOCOL,
    HTTPOptions,
    HTTPRoute,
    countResponse,
    readRoutes,
)
from storagegate.gateway.transports.http.call import Endpoint, HTTPCall, HTTPCallContext, sendError
from storagegate.gateway.transports.metrics import TransportMetrics
from storagegate.gateway.transports.registry import ICarrier, InvokedTransport
from storagegate.http.application import Application
from storagegate.http.patterns import compilePattern, decodeEscapes
from storagegate.http.router import Router
from storagegate.net.http.site import NativeResource, Site

_log = Logger()


@implementer(ICarrier)
class HTTPTransport(InvokedTransport):
    """Serves calls over HTTP, and carries the transports that share its listener."""

    def __init__(self, host: TransportContext, options: HTTPOptions) -> None:
        self._host = host
        self._options = options
        self._context = HTTPCallContext(host, options, host.apiKeyHeader.lower().encode("ascii"))
        self._application: Application | None = None
        self._guests: list[Any] = []
        self._isServed = True
        self._routes = readRoutes(options.routes)
        self._patterns = [(route.verb, compilePattern(route.path)) for route in self._routes]
        # The endpoints of called methods, by their path below the base.
        self._endpoints: dict[str, Endpoint] = {}
        # Encoded descriptions, with the services that they describe.
        self._documents: dict[str, tuple[tuple[Any, ...], bytes]] = {}
        self._describers: Mapping[str, Callable[..., Any]] = {
            "/openapi.json": partial(
                _describeHTTP, apiKeyHeader=host.apiKeyHeader, traceHeader=host.correlationHeader
            ),
            "/asyncapi.json": _describeMessages,
        }

    def carry(self, guests: list[Any], isServed: bool) -> None:
        """Set the transports of the next listener, see L{ICarrier}."""
        self._guests, self._isServed = guests, isServed

    def open(self, address: str) -> Deferred[Any]:
        """
        Listen for calls, and for the transports that share the listener.

        @param address: An endpoint description.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        @raise DefinitionError: If a configured route names an unknown method.
        """
        application = self.makeApplication()
        return application.listen(address, reactor=self._host.reactor)

    def join(self, site: Site) -> NativeResource:
        """
        Serve calls on the connections of another server, and the transports that L{carry} has set.

        @param site: Its site, whose root passes requests on to the resource.
        @return: The resource.
        @raise DefinitionError: If a configured route names an unknown method.
        """
        application = self._application or self.makeApplication()
        application.join(site)
        return application.resource

    def makeApplication(self) -> Application:
        """
        Make the application of a listener, with the transports that L{carry} has set.

        @raise DefinitionError: If a configured route names an unknown method.
        """
        application = self._application = Application().withOptions(
            trustProxy=self._host.settings.trustedProxies,
            http2=self._options.http2,
            http2MaxStreams=self._options.http2MaxStreams,
        )
        application.tls = self._options.tls
        for guest in self._guests:
            guest.install(application)
        if self._isServed:
            self.checkRoutes()
            self.install(application)
        self._context.meter.connections = lambda: application.connections
        return application

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Close the listener, see
        L{Application.close<storagegate.http.application.Application.close>}.

        @param graceSeconds: After this, calls are cancelled and connections dropped.
        @param idleGraceSeconds: How long idle connections stay open.
        """
        application, self._application = self._application, None
        if application is None:
            return succeed(None)
        return application.close(int(graceSeconds * 1000), int(idleGraceSeconds * 1000))

    def checkRoutes(self) -> None:
        """
        Check the configured routes.

        @raise DefinitionError: If a route names an unknown method.
        """
        for route in self._routes:
            try:
                self._host.invoker.find(route.service, route.method)
            except ServiceError:
                raise DefinitionError(
                    f"the route {route.verb} {route.path} is for {route.service}.{route.method}, "
                    "which is not there"
                ) from None

    def _reportRoutes(self) -> None:
        """Log the routes to unknown methods once the program runs."""
        try:
            self.checkRoutes()
        except DefinitionError as error:
            _log.critical("{error}", error=error)

    def install(self, app: Router) -> None:
        """
        Serve in the gateway's own application.

        Configured routes are served below C{basePath}, like all paths, and also at their own path.
        """
        base = self._options.basePath
        self._register(app, base, isOwn=True)
        if base and self._routes:
            self._registerRoutes(app, "")
        if base:
            app.use(self._refuse)

    def middleware(self) -> Router:
        """Return a router to mount at any path, which replaces C{basePath}."""
        if self._routes and hasattr(self._host.reactor, "callWhenRunning"):
            self._host.reactor.callWhenRunning(self._reportRoutes)
        router = Router()
        self._register(router, "", isOwn=False)
        return router

    def _register(self, router: Router, base: str, isOwn: bool) -> None:
        meter = self._context.meter
        if meter.responses is not None or meter.agents is not None:
            router.use(partial(_countResponse, meter))
        if self._options.enableCORS:
            router.use(_cors(self._host.correlationHeader))
        self._registerRoutes(router, base)

        def handle(req: Any, res: Any, next: Any) -> Any:
            endpoint = self._endpoints.get(req.path)
            if endpoint is not None and req.method == "POST":
                return HTTPCall(self._context, endpoint, req, res).begin()
            return self._handleOther(req, res, next, isOwn)

        router.use(base or "/", handle)

    def _registerRoutes(self, router: Router, base: str) -> None:
        for route in self._routes:
            getattr(router, route.verb.lower())(base + route.path, self._routeHandler(route))

    def _routeHandler(self, route: HTTPRoute) -> Callable[[Any, Any], Any]:
        found: list[Endpoint] = []

        def handle(req: Any, res: Any) -> Any:
            # Services may be added after the application has mounted the router.
            if not found:
                try:
                    found.append(self._find(route.service, route.method, route))
                except ServiceError as error:
                    return self._sendError(req, res, error)
            return HTTPCall(self._context, found[0], req, res).begin()

        return handle

    def _find(self, service: str, method: str, route: HTTPRoute | None = None) -> Endpoint:
        bound = self._host.invoker.find(service, method, PROTOCOL)
        return Endpoint(bound, f"{service}.{method}", route)

    def _handleOther(self, req: Any, res: Any, next: Any, isOwn: bool) -> Any:
        """Serve the first call of a method, a description, or an error."""
        error = _noService()
        allowed = self._allowed(req.path)
        try:
            endpoint = self._findEndpoint(req.path)
            if req.method == "POST":
                return HTTPCall(self._context, endpoint, req, res).begin()
            allowed.append("POST")
        except ServiceError as missing:
            # Drop the traceback, which holds this frame.
            error = untraced(missing)
        document = None if allowed else self._document(req)
        if document is not None:
            allowed = ["GET", "HEAD"]
            if req.method in allowed:
                self._host.nameTrace(req.raw.headers, res)
                return res.type("json").send(document)
        if not allowed and self._options.docs and _isPage(req.path):
            allowed = ["GET", "HEAD"]
            if req.method in allowed:
                return _sendPage(res, req.path)
        if allowed:
            return self._refuseMethod(req, res, allowed)
        if not isOwn and not req.baseUrl:
            # Mounted at the root: all other paths belong to the application.
            return next()
        return self._sendError(req, res, error)

    def _sendError(self, req: Any, res: Any, error: ServiceError) -> None:
        """Respond with an error to a request that is not a call."""
        self._host.nameTrace(req.raw.headers, res)
        sendError(self._host, res, error)

    def _findEndpoint(self, path: str) -> Endpoint:
        """
        Find the method of a path below the base.

        @raise ServiceError: C{NOT_FOUND} if there is no such method.
        """
        names = [decodeEscapes(part) for part in path[1:].removesuffix("/").split("/")]
        if len(names) != 2 or names[0] is None or names[1] is None:
            raise _noService()
        endpoint = self._find(names[0], names[1])
        isKnown = names[1] in endpoint.bound.service.methods
        if isKnown and path == f"/{names[0]}/{names[1]}":
            # Only the canonical spelling of the path is cached.
            self._endpoints[path] = endpoint
        return endpoint

    def _refuse(self, req: Any, res: Any, next: Any) -> Any:
        """Refuse other HTTP methods on configured routes outside the base path."""
        allowed = self._allowed(req.path)
        if allowed:
            return self._refuseMethod(req, res, allowed)
        # Name the trace in the application's own response.
        self._host.nameTrace(req.raw.headers, res)
        return next()

    def _allowed(self, path: str) -> list[str]:
        """Return the HTTP methods of the configured routes for a path."""
        methods = [verb for verb, pattern in self._patterns if pattern.match(path) is not None]
        return [*methods, "HEAD"] if "GET" in methods else methods

    def _refuseMethod(self, req: Any, res: Any, allowed: Sequence[str]) -> None:
        res.header("Allow", ", ".join(dict.fromkeys(allowed)))
        if req.method == "OPTIONS":
            self._host.nameTrace(req.raw.headers, res)
            res.status(204).end()
            return
        message = f"This takes {' or '.join(dict.fromkeys(allowed))}"
        self._sendError(req, res, ServiceError("METHOD_NOT_ALLOWED", message, 405))

    def _document(self, req: Any) -> bytes | None:
        """Return the description at a path, or C{None}."""
        describe = self._describers.get(req.path)
        if describe is None:
            return None
        services = self._host.invoker.services
        state = (req.baseUrl, *map(id, services.values()))
        written = self._documents.get(req.path)
        if written is None or written[0] != state:
            methods = [
                self._host.invoker.find(service.name, name)
                for service in services.values()
                for name in service.methods
            ]
            document = JSON.encode(describe(methods, self._host.settings, req.baseUrl))
            written = self._documents[req.path] = (state, document)
        return written[1]


# These are imported with the first request: they are rare, and an idle daemon stays small.


def _describeHTTP(*arguments: Any, **more: Any) -> Any:
    from storagegate.gateway.openapi import describeHTTP

    return describeHTTP(*arguments, **more)


def _isPage(path: str) -> bool:
    from storagegate.http.middleware.openapi import PAGE

    return path in PAGE


def _sendPage(res: Any, path: str) -> Any:
    from storagegate.http.middleware.openapi import sendPage

    return sendPage(res, path)


def _describeMessages(*arguments: Any) -> Any:
    from storagegate.gateway.asyncapi import describeMessages

    return describeMessages(*arguments)


def _cors(correlationHeader: str) -> Any:
    from storagegate.http.middleware.cors import cors

    # The response fields that pages of other origins may read.
    return cors(exposedHeaders=(correlationHeader, "Retry-After"))


def _countResponse(meter: TransportMetrics, req: Any, res: Any, next: Callable[[], Any]) -> Any:
    raw = req.raw
    agent = raw.headers.get(b"user-agent", b"")

    def count() -> None:
        # A request that became a WebSocket has no status.
        countResponse(meter, raw.status or (101 if raw.finished else 499), agent)

    raw.onEnd(count)
    return next()


def _noService() -> ServiceError:
    return codedError("NOT_FOUND", "There is no service at this path")
