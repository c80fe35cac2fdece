"""
C{rateLimit}: limits the request rate of each client.

The C{X-RateLimit} fields are the common ones, in seconds since 1970; the C{RateLimit} fields follow
an IETF draft (draft-ietf-httpapi-ratelimit-headers), in seconds from now.
"""

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from math import ceil
from typing import Any

from attrs import define, frozen
from twisted.logger import Logger

from storagegate.core.context import rateLimitKey
from storagegate.core.invoker import Hook, adaptHandler
from storagegate.core.options import takesMapping
from storagegate.core.ratelimit import Count, checkWindow, makeRateStore, nextRateName
from storagegate.core.task import fromCoroutine, resolve, resolveThen
from storagegate.http.dispatch import MiddlewareHandler

TOO_MANY = "Too many requests, please try again later."

_log = Logger()


@frozen
class RateLimitInfo:
    """
    The state of one limit for one client: C{req.rateLimit}.

    @ivar limit: The number of requests allowed in a window.
    @ivar used: Requests in this window, including this one.
    @ivar remaining: Remaining requests.
    @ivar resetTime: The end of the window, in seconds since 1970.
    @ivar key: The key of the client.
    """

    limit: int
    used: int
    remaining: int
    resetTime: float
    key: str


@takesMapping
def rateLimit(
    windowMs: float = 60_000,
    max: int | Callable[..., Any] = 5,
    *,
    standardHeaders: str | bool | None = None,
    legacyHeaders: bool = True,
    message: Any = TOO_MANY,
    statusCode: int = 429,
    skip: Callable[..., Any] | None = None,
    skipFailedRequests: bool = False,
    skipSuccessfulRequests: bool = False,
    keyGenerator: Callable[..., Any] | None = None,
    handler: Callable[..., Any] | None = None,
    store: Any = None,
) -> MiddlewareHandler:
    """
    Make middleware that refuses clients with too many requests.

    Functions are called with C{(req, res)}, or with C{req} if they have one parameter, and may be
    coroutine functions.

    @param windowMs: The length of a window, which begins with the first request.
    @param max: The number of requests allowed in a window, or a function that returns it.
    @param standardHeaders: C{"draft-6"}, C{"draft-7"} or C{"draft-8"}; C{True} means C{"draft-6"}.
    @param message: The body for refused clients, or a function that returns it.
    @param skip: Returns whether a request is not counted.
    @param skipFailedRequests: Whether to ignore requests with a status of 400 or above, or without
        a response.
    @param skipSuccessfulRequests: Whether to ignore requests with a status below 400.
    @param keyGenerator: Returns the key to count a request under, instead of the client's address.
    @param handler: Handles refused requests: C{(req, res, next)}.
    @param store: An L{IRateLimitStore<storagegate.core.ratelimit.IRateLimitStore>} for this limit
        alone; by default, in the memory of this process, or shared by the workers of a program.
    @raise ValueError: If an option has an invalid value.
    @raise TypeError: If an option has the wrong type.
    """
    if not callable(max) and (isinstance(max, bool) or not isinstance(max, int) or max < 0):
        raise ValueError(f"max is a number of requests or a function, not {max!r}")
    if isinstance(statusCode, bool) or statusCode not in range(100, 1000):
        raise ValueError(f"statusCode is the status of a response, not {statusCode!r}")
    if handler is not None and not callable(handler):
        raise TypeError("handler is a function of (req, res, next)")
    checkWindow(windowMs)
    if store is not None and not callable(getattr(store, "increment", None)):
        raise TypeError(f"store is an IRateLimitStore, not {store!r}")
    limiter = _Limiter(
        max=adaptHandler(max, "max") if callable(max) else max,
        skip=None if skip is None else adaptHandler(skip, "skip"),
        keyGenerator=None if keyGenerator is None else adaptHandler(keyGenerator, "keyGenerator"),
        refuse=handler or _refusal(statusCode, message),
        store=store,
        windowMs=windowMs,
        headers=_headerWriters(windowMs, legacyHeaders, standardHeaders),
        takesBack=(bool(skipFailedRequests), bool(skipSuccessfulRequests)),
        name=nextRateName("HTTP"),
    )
    return limiter.limit


