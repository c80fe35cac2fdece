"""Routers: what answers which path, in the order in which it was registered."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Self

from twisted.web.resource import IResource

from storagegate.http.foreignmiddleware import resourceMiddleware
from storagegate.http.handlers import HandlerFunction, readHandlers
from storagegate.http.layers import Layer, LayerList, Route
from storagegate.http.patterns import compilePattern
from storagegate.http.routeinfo import RouteInfo, allowedMethods, hasRoute, listRoutes

Path = str | re.Pattern[str]

Decorator = Callable[[HandlerFunction], HandlerFunction]


class _Registration:
    """
    The registration methods that a router and a chain have in common.

    Each takes a path, unless the chain has it already, and one or more handlers; without a
    handler it is a decorator.
    """

    def _register(
        self, method: str | None, arguments: tuple[Any, ...], cancelOnDisconnect: bool
    ) -> Any:
        raise NotImplementedError

    def get(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """
        Register handlers for GET, and for HEAD unless that has its own.

        @param cancelOnDisconnect: Whether what the handlers wait for is cancelled when the client
            goes away.
        """
        return self._register("GET", arguments, cancelOnDisconnect)

    def post(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for POST, as L{get}."""
        return self._register("POST", arguments, cancelOnDisconnect)

    def put(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for PUT, as L{get}."""
        return self._register("PUT", arguments, cancelOnDisconnect)

    def patch(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for PATCH, as L{get}."""
        return self._register("PATCH", arguments, cancelOnDisconnect)

    def delete(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for DELETE, as L{get}."""
        return self._register("DELETE", arguments, cancelOnDisconnect)

    def head(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for HEAD, as L{get}."""
        return self._register("HEAD", arguments, cancelOnDisconnect)

    def options(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for OPTIONS, as L{get}; without any it is answered with C{Allow}."""
        return self._register("OPTIONS", arguments, cancelOnDisconnect)

    def all(self, *arguments: Any, cancelOnDisconnect: bool = False) -> Any:
        """Register handlers for every method, as L{get}."""
        return self._register(None, arguments, cancelOnDisconnect)


class RouteChain(_Registration):
    """The methods of one path, registered in a row: C{app.route(path).get(a).put(b)}."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def _register(
        self, method: str | None, arguments: tuple[Any, ...], cancelOnDisconnect: bool
    ) -> Any:
        if not arguments:
            return _decorator(
                lambda function: self._register(method, (function,), cancelOnDisconnect)
            )
        self._route.add(method, readHandlers(arguments), cancelOnDisconnect)
        return self


class Router(LayerList, _Registration):
    """
    A list of middleware, routes and other routers.

    Every registration returns the router, but for those that are used as decorators.
    """

    def __init__(
        self, *, caseSensitive: bool = False, mergeParams: bool = False, strict: bool = False
    ) -> None:
        """
        @param caseSensitive: Whether C{/About} and C{/about} differ.
        @param mergeParams: Whether C{req.params} has the parameters of the path that the router
            is mounted at.
        @param strict: Whether C{/about/} and C{/about} differ.
        """
        super().__init__(caseSensitive, mergeParams, strict)

    def use(self, *arguments: Any) -> Any:
        """
        Register middleware for every path, or for those that start with a path.

        @param arguments: Perhaps a path, then handlers, routers or Twisted resources. With a path
            alone this is a decorator.
        @raise TypeError: If a handler is none.
        @raise ValueError: If the path is none.
        """
        path: Path = "/"
        if arguments and isinstance(arguments[0], str | re.Pattern):
            path, arguments = arguments[0], arguments[1:]
            if not arguments:
                return _decorator(lambda function: self.use(path, function))
        if not arguments:
            raise TypeError("use takes middleware, or a path and middleware")
        for argument in arguments:
            self._mount(path, argument)
        return self

    def _mount(self, path: Path, argument: Any, position: int | None = None) -> None:
        pattern = compilePattern(path, caseSensitive=self.caseSensitive, prefix=True)
        if isinstance(argument, Router):
            layer = Layer(pattern, router=argument)
        elif IResource.providedBy(argument):
            layer = Layer(pattern, handlers=readHandlers([resourceMiddleware(argument)]))
        else:
            layer = Layer(pattern, handlers=readHandlers([argument]))
        self.addLayer(layer, position)

    def route(self, path: Path) -> RouteChain:
        """
        Give a chain that registers handlers for C{path} without naming it again.

        @raise ValueError: If the path is none.
        """
        pattern = compilePattern(path, caseSensitive=self.caseSensitive, strict=self.strict)
        route = Route(pattern)
        self.addLayer(Layer(pattern, route=route))
        return RouteChain(route)

    def withRoutes(self, routes: Mapping[str, Any]) -> Self:
        """
        Install a route table: paths, each with a handler of standard requests, a mapping of
        methods to such handlers, or an HTML page.

        @raise TypeError: If a value is none of these.
        @raise ValueError: If a path is none.
        """
        from storagegate.http.routetable import installRoutes

        installRoutes(self, routes)
        return self

    def getRoutes(self, method: str | None = None) -> list[RouteInfo]:
        """List the routes, with those of mounted routers, all or those of one method."""
        routes = listRoutes(self)
        return [route for route in routes if method is None or route.method == method.upper()]

    def hasRoute(self, method: str, path: str) -> bool:
        """Say whether there is a route for a method and a path or a pattern as registered."""
        return hasRoute(self, method, path)

    def getAllowedMethods(self, path: str) -> list[str]:
        """List the methods that are registered for a path or a pattern as registered."""
        return allowedMethods(self, path)

    def _register(
        self, method: str | None, arguments: tuple[Any, ...], cancelOnDisconnect: bool
    ) -> Any:
        if not arguments or not isinstance(arguments[0], str | re.Pattern):
            raise TypeError("a route begins with its path")
        path, *functions = arguments
        if not functions:
            return _decorator(
                lambda function: self._register(method, (path, function), cancelOnDisconnect)
            )
        handlers = readHandlers(functions)
        pattern = compilePattern(path, caseSensitive=self.caseSensitive, strict=self.strict)
        route = Route(pattern)
        route.add(method, handlers, cancelOnDisconnect)
        self.addLayer(Layer(pattern, route=route))
        return self


def _decorator(register: Callable[[HandlerFunction], Any]) -> Decorator:
    def decorate(function: HandlerFunction) -> HandlerFunction:
        register(function)
        return function

    return decorate
