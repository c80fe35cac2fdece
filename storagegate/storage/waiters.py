"""Those who wait until nothing is left to do."""

from twisted.internet.defer import Deferred, succeed


class IdleWaiters:
    """Fires the Deferreds of all who wait. Reactor thread."""

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def wait(self, busy: bool) -> Deferred[None]:
        """Give what fires with the next L{tell}, or has fired where nobody is busy."""
        if not busy:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def tell(self) -> None:
        """Say that nothing is left to do."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)
