"""The one place that looks for a reactor which nobody handed in, and runs it for scripts."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred


def processReactor() -> Any:
    """Give the process's reactor. Imported late: importing it chooses one."""
    from twisted.internet import reactor

    return reactor


def runUntilStopped(
    reactor: Any, opening: Deferred[Any] | None, stop: Callable[[], object]
) -> None:
    """
    Serve until the process is told to stop: for scripts.

    @param opening: Opens what is to be served; C{None} where that is open.
    @param stop: Stops serving; what it gives is waited for.
    @raise SystemExit: If it could not be opened.
    """
    failures: list[str] = []

    def failed(reason: Any) -> None:
        failures.append(reason.getErrorMessage())
        reactor.callWhenRunning(reactor.stop)

    if opening is not None:
        opening.addErrback(failed)
    reactor.addSystemEventTrigger("before", "shutdown", stop)
    reactor.run()
    if failures:
        raise SystemExit(failures[0])
