"""One line of the log for each call, with the fields that were asked for."""

import time
from collections.abc import Callable, Sequence

from storagegate.core.calllines import FIELDS, CallLines
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.loglines import LineSink


class CallLog:
    """An observer that logs the end of each call."""

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        format: str = "json",
        sink: LineSink | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param level: Calls that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        @param sink: Where lines go; C{None} for Twisted's log.
        """
        self._write = CallLines(level, fields, format, sink, now).write

    def began(self, context: RequestContext) -> None:
        """Do nothing: the end tells all."""

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Log a call."""
        self._write(
            context.protocol,
            context.service,
            context.method,
            context.client.id,
            seconds,
            "ok" if error is None else error.code,
            context.tracing.traceId,
            error is None,
        )
