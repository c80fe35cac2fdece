"""
Calls of methods from the console, over a real wire: the daemon is a client of its own listener.

The response is a stream of JSON lines::

    {"at": "item", "data": ..., "ms": 1.5, "bytes": 20}                 the result, or an item
    {"at": "end", "data": null, "ms": 1.6, "bytes": 20}                 the end; all bytes together
    {"at": "error", "data": {error, message, details?}, "ms", "bytes"}  the end of a call that fails

C{ms} is the time since the call began. The last line also has C{sendMs}, the time until the server
began the call, with the connection, and C{methodMs}, the time that the server took; both are absent
if the listener did not call the method. The line of an error has its gRPC status as C{status}:
protocols may name one error differently, such as C{VALIDATION_ERROR} and C{INVALID_ARGUMENT}. The
credentials come from the request, never from the
session.
"""

import re
from typing import Any

import msgspec
from attrs import define
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.console.call import ANSWERED, ConsoleCall
from storagegate.console.listeners import MAX_BYTES, GatewayListener, findListener, loadClients
from storagegate.console.objects import checkStill
from storagegate.console.services import ConsoleServices
from storagegate.core.errors import CODES, ServiceError, asServiceError, codedError, errorBody
from storagegate.core.options import makeOptions
from storagegate.core.task import callInThread
from storagegate.gateway.client.call import GatewayCall
from storagegate.gateway.client.client import (
    GatewayClientOptions,
    RemoteGateway,
    makeTransport,
    readCredential,
)
from storagegate.gateway.client.transports import tooLarge
from storagegate.gateway.transports.registry import findTransport
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.lines import NDJSON
from storagegate.storage.errors import StoreError
from storagegate.telemetry.tracecontext import formatTraceparent, newTracing, receiveTracing

MAX_ITEMS = 1000
"""Requests of a call, and items of its response: more than a person reads."""

MAX_DEADLINE_MS = 60_000

_AT_ONCE = 16
"""Concurrent calls of the console."""

_WATCH_SECONDS = 1.0
"""Interval between checks of the key and the session of a call in flight."""

_GRACE_SECONDS = 0.5
"""Time for the listener itself to report that the deadline has passed."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_log = Logger()


class CallRequest(Struct, forbid_unknown_fields=True):
    """
    A call.

    @ivar wire: The name of a transport.
    @ivar requests: One request, or the requests of a stream; an empty list stands for one empty
        object.
    @ivar metadata: Header fields of HTTP and WebSocket, metadata of gRPC; TCP and UDP carry only
        C{traceparent} and C{tracestate}. Without a trace, the call begins a sampled one.
    @ivar token: A token, or an API key; empty for none.
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


async def _loadClient(services: ConsoleServices, wire: str) -> None:
    """
    Import the client of a wire.

    @raise ServiceError: C{INVALID_ARGUMENT}: a plugin provides the wire, and it has no client.
    """
    loaded: set[str] = services.keep("clients", set)
    if wire not in loaded:
        # Import all clients, so that no measured call waits for an import.
        names = [*services.daemon.gateway.ports, wire]
        await callInThread(services.reactor, loadClients, names)
        loaded.add(wire)
    if findTransport(wire).client is None:
        raise codedError("INVALID_ARGUMENT", f"The console has no client of {wire}")


