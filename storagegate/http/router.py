"""
Routers, which register middleware, routes, other routers and Twisted resources, and list the
routes.

A route table (L{Router.withRoutes}) maps paths to handlers of standard requests, C{(Request) ->
Response}; to mappings of methods to such handlers; or to HTML pages: the path of a file, a
C{twisted.web.template.Element}, or any C{IResource}, which serves everything below its path.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import ismethod, isroutine, signature, unwrap
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    overload,
)

from attrs import frozen
from twisted.web.resource import IResource, Resource
from zope.interface import implementer

from storagegate.core.options import changeOptions, joinOptions
from storagegate.http.dispatch import (
    WEBSOCKET,
    Handler,
    HandlerArgument,
    HandlerFunction,
    Layer,
    LayerList,
    RouteHandlers,
    RouteLayer,
    isClassical,
    nameOf,
    readHandlers,
)
from storagegate.http.fields import copyFields
from storagegate.http.options import (
    RouteDescription,
    RouteDescriptionDict,
    RouterOptions,
    RouterOptionsDict,
    readDescription,
)
from storagegate.http.patterns import Pattern, compilePattern
from storagegate.net.http.interfaces import IWebResponse

if TYPE_CHECKING:
    # Each takes 20 ms to import.
    from storagegate.http.routetable import RouteTable
    from storagegate.http.typedroutes import FunctionTypes, RouteTypes

Path = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""One path, or a list of alternative paths."""

RouteType = type[Any] | Mapping[str, Any] | None
"""A model, C{list} of one, or a JSON Schema; C{None} for any value."""

LateType = Callable[[], RouteType]
"""A function that returns a type, for one that is imported or defined later."""

H = TypeVar("H", bound=HandlerFunction)
F = TypeVar("F", bound=Callable[..., Any])
W = TypeVar("W", bound=Callable[..., Any])
R = TypeVar("R", bound="Router")
R_co = TypeVar("R_co", covariant=True)

RouteArgument = HandlerArgument | Callable[..., Any]
"""The handlers that a route accepts; the last of them may be a typed handler."""

MountArgument = Union[HandlerArgument, "Router", IResource, Resource]
"""The handlers that C{use} accepts."""

ROUTE_TYPES = ("body", "query", "params", "response")
"""The keywords of a registration that are types."""

ANY_METHOD = "ALL"
"""The method that L{RouteInfo} names for a route of all methods."""


@frozen
class RouteInfo:
    """
    One route.

    @ivar method: The method; C{ALL} for a route of all methods, C{WS} for a WebSocket route.
    @ivar path: The full path, as registered; for a regular expression, its source.
    @ivar handler: The last of its handlers.
    @ivar middleware: The handlers before it.
    @ivar params: The names of its parameters.
    @ivar regexp: The regular expression that it matches.
    @ivar mount: The path that its router is mounted at; empty for the application's own.
    @ivar types: Its types, or C{None}.
    @ivar openapi: What its registration says about it for OpenAPI, or a function that returns this.
    """

    method: str
    path: str
    handler: HandlerFunction
    middleware: list[HandlerFunction]
    params: list[str]
    regexp: re.Pattern[str]
    mount: str = ""
    types: "RouteTypes | FunctionTypes | None" = None
    openapi: "RouteDescription | Callable[[], RouteDescriptionDict] | None" = None


class RouteKeywords(TypedDict, total=False):
    """
    The keywords of a registration.

    @ivar cancelOnDisconnect: Whether asynchronous handlers are cancelled when the client
        disconnects.
    @ivar body: The type of C{req.body}: a model (a dataclass, a class of attrs or msgspec, a
        C{TypedDict}, a model of pydantic), a list of one, or a JSON Schema.
    @ivar query: A model or a schema of C{req.query}.
    @ivar params: A model or a schema of C{req.params}.
    @ivar response: The type that the last handler returns, as C{body}.
    @ivar openapi: What only the registration can say about the route for OpenAPI: see
        L{RouteDescription<storagegate.http.options.RouteDescription>}.
    """

    cancelOnDisconnect: bool
    body: "RouteType | LateType"
    query: "RouteType | LateType"
    params: "RouteType | LateType"
    response: "RouteType | LateType"
    openapi: "RouteDescriptionDict | Callable[[], RouteDescriptionDict]"


