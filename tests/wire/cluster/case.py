"""
The base of the cases here: a cluster of real servers and nodes, a load over it, and the verdict.

Each scenario has a few rounds, and hundreds in a soak.
"""

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Any

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from tests.support.clients import ROOT
from tests.support.cluster import LEASE_SECONDS, Cluster
from tests.support.daemon import Daemon
from tests.wire.cluster.agreement import BlobBytes, disagreements, sharedFiles, waitUntilSettled
from tests.wire.cluster.client import Answer
from tests.wire.cluster.load import Load, LoadReport
from tests.wire.cluster.nodeprogram import BROKEN, LATE, PROGRAM, STOPS
from tests.wire.s3.bulk import objectTarget
from tests.wire.s3.fixture import eventually
from tests.wire.s3.verdict import judge

REST_SECONDS = LEASE_SECONDS + 6.0
"""A request that a node has taken is carried out within its lease, and not in the wait for it."""

BUCKETS = {"plain": "", "versions": "Enabled"}

SHOWN = 10
"""Differences between catalog and blobs in an error."""

TRACEBACK = 3_000
"""Characters of one in an error."""

_NO_HEADERS: Mapping[str, str] = {}


class ClusterCase(SynchronousTestCase):
    """A cluster for each test."""

    _log = Logger()

    def setUp(self) -> None:
        """Have threads for requests that wait."""
        self.random = random.Random(seed := random.SystemRandom().randrange(1 << 32))
        self.threads = ThreadPoolExecutor(256)
        self.addCleanup(self.threads.shutdown, cancel_futures=True)
        self.where = f"seed {seed}"

    def makeCluster(self, *args: Any, **named: Any) -> Cluster:
        """Make a cluster; see L{Cluster}."""
        cluster = Cluster(*args, **named)
        self.addCleanup(cluster.close)
        return cluster

    def startNode(
        self,
        cluster: Cluster,
        broken: str = "",
        stops: Path | None = None,
        configuration: Path | None = None,
    ) -> Daemon:
        """
        Start a node.

        @param broken: The rules that do not hold for it; see L{tests.wire.cluster.nodeprogram}.
        @param stops: A directory with the steps at which requests stop.
        @param configuration: See L{Cluster.node}.
        """
        environment = {LATE: "1", BROKEN: broken, STOPS: str(stops or "")}
        node = cluster.node(environment=environment, program=PROGRAM, configuration=configuration)
        return node.start()

    def startNodes(self, cluster: Cluster, count: int = 2, broken: str = "") -> list[Daemon]:
        """Start nodes; see L{startNode}."""
        return [self.startNode(cluster, broken) for _ in range(count)]

    def startLoad(self, cluster: Cluster, clients: int = 3) -> Load:
        """Make the buckets, and write to them by all nodes."""
        s3 = cluster.client(cluster.nodes[0])
        for bucket, status in BUCKETS.items():
            s3.create_bucket(Bucket=bucket)
            if status:
                s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        load = Load(Path(mkdtemp(dir=cluster.directory)), BUCKETS, REST_SECONDS, clients)
        self.addCleanup(load.kill)
        load.start([node.address() for node in cluster.nodes])
        self.waitForWrites(load)
        return load

    def waitForWrites(self, load: Load, count: int = 20, seconds: float = 60.0) -> float:
        """Wait until so many more writes are acknowledged; return how long that took."""
        began, enough = time.monotonic(), load.acknowledged() + count
        while load.acknowledged() < enough:
            self.assertLess(time.monotonic() - began, seconds, f"no service, {self.where}")
            self.letPass(0.02)
        return time.monotonic() - began

    def finish(
        self,
        cluster: Cluster,
        load: Load,
        conninfo: str = "",
        blobs: BlobBytes | None = None,
    ) -> LoadReport:
        """
        End the load, and judge: nothing is lost, half, stale or resurrected, by any node, and the
        catalog and the blobs agree.

        @param conninfo: Of the primary, where it is not the first server.
        @param blobs: Reads the blobs, where they are not files.
        """
        report = load.stop()
        self.assertEqual(report.contradictions, [], self.where)
        self.judge(cluster, load, conninfo, blobs)
        return report

    def judge(
        self, cluster: Cluster, load: Load, conninfo: str = "", blobs: BlobBytes | None = None
    ) -> None:
        """Judge what a load has written, when all is settled and once more after that."""
        conninfo = conninfo or cluster.conninfos[0]
        self.settle(conninfo)
        for bucket in load.buckets:
            journal = load.journal(bucket)
            for node in cluster.nodes:
                judge(node, bucket, journal, f"{bucket}, {self.where}")
        self.settle(conninfo)
        self.assertAgreement(cluster, conninfo, blobs)
        for node in cluster.nodes:
            _, found, text = node.log.partition("Traceback")
            self.assertFalse(found, f"{text[:TRACEBACK]}, {self.where}")

    def settle(self, conninfo: str) -> None:
        """Wait until leases are swept and garbage is collected."""
        waitUntilSettled(conninfo)

    def assertAgreement(
        self, cluster: Cluster, conninfo: str = "", blobs: BlobBytes | None = None
    ) -> None:
        """Check that the catalog and the blobs agree."""
        read = blobs or sharedFiles(cluster.directory / "blobs")
        found = disagreements(conninfo or cluster.conninfos[0], read)
        self.assertEqual(found[:SHOWN], [], f"{len(found)} differences, {self.where}")

    def figures(self, text: str) -> None:
        """Put figures into the log of the run."""
        self._log.info("{id}: {text}", id=self.id(), text=text)

    def begin(self, call: Callable[..., Any], *args: Any, **named: Any) -> "Future[Any]":
        """Call a function in a thread."""
        return self.threads.submit(call, *args, **named)

    def letPass(self, seconds: float) -> None:
        """Have a fault last, or a load go on, for some time."""
        Event().wait(seconds)

    def waitFor(self, holds: Callable[[], bool], text: str) -> None:
        """Wait until something comes true."""
        self.assertTrue(eventually(holds), f"{text}, {self.where}")


def ask(
    node: Daemon | tuple[str, int],
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] = _NO_HEADERS,
    seconds: float = 60.0,
) -> Answer:
    """
    Send a request on a connection of its own.

    @param node: A node, or an address.
    @raise OSError: There is no answer.
    """
    address = node.address() if isinstance(node, Daemon) else node
    connection = HTTPConnection(*address, timeout=seconds)
    try:
        connection.request(method, target, body, {**ROOT.plainHeaders(), **headers})
        with connection.getresponse() as response:
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), named)
    finally:
        connection.close()


def put(node: Daemon, bucket: str, key: str, body: bytes, **headers: str) -> Answer:
    """Put an object; an underscore in the name of a header stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(node, "PUT", objectTarget(bucket, key), body, named)


def get(node: Daemon, bucket: str, key: str) -> Answer:
    """Read an object."""
    return ask(node, "GET", objectTarget(bucket, key))
