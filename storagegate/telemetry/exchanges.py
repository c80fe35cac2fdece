"""Requests of S3 as they are recorded."""

from time import time_ns

from storagegate.s3.observing import Exchange
from storagegate.telemetry.records import EXCHANGE, MAX_PATH
from storagegate.telemetry.tracer import Tracer


class ExchangeTracer:
    """An observer of the requests of S3."""

    def __init__(self, tracer: Tracer) -> None:
        self._decide = tracer.decide
        self._put = tracer.recorder.put

    def began(self, exchange: Exchange) -> None:
        """Decide."""
        if exchange.tracing is not None:
            exchange.tracing = self._decide(exchange.tracing)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Record the request's end."""
        tracing = exchange.tracing
        if tracing is None or not tracing.sampled or tracing.ownId is None:
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
                seconds,
                exchange.operation,
                request.method,
                request.path[:MAX_PATH],
                request.clientHost,
                request.secure,
                exchange.status,
                exchange.errorCode,
                exchange.bytesIn,
                exchange.bytesOut,
                exchange.requestId,
            )
        )
