"""Requests of S3 as they are recorded."""

from collections.abc import Sequence
from time import time_ns

from storagegate.core.context import Tracing
from storagegate.s3.observing import Exchange
from storagegate.telemetry.records import EXCHANGE, MAX_PATH
from storagegate.telemetry.tracer import Tracer


class ExchangeTracer:
    """An observer of the requests of S3."""

    def __init__(self, tracer: Tracer) -> None:
        self._bound = tracer.bound.encode("ascii")
        self._decide = tracer.decide
        self._put = tracer.recorder.put

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Record those that are to be recorded."""
        bound = self._bound
        for exchange in exchanges:
            if exchange.tracing is not None:
                self._record(exchange, exchange.tracing)
            elif exchange.traceId[16:] < bound:
                self._record(exchange, Tracing(exchange.traceId.decode("ascii")))

    def _record(self, exchange: Exchange, named: Tracing) -> None:
        """Record a request, if its trace is recorded."""
        tracing = self._decide(named)
        if not tracing.sampled or tracing.ownId is None:
            return
        request = exchange.request
        self._put(
            (
                EXCHANGE,
                tracing.traceId,
                tracing.ownId,
                tracing.spanId,
                tracing.state,
                time_ns(),
                exchange.seconds,
                exchange.operation,
                request.method,
                request.path[:MAX_PATH],
                request.clientHost,
                request.secure,
                exchange.status,
                exchange.errorCode,
                exchange.bytesIn,
                exchange.bytesOut,
                exchange.requestId.decode("ascii"),
            )
        )
