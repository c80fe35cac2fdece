"""The options of applications and routers, and the threads and the clock that they run with."""

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from attrs import field, fields, fields_dict, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.extras import installHint
from storagegate.core.options import (
    changeOptions,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSecrets,
    readSize,
)
from storagegate.core.task import callInThread
from storagegate.net.forwarded import TrustedProxies, compileTrust
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.websocket.interfaces import WebSocketLimits

T = TypeVar("T")

DEFAULT_BODY_SIZE = 10 * 1024 * 1024
"""The longest body that is held whole by default, in bytes: larger ones should be streamed."""

# The metadata of an option that is what a gateway gives for a transport.
_TRANSPORT = "storagegate.transport"

# A day: a longer timeout is a mistake in the unit.
_MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000


def _milliseconds(value: Any) -> int:
    return readNumber(value, 1, _MAX_TIMEOUT_MS, "milliseconds")


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is None or value is False:
        return None
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options, True or False")
    return dict(value)


@frozen(kw_only=True)
class DevelopmentOptions:
    """
    What helps while an application is written, and would harm in service.

    @ivar hmr: Reload the application's modules when a file changes, and the pages that show it.
    @ivar console: Log requests and errors to the console, in colour.
    """

    hmr: bool = field(default=False, converter=readFlag)
    console: bool = field(default=False, converter=readFlag)