class HandlerDecorator(Protocol):
    """Registers the decorated function, and returns it unchanged."""

    def __call__(self, function: H, /) -> H: ...


class RouteDecorator(Protocol):
    """Registers the decorated function for a route, and returns it unchanged."""

    def __call__(self, function: F, /) -> F: ...


class RouteRegistration(Protocol[R_co]):
    """
    Registers handlers for a path and returns the router; without handlers, returns a decorator.
    """

    @overload
    def __call__(self, path: Path, /, **keywords: Unpack[RouteKeywords]) -> RouteDecorator: ...

    @overload
    def __call__(
        self,
        path: Path,
        handler: RouteArgument,
        /,
        *handlers: RouteArgument,
        **keywords: Unpack[RouteKeywords],
    ) -> R_co: ...


class ChainRegistration(Protocol):
    """L{RouteRegistration} for a chain, whose path is known."""

    @overload
    def __call__(self, /, **keywords: Unpack[RouteKeywords]) -> RouteDecorator: ...

    @overload
    def __call__(
        self,
        handler: RouteArgument,
        /,
        *handlers: RouteArgument,
        **keywords: Unpack[RouteKeywords],
    ) -> "RouteChain": ...


class RegistrationMethod(Protocol):
    """The type of a registration method of a router or a chain, for type checkers."""

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Any: ...

    @overload
    def __get__(self, instance: "RouteChain", owner: Any = None) -> ChainRegistration: ...

    @overload
    def __get__(self, instance: R, owner: Any = None) -> RouteRegistration[R]: ...


def _registration(method: str | None) -> RegistrationMethod:
    def register(self: Any, *arguments: Any, **keywords: Unpack[RouteKeywords]) -> Any:
        """Register handlers for one method, or for all; without handlers, return a decorator."""
        unknown = keywords.keys() - RouteKeywords.__annotations__
        if unknown:
            raise TypeError(f"a route has no option {', '.join(sorted(unknown))}")
        return self._register(method, arguments, keywords)

    register.__name__ = register.__qualname__ = (method or "all").lower()
    return cast(RegistrationMethod, register)


class _Registration:
    """
    The registration methods common to routers and chains.

    Each takes a path, except in a chain, and one or more handlers; without a handler it is a
    decorator. L{RouteKeywords} describes the keywords.
    """

    get = _registration("GET")
    """Register handlers for GET, and for HEAD unless HEAD has its own."""
    post = _registration("POST")
    """Register handlers for POST."""
    put = _registration("PUT")
    """Register handlers for PUT."""
    patch = _registration("PATCH")
    """Register handlers for PATCH."""
    delete = _registration("DELETE")
    """Register handlers for DELETE."""
    head = _registration("HEAD")
    """Register handlers for HEAD."""
    options = _registration("OPTIONS")
    """Register handlers for OPTIONS; the default response is C{Allow}."""
    all = _registration(None)
    """Register handlers for every method."""


class RouteChain(_Registration):
    """Registers several methods of one path in a chain: C{app.route(path).get(a).put(b)}."""

    def __init__(self, route: RouteLayer, path: Path, router: "Router") -> None:
        self.route = route
        self._path = path
        self._router = router

    def _register(
        self, method: str | None, arguments: tuple[Any, ...], keywords: RouteKeywords
    ) -> Any:
        if not arguments:
            return _decorator(lambda function: self._register(method, (function,), keywords))
        registration = self._router._readRoute(method, self._path, arguments, keywords)
        self.route.add(registration, keywords.get("cancelOnDisconnect", False))
        return self


