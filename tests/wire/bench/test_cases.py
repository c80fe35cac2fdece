"""Each case of the benchmarks: its servers start, and give the right answer."""

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from bench.__main__ import allCases
from bench.cases import Load, MeasureError
from bench.http.recipe import FILES, filePage
from bench.peers import CHECKOUT, environment
from bench.processes import Running, Session
from bench.results import readResults
from tests.support.selection import long, rounds, soak

MANY = frozenset({f"s3/{each}" for each in ("get64m", "put64m", "put1m", "list100k", "list1m")})
"""Cases whose loads differ from others only in size; they run in a soak."""

SCALE = 100
"""A hundredth of the objects and connections."""


class ServersTestCase(SynchronousTestCase):
    """A directory for servers."""

    def setUp(self) -> None:
        """Make the directory of a run."""
        for name in ("gcc", "taskset"):
            if shutil.which(name) is None:
                raise SkipTest(f"no {name}")
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.session = Session(self.folder, self.stack, SCALE)


@long("starts every server of the benchmarks")
class CasesTests(ServersTestCase):
    """A load checks an answer of its server before it is measured."""

    timeout = 600

    def checkFolder(self, folder: str) -> None:
        """Start each server of a folder once, and make the loads of its cases."""
        left = rounds(MANY, MANY, soak=frozenset())
        cases = [each for each in allCases() if each.folder == folder and each.name not in left]
        checked, loaded, missing = set(), set(), set()
        for server in {each: None for case in cases for each in case.servers}:
            try:
                server.version()
            except FileNotFoundError:
                missing.add(server.name)
                continue
            with Running(server, self.session) as running:
                for case in cases:
                    if server in case.servers:
                        # This checks an answer.
                        load = case.load(running, 1, 0.5)
                        if server.command is None or server not in loaded:
                            loaded.add(server)
                            self.runLoad(load)
                        checked.add((case.name, server.name))
        ours = {(case.name, case.servers[0].name) for case in cases}
        self.assertLessEqual(ours, checked)
        if missing:
            raise SkipTest(f"not installed: {', '.join(sorted(missing))}")

    def runLoad(self, load: Load) -> None:
        """Run a load, with the work beside it."""
        with load.beside():
            seen = load.run(1.0, None)
        load.finish(seen)
        self.assertFalse(seen.fault or seen.doubts, seen)
        self.assertGreater(seen.requests, 0)

    def test_s3(self) -> None:
        """The daemon, rclone and nginx."""
        if not Path("/usr/include/openssl/ssl.h").exists():
            raise SkipTest("no libssl-dev to build the load client with")
        self.checkFolder("s3")

    @soak("starts many servers, for up to a minute")
    def test_http(self) -> None:
        """The frameworks and nginx."""
        self.checkFolder("http")

    @soak("starts many servers, for up to a minute")
    def test_grpc(self) -> None:
        """The servers of gRPC, also beside open streams."""
        self.checkFolder("grpc")

    @soak("starts many servers, for up to a minute")
    def test_gateway(self) -> None:
        """The gateway, and the peers of each transport."""
        self.checkFolder("gateway")

    @soak("starts many servers, for up to a minute")
    def test_cluster(self) -> None:
        """Nodes, and both catalogs."""
        self.checkFolder("cluster")

    @soak("starts many servers, for up to a minute")
    def test_console(self) -> None:
        """Daemons with and without a console."""
        self.checkFolder("console")

    @soak("starts many servers, for up to a minute")
    def test_growth(self) -> None:
        """Daemons and gateways with every setting."""
        self.checkFolder("growth")


@long("starts servers of the benchmarks")
class WrongAnswerTests(ServersTestCase):
    """A server that answers wrongly is not measured."""

    def test_file(self) -> None:
        """Other bytes of a file are refused."""
        page = filePage("16k.bin")
        [case] = [each for each in allCases() if each.name == "http/static16k"]
        with Running(case.servers[0], self.session) as running:
            page(running, 1, 1)
            (self.folder / "files" / "16k.bin").write_bytes(b"x" * FILES["16k.bin"])
            answer = running.exchange("GET", page.target)
            (self.folder / "files" / "16k.bin").write_bytes(b"y" * FILES["16k.bin"])
            self.assertRaises(MeasureError, page.check, answer, self.folder / "files")


@long("runs the benchmarks")
class ProgramTests(SynchronousTestCase):
    """The program, from its command line to its tables."""

    def test_run(self) -> None:
        """A short run writes its document, and prints the tables of each folder."""
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, "-m", "bench", "--quick", "--rounds", "2", "--seconds", "0.3"]
        words += ["--only", "s3/head", "growth/tcp", "--servers", "storagegate", "quiet", "idle10k"]
        began = time.monotonic()
        done = subprocess.run(
            [*words, "--out", str(output)],
            cwd=CHECKOUT,
            env={**environment(), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        results = readResults(output)
        self.assertEqual(results.folders(), ["s3", "growth"])
        self.assertEqual([cell.server for cell in results.cells[:2]], ["storagegate"] * 2)
        self.assertGreater(min(cell.cpuMicros for cell in results.cells), 0)
        self.assertIn("s3/storagegate", results.memory)
        self.assertIn("head x64  storagegate", done.stdout)
        self.assertIn("tcp x64: idle10k against quiet", done.stdout)
        self.assertLess(time.monotonic() - began, 300)
