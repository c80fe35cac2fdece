"""The growth bench, run quickly from beginning to end, and its programs."""

import socket
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench.growthmeasuring import finish, holding
from bench.places import CHECKOUT, IDLE_CONNECTIONS
from bench.results import readResults
from tests.support.selection import long
from tests.wire.bench.test_gatewayservers import needPrograms


@long("measures programs of the bench")
class QuickTests(SynchronousTestCase):
    """The bench measures servers that work."""

    def test_quick(self) -> None:
        """A quick run measures grown servers, and work beside."""
        needPrograms("gcc", "taskset")
        output = Path(self.mktemp()).absolute()
        words = [sys.executable, str(CHECKOUT / "bench" / "bench_growth.py"), "--quick"]
        words += ["--cases", "put4k", "get4k-beside", "tcp", "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        [results] = readResults([output])
        measured = {
            ("put4k", 64): ("quiet", "objects1m", "keys1000"),
            ("get4k-beside", 4): ("quiet", "upload", "list", "checkpoint"),
            ("tcp", 64): ("quiet", "idle10k"),
        }
        self.assertEqual(results.rows(), list(measured))
        for (case, connections), servers in measured.items():
            for server in servers:
                [cell] = results.cells(server, case, connections)
                self.assertGreater(min(cell.rate, cell.p99Ms, cell.cpuMicrosPerRequest), 0)
        self.assertIn("p99 of get4k beside", done.stdout)


@long("measures programs of the bench")
class IdleTests(SynchronousTestCase):
    """Idle connections."""

    def test_closed(self) -> None:
        """A connection that the server has closed is not counted as open."""
        needPrograms("taskset")
        with socket.create_server(("127.0.0.1", 0)) as server:
            words = [str(IDLE_CONNECTIONS), str(server.getsockname()[1]), "3"]
            with holding(words) as process:
                kept = [server.accept()[0] for _ in range(3)]
                kept.pop().close()
                left = finish(process)
            for connection in kept:
                connection.close()
        self.assertEqual(left, 2)
