"""
The gRPC application: services, middleware and options that can be served.
"""

import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from storagegate.core.definitions import DefinitionError
from storagegate.core.dependencyowner import DependencyOwner
from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBytes
from storagegate.core.injection import injectedHandler
from storagegate.core.options import OptionError, changeOptions, joinOptions, listenArguments
from storagegate.core.task import callInThread, portable
from storagegate.net.endpoints import chooseReactor, findAddresses, processReactor, runUntilStopped
from storagegate.net.forwarded import Trust
from storagegate.net.tls import CertificateFiles
from storagegate.rpc.dispatch import CHECK_SECONDS, CallRouter, Middleware, Refused
from storagegate.rpc.engine import makeServerEngine
from storagegate.rpc.health import HEALTH, Health
from storagegate.rpc.interfaces import MessageByteCounter, NullByteCounter
from storagegate.rpc.options import RPCOptions, RPCOptionsDict
from storagegate.rpc.protos import RPCService
from storagegate.rpc.reflection import reflectionServices
from storagegate.rpc.routes import serviceRoutes
from storagegate.serving import claimRun

if TYPE_CHECKING:
    from storagegate.rpc.engine.native.shared import SharedCalls
    from storagegate.rpc.schemaprotos import GeneratedMessages


# The same options as keywords, for type checkers.


def checkAddress(host: str, port: int, isShared: bool) -> None:
    """
    Check that a port can be opened: grpc core reports no reason, and writes to standard error.

    @param host: An address, or a name that may have several addresses.
    @param isShared: Whether other processes may listen on the port.
    @raise CannotListenError: If it cannot be opened at any of the host's addresses.
    """
    reason: OSError | None = None
    try:
        found = findAddresses(host, port, socket.AI_PASSIVE)
    except OSError as error:
        found, reason = [], error
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if isShared:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(address)
            return
        except OSError as error:
            reason = error
    raise CannotListenError(host, port, reason)


def checkSocket(path: str) -> None:
    """
    Check that no server listens on a UNIX socket: grpc core would replace it.

    @param path: The path of the socket, which may be absent.
    @raise CannotListenError: If a server listens. A socket file without a server is replaced.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            # A server is there, and its backlog is full.
            pass
        except (OSError, ValueError):
            # There is no server, or no such path.
            return
    raise CannotListenError("unix", path, OSError("another server uses it"))


LISTENER = "grpc"
"""The name of its listener in output."""

DEFAULT_GRACE_MS = 30_000
"""The default grace of calls in flight; most load balancers wait no longer."""

RUN_GRACE_MS = 5_000
"""The same for L{GRPCServer.run}: Ctrl-C waits for it."""


class RPCPort:
    """
    A listening port.

    @ivar certificates: The TLS certificates; C{None} without TLS.
    """

    def __init__(
        self,
        engine: Any,
        address: IPv4Address | IPv6Address | UNIXAddress,
        certificates: CertificateFiles | None = None,
        watch: LoopingCall | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        @param watch: Checks the calls of the port until it closes.
        @param closed: Called when the last call has ended.
        """
        self._closed = closed
        self.certificates = certificates
        self._watch = watch
        self._engine = engine
        self._address = address

    def getHost(self) -> Any:
        """
        Return the port's own address.

        @return: An C{IPv4Address}, C{IPv6Address} or C{UNIXAddress}; typed as any because only the
            caller knows which.
        """
        return self._address

    def connections(self) -> int:
        """Count the open connections of this port; 4,000 take about 4 ms."""
        return int(self._engine.connections())

    def stopListening(self, graceMs: float = 0, settleMs: float = 0) -> Deferred[None]:
        """
        Close the port and its calls, after a grace; see L{GRPCServer.stop}.

        @param graceMs: How long calls may take, in milliseconds, before they are cancelled.
        """
        if self._watch is not None and self._watch.running:
            self._watch.stop()
        stopped: Deferred[None] = self._engine.stop(graceMs / 1000, settleMs / 1000)
        return stopped.addCallback(lambda _: self._closed())


