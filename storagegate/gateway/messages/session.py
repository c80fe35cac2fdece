"""
The calls of one peer on a wire of messages: WebSocket, TCP, and UDP by address.

A wire reads its messages and says what they are (L{PeerSession.request}, L{PeerSession.item},
L{PeerSession.itemsEnd}, L{PeerSession.cancel}); the session runs the calls and writes through the
wire's
L{Peer}. Calls with an C{id} run side by side and are answered as they are ready. Those without one
are answered in order, so each begins when the one before it has ended.

Calls whose messages a hook of the user has to understand first.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.errors import ServiceError, asServiceError, codedError, isExpected
from storagegate.core.options import Hook
from storagegate.gateway.messages.call import PeerCall
from storagegate.gateway.messages.interfaces import (
    NO_HEADERS,
    ListenerState,
    MessageId,
    Peer,
    StreamHooks,
    readId,
)

CALLS_OF_A_CONNECTION = 128
"""Calls in flight of one peer: more than a busy client has, and few enough to hold in memory."""


class PeerSession:
    """
    The calls of one peer.

    @ivar fullStreams: How many streams of the client hold as many items as they may.
    @ivar headers: What the peer said once for all its calls, names in lower case.
    @ivar streamHooks: What a user does with streams in place of what is done here.
    """

    def __init__(
        self,
        listener: ListenerState,
        peer: Peer,
        maxCalls: int = CALLS_OF_A_CONNECTION,
        headers: Mapping[str, str] = NO_HEADERS,
        streamHooks: StreamHooks | None = None,
    ) -> None:
        self.listener = listener
        self.peer = peer
        self.headers = headers
        self.streamHooks = streamHooks
        self._maxCalls = maxCalls
        self.fullStreams = 0
        self._calls: dict[MessageId, PeerCall] = {}
        # Calls without an id that wait for the one before them.
        self._waiting: deque[PeerCall] = deque()
        self._isReading = True
        self._isClosed = self._isStarting = self._isHeld = False
        self._idle: list[Deferred[None]] = []

    @property
    def active(self) -> int:
        """Count the calls that have not ended."""
        return len(self._calls) + len(self._waiting)

    @property
    def isIdle(self) -> bool:
        """Tell whether everything that has come is answered."""
        return not self.active

    @property
    def isFed(self) -> bool:
        """Tell whether a stream of the client goes on."""
        return any(call.isFed for call in (*self._calls.values(), *self._waiting))

    def request(self, message: Mapping[str, Any], id: MessageId, native: Any = None) -> None:
        """
        Begin a call.

        @param message: C{service}, C{method}, and perhaps C{data}, C{auth}, C{deadlineMs},
            C{traceparent} and C{tracestate}.
        @param native: What the wire's own hooks get for the message.
        """
        if self._isClosed:
            return
        if id is not None and id in self._calls:
            self.peer.sendError(id, codedError("INVALID_ARGUMENT", "This id is in use"))
            return
        if self.listener.isDraining:
            self.peer.sendError(id, codedError("UNAVAILABLE", "No further calls are taken"))
            return
        if self.listener.calls >= self.listener.maxCalls:
            self.peer.sendError(id, codedError("UNAVAILABLE", "Too many calls at a time"))
            return
        try:
            call = PeerCall(self, message, id, native)
        except ServiceError as error:
            self.peer.sendError(id, error)
            return
        self.listener.calls += 1
        if id is None and None in self._calls:
            self._waiting.append(call)
        else:
            self._calls[id] = call
            call.begin()
        self.adjust()

    def item(self, id: MessageId, data: Any) -> None:
        """Take an item of a client's stream."""
        call = self._streaming(id)
        if call is not None:
            call.put(data)
            self.adjust()

    def itemsEnd(self, id: MessageId) -> None:
        """Take the end of a client's stream."""
        call = self._streaming(id)
        if call is not None:
            call.end()

    def cancel(self, id: MessageId) -> None:
        """Cancel a call. Nothing is sent for it any more."""
        call = self._calls.get(id)
        if call is not None:
            call.cancel()

    def isKnown(self, id: MessageId) -> bool:
        """Tell whether it is known who made a call."""
        call = self._calls.get(id)
        return call is not None and call.isKnown

    def inputLost(self) -> None:
        """Take note that nothing comes any more: a stream that has not ended never will."""
        for call in (*self._calls.values(), *self._waiting):
            call.cut()

    def hold(self, held: bool) -> None:
        """Let the peer wait, for reasons of a wire's own; or no more."""
        self._isHeld = held
        self.adjust()

    def close(self) -> None:
        """Cancel everything: the peer is gone."""
        self._isClosed = True
        waiting, self._waiting = self._waiting, deque()
        self.listener.calls -= len(waiting)
        for call in list(self._calls.values()):
            call.cancel()

    def whenIdle(self) -> Deferred[None]:
        """Wait until no call is in flight."""
        idle: Deferred[None] = Deferred()
        if self.active:
            self._idle.append(idle)
        else:
            idle.callback(None)
        return idle

    def adjust(self) -> None:
        """Read on or wait: for room among the calls, and in the streams of the client."""
        inFlight = len(self._calls) + len(self._waiting)
        hasRoom = inFlight < self._maxCalls and not self.fullStreams
        wanted = hasRoom and not self._isHeld
        if wanted != self._isReading and not self._isClosed:
            self._isReading = wanted
            self.peer.setReading(wanted)

    def ended(self, call: PeerCall) -> None:
        """Forget a call, and begin those that waited for it."""
        del self._calls[call.id]
        self.listener.calls -= 1
        if call.id is None and not self._isStarting:
            # Those that end at once are begun here one after the other, not each in the last.
            self._isStarting = True
            while self._waiting and None not in self._calls:
                following = self._calls[None] = self._waiting.popleft()
                following.begin()
            self._isStarting = False
        if not self._isReading:
            self.adjust()
        if self._idle and not self.active:
            idle, self._idle = self._idle, []
            for each in idle:
                each.callback(None)

    def _streaming(self, id: MessageId) -> PeerCall | None:
        call = self._calls.get(id)
        if id is None and self._waiting:
            # A stream without an id is that of the last call without one.
            call = self._waiting[-1]
        if call is not None and call.streamsRequests:
            return call
        # What comes after a call has ended was on its way already: that is nobody's fault.
        return None


MESSAGES_AHEAD = 128
"""Messages that wait while one is understood, on a wire that cannot let its peer wait: what a
connection may have in flight. Others stop with the first."""

_BESIDE = ("auth", "deadlineMs", "traceparent", "tracestate")
"""What a message says beside its request, whatever its other keys mean."""

_log = Logger()


class RoutedSession(PeerSession):
    """
    A session whose requests the user's C{routeMessage} understands.

    That may take time; what comes meanwhile waits for it, so that a call is there before its items.
    """

    def __init__(
        self,
        route: Hook,
        listener: ListenerState,
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
        if not isExpected(error):
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