class Router(LayerList, _Registration):
    """
    A list of middleware, routes and other routers.

    Every registration returns the router, except when used as a decorator.
    """

    def __init__(
        self, options: Mapping[str, Any] | None = None, /, **more: Unpack[RouterOptionsDict]
    ) -> None:
        """
        @param options: See L{RouterOptions<storagegate.http.options.RouterOptions>}; as a mapping,
            by keyword, or both; keywords take precedence.
        @raise OptionError: If an option is unknown or its value is invalid.
        """
        given = changeOptions(RouterOptions(), joinOptions(options, more))
        super().__init__(given.caseSensitive, given.mergeParams, given.strict)

    @overload
    def ws(
        self,
        path: Path,
        /,
        *,
        subprotocols: Sequence[str] = (),
        cancelOnDisconnect: bool = False,
    ) -> Callable[[W], W]: ...

    @overload
    def ws(
        self,
        path: Path,
        handler: Callable[..., Any],
        /,
        *,
        subprotocols: Sequence[str] = (),
        cancelOnDisconnect: bool = False,
    ) -> Self: ...

    @overload
    def ws(
        self,
        path: Path,
        middleware: HandlerArgument,
        /,
        *handlers: HandlerArgument | Callable[..., Any],
        subprotocols: Sequence[str] = (),
        cancelOnDisconnect: bool = False,
    ) -> Self: ...

    def ws(
        self,
        path: Path,
        /,
        *functions: Any,
        subprotocols: Sequence[str] = (),
        cancelOnDisconnect: bool = False,
    ) -> Any:
        """
        Register a handler for WebSockets; without one, return a decorator.

        @param functions: Middleware, which may refuse the request; the last is the handler, a
            coroutine function of a L{WebSocket<storagegate.http.websocket.WebSocket>}.
        @param subprotocols: The subprotocols that the handler supports.
        @param cancelOnDisconnect: Whether the handler is cancelled when its WebSocket closes.
        @raise TypeError: If a handler is invalid.
        @raise ValueError: If the path is invalid.
        """
        if not functions:
            return _decorator(
                lambda function: self.ws(
                    path,
                    function,
                    subprotocols=subprotocols,
                    cancelOnDisconnect=cancelOnDisconnect,
                )
            )
        # Imported with the first route.
        from storagegate.http.websocket import webSocketHandler

        *before, handler = functions
        typed = None
        if callable(handler) and getattr(handler, "__code__", None) is not None:
            code = handler.__code__
            if code.co_argcount + code.co_kwonlyargcount - ismethod(handler) != 1:
                from storagegate.http.typedhandlers import typedSocket

                name = f"{WEBSOCKET} {path}"
                typed = typedSocket(handler, name, _paramsOf(path), self.mergeParams)
        upgrade = webSocketHandler(handler, subprotocols, cancelOnDisconnect, typed)
        handlers = (*readHandlers(before), (upgrade, 2))
        self.route(path).route.add(RouteHandlers(WEBSOCKET, handlers))
        return self

    @overload
    def use(self, path: Path, /) -> HandlerDecorator: ...

    @overload
    def use(self, path: Path, handler: "MountArgument", /, *handlers: "MountArgument") -> Self: ...

    @overload
    def use(self, handler: "MountArgument", /, *handlers: "MountArgument") -> Self: ...

    def use(self, *arguments: Any) -> Any:
        """
        Register middleware for every path, or for paths with a prefix.

        @param arguments: An optional path or list of paths, then handlers, routers or Twisted
            resources. With a path alone, this is a decorator.
        @raise TypeError: If a handler is invalid.
        @raise ValueError: If the path is invalid.
        """
        path: Path = "/"
        if arguments and _readPaths(arguments[0]):
            path, arguments = arguments[0], arguments[1:]
            if not arguments:
                return _decorator(lambda function: self.use(path, function))
        if not arguments:
            raise TypeError("use takes middleware, or a path and middleware")
        for argument in arguments:
            self._mount(path, argument)
        return self

    def _mount(self, path: Path, argument: Any, position: int | None = None) -> None:
        router = argument if isinstance(argument, Router) else None
        handlers: tuple[Handler, ...] = ()
        if router is None:
            isResource = IResource.providedBy(argument)
            handlers = readHandlers([resourceMiddleware(argument) if isResource else argument])
        paths = _readPaths(path)
        group = object() if len(paths) > 1 else None
        for each in paths:
            pattern = compilePattern(each, caseSensitive=self.caseSensitive, prefix=True)
            self.addLayer(Layer(pattern, handlers, router=router, group=group), position)

    def route(self, path: Path) -> RouteChain:
        """
        Return a chain that registers handlers for C{path} without naming it again.

        @raise ValueError: If the path is invalid.
        """
        paths = _readPaths(path)
        if not paths:
            raise ValueError(f"{path!r} is neither a path nor a list of paths")
        patterns = [
            compilePattern(each, caseSensitive=self.caseSensitive, strict=self.strict)
            for each in paths
        ]
        route = RouteLayer()
        for pattern in patterns:
            self.addLayer(Layer(pattern, route=route, group=route if len(paths) > 1 else None))
        return RouteChain(route, path, self)

    def param(self, name: str, handler: Callable[..., Any] | None = None) -> Any:
        """
        Register a handler for a parameter of the paths of this router.

        It runs before the handlers of a path that has the parameter, once for each value in a
        request, and calls C{next()} to run them.

        @param handler: A function of C{(req, res, next, value)} or C{(req, res, next, value,
            name)}; without it this is a decorator.
        @raise TypeError: If the handler has another signature.
        @raise ValueError: If the name is not a valid parameter name.
        """
        if handler is None:
            return _decorator(lambda function: self.param(name, function))
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not a parameter name: write it without a colon")
        try:
            signature(handler).bind(*range(4))
            arguments: tuple[str, ...] = ()
        except TypeError:
            arguments = (name,)
        try:
            signature(handler).bind(*range(4), *arguments)
        except TypeError:
            raise TypeError(
                f"{nameOf(handler)} takes neither (req, res, next, value) nor "
                "(req, res, next, value, name)"
            ) from None

        def make(value: str) -> HandlerFunction:
            @wraps(handler)
            def handle(req: Any, res: Any, next: Any) -> Any:
                return handler(req, res, next, value, *arguments)

            return handle

        self.paramHandlers.setdefault(name, []).append(make)
        return self

    def withRoutes(self, routes: "RouteTable") -> Self:
        """
        Install a route table: paths, each with a handler of standard requests, a mapping of
        methods to such handlers, or an HTML page.

        @raise TypeError: If a value has another type.
        @raise ValueError: If a path is invalid.
        """
        # The Fetch standard is imported with the first table.
        from storagegate.http.routetable import installRoutes

        installRoutes(self, routes)
        return self

    def getRoutes(self, method: str | None = None) -> list[RouteInfo]:
        """List the routes, including mounted routers; optionally only one method's."""
        routes = (info for info, _ in walkRoutes(self, ""))
        return [route for route in routes if method is None or route.method == method.upper()]

    def hasRoute(self, method: str, path: str) -> bool:
        """Return whether a route exists for a method and a path, or a pattern as registered."""
        wanted = (method.upper(), ANY_METHOD)
        return any(each in wanted for each in _matching(self, path))

    def getAllowedMethods(self, path: str) -> list[str]:
        """List the methods registered for a path, or a pattern as registered."""
        methods = dict.fromkeys(_matching(self, path))
        methods.pop(ANY_METHOD, None)
        return list(methods)

    def _register(
        self, method: str | None, arguments: tuple[Any, ...], keywords: RouteKeywords
    ) -> Any:
        if not arguments or not _readPaths(arguments[0]):
            raise TypeError("a route begins with its path")
        path, *functions = arguments
        if not functions:
            return _decorator(lambda function: self._register(method, (path, function), keywords))
        registration = self._readRoute(method, path, functions, keywords)
        self.route(path).route.add(registration, keywords.get("cancelOnDisconnect", False))
        return self

    def _readRoute(
        self, method: str | None, path: Path, functions: Sequence[Any], keywords: RouteKeywords
    ) -> RouteHandlers:
        """Read the handlers of a route, and apply its types, if any, to the last handler."""
        types = {
            name: value
            for name, value in keywords.items()
            if name in ROUTE_TYPES and value is not None
        }
        name = f"{method or ANY_METHOD} {path}"
        typed = None
        if functions and not isinstance(functions[-1], list | tuple):
            typed = self._readTyped(functions[-1], name, method, path, types)
        if typed is not None:
            handlers = (*readHandlers(functions[:-1]), typed)
        else:
            handlers = readHandlers(functions)
            if types:
                # Imported with the first route that has types.
                from storagegate.http.typedroutes import typedHandlers

                handlers = typedHandlers(handlers, name, types)
        description: Any = keywords.get("openapi")
        if description is not None and not isroutine(description):
            description = readDescription(description)
        return RouteHandlers(method, handlers, description)

    def _readTyped(
        self, function: Any, name: str, method: str | None, path: Path, types: Mapping[str, Any]
    ) -> Handler | None:
        """
        Compile the last handler of a route, if it is a typed one.

        @raise DefinitionError: If a parameter has no source, or two.
        """
        if isClassical(function):
            return None
        # Imported with the first function that may be a typed handler.
        from storagegate.http.typedhandlers import typedFunction

        return typedFunction(function, name, method, _paramsOf(path), self.mergeParams, types)


