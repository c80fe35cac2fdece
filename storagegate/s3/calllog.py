"""One line of the log for each request of S3, like those of calls."""

from storagegate.core.calllines import MAX_TEXT, CallLines
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

    def __init__(self, lines: CallLines) -> None:
        self._write = lines.write

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
