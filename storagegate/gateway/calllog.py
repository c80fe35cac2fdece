"""One line of the log for each call: a JSON object with the fields that were asked for."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import json
from twisted.logger import Logger, LogLevel

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError

FIELDS = (
    "timestamp",
    "protocol",
    "service",
    "method",
    "client_id",
    "duration",
    "status",
    "trace_id",
)
"""What a line may tell; C{duration} is in milliseconds, C{status} C{ok} or an error's code."""

LEVELS = ("debug", "info", "warn", "error")


class CallLog:
    """An observer that logs the end of each call."""

    _log = Logger()

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param level: Calls that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS}.
        """
        self._level = LogLevel.lookupByName(level)
        self._fields = tuple(fields)
        self._now = now

    def began(self, context: RequestContext) -> None:
        """Do nothing: the end tells all."""

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Log a call."""
        values: dict[str, Any] = {
            "timestamp": self._now(),
            "protocol": context.protocol,
            "service": context.service,
            "method": context.method,
            "client_id": context.client.id,
            "duration": round(seconds * 1000, 3),
            "status": "ok" if error is None else error.code,
            "trace_id": context.tracing.traceId,
        }
        line = json.encode({name: values[name] for name in self._fields}).decode()
        level = self._level if error is None else max(self._level, LogLevel.warn, key=_severity)
        self._log.emit(level, "{call}", call=line)


def _severity(level: Any) -> int:
    return LEVELS.index("error" if level.name == "critical" else level.name)
