"""A tracer that records its spans."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from opentelemetry.sdk.trace.export import SpanExporter
from twisted.internet.task import Clock

from storagegate.core.context import Tracing
from storagegate.telemetry.otlp import Tracer
from storagegate.telemetry.tracing import TracingOptions


@frozen
class KeptSpan:
    """A recorded span."""

    tracing: Tracing
    name: str
    attributes: Mapping[str, Any]
    seconds: float
    isFailed: bool
    isClient: bool


class KeptTracer(Tracer):
    """
    A tracer that records spans.

    @ivar room: The number of further spans that it admits.
    """

    def __init__(self, sampleRatio: float = 1.0, spanAttributes: Any = None) -> None:
        options = TracingOptions(sampleRatio=sampleRatio, spanAttributes=spanAttributes)
        super().__init__(options, Clock(), makeExporter=lambda options, session: SpanExporter())
        # The thread of the processor is not needed.
        self._processor.shutdown()
        self.spans: list[KeptSpan] = []
        self.room = 1000

    def admit(self, tracing: Tracing) -> bool:
        """Return whether the span of a sampled call is admitted."""
        if not super().admit(tracing):
            return False
        self.room -= 1
        return self.room >= 0

    def record(
        self,
        tracing: Tracing,
        name: str,
        attributes: Mapping[str, Any],
        seconds: float,
        *,
        isFailed: bool = False,
        isClient: bool = False,
    ) -> None:
        """Record a span."""
        self.spans.append(KeptSpan(tracing, name, attributes, seconds, isFailed, isClient))
