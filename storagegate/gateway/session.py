"""
The calls of one peer on a wire of messages: WebSocket, TCP, and UDP by address.

A wire reads its messages and says what they are (L{Session.request}, L{Session.item},
L{Session.itemsEnd}, L{Session.cancel}); the session runs the calls and writes through the wire's
L{Peer}. Calls with an C{id} run side by side and are answered as they are ready. Those without one
are answered in order, so each begins when the one before it has ended.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.peercall import PeerCall
from storagegate.gateway.peers import NO_HEADERS, Listener, Peer, StreamHooks
from storagegate.gateway.shapes import MessageId

CALLS_OF_A_CONNECTION = 128
"""Calls in flight of one peer: more than a busy client has, and few enough to hold in memory."""


class Session:
    """
    The calls of one peer.

    @ivar fullStreams: How many streams of the client hold as many items as they may.
    @ivar headers: What the peer said once for all its calls, names in lower case.
    @ivar streamHooks: What a user does with streams in place of what is done here.
    """

    def __init__(
        self,
        listener: Listener,
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
