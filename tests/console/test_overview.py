"""The state of the daemon and its figures, by the API."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from time import time

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import storagegate
from storagegate.console.history import (
    STEP_SECONDS,
    STEPS,
    MetricsHistory,
    ProcessFigures,
    describeWire,
    packCounts,
    percentile,
)
from storagegate.console.monitor import ConsoleMonitor
from storagegate.console.requesttap import ANY, BOUNDS, MOST_EVENTS, RequestEvent, WireCounts
from storagegate.objects.errors import Refusal
from storagegate.s3.observers import S3RequestRecord
from tests.console.fixture import ConsoleCase
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


class OverviewTests(ConsoleCase):
    """The overview of a daemon."""

    def test_overview(self) -> None:
        """It has the version, the state, the disk, what the store holds, and each wire."""
        bucket = self.makeBucket()
        before = self.call("GET", "overview").json
        self.s3.put_object(Bucket=bucket, Key="a", Body=b"12345")
        found = self.call("GET", "overview").json
        self.assertEqual((found["version"], found["status"]), (storagegate.__version__, "ok"))
        self.assertEqual((found["workers"], found["parts"]["s3"]), (1, "listening"))
        for name, more in (("objects", 1), ("bytes", 5), ("buckets", 0)):
            self.assertEqual(found["store"][name] - before["store"][name], more)
        self.assertIsNone(found["store"]["readOnly"])
        disk = os.statvfs(self.daemon.data)
        self.assertEqual(found["disk"]["total"], disk.f_blocks * disk.f_frsize)
        self.assertLessEqual(found["disk"]["free"], found["disk"]["total"])
        self.assertLess(abs(time() * 1000 - found["startedMs"]), 3600_000)
        self.assertIn("s3", found["wires"])

    def test_growth(self) -> None:
        """The largest buckets come first; growth is known only from samples that exist."""
        bucket = self.makeBucket()
        self.s3.put_object(Bucket=bucket, Key="a", Body=bytes(30_000_000))
        upload = self.s3.create_multipart_upload(Bucket=bucket, Key="b")["UploadId"]
        self.s3.upload_part(
            Bucket=bucket, Key="b", UploadId=upload, PartNumber=1, Body=bytes(1_000_000)
        )
        found = self.call("GET", "overview").json
        top = found["top"]
        self.assertEqual(top, sorted(top, key=lambda each: -each["bytes"]))
        [row] = [each for each in top if each["name"] == bucket]
        self.assertEqual((row["objects"], row["older"], row["growth"]), (1, 0, None))
        self.assertEqual((found["store"]["kind"], found["store"]["damaged"]), ("embedded", 0))
        self.assertGreaterEqual(found["store"]["uploadBytes"], 1_000_000)
        growth = found["growth"]
        self.assertEqual((growth["day"], growth["disk"]), (None, None))
        self.assertEqual(growth["series"]["bytes"][-1], found["store"]["bytes"])
        self.assertIn("s3", found["listeners"])
        usage = Path(self.daemon.data) / "usage.sqlite"
        with closing(sqlite3.connect(usage)) as connection, connection:
            sizes = msgspec.msgpack.encode({bucket: 28_000_000})
            for hours, name in ((24, "diskUsed - 1000"), (48, "diskUsed - 96000000")):
                connection.execute(
                    f"INSERT INTO consoleUsage SELECT hour - {hours}, atMs - {hours * 3600_000},"
                    f" objects - 1, bytes - 10, {name}, ? FROM consoleUsage"
                    " ORDER BY hour DESC LIMIT 1",
                    (sizes,),
                )
        self.addCleanup(self._forget, usage)
        found = self.call("GET", "overview").json
        grown = {each["name"]: each["growth"] for each in found["top"]}
        self.assertEqual(grown[bucket], 2_000_000)
        self.assertGreaterEqual(found["growth"]["day"]["bytes"], 10)
        windowMs = found["growth"]["disk"]["windowMs"]
        self.assertTrue(0 <= windowMs - 48 * 3600_000 < 600_000, windowMs)

    def _forget(self, usage: Path) -> None:
        with closing(sqlite3.connect(usage)) as connection, connection:
            connection.execute("DELETE FROM consoleUsage")

    def test_roles(self) -> None:
        """Both take the role of an auditor."""
        account = self.issueKey("curious")
        for path in ("overview", "metrics"):
            self.assertEqual(self.call("GET", path, None, account).status, 403)

    @long("takes seconds")
    def test_metrics(self) -> None:
        """Requests are in the series of their wire some seconds later."""
        bucket = self.makeBucket()

        def has() -> bool:
            self.s3.list_objects_v2(Bucket=bucket)
            found = self.call("GET", "metrics?seconds=60").json
            rates = found["series"].get("s3.perSecond") or [None]
            lengths = {len(each) for each in found["series"].values()}
            self.assertLessEqual(len(lengths), 1)
            return found["stepMs"] == 5000 and bool(rates[-1])

        self.assertTrue(eventually(has))
        wire = self.call("GET", "overview").json["wires"]["s3"]
        self.assertGreater(wire["perSecond"], 0)
        self.assertTrue(0 < wire["p50Ms"] <= wire["p99Ms"] < 60_000, wire)
        self.assertEqual(self.call("GET", "metrics?seconds=x").status, 400)


def figures(worker: int, requests: int) -> ProcessFigures:
    """Make the figures of a process with requests of a millisecond."""
    counts = WireCounts(requests, 0)
    counts.durations[BOUNDS.index(next(each for each in BOUNDS if each >= 0.001))] = requests
    return ProcessFigures(worker, packCounts({"s3": counts}), 1.0, 100, 0.0)


class HistoryTests(SynchronousTestCase):
    """L{MetricsHistory}."""

    def test_sum(self) -> None:
        """A step is the sum of all processes; one that is missing is unknown."""
        history = MetricsHistory()
        for step in (1000, 1001, 1003):
            for worker in (0, 1):
                history.add(step, figures(worker, 10))
            history.finish(step)
        # Too late.
        history.add(1003, figures(2, 10))
        series = history.series(3600)
        self.assertEqual(series["s3.perSecond"], [4.0, 4.0, None, 4.0])
        self.assertEqual(series["memory"], [200.0, 200.0, None, 200.0])
        self.assertEqual(history.series(10)["workers"], [None, 2.0])
        self.assertAlmostEqual(history.wires()["s3"].perSecond, 4.0)

    def test_bounded(self) -> None:
        """It keeps an hour of as many series as take less than 1 MiB."""
        history = MetricsHistory()
        counts = WireCounts(1, 0)
        counts.durations[0] = 1
        wires = packCounts({f"w{number}": counts for number in range(300)})
        for step in range(1, STEPS + 50):
            history.add(step, ProcessFigures(0, wires if step < 3 else {}, 0.0, step, 0.0))
            history.finish(step)
        self.assertEqual({len(each) for each in history.series(9999).values()}, {STEPS})
        self.assertEqual(history.series(9999)["memory"][0], 50.0)
        held = sum(ring.itemsize * len(ring) for ring in history._series.values())
        self.assertLess(held, 1 << 20)

    def test_load(self) -> None:
        """A process that begins later takes over what another one knows, and goes on."""
        old, new = MetricsHistory(), MetricsHistory()
        for step in range(100, 110):
            old.add(step, figures(0, 5))
            old.finish(step)
        new.load(old.plain())
        for history in (old, new):
            history.add(110, figures(0, 10))
            history.finish(110)
        self.assertEqual(new.series(3600), old.series(3600))
        new.load({"last": 110, "series": {}})
        self.assertEqual(new.series(3600), old.series(3600))

    def test_percentile(self) -> None:
        """Percentiles are within a bucket of the true value."""
        counts = WireCounts(100, 0)
        for place, bound in enumerate(BOUNDS):
            if bound >= 0.001 and not counts.durations[place - 1]:
                counts.durations[place] = 90
                break
        counts.durations[-1] = 10
        self.assertTrue(0.7 < percentile(counts.durations, 0.5) <= 1.5)
        self.assertGreater(percentile(counts.durations, 0.99), 20_000)
        self.assertEqual(describeWire(WireCounts(), 5).p50Ms, 0)


class FakeLink:
    """A link of a worker, whose messages are handed to other monitors by the test."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.said: list[object] = []

    def answer(self, topic: str, callback: object) -> None:
        """Do nothing."""

    def ask(self, topic: str) -> "FakeLink":
        """Ask none."""
        return self

    def addCallback(self, callback: object) -> None:
        """Never reply."""

    def broadcast(self, topic: str, payload: object) -> None:
        """Note the message."""
        self.said.append(payload)


