"""A thousand streams on one connection, with S3, the gateway and gRPC on one port: no growth."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import msgspec
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.trial.unittest import TestCase

from tests.support.certificates import Authority
from tests.support.daemon import ACCESS_KEY, CHECKOUT, SECRET_KEY, daemonEnvironment
from tests.support.daemonprocess import DaemonProcess
from tests.support.memory import residentMemory
from tests.support.selection import long, rounds
from tests.support.streamsoak import SERVICE, Plan, Report

SECONDS = rounds(60, 60, soak=3600)

PACE = rounds(1.0, 1.0, soak=4.0)

STREAMS = {
    "events": 300,
    "lines": 50,
    "chat": 160,
    "watch": 120,
    "collect": 60,
    "upload": 205,
    "download": 110,
    "requests": 50,
}
"""
More than the thousand that the server allows, as some always pause. 715 make requests, of which one
address may have 768 in flight; the others make calls of gRPC.
"""

CONFIGURATION = """
http = "off"
grpc = "off"
tcp = "off"
udp = "off"
http2MaxStreams = 1000
gatewayOnS3 = true
[gateway.http]
basePath = "/_api"
[gateway.grpc]
onHTTP = true
"""

MIB = 1 << 20

_log = Logger()


class Sample(msgspec.Struct, frozen=True):
    """
    The daemon at one moment.

    @ivar time: Monotonic time in seconds.
    @ivar memory: Its resident memory in bytes.
    @ivar files: The number of its descriptors.
    @ivar held: The bytes that it holds for incomplete requests.
    @ivar cpuSeconds: Its CPU time so far.
    """

    time: float
    memory: int
    files: int
    held: int
    cpuSeconds: float


@long("takes a minute; the soak takes an hour")
class StreamSoakTests(TestCase):
    """A daemon and a client, each a process of its own."""

    timeout = SECONDS + 240

    async def start(self) -> None:
        """Start the daemon."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "soakservice.py").write_text(SERVICE)
        self.authority = Authority(folder / "authority")
        certificate, key = self.authority.issue(file="served", days=30)
        path = folder / "storagegate.toml"
        path.write_text(CONFIGURATION)
        self.daemon = DaemonProcess(reactor)
        self.addCleanup(self.daemon.kill)
        await self.daemon.start(
            folder / "data",
            "--config",
            str(path),
            "--service",
            "soakservice:Soak",
            "--s3",
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}",
            environment={"PYTHONPATH": f"{CHECKOUT}{os.pathsep}{folder}"},
        )
        assert self.daemon.transport is not None
        self.pid = int(self.daemon.transport.pid)

    def sample(self) -> Sample:
        """Look at the daemon. Blocks."""
        with urlopen(f"{self.daemon.url('admin')}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        held = next(line for line in lines if line.startswith("storagegate_held_bytes "))
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return Sample(
            time.monotonic(),
            residentMemory(self.pid),
            len(os.listdir(f"/proc/{self.pid}/fd")),
            int(float(held.split()[1])),
            sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"),
        )

    def runClient(self, plan: Plan) -> Report:
        """Run the client to its end. Blocks."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.streamsoak"],
            cwd=CHECKOUT,
            env=daemonEnvironment({"PYTHONPATH": str(CHECKOUT)}),
            input=msgspec.json.encode(plan),
            capture_output=True,
            timeout=SECONDS + 200,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return msgspec.json.decode(done.stdout, type=Report)

    async def test_growth(self) -> None:
        """Memory, descriptors and held bytes do not grow, and every answer is right."""
        await self.start()
        before = await deferToThread(self.sample)
        samples: list[Sample] = []

        def look() -> Deferred[None]:
            return deferToThread(self.sample).addCallback(samples.append)

        plan = Plan(
            self.daemon.address()[1],
            str(self.authority.path),
            ACCESS_KEY,
            SECRET_KEY,
            SECONDS,
            STREAMS,
            PACE,
        )
        looking = LoopingCall(look)
        running = deferToThread(self.runClient, plan)
        looked = looking.start(SECONDS / 120)
        try:
            report = await running
        finally:
            looking.stop()
            await looked
        after = await deferToThread(self.sample)
        self.record(before, samples, after, report)
        self.assertEqual(report.wrong, [])
        self.assertGreater(statistics.median(report.open), 950)
        # Without the first quarter, in which all streams begin and caches fill, and the end.
        samples = [each for each in samples if each.time < before.time + SECONDS]
        part = len(samples) // 4
        early, late = samples[part : 2 * part], samples[3 * part :]

        def grown(name: str) -> float:
            first, last = (
                statistics.median([getattr(each, name) for each in some]) for some in (early, late)
            )
            return float(last - first)

        self.assertLess(grown("memory"), 8 * MIB)
        # Each upload and each download has a file; their number varies.
        self.assertLess(grown("files"), 64)
        self.assertLess(grown("held"), 4 * MIB)
        self.assertLess(after.held, 64 * 1024)
        self.assertLess(after.files, before.files + 16)

    def record(self, before: Sample, samples: list[Sample], after: Sample, report: Report) -> None:
        """Write the figures to the log of the test."""
        figures = (before, samples, after, report)
        _log.info("figures: {figures}", figures=msgspec.json.encode(figures).decode())
