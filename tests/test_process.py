"""What is set for the whole process, seen in a process of its own."""

import json
import subprocess
import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT

# A pair that hold each other: only the collector finds them.
SCRIPT = """
import gc, json, weakref
from storagegate.process import settleProcess, tuneProcess

class Node:
    pass

def circle():
    one, other = Node(), Node()
    one.other, other.other = other, one
    return weakref.ref(one)

seen = {}
tuneProcess()
seen["starting"] = gc.isenabled()
garbage = circle()
settleProcess()
seen["left"] = garbage() is not None
seen["settled"] = gc.isenabled()
seen["frozen"] = gc.get_freeze_count()
later = circle()
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
seen["leftLater"] = later() is not None
print(json.dumps(seen))
"""


# Pages between a few blocks that stay, as a start leaves them.
TRIMMED = """
import json
from storagegate.process import settleProcess, tuneProcess

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

tuneProcess()
blocks = [bytes(1000) for _ in range(40_000)]
kept = blocks[::100]
del blocks
before = resident()
settleProcess()
print(json.dumps(before - resident()))
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
        It rests while a start makes what will stay, then takes what that has left over, keeps off
        the rest, and works from then on.
        """
        seen = self.seen()
        self.assertFalse(seen["starting"])
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
