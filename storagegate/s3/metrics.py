"""What is counted of S3 requests."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from storagegate.core.meters import (
    DURATION_BUCKETS,
    OTHER,
    Family,
    Labels,
    Meters,
    counterFamily,
    gaugeFamily,
)
from storagegate.s3.errors import CODES
from storagegate.s3.observing import Exchange, Observation

_MAX_TALLIES = 5000
"""More than all operations with every status and code that they may have."""

_BUCKETS = len(DURATION_BUCKETS) + 1
_SECONDS, _IN, _OUT = _BUCKETS, _BUCKETS + 1, _BUCKETS + 2

_Key = tuple[str, int, str | None]


class S3Metrics:
    """
    An observer that counts requests by operation.

    A request is added to one list of numbers, found by what it was and what became of it: half of
    the work of adding to each meter. They become meters when somebody looks.
    """

    def __init__(self, meters: Meters, observation: Observation) -> None:
        self._observation = observation
        self._tallies: dict[_Key, list[float]] = {}
        meters.watch(self._families)

    def ended(self, exchanges: Sequence[Exchange]) -> None:
        """Count their ends."""
        tallies = self._tallies
        for exchange in exchanges:
            key = (exchange.operation, exchange.status, exchange.errorCode)
            tally = tallies.get(key) or self._newTally(key)
            seconds = exchange.seconds
            tally[bisect_left(DURATION_BUCKETS, seconds)] += 1
            tally[_SECONDS] += seconds
            tally[_IN] += exchange.bytesIn
            tally[_OUT] += exchange.bytesOut

    def _newTally(self, key: _Key) -> list[float]:
        """Give the tally of what came for the first time."""
        operation, status, code = key
        if code is not None and code not in CODES:
            key = (operation, status, OTHER)
        if len(self._tallies) >= _MAX_TALLIES:
            key = (OTHER, 0, None)
        return self._tallies.setdefault(key, [0] * _BUCKETS + [0.0, 0, 0])

    def _families(self) -> Iterator[Family]:
        """Make the meters."""
        self._observation.tell()
        requests: dict[Labels, float] = {}
        sizes: dict[Labels, float] = {}
        errors: dict[Labels, float] = {}
        durations: dict[Labels, list[float]] = {}
        for (operation, status, code), tally in self._tallies.items():
            count = sum(tally[:_BUCKETS])
            _add(requests, (operation, str(status)), count)
            for direction, size in (("in", tally[_IN]), ("out", tally[_OUT])):
                if size:
                    _add(sizes, (operation, direction), size)
            if code is not None:
                _add(errors, (code,), count)
            known = durations.get((operation,), [0] * (_BUCKETS + 1))
            durations[(operation,)] = [a + b for a, b in zip(known, tally, strict=False)]
        yield counterFamily(
            "storagegate_s3_requests_total",
            "S3 requests by operation and status; 499 for a client that went away.",
            ("operation", "status"),
            requests.items(),
        )
        yield Family(
            "storagegate_s3_request_duration_seconds",
            "From a request's head until its whole answer was out.",
            "histogram",
            ("operation",),
            DURATION_BUCKETS,
            "sum",
            list(durations.items()),
        )
        yield counterFamily(
            "storagegate_s3_bytes_total",
            "Bytes of bodies that were read, and that went out.",
            ("operation", "direction"),
            sizes.items(),
        )
        yield counterFamily(
            "storagegate_s3_errors_total",
            "Answers that were errors, by code.",
            ("code",),
            errors.items(),
        )
        yield gaugeFamily(
            "storagegate_s3_requests_in_flight",
            "S3 requests that are being answered.",
            self._observation.inFlight,
        )


def _add(values: dict[Labels, float], labels: Labels, amount: float) -> None:
    values[labels] = values.get(labels, 0) + amount
