"""
The application: a router with options that can be served.

Options install middleware, and open the transports of gateways in addition to the application's own
port. Times are milliseconds; sizes are bytes, or text such as C{"10mb"}.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IListeningPort

from storagegate.core.dependencyowner import DependencyOwner
from storagegate.core.options import joinOptions, listenArguments
from storagegate.core.task import portable
from storagegate.http.options import (
    ApplicationOptions,
    OptionsDict,
    Runtime,
    reactorRuntime,
    readOptions,
)
from storagegate.http.resource import AppResource, describeRejection
from storagegate.http.router import Router, RouteType
from storagegate.net.endpoints import (
    ListeningPort,
    chooseReactor,
    listen,
    processReactor,
    runUntilStopped,
)
from storagegate.net.forwarded import Trust, compileTrust
from storagegate.net.http.site import Site
from storagegate.net.tls import ServerTLSOptions
from storagegate.serving import claimRun, currentWorker

if TYPE_CHECKING:
    from storagegate.http.fetch import Request, Response
    from storagegate.http.httpxtransport import TestTransport
    from storagegate.net.websocket.server import WebSocketServer

DEFAULT_GRACE_MS = 30_000
"""Time after which L{Application.close} drops requests in flight, as long as most load balancers
wait."""

RUN_GRACE_MS = 5_000
"""The grace period of L{Application.run}, shorter because a user waits at a terminal."""


def builtInMiddleware(options: ApplicationOptions) -> list[Callable[..., Any]]:
    """
    Make the middleware that options install, in order.

    The request log precedes all other middleware except live reload. CORS comes before middleware
    that may reject a request, so that a page can read the error.
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
    for name, given in (
        ("cors", options.cors),
        ("rateLimit", options.rateLimit),
        ("compression", options.compression),
    ):
        if given is not None:
            # The package imports each on first use.
            middleware.append(getattr(import_module("storagegate.http"), name)(given))
    if options.websocket is not None:
        middleware.append(options.websocket["gateway"].webSocketMiddleware())
    return middleware


