"""The options of applications and routers, and the runtime (threads and clocks) of applications."""

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isroutine
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar

from attrs import field, fields, fields_dict, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.extras import installHint
from storagegate.core.options import (
    OptionError,
    changeOptions,
    optionField,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSecrets,
    readSize,
    readTexts,
)
from storagegate.core.task import callInThread
from storagegate.net.forwarded import TrustedProxies, compileTrust
from storagegate.net.http.interfaces import MAX_STREAMS, HTTPLimits
from storagegate.net.websocket.interfaces import WebSocketLimits

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_BODY_SIZE = 10 * 1024 * 1024
"""The default limit in bytes of a body held in memory: larger ones should be streamed."""

# Metadata key of options that hold a gateway's configuration of a transport.
_TRANSPORT = "storagegate.transport"

# A day: a longer timeout is probably in the wrong unit.
_MAX_TIMEOUT_MS = 24 * 60 * 60 * 1000

_STATUS = re.compile(r"[1-5](?:[0-9]{2}|XX)", re.ASCII)


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
    Options for development, which would be harmful in production.

    @ivar hmr: Reload the application's modules when a file changes, and then its open pages.
    @ivar console: Log requests and errors to the console, in colour.
    """

    hmr: bool = field(default=False, converter=readFlag)
    console: bool = field(default=False, converter=readFlag)


def _transport(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not hasattr(value.get("gateway"), "openFor"):
        raise ValueError(
            "is the group that a gateway returns, by getTCPConfig() or a similar method"
        )
    return dict(value)


def _transportField() -> Any:
    return field(default=None, converter=_transport, metadata={_TRANSPORT: True})


def _transports(value: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of the groups that a gateway returns for its transports")
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
"""Renders a template, given its name and values, to text."""


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
    # Templates stay in memory after first use.
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
    @ivar mergeParams: Whether C{req.params} includes the parameters of the path that the router is
        mounted at.
    @ivar strict: Whether C{/about/} and C{/about} differ.
    """

    caseSensitive: bool = field(default=False, converter=readFlag)
    mergeParams: bool = field(default=False, converter=readFlag)
    strict: bool = field(default=False, converter=readFlag)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is text")
    return value


def _status(value: Any) -> str:
    text = str(value)
    if not _STATUS.fullmatch(text):
        raise ValueError("is a status such as 201, or 2XX")
    return text


