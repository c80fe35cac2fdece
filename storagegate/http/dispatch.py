"""
Dispatch of a request through the layers of routers: the choice and order of handlers, and errors.

A layer is middleware, a route or a mounted router. Handlers run in the order of registration. If
one calls C{next()}, the handlers after it run inside that call, as in Express; the call returns an
awaitable for their end. An error that is raised or passed to C{next} goes to the next handler that
takes errors. C{next("route")} skips the other handlers of this route, C{next("router")} skips the
rest of this router.

The value that a handler returns becomes the response, unless the handler has already responded or
called C{next()}. If all handlers have ended without a response, the request ends with
L{MissingResponse}.
"""

import inspect
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain
from sys import getrefcount
from types import CoroutineType
from typing import Any, NamedTuple, Protocol, Union

from attrs import evolve, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from storagegate.core.task import Task, resolve
from storagegate.http.errors import HTTPError, MissingResponse, statusOf
from storagegate.http.matcher import RouteIndex
from storagegate.http.patterns import Params, Pattern
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.net.http.interfaces import BodyLost, ClientLost
from storagegate.net.http.message import READY, Completed

NextFunction = Callable[..., Any]
"""See L{Next}; the type of a registration, which accepts handlers with any annotation of it."""


class Next(Protocol):
    """C{next()}, C{next(error)}, C{next("route")} or C{next("router")}."""

    def __call__(self, error: object = None, /) -> Awaitable[Any]:
        """
        Call the following handlers.

        @return: An awaitable for their end.
        """


RouteHandler = Callable[[HTTPRequest, HTTPResponse], Any]
MiddlewareHandler = Callable[[HTTPRequest, HTTPResponse, NextFunction], Any]
ErrorHandler = Callable[[Any, HTTPRequest, HTTPResponse, NextFunction], Any]

HandlerFunction = RouteHandler | MiddlewareHandler | ErrorHandler
"""A function, a coroutine function or one that returns a Deferred."""

HandlerArgument = Union[HandlerFunction, list[Any], "tuple[HandlerArgument, ...]"]
"""The handlers that a registration accepts: one, or a list of them, which may be nested."""

Handler = tuple[Callable[..., Any], int]
"""A function, and the number of arguments it is called with: 2, 3, or 4 for an error handler."""

HandlerCall = tuple[Callable[..., Any], int, int]
"""A call of a handler: the function, its number among the calls for the request, and the status of
the error passed to it, or 0."""

ERROR_HANDLER = 4

WEBSOCKET = "WS"
"""The method under which a WebSocket route is registered; on the wire it is C{GET} with an
upgrade."""

# The limit of nested next() calls: each takes a few of Python's thousand stack frames. A deeper
# call runs after the handler that made it has returned.
_MAX_DEPTH = 50


# The number of methods for which a route caches its choice of handlers.
_MAX_METHODS = 16


def readHandler(function: Any) -> Handler:
    """
    Determine the number of arguments to call a handler with.

    Parameters with a default do not count, except a third one named C{next}.

    @param function: A function of C{(req, res)}, C{(req, res, next)} or C{(error, req, res, next)}.
    @raise TypeError: If it is not a function, or takes another number of arguments.
    """
    if not callable(function):
        raise TypeError(f"a handler is a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{nameOf(function)} is a generator, which would not run; use res.write")
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
        raise TypeError(
            f"{nameOf(function)} takes neither (req, res), (req, res, next) nor "
            "(error, req, res, next)"
        )
    return function, count


_ANNOTATIONS = {
    HTTPRequest: 0,
    "HTTPRequest": 0,
    HTTPResponse: 1,
    "HTTPResponse": 1,
    Any: None,
    "Any": None,
    NextFunction: None,
}
"""Annotations that a classical handler may have, with their positions among C{req} and C{res}."""


