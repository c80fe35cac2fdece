"""
The asyncio side of the coroutine runner, for Twisted's asyncio reactor.

L{AsyncioBridge} gives each coroutine of L{storagegate.core.task} an asyncio task, so that it may
await futures, and lets asyncio's own tasks await Deferreds. This module is imported only under that
reactor.
"""

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred


class AsyncioBridge:
    """
    Lets coroutines await both Deferreds and asyncio futures.

    @ivar loop: The loop that the reactor runs on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """
        @param loop: The loop, whose new tasks may await Deferreds.
        """
        self.loop = loop
        before = loop.get_task_factory()

        def makeTask(
            loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
        ) -> asyncio.Future[Any]:
            waiter = _DeferredWaiter(coroutine, loop)
            if before is not None:
                return before(loop, waiter, **options)
            return asyncio.Task(waiter, loop=loop, **options)

        loop.set_task_factory(makeTask)

    def adopt(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Wrap a coroutine that may await futures in one that awaits only Deferreds."""
        return AsyncioTask(coroutine, self.loop)

    def portable(self, result: Deferred[Any]) -> Deferred[Any]:
        """Return a Deferred that any asyncio task may await."""
        return PortableDeferred(result, self)

    def isForeign(self) -> bool:
        """Return whether the running asyncio task may have started before the bridge."""
        current = asyncio.current_task(self.loop)
        return current is not None and not isinstance(current, AsyncioTask)


class PortableDeferred(Deferred[Any]):
    """A Deferred that any asyncio task can await, even a task from before the bridge."""

    def __init__(self, source: Deferred[Any], bridge: AsyncioBridge) -> None:
        """
        @param source: The Deferred that gives the result; it is cancelled with this one.
        """
        super().__init__(lambda _: source.cancel())
        self._bridge = bridge
        source.addBoth(self._deliver)

    def _deliver(self, result: Any) -> None:
        self.callback(result)

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._bridge.isForeign():
            return self.asFuture(self._bridge.loop).__await__()
        return super().__await__()


