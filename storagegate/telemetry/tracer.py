"""
What decides in the reactor's thread whether a call is recorded, and takes note of its end.

A call whose caller says whether it records the trace is recorded as the caller does; of the
others, a part by the id of the trace, so that everybody who sees it decides alike
(U{https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling}).
"""

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, NamedTuple

from twisted.logger import Logger

from storagegate.core.context import Client, RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.core.tracing import newSpanId
from storagegate.s3.observing import Exchange
from storagegate.telemetry.recorder import Recorder

_log = Logger()


class CallRecord(NamedTuple):
    """
    A call of a service that has ended.

    @ivar endNs: When, in nanoseconds since 1970.
    @ivar error: The code of its error; C{None} if it went well.
    @ivar statusCode: The status of its answer over HTTP.
    @ivar extra: What the user's C{spanAttributes} gave.
    """

    tracing: Tracing
    endNs: int
    seconds: float
    protocol: str
    service: str
    method: str
    client: Client
    error: str | None
    statusCode: int
    extra: Any = None


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


class ForwardRecord(NamedTuple):
    """An attempt to have a call answered by somebody else."""

    tracing: Tracing
    endNs: int
    seconds: float
    service: str
    method: str
    host: str
    port: int
    error: str | None


class Tracer:
    """
    Records calls of services, requests of S3 and what is forwarded.

    @ivar recorder: Takes the records.
    @ivar spanAttributes: The user's C{(context)}, C{None} for none.
    """

    def __init__(
        self,
        recorder: Recorder,
        sampleRatio: float = 1.0,
        spanAttributes: Callable[[RequestContext], Mapping[str, Any] | None] | None = None,
    ) -> None:
        self.recorder = recorder
        # Of the 64 lower bits of a trace's id, which are random wherever it was made.
        self._bound = round(sampleRatio * (1 << 64))
        self.spanAttributes = spanAttributes
        self._hasComplained = False

    def decide(self, tracing: Tracing) -> Tracing:
        """Give a call's trace, with a span of its own if the call is recorded."""
        if tracing.spanId is None:
            if int(tracing.traceId[16:], 16) >= self._bound:
                return tracing
        elif not tracing.sampled:
            return tracing
        return Tracing(tracing.traceId, tracing.spanId, True, tracing.state, newSpanId())

    def forwarded(
        self,
        tracing: Tracing,
        service: str,
        method: str,
        host: str,
        port: int,
        seconds: float,
        error: ServiceError | None = None,
    ) -> None:
        """
        Take note of an attempt to have a call answered by somebody else.

        @param tracing: What L{forwardedTracing<storagegate.core.tracing.forwardedTracing>} gave;
            nothing is recorded of a call that is not sampled.
        """
        if tracing.sampled and tracing.ownId is not None:
            code = None if error is None else error.code
            self.recorder.put(
                (ForwardRecord, tracing, time_ns(), seconds, service, method, host, port, code)
            )

    def extra(self, context: RequestContext) -> Any:
        """Ask the user for attributes; what goes wrong there is told once."""
        assert self.spanAttributes is not None
        try:
            found = self.spanAttributes(context)
            if found is None:
                return None
            if isinstance(found, Mapping):
                return dict(found)
            if hasattr(found, "close"):
                # A coroutine: nothing here can wait for it.
                found.close()
            raise TypeError(f"spanAttributes gives a mapping, not {type(found).__name__}")
        except Exception:
            if not self._hasComplained:
                self._hasComplained = True
                _log.failure("spanAttributes failed; this is told once")
            return None


class CallTracer:
    """An observer of the calls of services."""

    def __init__(self, tracer: Tracer) -> None:
        self._decide = tracer.decide
        self._put = tracer.recorder.put
        self._extra = None if tracer.spanAttributes is None else tracer.extra

    def began(self, context: RequestContext) -> None:
        """Decide, before the handler sees the context."""
        context.tracing = self._decide(context.tracing)

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Record the call's end."""
        tracing = context.tracing
        if tracing.ownId is None or not tracing.sampled:
            return
        # A tuple that begins with what it is: to make the other costs as much as all the rest.
        self._put(
            (
                CallRecord,
                tracing,
                time_ns(),
                seconds,
                context.protocol,
                context.service,
                context.method,
                context.client,
                None if error is None else error.code,
                200 if error is None else error.statusCode,
                None if self._extra is None else self._extra(context),
            )
        )


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