def readCallback(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """
    Adapt a callback with at most one parameter to a function of one argument.

    @raise TypeError: If it takes more.
    """
    try:
        parameters = signature(function)
    except ValueError:
        # Some built-in functions have no signature.
        return function
    try:
        parameters.bind(None)
    except TypeError:
        parameters.bind()
        return lambda argument: function()
    return function


class Application(DependencyOwner, Router):
    """
    An HTTP application.

    @ivar settings: The options set by L{withOptions}.
    @ivar runtime: The application's threads and clock; set when it is served.
    @ivar resource: The application as a Twisted resource.
    @ivar trust: Decides which proxies may set C{X-Forwarded} fields, or C{None}.
    @ivar tls: TLS for listeners whose addresses do not configure it; C{None} for clear text.
    @cvar reloader: The reloader of this process, if C{development.hmr} started it.
    """

    reloader: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self.settings = ApplicationOptions()
        self.trust: Trust | None = None
        self.resource = AppResource(self)
        self._runtime: Runtime | None = None
        self.tls: ServerTLSOptions | None = None
        self._serving: list[tuple[IListeningPort, Site]] = []
        # Sites of other servers.
        self._joined: list[Site] = []
        # The number of calls of listen that have not ended.
        self._opening = 0
        self._listenError: str | None = None
        # The number of leading layers installed by options.
        self._builtIn = 0
        self._webSockets: WebSocketServer | None = None
        self._rpc: Any = None
        self._calls: list[Any] = []

    def useRPC(self, rpc: Any) -> Self:
        """
        Serve the calls of a gRPC application on the ports of this one, over HTTP/2.

        Requests with the content type of gRPC are its calls; all others stay requests of this
        application. Its L{close} also stops the gRPC application, which may have ports of its own.

        @param rpc: A L{GRPCServer<storagegate.rpc.application.GRPCServer>}, whose options apply to
            the calls, except those of connections.
        """
        self._rpc = rpc
        return self

    def withOptions(
        self, options: Mapping[str, Any] | None = None, /, **more: Unpack[OptionsDict]
    ) -> Self:
        """
        Change options; see L{ApplicationOptions<storagegate.http.options.ApplicationOptions>}.

        Options of a listener apply to the next L{listen}.

        @param options: As a mapping, by keyword, or both; keywords take precedence.
        @raise OptionError: If an option is unknown or its value is invalid.
        """
        given = joinOptions(options, more)
        before = self.settings
        self.settings = readOptions(before, given)
        transports = self.settings.transports()
        for name in given:
            if name in transports:
                group = dict(transports[name])
                group.pop("gateway").configureFor({name: group})
        self.trust = compileTrust(self.settings.trustProxy)
        isChanged = self.settings.websocket is not before.websocket
        if isChanged or given.keys() & {"cors", "compression", "rateLimit", "development"}:
            self.dropLayers(self._builtIn)
            middleware = builtInMiddleware(self.settings)
            for position, function in enumerate(middleware):
                self._mount("/", function, position)
            self._builtIn = len(middleware)
        return self

    @property
    def runtime(self) -> Runtime:
        """Return the application's threads and clock, by default the process's."""
        if self._runtime is None:
            self._runtime = reactorRuntime(processReactor())
        return self._runtime

    @runtime.setter
    def runtime(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def listen(
        self,
        port: int | str | Mapping[str, Any] | None = None,
        hostname: str | Callable[..., Any] | None = None,
        callback: Callable[..., Any] | None = None,
        *,
        reactor: Any = None,
    ) -> Deferred[ListeningPort]:
        """
        Start serving.

        @param port: A number, 0 for a free one; one of Twisted's endpoint strings, such as
            C{ssl:443:privateKey=key.pem:certKey=cert.pem}; or a mapping of these parameters.
        @param hostname: The name or address of the interface; or the next parameter.
        @param callback: Called once it listens, with the port if the callback takes an argument.
        @param reactor: The reactor to listen with, by default the reactor of the process.
        @return: The listening port. Fails with C{CannotListenError} if the address is in use.
        @raise OptionError: If the port is not a number from 0 to 65535.
        @raise TypeError: If the callback takes more than one argument.
        """
        if callable(hostname):
            hostname, callback = None, hostname
        if callback is not None:
            announce = readCallback(callback)
            listening = self.listen(port, hostname, reactor=reactor)
            return listening.addCallback(lambda port: (announce(port), port)[1])
        if isinstance(port, Mapping):
            return self.listen(**listenArguments(port, hostname, reactor))
        reactor = processReactor(reactor)
        if self._runtime is None:
            self._runtime = reactorRuntime(reactor)
        port = self.endpoint(port, hostname)
        site = Site(self.resource, self.settings.limits(), reactor, describeRejection)
        site.trust = self.trust
        calls = self._equip(site)
        development = self.settings.development
        if development is not None and development.console:
            from storagegate.http.development.console import beginConsole

            reactor.callWhenRunning(beginConsole)
        try:
            opening = self._open(reactor, port, site)
        except Exception:
            if calls is not None:
                calls.close()
            raise
        self._opening += 1
        return portable(Deferred.fromCoroutine(self._serve(opening, reactor, port, site, calls)))

    def _equip(self, site: Site) -> Any:
        """Accept WebSockets and calls of gRPC on a site; return the calls, or C{None}."""
        site.servesWebSockets = True
        if self._rpc is None:
            return None
        calls = self._rpc.share(site.reactor, site.limits.http2MaxStreams)
        site.openCall = calls.open
        return calls

    def join(self, site: Site) -> None:
        """
        Serve on the connections of another server as well, whose root passes requests on to
        L{resource}: the site accepts WebSockets and calls of gRPC from now on.

        L{close} also drains the site. The server closes its port before.
        """
        if self._runtime is None:
            self._runtime = reactorRuntime(site.reactor)
        calls = self._equip(site)
        if calls is not None:
            self._calls.append(calls)
        self._joined.append(site)

    def endpoint(self, port: int | str | None = None, hostname: str | None = None) -> str:
        """
        Return the endpoint string that L{listen} opens.

        @param port: See L{listen}.
        @param hostname: See L{listen}.
        @raise OptionError: If the port is not a number from 0 to 65535.
        """
        if isinstance(port, str):
            return port
        number = readOptions(self.settings, {} if port is None else {"port": port}).port
        interface = (hostname or self.settings.hostname).replace(":", "\\:")
        return f"tcp:{number}:interface={interface}"

    def _open(
        self, reactor: Any, description: str, site: Site
    ) -> Deferred[tuple[IListeningPort, bool]]:
        """
        Open a port, through the reloader in development.

        @return: The port, and whether its address is new since the last reload.
        @raise ValueError: If the description is not an endpoint.
        """
        if description.startswith("inherited:"):
            # The supervisor of workers has announced it, and replaces the program.
            return listen(reactor, description, site, self.tls).addCallback(
                lambda port: (port, False)
            )
        development = self.settings.development
        if development is not None and development.hmr and Application.reloader is None:
            from storagegate.http.development.reloader import processReloader

            Application.reloader = processReloader()
        if self.reloader is not None:
            # A child of the supervisor uses it even if a change has turned hmr off.
            opening: Deferred[tuple[IListeningPort, bool]]
            opening = self.reloader.listen(self, reactor, description, site)
            return opening
        return listen(reactor, description, site, self.tls).addCallback(lambda port: (port, True))

    async def _serve(
        self,
        opening: Deferred[tuple[IListeningPort, bool]],
        reactor: Any,
        description: str,
        site: Site,
        calls: Any,
    ) -> ListeningPort:
        """Open the transports of gateways after the port; close everything if one fails."""
        development = self.settings.development
        try:
            try:
                port, isNew = await opening
            except BaseException:
                if calls is not None:
                    calls.close()
                raise
            finally:
                self._opening -= 1
            if calls is not None:
                self._calls.append(calls)
            self._serving.append((port, site))
            if development is not None and development.console and isNew:
                from storagegate.http.development.console import announce

                announce(port, isSecure=description.startswith(("ssl:", "tls:")))
            try:
                for gateway, names in self.gateways():
                    await gateway.openFor(names, reactor)
            except Exception:
                await self.close(0)
                raise
        except Exception as error:
            # For run(), which would otherwise listen on its default port.
            self._listenError = str(error)
            raise
        return cast(ListeningPort, port)

    def gateways(self) -> Iterable[tuple[Any, list[str]]]:
        """Return each gateway of the options with the names of its transports."""
        found: dict[int, tuple[Any, list[str]]] = {}
        for name, group in self.settings.transports().items():
            gateway = group["gateway"]
            found.setdefault(id(gateway), (gateway, []))[1].append(name)
        return found.values()

    @property
    def webSockets(self) -> "WebSocketServer":
        """
        Return the server of its WebSocket routes; C{app.webSockets.connections} counts the open
        ones.

        The first access fixes its options.
        """
        if self._webSockets is None:
            # Imported with the first route.
            from storagegate.net.websocket.server import WebSocketCounts, WebSocketServer

            counts = WebSocketCounts()
            self._webSockets = WebSocketServer(self.runtime.clock, self.settings.ws, counts)
        return self._webSockets

    @property
    def ports(self) -> list[ListeningPort]:
        """Return its open ports, without those of gateways."""
        return [cast(ListeningPort, port) for port, _ in self._serving]

    def _hasOpenPorts(self) -> bool:
        """Return whether it serves."""
        return bool(self._serving)

    @property
    def connections(self) -> int:
        """Count the connections of its listeners."""
        return sum(site.connections for _, site in self._serving)

    def close(self, graceMs: int = DEFAULT_GRACE_MS, patienceMs: int = 0) -> Deferred[None]:
        """
        Stop serving: accept no new connections, and let requests in flight complete.

        @param graceMs: Connections still open after this time are dropped.
        @param patienceMs: Time that idle connections may stay open while another process serves the
            same port.
        @return: Fires when all connections are closed.
        """
        serving, self._serving = self._serving, []
        joined, self._joined = self._joined, []

        def drain(result: Any, port: IListeningPort, site: Site) -> Deferred[None]:
            if self.reloader is not None:
                self.reloader.released(port)
            return site.drain(graceMs / 1000, patienceMs / 1000)

        # A port accepts the last connections when it closes, so it is closed first.
        closing = [
            maybeDeferred(port.stopListening).addCallback(drain, port, site)
            for port, site in serving
        ]
        closing.extend(site.drain(graceMs / 1000, patienceMs / 1000) for site in joined)
        closing.extend(gateway.stop(graceMs, patienceMs) for gateway, _ in self.gateways())
        if self._rpc is not None:
            closing.append(self._rpc.stop(graceMs))
        # Created if absent: a handshake may still arrive on a closing connection.
        webSockets = self.webSockets if serving or joined else self._webSockets
        if webSockets is not None:
            closing.append(webSockets.close(graceMs / 1000, patienceMs / 1000))

        calls, self._calls = self._calls, []

        def end(results: list[Any]) -> Deferred[None] | None:
            for each in calls:
                each.close()
            # The application may listen again.
            if self._webSockets is webSockets:
                self._webSockets = None
            return None if self._dependencies is None else self._dependencies.close()

        return portable(gatherResults(closing).addCallback(end))

    def run(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        started: Callable[[ListeningPort], Any] | None = None,
        graceMs: int = RUN_GRACE_MS,
        quiet: bool = False,
        reactor: str | None = None,
        workers: int | None = None,
    ) -> None:
        """
        Serve until the process receives a signal to stop, for scripts.

        Without arguments, an application that already listens keeps its port.

        @param started: Called with the listening port, in each process that serves.
        @param graceMs: As L{close}.
        @param quiet: Whether to omit the message with its addresses.
        @param reactor: C{asyncio} lets handlers await asyncio libraries; C{None} is the reactor of
            the process.
        @param workers: The number of processes that serve; this process then becomes their
            supervisor, see L{ServerGroup.run<storagegate.serving.group.ServerGroup.run>}. C{None}
            to serve in this process.
        @raise SystemExit: If the address is in use, or a worker cannot start.
        @raise ValueError: If C{workers} is not a number from 1 to 256.
        """
        if claimRun() is not None or workers is not None:
            self._runShared(
                self.endpoint(port, hostname), started, graceMs, quiet, reactor, workers
            )
            return
        running = chooseReactor(reactor)
        if self._listenError is not None:
            raise SystemExit(self._listenError)
        for gateway, _names in self.gateways():
            gateway.logToStandardError(running)
        listening = None
        if port is not None or hostname is not None or not (self._serving or self._opening):
            listening = self.listen(port, hostname, reactor=running)
            if started is not None:
                listening.addCallback(started)
        development = self.settings.development
        isSaid = quiet or (development is not None and development.console)

        def listeners() -> Iterable[tuple[str, Any]]:
            ports = [("http", port) for port, _site in self._serving]
            for gateway, _names in self.gateways():
                ports += [each for each in gateway.ports.items() if each not in ports]
            return [] if isSaid else ports

        from storagegate.telemetry.log import logScript

        logScript(running)
        runUntilStopped(running, listening, lambda: self.close(graceMs), listeners)

    def _runShared(
        self,
        endpoint: str,
        started: Callable[[ListeningPort], Any] | None,
        graceMs: int,
        quiet: bool,
        reactor: str | None,
        workers: int | None,
    ) -> None:
        """
        Serve in workers, or as one of them.

        @raise SystemExit: If the application already listens, or reloads itself.
        """
        # Imported late: a single process does not need it.
        from storagegate.serving.group import makeGroup

        if self._serving or self._opening:
            raise SystemExit(
                "storagegate: with workers, run() opens the port; do not call listen()"
            )
        development = self.settings.development
        if development is not None and development.hmr and currentWorker() is None:
            raise SystemExit(
                "storagegate: development.hmr restarts the program itself; omit it or workers,"
                " or use storagegate run MODULE:APP --reload"
            )

        def opened(ports: dict[str, ListeningPort]) -> None:
            if started is not None:
                started(ports["http"])

        group = makeGroup((self, endpoint))
        group.run(workers=workers, graceMs=graceMs, quiet=quiet, reactor=reactor, started=opened)

    def openapi(
        self,
        title: str = "Application",
        version: str = "1.0.0",
        *,
        servers: Sequence[str] = ("/",),
        securitySchemes: Mapping[str, Any] | None = None,
        security: Sequence[Mapping[str, Any]] | None = None,
        errors: Mapping[str, str] | None = None,
        error: RouteType = None,
    ) -> dict[str, Any]:
        """
        Describe the routes in OpenAPI 3.1. The parameters are the options of
        L{DocumentOptions<storagegate.http.middleware.openapi.DocumentOptions>}.
        """
        from storagegate.http.middleware.openapi import DocumentOptions, describeRoutes

        options = DocumentOptions(
            title=title,
            version=version,
            servers=servers,
            securitySchemes=securitySchemes,
            security=security,
            errors=errors,
            error=error,
        )
        return describeRoutes(self, options)

    def testTransport(self) -> "TestTransport":
        """
        Make a transport of httpx that calls the application in this process, for tests::

            httpx.AsyncClient(transport=app.testTransport(), base_url="http://test")

        @return: The transport, for C{httpx.Client} as well.
        @raise ImportError: If httpx is not installed.
        """
        from storagegate.http.httpxtransport import TestTransport

        return TestTransport(self)

    def createFetchHandler(self) -> "Callable[[Request], Awaitable[Response]]":
        """
        Make a function that serves standard requests, without a listener.

        @return: C{await fetch(Request) -> Response}; see L{storagegate.http.fetch}.
        """
        from storagegate.http.fetch.handler import makeFetchHandler

        return makeFetchHandler(self)
