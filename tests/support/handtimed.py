"""A reactor whose sockets are real, and whose time is not."""

from typing import Any

from twisted.internet.task import Clock
from zope.interface import directlyProvides, providedBy


class HandTimed:
    """
    The reactor, but for the time: that passes when the test says so.

    @ivar clock: What passes it.
    """

    def __init__(self, reactor: Any) -> None:
        self.clock = Clock()
        self.callLater, self.seconds = self.clock.callLater, self.clock.seconds
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)
