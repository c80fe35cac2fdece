"""One line of the log for each request of S3, like those of calls."""

import time
from collections.abc import Callable, Sequence

from storagegate.core.calllines import FIELDS, MAX_TEXT, CallLines
from storagegate.core.loglines import LineSink
from storagegate.s3.observing import Exchange

PROTOCOL = "s3"
SERVICE = "S3"


class S3Log:
    """
    An observer that logs the end of each request.

    The method is the operation and the status the code of the error, or that of HTTP; behind the
    fields stand C{bytes_in}, C{bytes_out} and the C{access_key}. Buckets and keys are not told:
    they are the business of whoever stores there.
    """

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        format: str = "json",
        sink: LineSink | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param level: Requests that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS<storagegate.core.calllines.FIELDS>}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        @param sink: Where lines go; C{None} for Twisted's log.
        """
        self._write = CallLines(level, fields, format, sink, now).write

    def began(self, exchange: Exchange) -> None:
        """Do nothing: the end tells all."""

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Log a request."""
        tracing = exchange.tracing
        self._write(
            PROTOCOL,
            SERVICE,
            exchange.operation,
            exchange.request.clientHost,
            seconds,
            exchange.errorCode or str(exchange.status),
            "" if tracing is None else tracing.traceId,
            exchange.status < 400,
            bytes_in=exchange.bytesIn,
            bytes_out=exchange.bytesOut,
            access_key=(exchange.accessKey or "")[:MAX_TEXT],
        )
