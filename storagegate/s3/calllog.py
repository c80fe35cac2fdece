"""One line of the log for each request of S3, like those of calls."""

from collections.abc import Callable, Sequence
from time import time

from storagegate.core.calllines import MAX_TEXT, CallLines, Told
from storagegate.s3.observing import Exchange

NUMBERS = ("bytes_in", "bytes_out")
TEXTS = ("access_key",)
"""What L{S3Log} needs of L{CallLines} besides the fields."""

PROTOCOL = "s3"
SERVICE = "S3"


class S3Log:
    """
    An observer that logs the end of each request.

    The method is the operation and the status the code of the error, or that of HTTP; behind the
    fields stand C{bytes_in}, C{bytes_out} and the C{access_key}. Buckets and keys are not told:
    they are the business of whoever stores there.
    """

    def __init__(self, lines: CallLines, now: Callable[[], float] = time) -> None:
        """
        @param lines: Made with L{NUMBERS} and L{TEXTS}.
        """
        self._lines = lines
        self._now = now

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Log requests."""
        now = self._now()
        good: list[Told] = []
        bad: list[Told] = []
        for exchange in exchanges:
            status = exchange.status
            told = (
                now,
                PROTOCOL,
                SERVICE,
                exchange.operation,
                exchange.request.clientHost,
                exchange.seconds,
                exchange.errorCode or str(status),
                exchange.traceId,
                (exchange.bytesIn, exchange.bytesOut),
                ((exchange.accessKey or "")[:MAX_TEXT],),
            )
            (good if status < 400 else bad).append(told)
        self._lines.writeAll(good)
        self._lines.writeAll(bad, isGood=False)
