"""The bench's gRPC servers, started and asked, and the bench itself, run quickly."""

import shutil
import subprocess
import sys
from pathlib import Path

from attrs import evolve
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from bench.grpccases import CASES, FRAMED
from bench.grpcmeasuring import GRPCServer, check, holding
from bench.grpcrecipes import RECIPES
from bench.measuring import MeasureError
from bench.places import CHECKOUT
from bench.results import readResults
from tests.support.selection import long


def needPrograms(*names: str) -> None:
    """Skip the test where a program is missing."""
    for name in names:
        if shutil.which(name) is None:
            raise SkipTest(f"no {name}: run bench/setup_peers.sh")


@long("measures programs of the bench")
class ServerTests(SynchronousTestCase):
    """Each server gives the right answer in every case that it is measured in."""

    def setUp(self) -> None:
        """Make a folder for the server."""
        needPrograms("taskset")
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def checkServer(self, name: str) -> None:
        """Start what the bench starts of a server, and ask it what the bench asks."""
        recipe = RECIPES[name]
        try:
            recipe.describe()
        except FileNotFoundError as error:
            raise SkipTest(str(error)) from error
        with GRPCServer(recipe, self.folder) as server:
            for case in CASES.values():
                check(server, case)

    def test_storagegate(self) -> None:
        """This checkout's server."""
        self.checkServer("storagegate")

    def test_aio(self) -> None:
        """grpcio's server for asyncio."""
        self.checkServer("grpc.aio")

    def test_threads(self) -> None:
        """grpcio's server of threads."""
        self.checkServer("grpc.server")

    def test_grpclib(self) -> None:
        """grpclib."""
        self.checkServer("grpclib")

    def test_grpcJs(self) -> None:
        """@grpc/grpc-js."""
        self.checkServer("grpc-js")

    def test_wrongAnswer(self) -> None:
        """A server that answers something else, or an error, is found out."""
        unary = CASES["unary"]
        with GRPCServer(RECIPES["storagegate"], self.folder) as server:
            self.assertRaises(MeasureError, check, server, evolve(unary, answered=2))
            error = self.assertRaises(MeasureError, check, server, evolve(unary, method="Nope"))
            self.assertIn("UNIMPLEMENTED", str(error))

    def test_holding(self) -> None:
        """Streams are in use as long as they are held; that one has ended badly is found out."""
        with GRPCServer(RECIPES["storagegate"], self.folder) as server:
            with holding(server, 3):
                self.assertIsNone(server.process.poll())

            def lose() -> None:
                with holding(server, 3):
                    server.process.kill()
                    server.process.wait()

            error = self.assertRaises(MeasureError, lose)
        self.assertIn("3 streams could not be held", str(error))


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench runs from beginning to end."""

    def test_quick(self) -> None:
        """A quick run of our own server measures calls, streams and memory, and prints tables."""
        needPrograms("h2load", "taskset")
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_grpc.py"), "--quick"]
        words += ["--servers", "storagegate", "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        self.assertEqual(results.bench, "grpc")
        rows = [("unary", 1), ("unary", 64), ("server", 4), ("bidi", 4), ("open300", 64)]
        self.assertEqual(results.rows(), rows)
        for row in results.rows():
            [cell] = results.cells("storagegate", *row)
            self.assertGreater(min(cell.rate, cell.serverCpu, cell.clientCpu), 0)
            self.assertGreaterEqual(cell.megabytesPerSecond * 1e6, cell.rate * len(FRAMED) * 0.99)
        self.assertGreater(cell.grownBytes or 0, 0)
        self.assertIn("Memory that the open streams took", done.stdout)
