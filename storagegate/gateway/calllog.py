"""One line of the log for each call, with the fields that were asked for."""

import time
from collections.abc import Callable, Mapping, Sequence
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
        format: str = "json",
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param level: Calls that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        """
        self._write = _FORMATS[format]
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
        line = self._write({name: values[name] for name in self._fields})
        level = self._level if error is None else max(self._level, LogLevel.warn, key=_severity)
        self._log.emit(level, "{call}", call=line)


def _asJSON(values: dict[str, Any]) -> str:
    return json.encode(values).decode()


def _asText(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


_FORMATS: Mapping[str, Callable[[dict[str, Any]], str]] = {"json": _asJSON, "text": _asText}


def _severity(level: Any) -> int:
    return LEVELS.index("error" if level.name == "critical" else level.name)
