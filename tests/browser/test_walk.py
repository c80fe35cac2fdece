"""A bucket of many keys, walked to its end in Chromium."""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from twisted.trial.unittest import SynchronousTestCase

from bench.peers import CHECKOUT
from bench.s3.requests import listedKeys
from tests.browser.test_objects import ObjectsBrowser
from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT
from tests.support.programs import needs
from tests.support.selection import CHOICE, long, rounds
from tests.wire.s3.fixture import makeDaemon, ownDirectory

COUNT = rounds(5000, 5000, soak=1_000_000)

GRID = "document.querySelector('[role=grid]')"

# Budgets of a million keys.
HEAP_BYTES = 64 << 20
FRAME_MS = 8.0
LIST_MS = 25.0
MOST_PX = 8_000_000

_WALK = """
(async () => {
  const grid = document.querySelector('[role=grid]');
  while (grid.getAttribute('aria-rowcount') === '-1') {
    grid.scrollTop = grid.scrollHeight;
    await new Promise(requestAnimationFrame);
    if (document.querySelector('.problem')) return 'failed';
  }
  grid.scrollTop = grid.scrollHeight;
  return grid.getAttribute('aria-rowcount');
})()
"""

_FRAMES = """
(async () => {
  const grid = document.querySelector('[role=grid]');
  for (let frame = 0; frame < 250; frame += 1) {
    grid.scrollTop += 160;
    await new Promise(requestAnimationFrame);
  }
})()
"""


def fill(data: Path, bucket: str) -> None:
    """Make the bucket of a store that no daemon has open, through the catalog's interface."""
    command = ["-m", "bench.s3.bulkfill", str(data), bucket, str(COUNT), "0"]
    subprocess.run([sys.executable, *command], cwd=CHECKOUT, check=True)


@long("drives Chromium")
@needs("chromium")
class WalkTests(SynchronousTestCase):
    """A soak walks a million keys, and holds the budgets of time."""

    def test_walk(self) -> None:
        """
        The list goes to its end with few elements, a bounded height and heap; parts of it that
        were forgotten are the same when they are seen again; a typed key is gone to.
        """
        directory = ownDirectory("walk")
        data = directory / "data"
        fill(data, "many")
        keys = list(listedKeys(COUNT))
        with (
            makeDaemon(data) as daemon,
            ObjectsBrowser(daemon) as page,
        ):
            page.visit()
            page.signIn(ROOT.accessKey, ROOT.secretKey)
            page.show("many")
            page.waitRow(keys[0])
            self.assertEqual(page.evaluate(_WALK), str(COUNT + 1))
            page.waitRow(keys[-1])
            self.assertLess(page.evaluate(f"{GRID}.scrollHeight"), MOST_PX)
            self.assertLess(page.evaluate("document.querySelectorAll('*').length"), 700)
            page.send("HeapProfiler.enable")
            page.send("HeapProfiler.collectGarbage")
            heap = page.send("Runtime.getHeapUsage")["usedSize"]
            self.assertLess(heap, HEAP_BYTES)
            self._seek(page, keys)
            spent = self._frames(page)
            page.fill("input[name=find]", keys[COUNT // 3])
            page.wait(
                "document.querySelector('#row-0 bdi')?.textContent"
                f" === {json.dumps(keys[COUNT // 3])}"
            )
            took = self._list(daemon.address("admin"), keys)
            if CHOICE == "soak":
                print(f"heap {heap >> 20} MiB, {spent:.1f} ms a frame, list {took:.1f} ms")
                self.assertLess(spent, FRAME_MS)
                self.assertLess(took, LIST_MS)

    def _seek(self, page: ObjectsBrowser, keys: list[str]) -> None:
        """Go by the scroll bar, and by single rows, to parts that were forgotten."""
        seen = f"[...{GRID}.querySelectorAll('.listRow')].map((each) => each.id)"
        for share in (0.5, 0.01, 0.0):
            page.evaluate(f"{GRID}.scrollTop = {GRID}.scrollHeight * {share}")
            wanted = round(COUNT * share)
            page.wait(
                f"{seen}.some((id) => Math.abs(+id.slice(4) - {wanted}) < {COUNT // 50 + 20})"
            )
            found = page.evaluate(
                f"[...{GRID}.querySelectorAll('.listRow[id]')].map((each) =>"
                " [+each.id.slice(4), each.querySelector('bdi').textContent])"
            )
            self.assertEqual([name for _, name in found], [keys[at] for at, _ in found])
        page.evaluate(f"{GRID}.focus()")
        for _ in range(3):
            page.key("ArrowDown")
        page.wait("document.querySelector('.listRow.active').id === 'row-3'")
        page.key("End")
        page.wait(f"document.querySelector('.listRow.active')?.id === 'row-{COUNT - 1}'")
        page.waitRow(keys[-1])
        page.key("ArrowUp")
        page.wait(f"document.querySelector('.listRow.active')?.id === 'row-{COUNT - 2}'")
        page.key("Home")
        page.waitRow(keys[0])

    def _frames(self, page: ObjectsBrowser) -> float:
        """Scroll a thousand rows; return the milliseconds of script, style and layout a frame."""
        names = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")

        def spent() -> float:
            metrics = page.send("Performance.getMetrics")["metrics"]
            return sum(float(each["value"]) for each in metrics if each["name"] in names)

        page.send("Performance.enable")
        before = spent()
        page.evaluate(_FRAMES)
        first = page.evaluate(f"+{GRID}.querySelector('.listRow[id]').id.slice(4)")
        self.assertGreater(first, 900)
        return (spent() - before) * 1000 / 250

    def _list(self, address: tuple[str, int], keys: list[str]) -> float:
        """Return the milliseconds of a page of a thousand from the middle, with its way here."""
        case = ConsoleCase("call")
        case.admin = address
        took = []
        for at in range(COUNT // 2, COUNT // 2 + 1000, 100):
            started = time.perf_counter()
            path = f"buckets/many/objects?delimiter=/&limit=1000&after={keys[at]}"
            reply = case.call("GET", path)
            took.append((time.perf_counter() - started) * 1000)
            self.assertEqual(reply.json["objects"][0][0], keys[at + 1])
        return median(took)
