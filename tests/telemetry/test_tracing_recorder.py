"""The queue between the reactor's thread and a collector."""

from collections.abc import Callable, Sequence
from typing import Any

from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracing import COMPLAINT_SECONDS, FLUSH_SECONDS, Recorder
from tests.support.delayed import TurnedReactor
from tests.support.log import LogCase


class FakeExporter:
    """
    Keeps what it is sent.

    @ivar problem: What it answers.
    @ivar onExport: Called with each batch.
    """

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.problem: str | None = None
        self.error: Exception | None = None
        self.onExport: Callable[[], None] = lambda: None
        self.isClosed = self.isAborted = False

    def export(self, records: Sequence[Any]) -> str | None:
        """Keep records."""
        self.batches.append(list(records))
        self.onExport()
        if self.error is not None:
            raise self.error
        return self.problem

    def close(self) -> None:
        """Take note."""
        self.isClosed = True

    def abort(self) -> None:
        """Take note."""
        self.isAborted = True


class RecorderCase(LogCase):
    """A recorder whose thread is the test: its work is done when the test says so."""

    def setUp(self) -> None:
        """Make one."""
        super().setUp()
        self.reactor = TurnedReactor()
        self.exporter = FakeExporter()
        self.works: list[Callable[[], None]] = []
        self.meters = MetricsRegistry()

    def recorder(self, queueSize: int = 10, batchSize: int = 4, open: Any = None) -> Recorder:
        """Make a recorder."""
        return Recorder(
            open or (lambda: self.exporter),
            self.reactor,
            meters=self.meters,
            queueSize=queueSize,
            batchSize=batchSize,
            intervalSeconds=0.001,
            startThread=self.works.append,
        )

    def finish(self, recorder: Recorder) -> None:
        """Stop it and do its thread's work."""
        stopping = recorder.stop()
        for work in self.works:
            work()
        self.reactor.settle(stopping)

    def counts(self) -> dict[str, int]:
        """Give what the meter says."""
        [family] = self.meters.snapshot()
        self.assertEqual((family.name, family.kind), ("storagegate_spans_total", "counter"))
        return {labels[0]: value for labels, value in family.samples}


class QueueTests(RecorderCase):
    """What becomes of records."""

    def test_batches(self) -> None:
        """They are sent in their order, so many at a time; then the exporter is closed."""
        recorder = self.recorder()
        for number in range(10):
            recorder.put(number)
        self.finish(recorder)
        self.assertEqual(self.exporter.batches, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertTrue(self.exporter.isClosed)
        self.assertEqual(self.counts(), {"exported": 10, "dropped": 0, "failed": 0})

    def test_bound(self) -> None:
        """What finds no room is dropped and counted; nothing waits for room."""
        recorder = self.recorder(queueSize=5)
        for number in range(1000):
            recorder.put(number)
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 995, "failed": 0})
        self.finish(recorder)
        self.assertEqual(self.exporter.batches, [[0, 1, 2, 3], [4]])
        self.assertEqual(self.counts(), {"exported": 5, "dropped": 995, "failed": 0})

    def test_oneThread(self) -> None:
        """There is no thread before the first record, and one from then on."""
        recorder = self.recorder()
        self.assertEqual(len(self.works), 0)
        for number in range(3):
            recorder.put(number)
        self.assertEqual(len(self.works), 1)
        self.finish(recorder)

    def test_untouched(self) -> None:
        """A recorder that has recorded nothing stops at once."""
        self.successResultOf(self.recorder().stop())
        self.assertEqual(self.works, [])

    def test_afterStop(self) -> None:
        """What comes after the end is dropped and counted, and to stop twice is to stop."""
        recorder = self.recorder()
        recorder.put(1)
        self.finish(recorder)
        recorder.put(2)
        self.successResultOf(recorder.stop())
        self.assertEqual(self.counts(), {"exported": 1, "dropped": 1, "failed": 0})

    def test_whileExporting(self) -> None:
        """What comes while a batch is on its way goes with the next."""
        recorder = self.recorder(batchSize=2)
        more = [3]
        self.exporter.onExport = lambda: recorder.put(more.pop()) if more else None
        recorder.put(1)
        # Not with stop(): after it nothing is taken.
        recorder.put(2)
        self.reactor.callLater(0, recorder.stop)
        real = self.exporter.onExport

        def onExport() -> None:
            real()
            if len(self.exporter.batches) == 2:
                self.reactor.advance(0)

        self.exporter.onExport = onExport
        self.works[0]()
        self.assertEqual(self.exporter.batches, [[1, 2], [3]])


class FailureTests(RecorderCase):
    """A collector that does not do what it is there for."""

    def test_failed(self) -> None:
        """Spans that it does not take are counted, whatever the exporter does, and are gone."""
        recorder = self.recorder(batchSize=2)
        self.exporter.problem = "no"
        recorder.put(1)
        recorder.put(2)
        recorder.put(3)
        self.exporter.onExport = lambda: setattr(self.exporter, "error", OSError("gone"))
        self.finish(recorder)
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 0, "failed": 3})
        self.assertEqual(self.exporter.batches, [[1, 2], [3]])

    def test_oneLine(self) -> None:
        """The log has a line a minute, however many are lost."""
        recorder = self.recorder(queueSize=2, batchSize=1)
        for _ in range(50):
            recorder.put("x")
        self.assertEqual(len(self.logged()), 1)
        self.reactor.advance(COMPLAINT_SECONDS - 1)
        recorder.put("x")
        self.assertEqual(len(self.logged()), 1)
        self.reactor.advance(1)
        recorder.put("x")
        self.assertEqual(
            self.logged()[1],
            "spans are lost: the collector does not take them fast enough; "
            "exported=0 failed=0 dropped=50",
        )
        self.finish(recorder)

    def test_reason(self) -> None:
        """The line says what was wrong, in one line whatever the collector says."""
        recorder = self.recorder()
        self.exporter.problem = "the collector answers\r\n500 " + "x" * 1000
        recorder.put(1)
        self.finish(recorder)
        self.reactor.turnUntil(lambda: bool(self.logged()), lambda: None)
        [line] = self.logged()
        self.assertIn("spans are lost: 'the collector answers\\r\\n500 xx", line)
        self.assertLess(len(line), 400)
        self.assertNotIn("\n", line)

    def test_slow(self) -> None:
        """Stopping waits two seconds for a collector that does not answer, and no longer."""
        recorder = self.recorder(batchSize=1)
        recorder.put(1)
        recorder.put(2)
        stopping = recorder.stop()
        ended: list[None] = []
        stopping.addCallback(ended.append)

        def onExport() -> None:
            self.reactor.advance(FLUSH_SECONDS - 0.1)
            self.assertEqual(ended, [])
            self.reactor.advance(0.1)
            self.assertEqual(ended, [None])
            self.assertTrue(self.exporter.isAborted)

        self.exporter.onExport = onExport
        self.works[0]()
        self.assertEqual(self.exporter.batches, [[1]])
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(recorder.dropped, 1)

    def test_cannotOpen(self) -> None:
        """An exporter that cannot be made is one line, and spans are dropped from then on."""

        def open() -> Any:
            raise RuntimeError("no such package")

        recorder = self.recorder(open=open)
        recorder.put(1)
        self.works[0]()
        self.reactor.turnUntil(lambda: bool(self.logged()), lambda: None)
        recorder.put(2)
        self.assertEqual(self.logged(), ["tracing does not work: no such package"])
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 2, "failed": 0})
        self.successResultOf(recorder.stop())
