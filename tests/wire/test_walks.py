"""How far requests walk through the package: within their limits, and the record proved."""

import re
import threading
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.support.walkprogram import Recorder
from tests.support.walks import LIMITS, Limit, Walk, measure, usual


@cache
def walks() -> dict[str, Walk]:
    """Make all walks, once."""
    return measure()


@long("records whole requests")
class LimitTests(SynchronousTestCase):
    """Seven requests to the real daemon and applications."""

    def check(self, name: str) -> None:
        """Assert that a walk keeps its limit; the message is its route."""
        walk, limit = walks()[name], LIMITS[name]
        sizes = f"{len(walk.files)} files, {walk.switches} switches; at most {limit}"
        self.assertTrue(walk.fits(limit), "\n  ".join([f"{name}: {sizes}", *walk.route]))

    def test_put(self) -> None:
        """An object of 4 KiB is stored, with a signed payload."""
        self.check("PUT 4 KiB")

    def test_get(self) -> None:
        """An object of 4 KiB is read."""
        self.check("GET 4 KiB")

    def test_gatewayHTTP(self) -> None:
        """A method is called over HTTP."""
        self.check("gateway HTTP call")

    def test_gatewayGRPC(self) -> None:
        """A method is called over the gateway's gRPC."""
        self.check("gateway gRPC unary")

    def test_gatewayWebSocket(self) -> None:
        """A method is called over WebSocket."""
        self.check("gateway WebSocket call")

    def test_express(self) -> None:
        """A route with a parameter answers JSON."""
        self.check("Express GET")

    def test_documented(self) -> None:
        """The page of the architecture names the files of each walk, and no others."""
        page = (CHECKOUT / "docs" / "architecture.rst").read_text()
        for name, walk in walks().items():
            found = re.search(rf"^{re.escape(name)}\n((?:    .*\n)+)", page, re.MULTILINE)
            assert found is not None, name
            self.assertEqual(set(re.findall(r"``([^`]+)``", found[1])), walk.files, name)

    def test_application(self) -> None:
        """A method of a gRPC application is called."""
        self.check("gRPC application unary")


class WalkTests(SynchronousTestCase):
    """The figures of a record."""

    def test_figures(self) -> None:
        """Files count once over all threads, switches in each thread for itself."""
        walk = Walk([["a", "a", "b", "a"], ["a", "c", "c"], ["b"]])
        self.assertEqual((walk.files, walk.switches, walk.entries), ({"a", "b", "c"}, 3, 8))
        self.assertEqual(walk.route, ["a", "b", "a", "a", "c", "b"])

    def test_limits(self) -> None:
        """A walk is too long by its files or by its switches."""
        walk = Walk([["a", "b", "a"]])
        limits = [Limit(2, 2), Limit(1, 2), Limit(2, 1)]
        self.assertEqual([walk.fits(each) for each in limits], [True, False, False])

    def test_usual(self) -> None:
        """A timer makes some walks longer, a cut record makes some shorter; neither counts."""
        cut, whole, long = Walk([["a"]]), Walk([["a", "b"]]), Walk([["a", "b", "c"]])
        self.assertIs(usual([cut, long, whole, whole, long, whole]), whole)
        self.assertIs(usual([long, cut, whole]), cut)


class RecorderTests(SynchronousTestCase):
    """The record itself, of code that seems to stand in a package."""

    def setUp(self) -> None:
        """Make a recorder and functions of two files of a package, and of another one."""
        self.recorder = Recorder(Path("/package"))
        self.names: dict[str, Any] = {}
        texts = {
            "/package/a.py": "def a(): b(); other(b); return 1\n",
            "/package/x/b.py": "def b(): pass\nasync def steps(wait): await wait; await wait\n",
            "/packages/c.py": "def other(function): function()\n",
        }
        for path, text in texts.items():
            code: CodeType = compile(text, path, "exec")
            exec(code, self.names)

    def record(self, function: Any) -> list[list[str]]:
        """Call a function in a thread that is recorded, as all are that are started later."""
        threading.setprofile(self.recorder.profile)
        try:
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]
        return self.recorder.take()

    def test_calls(self) -> None:
        """Each entry counts, also through code of others, which does not count itself."""
        self.assertEqual(self.record(self.names["a"]), [["a.py", "x/b.py", "x/b.py"]])

    def test_coroutines(self) -> None:
        """A coroutine is entered again when it is resumed."""

        class Wait:
            def __await__(self) -> Any:
                yield

        def run() -> None:
            steps = self.names["steps"](Wait())
            for _ in range(3):
                try:
                    steps.send(None)
                except StopIteration:
                    pass

        self.assertEqual(self.record(run), [["x/b.py"] * 3])

    def test_threads(self) -> None:
        """Threads are recorded apart."""

        def run() -> None:
            self.names["b"]()
            inner = threading.Thread(target=self.names["a"])
            inner.start()
            inner.join()

        self.assertEqual(self.record(run), [["x/b.py"], ["a.py", "x/b.py", "x/b.py"]])

    def test_take(self) -> None:
        """What was taken is forgotten."""
        self.record(self.names["b"])
        self.assertEqual(self.recorder.take(), [])
