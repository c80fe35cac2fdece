"""A tracer, put together of the options."""

from typing import Any

from storagegate.core.meters import Meters
from storagegate.telemetry.options import TracingOptions, readCollector
from storagegate.telemetry.recorder import Exporter, Recorder
from storagegate.telemetry.tracer import Tracer


def makeTracer(options: TracingOptions, reactor: Any, meters: Meters | None = None) -> Tracer:
    """
    Make what traces the calls of a process.

    @param reactor: The whole reactor.
    @raise OptionError: If the environment says nothing that can be, or a package is missing.
    """
    collector = readCollector(options)

    def open() -> Exporter:
        from storagegate.telemetry.child import ChildExporter

        return ChildExporter(collector)

    recorder = Recorder(
        open,
        reactor,
        meters=meters,
        queueSize=options.queueSize,
        batchSize=options.batchSize,
        intervalSeconds=options.intervalMs / 1000,
    )
    return Tracer(recorder, options.sampleRatio, options.spanAttributes, options.correlationHeader)
