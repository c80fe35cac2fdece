"""One line of the log for each request of S3, like those of calls."""

from collections.abc import Callable, Sequence
from time import time

from storagegate.core.calllines import MAX_TEXT, CallLines, Told
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

    def __init__(self, lines: CallLines, now: Callable[[], float] = time) -> None:
        self._lines = lines
        self._now = now

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Log requests."""
        now = self._now()
        good: list[Told] = []
        bad: list[Told] = []
        for exchange in exchanges:
            status = exchange.status
            more = {
                "bytes_in": exchange.bytesIn,
                "bytes_out": exchange.bytesOut,
                "access_key": (exchange.accessKey or "")[:MAX_TEXT],
            }
            told = (
                now,
                PROTOCOL,
                SERVICE,
                exchange.operation,
                exchange.request.clientHost,
                exchange.seconds,
                exchange.errorCode or str(status),
                exchange.traceId,
                more,
            )
            (good if status < 400 else bad).append(told)
        for calls, isGood in ((good, True), (bad, False)):
            if calls and self._lines.wants(isGood):
                self._lines.writeAll(calls, isGood)
