"""
Calls of methods from the console, over a real wire: the daemon is a client of its own listener.

The response is a stream of JSON lines::

    {"at": "item", "data": ..., "ms": 1.5, "bytes": 20}                 the result, or an item
    {"at": "end", "data": null, "ms": 1.6, "bytes": 20}                 the end; all bytes together
    {"at": "error", "data": {error, message, details?}, "ms", "bytes"}  the end of a call that fails

C{ms} is the time since the call began. The credentials come from the request, never from the
session.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

import msgspec
from attrs import define
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.error import ConnectError, ConnectingCancelledError, ConnectionLost
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.console.call import ANSWERED, ConsoleCall
from storagegate.console.callers.interfaces import (
    MAX_BYTES,
    CallTarget,
    MethodCall,
    WireCaller,
    tooLarge,
)
from storagegate.console.objects import checkStill
from storagegate.console.services import ConsoleServices
from storagegate.core.errors import (
    GrpcError,
    ServiceError,
    asServiceError,
    codedError,
    errorBody,
)
from storagegate.core.task import callInThread
from storagegate.gateway.transports.registry import (
    GRPC,
    findTransport,
    loadReference,
    transportNames,
)
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.lines import NDJSON

MAX_ITEMS = 1000
"""Requests of a call, and items of its response: more than a person reads."""

MAX_DEADLINE_MS = 60_000

_AT_ONCE = 16
"""Concurrent calls of the console."""

_WATCH_SECONDS = 1.0
"""Interval between checks of the key and the session of a call in flight."""

_GRACE_SECONDS = 0.5
"""Time for the listener itself to report that the deadline has passed."""

_CALLERS = "storagegate.console.callers.{}:makeCall"
"""The caller of a wire, imported with the first call."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_log = Logger()


class CallRequest(Struct, forbid_unknown_fields=True):
    """
    A call.

    @ivar wire: The name of a transport.
    @ivar requests: One request, or the requests of a stream; an empty list stands for one empty
        object.
    @ivar metadata: See L{MethodCall}.
    @ivar deadlineMs: At most 60,000.
    """

    wire: str
    service: str
    method: str
    requests: list[Any] = []
    metadata: dict[str, str] = {}
    token: str = ""
    deadlineMs: int = 10_000


@define(eq=False)
class CallSlots:
    """Counts the calls in flight."""

    taken: int = 0


def findTarget(services: ConsoleServices, wire: str) -> CallTarget:
    """
    Find the listener of a wire.

    @raise ServiceError: C{NOT_FOUND}: the listener is not open; C{INVALID_ARGUMENT}: the wire does
        not exist.
    """
    if wire not in transportNames():
        raise codedError("INVALID_ARGUMENT", f"wire must be one of {', '.join(transportNames())}")
    daemon = services.daemon.gateway
    row = findTransport(wire)
    port = None if daemon is None else daemon.ports.get(row.shares or wire)
    if port is None or wire not in daemon.gateway.settings.enabled:
        raise codedError("NOT_FOUND", f"The {row.title} listener is not enabled")
    gateway = daemon.gateway
    options = gateway.settings.of(wire)
    apiKeys = gateway.authentication.providers.get("apikey")
    methods: Mapping[tuple[str, str], Any] = {}
    if wire == GRPC.name:
        methods = gateway.start().get(wire).methods
    return CallTarget(
        services.reactor,
        port.getHost(),
        getattr(options, "basePath", getattr(options, "path", "")),
        getattr(port, "certificates", None) is not None,
        getattr(gateway.settings.of(row.shares or wire), "tls", None),
        getattr(apiKeys, "header", "X-API-Key"),
        methods,
    )


async def _findCaller(services: ConsoleServices, wire: str) -> WireCaller:
    """
    Return the caller of a wire.

    @raise ServiceError: C{INVALID_ARGUMENT}: a plugin provides the wire, and the console cannot
        call it.
    """
    found: dict[str, WireCaller] = services.keep("callers", dict)
    if wire not in found:
        names = [name for name in transportNames() if name in services.daemon.gateway.gateway.ports]
        # Import all callers, so that no measured call waits for an import.
        found.update(await callInThread(services.reactor, _loadCallers, names))
    if wire not in found:
        raise codedError("INVALID_ARGUMENT", f"The console has no client of {wire}")
    return found[wire]


def _loadCallers(wires: Iterable[str]) -> dict[str, WireCaller]:
    """Import callers. May run in any thread: it takes a third of a second."""
    found = {}
    for wire in wires:
        reference = _CALLERS.format(wire)
        if find_spec(reference.partition(":")[0]) is not None:
            found[wire] = loadReference(reference)
    return found


