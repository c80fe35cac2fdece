"""One line of the log for each call, with the fields that were asked for."""

import time
from collections.abc import Sequence

from storagegate.core.calllines import CallLines, Told, traceOf
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.loglines import LineSink
from storagegate.gateway.metrics import CallMetrics, Over


class CallLog:
    """An observer that logs the end of each call."""

    def __init__(self, lines: CallLines) -> None:
        self._lines = lines
        self._write = lines.write

    def began(self, context: RequestContext) -> None:
        """Do nothing: the end tells all."""

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Log a call, with its path where that is the name of no method."""
        path = context.metadata.get("path")
        self._write(
            context.protocol,
            context.service,
            context.method,
            context.client.id,
            seconds,
            "ok" if error is None else error.code,
            context.tracing.traceId,
            error is None,
            None if path is None else {"path": path},
        )

    def follow(self, metrics: CallMetrics, sink: LineSink) -> None:
        """
        Log what is counted: whoever does both notes down once what a call was.

        @param sink: Where the lines go.
        """

        def make() -> list[bytes]:
            # The lines come by writeAll.
            metrics.tell()
            return []

        metrics.follow(self._endedAll, lambda: sink.promise(make))

    def _endedAll(self, calls: Sequence[Over]) -> None:
        """Log calls that are over."""
        shift = time.time() - time.monotonic()
        good: list[Told] = []
        bad: list[Told] = []
        for when, protocol, service, method, _, client, seconds, code, trace in calls:
            status = "ok" if code is None else code
            id = traceOf(trace)
            told = (when + shift, protocol, service, method, client, seconds, status, id, (), ())
            (good if code is None else bad).append(told)
        self._lines.writeAll(good)
        self._lines.writeAll(bad, isGood=False)
