"""
What decides in the reactor's thread whether a call is recorded, and takes note of its end.

A call whose caller says whether it records the trace is recorded as the caller does; of the
others, a part by the id of the trace, so that everybody who sees it decides alike
(U{https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling}).
"""

from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any

from twisted.logger import Logger

from storagegate.core.context import RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.core.tracing import newSpanId
from storagegate.telemetry.attributes import readAttributes
from storagegate.telemetry.recorder import Recorder
from storagegate.telemetry.records import CALL, FORWARD, MAX_AGENT

_log = Logger()


class Tracer:
    """
    Records calls of services, requests of S3 and what is forwarded.

    @ivar recorder: Takes the records.
    @ivar bound: A trace of which no caller has decided is recorded if the last 16 digits of its id
        come before this.
    @ivar spanAttributes: The user's C{(context)}, C{None} for none.
    @ivar correlationHeader: The field of HTTP that has the id of a trace.
    """

    def __init__(
        self,
        recorder: Recorder,
        sampleRatio: float = 1.0,
        spanAttributes: Callable[[RequestContext], Mapping[str, Any] | None] | None = None,
        correlationHeader: str = "X-Trace-ID",
    ) -> None:
        self.recorder = recorder
        # Of the 64 lower bits of a trace's id, which are random wherever it was made.
        bound = round(sampleRatio * (1 << 64))
        # Text is compared in half the time of numbers; no digit comes after "g".
        self.bound = f"{bound:016x}" if bound >> 64 == 0 else "g"
        self.spanAttributes = spanAttributes
        self.correlationHeader = correlationHeader
        self._hasComplained = False

    def decide(self, tracing: Tracing) -> Tracing:
        """Give a call's trace, with a span of its own if the call is recorded."""
        if tracing.spanId is None:
            if tracing.traceId[16:] >= self.bound:
                return tracing
        elif not tracing.sampled:
            return tracing
        return Tracing(tracing.traceId, tracing.spanId, True, tracing.state, newSpanId())

    def forwarded(
        self,
        tracing: Tracing,
        service: str,
        method: str,
        place: tuple[str, int],
        seconds: float,
        error: str | None,
    ) -> None:
        """
        Take note of an attempt to have a call answered by somebody else.

        @param tracing: What L{forwardedTracing<storagegate.core.tracing.forwardedTracing>} gave;
            nothing is recorded of a call that is not sampled.
        @param place: The host and the port that were asked.
        @param error: What became of it, in a word; C{None} if it went well.
        """
        if tracing.sampled and tracing.ownId is not None:
            self.recorder.put(
                (
                    FORWARD,
                    tracing.traceId,
                    tracing.ownId,
                    tracing.spanId,
                    tracing.state,
                    time_ns(),
                    seconds,
                    service,
                    method,
                    *place,
                    error,
                )
            )

    def extra(self, context: RequestContext) -> Any:
        """Ask the user for attributes; what goes wrong there is told once."""
        assert self.spanAttributes is not None
        try:
            found = self.spanAttributes(context)
            if found is None:
                return None
            if isinstance(found, Mapping):
                return readAttributes(found)
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
        self._bound = tracer.bound
        self._put = tracer.recorder.put
        self._extra = None if tracer.spanAttributes is None else tracer.extra

    def began(self, context: RequestContext) -> None:
        """Decide, before the handler sees the context."""
        tracing = context.tracing
        # Of most calls it is known with this what C{decide} would say.
        if tracing.spanId is not None or tracing.traceId[16:] < self._bound:
            context.tracing = self._decide(tracing)

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Record the call's end."""
        tracing = context.tracing
        if tracing.ownId is None or not tracing.sampled:
            return
        client = context.client
        agent = client.userAgent
        self._put(
            (
                CALL,
                tracing.traceId,
                tracing.ownId,
                tracing.spanId,
                tracing.state,
                time_ns(),
                seconds,
                context.protocol,
                context.service,
                context.method,
                client.address,
                client.port,
                None if agent is None else agent[:MAX_AGENT],
                None if error is None else error.code,
                200 if error is None else error.statusCode,
                None if self._extra is None else self._extra(context),
            )
        )
