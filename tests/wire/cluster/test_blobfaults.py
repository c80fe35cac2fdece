"""
A node whose store of blobs is away, slow or full: large objects are refused in time, small ones are
stored and read, and all is well by itself when the store is back.
"""

import os
import subprocess
from collections.abc import Callable
from functools import cache
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest, TestCase

from tests.support.ceph import cephEnvironment, runningCluster
from tests.support.clients import ROOT
from tests.support.cluster import Cluster
from tests.support.faultyproxy import FaultyProxy
from tests.support.http import request
from tests.support.patroni import until
from tests.support.selection import long
from tests.support.upstreams3 import ownServer

LARGE = os.urandom(3 << 20)
SMALL = b"small"

ANSWER_SECONDS = 9.0
"""Five, and what a shared machine adds."""

BACK_SECONDS = 60.0


class FaultCase(TestCase):
    """A node; requests are made, and faults are, in a thread unless they need the reactor."""

    timeout = 300

    async def setUp(self) -> None:
        """Start the node, and store two objects."""
        self.cluster = self.make()
        self.addCleanup(self.cluster.close)
        # Not in the thread of the reactor, which may have a proxy.
        [self.node] = await deferToThread(self.cluster.start)
        await deferToThread(self.assertAnswer, 200, "PUT", "/box")
        await deferToThread(self.assertAnswer, 200, "PUT", "/box/large", LARGE)
        await deferToThread(self.assertAnswer, 200, "PUT", "/box/small", SMALL)

    def make(self) -> Cluster:
        """Make the cluster."""
        raise NotImplementedError

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Make a request."""
        return request(self.node.address(), method, path, body, ROOT.plainHeaders())

    def assertAnswer(self, status: int, method: str, path: str, body: bytes | None = None) -> bytes:
        """Check the status of an answer, and that it came in time; return its body."""
        began = monotonic()
        found, answer = self.ask(method, path, body)
        self.assertEqual(found, status, (method, path, answer[:500]))
        self.assertLess(monotonic() - began, ANSWER_SECONDS, (method, path))
        return answer

    def readiness(self) -> tuple[int, bytes]:
        """Ask whether the node is ready."""
        return request(self.node.address("admin"), "GET", "/readyz")

    async def suffer(
        self, begin: Callable[[], Any], end: Callable[[], Any], status: int = 503
    ) -> None:
        """
        Check what is answered during a fault, and after it.

        @param begin: Begins it.
        @param end: Ends it.
        @param status: With which large objects are refused; if it is 507 they can be read.
        """
        await maybeDeferred(begin)
        await deferToThread(self.during, status)
        ending: Deferred[Any] = maybeDeferred(end)
        await ending
        await deferToThread(self.after)

    def during(self, status: int) -> None:
        """Check the answers during a fault."""
        self.assertAnswer(status, "PUT", "/box/refused", LARGE)
        if status == 503:
            self.assertAnswer(503, "GET", "/box/large")
        else:
            self.assertEqual(self.assertAnswer(200, "GET", "/box/large"), LARGE)
        self.assertAnswer(200, "PUT", "/box/other", SMALL)
        for key in ("small", "other"):
            self.assertEqual(self.assertAnswer(200, "GET", f"/box/{key}"), SMALL)
        self.assertAnswer(204, "DELETE", "/box/other")
        self.assertAnswer(404, "HEAD", "/box/refused")
        if status == 503:
            until(lambda: self.readiness()[0] == 503)
            self.assertIn(b"blobs", self.readiness()[1])

    def after(self) -> None:
        """Check that all is well again, without a start."""

        def isBack() -> bool:
            return self.ask("PUT", "/box/again", LARGE)[0] == 200

        until(isBack, BACK_SECONDS)
        for key in ("again", "large"):
            self.assertEqual(self.assertAnswer(200, "GET", f"/box/{key}"), LARGE)
        until(lambda: self.readiness()[0] == 200, BACK_SECONDS)
        self.assertNotIn(b"corrupt", self.readiness()[1])
        self.assertNotIn("Traceback", self.node.log)


@cache
def _pool() -> str:
    cluster = runningCluster()
    cluster.makePool("faults")
    return f"rados:faults?conf={cluster.configuration}"


@long("starts a cluster")
class RADOSTests(FaultCase):
    """The only OSD of the pool."""

    def make(self) -> Cluster:
        """Have a namespace."""
        self.storage = runningCluster()
        name = self.id().rpartition(".")[2]
        return Cluster(f"{_pool()}&namespace={name}", environment=cephEnvironment())

    async def test_killed(self) -> None:
        """It is killed."""
        storage = self.storage
        await self.suffer(storage.killStorage, storage.startStorage)

    async def test_paused(self) -> None:
        """It takes requests, and does not answer."""
        storage = self.storage
        await self.suffer(storage.pauseStorage, storage.resumeStorage)

    async def test_full(self) -> None:
        """It has no space."""
        storage = self.storage
        await self.suffer(lambda: storage.setFull(True), lambda: storage.setFull(False), 507)


@long("starts a cluster")
class S3Tests(FaultCase):
    """A bucket of another server, behind a proxy."""

    def make(self) -> Cluster:
        """Have a bucket."""
        self.server = ownServer()
        address = self.server.newBucket()
        host, _, port = address.host.rpartition(":")
        self.proxy = FaultyProxy(int(port))
        self.addCleanup(self.proxy.refuse)
        # The cluster is made while the reactor does not run.
        made = Cluster(f"s3:http://{address.host}/{address.bucket}/blobs")
        made.blobs = f"s3:http://{host}:{self.proxy.port}/{address.bucket}/blobs"
        return made

    async def test_away(self) -> None:
        """Its machine is away."""
        await self.suffer(self.proxy.refuse, self.proxy.acceptAgain)

    async def test_slow(self) -> None:
        """It takes requests, and answers far too late."""

        def begin() -> None:
            self.proxy.holdsAnswers = True

        await self.suffer(begin, self.proxy.release)

    async def test_full(self) -> None:
        """Its disk is full."""
        flag = self.server.full
        self.addCleanup(flag.unlink, missing_ok=True)
        await self.suffer(flag.touch, flag.unlink, 507)


@long("starts a cluster")
class FilesTests(FaultCase):
    """A directory."""

    def make(self) -> Cluster:
        """Mount a small one."""
        made = Cluster(isInitialised=False)
        if os.geteuid() != 0:
            raise SkipTest("only root may mount a disk to fill up")
        directory = made.blobs.removeprefix("files:")
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", directory]
        done = subprocess.run(mount, capture_output=True, check=False)
        if done.returncode:
            raise SkipTest(f"mount is refused: {done.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", directory], check=True)
        made.initialise()
        self.filler = os.path.join(directory, "filler")
        return made

    async def test_full(self) -> None:
        """It is full."""

        def fill() -> None:
            with open(self.filler, "wb", buffering=0) as file:
                try:
                    while file.write(bytes(1 << 16)):
                        pass
                except OSError:
                    return

        await self.suffer(fill, lambda: os.unlink(self.filler), 507)
