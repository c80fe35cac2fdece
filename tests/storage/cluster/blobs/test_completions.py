"""Results from threads, before the reactor runs."""

import signal
from threading import Event, Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster.blobs.completions import CompletionQueue
from storagegate.storage.errors import StoreBusy


class WaitTests(SynchronousTestCase):
    """L{CompletionQueue.wait}."""

    def setUp(self) -> None:
        """Make a queue."""
        reactor: Any = Clock()
        reactor.callFromThread = lambda function: None
        self.completions = CompletionQueue(reactor)

    def test_result(self) -> None:
        """The result of a thread arrives."""
        waiting: Deferred[str] = Deferred()
        thread = Thread(target=self.completions.post, args=(waiting, "done"))
        thread.start()
        self.addCleanup(thread.join)
        self.assertEqual(self.completions.wait(waiting, 60.0), "done")

    def test_signalAtTheEnd(self) -> None:
        """A signal that is handled while the time runs out does not prolong the wait."""
        before = signal.signal(signal.SIGALRM, lambda number, frame: Event().wait(0.05))
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        self.assertRaises(StoreBusy, self.completions.wait, Deferred(), 0.05)
