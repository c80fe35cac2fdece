"""The results of a run: their document, the asked figures, the tables."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import results, tables
from bench.__main__ import allCases
from bench.cases import Asked, Case, Load, Server

RUN = results.Run(
    started="2026-03-04 05:06 UTC",
    commit="abc1234",
    python="3.11.7",
    processor="Z80",
    cores=2,
    kernel="6.1",
    filesystem="ext4",
    load=0.5,
    rounds=3,
    seconds=1.0,
    quick=False,
    versions={"storagegate": "abc1234", "rclone": "1.75.2", "klein": "24.8"},
)


def cell(server: str, rate: float, case: str = "s3/put4k", **changes: object) -> results.Cell:
    """Make a measurement."""
    fields: dict[str, object] = {
        "case": case,
        "server": server,
        "connections": 64,
        "rate": rate,
        "megabytes": 1.0,
        "p50Ms": 1.0,
        "p99Ms": 2.0,
        "cpuMicros": 100.0,
        "othersMicros": 0.0,
        "serverCores": 1.0,
        "clientCores": 0.5,
        "requests": 1000.0,
    }
    return results.Cell(**{**fields, **changes})  # type: ignore[arg-type]


def made(*lines: results.Cell | results.Failure, **fields: object) -> results.Results:
    """Make the results of a run."""
    cells = [each for each in lines if isinstance(each, results.Cell)]
    failures = [each for each in lines if isinstance(each, results.Failure)]
    return results.Results(RUN, cells, failures, **fields)  # type: ignore[arg-type]


def case(*asked: Asked, isSetting: bool = False, name: str = "s3/put4k") -> Case:
    """Make a case of which only the asked figures matter."""
    servers = tuple(Server(each, None) for each in ("storagegate", "rclone", "nginx"))
    return Case(
        name,
        "something",
        servers,
        lambda running, connections, seconds: Load(lambda seconds, started: None),  # type: ignore[arg-type,return-value]
        asked=asked,
        isSetting=isSetting,
    )


class ResultsTests(SynchronousTestCase):
    """The document of a run."""

    def test_roundTrip(self) -> None:
        """A document is read back as it was written, and no part of it is left behind."""
        before = made(
            cell("rclone", 5.0, doubts=("x",)),
            results.Failure("s3/head", "rclone", 16, "why"),
            memory={"s3/rclone": 10**8},
            instructions={"s3/put4k storagegate": 5.5},
        )
        path = Path(self.mktemp()) / "run.json"
        results.writeResults(path, before)
        self.assertEqual(results.readResults(path), before)
        self.assertEqual([each.name for each in path.parent.iterdir()], ["run.json"])

    def test_median(self) -> None:
        """A figure is the median of its rounds, and absent without a measurement."""
        found = made(*(cell("a", rate) for rate in (9.0, 1.0, 5.0)))
        self.assertEqual(found.median(("s3/put4k", "a", 64), lambda each: each.rate), 5.0)
        self.assertIsNone(found.median(("s3/put4k", "a", 16), lambda each: each.rate))

    def test_failedRound(self) -> None:
        """A cell of which one round failed has no figure, and keeps its row."""
        failure = results.Failure("s3/put4k", "a", 64, "why")
        found = made(cell("a", 5.0), failure)
        self.assertEqual(found.rounds("s3/put4k", "a", 64), [])
        self.assertEqual(found.rows("s3"), [("s3/put4k", "a", 64)])
        lines = (cell("b", 1.0), cell("b", 1.0, case="s3/head"), failure)
        order = [place[:2] for place in made(*lines).rows("s3")]
        self.assertEqual(order, [("s3/put4k", "b"), ("s3/put4k", "a"), ("s3/head", "b")])

    def test_ratios(self) -> None:
        """A ratio sets two figures of the same round in relation."""
        rates = ((10.0, 5.0), (40.0, 10.0), (6.0, 0.0))
        lines = [cell(name, pair[i]) for pair in rates for i, name in enumerate("ab")]
        places = (("s3/put4k", "a", 64), ("s3/put4k", "b", 64))
        self.assertEqual(made(*lines).ratios(*places), [2.0, 4.0])


class VerdictTests(SynchronousTestCase):
    """Asked figures are judged by the median of the rounds."""

    def judge(self, asked: Asked, *cells: results.Cell) -> tuple[str, str, float | None, str]:
        """Judge an asked figure."""
        [found] = results.verdicts(made(*cells), [case(asked)])
        return found.text, found.bound, found.figure, found.word

    def test_ratio(self) -> None:
        """A ratio is met from its bound on."""
        asked = Asked("rclone", 5)
        cells = (cell("storagegate", 500), cell("rclone", 100))
        met = ("put4k x64: against rclone", "at least 5", 5.0, "met")
        self.assertEqual(self.judge(asked, *cells), met)
        self.assertEqual(self.judge(asked, cell("storagegate", 499), cells[1])[3], "missed")

    def test_rounds(self) -> None:
        """The median of the rounds' ratios counts, not the ratio of the medians."""
        pairs = ((100, 10), (10, 10), (12, 4))
        cells = [
            cell(name, rate)
            for pair in pairs
            for name, rate in zip(("storagegate", "rclone"), pair, strict=True)
        ]
        self.assertEqual(self.judge(Asked("rclone", 2), *cells)[2], 3.0)

    def test_notMeasured(self) -> None:
        """A figure that the run did not measure is neither met nor missed."""
        found = self.judge(Asked("rclone", 5), cell("storagegate", 500))
        self.assertEqual(found[2:], (None, "not measured"))

    def test_limit(self) -> None:
        """A figure by itself stays at or below its limit."""
        asked = Asked("", 100, figure="p99Ms", text="p99 in ms", isMost=True)
        for value, word in ((100.0, "met"), (100.1, "missed")):
            found = self.judge(asked, cell("storagegate", 1, p99Ms=value))
            self.assertEqual(found, ("put4k x64: p99 in ms", "at most 100", value, word))

    def test_difference(self) -> None:
        """Two figures can be subtracted; the CPU of the first process is one of them."""
        asked = Asked("rclone", 30, figure="ownMicros", isMost=True, isDifference=True)
        ours = cell("storagegate", 1, cpuMicros=90.0, othersMicros=20.0)
        self.assertEqual(self.judge(asked, ours, cell("rclone", 1, cpuMicros=45.0))[2], 25.0)

    def test_otherCase(self) -> None:
        """A figure can be compared with another case, at its own number of connections."""
        asked = Asked("storagegate", 0.5, case="s3/list", otherConnections=1)
        other = cell("storagegate", 100, case="s3/list", connections=1)
        found = self.judge(asked, cell("storagegate", 60), other)
        expected = ("put4k x64: against storagegate list", "at least 0.5", 0.6, "met")
        self.assertEqual(found, expected)

    def test_everyCase(self) -> None:
        """Every asked figure of the benchmarks names servers, cases and figures that exist."""
        cases = {each.name: each for each in allCases()}
        self.assertGreater(len(cases), 40)
        for each in cases.values():
            names = [server.name for server in each.servers]
            self.assertEqual(len(set(names)), len(names), each.name)
            self.assertLessEqual(set(each.quick), set(each.connections), each.name)
            for asked in each.asked:
                other = cases[asked.case or each.name]
                self.assertIn(asked.ours or names[0], names, each.name)
                known = [server.name for server in other.servers]
                self.assertIn(asked.against or known[0], known, each.name)
                self.assertTrue(hasattr(cell("a", 1), asked.figure), each.name)
                self.assertIn(asked.connections or each.connections[0], each.connections)


