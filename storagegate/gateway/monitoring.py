"""What C{configureMonitoring} and C{configureServiceDiscovery} take."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from storagegate.core.calllines import FIELDS
from storagegate.core.loglines import LEVELS
from storagegate.core.optionvalues import (
    changeOptions,
    groupField,
    readFlag,
    readWord,
)
from storagegate.gateway.metrics import COLLECTORS
from storagegate.telemetry.options import TracingOptions, readCollector

PROTOCOL_METRICS: Mapping[str, tuple[str, ...]] = {
    "http": ("status_codes", "user_agents"),
    "websocket": ("connection_duration", "message_frequency"),
    "grpc": ("stream_count", "rpc_latency"),
    "udp": ("packet_loss", "packet_size"),
    "tcp": ("connection_pool", "buffer_utilization"),
}


def _words(value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"is a list of {', '.join(choices)}")
    return tuple(readWord(each, choices) for each in value)


def _collectors(value: Any) -> tuple[str, ...]:
    return _words(value, COLLECTORS)


def _protocolMetrics(value: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of protocols to lists")
    return {
        readWord(name, tuple(PROTOCOL_METRICS)): _words(words, PROTOCOL_METRICS[name])
        for name, words in value.items()
    }


def _level(value: Any) -> str:
    return readWord(value, LEVELS)


def _format(value: Any) -> str:
    return readWord(value, ("json", "text"))


def _fields(value: Any) -> tuple[str, ...]:
    return _words(value, FIELDS)


@frozen(kw_only=True)
class MetricsOptions:
    """
    What is counted.

    @ivar enabled: Whether anything is.
    @ivar collectors: What is counted of all calls.
    @ivar protocolMetrics: What is counted of a wire beside its calls, by wire: for C{http}
        C{status_codes} and C{user_agents}, for C{websocket} C{connection_duration} and
        C{message_frequency}, for C{grpc} C{stream_count} and C{rpc_latency}, for C{udp}
        C{packet_loss} and C{packet_size}, for C{tcp} C{connection_pool} and C{buffer_utilization}.
    """

    enabled: bool = field(default=True, converter=readFlag)
    collectors: tuple[str, ...] = field(default=COLLECTORS, converter=_collectors)
    protocolMetrics: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=_protocolMetrics)


@frozen(kw_only=True)
class LoggingOptions:
    """
    What is logged of each call, which is nothing as long as this is not given.

    @ivar level: At which level calls are logged that went well; others are C{warn} at least.
    @ivar format: C{json} for an object a line, C{text} for C{name=value}.
    @ivar fields: What a line tells; C{duration} is in milliseconds, C{status} C{ok} or an error's
        code.
    """

    level: str = field(default="info", converter=_level)
    format: str = field(default="json", converter=_format)
    fields: tuple[str, ...] = field(default=FIELDS, converter=_fields)


@frozen(kw_only=True)
class MonitoringOptions:
    """
    Every option of C{configureMonitoring}.

    @ivar metrics: What is counted.
    @ivar tracing: What is traced.
    @ivar logging: C{None} unless it was given: then calls are not logged.
    """

    metrics: MetricsOptions = groupField(MetricsOptions)
    tracing: TracingOptions = groupField(TracingOptions)
    logging: LoggingOptions | None = groupField()


def readMonitoring(before: MonitoringOptions, changes: Mapping[str, Any]) -> MonitoringOptions:
    """
    Change some options.

    @raise OptionError: If there is no such option, its value is none, or tracing is switched on
        and cannot be.
    """
    if before.logging is None and isinstance(changes.get("logging"), Mapping):
        before = evolve(before, logging=LoggingOptions())
    options = changeOptions(before, changes)
    if options.tracing.enabled:
        # What is not installed, or stands in the environment and is none, is said here and now.
        readCollector(options.tracing)
    return options
