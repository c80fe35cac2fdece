"""What a bench run leaves: its lines, the verdicts on its goals, its tables."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import goals, grpccases, grpcrecipes, httpcases, httprecipes, results, s3cases, table
from bench.places import README
from tests.support.selection import long


def cell(server: str, case: str, connections: int, rate: float, **changes: object) -> results.Cell:
    """Make a measurement of which only the rate matters."""
    fields: dict[str, object] = {
        "server": server,
        "case": case,
        "connections": connections,
        "rate": rate,
        "megabytesPerSecond": 1.0,
        "p50Ms": 1.0,
        "p99Ms": 2.0,
        "serverCpu": 1.0,
        "clientCpu": 0.5,
        "cpuMicrosPerRequest": 100.0,
    }
    return results.Cell(**{**fields, **changes})  # type: ignore[arg-type]


RUN = results.Run("2026-03-04", "Z80", 2, "6.1", "ext4", 3, 1.5, {"rclone": "1.75.2"})
HTTP_RUN = results.Run("2026-03-05", "Z80", 2, "6.1", "ext4", 3, 4, {"klein": "24.8"}, "http")
GRPC_RUN = results.Run("2026-03-06", "Z80", 2, "6.1", "ext4", 3, 4, {"grpclib": "0.4"}, "grpc")


@long("a check of CI")
class ResultsTests(SynchronousTestCase):
    """What is kept of a run."""

    def test_roundTrip(self) -> None:
        """Every kind of line is read back as it was written."""
        lines: list[results.Line] = [
            RUN,
            cell("rclone", "head", 1, 5.0, complaints=("x",)),
            results.Failure("rclone", "head", 16, "why"),
            results.Memory("rclone", 10**8),
        ]
        path = Path(self.mktemp())
        path.write_bytes(b"".join(map(results.encodeLine, lines)))
        [read] = results.readResults([path])
        self.assertEqual(read.runs, [RUN])
        self.assertEqual(read.cells("rclone", "head", 1), [lines[1]])
        self.assertEqual((read.failures, read.memory), ([lines[2]], {"rclone": 10**8}))

    def test_benchesApart(self) -> None:
        """What was measured of S3 and of HTTP is kept apart, however it lies in files."""
        lines = [RUN, cell("a", "head", 1, 1.0), HTTP_RUN, cell("a", "hello", 64, 2.0)]
        path = Path(self.mktemp())
        path.write_bytes(b"".join(map(results.encodeLine, [*lines, *lines])))
        s3, http = results.readResults([path, path])
        self.assertEqual((s3.bench, s3.rows()), ("s3", [("head", 1)]))
        self.assertEqual((http.bench, http.rows()), ("http", [("hello", 64)]))
        self.assertEqual(len(s3.runs), 4)

    def test_failedRound(self) -> None:
        """A cell of which one round failed has no figure, until a later run measures it whole."""
        rounds = [cell("a", "head", 1, 5.0), results.Failure("a", "head", 1, "why")]
        read = results.Results([RUN, *rounds])
        self.assertIsNone(read.rate("a", "head", 1))
        self.assertEqual((read.rows(), read.failures), ([("head", 1)], rounds[1:]))
        again = results.Results([RUN, *rounds, RUN, cell("a", "head", 1, 7.0)])
        self.assertEqual((again.rate("a", "head", 1), again.failures), (7.0, []))

    def test_median(self) -> None:
        """A rate is the median of its rounds, and absent where nothing was measured."""
        read = results.Results([RUN, *(cell("a", "head", 1, rate) for rate in (9.0, 1.0, 5.0))])
        self.assertEqual(read.rate("a", "head", 1), 5.0)
        self.assertIsNone(read.rate("a", "head", 16))

    def test_rerunReplaces(self) -> None:
        """A later run's rounds of a cell stand in place of the earlier ones."""
        read = results.Results([RUN, cell("a", "head", 1, 1.0), RUN, cell("a", "head", 1, 7.0)])
        self.assertEqual(read.rate("a", "head", 1), 7.0)


