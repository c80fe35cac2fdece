"""The gRPC application: services, middleware and options that can be served."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.net.reactors import processReactor, runUntilStopped
from storagegate.rpc.call import Call
from storagegate.rpc.callrun import CallRun, Middleware, Refused
from storagegate.rpc.definitions import RPCService
from storagegate.rpc.health import HEALTH, Health
from storagegate.rpc.options import GRPCOptions, RPCOptions, readOptions
from storagegate.rpc.places import checkPlace
from storagegate.rpc.reflection import reflectionServices
from storagegate.rpc.routes import Route, serviceRoutes
from storagegate.rpc.wire import IServerCall, Traffic, UnseenTraffic

DEFAULT_GRACE_MS = 30_000
"""What a call in flight is given to end in; the longest that most balancers wait."""

RUN_GRACE_MS = 5_000
"""The same for L{GRPCServer.run}: whoever presses Ctrl-C waits for it."""

_FORGOTTEN = 2
"""
How many times C{maxConcurrentStreams} a connection may have at work: a client that gives all of its
calls up and makes as many anew has so many until the handlers of the first have ended.
"""

_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
_UNIMPLEMENTED = GRPC_STATUSES["UNIMPLEMENTED"]


class RPCPort:
    """A port that calls come in by."""

    def __init__(self, engine: Any, address: IPv4Address | IPv6Address | UNIXAddress) -> None:
        self._engine = engine
        self._address = address

    def getHost(self) -> IPv4Address | IPv6Address | UNIXAddress:
        """Give the port's own address."""
        return self._address

    def connections(self) -> int:
        """Count the connections that came by this port and are there; 4,000 take some 4 ms."""
        count: int = self._engine.connections()
        return count

    def stopListening(self, graceMs: float = 0, settleMs: float = 0) -> Deferred[None]:
        """Close the port and the calls that came by it, after a grace; see L{GRPCServer.stop}."""
        stopped: Deferred[None] = self._engine.stop(graceMs / 1000, settleMs / 1000)
        return stopped


