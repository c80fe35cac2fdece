"""A session with an in-memory peer."""

from collections.abc import AsyncIterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.definitions import readService
from storagegate.core.errors import ServiceError
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.messages.session import PeerSession
from tests.support.gateway import makeHost


async def stubborn(request: Any, context: RequestContext) -> Any:
    """Answer even if the call is cancelled."""
    try:
        await Deferred()
    except CancelledError:
        return {}


async def stubbornStream(request: Any, context: RequestContext) -> AsyncIterator[Any]:
    """Yield an item and end, even if the call is cancelled."""
    try:
        await Deferred()
    except CancelledError:
        yield {}


STUBBORN = {
    "name": "Stubborn",
    "methods": {"stubborn": stubborn, "stubbornStream": stubbornStream},
}


@define
class FakePeer:
    """
    A peer that records sent messages.

    @ivar sent: Tuples of the kind, the id and the content.
    @ivar isStalled: Whether the peer does not read.
    @ivar isReading: Whether the session reads from the peer.
    """

    protocol: str = "tcp"
    client: ClientInfo = field(factory=lambda: ClientInfo("1", "127.0.0.1", 5000))
    sent: list[Any] = field(factory=list)
    isStalled: bool = False
    isReading: bool = True
    waiting: list[Deferred[None]] = field(factory=list)

    def respond(self, id: Any, method: str, result: Any) -> None:
        """Record a result."""
        self.sent.append(("result", id, result))

    def sendItem(self, id: Any, method: str, item: Any) -> None:
        """Record an item."""
        self.sent.append(("item", id, item))

    def sendEnd(self, id: Any, method: str) -> None:
        """Record an end."""
        self.sent.append(("end", id))

    def sendRefusal(self, id: Any, error: ServiceError) -> None:
        """Record the refusal of a second call with the same id."""
        self.sendError(id, error)

    def sendError(self, id: Any, error: ServiceError) -> None:
        """Record an error."""
        self.sent.append(("error", id, error.code))

    def drained(self) -> Deferred[None] | None:
        """Wait while the peer is stalled."""
        if not self.isStalled:
            return None
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        return waiting

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        assert wanted != self.isReading, "told twice"
        self.isReading = wanted

    def readAgain(self) -> None:
        """Read all sent messages."""
        self.isStalled = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class SessionCase(SynchronousTestCase):
    """A session with four concurrent calls, on a listener with ten."""

    def setUp(self) -> None:
        """Make a session."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock)
        host.invoker.add(readService(STUBBORN))
        self.listener = ListenerState(host.invoker, self.clock, 10)
        self.peer = FakePeer()
        self.session = PeerSession(self.listener, self.peer, 4)
        self.addCleanup(lambda: self.session.close())

    def request(self, method: str, id: Any = "1", **more: Any) -> None:
        """Start a call of the fixture's service."""
        self.session.request({"service": "Probe", "method": method, **more}, id)
