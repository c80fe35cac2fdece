"""The driver: the choice of cases, and a tiny case of real processes."""

import http.client
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from bench import measuring, peers
from bench.__main__ import allCases, choose, processorName, readOptions
from bench.cases import Asked, Case, Load, MeasureError, Seen, Server, Started
from bench.measuring import Effort, Measurer, inTurns, makeCell
from bench.processes import Running, Session, cpuSeconds, memoryBytes, sessionOf
from bench.results import Results, judge
from tests.bench.test_tables import RUN
from tests.support.programs import needs

# Answers each request with its own process id; a second process is its child.
SERVER = """
import os, signal, socket, sys, time
if os.fork() == 0:
    signal.pause()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    client, _ = listener.accept()
    client.recv(4096)
    text = str(os.getpid()).encode()
    end = time.process_time() + 0.002
    while time.process_time() < end:
        pass
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(text), text))
    client.close()
"""


def server(name: str, script: str = SERVER) -> Server:
    """Return a server that starts at once."""
    return Server(name, lambda running: [sys.executable, "-S", "-c", script, running.port])


def load(running: Running, connections: int, seconds: float) -> Load:
    """Return a load of ten requests from this process."""

    def run(seconds: float, started: Started | None) -> Seen:
        for _ in range(10):
            running.exchange("GET", "/")
        return Seen(10, 0.5, 1000, 1.0, 2.0, 0.25)

    return Load(run)


def tiny(*servers: Server, **fields: object) -> Case:
    """Return a case that takes no time."""
    plain = Case("s3/tiny", "answers", servers, load, connections=(1,), quick=(1,), warmSeconds=0)
    return evolve(plain, **fields)


