"""The gRPC bench's own parts: what is asked, its client's report, figures. Nothing is timed."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import grpcclient, h2load, peers
from bench.bench_grpc import readOptions, takeTurns
from bench.grpccases import CASES, FRAMED, MESSAGE, SERVICE, Case
from bench.grpcmeasuring import GRPCServer, complaint, makeCell
from bench.grpcrecipes import ECHO, RECIPES
from storagegate.rpc import loadProto
from tests.support.selection import long

PYTHON_PEERS = ("grpc.aio", "grpc.server", "grpclib")


def report(**changes: float) -> h2load.Report:
    """Make what the client reports of a thousand good answers in two seconds."""
    fields = {
        "calls": 1000,
        "failed": 0,
        "seconds": 2.0,
        "received": 1000 * len(FRAMED),
        "p50Ms": 1.5,
        "p99Ms": 4.0,
    }
    return h2load.Report(**{**fields, **changes})  # type: ignore[arg-type]


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options all cases run on all servers, three rounds each."""
        options = readOptions([])
        self.assertEqual(options.cases, list(CASES))
        self.assertEqual(options.servers, list(RECIPES))
        self.assertEqual((options.rounds, options.seconds, options.quick), (3, 4, False))

    def test_quick(self) -> None:
        """A quick run has one round of a second in each cell."""
        options = readOptions(["--quick"])
        self.assertEqual((options.rounds, options.seconds, options.quick), (1, 1, True))

    def turns(self, case: str, rounds: int) -> list[str]:
        """List who is measured in a case, of three servers."""
        folder = Path(self.mktemp())
        folder.mkdir()
        names = ("storagegate", "grpc.server", "grpc-js")
        servers = [GRPCServer(RECIPES[name], folder) for name in names]
        return [server.recipe.name for server in takeTurns(servers, CASES[case], rounds)]

    def test_turns(self) -> None:
        """Each round has every server, and begins with another."""
        names = self.turns("unary", 2)
        self.assertEqual(names[:3], ["storagegate", "grpc.server", "grpc-js"])
        self.assertEqual(names[3:], ["grpc.server", "grpc-js", "storagegate"])

    def test_able(self) -> None:
        """A server that has a thread for each call is not asked to hold more of them open."""
        self.assertEqual(self.turns("open300", 1), ["storagegate", "grpc-js"])


