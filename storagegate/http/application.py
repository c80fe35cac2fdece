"""
The application: a router with options that can be served.

The options of an application, read once.

Times are milliseconds, sizes bytes or text such as C{"10mb"}. A mapping may be given wherever an
option has parts of its own.

The middleware that options install.

The wires of gateways that an application opens beside its own port.

A gateway is whatever stands under C{gateway} in the options C{websocket}, C{grpc}, C{udp} and
C{tcp}: this room knows none by name.

What an application needs of the world around it: threads and time.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, Unpack, cast

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from storagegate.core.options import (
    changeOptions,
    joinOptions,
    listenArguments,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
)
from storagegate.http.request import Trust, TrustedProxies, compileTrust
from storagegate.http.resource import AppResource, describeRejection
from storagegate.http.router import Router
from storagegate.http.runtime import Runtime, reactorRuntime
from storagegate.net.endpoints import ListeningPort, listen, processReactor, runUntilStopped
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site

if TYPE_CHECKING:
    from storagegate.http.fetch.messages import Request, Response


DEFAULT_BODY_SIZE = 10 * 1024 * 1024
"""A body that is held whole, unless the application says otherwise: larger ones want a stream."""

# A day: a longer one is a unit that was mistaken.
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


def _wire(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not hasattr(value.get("gateway"), "openFor"):
        raise ValueError("is what a gateway gives for it, by getTCPConfig() or one like it")
    return dict(value)


def _development(value: Any) -> DevelopmentOptions | None:
    if value is None or value is False or isinstance(value, DevelopmentOptions):
        return value or None
    if value is True:
        return DevelopmentOptions()
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options, True or False")
    return changeOptions(DevelopmentOptions(), value, "development.")


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

    @ivar port: Where C{listen} listens if it is not told.
    @ivar hostname: The interface.
    @ivar development: C{None} in service; otherwise answers show tracebacks.
    @ivar maxRequestBodySize: If set, no body may be longer. Otherwise only those that are held
        whole are bounded, by L{DEFAULT_BODY_SIZE}, and streams and uploads have no total.
    @ivar keepAlive: Whether a connection may have more than one request.
    @ivar keepAliveTimeout: How long one may idle between them.
    @ivar headersTimeout: How long the head of a request may take.
    @ivar requestTimeout: How long a request may go without progress.
    @ivar cors: Options of the C{cors} middleware, which is then installed first.
    @ivar compression: The same for C{compression}.
    @ivar rateLimit: The same for C{rateLimit}.
    @ivar trustProxy: Whose C{X-Forwarded} fields are believed, see
        L{compileTrust<storagegate.http.request.compileTrust>}.
    @ivar websocket: What a gateway's C{getWebSocketConfig} gives: the application answers its
        WebSockets, too.
    @ivar grpc: What C{getGRPCConfig} gives: C{listen} opens that wire of the gateway.
    @ivar udp: The same of C{getUDPConfig}.
    @ivar tcp: The same of C{getTCPConfig}.
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
    websocket: Mapping[str, Any] | None = field(default=None, converter=_wire)
    grpc: Mapping[str, Any] | None = field(default=None, converter=_wire)
    udp: Mapping[str, Any] | None = field(default=None, converter=_wire)
    tcp: Mapping[str, Any] | None = field(default=None, converter=_wire)

    @trustProxy.validator
    def _checkTrust(self, attribute: Any, value: Any) -> None:
        compileTrust(value)

    @property
    def wholeBodySize(self) -> int:
        """Give how long a body may be that is held whole."""
        size = self.maxRequestBodySize
        return DEFAULT_BODY_SIZE if size is None else size

    def limits(self) -> HTTPLimits:
        """Give the limits of a listener of the application."""
        return HTTPLimits(
            keepAlive=self.keepAlive,
            keepAliveTimeout=self.keepAliveTimeout / 1000,
            headersTimeout=self.headersTimeout / 1000,
            requestTimeout=self.requestTimeout / 1000,
            foreignBodySize=self.wholeBodySize,
        )


# The same options as keywords: what a type checker knows of them.


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
    websocket: Mapping[str, Any] | None
    grpc: Mapping[str, Any] | None
    udp: Mapping[str, Any] | None
    tcp: Mapping[str, Any] | None


def readOptions(before: ApplicationOptions, changes: Mapping[str, Any]) -> ApplicationOptions:
    """
    Change some options.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return changeOptions(before, changes)


