"""Times that do not count what a busy machine adds."""

import os
import subprocess
import sys
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.support.contention import Stopwatch


class StopwatchTests(SynchronousTestCase):
    """A process and its children."""

    def test_contended(self) -> None:
        """Two children that share a CPU wait for half of the time each."""
        code = "import sys; print(flush=True); exec('while True: pass')"
        cpu = {min(os.sched_getaffinity(0))}
        for _ in range(2):
            child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            os.sched_setaffinity(child.pid, cpu)
            assert child.stdout is not None
            with child.stdout as output:
                output.readline()
        watch, began = Stopwatch(), time.monotonic()
        while (passed := time.monotonic() - began) < 0.3:
            pass
        self.assertGreater(watch.waitedSeconds(), passed / 2)
        self.assertLess(watch.seconds(), passed / 2)

    def test_least(self) -> None:
        """A time that passes never seems to stand still, however long processes wait."""
        watch = Stopwatch()
        self.patch(watch, "waitedSeconds", lambda: 1000.0)
        self.assertGreater(watch.seconds(), 0.0)
