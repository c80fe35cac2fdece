"""Calls while the collector holds the thread that exports."""

import threading
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.telemetry.tracecontext import newTracing
from storagegate.telemetry.tracing import CallTracer, Recorder, Tracer
from tests.support.delayed import TurnedReactor
from tests.support.gateway import makeHost

CALLS = 100


class StuckExporter:
    """Does not come back from the first batch before it is let go."""

    def __init__(self) -> None:
        self.hasBegun = threading.Event()
        self.mayEnd = threading.Event()

    def export(self, records: Sequence[Any]) -> str | None:
        """Be stuck."""
        self.hasBegun.set()
        self.mayEnd.wait()
        return None

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Come back."""
        self.mayEnd.set()


class UnblockedTests(SynchronousTestCase):
    """A real thread, and an exporter that is stuck in it."""

    timeout = 60

    def test_calls(self) -> None:
        """Calls end within the turn in which they began; what finds no room is dropped."""
        reactor, exporter = TurnedReactor(), StuckExporter()
        recorder = Recorder(
            lambda: exporter, reactor, queueSize=10, batchSize=1, intervalSeconds=0.001
        )
        host, _probe = makeHost(reactor)
        host.invoker.observers.append(CallTracer(Tracer(recorder)))

        def call() -> None:
            client = ClientInfo("c", "127.0.0.1", 5000)
            context = RequestContext("tcp", "Probe", "echo", client, newTracing())
            calling = Deferred.fromCoroutine(host.invoker.call(context, {"a": 1}))
            self.assertEqual(self.successResultOf(calling), {"a": 1})

        call()
        self.assertTrue(exporter.hasBegun.wait(60))
        for _ in range(CALLS):
            call()
        self.assertEqual((recorder.exported, recorder.dropped), (0, CALLS - 10))
        exporter.mayEnd.set()
        reactor.settle(recorder.stop())
        self.assertEqual((recorder.exported, recorder.failed), (11, 0))
