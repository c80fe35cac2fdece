"""Jobs that are done a batch at a time."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.threadpool import JobQueue


class Names(JobQueue[str]):
    """
    A store of names, two at a time.

    @ivar events: What was done.
    @ivar running: What the thread has, until it is fired.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.running: list[Deferred[Any]] = []

    def put(self, *names: str) -> None:
        """Ask for something."""
        for name in names:
            self._put(name)

    def _take(self) -> list[str]:
        return [self._jobs.popleft() for _ in range(min(len(self._jobs), 2))]

    def _run(self, jobs: list[str]) -> Deferred[Any]:
        self.events.append(("begun", *jobs))
        self.running.append(Deferred())
        return self.running[-1]

    def _deliver(self, results: Any, jobs: list[str]) -> None:
        self.events.append(("failed" if isinstance(results, Failure) else "done", *jobs))

    def _finish(self) -> Deferred[None]:
        self.events.append("finished")
        self.running.append(Deferred())
        return self.running[-1]


class QueueTests(SynchronousTestCase):
    """When what is done."""

    def setUp(self) -> None:
        """Make a queue."""
        self.names = Names()

    def test_batches(self) -> None:
        """What comes while a batch runs makes up the next, which begins before anybody is told."""
        self.names.put("a", "b", "c", "d")
        self.assertEqual(self.names.events, [("begun", "a")])
        self.names.running[0].callback(None)
        self.names.running[1].callback(None)
        self.names.running[2].callback(None)
        self.assertEqual(
            self.names.events,
            [
                ("begun", "a"),
                ("begun", "b", "c"),
                ("done", "a"),
                ("begun", "d"),
                ("done", "b", "c"),
                ("done", "d"),
            ],
        )
        self.names.put("e")
        self.assertEqual(self.names.events[-1], ("begun", "e"))

    def test_failing(self) -> None:
        """A batch that fails does not hold up the next."""
        self.names.put("a", "b")
        self.names.running[0].errback(KeyError("a"))
        self.assertEqual(self.names.events[1:], [("begun", "b"), ("failed", "a")])

    def test_close(self) -> None:
        """It is closed once, when everything is done, and everybody who asked is told."""
        self.names.put("a", "b")
        closing = [self.names.close(), self.names.close()]
        self.names.running[0].callback(None)
        self.assertNotIn("finished", self.names.events)
        self.names.running[1].callback(None)
        self.assertFalse(any(each.called for each in closing))
        self.names.running[2].callback(None)
        self.assertEqual(self.names.events.count("finished"), 1)
        closing.append(self.names.close())
        self.assertEqual([each.called for each in closing], [True] * 3)

    def test_closeAtOnce(self) -> None:
        """With nothing to do it is closed at once, and those who asked wait for that."""
        closing = self.names.close()
        self.assertEqual(self.names.events, ["finished"])
        self.assertNoResult(closing)
        self.names.running[0].callback(None)
        self.assertIsNone(self.successResultOf(closing))
        self.assertIsNone(self.successResultOf(self.names.close()))

    def test_closeFails(self) -> None:
        """An error of the end is told once, to whoever asked first."""
        closing = [self.names.close(), self.names.close()]
        self.names.running[0].errback(KeyError("a"))
        self.failureResultOf(closing[0], KeyError)
        self.assertIsNone(self.successResultOf(closing[1]))
