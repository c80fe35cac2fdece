"""Calls whose messages a hook of the user has to understand first."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.errors import ServiceError, asServiceError, codedError, isForeseen
from storagegate.gateway.messagefields import readId
from storagegate.gateway.options import Hook
from storagegate.gateway.peers import Listener, StreamHooks
from storagegate.gateway.session import Session
from storagegate.gateway.shapes import MessageId

MESSAGES_AHEAD = 128
"""Messages that wait while one is understood, on a wire that cannot let its peer wait: what a
connection may have in flight. Others stop with the first."""

_BESIDE = ("auth", "deadlineMs", "traceparent", "tracestate")
"""What a message says beside its request, whatever its other keys mean."""

_log = Logger()


class RoutedSession(Session):
    """
    A session whose requests the user's C{routeMessage} understands.

    That may take time; what comes meanwhile waits for it, so that a call is there before its items.
    """

    def __init__(
        self,
        route: Hook,
        listener: Listener,
        peer: Any,
        headers: Mapping[str, str],
        streamHooks: StreamHooks | None = None,
    ) -> None:
        super().__init__(listener, peer, headers=headers, streamHooks=streamHooks)
        self._route = route
        self._sessionPeer = peer
        self._routing: Deferred[Any] | None = None
        self._later: deque[Callable[[], None]] = deque()

    @property
    def isIdle(self) -> bool:
        """Tell whether everything that has come is answered: also what is not understood yet."""
        return self._routing is None and super().isIdle

    def request(self, message: Any, id: MessageId, native: Any = None) -> None:
        """Find out what is called, and begin."""
        if len(self._later) < MESSAGES_AHEAD:
            self._inTurn(partial(self._begin, message, id))
        else:
            self._refuse(codedError("UNAVAILABLE", "Too many calls at a time"), id)

    def item(self, id: MessageId, data: Any) -> None:
        """Take an item of a client's stream."""
        self._inTurn(partial(super().item, id, data))

    def itemsEnd(self, id: MessageId) -> None:
        """Take the end of a client's stream."""
        self._inTurn(partial(super().itemsEnd, id))

    def cancel(self, id: MessageId) -> None:
        """Cancel a call."""
        self._inTurn(partial(super().cancel, id))

    def close(self) -> None:
        """Cancel everything: the peer is gone."""
        super().close()
        self._later.clear()
        if self._routing is not None:
            self._routing.cancel()

    def _inTurn(self, step: Callable[[], None]) -> None:
        if self._routing is None:
            step()
        elif len(self._later) < MESSAGES_AHEAD:
            self._later.append(step)

    def _begin(self, message: Any, id: MessageId) -> None:
        try:
            routed = self._route(message)
        except Exception as error:
            self._refuse(error, id)
            return
        if hasattr(routed, "__await__"):
            routing = self._routing = Deferred.fromCoroutine(_awaited(routed))
            self.hold(True)
            routing.addCallback(self._begun, message, id)
            routing.addErrback(self._refuseFailure, id)
            routing.addBoth(self._goOn)
        else:
            self._begun(routed, message, id)

    def _begun(self, routed: Any, message: Any, id: MessageId) -> None:
        try:
            request, own = readRoute(routed, message, id)
        except ServiceError as error:
            self._refuse(error, id)
            return
        super().request(request, own, message)

    def _goOn(self, result: Any) -> None:
        self._routing = None
        while self._later and self._routing is None:
            self._later.popleft()()
        if self._routing is None:
            self.hold(False)

    def _refuseFailure(self, failure: Failure, id: MessageId) -> None:
        error: Any = failure.value
        self._refuse(error, id)

    def _refuse(self, error: BaseException, id: MessageId) -> None:
        if not isForeseen(error):
            _log.failure("routeMessage failed", Failure(error))
        self._sessionPeer.sendError(id, asServiceError(error))


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def readRoute(routed: Any, message: Any, id: MessageId) -> tuple[dict[str, Any], MessageId]:
    """
    Read what C{routeMessage} gave: C{service}, C{method}, C{request} and C{messageId}.

    @param message: What it was given: who calls, and until when, is told there.
    @param id: The message's own id, for a hook that names none.
    @return: The message of a call, and its id.
    @raise ServiceError: If it is none.
    """
    if not isinstance(routed, Mapping):
        raise codedError("INVALID_ARGUMENT", "The message names no method")
    given = message if isinstance(message, Mapping) else {}
    request = {key: given[key] for key in _BESIDE if key in given}
    request["service"], request["method"] = routed.get("service"), routed.get("method")
    if "request" in routed:
        request["data"] = routed["request"]
    return request, readId(routed.get("messageId", id))