def _readPaths(given: Any) -> Sequence[str | re.Pattern[str]]:
    """Return a path or a list of paths as a sequence, empty if it is neither."""
    paths = given if isinstance(given, list | tuple) else [given]
    return paths if all(isinstance(each, str | re.Pattern) for each in paths) else []


def _paramsOf(path: Path) -> set[str | int]:
    """Return the names of the parameters of a path, or of several."""
    patterns = [compilePattern(each, caseSensitive=True) for each in _readPaths(path)]
    return {name for each in patterns for name in each.names}


def _decorator(register: Callable[[Any], Any]) -> HandlerDecorator:
    def decorate(function: H) -> H:
        register(function)
        return function

    return decorate


def _matching(router: LayerList, path: str) -> Iterator[str]:
    """Yield the methods of the routes for a path, or for a pattern as registered."""
    for full, pattern, route, _ in _walkLayers(router, ""):
        if full == path or pattern.match(path) is not None:
            for registration in route.registrations:
                yield registration.method or ANY_METHOD


def walkRoutes(router: LayerList, prefix: str) -> Iterator[tuple[RouteInfo, Pattern]]:
    """
    Yield the routes of a router and of the routers mounted in it, with their full patterns.

    @param prefix: The path that it is mounted at; empty for an application.
    """
    for path, pattern, route, mount in _walkLayers(router, prefix):
        for method, handlers, description in route.registrations:
            *before, last = [function for function, _ in handlers]
            types = getattr(last, "routeTypes", None)
            info = RouteInfo(
                method or ANY_METHOD,
                path,
                last if types is None else unwrap(last),
                before,
                list(pattern.names),
                pattern.regexp,
                mount,
                types,
                description,
            )
            yield info, pattern


