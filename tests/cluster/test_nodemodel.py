"""
A cluster of the real keeper, reads, jobs, sweeper and collector, on a model of the servers: what
happens is chosen by a seed, one step at a time. C{STORAGEGATE_CLUSTER_RUNS} does more runs.
"""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.clustermodel import History
from tests.support.clusterserver import Violation
from tests.support.selection import long, rounds

STEPS = 300
"""Of a history without a rule: more happens in it."""

RUNS = int(os.environ.get("STORAGEGATE_CLUSTER_RUNS", rounds(400, 400, soak=1200)))
FIRST = int(os.environ.get("STORAGEGATE_CLUSTER_FIRST", "0"))

BROKEN = {
    # A commit does not see its leases alive.
    "fence": (6, "stale"),
    # A lease is ended without its lock.
    "alone": (133, "stale"),
    # The sweeper does not look a blob up in the catalog.
    "known": (0, "lost"),
    # The row of a lease does not have the numbers that were reserved since.
    "high": (135, "orphans"),
    # The sweeper does not wait for writes that come late.
    "late": (1936, "orphans"),
    # A renewal passes a younger stamp than that of the reads.
    "horizon": (26, "read"),
    # A renewal does not pass the stamp of the oldest read.
    "oldest": (26, "read"),
    # References are folded at once.
    "fold": (22, "read"),
    # The catalog does not hold what a long read has named.
    "hold": (1872, "read"),
    # A long read does not name its blobs.
    "named": (413, "read"),
    # Reads go on after the end of their lease.
    "ended": (75, "read"),
    # A node serves after the time of its lease.
    "gate": (61, "read"),
    # Rows of garbage are removed before its bytes.
    "rows": (949, "orphans"),
    # The blobs of a commit with an unknown outcome are removed.
    "unknown": (11, "lost"),
    # After such a commit the node goes on under its lease.
    "giveup": (24, "orphans"),
}
"""The rules that can be broken: a seed that shows it, and what is wrong then."""


class ModelTests(SynchronousTestCase):
    """Histories."""

    @long("takes seconds")
    def test_rules(self) -> None:
        """
        Nothing acknowledged is lost, no blob is removed that an object or a read has, nothing is
        committed under a lease that is over, and nothing is left in the end.
        """
        for seed in range(FIRST, FIRST + RUNS):
            try:
                History(seed).run()
            except Violation as error:
                self.fail(f"seed {seed}: {error}")

    def test_brokenRules(self) -> None:
        """Each rule is there for something: without it a history ends badly."""
        for rule, (seed, problem) in BROKEN.items():
            # Another Python may choose another way.
            for each in range(seed, seed + 600):
                try:
                    History(each, frozenset([rule]), STEPS).run()
                except Violation as error:
                    self.assertIn(problem, str(error), rule)
                    break
            else:
                self.fail(f"nothing goes wrong without {rule}")

    def test_deterministic(self) -> None:
        """A seed is a history."""

        def outcome(seed: int) -> Any:
            history = History(seed)
            history.run()
            return history.cluster.server.objects, history.cluster.now

        self.assertEqual(outcome(7), outcome(7))
