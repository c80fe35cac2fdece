"""A reactor with real sockets and simulated time."""

from typing import Any

from twisted.internet.task import Clock
from zope.interface import directlyProvides, providedBy


class HandTimed:
    """
    The real reactor, except for the time, which the test advances.

    @ivar clock: The clock that the test advances.
    """

    def __init__(self, reactor: Any) -> None:
        self.clock = Clock()
        self.callLater, self.seconds = self.clock.callLater, self.clock.seconds
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)
