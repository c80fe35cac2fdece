"""What a bench run leaves: its lines, the verdicts on its goals, its tables."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import cases, goals, results, table


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
        read = results.readResults([path])
        self.assertEqual(read.runs, [RUN])
        self.assertEqual(read.cells("rclone", "head", 1), [lines[1]])
        self.assertEqual((read.failures, read.memory), ([lines[2]], {"rclone": 10**8}))

    def test_median(self) -> None:
        """A rate is the median of its rounds, and absent where nothing was measured."""
        read = results.Results([RUN, *(cell("a", "head", 1, rate) for rate in (9.0, 1.0, 5.0))])
        self.assertEqual(read.rate("a", "head", 1), 5.0)
        self.assertIsNone(read.rate("a", "head", 16))

    def test_rerunReplaces(self) -> None:
        """A later run's rounds of a cell stand in place of the earlier ones."""
        read = results.Results([RUN, cell("a", "head", 1, 1.0), RUN, cell("a", "head", 1, 7.0)])
        self.assertEqual(read.rate("a", "head", 1), 7.0)


class GoalTests(SynchronousTestCase):
    """Goals are judged by ratios of one run."""

    def verdict(self, ours: float, theirs: float) -> str:
        """Judge the first goal (five times rclone) for two rates."""
        read = results.Results(
            [RUN, cell("storagegate", "put4k", 64, ours), cell("rclone", "put4k", 64, theirs)]
        )
        return goals.judge(goals.GOALS[0], read).word

    def test_reachedAndMissed(self) -> None:
        """A goal is reached from its ratio on, and missed under it."""
        self.assertEqual(self.verdict(500, 100), "reached")
        self.assertEqual(self.verdict(499, 100), "missed")

    def test_notMeasured(self) -> None:
        """Nothing is claimed of what was not measured."""
        words = {verdict.word for verdict in goals.verdicts(results.Results([RUN]))}
        self.assertEqual(words, {"not measured"})

    def test_memory(self) -> None:
        """The peak must stay under its limit."""
        for size, word in ((99_999_999, "reached"), (100_000_000, "missed")):
            read = results.Results([RUN, results.Memory("storagegate", size)])
            self.assertEqual(goals.judgeMemory(read).word, word)

    def test_goalsNameCases(self) -> None:
        """Every goal speaks of a cell that a default run measures."""
        for goal in goals.GOALS:
            for name in (goal.case, goal.otherCase or goal.case):
                self.assertIn(goal.connections, cases.CASES[name].connections)


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
        for part in ("2 cores (Z80)", "6.00      reached", "/ rclone", "nginx put4k x64: ``went"):
            self.assertIn(part, text)

    def test_replace(self) -> None:
        """Only what stands between the markers is replaced."""
        text = f"a\n{table.BEGIN}old\n{table.END}b\n"
        once = table.replaceGenerated(text, "new")
        self.assertEqual(once, f"a\n{table.BEGIN}\nnew\n{table.END}b\n")
        self.assertEqual(table.replaceGenerated(once, "new"), once)

    def test_markersMissing(self) -> None:
        """A document without both markers is not touched."""
        self.assertRaises(ValueError, table.replaceGenerated, table.BEGIN, "x")
