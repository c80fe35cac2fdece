"""
Calls that belong together, by what L{RoutingOptions} say of each wire: the session and then the
cookie of a call over HTTP, the connection of one over WebSocket, a strategy of its own for gRPC.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from storagegate.balancing.affinity import Pins, Signer, chooseFor
from storagegate.balancing.cluster import Choose
from storagegate.balancing.members import Lease, Member
from storagegate.balancing.strategies import STRATEGIES, Strategy
from storagegate.core.context import RequestContext
from storagegate.discovery.routing import RoutingOptions
from storagegate.http.cookies import parseCookies, serializeCookie

_DEFAULT, _GRPC = "default", "grpc"


def makeStrategies(strategy: str, routing: RoutingOptions) -> dict[str, Strategy]:
    """
    Make the strategies of a service, each with an order of its own.

    @param strategy: That of all calls but those that C{routing} has another one for.
    """
    strategies = {_DEFAULT: STRATEGIES[strategy]()}
    if routing.grpc.load_balancing is not None:
        strategies[_GRPC] = STRATEGIES[routing.grpc.load_balancing]()
    return strategies


class RoutedChoosing:
    """Chooses for the calls of one service."""

    def __init__(
        self,
        routing: RoutingOptions,
        makeSigner: Callable[[], Signer],
        strategies: Mapping[str, Strategy],
    ) -> None:
        """
        @param makeSigner: Makes what makes its cookies, once there is need for one.
        @param strategies: What L{makeStrategies} gave.
        """
        self._isSticky = routing.http.sticky_sessions
        self._header = routing.http.session_header.lower()
        self._isPinned = routing.websocket.connection_affinity
        self._pins = Pins()
        self._makeSigner = makeSigner
        self._known: Signer | None = None
        self._strategies = strategies

    def strategy(self, context: RequestContext) -> str:
        """Give the name of the strategy of a call."""
        return _GRPC if context.protocol == _GRPC and _GRPC in self._strategies else _DEFAULT

    def choose(self, context: RequestContext) -> Choose | None:
        """Give what chooses for a call that belongs to others; C{None} for the strategy."""
        if context.protocol == "websocket" and self._isPinned:
            return partial(self._pins.choose, context.client.id)
        if context.protocol != "http" or not self._isSticky:
            return None
        session = context.headers.get(self._header)
        if session:
            return partial(chooseFor, session)
        named = self._cookie(context)
        if named is None:
            return None

        def choose(candidates: Sequence[Member]) -> Member:
            found = self._signer.find(named, candidates)
            return self._strategies[_DEFAULT].choose(candidates) if found is None else found

        return choose

    def chosen(self, context: RequestContext, lease: Lease) -> None:
        """Name the instance that a call goes to in a cookie, unless the client has that already."""
        if context.protocol != "http" or not self._isSticky or context.headers.get(self._header):
            return
        value = self._signer.sign(lease.member.id)
        if value == self._cookie(context):
            context.metadata.pop("setCookie", None)
            return
        context.metadata["setCookie"] = serializeCookie(
            self._signer.cookie, value, httpOnly=True, sameSite="lax"
        )

    @property
    def _signer(self) -> Signer:
        if self._known is None:
            self._known = self._makeSigner()
        return self._known

    def _cookie(self, context: RequestContext) -> str | None:
        cookies = context.headers.get("cookie")
        return None if cookies is None else parseCookies(cookies).get(self._signer.cookie)