HeaderWriter = Callable[[Any, RateLimitInfo, int], None]


@define(eq=False)
class _Limiter:
    """
    One rate limit.

    @ivar store: C{None} for the default store, created on first use with the application's clock.
    @ivar takesBack: Whether failed requests, and successful ones, are not counted.
    @ivar name: The name of the default store.
    """

    max: int | Hook
    skip: Hook | None
    keyGenerator: Hook | None
    refuse: Callable[..., Any]
    store: Any
    windowMs: float
    headers: tuple[HeaderWriter, ...]
    takesBack: tuple[bool, bool]
    name: str
    isChecked: bool = False

    @property
    def isPerProcess(self) -> bool:
        """Return whether only this process has the counts; see L{storagegate.core.perprocess}."""
        return getattr(self.store, "isPerProcess", False)

    @property
    def held(self) -> str:
        """Return the kind of state."""
        return "counts of rateLimit"

    @property
    def sharedBy(self) -> str:
        """Return the stores that processes share."""
        return getattr(self.store, "sharedBy", "")

    def limit(self, req: Any, res: Any, next: Any) -> Any:
        """Handle a request."""
        if self.skip is None:
            return self._identify(req, res, next)
        return resolveThen(
            self.skip(req, res),
            lambda skipped: next() if skipped else self._identify(req, res, next),
        )

    def _identify(self, req: Any, res: Any, next: Any) -> Any:
        if self.keyGenerator is None:
            if not self.isChecked:
                self._checkProxy(req)
            return self._count(req, res, next, rateLimitKey(req.ip))
        return resolveThen(
            self.keyGenerator(req, res), lambda key: self._count(req, res, next, str(key))
        )

    def _count(self, req: Any, res: Any, next: Any, key: str) -> Any:
        if self.store is None:
            self.store = makeRateStore(self.name, self.windowMs, req.app.runtime.now)
        return resolveThen(
            self.store.increment(key), lambda count: self._compare(req, res, next, key, count)
        )

    def _compare(self, req: Any, res: Any, next: Any, key: str, count: Count) -> Any:
        if not callable(self.max):
            return self._decide(req, res, next, key, count, self.max)
        return resolveThen(
            self.max(req, res), lambda limit: self._decide(req, res, next, key, count, limit)
        )

    def _decide(self, req: Any, res: Any, next: Any, key: str, count: Count, limit: int) -> Any:
        hits, end = count
        remaining = limit - hits
        info = RateLimitInfo(limit, hits, remaining if remaining > 0 else 0, end, key)
        req.rateLimit = info
        seconds = ceil(end - req.app.runtime.now())
        seconds = seconds if seconds > 0 else 0
        for write in self.headers:
            write(res, info, seconds)
        if self.takesBack != (False, False):
            self._watch(req, res, info)
        if hits <= limit:
            return next()
        res.header("Retry-After", str(seconds))
        return self.refuse(req, res, next)

    def _watch(self, req: Any, res: Any, info: RateLimitInfo) -> None:
        """Undo the count of the request, depending on its outcome."""
        failed, succeeded = self.takesBack
        ended = False

        def end(isCounted: bool) -> None:
            nonlocal ended
            if not ended and not isCounted and req.app.runtime.now() < info.resetTime:
                undone = fromCoroutine(resolve(self.store.decrement(info.key)))
                undone.addErrback(
                    lambda failure: _log.failure(
                        "rateLimit: the count of a request could not be reduced", failure
                    )
                )
            ended = True

        res.on("finish", lambda: end(not (failed if res.statusCode >= 400 else succeeded)))
        res.on("close", lambda: end(not failed))

    def _checkProxy(self, req: Any) -> None:
        """Warn once if the counted address may not be the client's."""
        trust = req.app.settings.trustProxy
        if trust is True:
            self.isChecked = True
            _log.warn(
                "rateLimit: trustProxy=True trusts X-Forwarded-For of all clients, so each can "
                "choose the address that is counted; name the proxies, or their number"
            )
        elif trust is False and req.get("x-forwarded-for") is not None:
            self.isChecked = True
            _log.warn(
                "rateLimit: a request has X-Forwarded-For, but trustProxy is not set; behind a "
                "proxy all clients are counted as one"
            )


