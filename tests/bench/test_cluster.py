"""The cluster bench's own parts: who is measured, and what goals say. Nothing is timed."""

from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from bench import goals, results
from bench.bench_cluster import SERVERS, readOptions, takeTurns
from bench.clusterservers import (
    CASES,
    EMBEDDED,
    NODE,
    Backing,
    BarePieces,
    NodeServer,
    makeServer,
)
from bench.s3cases import CASES as S3_CASES
from tests.bench.test_tables import cell
from tests.support.selection import long

RUN = results.Run("2026-03-09", "Z80", 2, "6.1", "ext4", 2, 2, {}, "cluster")


@long("a check of CI")
class ProgramTests(SynchronousTestCase):
    """The command line, and who is measured when."""

    def test_defaultsMeasureEverything(self) -> None:
        """Without options every case has all its servers, three rounds each."""
        options = readOptions([])
        self.assertEqual((options.cases, options.servers), (list(CASES), SERVERS))
        self.assertEqual((options.rounds, options.seconds), (3, 2))

    def test_servers(self) -> None:
        """Each case begins with what the others are compared with; each round with another."""
        folder = Path(self.mktemp())
        folder.mkdir()
        with ExitStack() as stack:
            backing = Backing(stack, folder)
            for case in CASES.values():
                servers = [makeServer(each, backing, folder) for each in case.settings]
                isBare = case.settings[0].isBare
                self.assertIsInstance(servers[0], BarePieces if isBare else NodeServer)
                self.assertTrue(all(isinstance(each, NodeServer) for each in servers[1:]))
                names = [each.recipe.name for each in takeTurns(servers, case, 2)]
                self.assertEqual(names[: len(servers)], [each.name for each in case.settings])
                self.assertEqual(names[len(servers)], case.settings[1].name)

    def test_cases(self) -> None:
        """What is requested are cases of the bench of S3."""
        for name, case in CASES.items():
            self.assertIs(case.s3, S3_CASES[name.rpartition("-")[2]])


@long("a check of CI")
class GoalTests(SynchronousTestCase):
    """What is asked of a cluster."""

    def test_places(self) -> None:
        """Every goal is about servers and cases that there are."""
        for goal in goals.CLUSTER_GOALS:
            case = CASES[goal.case]
            names = [setting.name for setting in case.settings]
            self.assertIn(goal.ours, names)
            self.assertIn(goal.against, names)
            self.assertIn(goal.connections, case.connections)

    def test_nodeShare(self) -> None:
        """The CPU of a node is without that of PostgreSQL."""
        ours = cell(NODE, "put4k", 64, 100, cpuMicrosPerRequest=330.0, besideMicros=220.0)
        theirs = cell(EMBEDDED, "put4k", 64, 100)
        found = results.Results([RUN, theirs, ours])
        verdict = goals.judgeLimit(goals.CLUSTER_LIMITS[0], found)
        self.assertEqual((verdict.measured, verdict.reached), ("1.1", False))
        longer = goals.judgeLimit(goals.CLUSTER_LIMITS[1], found)
        self.assertEqual(longer.word, "not measured")
