"""What is set for the whole process, seen in a process of its own."""

import json
import subprocess
import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT

# A pair that hold each other: only the collector finds them.
SCRIPT = """
import gc, json, linecache, weakref
from storagegate.daemon.process import freezeHeap, tuneProcess

class Node:
    pass

def circle():
    one, other = Node(), Node()
    one.other, other.other = other, one
    return weakref.ref(one)

seen = {}
tuneProcess()
before = gc.get_stats()[2]["collections"] + gc.get_stats()[1]["collections"]
made = circle()
linecache.cache["<attrs generated methods of a class>"] = (1, None, ["def f(): ..."], "")
lasting = [[] for _ in range(2 * gc.get_threshold()[0])]
seen["leftAtStart"] = made() is not None
seen["sources"] = len(linecache.cache)
seen["found"] = gc.get_stats()[2]["collections"] + gc.get_stats()[1]["collections"] - before
garbage = circle()
freezeHeap()
seen["left"] = garbage() is not None
seen["settled"] = gc.isenabled() and not gc.callbacks
seen["frozen"] = gc.get_freeze_count()
later = circle()
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
seen["leftLater"] = later() is not None
print(json.dumps(seen))
"""


# Pages between a few blocks that stay, as a start leaves them.
TRIMMED = """
import json
from storagegate.daemon.process import freezeHeap, tuneProcess

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

tuneProcess()
blocks = [bytes(1000) for _ in range(40_000)]
kept = blocks[::100]
del blocks
before = resident()
freezeHeap()
print(json.dumps(before - resident()))
"""


FORGOTTEN = """
import sys
import twisted.trial.itrial
import %s
from storagegate.daemon.process import tuneProcess

tuneProcess()
print("unittest" in sys.modules, hasattr(sys.modules["twisted"], "trial"))
import twisted.trial.itrial, unittest
unittest.TestCase()
"""


class ProcessTests(SynchronousTestCase):
    """The garbage collector over a start."""

    def seen(self) -> dict[str, Any]:
        """Run a start and tell what it was like."""
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=CHECKOUT, capture_output=True, check=True
        )
        seen: dict[str, Any] = json.loads(result.stdout)
        return seen

    def test_collector(self) -> None:
        """
        While a start makes what will stay, it looks once at what is new, and drops the sources
        that attrs keeps; then it takes what is left over, keeps off the rest, and works on.
        """
        seen = self.seen()
        self.assertFalse(seen["leftAtStart"])
        self.assertEqual(seen["sources"], 0)
        self.assertEqual(seen["found"], 0)
        self.assertFalse(seen["left"])
        self.assertTrue(seen["settled"])
        self.assertGreater(seen["frozen"], 1000)
        self.assertFalse(seen["leftLater"])

    def test_memory(self) -> None:
        """What only a start needed is given back to the system."""
        result = subprocess.run(
            [sys.executable, "-c", TRIMMED], cwd=CHECKOUT, capture_output=True, check=True
        )
        self.assertGreater(json.loads(result.stdout), 10_000_000)

    def test_testing(self) -> None:
        """The modules of tests are forgotten, unless the process runs tests."""
        for module, kept in (("json", "False False"), ("twisted.trial.unittest", "True True")):
            result = subprocess.run(
                [sys.executable, "-c", FORGOTTEN % module],
                cwd=CHECKOUT,
                capture_output=True,
                check=True,
                text=True,
            )
            self.assertEqual(result.stdout.strip(), kept)