def _refusal(statusCode: int, message: Any) -> Callable[..., Any]:
    """Make the handler of refused requests."""
    if not callable(message):

        def refuse(req: Any, res: Any, next: Any) -> None:
            res.status(statusCode).send(message)

        return refuse
    makeMessage = adaptHandler(message, "message")

    def refuseByFunction(req: Any, res: Any, next: Any) -> Any:
        return resolveThen(makeMessage(req, res), res.status(statusCode).send)

    return refuseByFunction


# The fields


def _headerWriters(
    windowMs: float, legacy: bool, standard: str | bool | None
) -> tuple[HeaderWriter, ...]:
    window = ceil(windowMs / 1000)
    period = _period(windowMs)

    def writeDraft6(res: Any, info: RateLimitInfo, seconds: int) -> None:
        res.setChecked(
            {
                "ratelimit-policy": ("RateLimit-Policy", f"{info.limit};w={window}"),
                "ratelimit-limit": ("RateLimit-Limit", str(info.limit)),
                "ratelimit-remaining": ("RateLimit-Remaining", str(info.remaining)),
                "ratelimit-reset": ("RateLimit-Reset", str(seconds)),
            }
        )

    def writeDraft7(res: Any, info: RateLimitInfo, seconds: int) -> None:
        state = f"limit={info.limit}, remaining={info.remaining}, reset={seconds}"
        res.setChecked(
            {
                "ratelimit-policy": ("RateLimit-Policy", f"{info.limit};w={window}"),
                "ratelimit": ("RateLimit", state),
            }
        )

    def writeDraft8(res: Any, info: RateLimitInfo, seconds: int) -> None:
        # Several limits may apply: each appends its own.
        name = f'"{info.limit}-in-{period}"'
        # A name for the client that does not reveal its key.
        digest = sha256(info.key.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        partition = b64encode(digest.encode("ascii")).decode("ascii")
        res.append("RateLimit", f"{name}; r={info.remaining}; t={seconds}")
        res.append("RateLimit-Policy", f"{name}; q={info.limit}; w={window}; pk=:{partition}:")

    drafts = {"draft-6": writeDraft6, "draft-7": writeDraft7, "draft-8": writeDraft8}
    if standard is True:
        standard = "draft-6"
    if standard and standard not in drafts:
        raise ValueError(f"standardHeaders is one of {', '.join(drafts)}, not {standard!r}")
    writers: list[HeaderWriter] = [_writeLegacy] if legacy else []
    if standard:
        writers.append(drafts[standard])
    return tuple(writers)


def _writeLegacy(res: Any, info: RateLimitInfo, seconds: int) -> None:
    res.setChecked(
        {
            "x-ratelimit-limit": ("X-RateLimit-Limit", str(info.limit)),
            "x-ratelimit-remaining": ("X-RateLimit-Remaining", str(info.remaining)),
            "x-ratelimit-reset": ("X-RateLimit-Reset", str(ceil(info.resetTime))),
        }
    )


def _period(windowMs: float) -> str:
    """Name a window: C{15min}, C{1hr}, C{1.5days}."""
    seconds = windowMs / 1000
    for size, limit, unit in ((1, 60, "sec"), (60, 3600, "min"), (3600, 86400, "hr")):
        if seconds < limit:
            return _plural(seconds / size, unit, unit == "hr")
    return _plural(seconds / 86400, "day", True)


def _plural(number: float, unit: str, isWord: bool) -> str:
    text = str(int(number)) if number == int(number) else str(number)
    return f"{text}{unit}s" if isWord and number > 1 else text + unit