def record(key: bytes = b"k", status: int = 200) -> S3RequestRecord:
    """Make the record of a request."""
    made = S3RequestRecord(
        0.0, b"1", b"2", None, b"GET", b"/", b"", b"", "::1", False, operation="GetObject"
    )
    made.key, made.status, made.seconds = key, status, 0.001
    return made


class MonitorTests(SynchronousTestCase):
    """L{ConsoleMonitor}."""

    def setUp(self) -> None:
        """Have the monitors of two workers."""
        self.clock = Clock()
        self.clock.advance(1000)
        self.links = [FakeLink(0), FakeLink(1)]
        self.monitors = [
            ConsoleMonitor(self.clock, link, self.clock.seconds)  # type: ignore[arg-type]
            for link in self.links
        ]
        for id, monitor in enumerate(self.monitors):
            monitor._id = id
            self.addCleanup(monitor.stop)

    def exchange(self) -> None:
        """Hand over what the workers have said."""
        for source, target in ((0, 1), (1, 0)):
            said, self.links[source].said = self.links[source].said, []
            for message in said:
                self.monitors[target].received(message)

    def test_steps(self) -> None:
        """Both have the figures of both, step by step."""
        for _ in range(3):
            self.monitors[0].tap.observe([record()] * 10)
            self.monitors[1].tap.observe([record()] * 20)
            self.clock.advance(STEP_SECONDS)
            self.exchange()
            self.clock.advance(1)
            self.clock.pump([0, 0])
            for monitor in self.monitors:
                series = monitor.history.series(STEP_SECONDS)
                self.assertEqual(series["workers"], [2.0])
        self.assertEqual(
            self.monitors[0].history.series(3600), self.monitors[1].history.series(3600)
        )
        self.assertEqual(self.monitors[1].history.series(3600)["s3.perSecond"][-1], 6.0)

    def test_watch(self) -> None:
        """Nothing is made without a stream; a stream elsewhere has events until it is silent."""
        published: list[tuple[list[RequestEvent], int]] = []
        watcher, other = self.monitors
        watcher.publish = lambda events, dropped: published.append((events, dropped))
        other.tap.observe([record()])
        self.assertEqual(self.links[1].said, [])
        watcher.watch(1, [ANY])
        self.exchange()
        self.assertEqual(other.streamsElsewhere(), 1)
        other.tap.observe([record(b"a"), record(b"b", 404)])
        self.exchange()
        [(events, dropped)] = published
        self.assertEqual([(each.key, each.worker) for each in events], [("a", 1), ("b", 1)])
        self.assertEqual(dropped, 0)
        self.clock.advance(3.5)
        self.assertEqual(other.streamsElsewhere(), 0)
        other.tap.observe([record()])
        other.tap.observe([record()])
        self.assertIsNone(other.tap.filters)

    def test_refusals(self) -> None:
        """The last refused request of each kind is kept without a stream; a flood only counts."""
        monitor = ConsoleMonitor(self.clock, None, self.clock.seconds)
        self.addCleanup(monitor.stop)
        explained: list[int] = []

        def explain() -> Refusal:
            explained.append(1)
            return Refusal("statement 2 of the policy of b denies it", 2)

        refused = [record(b"%d" % number, 403) for number in range(1000)]
        for each in refused:
            each.explain, each.accessKey = explain, "AKFLOOD"
        other = record(b"other", 403)
        monitor.tap.observe([record(), record(b"x", 404), *refused, other])
        self.assertEqual((len(monitor.tap.refusals), len(explained)), (2, 1))
        found = self.successResultOf(Deferred.fromCoroutine(monitor.refusals()))
        self.assertEqual([each.key for each in found], ["other", "0"])
        for _ in range(10):
            self.clock.advance(1)
            monitor.tap.observe(refused)
        found = self.successResultOf(Deferred.fromCoroutine(monitor.refusals()))
        self.assertEqual([each.accessKey for each in found], ["AKFLOOD", ""])
        self.assertEqual((found[0].atMs, found[0].statement), (1010_000, 2))
        self.assertEqual((found[0].count, len(explained)), (11_000, 11))
        for number in range(1000):
            one = record(b"x", 403)
            one.accessKey = str(number)
            monitor.tap.observe([one])
        self.assertEqual(len(monitor.tap.refusals), 20)

    def test_dropped(self) -> None:
        """Beyond a thousand events of a second they are dropped and counted."""
        published: list[tuple[list[RequestEvent], int]] = []
        monitor = self.monitors[0]
        monitor.publish = lambda events, dropped: published.append((events, dropped))
        monitor.watch(1, [ANY])
        for _ in range(3):
            monitor.tap.observe([record()] * 500)
        self.assertEqual(sum(len(events) for events, _ in published), MOST_EVENTS)
        self.assertEqual(sum(dropped for _, dropped in published), 500)
        self.clock.advance(1)
        monitor.tap.observe([record()])
        self.assertEqual(published[-1][1], 0)
