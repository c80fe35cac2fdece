"""
The asyncio loop of C{grpc.aio}, and the way between it and the reactor.

All objects of C{grpc.aio} in a process have to be on one loop. It runs in a thread of its own as
long as an engine is open. Functions cross in batches, in their order.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.logger import Logger

T = TypeVar("T")

_log = Logger()

_EVENTS_A_TURN = 64
"""After so many functions other events of the reactor are served: a few milliseconds of work."""


class _LoopThread:
    """
    The loop of C{grpc.aio}: one for the process, in a thread while an engine is open.

    The loop itself is never closed: what grpcio has registered with it stays for the next engine.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._users = 0

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the loop, running. In the reactor thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._thread is None:
            # A daemon: a script that forgets to close its client ends all the same.
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="storagegate-grpc-aio", daemon=True
            )
            self._thread.start()
        self._users += 1
        return self._loop

    def release(self) -> None:
        """Stop the thread with its last user. In the reactor thread."""
        self._users -= 1
        if not self._users and self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            # Short: no coroutine of an engine is left.
            self._thread.join()
            self._thread = None


_thread = _LoopThread()


class LoopBridge:
    """Functions on their way between the reactor and the loop, for one engine."""

    def __init__(self, reactor: Any) -> None:
        """
        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        """
        self.reactor = reactor
        self.loop = _thread.acquire()
        self._toLoop: deque[tuple[Callable[..., object], Any]] = deque()
        self._toReactor: deque[tuple[Callable[..., object], Any]] = deque()
        self._isLoopWoken = self._isReactorWoken = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a short coroutine in the loop, which never waits for the reactor."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the loop. In the loop."""
        task = self.loop.create_task(coroutine)
        # The loop itself has weak references only.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop. May be called in any thread."""
        self._toLoop.append((function, arguments))
        if not self._isLoopWoken:
            self._isLoopWoken = True
            self.loop.call_soon_threadsafe(self._callInLoop)

    def _callInLoop(self) -> None:
        self._isLoopWoken = False
        for _ in range(len(self._toLoop)):
            self._call(*self._toLoop.popleft())

    def deliver(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the reactor thread. In the loop."""
        self._toReactor.append((function, arguments))
        if not self._isReactorWoken:
            self._isReactorWoken = True
            self.reactor.callFromThread(self._callInReactor)

    def _callInReactor(self) -> None:
        self._isReactorWoken = False
        for _ in range(min(len(self._toReactor), _EVENTS_A_TURN)):
            self._call(*self._toReactor.popleft())
        if self._toReactor and not self._isReactorWoken:
            self._isReactorWoken = True
            self.reactor.callLater(0, self._callInReactor)

    def _call(self, function: Callable[..., object], arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException:
            # Even a SystemExit: functions of other calls follow.
            _log.failure("an event of grpc.aio could not be handled")

    def close(self) -> None:
        """Give up the loop. In the reactor thread."""
        _thread.release()
