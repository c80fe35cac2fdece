"""The bench's servers of each wire, started and asked, and the bench itself, run quickly."""

import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from bench import gatewaymeasuring
from bench.gatewaymeasuring import GatewayServer, check
from bench.gatewayrecipes import RECIPES
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
    """Each server gives the right answer on its wire."""

    def setUp(self) -> None:
        """Make a folder for the server."""
        needPrograms("taskset")
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def checkServers(self, name: str) -> None:
        """Start what the bench starts of a server, on each wire, and ask what the bench asks."""
        for recipe in RECIPES:
            if recipe.name != name:
                continue
            try:
                recipe.describe()
            except FileNotFoundError as error:
                raise SkipTest(str(error)) from error
            with GatewayServer(recipe, self.folder) as server:
                check(server)

    def test_storagegate(self) -> None:
        """This checkout's gateway, on all five wires."""
        self.checkServers("storagegate")

    def test_moleculer(self) -> None:
        """Moleculer behind moleculer-web."""
        self.checkServers("moleculer")

    def test_autobahn(self) -> None:
        """Autobahn."""
        self.checkServers("autobahn")

    def test_ws(self) -> None:
        """The ws package of Node."""
        self.checkServers("ws")

    def test_twisted(self) -> None:
        """Twisted alone, over TCP and UDP."""
        self.checkServers("twisted")

    def test_aio(self) -> None:
        """grpcio's server for asyncio."""
        self.checkServers("grpc.aio")

    def test_wrongAnswer(self) -> None:
        """A server that answers something else is found out."""
        [recipe] = [each for each in RECIPES if (each.wire, each.name) == ("http", "storagegate")]
        with GatewayServer(recipe, self.folder) as server:
            self.patch(gatewaymeasuring, "POSTED", b'{"text":"other"}')
            error = self.assertRaises(MeasureError, check, server)
            self.assertIn("http: answered {'text': 'other'}", str(error))
            self.patch(gatewaymeasuring, "POSTED", b'{"text":1}')
            error = self.assertRaises(MeasureError, check, server)
            self.assertEqual(str(error), "answered 400")


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench runs from beginning to end."""

    def test_quick(self) -> None:
        """A quick run of our own server measures each wire and the invoker, and prints tables."""
        needPrograms("gcc", "h2load", "taskset", "wrk")
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_gateway.py"), "--quick"]
        words += ["--servers", "storagegate", "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        self.assertEqual(results.bench, "gateway")
        wires = ("http", "websocket", "grpc", "tcp", "udp")
        self.assertEqual(results.rows(), [*((wire, 64) for wire in wires), ("invoker", 1)])
        for row in results.rows():
            [cell] = results.cells("storagegate", *row)
            self.assertGreater(min(cell.rate, cell.cpuMicrosPerRequest), 0)
        self.assertIn("Calls per second", done.stdout)
