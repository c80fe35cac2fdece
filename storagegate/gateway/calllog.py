"""One line of the log for each call, with the fields that were asked for."""

from storagegate.core.calllines import CallLines
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError


class CallLog:
    """An observer that logs the end of each call."""

    def __init__(self, lines: CallLines) -> None:
        self._write = lines.write

    def began(self, context: RequestContext) -> None:
        """Do nothing: the end tells all."""

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Log a call, with its path where that is the name of no method."""
        path = context.metadata.get("path")
        self._write(
            context.protocol,
            context.service,
            context.method,
            context.client.id,
            seconds,
            "ok" if error is None else error.code,
            context.tracing.traceId,
            error is None,
            None if path is None else {"path": path},
        )