class TableTests(SynchronousTestCase):
    """The tables of the documents."""

    def test_simpleTable(self) -> None:
        """A table is laid out as reStructuredText's simple table."""
        self.assertEqual(
            tables.simpleTable([["a", "bcd"], ["long", ""]]),
            "====  ===\na     bcd\n====  ===\nlong\n====  ===\n",
        )

    def test_figure(self) -> None:
        """Figures have three significant digits."""
        found = [tables.figure(x) for x in (12345.6, 123.4, 1.234)]
        self.assertEqual(found, ["12,346", "123", "1.23"])

    def test_marks(self) -> None:
        """Doubtful answers and a busy load are marked."""
        cells = [cell("a", 50, doubts=("x",), clientCores=0.99), cell("a", 70)]
        self.assertEqual(tables.rateOf(cells), "60 [50-70] !c")

    def test_document(self) -> None:
        """A document has the machine, each cell with its ratio, the asked figures, the failures."""
        failure = results.Failure("s3/put4k", "nginx", 64, "went `away")
        memory = {"s3/storagegate": 55_000_000, "http/klein": 1}
        lines = (cell("storagegate", 600), cell("rclone", 100), failure)
        text = tables.document(made(*lines, memory=memory), [case(Asked("rclone", 5))])
        self.assertIn("at abc1234 on 2 cores (Z80)", text)
        self.assertIn("load 0.5 before. rclone 1.75.2.\n", text)
        rows = [line.split() for line in text.splitlines()]
        ours = ["put4k", "x64", "storagegate", "600", "[600-600]", "1", "2", "100", "0", "1", "-"]
        self.assertIn(ours, rows)
        self.assertIn(["\\", "rclone", *ours[3:4], *ours[4:]][:2], [row[:2] for row in rows])
        self.assertIn("6.00", next(row for row in rows if row[:2] == ["\\", "rclone"]))
        self.assertIn(["\\", "nginx", "failed", *"-" * 6], rows)
        self.assertIn("put4k x64: against rclone  at least 5  6         met\n", text)
        self.assertIn("in MB: storagegate 55.\n", text)
        self.assertIn("Not measured: s3/put4k x64 nginx: ``went away``", text)

    def test_settings(self) -> None:
        """A setting of ours is set in relation to the first one, not the other way round."""
        lines = (cell("storagegate", 100), cell("rclone", 80))
        for isSetting, ratio in ((True, "0.80"), (False, "1.25")):
            text = tables.cellTable(made(*lines), [case(isSetting=isSetting)])
            row = next(line.split() for line in text.splitlines() if "rclone" in line)
            self.assertEqual(row[-1], ratio)

    def test_headlines(self) -> None:
        """The README has the measured rows, with the median of the rounds' ratios."""
        lines = [cell("storagegate", 300), cell("rclone", 100)]
        lines += [cell("storagegate", 200), cell("rclone", 100)]
        text = tables.headlines(made(*lines))
        row = next(line for line in text.splitlines() if line.startswith("PUT"))
        self.assertEqual(row.split("  ")[0::1][0], "PUT of 4 KiB")
        self.assertEqual(row.split()[-2:], ["100", "2.5"])
        self.assertIn("Measured 2026-03-04 at abc1234 on Z80.", text)
        self.assertEqual(tables.headlines(made(lines[0])), "")

    def test_headlinesExist(self) -> None:
        """Every row of the README belongs to a case of a quick run, and to its peer."""
        cases = {each.name: each for each in allCases()}
        for each in tables.HEADLINES:
            found = cases[each.case]
            self.assertIn(each.connections, found.quick)
            self.assertEqual(found.servers[0].name, "storagegate")
            self.assertIn(each.peer, [server.name for server in found.servers])

    def test_replace(self) -> None:
        """The text between the markers of a table is replaced, and nothing else."""
        other = "".join(mark.format("http") for mark in (tables.BEGIN, tables.END))
        begin, end = tables.BEGIN.format("s3"), tables.END.format("s3")
        once = tables.replaceGenerated(f"a\n{begin}old\n{end}b\n{other}", "s3", "new")
        self.assertEqual(once, f"a\n{begin}\nnew\n{end}b\n{other}")
        self.assertEqual(tables.replaceGenerated(once, "s3", "new"), once)

    def test_markersMissing(self) -> None:
        """A document without both markers is not touched."""
        text = tables.BEGIN.format("s3") + tables.END.format("http")
        self.assertRaises(ValueError, tables.replaceGenerated, text, "s3", "x")

    def test_documents(self) -> None:
        """Both documents of the repository have a place for every table."""
        page, readme = Path(self.mktemp()), Path(self.mktemp())
        page.write_text(tables.PAGE.read_text())
        readme.write_text(tables.README.read_text())
        folders = list({each.folder: None for each in allCases()})
        lines = [cell("storagegate", 7, case=f"{folder}/x") for folder in folders]
        lines += [cell("storagegate", 6), cell("rclone", 2)]
        cases = [case(name=f"{folder}/x") for folder in folders] + [case()]
        tables.writeTables(made(*lines), cases, page, readme)
        self.assertEqual(page.read_text().count("Measured 2026-03-04 05:06 UTC"), len(folders))
        self.assertEqual(readme.read_text().count("Measured 2026-03-04 at"), 1)
        self.assertLess(len(readme.read_bytes()), 6 * 1024)