@long("a check of CI")
class GoalTests(SynchronousTestCase):
    """Goals are judged by ratios of one run."""

    def verdict(self, ours: float, theirs: float) -> str:
        """Judge the first goal (five times rclone) for two rates."""
        read = results.Results(
            [RUN, cell("storagegate", "put4k", 64, ours), cell("rclone", "put4k", 64, theirs)]
        )
        return goals.judge(goals.S3_GOALS[0], read).word

    def test_reachedAndMissed(self) -> None:
        """A goal is reached from its ratio on, and missed under it."""
        self.assertEqual(self.verdict(500, 100), "reached")
        self.assertEqual(self.verdict(499, 100), "missed")

    def test_notMeasured(self) -> None:
        """Nothing is claimed of what was not measured."""
        for run in (RUN, HTTP_RUN, GRPC_RUN):
            words = {verdict.word for verdict in goals.verdicts(results.Results([run]))}
            self.assertEqual(words, {"not measured"})

    def test_memory(self) -> None:
        """The peak must stay under its limit."""
        for size, word in ((99_999_999, "reached"), (100_000_000, "missed")):
            read = results.Results([RUN, results.Memory("storagegate", size)])
            self.assertEqual(goals.judgeLimit(goals.S3_LIMITS[0], read).word, word)

    def test_openStreams(self) -> None:
        """What open streams take, and do to other calls, is judged by the median of the rounds."""
        rounds = [
            cell("storagegate", "open300", 64, 1, p99Ms=p99, grownBytes=grown)
            for p99, grown in ((250.0, 12_000_000), (20.0, 50_000_000), (30.0, 45_000_000))
        ]
        found = goals.verdicts(results.Results([GRPC_RUN, *rounds]))[-2:]
        told = [(verdict.measured, verdict.word) for verdict in found]
        self.assertEqual(told, [("30", "reached"), ("45", "missed")])

    def test_goalsNameCases(self) -> None:
        """Every goal speaks of a cell that a default run measures."""
        benches = (("s3", s3cases.CASES), ("http", httpcases.CASES), ("grpc", grpccases.CASES))
        for bench, known in benches:
            for goal in goals.GOALS[bench]:
                for name in (goal.case, goal.otherCase or goal.case):
                    self.assertIn(goal.connections, known[name].connections)

    def test_goalsNameServers(self) -> None:
        """Every goal of HTTP and gRPC speaks of a server that a default run measures."""
        for goal in goals.HTTP_GOALS:
            self.assertIn(goal.against, httprecipes.RECIPES)
        for goal in goals.GRPC_GOALS:
            self.assertIn(goal.against, grpcrecipes.RECIPES)

    def test_ownCase(self) -> None:
        """A goal may compare two of our own cases."""
        rates = (cell("storagegate", f"route{n}", 64, 100 - n / 5) for n in (10, 100))
        [verdict] = [
            verdict
            for verdict in goals.verdicts(results.Results([HTTP_RUN, *rates]))
            if verdict.measured is not None
        ]
        self.assertEqual((verdict.text[:8], verdict.measured), ("route100", "0.82"))


@long("a check of CI")
class TableTests(SynchronousTestCase):
    """The tables of the read-me."""

    def test_simpleTable(self) -> None:
        """A table is laid out as reStructuredText's simple table."""
        self.assertEqual(
            table.simpleTable([["a", "bcd"], ["long", ""]]),
            "====  ===\na     bcd\n====  ===\nlong\n====  ===\n",
        )

    def test_marks(self) -> None:
        """Doubtful answers and a busy client are marked."""
        read = results.Results([RUN, cell("a", "head", 1, 50, complaints=("x",), clientCpu=0.99)])
        self.assertEqual(table.rateCell(read, "a", "head", 1), "50 [50-50] !c")

    def test_figure(self) -> None:
        """Rates have three digits that mean something."""
        self.assertEqual(
            [table.figure(x) for x in (12345.6, 123.4, 1.234)], ["12,346", "123", "1.23"]
        )

    def test_document(self) -> None:
        """A document holds where it was measured, goals, ratios, memory and what failed."""
        text = table.document(
            results.Results(
                [
                    RUN,
                    cell("storagegate", "put4k", 64, 600),
                    cell("rclone", "put4k", 64, 100),
                    results.Failure("nginx", "put4k", 64, "went away"),
                    results.Memory("storagegate", 55_000_000),
                ]
            )
        )
        for part in (
            "2 cores (Z80)",
            "6.00      reached",
            "put4k x64  6.00    -",
            "nginx put4k x64: ``went",
        ):
            self.assertIn(part, text)

    def test_openStreams(self) -> None:
        """How much memory open streams took has a table of its own, where it was measured."""
        plain = cell("grpclib", "unary", 64, 1)
        self.assertEqual(table.grownTable(results.Results([GRPC_RUN, plain])), "")
        grown = cell("grpclib", "open300", 64, 1, grownBytes=12_340_000)
        text = table.document(results.Results([GRPC_RUN, plain, grown]))
        self.assertIn("open300  grpclib  12.3\n", text)

    def test_replace(self) -> None:
        """Only what stands between the markers of the bench is replaced."""
        other = "".join(mark.format("http") for mark in (table.BEGIN, table.END))
        begin, end = table.BEGIN.format("s3"), table.END.format("s3")
        text = f"a\n{begin}old\n{end}b\n{other}"
        once = table.replaceGenerated(text, "s3", "new")
        self.assertEqual(once, f"a\n{begin}\nnew\n{end}b\n{other}")
        self.assertEqual(table.replaceGenerated(once, "s3", "new"), once)

    def test_markersMissing(self) -> None:
        """A document without both markers is not touched."""
        text = table.BEGIN.format("s3") + table.END.format("http")
        self.assertRaises(ValueError, table.replaceGenerated, text, "s3", "x")

    def test_readMe(self) -> None:
        """The read-me has a place for the tables of each bench, and one command fills both."""
        copy = Path(self.mktemp())
        copy.write_text(README.read_text())
        lines = Path(self.mktemp())
        lines.write_bytes(b"".join(map(results.encodeLine, [RUN, HTTP_RUN, GRPC_RUN])))
        table.main([str(lines), "--into", str(copy)])
        text = copy.read_text()
        self.assertIn("Measured 2026-03-04 on", text)
        self.assertIn("Measured 2026-03-05 on", text)
        self.assertIn("Measured 2026-03-06 on", text)

    def test_alone(self) -> None:
        """Without a peer beside us, or without us, there is nothing to set in relation."""
        for server in ("storagegate", "klein"):
            text = table.document(results.Results([HTTP_RUN, cell(server, "hello", 64, 10)]))
            self.assertNotIn("How many times", text)
