"""
Requests of all wires, for the live view and the metrics of the console.

A L{RequestTap} observes completed S3 requests and calls of the gateway. The first request to the
console adds it, and it counts from then on; it makes events only while a stream is open in any
process.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define, field
from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.objects.accounts import Identity
from storagegate.objects.errors import AccessDenied, Refusal
from storagegate.telemetry.redaction import Redactor

MOST_EVENTS = 1000
"""Events per second and process; further events are dropped and counted."""

MOST_REFUSALS = 20
"""Kinds of refused requests that are kept for the overview, and kept in one second."""

_REFUSED = (401, 403, 429)
"""The statuses of refused requests."""

_GATHER_SECONDS = 0.02
"""The longest time that an event of the gateway waits for others."""

_MOST_TIMED = 100
"""Traces that are timed: more than all processes together call at once."""

_MOST_TEXT = 500
"""Largest length of a client's text, in characters; object keys are exempt."""

BOUNDS = tuple(20e-6 * 2 ** (step / 2) for step in range(42))
"""Upper bounds of the duration buckets, in seconds: 20 microseconds to 30 s."""


class ObservedRequest(Protocol):
    """A completed S3 request, as L{RequestTap} observes it; see the record of S3's observers."""

    @property
    def seconds(self) -> float:
        """Duration."""

    @property
    def status(self) -> int:
        """HTTP status; 499 if the client disconnected."""

    @property
    def errorCode(self) -> str | None:
        """The code of an error response."""

    @property
    def errorMessage(self) -> str | None:
        """The message of an error response."""

    @property
    def explain(self) -> Callable[[], Refusal] | None:
        """Finds the rule that refused the request, if access was denied."""

    @property
    def operation(self) -> str:
        """Amazon's name, or a placeholder if the request was refused before it matched one."""

    @property
    def accessKey(self) -> str | None:
        """The authenticated access key."""

    @property
    def clientHost(self) -> str:
        """The address of the client."""

    @property
    def bucket(self) -> str | None:
        """The bucket in the target."""

    @property
    def key(self) -> bytes | None:
        """The key in the target."""

    @property
    def bytesIn(self) -> int:
        """Bytes of the body that were read."""

    @property
    def bytesOut(self) -> int:
        """Bytes of the body that were sent."""

    @property
    def requestId(self) -> bytes:
        """The id of the request."""

    @property
    def traceId(self) -> bytes:
        """The trace id."""

    @property
    def agent(self) -> bytes:
        """C{User-Agent}."""

    def identify(self) -> tuple[str, str]:
        """Return operation and version id, if the request names them."""


class RequestEvent(Struct, omit_defaults=True):
    """
    A completed request.

    @ivar atMs: The time of its end.
    @ivar wire: C{s3}, or the transport of the gateway.
    @ivar worker: The index of the process.
    @ivar operation: Amazon's name, or C{Service.method}.
    @ivar status: HTTP status, also for other wires; 499 if the client disconnected.
    @ivar ms: Duration.
    @ivar code: Error code; empty for none.
    @ivar reason: Error message, as the client received it.
    @ivar rule: The rule that refused the request, if access was denied.
    @ivar statement: The number of the statement of the bucket's policy that refused it, from 1.
    @ivar count: Of a kept refusal: the requests that were refused alike, this one included.
    @ivar accessKey: The authenticated access key.
    @ivar user: The name that the gateway's token provider gives the user.
    @ivar bytesIn: Bytes of the body that were read; S3 only.
    @ivar bytesOut: Bytes of the body that were sent; S3 only.
    """

    atMs: int
    wire: str
    worker: int
    operation: str
    status: int
    ms: float
    code: str = ""
    reason: str = ""
    accessKey: str = ""
    user: str = ""
    address: str = ""
    bucket: str = ""
    key: str = ""
    bytesIn: int = 0
    bytesOut: int = 0
    requestId: str = ""
    trace: str = ""
    agent: str = ""
    rule: str = ""
    statement: int = 0
    count: int = 1


class RequestFilter(Struct, frozen=True, omit_defaults=True):
    """
    The filter of a stream; an empty text matches any value.

    @ivar wire: C{s3}, C{http}, C{websocket}, C{grpc}, C{udp} or C{tcp}.
    @ivar operation: Amazon's name, or C{Service.method}.
    @ivar status: C{404}, C{4xx}, or C{error} for 400 and above.
    @ivar key: An access key.
    @ivar prefix: A prefix of the object's key.
    @ivar slowerThanMs: Only requests with at least this duration.
    """

    wire: str = ""
    operation: str = ""
    status: str = ""
    key: str = ""
    bucket: str = ""
    prefix: str = ""
    slowerThanMs: float = 0.0

    def matches(self, event: RequestEvent) -> bool:
        """Return whether the filter matches a request."""
        return (
            (not self.wire or event.wire == self.wire)
            and (not self.operation or event.operation == self.operation)
            and (not self.bucket or event.bucket == self.bucket)
            and (not self.key or event.accessKey == self.key)
            and event.ms >= self.slowerThanMs
            and event.key.startswith(self.prefix)
            and (not self.status or _hasStatus(event.status, self.status))
        )


