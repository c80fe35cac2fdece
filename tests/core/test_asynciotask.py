"""Coroutines of the one runner as tasks of asyncio's."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.asynciotask import AsyncioBridge, AsyncioTask
from storagegate.core.task import Task, fromCoroutine, portable, setBridge


class RecordingTask(Task):
    """Records the end of its coroutine."""

    __slots__ = ("__weakref__", "ended")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__(coroutine)
        self.ended: list[Any] = []

    def onResult(self, value: Any) -> None:
        """Record the result."""
        self.ended.append(value)

    def onError(self, error: BaseException) -> None:
        """Record the kind of the error."""
        self.ended.append(type(error))


class Held:
    """Something that a call holds."""


class AsyncioTaskTests(SynchronousTestCase):
    """A loop of its own, which the test drives."""

    def setUp(self) -> None:
        """Set a bridge to a loop."""
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)
        setBridge(AsyncioBridge(self.loop))
        self.addCleanup(setBridge, None)

    def runInLoop(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a function in the loop."""
        return self.loop.run_until_complete(asyncio.wait_for(function(), 60))

    def test_firstStep(self) -> None:
        """The first step runs at once; a coroutine that waits for nothing ends with it."""

        async def handle() -> Any:
            return asyncio.current_task()

        async def main() -> None:
            task = RecordingTask(handle())
            task.step()
            [found] = task.ended
            self.assertIsInstance(found, AsyncioTask)
            self.assertTrue(found.done())
            self.assertNotIn(found, asyncio.all_tasks())
            self.assertIsNot(asyncio.current_task(), found)

        self.runInLoop(main)

    def test_nested(self) -> None:
        """A task that starts another in its stack is the current one again after it."""

        async def inner() -> None:
            await asyncio.sleep(0)

        async def outer() -> bool:
            before = asyncio.current_task()
            RecordingTask(inner()).step()
            return asyncio.current_task() is before

        async def main() -> None:
            task = RecordingTask(outer())
            task.step()
            self.assertEqual(task.ended, [True])

        self.runInLoop(main)

    def test_cancelled(self) -> None:
        """The coroutine gets asyncio's error, those outside that of Twisted."""
        seen: list[Any] = []

        async def handle(awaited: Any) -> None:
            try:
                await awaited
            except asyncio.CancelledError:
                current = asyncio.current_task()
                assert current is not None
                seen.append(current.cancelling())
                raise

        async def main() -> None:
            for awaited in (Deferred[None](), self.loop.create_future(), asyncio.sleep(100)):
                task = RecordingTask(handle(awaited))
                task.step()
                task.cancel()
                self.assertEqual(task.ended, [])
                for _ in range(4):
                    await asyncio.sleep(0)
                self.assertEqual((task.ended, seen), ([CancelledError], [1]))
                seen.clear()

        self.runInLoop(main)

    def test_cancelsItself(self) -> None:
        """A task that has cancelled itself is cancelled where it waits next, unless taken back."""

        async def handle(awaited: Any, isTakenBack: bool) -> str:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            if isTakenBack:
                self.assertEqual(current.uncancel(), 0)
            await awaited
            return "end"

        async def main() -> None:
            for isTakenBack, expected in ((False, CancelledError), (True, "end")):
                fired: Deferred[None] = Deferred()
                for awaited in (asyncio.sleep(0), asyncio.sleep(0.001), fired):
                    task = RecordingTask(handle(awaited, isTakenBack))
                    task.step()
                    await asyncio.sleep(0)
                    if awaited is fired and isTakenBack:
                        fired.callback(None)
                    await asyncio.sleep(0.01)
                    self.assertEqual(task.ended, [expected])

        self.runInLoop(main)

    def test_ignored(self) -> None:
        """A coroutine may catch the error, and go on."""

        async def handle() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            await asyncio.sleep(0.001)
            return "end"

        async def main() -> None:
            task = RecordingTask(handle())
            task.step()
            task.cancel()
            await asyncio.sleep(0.05)
            self.assertEqual(task.ended, ["end"])

        self.runInLoop(main)

    def test_otherLoop(self) -> None:
        """A future of another loop is an error, as in asyncio."""
        other = asyncio.new_event_loop()
        self.addCleanup(other.close)

        async def handle() -> None:
            await other.create_future()

        async def main() -> None:
            task = RecordingTask(handle())
            task.step()
            self.assertEqual(task.ended, [RuntimeError])

        self.runInLoop(main)

    def test_deferredsInTasks(self) -> None:
        """Tasks of asyncio's wait for Deferreds; errors and cancellation pass."""

        async def wait(deferred: Deferred[Any]) -> Any:
            return await deferred

        async def main() -> None:
            deferreds: list[Deferred[Any]] = [Deferred() for _ in range(3)]
            tasks = [asyncio.create_task(wait(each)) for each in deferreds]
            await asyncio.sleep(0)
            deferreds[0].callback("result")
            deferreds[1].errback(KeyError("failed"))
            tasks[2].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual(found[0], "result")
            self.assertIsInstance(found[1], KeyError)
            self.assertIsInstance(found[2], asyncio.CancelledError)
            self.assertTrue(deferreds[2].called)

        self.runInLoop(main)

    def test_portable(self) -> None:
        """A Deferred for any task is awaited by both kinds, and cancels what it stands for."""
        setBridge(None)

        async def main() -> None:
            # The task of this coroutine began without a bridge.
            setBridge(AsyncioBridge(self.loop))
            source: Deferred[str] = Deferred()
            result = portable(source)
            self.loop.call_soon(source.callback, "result")
            self.assertEqual(await result, "result")
            waiting: Deferred[str] = Deferred()
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await portable(waiting)
            self.assertTrue(waiting.called)
            inner: Deferred[str] = Deferred()

            async def handle() -> str:
                return await portable(inner)

            ran = fromCoroutine(handle())
            inner.callback("inner")
            self.assertEqual(self.successResultOf(ran), "inner")

        self.loop.set_task_factory(None)
        self.runInLoop(main)

    def test_cycles(self) -> None:
        """What a call has held is free when it has ended, without the garbage collector."""

        async def fail() -> None:
            raise KeyError

        async def handle(held: Held, kind: str) -> None:
            async with asyncio.timeout(100):
                await asyncio.sleep(0)
                if kind == "error":
                    await fail()
                if kind == "error of a task":
                    await asyncio.create_task(fail())
                if kind == "cancelled":
                    await asyncio.sleep(100)
                if kind == "cancelled at a Deferred":
                    await Deferred[None]()

        async def main(kind: str) -> Any:
            held = Held()
            task = RecordingTask(handle(held, kind))
            task.step()
            await asyncio.sleep(0.002)
            task.cancel()
            await asyncio.sleep(0.002)
            self.assertEqual(len(task.ended), 1)
            return weakref.ref(held)

        kinds = ("result", "error", "error of a task")
        for kind in (*kinds, "cancelled", "cancelled at a Deferred"):
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            self.assertIsNone(self.runInLoop(lambda kind=kind: main(kind))(), kind)
            gc.enable()
