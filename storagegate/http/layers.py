"""The layers of a router, in their order, and the handlers that they call."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Union

from attrs import frozen

from storagegate.http.matcher import RouteIndex
from storagegate.http.patterns import Pattern
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse

NextFunction = Callable[..., Any]
"""C{next()}, C{next(error)}, C{next("route")} or C{next("router")}; awaitable."""

RouteHandler = Callable[[HTTPRequest, HTTPResponse], Any]
MiddlewareHandler = Callable[[HTTPRequest, HTTPResponse, NextFunction], Any]
ErrorHandler = Callable[[Any, HTTPRequest, HTTPResponse, NextFunction], Any]

HandlerFunction = RouteHandler | MiddlewareHandler | ErrorHandler
"""A function, a coroutine function or one that returns a Deferred."""

HandlerArgument = Union[HandlerFunction, list[Any], "tuple[HandlerArgument, ...]"]
"""What a registration takes: a handler, or a list of them, which may be nested."""

Handler = tuple[Callable[..., Any], int]
"""A function, and with how many arguments it is called: 2, 3, or 4 for one that takes errors."""

ERROR_HANDLER = 4


def readHandler(function: Any) -> Handler:
    """
    Find how many arguments a handler is called with.

    Parameters with a default do not count, but for a third one that is called C{next}.

    @raise TypeError: If it is no function, or takes another number of arguments.
    """
    if not callable(function):
        raise TypeError(f"a handler is a function, not {function!r}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Some built-in functions have no signature.
        return function, 3
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = sum(p.default is p.empty for p in positional)
    if count == 2 and len(positional) > 2 and positional[2].name == "next":
        count = 3
    if count < 4 and any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = 3
    missing = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    if not 2 <= count <= 4 or missing:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"{name} takes neither (req, res), (req, res, next) nor (error, req, res, next)"
        )
    return function, count


def readHandlers(functions: Iterable[Any]) -> tuple[Handler, ...]:
    """
    Read handlers; lists of them may be nested.

    @raise TypeError: If one of them is no handler.
    """
    return tuple(readHandler(function) for function in _flatten(functions))


def _flatten(functions: Iterable[Any]) -> Iterator[Any]:
    for function in functions:
        if isinstance(function, list | tuple):
            yield from _flatten(function)
        else:
            yield function


class RouteLayer:
    """
    The handlers of one path, by method.

    @ivar pattern: The path.
    @ivar cancels: Whether its handlers are cancelled when the client goes away.
    @ivar counted: The methods that C{Allow} names: those registered, but for C{all}.
    @ivar chosen: By method what L{choose} has returned before.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.cancels = False
        self.counted: list[str] = []
        self.registrations: list[tuple[str | None, tuple[Handler, ...]]] = []
        self.chosen: dict[str, tuple[tuple[Handler, ...], bool]] = {}

    def add(self, method: str | None, handlers: tuple[Handler, ...], cancels: bool = False) -> None:
        """
        Add handlers.

        @param method: C{None} for every method.
        """
        self.registrations.append((method, handlers))
        self.cancels = self.cancels or cancels
        if method is not None and method not in self.counted:
            self.counted.append(method)
        self.chosen = {}

    def choose(self, method: str) -> tuple[tuple[Handler, ...], bool]:
        """
        Choose the handlers for a method.

        @return: The handlers, none if there are only some that take errors; and whether any is
            registered for this very method, not only for all methods.
        """
        wanted = "GET" if method == "HEAD" and "HEAD" not in self.counted else method
        handlers = tuple(
            handler
            for registered, handlers in self.registrations
            if registered is None or registered == wanted
            for handler in handlers
        )
        if all(kind == ERROR_HANDLER for _, kind in handlers):
            handlers = ()
        # Bounded: the listener lets in few methods.
        self.chosen[method] = chosen = handlers, wanted in self.counted
        return chosen


@frozen
class Layer:
    """
    One layer of a router: middleware, a route, or a router mounted in it.

    @ivar pattern: The paths that it matches.
    @ivar handlers: The middleware.
    """

    pattern: Pattern
    handlers: tuple[Handler, ...] = ()
    route: RouteLayer | None = None
    router: "LayerList | None" = None


class LayerList:
    """
    The layers of a router, in their order.

    @ivar caseSensitive: Whether C{/About} and C{/about} differ.
    @ivar mergeParams: Whether C{req.params} has the parameters of the path it is mounted at.
    @ivar strict: Whether C{/about/} and C{/about} differ.
    @ivar layers: The layers; changed by L{addLayer} and L{dropLayers} only.
    @ivar index: The matcher of all layers, C{None} after a change until a request needs it.
    """

    def __init__(self, caseSensitive: bool, mergeParams: bool, strict: bool) -> None:
        self.caseSensitive = caseSensitive
        self.mergeParams = mergeParams
        self.strict = strict
        self.layers: list[Layer] = []
        self.index: RouteIndex | None = None

    def addLayer(self, layer: Layer, position: int | None = None) -> None:
        """Add a layer, at the end or at a position."""
        self.layers.insert(len(self.layers) if position is None else position, layer)
        self.index = None

    def dropLayers(self, count: int) -> None:
        """Remove the first layers."""
        del self.layers[:count]
        self.index = None


def indexLayers(layers: LayerList) -> RouteIndex:
    """Make the matcher of all layers."""
    layers.index = RouteIndex([layer.pattern for layer in layers.layers])
    return layers.index