def _transport(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not hasattr(value.get("gateway"), "openFor"):
        raise ValueError("is what a gateway gives for it, by getTCPConfig() or one like it")
    return dict(value)


def _transportField() -> Any:
    return field(default=None, converter=_transport, metadata={_TRANSPORT: True})


def _transports(value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of what a gateway gives for its transports")
    return {name: dict(_transport(group) or {}) for name, group in value.items()}


def _development(value: Any) -> DevelopmentOptions | None:
    if isinstance(value, DevelopmentOptions):
        return value
    given = _mapping(value)
    return None if given is None else changeOptions(DevelopmentOptions(), given, "development.")


def _webSocketLimits(value: Any) -> WebSocketLimits:
    if isinstance(value, WebSocketLimits):
        return value
    return changeOptions(WebSocketLimits(), _mapping(value) or {}, "ws.")


Views = Callable[[str, Mapping[str, Any]], str | Awaitable[str]]
"""Makes text of the name of a template and the values for it."""


def _views(value: Any) -> Views:
    if callable(value):
        views: Views = value
        return views
    if not isinstance(value, str | os.PathLike) or not os.path.isdir(value):
        raise ValueError("is a directory of templates, or a function of a name and values")
    try:
        from jinja2 import Environment, FileSystemLoader
    except ImportError:
        raise ValueError(
            f"is a directory of templates, which needs Jinja2: {installHint('jinja2')}"
        ) from None
    # Templates stay in memory after their first use.
    environment = Environment(loader=FileSystemLoader(value), autoescape=True)

    def render(name: str, values: Mapping[str, Any]) -> str:
        template = environment.get_template(name if "." in name else f"{name}.html")
        return template.render(values)

    return render


@frozen(kw_only=True)
class RouterOptions:
    """
    Every option of a router.

    @ivar caseSensitive: Whether C{/About} and C{/about} differ.
    @ivar mergeParams: Whether C{req.params} has the parameters of the path that the router is
        mounted at.
    @ivar strict: Whether C{/about/} and C{/about} differ.
    """

    caseSensitive: bool = field(default=False, converter=readFlag)
    mergeParams: bool = field(default=False, converter=readFlag)
    strict: bool = field(default=False, converter=readFlag)


@frozen(kw_only=True)
class ApplicationOptions:
    """
    Every option of C{withOptions}.

    @ivar port: The port that C{listen} opens by default.
    @ivar hostname: The interface.
    @ivar development: C{None} in service; otherwise responses show tracebacks.
    @ivar maxRequestBodySize: If set, no body may be longer. Otherwise only those that are held
        whole are bounded, by L{DEFAULT_BODY_SIZE}, and streams and uploads have no total.
    @ivar keepAlive: Whether a connection may have more than one request.
    @ivar keepAliveTimeout: How long one may idle between them.
    @ivar headersTimeout: How long the head of a request may take.
    @ivar requestTimeout: How long a request may go without progress.
    @ivar cors: Options of the C{cors} middleware, which then runs before all handlers.
    @ivar compression: The same for C{compression}.
    @ivar rateLimit: The same for C{rateLimit}.
    @ivar trustProxy: Whose C{X-Forwarded} fields are believed, see
        L{compileTrust<storagegate.net.forwarded.compileTrust>}.
    @ivar cookieSecret: Signs and verifies cookies; of several the first signs, all verify.
    @ivar views: Makes text of the name of a template and a mapping of values, for C{res.render}; a
        directory has templates of Jinja2.
    @ivar ws: Limits of the WebSockets of C{app.ws}, and the origins whose pages may connect, see
        L{WebSocketLimits<storagegate.net.websocket.interfaces.WebSocketLimits>}.
    @ivar websocket: What a gateway's C{getWebSocketConfig} gives: the application serves its
        WebSockets, too.
    @ivar grpc: What C{getGRPCConfig} gives: C{listen} opens that transport of the gateway.
    @ivar udp: The same of C{getUDPConfig}.
    @ivar tcp: The same of C{getTCPConfig}.
    @ivar wires: The same of C{getConfig} for other transports, by name; each is given under its
        own name.
    """

    port: int = field(default=3000, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    development: DevelopmentOptions | None = field(default=None, converter=_development)
    maxRequestBodySize: int | None = field(default=None, converter=optional(readSize))
    keepAlive: bool = field(default=True, converter=readFlag)
    keepAliveTimeout: int = field(default=5_000, converter=_milliseconds)
    headersTimeout: int = field(default=60_000, converter=_milliseconds)
    requestTimeout: int = field(default=300_000, converter=_milliseconds)
    cors: Mapping[str, Any] | None = field(default=None, converter=_mapping)
    compression: Mapping[str, Any] | None = field(default=None, converter=_mapping)
    rateLimit: Mapping[str, Any] | None = field(default=None, converter=_mapping)
    trustProxy: Any = field(default=False)
    cookieSecret: tuple[str | bytes, ...] | None = field(
        default=None, converter=optional(readSecrets), repr=False
    )
    views: Views | None = field(default=None, converter=optional(_views))
    ws: WebSocketLimits = field(factory=WebSocketLimits, converter=_webSocketLimits)
    websocket: Mapping[str, Any] | None = _transportField()
    grpc: Mapping[str, Any] | None = _transportField()
    udp: Mapping[str, Any] | None = _transportField()
    tcp: Mapping[str, Any] | None = _transportField()
    wires: Mapping[str, Mapping[str, Any]] = field(default={}, converter=_transports)

    @trustProxy.validator
    def _checkTrust(self, attribute: Any, value: Any) -> None:
        compileTrust(value)

    @property
    def cookieSecrets(self) -> tuple[str | bytes, ...]:
        """
        Return C{cookieSecret}.

        @raise RuntimeError: If there is none.
        """
        if self.cookieSecret is None:
            raise RuntimeError("signed cookies need the option cookieSecret of the application")
        return self.cookieSecret

    @property
    def wholeBodySize(self) -> int:
        """Return how long a body may be that is held whole."""
        size = self.maxRequestBodySize
        return DEFAULT_BODY_SIZE if size is None else size

    def transports(self) -> dict[str, Mapping[str, Any]]:
        """Return what gateways gave for their transports, by the name of the transport."""
        known = fields(ApplicationOptions)
        own = {each.name: getattr(self, each.name) for each in known if _TRANSPORT in each.metadata}
        return {name: group for name, group in {**own, **self.wires}.items() if group is not None}

    def limits(self) -> HTTPLimits:
        """Return the limits of a listener of the application."""
        return HTTPLimits(
            keepAlive=self.keepAlive,
            keepAliveTimeout=self.keepAliveTimeout / 1000,
            headersTimeout=self.headersTimeout / 1000,
            requestTimeout=self.requestTimeout / 1000,
            webBodySize=self.wholeBodySize,
        )


class RouterOptionsDict(TypedDict, total=False):
    """The keywords of L{RouterOptions}."""

    caseSensitive: bool
    mergeParams: bool
    strict: bool


class DevelopmentOptionsDict(TypedDict, total=False):
    """The keywords of L{DevelopmentOptions}."""

    hmr: bool
    console: bool


AllowedOrigin = (
    bool
    | str
    | re.Pattern[str]
    | Sequence[str | re.Pattern[str]]
    | Callable[[str, Any], bool | str | Awaitable[bool | str]]
)
"""C{origin} of L{cors<storagegate.http.middleware.cors.cors>}."""


class CORSOptionsDict(TypedDict, total=False):
    """The keywords of L{cors<storagegate.http.middleware.cors.cors>}."""

    origin: AllowedOrigin
    methods: str | Sequence[str]
    credentials: bool
    allowedHeaders: str | Sequence[str] | None
    exposedHeaders: str | Sequence[str] | None
    maxAge: int | None
    preflightContinue: bool
    optionsSuccessStatus: int


class CompressionOptionsDict(TypedDict, total=False):
    """The keywords of L{compression<storagegate.http.middleware.compression.compression>}."""

    threshold: int | str
    level: int
    filter: Callable[[Any, Any], bool] | None


class RateLimitOptionsDict(TypedDict, total=False):
    """The keywords of L{rateLimit<storagegate.http.middleware.ratelimit.rateLimit>}."""

    windowMs: float
    max: int | Callable[..., Any]
    standardHeaders: str | bool | None
    legacyHeaders: bool
    message: Any
    statusCode: int
    skip: Callable[..., Any] | None
    skipFailedRequests: bool
    skipSuccessfulRequests: bool
    keyGenerator: Callable[..., Any] | None
    handler: Callable[..., Any] | None
    store: Any


class WebSocketLimitsDict(TypedDict, total=False):
    """The keywords of L{WebSocketLimits<storagegate.net.websocket.interfaces.WebSocketLimits>}."""

    enableCompression: bool
    allowedOrigins: Sequence[str]
    maxMessageSize: int | str
    maxConnections: int
    maxConnectionsPerAddress: int | None
    pingSeconds: int


class OptionsDict(TypedDict, total=False):
    """The keywords of L{ApplicationOptions}."""

    port: int
    hostname: str
    development: bool | DevelopmentOptionsDict | DevelopmentOptions | None
    maxRequestBodySize: int | str | None
    keepAlive: bool
    keepAliveTimeout: int
    headersTimeout: int
    requestTimeout: int
    cors: bool | CORSOptionsDict | None
    compression: bool | CompressionOptionsDict | None
    rateLimit: bool | RateLimitOptionsDict | None
    trustProxy: TrustedProxies
    cookieSecret: str | bytes | Sequence[str | bytes] | None
    views: str | os.PathLike[str] | Views | None
    ws: WebSocketLimitsDict | WebSocketLimits
    websocket: Mapping[str, Any] | None
    grpc: Mapping[str, Any] | None
    udp: Mapping[str, Any] | None
    tcp: Mapping[str, Any] | None
    wires: Mapping[str, Mapping[str, Any]]


def readOptions(before: ApplicationOptions, changes: Mapping[str, Any]) -> ApplicationOptions:
    """
    Change some options; unknown names are transports if their value is what a gateway gives.

    @raise OptionError: If there is no such option, or its value is none.
    """
    known = fields_dict(ApplicationOptions)
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in changes.items():
        isOther = name not in known and isinstance(value, Mapping) and "gateway" in value
        (others if isOther else own)[name] = value
    if others:
        own["wires"] = {**before.wires, **others}
    return changeOptions(before, own)


@frozen
class Runtime:
    """
    The threads and clocks that an application uses.

    @ivar clock: Schedules delays; its time has no meaning of its own.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar now: Returns the time in seconds since 1970.
    """

    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    now: Callable[[], float] = field(default=time.time)


def reactorRuntime(reactor: Any) -> Runtime:
    """
    Make the runtime of an application on a real reactor.

    Jobs wait in the reactor's own thread pool. Their number is bounded by that of the requests that
    a listener accepts, each of which waits for its own jobs.

    @param reactor: Provides C{IReactorThreads} and C{IReactorTime}.
    """

    def run(function: Callable[..., T], *arguments: Any) -> Deferred[T]:
        return callInThread(reactor, function, *arguments)

    return Runtime(reactor, run)
