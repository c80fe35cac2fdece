"""One line for each call."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from string import Formatter
from typing import Any

from attrs import asdict, fields, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from storagegate.core.errors import asGrpcError
from storagegate.core.logtext import escapeField, escapeLine
from storagegate.rpc.middleware.methodnames import methodMatcher

FORMAT = "{timestamp} {peer} {path} {status} {durationMs:.3f} ms"
"""How a line looks unless somebody wants another."""

# Seconds: the deadline came on another clock, and was counted from when the call came.
_CLOCKS_APART = 0.05

_log = Logger()


@frozen
class CallRecord:
    """
    What a log knows of a call: nothing that a client put into its metadata or its messages.

    @ivar timestamp: When it came, as RFC 3339 has it.
    @ivar peer: The client's address and port.
    @ivar path: The whole name of the method.
    @ivar service: The name of the service.
    @ivar method: The bare name of the method.
    @ivar status: The name of its status.
    @ivar durationMs: How long it took, in milliseconds.
    """

    timestamp: str
    peer: str
    path: str
    service: str
    method: str
    status: str
    durationMs: float


def requestLog(
    format: str | Callable[[CallRecord], str | None] = FORMAT,
    *,
    write: Callable[[str], Any] | None = None,
    skip: Callable[[Any], Any] | Iterable[str] | None = None,
    now: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that logs calls when they are over; it belongs before all others.

    @param format: A text with the names of a L{CallRecord}'s values in braces, or a function of
        one that gives the line, C{None} for none. Control characters of a line are escaped, all
        but those of colours.
    @param write: Called with each line. Without it they go to Twisted's log, as events that have
        the values of the record, too.
    @param skip: The methods that are not logged: a list of names, as
        L{authentication<storagegate.rpc.middleware.authentication.authentication>} takes them, or
        C{skip(call)}.
    @param now: Gives the time in seconds since 1970.
    @param monotonic: Gives the seconds of a clock that nobody sets.
    @raise ValueError: If the format is none.
    @raise TypeError: If an option is of the wrong kind.
    """
    lineOf = _readFormat(format)
    if write is not None and not callable(write):
        raise TypeError(f"write is a function of (line), not {write!r}")
    skips = skip if skip is None or callable(skip) else methodMatcher(skip, "skip")

    def logCall(call: Any, started: float, begun: float, error: BaseException | None) -> None:
        try:
            if skips is not None and skips(call):
                return
            status = _statusOf(call, error, now())
            record = _record(call, started, monotonic() - begun, status)
            line = lineOf(record)
            if line is None:
                return
            line = escapeLine(str(line))
            if write is None:
                _log.info("{line}", line=line, **asdict(record))
            else:
                write(line)
        except Exception:
            # The call itself has its answer, and is none the worse.
            _log.failure("requestLog: no line for a call")

    async def logRequest(call: Any, next: Callable[[], Any]) -> Any:
        started, begun = now(), monotonic()
        failure: BaseException | None = None
        try:
            return await next()
        except BaseException as error:
            failure = error
            raise
        finally:
            logCall(call, started, begun, failure)

    return logRequest


def _statusOf(call: Any, error: BaseException | None, now: float) -> str:
    if call.cancelled or isinstance(error, CancelledError | GeneratorExit):
        isLate = call.deadline is not None and now >= call.deadline - _CLOCKS_APART
        return "DEADLINE_EXCEEDED" if isLate else "CANCELLED"
    return "OK" if error is None else asGrpcError(error).statusName


def _record(call: Any, started: float, seconds: float, status: str) -> CallRecord:
    timestamp = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
    return CallRecord(
        timestamp=timestamp.replace("+00:00", "Z"),
        peer=escapeField(call.getPeer()),
        path=escapeField(call.path),
        service=escapeField(call.service),
        method=escapeField(call.method),
        status=status,
        durationMs=round(seconds * 1000, 3),
    )


def _readFormat(format: Any) -> Callable[[CallRecord], Any]:
    if callable(format):
        function: Callable[[CallRecord], Any] = format
        return function
    if not isinstance(format, str):
        raise TypeError(f"format is text or a function of (record), not {format!r}")
    known = [each.name for each in fields(CallRecord)]
    for _, name, _, _ in Formatter().parse(format):
        if name is not None and name not in known:
            raise ValueError(f"a record has no {name!r}; there is {', '.join(known)}")
    # A specification that fits no value is found now, not at the first call.
    format.format(**asdict(CallRecord("", "", "", "", "", "", 0.0)))
    return lambda record: format.format(**asdict(record))