def _walkLayers(router: LayerList, prefix: str) -> Iterator[tuple[str, Pattern, RouteLayer, str]]:
    """Yield path, full pattern, layer and mount path of the routes, see L{walkRoutes}."""
    for layer in router.layers:
        pattern, route = layer.pattern, layer.route
        source = pattern.source if isinstance(pattern.source, str) else pattern.source.pattern
        path = (prefix or "/") if source == "/" else prefix.rstrip("/") + source
        if layer.router is not None:
            yield from _walkLayers(layer.router, path)
        elif route is not None:
            if prefix and isinstance(pattern.source, str):
                pattern = compilePattern(
                    path, caseSensitive=router.caseSensitive, strict=router.strict
                )
            yield path, pattern, route, prefix


def resourceMiddleware(resource: IResource) -> Callable[[Any, Any, Any], None]:
    """
    Make middleware that serves everything at or below its path with a Twisted resource.

    C{prepath} holds the path that the resource is mounted at, as in a tree of resources. The
    application's response sends the resource's response, so that header fields and hooks of
    middleware apply. A resource that takes over the connection, such as Autobahn's WebSocket, takes
    it from the application.
    """

    def render(req: Any, res: Any, next: Any) -> None:
        prefix = req.baseUrl.count("/")
        req.raw.channel.owner.serveMounted(req.raw, resource, prefix, _ResourceResponse(res))

    return render


@implementer(IWebResponse)
class _ResourceResponse:
    """Passes the response of a Twisted resource to the response of an application."""

    def __init__(self, res: Any) -> None:
        self._res = res

    def begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]],
        length: int | None,
        phrase: bytes = b"",
    ) -> None:
        """Begin the response. The phrase is ignored."""
        res = self._res
        res.statusCode = code
        fields: list[tuple[str, str]] = []
        for name, value in headers:
            if name.lower() == b"content-length":
                length = int(value)
            else:
                fields.append((name.decode("ascii"), value.decode("latin-1")))
        copyFields(res, fields)
        res.startBody(length)

    def send(self, chunk: bytes) -> Any:
        """Send a part of the body."""
        return self._res.write(chunk)

    def finish(self) -> None:
        """End the response."""
        self._res.end()

    def respond(self, code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a whole response."""
        self.begin(code, headers, len(body))
        self.send(body)
        self.finish()