class GRPCServer(DependencyOwner):
    """
    A gRPC application.

    @ivar settings: The options of L{withOptions}.
    @ivar services: The services by their full names.
    @ivar health: The health service, served unless the option C{grpc.health} is off.
    @ivar traffic: Counts the bytes of messages from the next L{listen} on.
    """

    _log = Logger()

    def __init__(
        self,
        trust: Trust | None = None,
        budget: HeldBytes = PROCESS_BUDGET,
        guarded: Collection[str] = (),
    ) -> None:
        """
        @param trust: Decides which proxies may name the client whose calls are counted, in
            C{x-forwarded-for}; C{None} for none.
        @param budget: Counts the bytes of incomplete requests.
        @param guarded: See L{CallRouter}; may change.
        """
        self.settings = RPCOptions()
        self.health = Health()
        self.traffic: MessageByteCounter = NullByteCounter()
        self._router = CallRouter(trust, budget, guarded)
        self._messages: GeneratedMessages | None = None
        self._lock: str | None = None
        self.services = self._router.services
        self._clock: Any = None
        self._ports: list[RPCPort] = []
        self._closing: list[RPCPort] = []

    @property
    def activeCalls(self) -> int:
        """How many handlers are running."""
        return self._router.activeCalls

    @property
    def onRefused(self) -> Refused | None:
        """
        Called with each L{Call<storagegate.rpc.call.Call>} that is refused before a handler runs,
        and the error: the method is unknown or has no handler, the request cannot be read, or a
        limit is exceeded.
        """
        return self._router.onRefused

    @onRefused.setter
    def onRefused(self, refused: Refused | None) -> None:
        self._router.onRefused = refused

    @property
    def connections(self) -> int:
        """How many connections are open, see L{RPCPort.connections}."""
        return sum(port.connections() for port in (*self._ports, *self._closing))

    @property
    def middleware(self) -> list[Middleware]:
        """Return its middleware, the outermost first."""
        return self._router.middleware

    def withOptions(
        self, options: Mapping[str, Any] | None = None, /, **more: Unpack[RPCOptionsDict]
    ) -> Self:
        """
        Change options, see L{RPCOptions<storagegate.rpc.options.RPCOptions>}, for the next
        L{listen}. Options under C{grpc} that are not named keep their values.

        @param options: As a mapping, by keywords, or both; keywords take precedence.
        @raise OptionError: If an option is unknown or has an invalid value.
        """
        self.settings = changeOptions(self.settings, joinOptions(options, more))
        return self

    def use(self, middleware: Middleware) -> Self:
        """
        Add a middleware, inside the earlier ones.

        @param middleware: C{async (call, next)}; C{await next()} runs the rest of the chain and
            returns its response, or raises. The middleware returns the response, or C{None} for the
            response of C{next}.
        """
        if not callable(middleware):
            raise TypeError(f"a middleware is a function of (call, next), not {middleware!r}")
        self._router.middleware.append(middleware)
        return self

    def addService(
        self,
        service: str | Mapping[str, Any] | RPCService | None = None,
        methods: Any = None,
        *,
        name: str | None = None,
        definition: RPCService | None = None,
        implementation: Any = None,
    ) -> Self:
        """
        Add a service, in one of two forms::

            addService(name="Probe", methods={"echo": echo, "watch": {"handler": watch}})
            addService(definition=loaded.UserService, implementation={"GetUser": getUser})

        In the first form, handlers receive the request, and the call if they have two parameters.
        The messages are generated from the schemas C{input} and C{output} of the methods. If no
        method has a schema, the messages come from the service of this full name in a file that
        C{loadProto} has loaded, if there is one.

        In the second form, handlers receive the call.

        @param service: A mapping of these keywords for either form; or a name, followed by the
            methods or by a mapping that contains them; or a loaded service, followed by its
            implementation.
        @param methods: The methods, or the implementation.
        @param name: The full name.
        @param definition: The loaded service.
        @param implementation: A mapping of method names, or an object with methods.
        @raise DefinitionError: If the arguments do not define a service, or its name is taken.
        """
        named = {"name": name, "definition": definition, "implementation": implementation}
        added, routes = serviceRoutes(
            service, methods, named, lambda given: self.messages.add(given), self._inject
        )
        if added.name in self.services:
            raise DefinitionError(f"the service {added.name} is already defined")
        self.services[added.name] = added
        self._router.routes.update(routes)
        if self._ports:
            self.health.begin(self._clock, (added.name,))
        return self

    @property
    def messages(self) -> "GeneratedMessages":
        """
        The messages of services without a C{.proto} file.

        @raise DefinitionError: If the lock of the options cannot be read.
        """
        if self._messages is None:
            # Imported late: protobuf's descriptors take 0.6 MB.
            from storagegate.rpc.protolock import readLock
            from storagegate.rpc.schemaprotos import GeneratedMessages

            self._lock = self.settings.grpc.protoLock
            self._messages = GeneratedMessages(readLock(self._lock))
        return self._messages

    def _inject(
        self, handler: Callable[..., Any], name: str, arguments: int, streams: bool
    ) -> Callable[..., Any] | None:
        """Adapt a handler with dependencies."""
        found = injectedHandler(handler, name, lambda: self.dependencies, arguments, streams)
        if found is not None and self._clock is not None:
            self.dependencies.clock = self._clock
        return found

    def _hasOpenPorts(self) -> bool:
        """Return whether it serves."""
        return bool(self._ports)

    def setServingStatus(self, service: str, status: str) -> None:
        """
        Set the status of a service that the health service reports.

        @param service: Its full name; empty for the whole server.
        @param status: C{SERVING} or C{NOT_SERVING}.
        @raise ValueError: If the status is neither.
        """
        self.health.setServingStatus(service, status)

    def listen(
        self,
        port: int | str | Mapping[str, Any] | None = None,
        hostname: str | None = None,
        *,
        reactor: Any = None,
    ) -> Deferred[RPCPort]:
        """
        Start serving.

        @param port: The port, 0 for a free one; or C{"host:port"} or C{"unix:path"}; or a mapping
            of these parameters.
        @param hostname: The name or address of the interface.
        @return: The port. Fails with C{CannotListenError} if the address is taken.
        @raise OptionError: If the port is not a number from 0 to 65535, or a file of C{tls} cannot
            be used.
        """
        if isinstance(port, Mapping):
            return self.listen(**listenArguments(port, hostname, reactor))
        reactor = processReactor(reactor)
        host, number = self._address(port, hostname)
        try:
            return portable(succeed(self._open(host, number, reactor)))
        except CannotListenError:
            return portable(fail())

    def _open(self, host: str, number: int | None, reactor: Any) -> RPCPort:
        """
        Open a port and serve.

        @raise CannotListenError: If the address is taken or invalid.
        """
        address = host
        if number is None:
            checkSocket(host.removeprefix("unix:"))
        else:
            checkAddress(host, number, self.settings.grpc.reusePort)
            address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
        options = self.settings.grpc
        engine = makeServerEngine(reactor, options, self.traffic, self._router.budget)
        try:
            bound = engine.bind(address, self.settings.tls)
        except (CannotListenError, OptionError):
            engine.discard()
            raise
        self._router.run = partial(callInThread, reactor)
        accept = self._prepare(reactor, options.maxConcurrentStreams)
        own: IPv4Address | IPv6Address | UNIXAddress
        if number is None:
            own = UNIXAddress(host.removeprefix("unix:"))
        else:
            own = (IPv6Address if ":" in host else IPv4Address)("TCP", host, bound)
        watch = LoopingCall(lambda: self._router.checkRequests(reactor.seconds()))
        watch.clock = reactor
        watch.start(CHECK_SECONDS)
        opened = RPCPort(engine, own, engine.certificates, watch, self._router.reads.close)
        engine.start(accept)
        self._ports.append(opened)
        return opened

    def share(self, reactor: Any, streams: int) -> "SharedCalls":
        """
        Serve on the port of another server, by the native engine.

        @param reactor: Provides C{IReactorTime}.
        @param streams: The maximum number of open streams of a connection of the port.
        @return: The calls of the port; close them once its connections have ended.
        """
        # Imported late: applications with ports of their own may need no HTTP/2.
        from storagegate.rpc.engine.native.shared import SharedCalls

        calls = SharedCalls(reactor, self.settings.grpc, self.traffic, self._router.budget)
        self._router.run = partial(callInThread, reactor)
        watch = LoopingCall(lambda: self._router.checkRequests(reactor.seconds()))
        watch.clock = reactor
        watch.start(CHECK_SECONDS)
        calls.start(self._prepare(reactor, streams), watch.stop)
        return calls

    def _prepare(self, clock: Any, streams: int | None) -> Callable[[Any], None]:
        """
        Prepare to accept the calls of an engine: add the health and reflection services.

        @param clock: Provides C{IReactorTime}.
        @param streams: See L{RPCOptions.callLimits<storagegate.rpc.options.RPCOptions.callLimits>}.
        @return: The function to call with each call of the engine, an
            L{IServerCall<storagegate.rpc.interfaces.IServerCall>}.
        """
        if self._messages is not None and self._lock != self.settings.grpc.protoLock:
            raise OptionError("set grpc.protoLock before the services: it numbers their messages")
        self._clock = clock
        if self._dependencies is not None:
            self._dependencies.clock = clock
        self._router.reads.listens(clock, self.settings.grpc.longestRequest())
        if self.settings.grpc.health and HEALTH.name not in self.services:
            self.addService(definition=HEALTH, implementation=self.health)
        if self.settings.grpc.reflection:
            for service, implementation in reflectionServices(lambda: self.services):
                if service.name not in self.services:
                    self.addService(definition=service, implementation=implementation)
        if self.settings.grpc.health:
            # Must be last: it reports the services added before it.
            self.health.begin(clock, self.services)
        return partial(self._router.accept, self.settings.callLimits(streams))

    def hostPort(self, port: int | str | None = None, hostname: str | None = None) -> str:
        """
        Return the address that L{listen} opens, C{HOST:PORT} or C{unix:PATH}.

        @param port: See L{listen}.
        @param hostname: See L{listen}.
        @raise OptionError: If the port is not a number from 0 to 65535.
        """
        host, number = self._address(port, hostname)
        if number is None:
            return host
        return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"

    @property
    def ports(self) -> list[RPCPort]:
        """Return its open ports."""
        return list(self._ports)

    def _address(self, port: int | str | None, hostname: str | None) -> tuple[str, int | None]:
        """Parse an address to listen on: an interface and a port, or a UNIX socket."""
        if isinstance(port, str):
            if port.startswith("unix:"):
                return port, None
            hostname, _, digits = port.rpartition(":")
            port = int(digits) if digits.isascii() and digits.isdigit() else -1
        given = {"port": port, "hostname": hostname}
        changes = {name: value for name, value in given.items() if value is not None}
        settings = changeOptions(self.settings, changes)
        return settings.hostname.strip("[]"), settings.port

    def stop(self, graceMs: float = DEFAULT_GRACE_MS, settleMs: float = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing new and let calls in flight end.

        @param graceMs: After this, calls are cancelled. A second stop may shorten it.
        @param settleMs: How long responses are held before the port stops accepting calls, and
            again after that, in milliseconds: for a port that another process also serves. grpc
            core cancels calls that arrive while it stops, and a client that waits for a response
            makes no calls.
        @return: Fires when all ports are closed, including ports of earlier stops.
        """
        self.health.shutdown()
        self._closing += self._ports
        self._ports = []

        async def close(port: RPCPort) -> None:
            await port.stopListening(graceMs, settleMs)
            # Another stop may have waited for this port as well.
            if port in self._closing:
                self._closing.remove(port)

        closing = [Deferred.fromCoroutine(close(port)) for port in tuple(self._closing)]

        def end(results: list[Any]) -> Deferred[None] | None:
            return None if self._dependencies is None else self._dependencies.close()

        return portable(gatherResults(closing).addCallback(end))

    def run(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        started: Callable[[RPCPort], Any] | None = None,
        graceMs: int = RUN_GRACE_MS,
        quiet: bool = False,
        reactor: str | None = None,
        workers: int | None = None,
    ) -> None:
        """
        Serve until a signal stops the process: for scripts.

        Without arguments, an application that already listens keeps its ports.

        @param port: See L{listen}.
        @param hostname: See L{listen}.
        @param started: Called with the port, in each process that serves.
        @param graceMs: The grace of calls in flight.
        @param quiet: Whether to print no listening addresses.
        @param reactor: C{asyncio} lets handlers await asyncio libraries; C{None} is the reactor of
            the process.
        @param workers: The number of processes that serve; this process then becomes their
            supervisor, see L{ServerGroup.run<storagegate.serving.group.ServerGroup.run>}. C{None}
            to serve in this process.
        @raise SystemExit: If the address is taken, or a worker cannot start.
        @raise ValueError: If C{workers} is not a number from 1 to 256.
        """
        if claimRun() is not None or workers is not None:
            self._runShared(port, hostname, started, graceMs, quiet, reactor, workers)
            return
        running = chooseReactor(reactor)
        listening = None
        if port is not None or hostname is not None or not self._ports:
            listening = self.listen(port, hostname, reactor=running)
            if started is not None:
                listening.addCallback(started)
        from storagegate.telemetry.log import logScript

        logScript(running)
        runUntilStopped(
            running,
            listening,
            lambda: self.stop(graceMs),
            lambda: [] if quiet else [(LISTENER, port) for port in self._ports],
        )

    def _runShared(
        self,
        port: int | str | None,
        hostname: str | None,
        started: Callable[[RPCPort], Any] | None,
        graceMs: int,
        quiet: bool,
        reactor: str | None,
        workers: int | None,
    ) -> None:
        """
        Serve in workers, or as one of them.

        @raise SystemExit: If the application already listens.
        """
        # Imported late: a single process does not need it.
        from storagegate.serving.group import makeGroup

        if self._ports:
            raise SystemExit(
                "storagegate: with workers, run() opens the port; do not call listen()"
            )

        def opened(ports: dict[str, Any]) -> None:
            if started is not None:
                started(ports[LISTENER])

        group = makeGroup((self, self.hostPort(port, hostname)))
        group.run(workers=workers, graceMs=graceMs, quiet=quiet, reactor=reactor, started=opened)
