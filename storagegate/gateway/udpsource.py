"""
An address that sends datagrams: what becomes of each.

A request with an id that was seen already begins no second call, see L{storagegate.gateway.dedup}.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invocation import Invoker
from storagegate.gateway.codecs import JSON
from storagegate.gateway.dedup import Exchange, IAnswerCache
from storagegate.gateway.frames import CANCEL, CLIENT_END, CLIENT_ITEM, REQUEST
from storagegate.gateway.messagefields import readId
from storagegate.gateway.session import Session
from storagegate.gateway.shapes import MessageId
from storagegate.gateway.udppeer import AMPLIFICATION, UDPPeer
from storagegate.gateway.wiremeters import WireMeter

DATAGRAMS_A_SECOND = 20_000
"""Of one address: more than one can sensibly have answered."""

_log = Logger()


Address = tuple[str, int]


class UDPListener(Protocol):
    """
    What an address needs of the listener that it sends to.

    @ivar answers: The answers that were given.
    @ivar dropped: How many datagrams were dropped, by reason.
    @ivar meter: What else is counted.
    @ivar invoker: Knows the methods.
    @ivar isClosed: Whether nothing can be sent any more.
    """

    answers: IAnswerCache
    dropped: Counter[str]
    meter: WireMeter
    invoker: Invoker
    isClosed: bool

    def send(self, source: Address, datagram: bytes) -> None:
        """Send a datagram."""

    def makeWriter(self, source: Address) -> UDPPeer:
        """Make what writes to an address."""

    def makeSession(self, writer: UDPPeer) -> Session:
        """Make the session of an address."""


class UDPSource:
    """
    An address.

    @ivar writer: Sends to it.
    @ivar session: Its calls.
    @ivar lastSeen: When it last sent something.
    """

    def __init__(self, adapter: UDPListener, source: Address) -> None:
        self.lastSeen = 0.0
        self._secondEnds = 0.0
        self._hits = 0
        self._adapter = adapter
        self._source = source
        self.writer = adapter.makeWriter(source)
        self.session = self.writer.session = adapter.makeSession(self.writer)

    def isTooFast(self, now: float) -> bool:
        """Count a datagram, and tell whether there are too many."""
        self.lastSeen = now
        if now >= self._secondEnds:
            self._secondEnds = now + 1
            self._hits = 0
        self._hits += 1
        return self._hits > DATAGRAMS_A_SECOND

    def take(self, type: int, payload: bytes, size: int) -> None:
        """Take a frame of a datagram of so many bytes."""
        try:
            message = JSON.decode(payload)
        except ValueError as error:
            self._refuse(None, size, codedError("INVALID_ARGUMENT", f"Unreadable: {error}"))
            return
        if not isinstance(message, dict):
            self._refuse(None, size, codedError("INVALID_ARGUMENT", "The payload is no object"))
            return
        try:
            id = readId(message.get("id"))
        except ServiceError as error:
            self._refuse(None, size, error)
            return
        if type == REQUEST:
            self.request(message, id, size)
        elif type in (CLIENT_ITEM, CLIENT_END):
            self._takeItem(type, message, id, size)
        elif type == CANCEL:
            self.session.cancel(id)
            self.writer.forget(id)
        else:
            self._refuse(id, size, codedError("INVALID_ARGUMENT", f"Unknown type {type}"))

    def takeMessage(self, message: Any, size: int) -> None:
        """Take a message that the user's hook has read."""
        id: MessageId = None
        if isinstance(message, Mapping):
            try:
                id = readId(message.get("id"))
            except ServiceError:
                id = None
        self.request(message, id, size)

    def request(self, message: Any, id: MessageId, size: int) -> None:
        """Begin a call, unless it was begun already."""
        if id is not None:
            known: Any = self._adapter.answers.begin((self._source, id), size)
            if known is not None and hasattr(known, "__await__"):
                proceed(known, "a request was dropped", self._begin, message, id, size)
            else:
                self._begin(known, message, id, size)
        elif self._streams(message):
            self._refuse(id, size, codedError("INVALID_ARGUMENT", "A stream needs an id"))
        elif None in self.writer.exchanges:
            # In order means one at a time, and a client that does not wait cannot tell answers
            # apart: what it wants is an id.
            self._adapter.dropped["busy"] += 1
        else:
            self._begin(None, message, id, size)

    def _begin(self, known: Exchange | None, message: Any, id: MessageId, size: int) -> None:
        if known is not None:
            self._adapter.meter.duplicates += 1
            self._repeat(known, size)
        elif not self._adapter.isClosed:
            self.writer.begin(id, size)
            self.session.request(message, id)
            self.writer.begun(id)

    def _repeat(self, known: Exchange, size: int) -> None:
        """Answer again; a few bytes with an id that anybody may guess get no large answer."""
        isOwed = known.isKnown and size >= known.size
        answer = known.answer
        if answer is not None and (isOwed or len(answer) <= AMPLIFICATION * size):
            self._adapter.send(self._source, answer)

    def _streams(self, message: Any) -> bool:
        if not isinstance(message, Mapping):
            return False
        service, method = message.get("service"), message.get("method")
        if not isinstance(service, str) or not isinstance(method, str):
            return False
        try:
            bound = self._adapter.invoker.find(service, method)
        except ServiceError:
            return False
        return bound.streaming != "none"

    def _takeItem(self, type: int, message: Mapping[str, Any], id: MessageId, size: int) -> None:
        exchange = self.writer.exchanges.get(id)
        if exchange is None or id is None:
            return
        exchange.allowed += 3 * size
        seq: Any = message.get("seq")
        isNumber = isinstance(seq, int) and not isinstance(seq, bool) and seq >= 0
        if type == CLIENT_END:
            exchange.requests.end(seq if isNumber else None)
        elif not isNumber:
            self._refuse(id, size, codedError("INVALID_ARGUMENT", "An item needs its seq"))
            return
        elif not exchange.requests.put(seq, message.get("data", {})):
            self._adapter.meter.duplicates += exchange.requests.isKnown(seq)
            self._adapter.dropped["item"] += 1
            return
        self.writer.deliver(id)

    def _refuse(self, id: MessageId, size: int, error: ServiceError) -> None:
        """Send an error for a datagram that begins nothing, if it fits."""
        if id not in self.writer.exchanges:
            self.writer.begin(id, size)
        self.writer.sendError(id, error)


def proceed(value: Any, problem: str, act: Callable[..., object], *more: object) -> None:
    """Go on with what somebody gives later; if that fails, say so in the log."""
    waiting = Deferred.fromCoroutine(_awaited(value)).addCallback(act, *more)
    waiting.addErrback(lambda failure: _log.failure(problem, failure))


async def _awaited(value: Any) -> Any:
    return await value
