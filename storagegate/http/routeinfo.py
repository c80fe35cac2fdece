"""What routes there are, for those who ask."""

import re
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from storagegate.http.handlers import HandlerFunction
from storagegate.http.layers import Layer, LayerList
from storagegate.http.patterns import Pattern, compilePattern

ANY_METHOD = "ALL"
"""What the method of a route is called that was registered for all of them."""


@frozen
class RouteInfo:
    """
    One route.

    @ivar method: C{ALL} for a route of every method.
    @ivar path: The full path, as registered; that of a regular expression is its source.
    @ivar handler: The last of its handlers.
    @ivar middleware: Those before it.
    @ivar params: The names of its parameters.
    @ivar regexp: What it matches.
    """

    method: str
    path: str
    handler: HandlerFunction
    middleware: list[HandlerFunction]
    params: list[str]
    regexp: re.Pattern[str]


def listRoutes(router: LayerList, prefix: str = "") -> list[RouteInfo]:
    """List the routes of a router and of those mounted in it, in their order."""
    return [info for info, _ in _walk(router, prefix)]


def hasRoute(router: LayerList, method: str, path: str) -> bool:
    """Say whether there is a route for a method and a concrete path or a registered pattern."""
    wanted = (method.upper(), ANY_METHOD)
    return any(info.method in wanted for info in _matching(router, path))


def allowedMethods(router: LayerList, path: str) -> list[str]:
    """List the methods registered for a concrete path or a registered pattern."""
    methods = dict.fromkeys(info.method for info in _matching(router, path))
    methods.pop(ANY_METHOD, None)
    return list(methods)


def _matching(router: LayerList, path: str) -> Iterator[RouteInfo]:
    for info, pattern in _walk(router, ""):
        if info.path == path or pattern.match(path) is not None:
            yield info


def _walk(router: LayerList, prefix: str) -> Iterator[tuple[RouteInfo, Pattern]]:
    for layer in router.layers:
        if layer.router is not None:
            yield from _walk(layer.router, _join(prefix, _text(layer.pattern)))
        elif layer.route is not None:
            yield from _infos(router, layer, prefix)


def _infos(router: LayerList, layer: Layer, prefix: str) -> Iterator[tuple[RouteInfo, Pattern]]:
    assert layer.route is not None
    own = layer.route.pattern
    pattern, path = own, _join(prefix, _text(own))
    if prefix and isinstance(own.source, str):
        pattern = compilePattern(path, caseSensitive=router.caseSensitive, strict=router.strict)
    for method, handlers in layer.route.registrations:
        functions: list[Any] = [function for function, _ in handlers]
        info = RouteInfo(
            method or ANY_METHOD,
            path,
            functions[-1],
            functions[:-1],
            list(pattern.names),
            pattern.regexp,
        )
        yield info, pattern


def _text(pattern: Pattern) -> str:
    return pattern.source if isinstance(pattern.source, str) else pattern.source.pattern


def _join(prefix: str, path: str) -> str:
    if path == "/":
        return prefix or "/"
    return prefix.rstrip("/") + path
