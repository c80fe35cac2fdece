"""What is counted of S3 requests."""

from collections.abc import Iterator, Sequence

from storagegate.core.meters import OTHER, Family, Meters, gaugeFamily
from storagegate.s3.errors import CODES
from storagegate.s3.observing import Exchange, Observation

_MAX_SETS = 3000
"""All operations with every status that they may have; the default would do for half of them."""


class S3Metrics:
    """
    An observer that counts requests by operation.

    Of those that it is told of together, those that are alike are added at once.
    """

    def __init__(self, meters: Meters, observation: Observation) -> None:
        self._observation = observation
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
        meters.watch(self._look)

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Count their ends."""
        alike: dict[tuple[str, int, str | None], list[Exchange]] = {}
        for exchange in exchanges:
            key = (exchange.operation, exchange.status, exchange.errorCode)
            known = alike.get(key)
            if known is None:
                alike[key] = [exchange]
            else:
                known.append(exchange)
        for (operation, status, code), those in alike.items():
            self._requests.add(len(those), (operation, str(status)))
            self._durations.observeAll([each.seconds for each in those], (operation,))
            received = sum([each.bytesIn for each in those])
            if received:
                self._bytes.add(received, (operation, "in"))
            sent = sum([each.bytesOut for each in those])
            if sent:
                self._bytes.add(sent, (operation, "out"))
            if code is not None:
                self._errors.add(len(those), (code if code in CODES else OTHER,))

    def _look(self) -> Iterator[Family]:
        """Count what waits, and tell what is under way."""
        self._observation.tell()
        yield gaugeFamily(
            "storagegate_s3_requests_in_flight",
            "S3 requests that are being answered.",
            self._observation.inFlight,
        )