@long("a check of CI")
class CaseTests(SynchronousTestCase):
    """What is asked, and what is the right answer."""

    def test_message(self) -> None:
        """The message is one of the service, in a frame that says how long it is."""
        note = loadProto(ECHO).Note.FromString(MESSAGE)
        self.assertEqual((note.text, note.copies), ("hello, hello, hello!", 1000))
        self.assertEqual(note.SerializeToString(), MESSAGE)
        self.assertEqual(list(grpcclient.unframe(FRAMED * 2)), [MESSAGE, MESSAGE])
        self.assertEqual(grpcclient.frame(MESSAGE), FRAMED)

    def test_streams(self) -> None:
        """A call sends and is answered as many messages as its kind and the request say."""
        counted = {
            name: (len(case.posted) // len(FRAMED), len(case.wanted) // len(FRAMED))
            for name, case in CASES.items()
        }
        expected = {"unary": (1, 1), "server": (1, 1000), "bidi": (1000, 1000), "open300": (1, 1)}
        self.assertEqual(counted, expected)

    def test_methods(self) -> None:
        """Every case calls a method of the service."""
        methods = loadProto(ECHO).services[SERVICE].methods
        for case in CASES.values():
            self.assertIn(case.method, methods)
            self.assertEqual(case.path, methods[case.method].path)


@long("a check of CI")
class H2loadTests(SynchronousTestCase):
    """How the client is run, and what it says."""

    OUTPUT = (
        b"starting benchmark...\n\nfinished in 2.00s, 500.00 req/s, 40.00KB/s\n"
        b"requests: 1000 total, 1004 started, 1000 done, 997 succeeded, 3 failed, 3 errored, "
        b"0 timeout\nstatus codes: 1000 2xx, 0 3xx, 0 4xx, 0 5xx\n"
        b"traffic: 81.05KB (83000) total, 3.42KB (3500) headers (space savings 96.29%), "
        b"29.30KB (30000) data\n"
    )

    def test_commandLine(self) -> None:
        """One connection, on which so many calls are in flight; what they send lies in a file."""
        load = h2load.Load("/bench.Echo/Once", 64, 4, Path("/b"))
        words = h2load.commandLine("h2load", 80, load, Path("/l"))
        self.assertEqual(words[:5], ["h2load", "-t1", "-c1", "-m64", "-D4"])
        self.assertEqual(words[5:7], ["--data=/b", "--log-file=/l"])
        self.assertEqual(words[-1], "http://127.0.0.1:80/bench.Echo/Once")

    def test_report(self) -> None:
        """Counts are in what it prints, times in its log: the middle one and the 99th of 100."""
        log = "".join(f"1700000000\t200\t{number * 1000}\n" for number in range(100, 0, -1))
        expected = h2load.Report(1000, 3, 2.0, 30000, p50Ms=51, p99Ms=100)
        self.assertEqual(h2load.readReport(self.OUTPUT, log), expected)

    def test_noReport(self) -> None:
        """Anything else is an error that shows what came."""
        error = self.assertRaises(RuntimeError, h2load.readReport, b"cannot connect\n", "")
        self.assertIn("cannot connect", str(error))


@long("a check of CI")
class FigureTests(SynchronousTestCase):
    """Figures out of what the client saw."""

    def cell(self, case: Case, seen: h2load.Report) -> tuple[float, float]:
        """Give a rate, and the CPU time of one thing that is counted."""
        made = makeCell("us", case, 4, seen, cpu=1.0, clientCpu=0.5)
        self.assertEqual((made.serverCpu, made.clientCpu), (0.5, 0.25))
        return made.rate, made.cpuMicrosPerRequest

    def test_calls(self) -> None:
        """Of unary calls, calls are counted."""
        self.assertEqual(self.cell(CASES["unary"], report()), (500, 1000))

    def test_messages(self) -> None:
        """Of streams, messages are, those of streams that the end cut off included."""
        seen = report(calls=20, received=25_000 * len(FRAMED))
        self.assertEqual(self.cell(CASES["server"], seen), (12_500, 40))

    def test_complaints(self) -> None:
        """Calls that fail or are answered too little, and none at all, make a cell invalid."""
        case = CASES["unary"]
        self.assertEqual(complaint(case, report()), "")
        self.assertIn("3 of 1000", complaint(case, report(failed=3)))
        short = report(received=1000 * len(FRAMED) - 1)
        self.assertEqual(complaint(case, short), "answers were short")
        self.assertIn("no call", complaint(case, report(calls=0)))


@long("a check of CI")
class RecipeTests(SynchronousTestCase):
    """The servers of a run."""

    def setUp(self) -> None:
        """Look for peers where there are none."""
        self.peers = Path(self.mktemp()).absolute()
        self.patch(peers, "peersFolder", lambda: self.peers)

    def test_missingPeer(self) -> None:
        """A peer that is not installed is named, with how to get it."""
        for name in (*PYTHON_PEERS, "grpc-js"):
            error = self.assertRaises(FileNotFoundError, RECIPES[name].describe)
            self.assertIn("setup_peers.sh", str(error))

    def test_applications(self) -> None:
        """Every application in Python is there, and is told its port."""
        (self.peers / "grpc" / "bin").mkdir(parents=True)
        (self.peers / "grpc" / "bin" / "python").touch()
        for name in ("storagegate", *PYTHON_PEERS):
            _, app, *words = RECIPES[name].command(Path("/x"), 77)
            self.assertTrue(Path(app).exists(), app)
            self.assertEqual(words, ["77"])

    def test_nodeApplication(self) -> None:
        """The application on Node lies beside the modules that it imports."""
        (self.peers / "node" / "node_modules").mkdir(parents=True)
        folder = Path(self.mktemp())
        folder.mkdir()
        RECIPES["grpc-js"].prepare(folder, 77)
        self.assertTrue((folder / "node_modules").is_dir())
        self.assertTrue((folder / "grpcjs_app.mjs").is_file())
