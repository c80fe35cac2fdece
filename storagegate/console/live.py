"""
C{GET events}: live events of all processes, as one C{text/event-stream}.

The events, each with one line of JSON::

    refusals   {items}: at first, the last refused requests that the daemon keeps, newest first
    requests   a RequestEvent, see storagegate.console.requesttap
    health     {status, error, parts, warnings}: at first, and when it changes
    jobs       {items}: at first, and when one of them changes
    metrics    {endMs, values}: the figures of a step, each five seconds
    dropped    {total}: how many events this stream has not received so far
    signedout  {}: the session or the key has ended; the stream ends

A stream ends within two seconds of its key or session. For a client that does not read, it buffers
at most L{MOST_BEHIND} bytes; further events are dropped and counted.
"""

from collections import deque
from math import isfinite
from typing import Any

import msgspec
from attrs import define, field
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from storagegate.console.call import ANSWERED, ConsoleCall, Principal, placesFor
from storagegate.console.history import STEP_SECONDS
from storagegate.console.jobs import listJobs
from storagegate.console.judging import HIDDEN_STATEMENT
from storagegate.console.overview import showHealth
from storagegate.console.requesttap import MOST_EVENTS, RequestEvent, RequestFilter
from storagegate.console.services import ConsoleServices
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.task import fromCoroutine
from storagegate.net.http.interfaces import ClientLost
from storagegate.storage.errors import StoreError

MOST_STREAMS = 16
"""The limit for all processes: each stream is checked every second."""

MOST_BEHIND = 1 << 20
"""Bytes that a stream buffers for its client."""

COMMENT_SECONDS = 15
"""The interval of comments, so that a proxy does not close an idle stream."""

_CHUNK = 64 * 1024

_ROLES = {"requests": "none", "health": "auditor", "jobs": "none", "metrics": "auditor"}
"""The topics, and the role that each requires."""

_CHECK_SECONDS = 1.0

_ABORT_SECONDS = 0.4
"""Together with the key poll and the check, less than two seconds."""


class EventsQuery(RequestFilter, frozen=True, forbid_unknown_fields=True):
    """
    The filter of a stream; all fields but C{topics} apply to requests.

    @ivar topics: Separated by commas: C{requests}, C{health}, C{jobs}, C{metrics}.
    """

    topics: str = "requests"


async def streamEvents(call: ConsoleCall, query: EventsQuery) -> Any:
    """Respond with a stream of events."""
    topics = frozenset(filter(None, query.topics.split(",")))
    if not topics or not topics <= _ROLES.keys():
        raise codedError("INVALID_ARGUMENT", f"topics must be a list of {', '.join(_ROLES)}")
    if not isfinite(query.slowerThanMs):
        raise codedError("INVALID_ARGUMENT", "slowerThanMs is a number")
    for topic in topics:
        call.require(_ROLES[topic])
    if call.request.method == "HEAD":
        call.response.end()
        return ANSWERED
    values = msgspec.structs.asdict(query)
    del values["topics"]
    live = call.services.keep("live", lambda: LiveStreams(call.services))
    await live.serve(LiveStream(call, topics, RequestFilter(**values)))
    return ANSWERED


