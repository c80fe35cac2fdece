"""
What C{configureMonitoring} chooses: the metrics, the tracer, and the access log of a gateway's
calls.

A gateway without it counts its calls, and does not import this module.
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
    What is counted.

    @ivar enabled: Whether anything is.
    @ivar collectors: What is counted of all calls.
    @ivar protocolMetrics: The metrics of a transport beside its calls, by transport: for C{http}
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
    What is logged of each call, which is nothing as long as this is not given.

    @ivar level: At which level calls are logged that went well; others are C{warn} at least.
    @ivar format: C{json} for an object a line, C{text} for C{name=value}.
    @ivar fields: The fields of a line; C{duration} is in milliseconds, C{status} C{ok} or an
        error's code.
    """

    level: str = optionField("info", readWord, LEVELS)
    format: str = optionField("json", readWord, ("json", "text"))
    fields: tuple[str, ...] = optionField(FIELDS, _words, FIELDS)


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
    @raise OptionError: If there is no such option, its value is none, or tracing is switched on
        and cannot be.
    """
    before = before or MonitoringOptions()
    if before.logging is None and isinstance(changes.get("logging"), Mapping):
        before = evolve(before, logging=LoggingOptions())
    options = changeOptions(before, changes)
    if options.tracing.enabled:
        # What is not installed, or stands in the environment and is none, is said here and now.
        readCollector(options.tracing)
    return options


def makeTracer(
    options: MonitoringOptions, reactor: Any, meters: MetricsRegistry | None = None
) -> Any:
    """
    Make the L{Tracer<storagegate.telemetry.otlp.Tracer>} of a process.

    @param reactor: Schedules the export of spans.
    @param meters: The registry of the process; C{None} if nothing is counted.
    @return: C{None} where nothing is traced.
    """
    if not options.tracing.enabled:
        return None
    # Imports OpenTelemetry's SDK, which takes half a second and 10 MB.
    from storagegate.telemetry.otlp import Tracer

    return Tracer(readCollector(options.tracing), reactor, meters=meters)


def makeObservers(
    options: MonitoringOptions, metrics: CallMetrics, sink: BufferedLogWriter | None, tracer: Any
) -> tuple[list[InvocationObserver], list[InvocationObserver]]:
    """
    Make the observers of a gateway.

    @param sink: Where the lines of calls go; C{None} for Twisted's log.
    @param tracer: What traces calls, C{None} for nothing.
    @return: Those of calls, and those of them that also observe calls for no method.
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
"""The fields of L{CallLog} in L{AccessLog} behind the usual ones, if those are all of them."""

_USER_NAMES = ("sub", "accessKey", "id", "userId", "name")


def userName(user: object) -> str:
    """
    Return the name of a user for a log; empty if none is known.

    @param user: Claims of a token, or what a service's own function has returned. Nothing else of
        it is written, for it may hold secrets, and text may be the token.
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
        @param lines: Made with L{NUMBERS} and L{TEXTS}, if C{isWhole}.
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
        """Log a call, with its path where that is the name of no method."""
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
        Log what is counted, from the same record of a call.

        @param sink: Where the lines go.
        """

        def make() -> list[bytes]:
            # The lines come by writeAll.
            metrics.flush()
            return []

        metrics.follow(self._endedAll, lambda: sink.writeLater(make))

    def _endedAll(self, calls: Sequence[Over]) -> None:
        """Log calls that are over."""
        self._log(calls, time.time() - time.monotonic())

    def _log(
        self, calls: Sequence[Over], shift: float, more: Mapping[str, str] | None = None
    ) -> None:
        """
        Log calls, in one loop without calls of functions: that takes a third less.

        @param shift: From the clock of the calls to seconds since 1970.
        @param more: What stands behind the fields of these lines alone.
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
                # Else a trace id of another kind could forge a line.
                trace.encode() if trace.isalnum() else b"",
                numbers,
                texts,
            )
            (good if error is None else bad).append(entry)
        self._lines.write(good, more=more)
        self._lines.write(bad, False, more)
