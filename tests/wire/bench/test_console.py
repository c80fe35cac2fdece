"""The bench of the console, run quickly."""

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench.places import CHECKOUT
from bench.results import readResults
from tests.support.selection import long

CASES = [("upload", 3), ("download", 1), ("list1m", 1)]


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench measures daemons that work."""

    def test_quick(self) -> None:
        """A quick run moves an object both ways, and lists."""
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_console.py"), "--quick"]
        words += ["--cases", *(name for name, _ in CASES), "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        self.assertEqual(sorted(results.rows()), sorted(CASES))
        for case, connections in CASES[:2]:
            for server in ("s3", "api"):
                [cell] = results.cells(server, case, connections)
                self.assertGreater(min(cell.rate, cell.cpuMicrosPerRequest), 0)
        self.assertIn("Medians of what the rounds have", done.stdout)