def builtInMiddleware(options: ApplicationOptions) -> list[Callable[..., Any]]:
    """
    Make the middleware that options ask for, in its order.

    The log sees everything but what development adds; CORS comes before what may refuse, so that a
    page can read the refusal.
    """
    middleware: list[Callable[..., Any]] = []
    if options.development is not None and options.development.hmr:
        from storagegate.http.development.livereload import liveReload
        from storagegate.http.development.reloader import processReloader

        middleware.append(liveReload(processReloader().hub))
    if options.development is not None and options.development.console:
        from storagegate.http.development.console import ConsoleStream
        from storagegate.http.middleware.requestlog import requestLog

        middleware.append(requestLog("dev", stream=ConsoleStream("stdout")))
    if options.cors is not None:
        from storagegate.http.middleware.cors import cors

        middleware.append(cors(options.cors))
    if options.rateLimit is not None:
        from storagegate.http.middleware.ratelimit import rateLimit

        middleware.append(rateLimit(options.rateLimit))
    if options.compression is not None:
        from storagegate.http.middleware.compression import compression

        middleware.append(compression(options.compression))
    if options.websocket is not None:
        middleware.append(options.websocket["gateway"].webSocketMiddleware())
    return middleware


WIRES = ("websocket", "grpc", "udp", "tcp")


def configureGateways(options: Mapping[str, Any]) -> None:
    """
    Tell gateways what their groups say.

    @raise OptionError: If there is no such option, or its value is none.
    """
    for wire in WIRES:
        group = options.get(wire)
        if group is not None:
            given = {name: value for name, value in group.items() if name != "gateway"}
            group["gateway"].configureFor({wire: given})


def openGateways(options: ApplicationOptions, reactor: Any) -> Deferred[Any]:
    """
    Open the wires that have ports of their own.

    @return: Fails with C{CannotListenError} if a place is taken.
    """

    async def openEach() -> None:
        for gateway, wires in _gateways(options):
            await gateway.openFor([wire for wire in wires if wire != "websocket"], reactor)

    return Deferred.fromCoroutine(openEach())


def closeGateways(options: ApplicationOptions, graceMs: int) -> list[Deferred[None]]:
    """Close them, and the WebSockets."""
    return [gateway.stop(graceMs) for gateway, _ in _gateways(options)]


