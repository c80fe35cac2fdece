"""The overhead bench, run quickly from beginning to end."""

import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from bench.places import CHECKOUT
from bench.results import readResults
from tests.support.selection import long


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench measures daemons that work."""

    def test_quick(self) -> None:
        """A quick run measures the daemon over HTTP and S3, all on and off, and with workers."""
        for name in ("gcc", "taskset", "wrk"):
            if shutil.which(name) is None:
                raise SkipTest(f"no {name}: run bench/setup_peers.sh")
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_overhead.py"), "--quick"]
        words += ["--cases", "echo", "get4k", "workers-compute", "--output", str(output)]
        words += ["--servers", "off", "on1", "workers2"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        self.assertEqual(
            results.rows(), [(name, 64) for name in ("echo", "get4k", "workers-compute")]
        )
        measured = (("echo", "on1"), ("get4k", "on1"), ("workers-compute", "workers2"))
        for case, server in (*measured, ("echo", "off"), ("get4k", "off")):
            [cell] = results.cells(server, case, 64)
            self.assertGreater(min(cell.rate, cell.cpuMicrosPerRequest), 0)
        # Workers are processes of their own; spans go by a thread.
        for case, server in measured:
            [cell] = results.cells(server, case, 64)
            self.assertEqual(cell.besideMicros > 0, server == "workers2")
        self.assertIn("Medians of what the rounds have", done.stdout)
