"""
Calls and requests that have ended, as they are recorded: plain values, for they go to another
process.
"""

from typing import Any, NamedTuple

MAX_PATH = 1024
"""Bytes of a path that are kept: records wait in memory."""

MAX_AGENT = 256
"""Characters of the name of a client's program that are kept, for the same reason."""


class Place(NamedTuple):
    """
    Where in a trace something is, and when it was.

    @ivar spanId: Its own span.
    @ivar parentId: The span that it belongs to, C{None} for the first of a trace.
    @ivar state: The C{tracestate}.
    @ivar endNs: When it ended, in nanoseconds since 1970.
    """

    traceId: str
    spanId: str
    parentId: str | None
    state: str
    endNs: int
    seconds: float


class CallRecord(NamedTuple):
    """
    A call of a service.

    @ivar error: The code of its error; C{None} if it went well.
    @ivar statusCode: The status of its answer over HTTP.
    @ivar extra: What the user's C{spanAttributes} gave.
    """

    protocol: str
    service: str
    method: str
    address: str
    port: int
    userAgent: str | None
    error: str | None
    statusCode: int
    extra: dict[str, Any] | None


class ExchangeRecord(NamedTuple):
    """A request of S3."""

    operation: str
    verb: bytes
    path: bytes
    address: str
    isSecure: bool
    status: int
    error: str | None
    bytesIn: int
    bytesOut: int
    requestId: str


class ForwardRecord(NamedTuple):
    """An attempt to have a call answered by somebody else."""

    service: str
    method: str
    host: str
    port: int
    error: str | None


Record = CallRecord | ExchangeRecord | ForwardRecord

CALL, EXCHANGE, FORWARD = range(3)

_KINDS: tuple[type[Record], ...] = (CallRecord, ExchangeRecord, ForwardRecord)

_PLACE_LENGTH = 1 + len(Place._fields)


def readRecord(item: list[Any]) -> tuple[Place, Record]:
    """
    Read what is recorded.

    @param item: C{CALL}, C{EXCHANGE} or C{FORWARD}; the fields of the place; those of the record.
        In one flat tuple: to make named ones costs as much as all the rest.
    """
    kind = _KINDS[item[0]]
    return Place._make(item[1:_PLACE_LENGTH]), kind._make(item[_PLACE_LENGTH:])
