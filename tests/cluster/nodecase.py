"""Nodes on the model of a cluster, for tests that say what happens."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.support.clustermodel import Cluster, Node, smallSteps
from tests.support.clusterserver import LeaseRow


class ModelCase(SynchronousTestCase):
    """A cluster whose servers answer at once, unless a connection is lost."""

    def setUp(self) -> None:
        """Start a node, and let it have a lease and its jobs."""
        small = smallSteps()
        small.__enter__()
        self.addCleanup(small.__exit__, None, None, None)
        self.cluster = Cluster(1)
        self.node = self.spawn()

    def spawn(self) -> Node:
        """Start a node."""
        node = self.cluster.spawn()
        # The longest pause.
        node.keeper._random = lambda least, most: most
        for job in node.jobs:
            job._random = lambda least, most: most
        self.cluster.drain()
        return node

    def wait(self, seconds: float) -> None:
        """Let time pass, and all answers come."""
        for _ in range(round(seconds * 10)):
            self.cluster.advance(0.1)
            self.cluster.drain()

    def cut(self, node: Node) -> None:
        """Lose the connections of a node, and let it have no others until L{mend}."""
        for each in node.connections:
            if each.isOpen:
                each.lose(self.cluster.dice)
            each.isCut = True

    def mend(self, node: Node) -> None:
        """Undo L{cut}."""
        for each in node.connections:
            each.isCut = False
        self.cluster.drain()

    def row(self, node: Node) -> LeaseRow:
        """Return the row of a node's lease."""
        return self.cluster.server.leases[node.leases.number]

    def do(self, work: Any) -> None:
        """Run a request, and what follows it."""
        self.cluster.begin(work)
        self.cluster.drain()

    def get(self, node: Node, key: str) -> Any:
        """Begin to read an object."""
        self.do(self.cluster.get(node, key))
        return self.cluster.reads[-1].held

    def run_(self, work: Any) -> Any:
        """Run a coroutine to its end, and return the result."""
        done = Deferred.fromCoroutine(work)
        self.cluster.drain()
        return self.successResultOf(done)

    def sent(self) -> list[str]:
        """Note the statements that are executed from now on."""
        names: list[str] = []
        execute: Callable[[Any], None] = self.cluster.server.execute

        def note(request: Any) -> None:
            names.extend(
                name if isinstance(name, str) else name.decode() for name, _ in request.steps
            )
            execute(request)

        self.cluster.server.execute = note  # type: ignore[method-assign]
        return names