class ChoiceTests(SynchronousTestCase):
    """The command line."""

    def chosen(self, *words: str) -> list[Case]:
        """Return the cases that a command line selects."""
        return choose(allCases(), readOptions(words))

    def test_all(self) -> None:
        """Without options every case is measured, three rounds of two seconds."""
        self.assertEqual([c.name for c in self.chosen()], [c.name for c in allCases()])
        options = readOptions([])
        self.assertEqual((options.rounds, options.seconds), (3, 2.0))

    def test_patterns(self) -> None:
        """A pattern selects folders or cases."""
        names = [each.name for each in self.chosen("--only", "grpc", "*/get4k")]
        self.assertIn("grpc/unary", names)
        self.assertIn("growth/get4k", names)
        self.assertNotIn("s3/put4k", names)

    def test_servers(self) -> None:
        """Servers are selected by name; a case without one of them is left out."""
        found = self.chosen("--servers", "storagegate", "rclone")
        self.assertEqual([each.name for each in found[0].servers], ["storagegate", "rclone"])
        self.assertNotIn("cluster", {each.folder for each in found})

    def test_quick(self) -> None:
        """A quick run has rounds of a second, and leaves the longest cases out."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds), (3, 1.0))
        names = {each.name for each in self.chosen("--quick")}
        self.assertIn("s3/put4k", names)
        self.assertNotIn("s3/get64m", names)
        self.assertEqual({name.partition("/")[0] for name in names}, {c.folder for c in allCases()})
        [case] = self.chosen("--quick", "--only", "s3/put4k")
        self.assertEqual(Effort(3, 1.0, quick=True).connectionsOf(case), (64,))
        self.assertEqual(Effort(3, 1.0, connections=(5,)).connectionsOf(case), (5,))

    def test_against(self) -> None:
        """Another checkout takes turns with this one, in place of the peers."""
        [case] = self.chosen("--against", "/old", "--only", "http/hello")
        self.assertEqual([each.name for each in case.servers], ["storagegate", "before"])
        self.assertEqual(case.servers[1].environment["PYTHONPATH"], "/old")

    def test_processorName(self) -> None:
        """The name of the processor is read from its line."""
        self.assertEqual(processorName("vendor_id : x\nmodel name\t: Fast One\n"), "Fast One")

    def test_missingPeer(self) -> None:
        """A peer that is not installed is reported, with the command that installs it."""
        self.patch(peers, "peersFolder", lambda: Path("/nonexistent"))
        for case in allCases():
            for each in case.servers:
                if each.name in ("klein", "fastify", "granian", "grpclib", "moleculer", "autobahn"):
                    error = self.assertRaises(FileNotFoundError, each.version)
                    self.assertIn("python -m bench --install", str(error))


class FigureTests(SynchronousTestCase):
    """Figures of a process and of a measurement."""

    STAT = "12 (a) b) S 1 12 77 0 -1 0 0 0 0 0 100 50 300 200 20 0 1"

    def test_stat(self) -> None:
        """The name of a command may hold parentheses; ended children are counted on request."""
        self.assertEqual(sessionOf(self.STAT), 77)
        ticks = cpuSeconds(self.STAT)
        self.assertAlmostEqual(cpuSeconds(self.STAT, withEnded=True) / ticks, 650 / 150)

    def test_memory(self) -> None:
        """Sizes are read by their name."""
        status = "Name:\tx\nVmHWM:\t  20 kB\nVmRSS:\t  10 kB\n"
        self.assertEqual([memoryBytes(status, n) for n in ("VmRSS", "VmHWM")], [10240, 20480])
        self.assertEqual(memoryBytes("Name:\tkthread\n", "VmRSS"), 0)

    def test_cell(self) -> None:
        """CPU time is set in relation to requests, rates to seconds."""
        seen = Seen(1000, 2.0, 5_000_000, 1.5, 4.0, 0.5)
        cell = makeCell(tiny(server("a")), "a", 64, seen, (0.2, 0.1))
        self.assertEqual((cell.rate, cell.megabytes, cell.p99Ms), (500, 2.5, 4.0))
        self.assertAlmostEqual(cell.cpuMicros, 300)
        self.assertAlmostEqual(cell.othersMicros, 100)
        self.assertAlmostEqual(cell.serverCores, 0.15)
        self.assertEqual(cell.clientCores, 0.25)

    def test_selfMeasured(self) -> None:
        """A program that measures itself reports the CPU time of the measured side."""
        seen = Seen(1000, 2.0, serverSeconds=0.5)
        cell = makeCell(tiny(server("a")), "a", 1, seen, (0.0, 0.1))
        self.assertAlmostEqual(cell.cpuMicros, 600)

    def test_turns(self) -> None:
        """Each round has every server, and begins with another one."""
        found = [each.name for each in inTurns([server(name) for name in "abc"], 2)]
        self.assertEqual(found, ["a", "b", "c", "b", "c", "a"])


@needs("taskset")
class MeasurerTests(SynchronousTestCase):
    """Real processes are started, measured by rounds, and stopped."""

    def measure(self, *cases: Case, rounds: int = 2) -> Results:
        """Measure some cases."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        # A benchmark that runs at the same time does not delay the test.
        self.patch(measuring, "LOCK", Path(self.mktemp()))
        self.patch(measuring, "settleDisk", lambda running: None)
        found = Results(RUN)
        self.told: list[str] = []
        self.saved = 0

        def save() -> None:
            self.saved += 1

        with ExitStack() as stack:
            session = Session(folder, stack)
            Measurer(session, found, Effort(rounds, 0.1), self.told.append, save).measure(cases)
        self.assertEqual(list(folder.iterdir()), [])
        return found

    def test_rounds(self) -> None:
        """
        Two servers take turns; a second case goes on with the same processes; CPU time and memory
        include the children.
        """
        ids: dict[str, set[bytes]] = {"a": set(), "b": set()}

        def noting(running: Running, connections: int, seconds: float) -> Load:
            ids[running.server.name].add(running.exchange("GET", "/").body)
            return load(running, connections, seconds)

        both = (server("a"), server("b"))
        case = tiny(*both, load=noting, asked=(Asked("b", 0.5),))
        found = self.measure(case, evolve(case, name="s3/again"))
        order = [(cell.case, cell.server) for cell in found.cells]
        expected = [(name, each) for name in ("s3/tiny", "s3/again") for each in "abba"]
        self.assertEqual(order, expected)
        self.assertEqual({name: len(each) for name, each in ids.items()}, {"a": 1, "b": 1})
        self.assertGreater(min(cell.cpuMicros for cell in found.cells), 500)
        self.assertEqual([cell.rate for cell in found.cells], [20.0] * 8)
        self.assertTrue(judge(found, case, case.asked[0]).isMet)
        self.assertEqual(set(found.memory), {"s3/a", "s3/b"})
        self.assertGreater(min(found.memory.values()), 2 << 20)
        self.assertEqual((len(self.told), self.saved, found.failures), (8, 8, []))

    def test_fresh(self) -> None:
        """Each round has a process of its own if the case asks for one, and memory can grow."""
        ids = []

        def growing(running: Running, connections: int, seconds: float) -> Load:
            ids.append(running.exchange("GET", "/").body)

            @contextmanager
            def beside() -> Iterator[float]:
                yield 5e6

            return evolve(load(running, connections, seconds), beside=beside)

        found = self.measure(tiny(server("a"), load=growing, isFresh=True))
        self.assertEqual(len(set(ids)), 2)
        self.assertEqual([cell.grownMegabytes for cell in found.cells], [5.0, 5.0])

    def test_failures(self) -> None:
        """A server that does not start, and a wrong answer, are noted once; the others go on."""

        def checking(running: Running, connections: int, seconds: float) -> Load:
            if running.server.name == "wrong":
                raise MeasureError("another answer")
            return load(running, connections, seconds)

        starts: list[Running] = []
        broken = evolve(
            server("broken", "raise SystemExit('no such module')"), prepare=starts.append
        )
        case = tiny(server("a"), broken, server("wrong"), load=checking)
        found = self.measure(case, evolve(case, name="s3/again"))
        self.assertEqual([cell.server for cell in found.cells], ["a"] * 4)
        self.assertEqual(len(starts), 1)
        reasons = {each.server: each.reason for each in found.failures}
        self.assertEqual([each.server for each in found.failures], ["broken", "wrong"] * 2)
        self.assertIn("no such module", reasons["broken"])
        self.assertEqual(reasons["wrong"], "another answer")

    def test_ended(self) -> None:
        """A server that ends under load is reported with the end of its log."""

        def killing(running: Running, connections: int, seconds: float) -> Load:
            def run(seconds: float, started: Started | None) -> Seen:
                assert running.process is not None
                running.process.kill()
                running.process.wait()
                raise http.client.BadStatusLine("")

            return Load(run)

        found = self.measure(tiny(server("a"), load=killing), rounds=1)
        self.assertIn("it has ended", found.failures[0].reason)