def _requirements(value: Any) -> tuple[Mapping[str, Any], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError("is a list of mappings of a scheme's name to its scopes")
    return tuple(value)


def _extensions(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(str(name).startswith("x-") for name in value):
        raise ValueError("is a mapping of names that begin with x-")
    return dict(value)


@frozen(kw_only=True)
class RouteDescription:
    """
    The part of a route's description in OpenAPI that its handler and its types do not contain.

    @ivar operationId: The name of the operation; empty for the handler's.
    @ivar summary: One line; empty for the first line of the handler's docstring.
    @ivar description: Empty for the rest of the docstring.
    @ivar tags: Empty for the mount path of the router.
    @ivar status: The status of success.
    @ivar consumes: The media types of request bodies that have no type, such as bytes.
    @ivar produces: The media types of responses that have no type, such as C{text/event-stream}.
    @ivar security: The accepted credentials: alternatives, each a mapping of a scheme's name to its
        scopes. An empty list is a public route; C{None} has the credentials of the document.
    @ivar extensions: Members whose names begin with C{x-}.
    """

    operationId: str = field(default="", converter=_text)
    summary: str = field(default="", converter=_text)
    description: str = field(default="", converter=_text)
    tags: tuple[str, ...] = field(default=(), converter=readTexts)
    status: str = field(default="2XX", converter=_status)
    consumes: tuple[str, ...] = field(default=(), converter=readTexts)
    produces: tuple[str, ...] = field(default=(), converter=readTexts)
    security: tuple[Mapping[str, Any], ...] | None = field(default=None, converter=_requirements)
    extensions: Mapping[str, Any] = field(factory=dict, converter=_extensions)


class RouteDescriptionDict(TypedDict, total=False):
    """The keywords of L{RouteDescription}."""

    operationId: str
    summary: str
    description: str
    tags: Sequence[str]
    status: int | str
    consumes: Sequence[str]
    produces: Sequence[str]
    security: Sequence[Mapping[str, Any]] | None
    extensions: Mapping[str, Any]


@frozen(kw_only=True)
class ApplicationOptions:
    """
    Every option of C{withOptions}.

    @ivar port: The port that C{listen} opens by default.
    @ivar hostname: The interface.
    @ivar development: C{None} in production; otherwise responses show tracebacks.
    @ivar maxRequestBodySize: If set, the limit of every body. Otherwise L{DEFAULT_BODY_SIZE} limits
        only bodies held in memory, and streams and uploads have no total limit.
    @ivar keepAlive: Whether a connection may serve more than one request.
    @ivar http2: Whether clients may speak HTTP/2.
    @ivar http2MaxStreams: The maximum number of open streams of a connection of HTTP/2.
    @ivar keepAliveTimeout: The idle timeout of a connection between requests.
    @ivar http2KeepAliveTimeout: The same over HTTP/2.
    @ivar headersTimeout: The timeout for the head of a request.
    @ivar requestTimeout: The timeout of a request without progress.
    @ivar cors: Options of the C{cors} middleware, which then runs before all handlers.
    @ivar compression: Options of the C{compression} middleware, as C{cors}.
    @ivar rateLimit: Options of the C{rateLimit} middleware, as C{cors}.
    @ivar trustProxy: The proxies whose C{X-Forwarded} fields are trusted; see
        L{compileTrust<storagegate.net.forwarded.compileTrust>}.
    @ivar cookieSecret: The secret for signed cookies; of several, the first signs and all verify.
    @ivar views: Renders templates for C{res.render}: a function of a template's name and a mapping
        of values, or a directory of Jinja2 templates.
    @ivar ws: Limits of the WebSockets of C{app.ws}, and the origins whose pages may connect; see
        L{WebSocketLimits<storagegate.net.websocket.interfaces.WebSocketLimits>}.
    @ivar websocket: A result of a gateway's C{getWebSocketConfig}: the application also serves the
        gateway's WebSockets.
    @ivar grpc: A result of C{getGRPCConfig}: C{listen} also opens this transport of the gateway.
    @ivar udp: A result of C{getUDPConfig}, as C{grpc}.
    @ivar tcp: A result of C{getTCPConfig}, as C{grpc}.
    @ivar wires: Results of C{getConfig} for other transports, by name; each is passed under its own
        name.
    """

    port: int = field(default=3000, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    development: DevelopmentOptions | None = field(default=None, converter=_development)
    maxRequestBodySize: int | None = field(default=None, converter=optional(readSize))
    keepAlive: bool = field(default=True, converter=readFlag)
    http2: bool = field(default=True, converter=readFlag)
    http2MaxStreams: int = optionField(100, readNumber, 1, MAX_STREAMS, "streams")
    keepAliveTimeout: int = field(default=5_000, converter=_milliseconds)
    http2KeepAliveTimeout: int = field(default=300_000, converter=_milliseconds)
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

        @raise RuntimeError: If the option is not set.
        """
        if self.cookieSecret is None:
            raise RuntimeError("signed cookies need the option cookieSecret of the application")
        return self.cookieSecret

    @property
    def wholeBodySize(self) -> int:
        """Return the limit of a body held in memory."""
        size = self.maxRequestBodySize
        return DEFAULT_BODY_SIZE if size is None else size

    def transports(self) -> dict[str, Mapping[str, Any]]:
        """Return the gateways' configurations of transports, by name of the transport."""
        known = fields(ApplicationOptions)
        own = {each.name: getattr(self, each.name) for each in known if _TRANSPORT in each.metadata}
        return {name: group for name, group in {**own, **self.wires}.items() if group is not None}

    def limits(self) -> HTTPLimits:
        """Return the limits of a listener of the application."""
        return HTTPLimits(
            keepAlive=self.keepAlive,
            http2=self.http2,
            http2MaxStreams=self.http2MaxStreams,
            keepAliveTimeout=self.keepAliveTimeout / 1000,
            http2KeepAliveTimeout=self.http2KeepAliveTimeout / 1000,
            headersTimeout=self.headersTimeout / 1000,
            requestTimeout=self.requestTimeout / 1000,
            webBodySize=self.wholeBodySize,
        )


def readDescription(given: Any) -> RouteDescription:
    """
    Read the description of a route.

    @param given: A mapping, or a function that returns one.
    @raise OptionError: If it is no mapping, or has an unknown name or an invalid value.
    """
    if isroutine(given):
        given = given()
    if isinstance(given, RouteDescription):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"the option openapi of a route is a mapping, not {given!r}")
    return changeOptions(RouteDescription(), given, "openapi.")


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
    http2: bool
    http2MaxStreams: int
    keepAliveTimeout: int
    http2KeepAliveTimeout: int
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
    Change some options; an unknown name is a transport if its value is a gateway's configuration.

    @raise OptionError: If an option is unknown or its value is invalid.
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


class ThreadRunner(Protocol):
    """Calls functions in threads."""

    def __call__(
        self, function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs
    ) -> Deferred[T]:
        """Call a function in a thread, and return a Deferred of its result."""


@frozen
class Runtime:
    """
    The threads and clocks that an application uses.

    @ivar clock: Schedules delays; the origin of its time is arbitrary.
    @ivar run: Calls a function in a thread.
    @ivar now: Returns the time in seconds since 1970.
    """

    clock: IReactorTime
    run: ThreadRunner
    now: Callable[[], float] = field(default=time.time)


def reactorRuntime(reactor: Any) -> Runtime:
    """
    Make the runtime of an application on a real reactor.

    Jobs wait in the reactor's thread pool. Their number is bounded by the number of requests that a
    listener accepts, as each request waits for its own jobs.

    @param reactor: Provides C{IReactorThreads} and C{IReactorTime}.
    """
    return Runtime(reactor, partial(callInThread, reactor))
