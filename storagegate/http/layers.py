"""What a router is made of."""

from attrs import frozen

from storagegate.http.handlers import ERROR_HANDLER, Handler
from storagegate.http.matching import RouteIndex
from storagegate.http.patterns import Pattern


class Route:
    """
    The handlers of one path, by method.

    @ivar pattern: The path.
    @ivar cancels: Whether its handlers are cancelled when the client goes away.
    @ivar counted: The methods that C{Allow} names: those registered, but for C{all}.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.cancels = False
        self.counted: list[str] = []
        self.registrations: list[tuple[str | None, tuple[Handler, ...]]] = []
        self._chosen: dict[str, tuple[Handler, ...]] = {}

    def add(self, method: str | None, handlers: tuple[Handler, ...], cancels: bool = False) -> None:
        """
        Add handlers.

        @param method: C{None} for every method.
        """
        self.registrations.append((method, handlers))
        self.cancels = self.cancels or cancels
        if method is not None and method not in self.counted:
            self.counted.append(method)
        self._chosen = {}

    def counts(self, method: str) -> bool:
        """Say whether there are handlers for this very method, not only for all of them."""
        return method in self.counted or (method == "HEAD" and "GET" in self.counted)

    def handlersFor(self, method: str) -> tuple[Handler, ...]:
        """Give the handlers for a method; none if there are only some that take errors."""
        chosen = self._chosen.get(method)
        if chosen is None:
            chosen = self._choose(method)
            if method == "HEAD" and "HEAD" not in self.counted:
                chosen = self._choose("GET")
            if all(kind == ERROR_HANDLER for _, kind in chosen):
                chosen = ()
            # Methods come from the wire, but only those that the listener lets in.
            self._chosen[method] = chosen
        return chosen

    def _choose(self, method: str) -> tuple[Handler, ...]:
        return tuple(
            handler
            for registered, handlers in self.registrations
            if registered is None or registered == method
            for handler in handlers
        )


@frozen
class Layer:
    """
    One step of a router: middleware, a route, or a router mounted in it.

    @ivar pattern: Which paths it is for.
    @ivar handlers: The middleware.
    """

    pattern: Pattern
    handlers: tuple[Handler, ...] = ()
    route: Route | None = None
    router: "LayerList | None" = None


class LayerList:
    """
    The steps of a router, in their order.

    @ivar caseSensitive: Whether C{/About} and C{/about} differ.
    @ivar mergeParams: Whether C{req.params} has the parameters of the path it is mounted at.
    @ivar strict: Whether C{/about/} and C{/about} differ.
    @ivar layers: The steps; changed by L{addLayer} and L{dropLayers} only.
    """

    def __init__(self, caseSensitive: bool, mergeParams: bool, strict: bool) -> None:
        self.caseSensitive = caseSensitive
        self.mergeParams = mergeParams
        self.strict = strict
        self.layers: list[Layer] = []
        self._index: RouteIndex | None = None

    @property
    def index(self) -> RouteIndex:
        """Give the matcher of all steps, made when it is first needed after a change."""
        if self._index is None:
            self._index = RouteIndex([layer.pattern for layer in self.layers])
        return self._index

    def addLayer(self, layer: Layer, position: int | None = None) -> None:
        """Add a step, at the end or at a position."""
        self.layers.insert(len(self.layers) if position is None else position, layer)
        self._index = None

    def dropLayers(self, count: int) -> None:
        """Take the first steps away."""
        del self.layers[:count]
        self._index = None