def _checkCall(services: ConsoleServices, body: CallRequest) -> bool:
    """
    Check a call.

    @return: Whether the method has a stream of requests.
    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    if len(body.requests) > MAX_ITEMS:
        raise codedError("INVALID_ARGUMENT", f"A call must not have more than {MAX_ITEMS} requests")
    if not 0 < body.deadlineMs <= MAX_DEADLINE_MS:
        raise codedError("INVALID_ARGUMENT", f"deadlineMs is 1 to {MAX_DEADLINE_MS}")
    isText = body.token.isprintable() and body.token.isascii()
    if not isText or _CONTROL.search(body.service + body.method):
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
    return streams


def _openClient(listener: GatewayListener, body: CallRequest) -> RemoteGateway:
    """
    Make a client for one call, without retries: the console shows the outcome of one attempt.

    @raise ServiceError: C{INVALID_ARGUMENT}: the metadata has an invalid header field.
    """
    transport = makeTransport(listener.wire, listener.target(body.metadata))
    given = {**readCredential(body.token), "apiKeyHeader": listener.apiKeyHeader, "retries": 0}
    options = makeOptions(GatewayClientOptions, given)
    return RemoteGateway(transport, listener.reactor, options, _GRACE_SECONDS)


def _beginCall(
    client: RemoteGateway, listener: GatewayListener, body: CallRequest, streams: bool
) -> GatewayCall:
    """
    Begin the call.

    @param streams: Whether the method has a stream of requests.
    """
    data = None if streams or not body.requests else body.requests[0]
    return client.call(
        body.service,
        body.method,
        data,
        requests=body.requests if streams else None,
        deadlineMs=body.deadlineMs,
        metadata=listener.callMetadata(body.metadata),
    )


async def callMethod(call: ConsoleCall, body: CallRequest) -> Any:
    """
    Call a method over a wire.

    @raise ServiceError: Before the call: C{INVALID_ARGUMENT}, C{NOT_FOUND} for the wire,
        C{RATE_LIMITED} with too many calls in flight. The call's own error is sent as a line.
    """
    call.note(wire=body.wire, service=body.service[:200], method=body.method[:200])
    listener = findListener(call.services, body.wire)
    streams = _checkCall(call.services, body)
    slots: CallSlots = call.services.keep("calls", CallSlots)
    if slots.taken >= _AT_ONCE:
        raise codedError(
            "RATE_LIMITED", f"{_AT_ONCE} calls are already in flight", {"retryAfterMs": 1000}
        )
    slots.taken += 1
    try:
        await _loadClient(call.services, body.wire)
        body, trace = _traced(body)
        await call.services.monitor.time(trace)
        answers = _Answers(call, listener.reactor, trace)
        running: Deferred[None] = Deferred.fromCoroutine(answers.relay(listener, body, streams))
        call.request.raw.onDisconnect(running.cancel)
        # The client ends the call itself; this also limits a browser that does not read.
        running.addTimeout(body.deadlineMs / 1000 + 2 * _GRACE_SECONDS, listener.reactor)
        watching = Deferred.fromCoroutine(answers.watch(call, running))
        watching.addErrback(lambda failure: failure.trap(CancelledError))
        try:
            await answers.finish(running)
        finally:
            watching.cancel()
    finally:
        slots.taken -= 1
    return ANSWERED


def _traced(body: CallRequest) -> tuple[CallRequest, str]:
    """Return a call that has a trace, and the id of the trace."""
    fields = {name.lower(): value for name, value in body.metadata.items()}
    if "traceparent" in fields or "x-trace-id" in fields:
        named = receiveTracing(fields.get("traceparent"), None, fields.get("x-trace-id"))
        return body, named.traceId
    tracing = replace(newTracing(), sampled=True)
    metadata = {**body.metadata, "traceparent": formatTraceparent(tracing)}
    return replace(body, metadata=metadata), tracing.traceId


class _Answers:
    """The response lines of a call."""

    def __init__(self, call: ConsoleCall, clock: Any, trace: str) -> None:
        """@param trace: The id of the trace by which the call is timed."""
        self._response = call.response
        self._response.header("Content-Type", NDJSON)
        # A proxy must not buffer lines.
        self._response.header("X-Accel-Buffering", "no")
        self._clock = clock
        self._monitor, self._trace = call.services.monitor, trace
        self._beganAt = call.services.now()
        self._began = clock.seconds()
        self._bytes = self._items = 0
        # The reason why the call may not continue.
        self._refusal: ServiceError | None = None

    async def relay(self, listener: GatewayListener, body: CallRequest, streams: bool) -> None:
        """
        Make the call, and relay its results.

        @param streams: Whether the method has a stream of requests.
        """
        async with (
            _openClient(listener, body) as client,
            _beginCall(client, listener, body, streams) as calling,
        ):
            async for data in calling:
                size, self._bytes = calling.bytesReceived - self._bytes, calling.bytesReceived
                self._items += 1
                if self._bytes > MAX_BYTES:
                    raise tooLarge(MAX_BYTES)
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
            except StoreError:
                self._refusal = codedError("UNAVAILABLE", "The session cannot be checked now")
            else:
                continue
            running.cancel()
            return

    async def finish(self, running: Deferred[None]) -> None:
        """Wait for the end of the call, and send it as the last line."""
        problem: ServiceError | None = None
        try:
            await running
        except ClientLost:
            return
        except CancelledError:
            if self._response.raw.disconnected:
                # The browser has disconnected.
                return
            problem = self._refusal or codedError("CANCELLED", "The call was cancelled")
        except TimeoutError:
            problem = codedError("DEADLINE_EXCEEDED", "The call did not end before its deadline")
        except ServiceError as error:
            problem = error
        except Exception as error:
            _log.failure("a call of the console failed")
            problem = asServiceError(error)
        times = await self._times(self._ms())
        try:
            if problem is None:
                await self._send("end", None, self._bytes, **times)
            else:
                # From the name first: a transport may carry no gRPC status.
                _, status = CODES.get(problem.code, (0, problem.grpcStatus))
                await self._send("error", errorBody(problem), self._bytes, status=status, **times)
            self._response.end()
        except ClientLost:
            return

    async def _times(self, ms: float) -> dict[str, float]:
        """
        Return the times of the last line.

        @param ms: The time of the whole call.
        """
        found = await self._monitor.timed(self._trace)
        if found is None:
            return {"ms": ms}
        beganAt, seconds = found
        sendMs = min(max(0.0, round((beganAt - self._beganAt) * 1000, 2)), ms)
        methodMs = min(round(seconds * 1000, 2), round(ms - sendMs, 2))
        return {"ms": ms, "sendMs": sendMs, "methodMs": methodMs}

    def _ms(self) -> float:
        """Return the milliseconds since the call began."""
        ms: float = round((self._clock.seconds() - self._began) * 1000, 2)
        return ms

    async def _send(self, at: str, data: Any, size: int, **times: float) -> None:
        line = {"at": at, "data": data, "ms": self._ms(), "bytes": size, **times}
        await self._response.write(msgspec.json.encode(line, enc_hook=str) + b"\n")
