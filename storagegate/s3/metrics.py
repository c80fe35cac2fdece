"""What is counted of S3 requests: 0.8 microseconds of each."""

from storagegate.core.meters import OTHER, Meters
from storagegate.s3.errors import CODES
from storagegate.s3.observing import Exchange

_MAX_SETS = 3000
"""All operations with every status that they may have; the default would do for half of them."""


class S3Metrics:
    """An observer that counts requests by operation."""

    def __init__(self, meters: Meters) -> None:
        self._requests = meters.counter(
            "storagegate_s3_requests_total",
            "S3 requests by operation and status; 499 for a client that went away.",
            ("operation", "status"),
        )
        self._requests.maxSets = _MAX_SETS
        self._durations = meters.histogram(
            "storagegate_s3_request_duration_seconds",
            "From a request's head until its whole answer was out.",
            ("operation",),
        )
        self._bytes = meters.counter(
            "storagegate_s3_bytes_total",
            "Bytes of bodies that were read, and that went out.",
            ("operation", "direction"),
        )
        self._errors = meters.counter(
            "storagegate_s3_errors_total", "Answers that were errors, by code.", ("code",)
        )
        self._inFlight = meters.gauge(
            "storagegate_s3_requests_in_flight", "S3 requests that are being answered."
        )
        self._inFlight.add(0)

    def began(self, exchange: Exchange) -> None:
        """Count a request."""
        self._inFlight.add(1)

    def ended(self, exchange: Exchange, seconds: float) -> None:
        """Count its end."""
        operation = exchange.operation
        self._inFlight.add(-1)
        self._requests.add(1, (operation, str(exchange.status)))
        self._durations.observe(seconds, (operation,))
        if exchange.bytesIn:
            self._bytes.add(exchange.bytesIn, (operation, "in"))
        if exchange.bytesOut:
            self._bytes.add(exchange.bytesOut, (operation, "out"))
        code = exchange.errorCode
        if code is not None:
            self._errors.add(1, (code if code in CODES else OTHER,))