def _gateways(options: ApplicationOptions) -> Iterator[tuple[Any, list[str]]]:
    """Give each gateway with its wires."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for wire in WIRES:
        group = getattr(options, wire)
        if group is not None:
            gateway = group["gateway"]
            found.setdefault(id(gateway), (gateway, []))[1].append(wire)
    yield from found.values()


DEFAULT_GRACE_MS = 30_000
"""What a request in flight is given to end in; the longest that most balancers wait."""


_SECURE_ENDPOINTS = ("ssl:", "tls:")

RUN_GRACE_MS = 5_000
"""The same for L{Application.run}: whoever presses Ctrl-C waits for it."""


class Application(Router):
    """
    An HTTP application.

    @ivar settings: What L{withOptions} has set.
    @ivar runtime: Its threads and its clock; set when it is served.
    @ivar resource: The application as a Twisted resource.
    @ivar trust: Whose C{X-Forwarded} fields are believed, C{None} for nobody's.
    @cvar reloader: The reloader of this process, if it was needed for C{development.hmr}.
    """

    reloader: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self.settings = ApplicationOptions()
        self.trust: Trust | None = None
        self.resource = AppResource(self)
        self._runtime: Runtime | None = None
        self._serving: list[tuple[IListeningPort, Site]] = []
        # How many calls of listen have not ended.
        self._opening = 0
        self._refusal: str | None = None
        # How many layers at the beginning are there by options.
        self._builtIn = 0

    def withOptions(
        self, options: Mapping[str, Any] | None = None, /, **more: Unpack[OptionsDict]
    ) -> Self:
        """
        Change options, see L{ApplicationOptions<storagegate.http.application.ApplicationOptions>}.

        Those of a listener hold for the next L{listen}.

        @param options: As a mapping, by keywords, or both, where the keywords win.
        @raise OptionError: If there is no such option, or its value is none.
        """
        given = joinOptions(options, more)
        self.settings = readOptions(self.settings, given)
        configureGateways(given)
        self.trust = compileTrust(self.settings.trustProxy)
        if given.keys() & {"cors", "compression", "rateLimit", "development", "websocket"}:
            self._installBuiltIn()
        return self

    @property
    def runtime(self) -> Runtime:
        """Give the application's threads and clock: those of the process, unless told others."""
        if self._runtime is None:
            self._runtime = reactorRuntime(processReactor())
        return self._runtime

    @runtime.setter
    def runtime(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def listen(
        self,
        port: int | str | Mapping[str, Any] | None = None,
        hostname: str | None = None,
        *,
        reactor: Any = None,
    ) -> Deferred[ListeningPort]:
        """
        Start serving.

        @param port: Where; 0 takes a free one. Or one of Twisted's endpoint strings, such as
            C{ssl:443:privateKey=key.pem:certKey=cert.pem}; or a mapping of these parameters.
        @param hostname: The name or address of the interface.
        @return: The listening port. Fails with C{CannotListenError} if the place is taken.
        @raise OptionError: If the port is no number from 0 to 65535.
        """
        if isinstance(port, Mapping):
            return self.listen(**listenArguments(port, hostname, reactor))
        if reactor is None:
            reactor = processReactor()
        if self._runtime is None:
            self._runtime = reactorRuntime(reactor)
        if not isinstance(port, str):
            options = {} if port is None else {"port": port}
            number = readOptions(self.settings, options).port
            interface = (hostname or self.settings.hostname).replace(":", "\\:")
            port = f"tcp:{number}:interface={interface}"
        site = Site(self.resource, self.settings.limits(), reactor, describeRejection)
        development = self.settings.development
        showsConsole = development is not None and development.console
        if showsConsole:
            from storagegate.http.development.console import announce, beginConsole

            reactor.callWhenRunning(beginConsole)

        def started(opened: tuple[IListeningPort, bool]) -> ListeningPort:
            listening, isNew = opened
            self._opening -= 1
            self._serving.append((listening, site))
            if showsConsole and isNew:
                announce(listening, isSecure=port.startswith(_SECURE_ENDPOINTS))
            return cast(ListeningPort, listening)

        def failed(reason: Failure) -> Failure:
            self._opening -= 1
            return reason

        def refused(reason: Failure) -> Failure:
            # For run(), which otherwise would serve on a port that nobody asked for.
            self._refusal = reason.getErrorMessage()
            return reason

        self._opening += 1
        opening = self._open(reactor, port, site).addCallbacks(started, failed)
        return opening.addCallback(self._openWires, reactor).addErrback(refused)

    def _openWires(self, port: ListeningPort, reactor: Any) -> Deferred[ListeningPort]:
        """Open the wires of gateways that options name; if one cannot be, close all."""

        def failed(reason: Failure) -> Deferred[Any]:
            return self.close(0).addCallback(lambda _: reason)

        return openGateways(self.settings, reactor).addCallbacks(lambda _: port, failed)

    def _open(
        self, reactor: Any, description: str, site: Site
    ) -> Deferred[tuple[IListeningPort, bool]]:
        """
        Open a port, in development by the reloader.

        @return: The port, and whether its address was not listened on before a reload.
        """
        development = self.settings.development
        if development is not None and development.hmr and Application.reloader is None:
            from storagegate.http.development.reloader import processReloader

            Application.reloader = processReloader()
        if self.reloader is not None:
            # In a child of the supervisor also if a change has switched hmr off.
            opening: Deferred[tuple[IListeningPort, bool]]
            opening = self.reloader.listen(self, reactor, description, site)
            return opening
        return listen(reactor, description, site).addCallback(lambda port: (port, True))

    @property
    def connections(self) -> int:
        """Count the connections of its listeners."""
        return sum(site.connections for _, site in self._serving)

    def close(self, graceMs: int = DEFAULT_GRACE_MS, patienceMs: int = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing more, let what is being answered end.

        @param graceMs: After this, connections are dropped.
        @param patienceMs: How long idle connections may stay, where another process serves the same
            port.
        @return: Fires when all is closed.
        """
        serving, self._serving = self._serving, []

        def drain(result: Any, port: IListeningPort, site: Site) -> Deferred[None]:
            if self.reloader is not None:
                self.reloader.released(port)
            return site.drain(graceMs / 1000, patienceMs / 1000)

        # The port lets the last clients in when it closes, so that comes first.
        closing = [
            maybeDeferred(port.stopListening).addCallback(drain, port, site)
            for port, site in serving
        ]
        closing.extend(closeGateways(self.settings, graceMs))
        return gatherResults(closing).addCallback(lambda results: None)

    def run(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        started: Callable[[ListeningPort], Any] | None = None,
        graceMs: int = RUN_GRACE_MS,
    ) -> None:
        """
        Serve until the process is told to stop: for scripts.

        Without arguments an application that L{listen}s already stays where it is.

        @param started: Called with the listening port.
        @param graceMs: What is being answered then gets this long, as for L{close}.
        @raise SystemExit: If the place is taken.
        """
        reactor = processReactor()
        if self._refusal is not None:
            raise SystemExit(self._refusal)
        listening = None
        if port is not None or hostname is not None or not (self._serving or self._opening):
            listening = self.listen(port, hostname, reactor=reactor)
            if started is not None:
                listening.addCallback(started)
        runUntilStopped(reactor, listening, lambda: self.close(graceMs))

    def createFetchHandler(self) -> "Callable[[Request], Awaitable[Response]]":
        """
        Give a function that answers standard requests, without a listener.

        @return: C{await fetch(Request) -> Response}, see L{storagegate.http.fetch.messages}.
        """
        from storagegate.http.fetch.handler import makeFetchHandler

        return makeFetchHandler(self)

    def _installBuiltIn(self) -> None:
        """Put the middleware that options ask for before everything else."""

        self.dropLayers(self._builtIn)
        middleware = builtInMiddleware(self.settings)
        for position, function in enumerate(middleware):
            self._mount("/", function, position)
        self._builtIn = len(middleware)
