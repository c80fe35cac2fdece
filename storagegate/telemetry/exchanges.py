"""Requests of S3 as they are recorded."""

from time import time_ns
from typing import NamedTuple

from storagegate.core.context import Tracing
from storagegate.s3.observing import Exchange
from storagegate.telemetry.tracer import Tracer


class ExchangeRecord(NamedTuple):
    """A request of S3 that has ended."""

    tracing: Tracing
    endNs: int
    seconds: float
    operation: str
    verb: bytes
    path: bytes
    address: str
    isSecure: bool
    status: int
    error: str | None
    bytesIn: int
    bytesOut: int
    requestId: str


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
                ExchangeRecord,
                tracing,
                time_ns(),
                seconds,
                exchange.operation,
                request.method,
                request.path,
                request.clientHost,
                request.secure,
                exchange.status,
                exchange.errorCode,
                exchange.bytesIn,
                exchange.bytesOut,
                exchange.requestId,
            )
        )
