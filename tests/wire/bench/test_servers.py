"""The bench's HTTP servers, started and asked, and the bench itself, run quickly."""

import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from bench.httpcases import CASES
from bench.httpmeasuring import HTTPServer, canMeasure, check, makeFiles
from bench.httprecipes import chooseRecipes
from bench.measuring import MeasureError
from bench.places import CHECKOUT
from bench.results import readResults
from tests.support.selection import long


@long("measures programs of the bench")
class ServerTests(SynchronousTestCase):
    """Each server gives the right answer in every case that it is measured in."""

    def setUp(self) -> None:
        """Make the files that are served."""
        if shutil.which("taskset") is None:
            raise SkipTest("no taskset to give a server its core")
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.files = makeFiles(self.folder / "files")

    def checkServer(self, name: str) -> None:
        """Start what the bench starts of a server, and ask it what the bench asks."""
        asked = []
        for recipe in chooseRecipes([name], CASES.values(), self.files):
            try:
                recipe.describe()
            except FileNotFoundError as error:
                raise SkipTest(str(error)) from error
            with HTTPServer(recipe, self.folder) as server:
                for case in CASES.values():
                    if canMeasure(server, case):
                        check(server, case, self.files)
                        asked.append(case.name)
        expected = [case.name for case in CASES.values() if case.file or name != "nginx"]
        self.assertEqual(sorted(asked), sorted(expected))

    def test_storagegate(self) -> None:
        """This checkout's framework."""
        self.checkServer("storagegate")

    def test_twisted(self) -> None:
        """twisted.web."""
        self.checkServer("twisted.web")

    def test_klein(self) -> None:
        """klein."""
        self.checkServer("klein")

    def test_starlette(self) -> None:
        """Starlette on uvicorn."""
        self.checkServer("starlette")

    def test_fastify(self) -> None:
        """Fastify."""
        self.checkServer("fastify")

    def test_express(self) -> None:
        """Express."""
        self.checkServer("express")

    def test_nginx(self) -> None:
        """nginx."""
        self.checkServer("nginx")

    def test_wrongAnswer(self) -> None:
        """A server that answers something else is found out."""
        [recipe] = chooseRecipes(["storagegate"], [CASES["static16k"]], self.files)
        with HTTPServer(recipe, self.folder) as server:
            (self.files / "16k.bin").write_bytes(b"x")
            check(server, CASES["static16k"], self.files)
            other = makeFiles(self.folder / "other")
            self.assertRaises(MeasureError, check, server, CASES["static16k"], other)


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench runs from beginning to end."""

    def test_quick(self) -> None:
        """A quick run of our own server measures a GET and a POST, and prints its tables."""
        for name in ("wrk", "taskset"):
            if shutil.which(name) is None:
                raise SkipTest(f"no {name}: run bench/setup_peers.sh")
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_http.py"), "--quick"]
        words += ["--servers", "storagegate", "--cases", "hello", "echo", "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        self.assertEqual(results.bench, "http")
        self.assertEqual(results.rows(), [("hello", 64), ("echo", 64)])
        for row in results.rows():
            [cell] = results.cells("storagegate", *row)
            self.assertGreater(min(cell.rate, cell.serverCpu, cell.clientCpu), 0)
        self.assertIn("hello x64", done.stdout)
