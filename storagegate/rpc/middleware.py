"""
The middleware of gRPC: authentication by token, error mapping, rate limits, the request log.
"""

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from math import ceil
from string import Formatter
from typing import Any

from attrs import asdict, fields, frozen
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.auth.throttle import AuthFailureThrottle
from storagegate.auth.tokens import bearerToken, noteKind
from storagegate.core.context import rateLimitKey
from storagegate.core.errors import GrpcError, ServiceError, asGrpcError, causedBy, isExpected
from storagegate.core.invoker import adaptHandler
from storagegate.core.options import takesMapping
from storagegate.core.perprocess import holdsStateOf
from storagegate.core.ratelimit import Count, checkWindow, makeRateStore, nextRateName
from storagegate.core.task import resolveThen
from storagegate.net.endpoints import processReactor
from storagegate.rpc.call import hostOf
from storagegate.telemetry.log import escapeField, escapeLine

_log = Logger()


@takesMapping
def errorHandler(
    onError: Callable[[Exception, Any], Any] | None = None,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that turns errors into statuses.

    A server applies these rules anyway. Use this middleware to observe unexpected errors, and to
    have outer middleware receive only C{GrpcError}::

        GrpcError                          itself
        ServiceError                       the status of its code or its HTTP status
        an error named ValidationError     INVALID_ARGUMENT with its message
        an error named DatabaseError       UNAVAILABLE, logged
        anything else                      INTERNAL "Internal error", logged

    @param onError: C{onError(error, call)}, plain or a coroutine, called with each error that is
        logged. Its result is ignored; an error that it raises is logged.
    @raise TypeError: If it is not a function.
    """
    if onError is not None and not callable(onError):
        raise TypeError(f"onError is a function of (error, call), not {onError!r}")

    async def handleErrors(call: Any, next: Callable[[], Any]) -> Any:
        try:
            return await next()
        except CancelledError:
            # The client has disconnected.
            raise
        except Exception as error:
            if not isExpected(error):
                _log.failure("{path} failed", Failure(error), path=call.path, peer=call.getPeer())
                if onError is not None:
                    await notify(onError, error, call)
            raise causedBy(asGrpcError(error), error)  # noqa: B904

    async def notify(onError: Callable[[Exception, Any], Any], error: Exception, call: Any) -> None:
        try:
            result = onError(error, call)
            if hasattr(result, "__await__"):
                await result
        except CancelledError:
            raise
        except Exception:
            _log.failure("onError failed for {path}", path=call.path)

    return handleErrors


_NAME = re.compile(r"/?(?:([^/\s]+)/)?([^/\s]+)")


def methodMatcher(names: Iterable[str], option: str) -> Callable[[Any], bool]:
    """
    Make a predicate of calls: whether the method is in a list.

    @param names: C{GetUser} is a method of any service, C{user.UserService/GetUser} a method of one
        service, with or without a leading C{/}, and C{user.UserService/*} all methods of one
        service.
    @param option: The name of the option, for the error.
    @raise TypeError: If it is not a list of names.
    @raise ValueError: If an item is not the name of a method.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{option} is a list of names of methods, not {names!r}")
    methods: set[str] = set()
    paths: set[str] = set()
    services: set[str] = set()
    for name in names:
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        service, method = match.groups() if match is not None else (None, "*")
        if method != "*" and service is None:
            methods.add(method)
        elif service is None:
            raise ValueError(f"{name!r} in {option} is not the name of a method")
        elif method == "*":
            services.add(service)
        else:
            paths.add(f"/{service}/{method}")

    def matches(call: Any) -> bool:
        return call.method in methods or call.service in services or call.path in paths

    return matches


MAX_TOKEN = 8192
"""
The maximum length of a token: all the metadata that gRPC accepts by default. A server with a higher
limit does not pass more to token parsers.
"""

HEALTH = "grpc.health.v1.Health"
"""The service that load balancers and orchestrators call without a token."""

MISSING = "Missing authorization"
INVALID = "Invalid token"


@takesMapping
def authentication(
    verify: Callable[..., Any],
    publicMethods: Iterable[str] = (),
    *,
    publicHealth: bool = True,
    clock: IReactorTime | None = None,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that authenticates calls, and refuses others with C{UNAUTHENTICATED}.

    Guessing is slowed down, see
    L{AuthFailureThrottle<storagegate.auth.throttle.AuthFailureThrottle>}.

    @param verify: C{verify(token)} or C{verify(token, call)}, plain or a coroutine. It receives the
        first value of C{authorization} without C{Bearer }, and returns the user for C{call.user}.
        An empty result or an exception refuses the call. A L{GrpcError} or a L{ServiceError}
        reaches the client unchanged, so that a failing verifier can be C{UNAVAILABLE}.
    @param publicMethods: Methods that need no token: C{GetUser}, C{user.UserService/GetUser} or
        C{user.UserService/*}.
    @param publicHealth: Whether the health service is also public: probes have no token.
    @param clock: Delays the refusals of guesses; C{None} for the process's reactor.
    @raise TypeError: If an option has the wrong type.
    @raise ValueError: If an item of C{publicMethods} is not the name of a method.
    """
    hook = adaptHandler(verify, "verify", "token", "call")
    isPublic = methodMatcher(publicMethods, "publicMethods")
    logged: set[str] = set()
    refuse = _SlowRefusal(clock).refuse

    def authenticate(call: Any, next: Callable[[], Any]) -> Any:
        if isPublic(call) or (publicHealth and call.service == HEALTH):
            return next()
        token = _tokenOf(call)
        try:
            user = hook(token, call)
        except Exception as error:
            return refuse(_refusal(error, logged), call)
        if hasattr(user, "__await__"):
            return authenticateLater(user, call, next)
        if not user:
            return refuse(GrpcError("UNAUTHENTICATED", INVALID), call)
        call.user = user
        return next()

    async def authenticateLater(user: Awaitable[Any], call: Any, next: Callable[[], Any]) -> Any:
        refusal: Exception
        try:
            known = await user
        except Exception as error:
            refusal = _refusal(error, logged)
        else:
            if known:
                call.user = known
                return await next()
            refusal = GrpcError("UNAUTHENTICATED", INVALID)
        try:
            return await refuse(refusal, call)
        finally:
            # Its traceback references this frame.
            del refusal

    return authenticate


class _SlowRefusal:
    """Refuses calls, and delays repeated guesses of one address."""

    def __init__(self, clock: IReactorTime | None) -> None:
        self._clock = clock
        self._throttle: AuthFailureThrottle | None = None

    async def refuse(self, refusal: Exception, call: Any) -> None:
        """
        Refuse a call.

        @raise Exception: The refusal.
        """
        try:
            if asGrpcError(refusal).statusName == "UNAUTHENTICATED":
                if self._throttle is None:
                    # The reactor is known when calls arrive, not when the middleware is created.
                    self._throttle = AuthFailureThrottle(self._clock or processReactor())
                await self._throttle.wait(self._throttle.failed(hostOf(call.getPeer())))
            raise refusal from None
        finally:
            # Its traceback references this frame.
            del refusal


def _tokenOf(call: Any) -> str:
    values = call.metadata.get("authorization")
    value: str = values[0].strip() if values else ""
    if not value:
        raise GrpcError("UNAUTHENTICATED", MISSING)
    token = bearerToken(value)
    if not token or len(token) > MAX_TOKEN:
        raise GrpcError("UNAUTHENTICATED", INVALID)
    return token


def _refusal(error: Exception, logged: set[str]) -> Exception:
    """
    Return the error that the client gets for an exception of a verifier.

    @param logged: The exception types logged so far; each is logged once.
    """
    if isinstance(error, GrpcError | ServiceError | CancelledError):
        return error
    noteKind(_log, logged, error)
    return GrpcError("UNAUTHENTICATED", INVALID)


TOO_MANY = "Too many requests"


@takesMapping
def rateLimit(
    windowMs: float = 60_000,
    max: int = 100,
    *,
    store: Any = None,
    keyGenerator: Callable[[Any], Any] | None = None,
    skip: Callable[[Any], Any] | Iterable[str] | None = None,
    now: Callable[[], float] = time.time,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that limits how often one client may call.

    The limit counts calls, not their messages. A refused call ends with C{RESOURCE_EXHAUSTED} and
    C{google.rpc.RetryInfo}, which gives the end of the window.

    @param windowMs: The length of a window in milliseconds; it begins with the first call.
    @param max: How many calls a window allows.
    @param store: An L{IRateLimitStore<storagegate.core.ratelimit.IRateLimitStore>} for this limit
        alone; without one, the counts are in the memory of this process, or shared by the workers
        of a program.
    @param keyGenerator: C{keyGenerator(call)}, plain or a coroutine, returns the key to count a
        call under, instead of the peer's address.
    @param skip: The methods to exclude: a list of names, as in
        L{authentication<storagegate.rpc.middleware.authentication>}, or C{skip(call)}, plain or a
        coroutine.
    @param now: Returns the time in seconds since 1970.
    @raise ValueError: If an option has an invalid value.
    @raise TypeError: If an option has the wrong type.
    """
    if isinstance(max, bool) or not isinstance(max, int) or max < 0:
        raise ValueError(f"max is a number of calls, not {max!r}")
    checkWindow(windowMs)
    if keyGenerator is not None and not callable(keyGenerator):
        raise TypeError(f"keyGenerator is a function of (call), not {keyGenerator!r}")
    if store is not None and not callable(getattr(store, "increment", None)):
        raise TypeError(f"store is an IRateLimitStore, not {store!r}")
    counts = makeRateStore(nextRateName("RPC"), windowMs, now) if store is None else store
    skips = skip if skip is None or callable(skip) else methodMatcher(skip, "skip")
    keyOf = keyGenerator or (lambda call: rateLimitKey(hostOf(call.getPeer())))

    def limit(call: Any, next: Callable[[], Any]) -> Any:
        if skips is None:
            return count(call, next)
        return resolveThen(skips(call), lambda skipped: next() if skipped else count(call, next))

    def count(call: Any, next: Callable[[], Any]) -> Any:
        return resolveThen(
            keyOf(call),
            lambda key: resolveThen(counts.increment(str(key)), lambda count: decide(count, next)),
        )

    def decide(count: Count, next: Callable[[], Any]) -> Any:
        calls, end = count
        if calls <= max:
            return next()
        remaining = ceil((end - now()) * 1000)
        details = {"retryAfterMs": remaining if remaining > 0 else 0}
        raise GrpcError("RESOURCE_EXHAUSTED", TOO_MANY, details)

    return holdsStateOf(limit, store, "counts of rateLimit")


FORMAT = "{timestamp} {peer} {path} {status} {durationMs:.3f} ms"
"""The default line format."""

_CLOCKS_APART = 0.05
"""In seconds: the deadline was sent as a duration and counts from the arrival of the call."""


@frozen
class GRPCCallRecord:
    """
    The values of a log line; they contain nothing from metadata or messages.

    @ivar timestamp: The arrival time in RFC 3339 format.
    @ivar peer: The client's address and port.
    @ivar path: The full name of the method.
    @ivar service: The name of the service.
    @ivar method: The bare name of the method.
    @ivar status: The name of the call's status.
    @ivar durationMs: The duration in milliseconds.
    """

    timestamp: str
    peer: str
    path: str
    service: str
    method: str
    status: str
    durationMs: float


@takesMapping
def requestLog(
    format: str | Callable[[GRPCCallRecord], str | None] = FORMAT,
    *,
    write: Callable[[str], Any] | None = None,
    skip: Callable[[Any], Any] | Iterable[str] | None = None,
    now: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that logs calls when they end; it belongs before all other middleware.

    @param format: Text with names of L{GRPCCallRecord} values in braces, or a function that takes a
        record and returns the line, or C{None} for no line. Control characters of a line are
        escaped, except colour codes.
    @param write: Called with each line. Without it, lines are events of Twisted's log, with the
        values of the record.
    @param skip: The methods to exclude: a list of names, as in
        L{authentication<storagegate.rpc.middleware.authentication>}, or C{skip(call)}.
    @param now: Returns the time in seconds since 1970.
    @param monotonic: Returns the seconds of a monotonic clock.
    @raise ValueError: If the format is invalid.
    @raise TypeError: If an option has the wrong type.
    """
    lineOf = _readFormat(format)
    if write is not None and not callable(write):
        raise TypeError(f"write is a function of (line), not {write!r}")
    skips = skip if skip is None or callable(skip) else methodMatcher(skip, "skip")

    def logCall(call: Any, started: float, begun: float, error: BaseException | None) -> None:
        try:
            if skips is not None and skips(call):
                return
            status = _statusOf(call, error, now())
            record = _recordOf(call, started, status, (monotonic() - begun) * 1000)
            line = lineOf(record)
            if line is None:
                return
            line = escapeLine(str(line))
            if write is None:
                _log.info("{line}", line=line, **asdict(record))
            else:
                write(line)
        except Exception:
            # The call itself is not affected.
            _log.failure("requestLog: the line of a call could not be written")

    async def logRequest(call: Any, next: Callable[[], Any]) -> Any:
        started, begun = now(), monotonic()
        failure: BaseException | None = None
        try:
            return await next()
        except BaseException as error:
            failure = error
            raise
        finally:
            logCall(call, started, begun, failure)

    return logRequest


def _recordOf(call: Any, started: float, status: str, durationMs: float) -> GRPCCallRecord:
    timestamp = datetime.fromtimestamp(started, UTC).isoformat(timespec="milliseconds")
    return GRPCCallRecord(
        timestamp=timestamp.replace("+00:00", "Z"),
        peer=escapeField(call.getPeer()),
        path=escapeField(call.path),
        service=escapeField(call.service),
        method=escapeField(call.method),
        status=status,
        durationMs=round(durationMs, 3),
    )


def _statusOf(call: Any, error: BaseException | None, now: float) -> str:
    if call.cancelled or isinstance(error, CancelledError | GeneratorExit):
        isLate = call.deadline is not None and now >= call.deadline - _CLOCKS_APART
        return "DEADLINE_EXCEEDED" if isLate else "CANCELLED"
    return "OK" if error is None else asGrpcError(error).statusName


def _readFormat(format: Any) -> Callable[[GRPCCallRecord], Any]:
    if callable(format):
        function: Callable[[GRPCCallRecord], Any] = format
        return function
    if not isinstance(format, str):
        raise TypeError(f"format is text or a function of (record), not {format!r}")
    known = [each.name for each in fields(GRPCCallRecord)]
    for _, name, _, _ in Formatter().parse(format):
        if name is not None and name not in known:
            raise ValueError(f"a record has no {name!r}; it has {', '.join(known)}")
    # An invalid format specification fails here, not at the first call.
    format.format(**asdict(GRPCCallRecord("", "", "", "", "", "", 0.0)))
    return lambda record: format.format(**asdict(record))