def isClassical(function: Any) -> bool:
    """
    Return whether a function is certainly not a typed handler, without an import.

    Its two to four parameters have no defaults, and no annotations but these.
    """
    code = getattr(function, "__code__", None)
    if code is None or function.__defaults__ or function.__kwdefaults__ or code.co_kwonlyargcount:
        return False
    names = code.co_varnames[inspect.ismethod(function) : code.co_argcount]
    if not 2 <= len(names) <= 4:
        return False
    first = 1 if len(names) == ERROR_HANDLER else 0
    notes = function.__annotations__
    for position, name in enumerate(names):
        note = notes.get(name, Any)
        if not isinstance(note, Hashable) or note not in _ANNOTATIONS:
            return False
        if _ANNOTATIONS[note] not in (None, position - first):
            return False
    return True


def nameOf(function: Any) -> str:
    """Return the name of a handler, for messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def readHandlers(functions: Iterable[Any]) -> tuple[Handler, ...]:
    """
    Read handlers; lists and tuples of them may be nested.

    @raise TypeError: If one of them is not a handler.
    """
    handlers: list[Handler] = []
    for function in functions:
        if isinstance(function, list | tuple):
            handlers.extend(readHandlers(function))
        else:
            handlers.append(readHandler(function))
    return tuple(handlers)


class RouteHandlers(NamedTuple):
    """
    The handlers registered for a method of a path.

    @ivar method: C{None} for every method.
    @ivar description: What the registration says about them for OpenAPI: options of a route, or a
        function that returns them.
    """

    method: str | None
    handlers: tuple[Handler, ...]
    description: Any = None


class RouteLayer:
    """
    The handlers of one path, by method.

    @ivar cancels: Whether its handlers are cancelled when the client disconnects.
    @ivar counted: The methods that C{Allow} names: those registered, except with C{all}.
    @ivar chosen: The results of L{choose} by method.
    """

    def __init__(self) -> None:
        self.cancels = False
        self.counted: list[str] = []
        self.registrations: list[RouteHandlers] = []
        self.chosen: dict[str, tuple[tuple[Handler, ...], bool]] = {}

    def add(self, registration: RouteHandlers, cancels: bool = False) -> None:
        """
        Add handlers.

        @param cancels: Whether they are cancelled when the client disconnects; this then applies to
            the whole route.
        """
        method = registration.method
        self.registrations.append(registration)
        self.cancels = self.cancels or cancels
        if method is not None and method not in self.counted:
            self.counted.append(method)
        self.chosen = {}

    def choose(self, method: str) -> tuple[tuple[Handler, ...], bool]:
        """
        Choose the handlers for a method.

        @param method: The method of a request, in any case, or L{WEBSOCKET}. L{WEBSOCKET} and
            C{HEAD} fall back to C{GET}.
        @return: The handlers, empty if all of them are error handlers; and whether one is
            registered for this method, not only for all methods.
        """
        wanted = method.upper()
        if wanted in ("HEAD", WEBSOCKET) and wanted not in self.counted:
            wanted = "GET"
        handlers = tuple(
            handler
            for registered, handlers, _ in self.registrations
            if registered is None or registered == wanted
            for handler in handlers
        )
        if all(kind == ERROR_HANDLER for _, kind in handlers):
            handlers = ()
        chosen = handlers, wanted in self.counted
        # The listener accepts fewer methods, but middleware may set any.
        if len(self.chosen) < _MAX_METHODS:
            self.chosen[method] = chosen
        return chosen


@frozen
class Layer:
    """
    One layer of a router: middleware, a route, or a router mounted in it.

    @ivar handlers: The handlers of middleware.
    @ivar group: A value shared by the layers of the paths in one list, of which only the first that
        matches is entered; C{None} without a list.
    """

    pattern: Pattern
    handlers: tuple[Handler, ...] = ()
    route: RouteLayer | None = None
    router: "LayerList | None" = None
    group: object = None

    def functions(self) -> Iterator[Callable[..., Any]]:
        """Yield the functions of its handlers, for all methods."""
        registrations = [] if self.route is None else self.route.registrations
        for function, _ in chain(self.handlers, *(each.handlers for each in registrations)):
            yield function


class LayerList:
    """
    The layers of a router, in order of registration.

    See L{RouterOptions<storagegate.http.options.RouterOptions>} for the constructor's arguments.

    @ivar layers: The layers; changed by L{addLayer} and L{dropLayers} only.
    @ivar paramHandlers: By parameter name: factories of the handlers that run before the handlers
        of a layer whose path has that parameter. A factory takes the parameter's value.
    """

    def __init__(self, caseSensitive: bool, mergeParams: bool, strict: bool) -> None:
        self.caseSensitive = caseSensitive
        self.mergeParams = mergeParams
        self.strict = strict
        self.layers: list[Layer] = []
        self.paramHandlers: dict[str, list[Callable[[str], HandlerFunction]]] = {}
        self._index: RouteIndex | None = None

    @property
    def index(self) -> RouteIndex:
        """Return the matcher of all layers, built on first use."""
        if self._index is None:
            self._index = RouteIndex([layer.pattern for layer in self.layers])
        return self._index

    def addLayer(self, layer: Layer, position: int | None = None) -> None:
        """
        Add a layer, at the end or at a position.

        @param position: The index to insert it at; C{None} for the end.
        """
        self.layers.insert(len(self.layers) if position is None else position, layer)
        self._index = None

    def dropLayers(self, count: int) -> None:
        """Remove the first layers."""
        del self.layers[:count]
        self._index = None

    def allLayers(self) -> Iterator[Layer]:
        """Yield the layers of this router and of the routers mounted in it, each router once."""
        routers: list[LayerList] = [self]
        # A router may be mounted several times, even in itself.
        for router in routers:
            for layer in router.layers:
                yield layer
                if layer.router is not None and layer.router not in routers:
                    routers.append(layer.router)


class RequestDispatch:
    """
    The state of one request that all routers share.

    @ivar end: Called with an error or C{None} when the outermost router has no more handlers.
    @ivar allowed: The methods of the routes that matched the path but not the method.
    @ivar matched: Whether a route that was registered for the method matched the path.
    @ivar latest: The awaitable that C{next()} returns to a handler.
    @ivar calls: The number of handlers called.
    @ivar waiting: The number of suspended handlers that have not ended.
    @ivar isWebSocket: Whether the request is the handshake of a WebSocket.
    @ivar silent: The last handler that ended without a response, with its router's dispatch.
    @ivar unseen: The innermost suspended handler of a HEAD request, which may write a body that is
        not sent.
    """

    __slots__ = (
        "_firing",
        "allowed",
        "calls",
        "depth",
        "end",
        "isWebSocket",
        "latest",
        "matched",
        "postponed",
        "request",
        "response",
        "silent",
        "unseen",
        "waiting",
    )

    def __init__(
        self, request: Any, response: Any, end: Callable[["RequestDispatch", object], None]
    ) -> None:
        self.request = request
        self.response = response
        self.end = end
        self.depth = self.calls = self.waiting = 0
        self.matched = self.isWebSocket = False
        self.allowed: Sequence[str] = ()
        self.postponed: tuple[RouterDispatch, object, Deferred[None]] | None = None
        self.latest: Any = READY
        self.silent: tuple[RouterDispatch, Callable[..., Any]] | None = None
        self.unseen: HandlerTask | None = None
        self._firing: list[Deferred[None]] | None = None

    def fire(self, waiters: list[Deferred[None]]) -> None:
        """
        Fire Deferreds one after another.

        Firing one may end the task that another waits for. Nested calls would overflow the stack in
        a chain of a thousand.

        @param waiters: Deferreds that have not fired; each gets C{None}.
        """
        if self._firing is not None:
            self._firing.extend(waiters)
            return
        self._firing = firing = list(waiters)
        while firing:
            firing.pop().callback(None)
        self._firing = None

    def cancelHandler(self) -> None:
        """
        Cancel the handler that writes the response body, since the client receives only the head.
        """
        task = self.unseen
        if task is not None and task.isInnermost:
            if task.isWaiting:
                task.cancel()
            else:
                # It is running, and may wait again.
                self.request.app.runtime.clock.callLater(0, task.cancel)

    def settle(self) -> Any:
        """
        Pass on L{MissingResponse} if all handlers have ended without a response.

        @return: See L{RouterDispatch.next}; C{None} if nothing is to be done.
        """
        if self.silent is None or self.depth or self.waiting:
            return None
        (run, function), self.silent = self.silent, None
        if not self.response.unanswered:
            return None
        return run.next(
            MissingResponse(
                # Without the query, which may contain secrets.
                f"{self.request.method} {self.request.originalUrl.partition('?')[0]}: "
                f"{nameOf(function)} sent nothing, returned nothing and did not call next()"
            )
        )


class RouterDispatch:
    """Dispatch of a request through one router."""

    __slots__ = (
        "_at",
        "_base",
        "_cancels",
        "_dispatch",
        "_group",
        "_handlers",
        "_matches",
        "_params",
        "_parent",
        "_path",
        "_position",
        "_rewritten",
        "_router",
        "_seenParams",
    )

    def __init__(
        self,
        router: LayerList,
        dispatch: RequestDispatch,
        path: str,
        base: str = "",
        parent: "RouterDispatch | None" = None,
        params: dict[Any, Any] | None = None,
    ) -> None:
        """
        @param dispatch: The state of the request, shared with the routers around and below.
        @param path: The path below the router's own.
        @param base: The router's own path.
        @param parent: The dispatch that continues after this one; C{None} for the outermost router.
        @param params: The parameters of the path it is mounted at, if the router merges them.
        """
        self._router = router
        self._dispatch = dispatch
        self._path = path
        self._base = base
        self._parent = parent
        self._params = params
        # The next match, the next handler of the layer, and whether its handlers are cancellable.
        self._position = self._at = 0
        self._handlers: tuple[Handler, ...] = ()
        self._cancels = False
        self._group: object = None
        self._seenParams: Params | None = None
        self._rewritten = dispatch.request.rewritten
        index = router._index or router.index
        known = index.known.get(path)
        self._matches = index.match(path) if known is None else known
        if dispatch.isWebSocket:
            self._preferWebSockets()

    def cancelHandler(self) -> None:
        """
        Cancel the handler that writes the response body, since the client receives only the head.
        """
        self._dispatch.cancelHandler()

    def next(self, error: object = None) -> Any:
        """
        Call the next handlers.

        @param error: An error for the next handler that takes one, C{"route"}, C{"router"}, or
            C{None}.
        @return: An awaitable for the end of the handlers that this call has started.
        """
        dispatch = self._dispatch
        if dispatch.depth >= _MAX_DEPTH:
            # The calling handler has to return first, since the stack is limited.
            waiter: Deferred[None] = Deferred()
            dispatch.postponed = (self, error, waiter)
            return waiter
        dispatch.depth += 1
        try:
            latest = self._advance(error)
            while dispatch.postponed is not None:
                run, error, waiter = dispatch.postponed
                dispatch.postponed = None
                latest = run._advance(error)
                _passOn(latest, waiter, dispatch)
        finally:
            dispatch.depth -= 1
        if dispatch.silent is not None:
            latest = dispatch.settle() or latest
        dispatch.latest = latest
        return latest

    def _advance(self, error: object) -> Any:
        """Call handlers until one of them does not raise."""
        if error is not None:
            error = self._leave(error)
        dispatch = self._dispatch
        request, response = dispatch.request, dispatch.response
        try:
            while True:
                handlers = self._handlers
                at = self._at
                if at == len(handlers):
                    layer, error = self._enter(error)
                    if layer is None:
                        return self._finish(error)
                    if layer.router is not None:
                        return self._enterRouter(layer.router)
                    continue
                self._at = at + 1
                function, kind = handlers[at]
                if (kind == ERROR_HANDLER) is (error is None):
                    continue
                dispatch.latest = READY
                dispatch.calls = calls = dispatch.calls + 1
                held = getrefcount(request) + getrefcount(response) + getrefcount(self)
                try:
                    if kind == 2:
                        result = function(request, response)
                    elif error is None:
                        result = function(request, response, self.next)
                    else:
                        result = function(error, request, response, self.next)
                    if result is None and (response._ended or dispatch.calls != calls):
                        return dispatch.latest
                    # A plain function may respond later, from a callback that holds one of its
                    # arguments.
                    held += result is response
                    held -= getrefcount(request) + getrefcount(response) + getrefcount(self)
                    status = 0 if error is None else statusOf(error) or 500
                    return self._follow(result, (function, calls, status), held != 0)
                except BaseException as raised:
                    # All kinds, as in a coroutine: C{sys.exit()} would otherwise leave the client
                    # without a response.
                    error = raised
        finally:
            # The traceback of the error refers to this frame, and so to the request.
            del error

    def _leave(self, error: object) -> object:
        """
        Skip handlers for C{"route"} and C{"router"}; a false argument of C{next} is not an error.
        """
        if not error and not isinstance(error, BaseException):
            return None
        if error == "route":
            self._at = len(self._handlers)
            return None
        if error == "router":
            self._at = len(self._handlers)
            self._position = len(self._matches)
            self._rewritten = self._dispatch.request.rewritten
            return None
        return error.value if isinstance(error, Failure) else error

    def _enter(self, error: object) -> tuple[Layer | None, object]:
        """Find the next layer that matches the request, and prepare the request."""
        dispatch = self._dispatch
        request = dispatch.request
        if request.rewritten is not self._rewritten:
            self._rematch(request.rewritten)
        matches, layers = self._matches, self._router.layers
        while self._position < len(matches):
            index, params, end = matches[self._position]
            self._position += 1
            layer = layers[index]
            if isinstance(params, Exception):
                if error is None:
                    error = HTTPError(400, "The path has a malformed percent escape")
                continue
            if layer.group is not None:
                if layer.group is self._group:
                    continue
                self._group = layer.group
            route = layer.route
            if route is not None:
                method = WEBSOCKET if dispatch.isWebSocket else request.method
                handlers, isCounted = route.chosen.get(method) or route.choose(method)
                if not handlers:
                    dispatch.allowed = [*dispatch.allowed, *route.counted]
                    continue
                if isCounted:
                    if error is None:
                        dispatch.matched = True
                elif route.counted:
                    dispatch.allowed = [*dispatch.allowed, *route.counted]
                self._handlers = handlers
                self._cancels = route.cancels
                end = 0
            elif layer.router is not None:
                if error is not None:
                    continue
                self._handlers = ()
            else:
                self._handlers = layer.handlers
                self._cancels = False
            self._at = 0
            path = self._path
            if end:
                request.baseUrl = self._base + path[:end]
                path = path[end:]
                request.path = path if path[:1] == "/" else "/" + path
            else:
                request.baseUrl = self._base
                request.path = path
            request.params = {**self._params, **params} if self._params else params or {}
            if params and self._router.paramHandlers and error is None:
                return self._prependParams(layer, params), None
            return layer, error
        return None, error

    def _rematch(self, path: str) -> None:
        """
        Continue with the later layers that match another path.

        @param path: The whole path that L{HTTPRequest.url} was set to.
        """
        last = self._matches[self._position - 1][0] if self._position else -1
        self._rewritten, self._matches, self._position = path, (), 0
        base = self._base
        if not base or path == base or path.startswith(f"{base}/"):
            self._path = path[len(base) :] or "/"
            self._matches = [
                found for found in self._router.index.match(self._path) if found[0] > last
            ]
            if self._dispatch.isWebSocket:
                self._preferWebSockets()

    def _preferWebSockets(self) -> None:
        """Drop GET routes if a WebSocket route matches the same path."""
        routes = {at: self._router.layers[at].route for at, _, _ in self._matches}
        kept = {
            at: route is None
            or any(each.method in (None, WEBSOCKET) for each in route.registrations)
            for at, route in routes.items()
        }
        if any(route is not None and WEBSOCKET in route.counted for route in routes.values()):
            self._matches = [found for found in self._matches if kept[found[0]]]

    def _prependParams(self, layer: Layer, params: Params) -> Layer:
        """
        Insert the parameter handlers before the handlers of a layer, once for each value.

        @return: The layer still to be entered.
        """
        seen = self._seenParams = self._seenParams or {}
        before: list[Handler] = []
        for name, makers in self._router.paramHandlers.items():
            value = params.get(name)
            if value is not None and seen.get(name) != value:
                seen[name] = value
                before += [(make(value), 3) for make in makers]
        router = layer.router
        if before and router is not None:
            # A function without a reference to this dispatch, which would make a cycle.
            enter = lambda req, res, next: next.__self__._enterRouter(router)  # noqa: E731
            self._handlers = (*before, (enter, 3))
            return evolve(layer, router=None)
        self._handlers = (*before, *self._handlers)
        return layer

    def _enterRouter(self, router: LayerList) -> Any:
        """Dispatch through a router that is mounted in this one."""
        request = self._dispatch.request
        params = request.params if router.mergeParams else None
        path, base = request.path, request.baseUrl
        return RouterDispatch(router, self._dispatch, path, base, self, params).next()

    def _finish(self, error: object) -> Any:
        """Continue in the router that this one is mounted in, or end the dispatch."""
        if self._parent is not None:
            return self._parent.next(error)
        request = self._dispatch.request
        request.baseUrl, request.path, request.params = self._base, self._path, {}
        self._dispatch.end(self._dispatch, error)
        return READY

    def _follow(self, result: Any, call: HandlerCall, isKept: bool = False) -> Any:
        """Wait for an awaitable result of a handler; respond with any other result."""
        if isinstance(result, (HandlerTask, Completed)):
            # The handler has returned the result of next().
            return result
        if type(result) is CoroutineType:
            task = HandlerTask(result, self, call)
        elif hasattr(result, "__await__"):
            task = HandlerTask(resolve(result), self, call)
        else:
            return self.conclude(result, call, isKept) or self._dispatch.latest
        task.step()
        return READY if task.done else task

    def conclude(self, result: Any, call: HandlerCall, isKept: bool = False) -> Any:
        """
        Respond with the result of a handler, unless it has already responded or called C{next()}.

        @param isKept: Whether it has kept a reference to one of its arguments, and so may respond
            later.
        @return: An awaitable for the end of the response; C{None} if nothing is pending.
        @raise TypeError: If the result is not a response.
        """
        dispatch = self._dispatch
        response = dispatch.response
        function, number, errorStatus = call
        if dispatch.calls != number or not response.unanswered:
            return None
        if result is None or result is response:
            if not isKept:
                dispatch.silent = self, function
            return None
        status = response.statusCode
        if errorStatus and status < 400:
            # An error handler that set no status responds with the status of the error.
            response.statusCode = errorStatus
        if not isinstance(result, str | bytes | Mapping | list):
            from storagegate.http.fetch import Response

            if isinstance(result, Response):
                from storagegate.http.routetable import sendResponse

                sending = sendResponse(dispatch.request, response, result)
                return sending and self._follow(sending, call)
        try:
            response.send(result)
        except TypeError as error:
            response.statusCode = status
            if not isKept:
                raise TypeError(f"{nameOf(function)} did not return a response: {error}") from error
        return None


def _passOn(latest: Any, waiter: Deferred[None], dispatch: RequestDispatch) -> None:
    """Fire C{waiter} when C{latest} is done."""
    if isinstance(latest, HandlerTask):
        latest.whenDone(waiter)
    elif isinstance(latest, Deferred):
        latest.addCallback(lambda result: dispatch.fire([waiter]))
    else:
        dispatch.fire([waiter])


class HandlerTask(Task):
    """
    An asynchronous handler.

    @ivar done: Whether it has ended.
    """

    __slots__ = ("_call", "_cancels", "_isSuspended", "_run", "_waiters", "done")

    def __init__(self, coroutine: Any, run: RouterDispatch, call: HandlerCall) -> None:
        """
        @param coroutine: The coroutine that the handler returned, not yet started.
        @param run: The dispatch that receives an error of the handler.
        """
        super().__init__(coroutine)
        self._run = run
        self._call = call
        # Whether the handler is cancelled when the client disconnects.
        self._cancels = run._cancels
        self._isSuspended = False
        self._waiters: list[Deferred[None]] = []
        self.done = False

    def __await__(self) -> Generator[Any, Any, None]:
        if not self.done:
            waiter: Deferred[None] = Deferred()
            self.whenDone(waiter)
            yield from waiter

    def whenDone(self, waiter: Deferred[None]) -> None:
        """
        Fire C{waiter} when the handler has ended.

        @param waiter: Fires with C{None}, immediately if the handler has already ended.
        """
        if self.done:
            self._run._dispatch.fire([waiter])
        else:
            self._waiters.append(waiter)

    def onSuspend(self) -> None:
        """Arrange for cancellation when the client disconnects, if the route asks for it."""
        self._isSuspended = True
        dispatch = self._run._dispatch
        dispatch.waiting += 1
        raw = dispatch.request.raw
        if self._cancels:
            raw.onDisconnect(self.cancel)
        if raw.method == b"HEAD" and self.isInnermost:
            if dispatch.response._isUnseen:
                self.cancel()
            else:
                dispatch.unseen = self

    @property
    def isInnermost(self) -> bool:
        """Return whether it has not passed the request on to another handler."""
        return self._run._dispatch.calls == self._call[1]

    def onResult(self, value: Any) -> None:
        """Respond with the result, if it is a response."""
        if not self._run._dispatch.response.finished:
            try:
                sending = self._run.conclude(value, self._call)
            except BaseException as error:
                self.onError(error)
                return
            if isinstance(sending, HandlerTask):
                sent: Deferred[None] = Deferred()
                sent.addCallback(lambda _: self._end())
                sending.whenDone(sent)
                return
        self._end()

    def onError(self, error: BaseException) -> None:
        """Pass the error to the next handler that takes one."""
        dispatch = self._run._dispatch
        raw = dispatch.request.raw
        if isinstance(error, CancelledError) and dispatch.response._isUnseen:
            isExpected = True
        elif raw.disconnected:
            isExpected = isinstance(error, (BodyLost, CancelledError, ClientLost))
        else:
            # The body is discarded once the response is sent.
            isExpected = raw.finished and isinstance(error, BodyLost)
        if not isExpected:
            self._run.next(error)
        self._end()

    def _end(self) -> None:
        """Fire the Deferreds that wait for the end."""
        self.done = True
        dispatch = self._run._dispatch
        if dispatch.latest is self:
            # No cycle is left to the garbage collector.
            dispatch.latest = READY
        if dispatch.unseen is self:
            dispatch.unseen = None
        waiters, self._waiters = self._waiters, []
        if waiters:
            dispatch.fire(waiters)
        if self._isSuspended:
            dispatch.waiting -= 1
            dispatch.settle()
            if dispatch.request.raw.disconnected and not dispatch.waiting:
                dispatch.response._abandon()
