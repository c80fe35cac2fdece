"""The pump, with a queue that the test fills."""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.rpc.engine.server import CompletionQueuePoller


class Event:
    """
    What a queue gives: an event, or that there is none.

    @ivar tag: What is called with it; C{None} where there is none.
    @ivar completion_type: The kind, as grpcio has it.
    """

    def __init__(self, tag: Callable[[Any], object] | None, kind: int = 0) -> None:
        self.tag = tag
        self.completion_type = kind


NOTHING = Event(None, cygrpc.CompletionType.queue_timeout)
END = Event(None, cygrpc.CompletionType.queue_shutdown)


class Queue:
    """A completion queue: events are put in, and asked for with or without waiting."""

    def __init__(self, process: Callable[[Any], object]) -> None:
        """
        @param process: Called with what was put in, in place of each event.
        """
        self.process = process
        self.events: deque[Event] = deque()
        self.arrived = threading.Condition()
        self.askers: list[tuple[str, float | None]] = []

    def put(self, *events: Any) -> None:
        """Let events happen."""
        with self.arrived:
            self.events.extend(END if each is None else self.event(each) for each in events)
            self.arrived.notify_all()

    def event(self, value: Any) -> Event:
        """Make the event of a value."""
        return Event(lambda event: self.process(value))

    def poll(self, deadline: float | None) -> Any:
        """Give the next event."""
        with self.arrived:
            self.askers.append((threading.current_thread().name, deadline))
            while not self.events and deadline is None:
                self.arrived.wait()
            return self.events.popleft() if self.events else NOTHING


class PumpTests(TestCase):
    """In the reactor of the tests, with a real thread."""

    timeout = 60

    def setUp(self) -> None:
        """Start a pump."""
        from twisted.internet import reactor

        self.queue = Queue(self.process)
        self.seen: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self.wanted = 0
        self.enough: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.pump = CompletionQueuePoller(
            reactor,
            self.queue.poll,
            lambda: None,
            lambda: self.ended.callback(None),
            "pump",
        )
        self.pump.start()

    def process(self, event: Any) -> None:
        """Take an event."""
        self.threads.add(threading.current_thread())
        self.seen.append(event)
        if len(self.seen) == self.wanted:
            self.enough.callback(None)
        if isinstance(event, BaseException):
            raise event

    def happen(self, *events: Any) -> Deferred[None]:
        """Let events happen and wait until they have arrived."""
        self.wanted = len(self.seen) + len(events)
        self.enough = Deferred()
        self.queue.put(*events)
        return self.enough

    def end(self) -> Deferred[None]:
        """Shut the queue down and wait for the pump's end."""
        self.queue.put(None)
        return self.ended

    async def test_order(self) -> None:
        """Every event arrives once, in order, in the reactor's thread."""
        for start in (0, 1, 300):
            await self.happen(*range(start, start + 300 if start else 1))
        await self.end()
        self.assertEqual(self.seen, [0, *range(1, 301), *range(300, 600)])
        self.assertEqual(self.threads, {threading.main_thread()})

    async def test_waiting(self) -> None:
        """The thread only ever waits, and the reactor never does."""
        await self.happen(*range(200))
        await self.end()
        self.assertEqual(
            {deadline for name, deadline in self.queue.askers if name == "pump"}, {None}
        )
        self.assertEqual({deadline for name, deadline in self.queue.askers if name != "pump"}, {0})

    async def test_failure(self) -> None:
        """An event that fails, with whatever exception, is logged, and the next one arrives."""
        await self.happen(RuntimeError("no"), 1)
        await self.happen(SystemExit("no"), KeyboardInterrupt(), 2)
        await self.end()
        kinds = [failure.type for failure in self.flushLoggedErrors()]
        self.assertEqual(kinds, [RuntimeError, SystemExit, KeyboardInterrupt])
        self.assertEqual([each for each in self.seen if isinstance(each, int)], [1, 2])

    async def test_end(self) -> None:
        """At the end the thread is gone."""
        await self.end()
        self.assertNotIn("pump", [thread.name for thread in threading.enumerate()])


class Turns:
    """A reactor whose turns are taken one by one."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()

    def callLater(self, delay: float, function: Callable[..., object], *arguments: Any) -> None:
        """Keep a call for the next turn."""
        assert delay == 0
        self.calls.append(partial(function, *arguments))

    def seconds(self) -> float:
        """Give the time, which does not go on."""
        return 0.0

    def next(self) -> None:
        """Take a turn."""
        self.calls.popleft()()


class TurnTests(SynchronousTestCase):
    """Events beside whatever else the reactor has to do."""

    def test_share(self) -> None:
        """Of a thousand events, a turn takes but some; the rest has to wait for the next."""
        turns = Turns()
        seen: list[Any] = []
        queue = Queue(seen.append)
        queue.put(*range(999))
        settled: list[int] = []

        def settle() -> None:
            self.assertTrue(pump.isTaking)
            settled.append(len(seen))

        pump = CompletionQueuePoller(turns, queue.poll, settle, lambda: None, "pump")
        pump._take(queue.event("first"))
        self.assertEqual(settled, [len(seen)])
        self.assertFalse(pump.isTaking)
        self.assertLess(len(seen), 100)
        taken = 0
        while turns.calls:
            turns.next()
            taken += 1
        self.assertEqual(seen, ["first", *range(999)])
        self.assertGreater(taken, 9)

    def test_settlingMakesEvents(self) -> None:
        """Events that come of what was put off are taken in the same turn."""
        turns = Turns()
        seen: list[Any] = []
        queue = Queue(seen.append)

        def settle() -> None:
            if len(seen) < 3:
                queue.put(len(seen))

        pump = CompletionQueuePoller(turns, queue.poll, settle, lambda: None, "pump")
        pump._take(queue.event("first"))
        self.assertEqual((seen, len(turns.calls)), (["first", 1, 2], 0))

    def test_settlingLeavesSome(self) -> None:
        """What a slice had no time for is done in the next turn, though no event comes."""
        turns = Turns()
        left = [True, True, False]
        queue = Queue(lambda value: None)
        pump = CompletionQueuePoller(turns, queue.poll, lambda: left.pop(0), lambda: None, "pump")
        pump._take(queue.event("first"))
        self.assertEqual((len(left), len(turns.calls)), (1, 1))
        turns.next()
        self.assertEqual((left, len(turns.calls), pump._resumed.locked()), ([], 0, False))