ANY = RequestFilter()


def _hasStatus(status: int, wanted: str) -> bool:
    if wanted == "error":
        return status >= 400
    return str(status) == wanted or wanted == f"{status // 100}xx"


def _explained(event: RequestEvent, explain: Callable[[], Refusal] | None) -> RequestEvent:
    """Add the rule that refused a request to its event."""
    if explain is not None:
        refusal = explain()
        event.rule, event.statement = refusal.rule[:_MOST_TEXT], refusal.statement
    return event


@define(eq=False)
class WireCounts:
    """
    The requests of a wire since the last collection.

    @ivar errors: Requests with a status of 400 or above.
    @ivar durations: Requests per bucket of L{BOUNDS}, and in the last place those above all bounds.
    """

    requests: int = 0
    errors: int = 0
    bytesIn: int = 0
    bytesOut: int = 0
    durations: list[int] = field(factory=lambda: [0] * (len(BOUNDS) + 1))


class RequestTap:
    """
    Counts requests, and makes events for open streams. Must run in the reactor thread.

    @ivar filters: The filters of all open streams; L{None} without streams.
    @ivar refusals: The last refused request of each kind, oldest first.
    @ivar timed: The traces whose calls are timed: L{None} until the call has ended, then when it
        began, in seconds since the epoch, and how long it took, in seconds.
    @ivar redact: Removes secrets from a client's text.
    """

    def __init__(
        self,
        clock: IReactorTime,
        worker: int,
        publish: Callable[[list[RequestEvent], int], object],
        now: Callable[[], float],
    ) -> None:
        """
        @param worker: The index of this process.
        @param publish: Called with events, and the number of events dropped before them.
        @param now: Returns seconds since the epoch.
        """
        self.filters: Sequence[RequestFilter] | None = None
        self.refusals: dict[tuple[object, ...], RequestEvent] = {}
        self.timed: dict[str, tuple[float, float] | None] = {}
        self.redact: Callable[[str], str] = Redactor().redact
        self._clock = clock
        self._worker = worker
        self._publish = publish
        self._now = now
        self._s3 = WireCounts()
        self._wires = {"s3": self._s3}
        self._second = -1
        self._made = 0
        # The kinds of refusals of this second.
        self._kinds: set[tuple[object, ...]] = set()
        self._dropped = 0
        self._gathered: list[RequestEvent] = []
        self._timer: IDelayedCall | None = None

    def takeCounts(self) -> dict[str, WireCounts]:
        """Return the counts of each wire that has had requests since the last call."""
        taken = {name: counts for name, counts in self._wires.items() if counts.requests}
        self._s3 = WireCounts()
        self._wires = {"s3": self._s3}
        return taken

    def time(self, trace: str) -> None:
        """Time the next call with a trace; the oldest trace that is timed gives way."""
        if len(self.timed) >= _MOST_TIMED:
            del self.timed[next(iter(self.timed))]
        self.timed[trace] = None

    def stop(self) -> None:
        """Cancel the timer."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def observe(self, records: Sequence[ObservedRequest]) -> None:
        """Count completed S3 requests, and make their events."""
        counts = self._s3
        durations = counts.durations
        counts.requests += len(records)
        for record in records:
            durations[bisect_left(BOUNDS, record.seconds)] += 1
            counts.bytesIn += record.bytesIn
            counts.bytesOut += record.bytesOut
            if record.status >= 400:
                counts.errors += 1
                if record.status in _REFUSED:
                    kind = (record.errorCode, record.operation, record.accessKey, record.bucket)
                    self._keep(kind, partial(self._s3Event, record), record.explain)
        if self.filters is None:
            return
        events: list[RequestEvent] = []
        for record in records:
            if self._isFull() and ANY in self.filters:
                self._dropped += 1
            else:
                self._admit(self._s3Event(record), record.explain, events)
        self._send(events)

    def callStarted(self, context: RequestContext) -> None:
        """Do nothing: a call is counted when it ends."""

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Count a completed call of the gateway, and make its event."""
        counts = self._wires.get(context.protocol)
        if counts is None:
            counts = self._wires[context.protocol] = WireCounts()
        counts.requests += 1
        counts.durations[bisect_left(BOUNDS, seconds)] += 1
        if self.timed and context.tracing.traceId in self.timed:
            self.timed[context.tracing.traceId] = self._now() - seconds, seconds
        explain = None
        if error is not None:
            counts.errors += 1
            if isinstance(error.__cause__, AccessDenied):
                explain = error.__cause__.explain
            if error.statusCode in _REFUSED:
                kind = (error.code, context.protocol, context.service, context.method)
                self._keep(kind, partial(self._callEvent, context, error, seconds), explain)
        if self.filters is None:
            return
        if self._isFull() and ANY in self.filters:
            self._dropped += 1
        else:
            self._admit(self._callEvent(context, error, seconds), explain, self._gathered)
        if self._timer is None:
            self._timer = self._clock.callLater(_GATHER_SECONDS, self._timedOut)

    def _timedOut(self) -> None:
        self._timer = None
        events, self._gathered = self._gathered, []
        self._send(events)

    def _isFull(self) -> bool:
        """Return whether the events of this second are used up."""
        self._turn()
        return self._made >= MOST_EVENTS

    def _keep(
        self,
        kind: tuple[object, ...],
        make: Callable[[], RequestEvent],
        explain: Callable[[], Refusal] | None,
    ) -> None:
        """
        Keep a refused request as the last one of its kind. Of each kind, a second has one event:
        a flood only counts.

        @param make: Makes the event.
        @param explain: Finds the rule that refused the request.
        """
        self._turn()
        known = self.refusals.get(kind)
        if known is not None and kind in self._kinds:
            known.count += 1
            return
        if len(self._kinds) >= MOST_REFUSALS:
            return
        self._kinds.add(kind)
        event = _explained(make(), explain)
        if known is not None:
            event.count += known.count
            del self.refusals[kind]
        self.refusals[kind] = event
        if len(self.refusals) > MOST_REFUSALS:
            del self.refusals[next(iter(self.refusals))]

    def _turn(self) -> None:
        """Begin a new second, if it has come."""
        second = int(self._clock.seconds())
        if second != self._second:
            self._second, self._made = second, 0
            self._kinds.clear()

    def _admit(
        self,
        event: RequestEvent,
        explain: Callable[[], Refusal] | None,
        events: list[RequestEvent],
    ) -> None:
        """
        Add an event that matches a stream, if the limit allows it.

        @param explain: Finds the rule that refused the request, which takes longer than the event.
        """
        if not any(each.matches(event) for each in self.filters or ()):
            return
        if self._made >= MOST_EVENTS:
            self._dropped += 1
        else:
            self._made += 1
            events.append(_explained(event, explain))

    def _send(self, events: list[RequestEvent]) -> None:
        dropped, self._dropped = self._dropped, 0
        if events or dropped:
            self._publish(events, dropped)

    def _s3Event(self, record: ObservedRequest) -> RequestEvent:
        return RequestEvent(
            int(self._now() * 1000),
            "s3",
            self._worker,
            record.identify()[0],
            record.status,
            round(record.seconds * 1000, 3),
            record.errorCode or "",
            (record.errorMessage or "")[:_MOST_TEXT],
            (record.accessKey or "")[:_MOST_TEXT],
            "",
            record.clientHost,
            (record.bucket or "")[:_MOST_TEXT],
            "" if record.key is None else self.redact(record.key.decode("utf-8", "replace")),
            record.bytesIn,
            record.bytesOut,
            record.requestId.decode("ascii"),
            record.traceId.decode("ascii"),
            self.redact(record.agent[: 4 * _MOST_TEXT].decode("latin-1"))[:_MOST_TEXT],
        )

    def _callEvent(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> RequestEvent:
        user: Any = context.authentication
        client = context.client
        event = RequestEvent(
            int(self._now() * 1000),
            context.protocol,
            self._worker,
            f"{context.service}.{context.method}"[:_MOST_TEXT],
            200 if error is None else error.statusCode,
            round(seconds * 1000, 3),
            address=client.address,
            trace=context.tracing.traceId[:_MOST_TEXT],
            agent=self.redact((client.userAgent or "")[: 4 * _MOST_TEXT])[:_MOST_TEXT],
        )
        if error is not None:
            event.code, event.reason = error.code, error.message[:_MOST_TEXT]
        if isinstance(user, Identity):
            # Only an identity is a key of the store: a token may claim any name.
            event.accessKey = user.accessKey
        elif user is not None:
            from storagegate.gateway.monitoring import userName

            event.user = userName(user)
        return event
