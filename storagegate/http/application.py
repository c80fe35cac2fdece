"""
The application: a router with options that can be served.

The options of an application, read once.

Times are milliseconds, sizes bytes or text such as C{"10mb"}. A mapping may be given wherever an
option has parts of its own.

The middleware that options install.

The wires of gateways that an application opens beside its own port.

A gateway is whatever stands under C{gateway} in a group of options such as C{tcp}: this package
knows no wire by name.

What an application needs of the world around it: threads and time.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from attrs import fields
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from storagegate.core.options import joinOptions, listenArguments
from storagegate.http.options import (
    WIRE,
    ApplicationOptions,
    OptionsDict,
    Runtime,
    reactorRuntime,
    readOptions,
)
from storagegate.http.request import Trust, compileTrust
from storagegate.http.resource import AppResource, describeRejection
from storagegate.http.router import Router
from storagegate.net.endpoints import ListeningPort, listen, processReactor, runUntilStopped
from storagegate.net.http.site import Site

if TYPE_CHECKING:
    from storagegate.http.fetch import Request, Response


# The same options as keywords: what a type checker knows of them.


def wireGroups(options: ApplicationOptions) -> dict[str, Mapping[str, Any]]:
    """Return what gateways gave for their transports, by the name of the transport."""
    groups = {
        each.name: getattr(options, each.name)
        for each in fields(ApplicationOptions)
        if WIRE in each.metadata
    }
    groups.update(options.wires)
    return {name: group for name, group in groups.items() if group is not None}


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


def configureGateways(options: ApplicationOptions, names: Iterable[str]) -> None:
    """
    Give gateways the options of their groups.

    @param names: The options that have changed.
    @raise OptionError: If there is no such option, or its value is none.
    """
    groups = wireGroups(options)
    for wire in names:
        if wire in groups:
            group = groups[wire]
            given = {name: value for name, value in group.items() if name != "gateway"}
            group["gateway"].configureFor({wire: given})


def openGateways(options: ApplicationOptions, reactor: Any) -> Deferred[Any]:
    """
    Open the wires that have ports of their own.

    @return: Fails with C{CannotListenError} if a place is taken.
    """

    async def openEach() -> None:
        for gateway, wires in _gateways(options):
            await gateway.openFor(wires, reactor)

    return Deferred.fromCoroutine(openEach())


def closeGateways(options: ApplicationOptions, graceMs: int) -> list[Deferred[None]]:
    """Close them, and the WebSockets."""
    return [gateway.stop(graceMs) for gateway, _ in _gateways(options)]


def _gateways(options: ApplicationOptions) -> Iterator[tuple[Any, list[str]]]:
    """Give each gateway with its wires."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for wire, group in wireGroups(options).items():
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
        before = self.settings
        self.settings = readOptions(before, given)
        configureGateways(self.settings, given)
        self.trust = compileTrust(self.settings.trustProxy)
        isChanged = self.settings.websocket is not before.websocket
        if isChanged or given.keys() & {"cors", "compression", "rateLimit", "development"}:
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

        @return: C{await fetch(Request) -> Response}, see L{storagegate.http.fetch}.
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
