"""The process that exports, fed by the test."""

import os
import signal
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry import otlp as module
from storagegate.telemetry.otlp import ChildExporter
from storagegate.telemetry.otlp import Collector as Destination
from storagegate.telemetry.tracing import CALL
from tests.support.collector import Collector

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def record(number: int, **attributes: Any) -> tuple[Any, ...]:
    """Make the record of a call."""
    place = (TRACE, f"{number + 1:016x}", None, "", 10**18, 0.001)
    return (CALL, *place, "tcp", "S", "m", "::1", 5, None, None, 200, attributes or None)


class ChildTests(SynchronousTestCase):
    """A process and a collector."""

    timeout = 60

    def setUp(self) -> None:
        """Start both."""
        self.collector = Collector()
        self.addCleanup(self.collector.stop)

    def exporter(self, mode: str = "ok", seconds: float = 60.0, **more: Any) -> ChildExporter:
        """Make an exporter that does not outlive the test."""
        destination = Destination(
            **{
                "provider": "otlp",
                "endpoint": self.collector.url(mode),
                "headers": {"x-key": "k"},
                "serviceName": "shop",
                "timeoutSeconds": seconds,
                **more,
            }
        )
        exporter = ChildExporter(destination)
        self.addCleanup(exporter.close)
        return exporter

    def pid(self, exporter: ChildExporter) -> int:
        """Give the number of the process."""
        process = exporter._process
        assert process is not None
        return process.pid

    def test_exports(self) -> None:
        """Batches are sent one after the other; then the process ends."""
        exporter = self.exporter()
        self.assertIsNone(exporter.export([record(0, tenant="blue"), record(1)]))
        self.assertIsNone(exporter.export([record(2)]))
        spans = self.collector.spans(3)
        self.assertEqual([int(span["spanId"], 16) for span in spans], [1, 2, 3])
        self.assertEqual(spans[0]["attributes"]["tenant"], "blue")
        self.assertEqual((spans[0]["start"], spans[0]["end"]), (10**18 - 10**6, 10**18))
        self.assertEqual(self.collector.requests(2)[0]["headers"]["x-key"], "k")
        pid = self.pid(exporter)
        exporter.close()
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_signals(self) -> None:
        """Whoever tells all processes to stop does not stop this one: there may be more to send."""
        exporter = self.exporter()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(self.pid(exporter), number)
        self.assertIsNone(exporter.export([record(0)]))
        self.assertEqual(len(self.collector.spans(1)), 1)

    def test_killed(self) -> None:
        """If it is killed a batch is lost, and another process takes the next, not at once."""
        self.patch(module, "RESTART_SECONDS", 3600)
        exporter = self.exporter()
        os.kill(self.pid(exporter), signal.SIGKILL)
        self.assertEqual(exporter.export([record(0)]), "the exporting process ended")
        self.assertEqual(exporter.export([record(1)]), "the exporting process ended")
        self.patch(module, "RESTART_SECONDS", 0)
        self.assertIsNone(exporter.export([record(2)]))
        [span] = self.collector.spans(1)
        self.assertEqual(int(span["spanId"], 16), 3)

    def test_stuck(self) -> None:
        """If it does nothing for longer than the collector may it is killed."""
        self.patch(module, "SPARE_SECONDS", 0.01)
        exporter = self.exporter(seconds=0.05)
        pid = self.pid(exporter)
        os.kill(pid, signal.SIGSTOP)
        self.assertEqual(exporter.export([record(0)]), "the exporting process was stuck")
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_cannot(self) -> None:
        """What the process cannot do it says at its start."""
        error = self.assertRaises(RuntimeError, self.exporter, headers=5)
        self.assertIn("TypeError", str(error))

    def test_abort(self) -> None:
        """What is under way is given up when it has to be."""
        exporter = self.exporter("silent")
        exporter.abort()
        self.assertEqual(exporter.export([record(0)]), "the exporting process ended")
        self.assertEqual(exporter.export([record(1)]), "the exporting process ended")

    def test_wrongRecord(self) -> None:
        """What is no record costs its batch, and no more."""
        exporter = self.exporter()
        self.assertIn("TypeError", exporter.export([(CALL, 1, 2)]) or "")
        self.assertIsNone(exporter.export([record(0)]))
