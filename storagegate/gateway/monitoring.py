"""
The monitoring that C{configureMonitoring} sets up: metrics, tracer and access log of a gateway's
calls.

An unconfigured gateway counts its calls and does not import this module.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from attrs import evolve, field, frozen

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import InvocationObserver
from storagegate.core.options import changeOptions, groupField, optionField, readFlag, readWord
from storagegate.gateway.metrics import COLLECTORS, CallMetrics, Over
from storagegate.gateway.transports.metrics import metricsOf
from storagegate.gateway.transports.registry import transports
from storagegate.telemetry.accesslog import FIELDS, MAX_TEXT, AccessLog, Entry
from storagegate.telemetry.log import LEVELS, BufferedLogWriter
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracing import CallTracer, TracingOptions, readCollector


def _words(value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"is a list of {', '.join(choices)}")
    return tuple(readWord(each, choices) for each in value)


def _protocolMetrics(value: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of protocols to lists")
    measured = tuple(row.name for row in transports() if row.metrics is not None)
    return {
        readWord(name, measured): _words(words, tuple(metricsOf(name)))
        for name, words in value.items()
    }


@frozen(kw_only=True)
class MetricsOptions:
    """
    The metrics of a gateway.

    @ivar enabled: Whether calls are counted at all.
    @ivar collectors: The metrics of the calls of all transports.
    @ivar protocolMetrics: Further metrics of each transport, by transport: for C{http}
        C{status_codes} and C{user_agents}, for C{websocket} C{connection_duration} and
        C{message_frequency}, for C{grpc} C{stream_count} and C{rpc_latency}, for C{udp}
        C{packet_loss} and C{packet_size}, for C{tcp} C{connection_pool} and C{buffer_utilization}.
    """

    enabled: bool = optionField(True, readFlag)
    collectors: tuple[str, ...] = optionField(COLLECTORS, _words, COLLECTORS)
    protocolMetrics: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=_protocolMetrics)


@frozen(kw_only=True)
class LoggingOptions:
    """
    The access log; without this group no call is logged.

    @ivar level: The level of calls that succeed; failed calls are logged at C{warn} or above.
    @ivar format: C{json} for one object a line, C{text} for C{name=value}.
    @ivar fields: The fields of a line; C{duration} is in milliseconds, C{status} is C{ok} or an
        error code.
    """

    level: str = optionField("info", readWord, LEVELS)
    format: str = optionField("json", readWord, ("json", "text"))
    fields: tuple[str, ...] = optionField(FIELDS, _words, FIELDS)


@frozen(kw_only=True)
class MonitoringOptions:
    """
    Every option of C{configureMonitoring}.

    @ivar metrics: The metrics.
    @ivar tracing: The tracing.
    @ivar logging: The access log; C{None} logs no calls.
    """

    metrics: MetricsOptions = groupField(MetricsOptions)
    tracing: TracingOptions = groupField(TracingOptions)
    logging: LoggingOptions | None = groupField()


class MonitoringOptionsDict(TypedDict, total=False):
    """The keywords of L{MonitoringOptions}."""

    metrics: Mapping[str, Any] | MetricsOptions
    tracing: Mapping[str, Any] | TracingOptions
    logging: Mapping[str, Any] | LoggingOptions | None


def readMonitoring(
    changes: Mapping[str, Any], before: MonitoringOptions | None = None
) -> MonitoringOptions:
    """
    Change some options.

    @param before: The options before; C{None} for the defaults.
    @raise OptionError: If an option is unknown, a value is invalid, or tracing is enabled but
        unavailable.
    """
    before = before or MonitoringOptions()
    if before.logging is None and isinstance(changes.get("logging"), Mapping):
        before = evolve(before, logging=LoggingOptions())
    options = changeOptions(before, changes)
    if options.tracing.enabled:
        # Fail early if a package is missing or an environment variable is invalid.
        readCollector(options.tracing)
    return options


def makeTracer(
    options: MonitoringOptions, reactor: Any, meters: MetricsRegistry | None = None
) -> Any:
    """
    Make the L{Tracer<storagegate.telemetry.otlp.Tracer>} of a process.

    @param reactor: Schedules the export of spans.
    @param meters: The registry of the process; C{None} without metrics.
    @return: C{None} if tracing is off.
    """
    if not options.tracing.enabled:
        return None
    # This imports the OpenTelemetry SDK, which takes 0.5 s and 10 MB.
    from storagegate.telemetry.otlp import Tracer

    return Tracer(readCollector(options.tracing), reactor, meters=meters)


def makeObservers(
    options: MonitoringOptions, metrics: CallMetrics, sink: BufferedLogWriter | None, tracer: Any
) -> tuple[list[InvocationObserver], list[InvocationObserver]]:
    """
    Make the observers of a gateway.

    @param sink: Receives the lines of the access log; C{None} for Twisted's log.
    @param tracer: Traces calls; C{None} for no tracing.
    @return: The observers of calls, and the ones among them that also observe calls to unknown
        methods.
    """
    observers: list[InvocationObserver] = []
    others: list[InvocationObserver] = []
    if options.metrics.enabled:
        metrics.choose(options.metrics.collectors, options.metrics.protocolMetrics)
        observers.append(metrics)
    if tracer is not None:
        systems = {row.name: row.rpcSystem for row in transports() if row.rpcSystem is not None}
        statuses = {row.name for row in transports() if row.hasStatus}
        others.append(CallTracer(tracer, systems, statuses))
    observers += others
    calls = options.logging
    if calls is not None:
        numbers, texts = (NUMBERS, TEXTS) if calls.fields == FIELDS else ((), ())
        lines = AccessLog(calls.level, calls.fields, calls.format, sink, numbers, texts)
        log = CallLog(lines, isWhole=bool(texts))
        others.append(log)
        if sink is not None and options.metrics.enabled:
            log.follow(metrics, sink)
        else:
            observers.append(log)
    return observers, others


NUMBERS = ("status_code",)
TEXTS = ("error_code", "user", "address", "user_agent")
"""The fields that L{CallLog} appends in L{AccessLog} when all fields are logged."""

_USER_NAMES = ("sub", "accessKey", "id", "userId", "name")


def userName(user: object) -> str:
    """
    Return the name of a user for a log; empty if none is known.

    @param user: The claims of a token, or the result of a service's own authentication function.
        Only these names are logged: other values may be secrets, and plain text may be the token
        itself.
    """
    for name in _USER_NAMES:
        found = user.get(name) if isinstance(user, Mapping) else getattr(user, name, None)
        if isinstance(found, str | int) and not isinstance(found, bool):
            return str(found)[:MAX_TEXT]
    return ""


_SUCCESS = ("", 200)


class CallLog:
    """An observer that logs the end of each call."""

    def __init__(
        self, lines: AccessLog, now: Callable[[], float] = time.time, isWhole: bool = False
    ) -> None:
        """
        @param lines: The log; made with L{NUMBERS} and L{TEXTS} if C{isWhole}.
        @param now: Returns the time in seconds since 1970.
        """
        self._lines = lines
        self._now = now
        self._isWhole = isWhole

    def callStarted(self, context: RequestContext) -> None:
        """Do nothing: the line is written at the end."""

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Log a call, with its path if it names no method."""
        path = context.metadata.get("path")
        over = (
            self._now(),
            context.protocol,
            context.service,
            context.method,
            None,
            context.client,
            seconds,
            None if error is None else (error.code, error.statusCode),
            context.tracing.traceId,
            context.authentication,
        )
        self._log([over], 0.0, None if path is None else {"path": path})

    def follow(self, metrics: CallMetrics, sink: BufferedLogWriter) -> None:
        """
        Log the calls that are counted, from the same records.

        @param sink: Receives the lines.
        """

        def make() -> list[bytes]:
            # The flush writes the lines itself.
            metrics.flush()
            return []

        metrics.follow(self._endedAll, lambda: sink.writeLater(make))

    def _endedAll(self, calls: Sequence[Over]) -> None:
        """Log calls that have ended."""
        self._log(calls, time.time() - time.monotonic())

    def _log(
        self, calls: Sequence[Over], shift: float, more: Mapping[str, str] | None = None
    ) -> None:
        """
        Log calls, in one loop without function calls, which takes a third less time.

        @param shift: Seconds to add to a call's monotonic time to get seconds since 1970.
        @param more: Fields to append to these lines only.
        """
        good: list[Entry] = []
        bad: list[Entry] = []
        isWhole = self._isWhole
        numbers: tuple[int, ...] = ()
        texts: tuple[str, ...] = ()
        for when, protocol, service, method, _, client, seconds, error, trace, user in calls:
            code, status = error or _SUCCESS
            if isWhole:
                agent = client.userAgent
                name = "" if user is None else userName(user)
                numbers = (status,)
                texts = (code, name, client.address, agent[:MAX_TEXT] if agent else "")
            entry = (
                when + shift,
                protocol,
                service,
                method,
                client.id,
                seconds,
                "ok" if error is None else code,
                # A trace id of another form could forge a line.
                trace.encode() if trace.isalnum() else b"",
                numbers,
                texts,
            )
            (good if error is None else bad).append(entry)
        self._lines.write(good, more=more)
        self._lines.write(bad, False, more)