@define(eq=False)
class LiveStream:
    """
    A stream of events to one client.

    @ivar dropped: Events that were not sent.
    @ivar behind: Bytes that wait for the client.
    """

    call: ConsoleCall
    topics: frozenset[str]
    filter: RequestFilter
    dropped: int = field(default=0, init=False)
    behind: int = field(default=0, init=False)
    _waiting: deque[bytes] = field(factory=deque, init=False)
    _isWriting: bool = field(default=False, init=False)
    _isOver: bool = field(default=False, init=False)
    _wake: Deferred[None] | None = field(default=None, init=False)
    _second: int = field(default=-1, init=False)
    _sent: int = field(default=0, init=False)
    _told: int = field(default=0, init=False)
    _last: dict[str, bytes] = field(factory=dict, init=False)
    _isChecking: bool = field(default=False, init=False)
    _seconds: int = field(default=0, init=False)

    # Sending

    async def run(self) -> None:
        """Send queued events until the stream or the connection ends."""
        response = self.call.response
        response.raw.onDisconnect(self.end)
        response.header(
            # Otherwise nginx would buffer the stream.
            {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        )
        self._put(b": storagegate\n\n")
        try:
            while self._waiting or not self._isOver:
                if not self._waiting:
                    self._wake = Deferred()
                    await self._wake
                    continue
                chunk = self._take()
                self._isWriting = True
                await response.write(chunk)
                self._isWriting = False
                self.behind -= len(chunk)
            response.end()
        except ClientLost:
            self._isOver = True

    def push(self, name: str, value: Any) -> None:
        """Send an event; it is dropped if the client is too far behind."""
        self._put(b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value)))

    def end(self) -> None:
        """End the stream after the queued events; abort it soon if the client does not read."""
        self._isOver = True
        self._awake()
        if self._isWriting and not self.call.response.raw.disconnected:
            self.call.services.reactor.callLater(_ABORT_SECONDS, self._abort)

    def _abort(self) -> None:
        raw = self.call.response.raw
        if not (raw.finished or raw.disconnected):
            raw.abort()

    def offer(self, events: list[RequestEvent], second: int) -> None:
        """
        Send the requests that match the stream's filter.

        @param second: The current second; each second has at most L{MOST_EVENTS} requests.
        """
        if second != self._second:
            self._second, self._sent = second, 0
        for event in filter(self._matches, events):
            if self._sent >= MOST_EVENTS:
                self.dropped += 1
                continue
            self._sent += 1
            self.push("requests", self._redacted(event))

    def recall(self, refusals: list[RequestEvent]) -> None:
        """Send the kept refusals that match the stream's filter, if there are any."""
        found = [self._redacted(each) for each in refusals if self._matches(each)]
        if found:
            self.push("refusals", {"items": found})

    def _put(self, wire: bytes) -> None:
        if self._isOver:
            return
        if self.behind + len(wire) > MOST_BEHIND:
            self.dropped += 1
            return
        self.behind += len(wire)
        self._waiting.append(wire)
        self._awake()

    def _take(self) -> bytes:
        """Take the next chunk to send."""
        pieces = [self._waiting.popleft()]
        size = len(pieces[0])
        while self._waiting and size + len(self._waiting[0]) <= _CHUNK:
            size += len(self._waiting[0])
            pieces.append(self._waiting.popleft())
        return b"".join(pieces)

    def _awake(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.callback(None)

    # Permissions

    def _matches(self, event: RequestEvent) -> bool:
        """Return whether the filter and the caller's role let a request through."""
        principal = self.call.who
        if not self.filter.matches(event):
            return False
        # Another key of the account may have access that this key lacks.
        return principal.has("auditor") or event.accessKey == principal.identity.accessKey

    def _redacted(self, event: RequestEvent) -> RequestEvent:
        """Return a request as the caller may see it."""
        if event.statement and not self.call.who.has("auditor"):
            # The policy may be of another account's bucket.
            return replace(event, rule=HIDDEN_STATEMENT.rule, statement=0)
        return event

    async def _present(self) -> Principal | None:
        """Return the current principal; L{None} if its key or session has ended."""
        before = self.call.who
        services = self.call.services
        key = services.accounts.renew(before.key)
        if key is None:
            return None
        session = before.session
        if session is None:
            return Principal(key, None) if key.secretKey == before.key.secretKey else None
        if not session.isOf(key) or not await services.kept["console"].sessions.exists(session.id):
            return None
        return Principal(key, session)

    # Checks, once a second

    async def check(self) -> None:
        """Send the changes, or end the stream with the session."""
        if self._isChecking or self._isOver:
            return
        self._isChecking = True
        try:
            principal = await self._present()
            if principal is None or not all(principal.has(_ROLES[each]) for each in self.topics):
                self._signOut()
                return
            self.call.principal = principal
            await self._sendChanges()
        except (StoreError, ServiceError):
            # The rights of the key are unknown.
            self.end()
        finally:
            self._isChecking = False

    def _signOut(self) -> None:
        """Drop the queued events, and send only the end of the session."""
        self.behind -= sum(map(len, self._waiting))
        self._waiting.clear()
        self.push("signedout", {})
        self.end()

    async def _sendChanges(self) -> None:
        self._seconds += 1
        if self._seconds % COMMENT_SECONDS == 0:
            self._put(b": \n\n")
        if self.dropped != self._told and self.behind < MOST_BEHIND - _CHUNK:
            self._told = self.dropped
            self.push("dropped", {"total": self.dropped})
        services = self.call.services
        if "health" in self.topics:
            self._pushChanged("health", showHealth(services))
        if "metrics" in self.topics:
            history = services.monitor.history
            last = {name: each[-1] for name, each in history.series(STEP_SECONDS).items() if each}
            endMs = history.last * STEP_SECONDS * 1000
            self._pushChanged("metrics", {"endMs": endMs, "values": last})
        if "jobs" in self.topics:
            self._pushChanged("jobs", await listJobs(self.call))

    def _pushChanged(self, name: str, value: Any) -> None:
        encoded = msgspec.json.encode(value)
        if self._last.get(name) != encoded:
            self._last[name] = encoded
            self.push(name, value)


class LiveStreams:
    """The streams of this process. Must run in the reactor thread."""

    _log = Logger()

    def __init__(self, services: ConsoleServices) -> None:
        self._services = services
        self._streams: list[LiveStream] = []
        self._ticks = LoopingCall(self._tick)
        self._ticks.clock = services.reactor
        services.monitor.publish = self._publish

    async def serve(self, stream: LiveStream) -> None:
        """
        Serve a stream until it ends.

        @raise ServiceError: C{RATE_LIMITED}: too many streams are open.
        """
        monitor = self._services.monitor
        if len(self._streams) + monitor.streamsElsewhere() >= MOST_STREAMS:
            raise codedError("RATE_LIMITED", f"{MOST_STREAMS} streams are already open")
        who = stream.call.who
        name = who.identity.accessKey
        most = placesFor(who.role, MOST_STREAMS)
        if sum(each.call.who.identity.accessKey == name for each in self._streams) >= most:
            raise codedError("RATE_LIMITED", f"{most} streams of this key are already open")
        self._streams.append(stream)
        self._watch()
        if not self._ticks.running:
            self._ticks.start(_CHECK_SECONDS, now=False)
        self._check(stream)
        try:
            if "requests" in stream.topics:
                stream.recall(await monitor.refusals())
            await stream.run()
        finally:
            self._streams.remove(stream)
            self._watch()
            if not self._streams and self._ticks.running:
                self._ticks.stop()

    def close(self) -> None:
        """End all streams."""
        for stream in [*self._streams]:
            stream.end()

    def _watch(self) -> None:
        filters = {each.filter for each in self._streams if "requests" in each.topics}
        self._services.monitor.watch(len(self._streams), list(filters))

    def _tick(self) -> None:
        self._watch()
        for stream in [*self._streams]:
            self._check(stream)

    def _check(self, stream: LiveStream) -> None:
        def failed(failure: Any) -> None:
            self._log.failure("a live stream could not be checked", failure)
            stream.end()

        fromCoroutine(stream.check()).addErrback(failed)

    def _publish(self, events: list[RequestEvent], dropped: int) -> None:
        """Offer requests to all streams."""
        second = int(self._services.reactor.seconds())
        for stream in [*self._streams]:
            if "requests" not in stream.topics:
                continue
            stream.dropped += dropped
            stream.offer(events, second)
