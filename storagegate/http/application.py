"""The application: a router with options that can be served."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from storagegate.http.gateways import closeGateways, configureGateways, openGateways
from storagegate.http.options import Options, readOptions
from storagegate.http.resource import AppResource, describeRejection
from storagegate.http.router import Router
from storagegate.http.runtime import Runtime, reactorRuntime
from storagegate.http.trust import Trust, compileTrust
from storagegate.net.endpoints import listen
from storagegate.net.reactors import processReactor, runUntilStopped
from storagegate.net.site import Site

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
    @cvar workshop: What loads the code of this process again, once C{development.hmr} was served.
    """

    workshop: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self.settings = Options()
        self.trust: Trust | None = None
        self.resource = AppResource(self)
        self._runtime: Runtime | None = None
        self._serving: list[tuple[IListeningPort, Site]] = []
        self._refusal: str | None = None
        # How many layers at the beginning are there by options.
        self._builtIn = 0

    def withOptions(self, **options: Any) -> Self:
        """
        Change options, see L{Options<storagegate.http.options.Options>}.

        Those of a listener hold for the next L{listen}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        self.settings = readOptions(self.settings, options)
        configureGateways(options)
        self.trust = compileTrust(self.settings.trustProxy)
        if options.keys() & {"cors", "compression", "rateLimit", "development", "websocket"}:
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
        self, port: int | str | None = None, hostname: str | None = None, *, reactor: Any = None
    ) -> Deferred[IListeningPort]:
        """
        Start serving.

        @param port: Where; 0 takes a free one. Or one of Twisted's endpoint strings, such as
            C{ssl:443:privateKey=key.pem:certKey=cert.pem}.
        @param hostname: The name or address of the interface.
        @return: The listening port. Fails with C{CannotListenError} if the place is taken.
        @raise OptionError: If the port is no number from 0 to 65535.
        """
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

        def started(served: tuple[IListeningPort, Site]) -> IListeningPort:
            self.adopt(*served)
            if showsConsole and served[1] is site:
                announce(served[0], isSecure=port.startswith(_SECURE_ENDPOINTS))
            return served[0]

        def refused(reason: Failure) -> Failure:
            # For run(), which otherwise would serve on a port that nobody asked for.
            self._refusal = reason.getErrorMessage()
            return reason

        opening = self._open(reactor, port, site).addCallback(started)
        return opening.addCallback(self._openWires, reactor).addErrback(refused)

    def _openWires(self, port: IListeningPort, reactor: Any) -> Deferred[IListeningPort]:
        """Open the wires of gateways that options name; if one cannot be, close all."""

        def failed(reason: Failure) -> Deferred[Any]:
            return self.close(0).addCallback(lambda _: reason)

        return openGateways(self.settings, reactor).addCallbacks(lambda _: port, failed)

    def _open(
        self, reactor: Any, description: str, site: Site
    ) -> Deferred[tuple[IListeningPort, Site]]:
        """Open a port, or in development take it over from the application's old code."""
        workshop = self._ownWorkshop() or Application.workshop
        if workshop is not None and workshop.isWanted:
            taken: Deferred[tuple[IListeningPort, Site]]
            taken = workshop.listen(self, reactor, description, site)
            return taken
        return listen(reactor, description, site).addCallback(lambda port: (port, site))

    def _ownWorkshop(self) -> Any:
        """Give what loads the code of this process again, if this application wants it."""
        development = self.settings.development
        if development is None or not development.hmr:
            return None
        from storagegate.http.development.workshop import processWorkshop

        # Known to the class: the next version of the code may not want it, but takes over.
        Application.workshop = processWorkshop()
        Application.workshop.isWanted = True
        return Application.workshop

    @property
    def connections(self) -> int:
        """Count the connections of its listeners."""
        return sum(site.connections for _, site in self._serving)

    def adopt(self, port: IListeningPort, site: Site) -> None:
        """Count a listener among those that L{close} closes."""
        self._serving.append((port, site))

    def forget(self, port: IListeningPort) -> None:
        """Leave a listener to another application, or to whoever closes it."""
        for served in self._serving:
            if served[0] is port:
                self._serving.remove(served)
                break

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
            if self.workshop is not None:
                self.workshop.released(port)
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
        started: Callable[[IListeningPort], Any] | None = None,
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
        workshop = self._ownWorkshop()
        if workshop is not None:
            workshop.scriptServes()
        if self._refusal is not None:
            raise SystemExit(self._refusal)
        listening = None
        if port is not None or hostname is not None or not self._serving:
            listening = self.listen(port, hostname, reactor=reactor)
            if started is not None:
                listening.addCallback(started)
        if self.workshop is not None:
            self.workshop.scriptWaits()
        # In development another one may be serving by then.
        closer = self if workshop is None else workshop
        runUntilStopped(reactor, listening, lambda: closer.close(graceMs))

    def createFetchHandler(self) -> Any:
        """
        Give a function that answers standard requests, without a listener.

        @return: C{await fetch(Request) -> Response}, see L{storagegate.http.fetch}.
        """
        from storagegate.http.fetchhandler import makeFetchHandler

        return makeFetchHandler(self)

    def _installBuiltIn(self) -> None:
        """Put the middleware that options ask for before everything else."""
        from storagegate.http.builtin import builtInMiddleware

        self.dropLayers(self._builtIn)
        middleware = builtInMiddleware(self.settings)
        for position, function in enumerate(middleware):
            self._mount("/", function, position)
        self._builtIn = len(middleware)