class AsyncioTask(asyncio.Future[None], Coroutine[Any, Any, Any]):
    """
    A coroutine with the interface of an asyncio task, run step by step from outside.

    C{asyncio._enter_task} and similar functions are documented for tasks of other libraries
    ("Extending asyncio"). The attributes with underscores mimic C{asyncio.Task}; anyio reads them.
    Unlike C{asyncio.Task} it needs no iteration of the loop before its first step.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self._coroutine = coroutine
        self._fut_waiter: asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._reason: Any = None
        self._requests = 0
        self._waiting: Deferred[Any] | None = None
        self._thrown: list[BaseException] = []
        asyncio._register_task(self)  # type: ignore[arg-type]

    # As a coroutine

    def send(self, value: Any) -> Any:
        """Run the coroutine until it waits or ends; it reads the result from the awaited object."""
        return self._step()

    def throw(self, error: Any, *rest: Any) -> Any:
        """Raise an error in the coroutine, and run it until it waits or ends."""
        self._thrown.append(error)
        # Its traceback will hold this frame.
        del error, rest
        return self._step()

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()
        self._end()

    def _step(self) -> Any:
        self._fut_waiter = self._waiting = None
        if self._must_cancel:
            self._must_cancel = False
            if not (self._thrown and isinstance(self._thrown[0], asyncio.CancelledError)):
                arguments = () if self._reason is None else (self._reason,)
                self._thrown[:] = [asyncio.CancelledError(*arguments)]
        loop = self.get_loop()
        # The task of the caller, if this step runs inside another one.
        before: Any = asyncio.current_task(loop)
        if before is not None:
            asyncio._leave_task(loop, before)
        asyncio._enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if self._thrown:
                awaited = self._coroutine.throw(self._thrown.pop())
            else:
                awaited = self._coroutine.send(None)
        except asyncio.CancelledError as error:
            self._end()
            # The callers outside do not know asyncio.
            raise CancelledError(*error.args) from None
        except BaseException:
            self._end()
            raise
        finally:
            asyncio._leave_task(loop, self)  # type: ignore[arg-type]
            if before is not None:
                asyncio._enter_task(loop, before)
        return self._waitFor(awaited)

    def _waitFor(self, awaited: Any) -> Any:
        """Return a Deferred for the awaited object."""
        loop = self.get_loop()
        waiting: Any = awaited
        if isinstance(awaited, Deferred):
            self._waiting = awaited
        elif awaited is None:
            # One iteration of the loop, as in asyncio.sleep(0).
            waiting = Deferred(self._cancelled)
            loop.call_soon(_fire, waiting)
        elif getattr(awaited, "_asyncio_future_blocking", None):
            if awaited.get_loop() is not loop:
                return self.throw(RuntimeError(f"{awaited!r} belongs to another loop"))
            awaited._asyncio_future_blocking = False
            self._fut_waiter = awaited
            waiting = Deferred(self._cancelled)
            awaited.add_done_callback(partial(_fire, waiting))
        if self._must_cancel:
            self._cancelWaiting()
        return waiting

    def _end(self) -> None:
        self._thrown.clear()
        if not self.done():
            self.set_result(None)
        asyncio._unregister_task(self)  # type: ignore[arg-type]

    # As a task

    def cancel(self, msg: Any = None) -> bool:
        """
        Raise asyncio's C{CancelledError} in the coroutine, in a later iteration of the loop.

        @param msg: The argument of the error.
        @return: Whether the coroutine was still running.
        """
        if self.done():
            return False
        self._requests += 1
        self._must_cancel, self._reason = True, msg
        self._cancelWaiting()
        return True

    def _cancelWaiting(self) -> None:
        if self._fut_waiter is not None:
            if self._fut_waiter.cancel(msg=self._reason):
                self._must_cancel = False
        elif self._waiting is not None:
            # Not in this stack: asyncio's callers still have work to do before the coroutine runs.
            self.get_loop().call_soon(self._cancelDeferred, self._waiting)

    def _cancelDeferred(self, waiting: Deferred[Any]) -> None:
        if waiting is self._waiting:
            waiting.cancel()

    def _cancelled(self, waiting: Deferred[Any]) -> None:
        """Cancel the coroutine of a cancelled Deferred, which therefore fires at once."""
        self.cancel()
        self._must_cancel = True

    def cancelling(self) -> int:
        """Return the number of pending cancellation requests."""
        return self._requests

    def uncancel(self) -> int:
        """Withdraw a cancellation request; return how many are left."""
        self._requests = max(0, self._requests - 1)
        if not self._requests:
            self._must_cancel = False
        return self._requests

    def get_coro(self) -> Coroutine[Any, Any, Any]:
        """Return the coroutine."""
        return self._coroutine

    def get_name(self) -> str:
        """Return a name for logs."""
        return f"storagegate-{id(self):x}"


class _DeferredWaiter(Coroutine[Any, Any, Any]):
    """
    The coroutine of an asyncio task, which may await Deferreds.

    Attributes such as C{cr_frame} come from the user's coroutine.
    """

    def __init__(self, coroutine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        result: Generator[Any, Any, Any] = self._coroutine.__await__()
        return result

    def send(self, value: Any) -> Any:
        """Run the coroutine until it waits or ends."""
        return self._waitFor(self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        """Raise an error in the coroutine, and run it until it waits or ends."""
        # Keep the error in no variable: its traceback will hold this frame.
        thrown = [error]
        del error
        return self._waitFor(self._coroutine.throw(*thrown.pop()))

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def _waitFor(self, awaited: Any) -> Any:
        if not isinstance(awaited, Deferred):
            return awaited
        fired: Any = self._loop.create_future()

        def wake(result: Any) -> Any:
            if fired.cancelled():
                # The failure of a cancelled Deferred has no other handler.
                return None
            fired.set_result(None)
            return result

        # Only now: it must not fire before this point.
        awaited.addBoth(wake)
        fired.add_done_callback(lambda _: awaited.cancel() if fired.cancelled() else None)
        fired._asyncio_future_blocking = True
        return fired


def _fire(waiting: Deferred[None], *future: Any) -> None:
    # An error read from the future has a traceback that references this frame.
    del future
    if not waiting.called:
        waiting.callback(None)