class GRPCServer:
    """
    A gRPC application.

    @ivar settings: What L{withOptions} has set.
    @ivar services: Every service by its whole name.
    @ivar activeCalls: How many handlers are at work.
    @ivar health: The health service, which clients see unless the option C{grpc.health} is off.
    @ivar traffic: Counts the bytes of messages from the next L{listen} on.
    @ivar onRefused: Called with each L{Call<storagegate.rpc.call.Call>} that is answered without a
        handler being asked, and why: its method is unknown or has no handler, its request cannot
        be read, or it is one too many. C{None} if nobody wants to know.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.settings = RPCOptions()
        self.services: dict[str, RPCService] = {}
        self.activeCalls = 0
        self.health = Health()
        self.traffic: Traffic = UnseenTraffic()
        self.onRefused: Refused | None = None
        self._clock: Any = None
        self._routes: dict[str, Route] = {}
        self._middleware: list[Middleware] = []
        self._ports: list[RPCPort] = []
        self._closing: list[RPCPort] = []
        self._callsOf: dict[str, int] = {}

    @property
    def connections(self) -> int:
        """Count the connections that are there, see L{RPCPort.connections}."""
        return sum(port.connections() for port in (*self._ports, *self._closing))

    def withOptions(self, **options: Any) -> Self:
        """
        Change options, see L{RPCOptions<storagegate.rpc.options.RPCOptions>}; they hold for the
        next L{listen}.

        @raise OptionError: If there is no such option, or its value is none.
        """
        self.settings = readOptions(self.settings, options)
        return self

    def use(self, middleware: Middleware) -> Self:
        """
        Add a middleware, inside those that are there.

        @param middleware: C{async (call, next)}; it goes on by C{await next()}, which gives the
            response, and may raise. What it returns is the response; if it returns nothing, that of
            C{next} stands.
        """
        if not callable(middleware):
            raise TypeError(f"a middleware is a function of (call, next), not {middleware!r}")
        self._middleware.append(middleware)
        return self

    def addService(
        self,
        service: Any = None,
        methods: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        definition: Any = None,
        implementation: Any = None,
    ) -> Self:
        """
        Add a service, in one of two forms::

            addService(name="Probe", methods={"echo": echo, "watch": {"handler": watch}})
            addService(definition=loaded.UserService, implementation={"GetUser": getUser})

        In the first, handlers get the request, and the call if they take two parameters. The
        messages are made from the schemas C{input} and C{output} of the methods. Where no method
        has any, they are those of the service of this full name in a file that
        L{loadProto<storagegate.rpc.protos.loadProto>} has loaded, if there is one.

        In the second, C{implementation} is a mapping of method names or an object with methods, and
        handlers get the call.

        A mapping of the same words will do for either; and so will a name, followed by the methods
        or by a mapping that has them, and a loaded service, followed by its implementation.

        @raise DefinitionError: If it is none, or its name is taken.
        """
        named = {"name": name, "definition": definition, "implementation": implementation}
        return self._add(*serviceRoutes(service, methods, named))

    def _add(self, service: RPCService, routes: dict[str, Route]) -> Self:
        if service.name in self.services:
            raise DefinitionError(f"there is a service {service.name} already")
        self.services[service.name] = service
        self._routes.update(routes)
        if self._ports:
            self.health.begin(self._clock, (service.name,))
        return self

    def setServingStatus(self, service: str, status: str) -> None:
        """
        Say whether a service can be used, for those who ask the health service.

        @param service: Its whole name; empty for the whole server.
        @param status: C{SERVING} or C{NOT_SERVING}.
        @raise ValueError: If it is neither.
        """
        self.health.setServingStatus(service, status)

    def listen(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        reactor: Any = None,
    ) -> Deferred[RPCPort]:
        """
        Start serving.

        @param port: Where; 0 takes a free one. Or C{"host:port"} or C{"unix:path"}.
        @param hostname: The name or address of the interface.
        @return: The port. Fails with C{CannotListenError} if the place is taken.
        @raise OptionError: If the port is no number from 0 to 65535, or a file of C{tls} cannot be
            used.
        """
        if reactor is None:
            reactor = processReactor()
        host, number = self._place(port, hostname)
        try:
            return succeed(self._open(host, number, reactor))
        except CannotListenError:
            return fail()

    def _open(self, host: str, number: int | None, reactor: Any) -> RPCPort:
        """
        Open a port and serve.

        @raise CannotListenError: If it cannot be had.
        """
        from storagegate.rpc.serverwire import GrpcioServer

        address = host
        if number is not None:
            checkPlace(host, number, self.settings.grpc.reusePort)
            address = f"{_bracketed(host)}:{number}"
        credentials = None
        if self.settings.tls is not None:
            from storagegate.rpc.credentials import makeServerCredentials

            credentials = makeServerCredentials(self.settings.tls)
        engine = GrpcioServer(reactor, self.settings.channelArguments(), self.traffic)
        try:
            bound = engine.bind(address, credentials)
        except CannotListenError:
            engine.discard()
            raise
        self._clock = reactor
        self._addStandard(reactor)
        opened = RPCPort(engine, _address(host, None if number is None else bound))
        engine.start(partial(self._accept, self.settings))
        self._ports.append(opened)
        return opened

    def _place(self, port: int | str | None, hostname: str | None) -> tuple[str, int | None]:
        """Read where to listen: an interface and a port, or the address of a UNIX socket."""
        if isinstance(port, str):
            if port.startswith("unix:"):
                return port, None
            hostname, _, digits = port.rpartition(":")
            port = int(digits) if digits.isascii() and digits.isdigit() else -1
        changes: dict[str, Any] = {}
        if port is not None:
            changes["port"] = port
        if hostname is not None:
            changes["hostname"] = hostname
        settings = readOptions(self.settings, changes)
        return settings.hostname.strip("[]"), settings.port

    def _addStandard(self, clock: Any) -> None:
        """Add the standard services that the options ask for."""
        if self.settings.grpc.health and HEALTH.name not in self.services:
            self.addService(definition=HEALTH, implementation=self.health)
        if self.settings.grpc.reflection:
            for service, implementation in reflectionServices(lambda: self.services):
                if service.name not in self.services:
                    self.addService(definition=service, implementation=implementation)
        if self.settings.grpc.health:
            # The last, for it knows what was added before.
            self.health.begin(clock, self.services)

    def _accept(self, settings: RPCOptions, wire: IServerCall) -> None:
        """Answer a call that an engine has accepted, with the options that it was started with."""
        route = self._routes.get(wire.path)
        if route is None:
            service = wire.path.strip("/").rpartition("/")[0]
            kind = "method" if service in self.services else "service"
            self._refuse(wire, service, _UNIMPLEMENTED, f"unknown {kind}: {wire.path:.200}")
            return
        peer = wire.peer()
        refusal = self._refusal(settings.grpc, peer)
        if refusal is not None:
            self._refuse(wire, route.service.name, _EXHAUSTED, refusal)
            return
        self.activeCalls += 1
        self._callsOf[peer] = self._callsOf.get(peer, 0) + 1
        ended = partial(self._ended, peer)
        refused = self._tellRefused
        CallRun(wire, route, self._middleware, settings.compresses, ended, refused).begin()

    def _refuse(self, wire: IServerCall, service: str, status: int, reason: str) -> None:
        """Answer a call that nothing is done for."""
        if self.onRefused is not None:
            method = wire.path.rpartition("/")[2]
            self._tellRefused(Call(wire, service, method), GrpcError(status, reason))
        wire.finish(status, reason)

    def _tellRefused(self, call: Call, error: Exception) -> None:
        if self.onRefused is None:
            return
        try:
            self.onRefused(call, error)
        except Exception:
            # The call is answered all the same.
            self._log.failure("{path} was refused, and could not be counted", path=call.path)

    def _refusal(self, options: GRPCOptions, peer: str) -> str | None:
        """Tell why a peer's call is one too many, if it is."""
        if self.activeCalls >= options.maxConcurrentRpcs:
            return "too many calls at a time"
        allowed = options.maxConcurrentStreams
        # All clients of a UNIX socket have one name.
        if allowed is None or peer.startswith("unix:"):
            return None
        # The library sees to the limit, but forgets at once a call that its client has reset. Who
        # resets calls as fast as it makes them would have all there may be.
        if self._callsOf.get(peer, 0) >= _FORGOTTEN * allowed:
            return "too many calls at a time on this connection"
        return None

    def _ended(self, peer: str) -> None:
        self.activeCalls -= 1
        left = self._callsOf[peer] - 1
        if left:
            self._callsOf[peer] = left
        else:
            del self._callsOf[peer]

    def stop(self, graceMs: float = DEFAULT_GRACE_MS, settleMs: float = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing more, let what is being answered end.

        @param graceMs: After this, calls are cancelled. Whoever stops again, sooner, has it so.
        @param settleMs: For so long before clients are told to go elsewhere, and as long after it,
            no call is answered, and until then more are accepted: for a port that another process
            serves as well. A call that comes in the moment between is cancelled by grpc core, and
            a client that waits for an answer makes none.
        @return: Fires when all is closed, also what was being closed already.
        """
        self.health.shutdown()
        self._closing += self._ports
        self._ports = []
        closing = [self._close(port, graceMs, settleMs) for port in tuple(self._closing)]
        return gatherResults(closing).addCallback(lambda results: None)

    def _close(self, port: RPCPort, graceMs: float, settleMs: float) -> Deferred[None]:
        def closed(result: None) -> None:
            # Another stop may have waited for it as well.
            if port in self._closing:
                self._closing.remove(port)

        return port.stopListening(graceMs, settleMs).addCallback(closed)

    def run(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        started: Callable[[RPCPort], Any] | None = None,
        graceMs: int = RUN_GRACE_MS,
    ) -> None:
        """
        Serve until the process is told to stop: for scripts.

        Without arguments an application that L{listen}s already stays where it is.

        @param started: Called with the port.
        @param graceMs: What is being answered then gets this long.
        @raise SystemExit: If the place is taken.
        """
        reactor = processReactor()
        listening = None
        if port is not None or hostname is not None or not self._ports:
            listening = self.listen(port, hostname, reactor=reactor)
            if started is not None:
                listening.addCallback(started)
        runUntilStopped(reactor, listening, lambda: self.stop(graceMs))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _address(host: str, port: int | None) -> IPv4Address | IPv6Address | UNIXAddress:
    if port is None:
        return UNIXAddress(host.removeprefix("unix:"))
    if ":" in host:
        return IPv6Address("TCP", host, port)
    return IPv4Address("TCP", host, port)
