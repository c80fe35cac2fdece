"""
Twisted's asyncio reactor, chosen by name, or started on the loop of an asyncio program.

Imported only where such a reactor may be in use.
"""

import asyncio
import sys
from typing import Any
from weakref import WeakSet

import twisted.internet
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, succeed
from twisted.internet.main import installReactor

from storagegate.core.asynciotask import AsyncioBridge
from storagegate.core.task import setBridge

_joined: WeakSet[AsyncioSelectorReactor] = WeakSet()

_MODULE = "twisted.internet.reactor"

_END_SECONDS = 5.0
"""Time for cancelled tasks to end, for example to say goodbye over the network."""


def installAsyncio() -> None:
    """
    Install the asyncio reactor.

    @raise SystemExit: If the process has another reactor.
    """
    found = sys.modules.get(_MODULE)
    if found is None:
        # Uses the loop of asyncio.get_event_loop(), if the program has set one.
        installReactor(AsyncioSelectorReactor())
    elif not isinstance(found, AsyncioSelectorReactor):
        raise SystemExit(
            f"the asyncio reactor comes too late: {type(found).__name__} is installed."
            " Some module has imported twisted.internet.reactor, or something has begun to listen;"
            " install asyncioreactor before that"
        )


def joinAsyncio(reactor: Any) -> None:
    """
    Let coroutines wait for asyncio's futures while an asyncio reactor runs.

    @param reactor: A reactor of any kind; does nothing for other reactors, nor when called again.
    """
    if not isinstance(reactor, AsyncioSelectorReactor) or reactor in _joined:
        return
    _joined.add(reactor)
    # Reactors start before their loops.
    reactor.callWhenRunning(
        reactor.callLater, 0, lambda: setBridge(AsyncioBridge(asyncio.get_running_loop()))
    )
    reactor.addSystemEventTrigger("after", "shutdown", setBridge, None)


def endTasks() -> Deferred[Any]:
    """
    Cancel the remaining tasks of asyncio's loop, as C{asyncio.run} does at its end.

    @return: Fires when they have ended, or 5 seconds have passed.
    """
    tasks = asyncio.all_tasks()
    for task in tasks:
        task.cancel()
    if not tasks:
        return succeed(None)
    return Deferred.fromFuture(asyncio.ensure_future(asyncio.wait(tasks, timeout=_END_SECONDS)))


class _LoopReactor(AsyncioSelectorReactor):
    """A reactor on a loop run by other code, which continues after the reactor's end."""

    def crash(self) -> None:
        """End the reactor without stopping the loop."""
        ReactorBase.crash(self)


def startOnLoop() -> None:
    """
    Start a reactor on the running loop; it runs until the loop's tasks are cancelled, as at its
    end.

    @raise RuntimeError: If the process has a reactor that is not on this loop.
    """
    loop = asyncio.get_running_loop()
    found = sys.modules.get(_MODULE)
    if found is None:
        reactor = _LoopReactor(loop)
        installReactor(reactor)
        reactor.startRunning(installSignalHandlers=False)
        _joined.add(reactor)
        setBridge(AsyncioBridge(loop))
        reactor.addSystemEventTrigger("after", "shutdown", setBridge, None)
        task = loop.create_task(_keep(reactor), name="twisted reactor")
        # The loop itself refers to its tasks only weakly.
        reactor.addSystemEventTrigger("after", "shutdown", task.done)
    elif getattr(found, "_asyncioEventloop", None) is not loop or not found.running:
        raise RuntimeError(
            f"{type(found).__name__} is the process's reactor, and does not run on asyncio's loop:"
            " in a program of asyncio's nothing else may import or install a reactor"
        )


async def _keep(reactor: Any) -> None:
    """Stop the reactor when this is cancelled; the next loop of the process gets a new reactor."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_future()
    finally:
        # The other tasks are cancelled too, and may still need the reactor.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_END_SECONDS)
        if reactor.running:
            ended = loop.create_future()
            reactor.addSystemEventTrigger("after", "shutdown", ended.set_result, None)
            reactor.stop()
            await ended
        del sys.modules[_MODULE], twisted.internet.reactor