def _makeCall(services: ConsoleServices, body: CallRequest) -> MethodCall:
    """
    Check a call.

    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    if len(body.requests) > MAX_ITEMS:
        raise codedError("INVALID_ARGUMENT", f"A call must not have more than {MAX_ITEMS} requests")
    if not 0 < body.deadlineMs <= MAX_DEADLINE_MS:
        raise codedError("INVALID_ARGUMENT", f"deadlineMs is 1 to {MAX_DEADLINE_MS}")
    if not body.token.isprintable() or _CONTROL.search(body.service + body.method):
        raise codedError("INVALID_ARGUMENT", "Names and tokens must not contain control characters")
    streams = False
    try:
        found = services.daemon.gateway.gateway.invoker.find(body.service, body.method)
    except ServiceError:
        # The listener itself reports the unknown method.
        pass
    else:
        streams = found.streamsRequests
    if not streams and len(body.requests) > 1:
        raise codedError("INVALID_ARGUMENT", "The method requires exactly one request")
    return MethodCall(
        body.service,
        body.method,
        body.requests,
        body.metadata,
        body.token,
        body.deadlineMs,
        streams,
    )


async def callMethod(call: ConsoleCall, body: CallRequest) -> Any:
    """
    Call a method over a wire.

    @raise ServiceError: Before the call: C{INVALID_ARGUMENT}, C{NOT_FOUND} for the wire,
        C{RATE_LIMITED} with too many calls in flight. The call's own error is sent as a line.
    """
    call.note(wire=body.wire, service=body.service[:200], method=body.method[:200])
    target = findTarget(call.services, body.wire)
    made = _makeCall(call.services, body)
    slots: CallSlots = call.services.keep("calls", CallSlots)
    if slots.taken >= _AT_ONCE:
        raise codedError(
            "RATE_LIMITED", f"{_AT_ONCE} calls are already in flight", {"retryAfterMs": 1000}
        )
    slots.taken += 1
    try:
        caller = await _findCaller(call.services, body.wire)
        answers = _Answers(call, target.reactor)
        running: Deferred[None] = Deferred.fromCoroutine(answers.relay(caller, target, made))
        call.request.raw.onDisconnect(running.cancel)
        running.addTimeout(body.deadlineMs / 1000 + _GRACE_SECONDS, target.reactor)
        watching = Deferred.fromCoroutine(answers.watch(call, running))
        watching.addErrback(lambda failure: failure.trap(CancelledError))
        try:
            await answers.finish(running)
        finally:
            watching.cancel()
    finally:
        slots.taken -= 1
    return ANSWERED


class _Answers:
    """The response lines of a call."""

    def __init__(self, call: ConsoleCall, clock: Any) -> None:
        self._response = call.response
        self._response.header("Content-Type", NDJSON)
        # A proxy must not buffer lines.
        self._response.header("X-Accel-Buffering", "no")
        self._clock = clock
        self._began = clock.seconds()
        self._bytes = self._items = 0
        # The reason why the call may not continue.
        self._refusal: ServiceError | None = None

    async def relay(self, caller: WireCaller, target: CallTarget, made: MethodCall) -> None:
        """Make the call, and relay its results."""
        async with aclosing(caller(target, made)) as answers:
            async for data, size in answers:
                self._bytes += size
                self._items += 1
                if self._bytes > MAX_BYTES:
                    raise tooLarge()
                if self._items > MAX_ITEMS:
                    most = f"Only the first {MAX_ITEMS} items are shown"
                    raise codedError("RESPONSE_TOO_LARGE", most)
                await self._send("item", data, size)

    async def watch(self, call: ConsoleCall, running: Deferred[None]) -> None:
        """Cancel the call when the key or the session that made it ends."""
        while True:
            await deferLater(self._clock, _WATCH_SECONDS)
            try:
                await checkStill(call)
            except ServiceError as error:
                self._refusal = error
                running.cancel()
                return

    async def finish(self, running: Deferred[None]) -> None:
        """Wait for the end of the call, and send it as the last line."""
        problem: ServiceError | None = None
        try:
            await running
        except ClientLost:
            return
        except (CancelledError, ConnectingCancelledError):
            if self._response.raw.disconnected:
                # The browser has disconnected.
                return
            problem = self._refusal or codedError("CANCELLED", "The call was cancelled")
        except TimeoutError:
            problem = codedError("DEADLINE_EXCEEDED", "The call did not end before its deadline")
        except (ServiceError, GrpcError) as error:
            problem = asServiceError(error)
        except (ConnectError, ConnectionLost, OSError) as error:
            problem = codedError("UNAVAILABLE", f"{type(error).__name__}: {error!s:.200}")
        except Exception as error:
            _log.failure("a call of the console failed")
            problem = asServiceError(error)
        try:
            if problem is None:
                await self._send("end", None, self._bytes)
            else:
                await self._send("error", errorBody(problem), self._bytes)
            self._response.end()
        except ClientLost:
            return

    async def _send(self, at: str, data: Any, size: int) -> None:
        ms = round((self._clock.seconds() - self._began) * 1000, 2)
        line = {"at": at, "data": data, "ms": ms, "bytes": size}
        await self._response.write(msgspec.json.encode(line, enc_hook=str) + b"\n")
