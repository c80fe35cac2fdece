"""
Several servers, opened and closed together: applications, gRPC servers and gateways.

A server takes part through a L{Front}, which each package has for its own. A group serves in this
process, or in workers of the program::

    run() -> this process
    run(workers=2) -> supervisor, by exec -> workers: the program again, until its run()
"""

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pkgutil import resolve_name
from typing import Any, NoReturn, Protocol

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from storagegate.core.task import portable
from storagegate.net.endpoints import (
    ListeningPort,
    chooseReactor,
    processReactor,
    runUntilStopped,
)
from storagegate.net.workers import IDLE_GRACE_SECONDS
from storagegate.serving import claimRun, currentWorker
from storagegate.serving.program import Program, findProgram
from storagegate.serving.supervisor import (
    ProgramPlan,
    SharedListener,
    becomeSupervisor,
    readWorkers,
)
from storagegate.serving.worker import ProgramWorker
from storagegate.telemetry.log import logScript

DEFAULT_GRACE_MS = 30_000
"""The grace of L{ServerGroup.close}, and of workers at a reload: most load balancers wait no
longer."""

RUN_GRACE_MS = 5_000
"""The grace of L{ServerGroup.run}: a user waits at a terminal."""

_ENDPOINTS = ("tcp:", "tcp6:", "ssl:", "tls:", "unix:", "systemd:", "fd:", "haproxy:")
"""Prefixes of endpoint strings, to distinguish them from C{HOST:PORT}."""

_MAX_PORT = 65535

_RATES = {"rates": "storagegate.core.ratelimit:makeRateMemory"}
"""The shared memory of all programs: the counts of rate limits that have no store."""

_FRONTS = {
    "storagegate.http.application:Application": "storagegate.http.serving:ApplicationFront",
    "storagegate.rpc.application:GRPCServer": "storagegate.rpc.serving:GRPCFront",
    "storagegate.gateway.gateway:ProtocolGateway": "storagegate.gateway.serving:GatewayFront",
}
"""The fronts of servers, by their classes; both are imported only if a program uses them."""

_log = Logger()


class Front(Protocol):
    """
    A server, as a group opens and closes it. The names of its listeners are C{""} for its own
    listener, and the names of transports for those of gateways.

    @ivar kind: Its default name: C{http}, C{grpc} or C{gateway}.
    @ivar memory: Makers of shared memory for its workers, see
        L{ProgramPlan<storagegate.serving.supervisor.ProgramPlan>}.
    """

    kind: str

    @property
    def memory(self) -> Mapping[str, str]:
        """Return the makers."""

    def prepare(self, reactor: Any) -> None:
        """Prepare to be run as a script: begin logs."""

    def accepts(self, flag: str) -> bool:
        """Return whether it has a listener for an address of C{--http}, C{--grpc} and so on."""

    def relocate(self, flag: str, address: int | str) -> None:
        """
        Set the address of a listener.

        @param flag: A flag that it accepts.
        @raise ValueError: If the address is invalid.
        """

    def listeners(self) -> Sequence[SharedListener]:
        """
        Return the listeners that L{open} opens.

        @raise ValueError: If processes cannot share one of them.
        """

    def open(
        self, reactor: Any, worker: ProgramWorker | None, places: Mapping[str, str]
    ) -> Awaitable[Any]:
        """
        Open the listeners.

        @param worker: The worker that this process is, or C{None}.
        @param places: The addresses to use instead of its own, by listener.
        """

    def ports(self) -> Iterable[tuple[str, ListeningPort]]:
        """Return the open ports by listener."""

    def close(self, graceMs: float, patienceMs: float) -> Deferred[Any]:
        """
        Stop serving.

        @param graceMs: The time after which requests in flight are dropped.
        @param patienceMs: The time that idle connections stay open; 0 unless another process
            serves the same addresses.
        """

    def warnings(self) -> Iterable[str]:
        """Return warnings about state that each process keeps for itself."""


def makeGroup(*servers: Any) -> "ServerGroup":
    """
    Make a group of servers, see L{storagegate.server.serve}.

    @param servers: Servers, or pairs of a server and its address.
    @raise TypeError: If one of them is no server.
    @raise ValueError: If an address is invalid, or there is no server.
    """
    if not servers:
        raise ValueError("serve() needs at least one server")
    return ServerGroup([_frontOf(each) for each in servers])


def _frontOf(given: object) -> Front:
    server, address = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    for kind, front in _FRONTS.items():
        module, _, name = kind.partition(":")
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(server, known):
            made: Front = resolve_name(front)(server)
            if address is not None:
                if not made.accepts(made.kind):
                    raise ValueError("a gateway takes its addresses from its options")
                made.relocate(made.kind, address)
            return made
    raise TypeError(
        "a server is an application of server.http(), a gRPC server of server.grpc(), or a gateway"
        f" of createProtocolGateway(), not {server!r}"
    )


class FrontFailed(CannotListenError):
    """
    A server of a group cannot listen.

    @ivar name: The name of the server in its group.
    """

    def __init__(self, name: str, error: CannotListenError) -> None:
        super().__init__(error.interface, error.port, error.socketError)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name}: {super().__str__()}"


class ServerGroup:
    """
    Servers that one program opens and closes together; L{storagegate.server.serve} makes it.

    @ivar fronts: The servers by name: C{http}, C{grpc} or C{gateway}, and C{http-2} for the second
        of a kind.
    """

    def __init__(self, fronts: Iterable[Front]) -> None:
        self.fronts: dict[str, Front] = {}
        for front in fronts:
            names = (f"{front.kind}-{number}" for number in range(2, len(self.fronts) + 2))
            free = next(name for name in chain((front.kind,), names) if name not in self.fronts)
            self.fronts[free] = front

    def listen(self, *, reactor: Any = None) -> Deferred[dict[str, ListeningPort]]:
        """
        Start serving, for programs that run the reactor themselves.

        @param reactor: C{None} for the reactor of the process.
        @return: The ports by listener: C{http}, C{gateway.tcp}. Fails with L{FrontFailed} if an
            address is taken; no port is left open then.
        """
        opening = self._open(processReactor(reactor), currentWorker())
        return portable(Deferred.fromCoroutine(opening))

    @property
    def ports(self) -> dict[str, ListeningPort]:
        """Return the open ports by listener."""
        return {
            self._fullName(name, listener): port
            for name, front in self.fronts.items()
            for listener, port in front.ports()
        }

    def close(self, graceMs: float = DEFAULT_GRACE_MS, patienceMs: float = 0) -> Deferred[None]:
        """
        Stop serving: all servers accept nothing new, and let requests in flight complete.

        @param graceMs: The time after which requests in flight are dropped.
        @param patienceMs: The time that idle connections may stay open while another process serves
            the same addresses.
        @return: Fires when all are closed.
        """

        def failed(failure: Any, name: str) -> None:
            _log.failure("{name} failed to close", failure, name=name)

        closing = [
            maybeDeferred(front.close, graceMs, patienceMs).addErrback(failed, name)
            for name, front in self.fronts.items()
        ]
        return portable(gatherResults(closing).addCallback(lambda results: None))

    def run(
        self,
        *,
        workers: int | None = None,
        graceMs: float = RUN_GRACE_MS,
        quiet: bool = False,
        reactor: str | None = None,
        started: Callable[[dict[str, ListeningPort]], Any] | None = None,
    ) -> None:
        """
        Serve until the process receives a signal to stop, for scripts.

        With C{workers}, this process becomes the supervisor of as many processes, each of which
        runs the program from the beginning. The rest of the program, after C{run}, runs in the
        workers only.

        @param workers: The number of workers; C{None} to serve in this process.
        @param graceMs: The time after which requests in flight are dropped.
        @param quiet: Whether to print no listening addresses.
        @param reactor: C{asyncio} lets handlers await asyncio libraries; C{None} is the reactor of
            the process.
        @param started: Called with the ports by listener, in each process that serves.
        @raise SystemExit: If an address is taken, or a worker cannot start.
        @raise ValueError: If C{workers} is not a number from 1 to 256.
        """
        worker: ProgramWorker | None = claimRun()
        if worker is None and workers is not None:
            self.supervise(_thisProgram(), workers, graceMs=graceMs, quiet=quiet)
        running = chooseReactor(reactor)
        for front in self.fronts.values():
            front.prepare(running)
        logScript(running, None if worker is None else worker.link.index)
        opening = Deferred.fromCoroutine(self._open(running, worker))
        if started is not None:
            opening.addCallback(lambda ports: (started(ports), ports)[1])
        if worker is None:
            named = lambda: () if quiet else self.ports.items()  # noqa: E731
            runUntilStopped(running, opening, lambda: self.close(graceMs), named)
        else:
            count = worker.link.count
            if workers not in (None, count) and not worker.link.index:
                _log.warn(
                    "needs a restart: {count} workers instead of {workers}",
                    count=count,
                    workers=workers,
                )
            stop = worker.follow(running, opening, self.close, graceMs)
            runUntilStopped(running, opening, stop, lambda: ())

    def supervise(
        self,
        program: tuple[Sequence[str], Program],
        workers: int,
        *,
        graceMs: float = RUN_GRACE_MS,
        quiet: bool = False,
        idleGraceSeconds: float = IDLE_GRACE_SECONDS,
    ) -> NoReturn:
        """
        Become the supervisor of a program that runs this group.

        @param program: Options of the interpreter, and the program.
        @param workers: See L{run}.
        @param graceMs: See L{run}.
        @param quiet: See L{run}.
        @param idleGraceSeconds: The time that a replaced worker keeps idle connections open.
        @raise SystemExit: If processes cannot share a listener.
        @raise ValueError: If C{workers} is not a number from 1 to 256.
        """
        count = readWorkers(workers)
        try:
            listeners = list(self._listeners())
        except ValueError as error:
            raise SystemExit(f"storagegate: {error}") from None
        memory = dict(_RATES)
        warnings: list[str] = []
        for front in self.fronts.values():
            memory.update(front.memory)
            # A single worker has its memory for itself.
            warnings += front.warnings() if count > 1 else ()
        options, target = program
        becomeSupervisor(
            ProgramPlan(
                options=options,
                program=target,
                workers=count,
                listeners=listeners,
                memory=memory,
                graceMs=graceMs,
                reloadGraceMs=max(graceMs, DEFAULT_GRACE_MS),
                idleGraceSeconds=idleGraceSeconds,
                warnings=list(dict.fromkeys(warnings)),
                quiet=quiet,
            )
        )

    def relocate(self, flag: str, address: int | str) -> None:
        """
        Set the address of a listener.

        @param flag: C{http}, C{grpc} or the name of another transport.
        @param address: See L{readEndpoint} and L{readHostPort}.
        @raise ValueError: If no server has such a listener, several have one, or the address is
            invalid.
        """
        names = [name for name, front in self.fronts.items() if front.accepts(flag)]
        if not names:
            raise ValueError(f"there is no {flag} listener, only {', '.join(self._names())}")
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} have a {flag} listener: set their options")
        self.fronts[names[0]].relocate(flag, address)

    def _names(self) -> list[str]:
        return [each.name for each in self._listeners()]

    def _fullName(self, name: str, listener: str) -> str:
        """
        Return the name of a listener in the group.

        @param name: The name of the server.
        @param listener: The name of the listener in the server.
        """
        if not listener:
            return name
        return listener if len(self.fronts) == 1 else f"{name}.{listener}"

    def _listeners(self) -> Iterator[SharedListener]:
        for name, front in self.fronts.items():
            for each in front.listeners():
                full = self._fullName(name, each.name)
                yield SharedListener(full, each.endpoint, each.sharing)

    async def _open(self, reactor: Any, worker: ProgramWorker | None) -> dict[str, ListeningPort]:
        if worker is not None:
            self._checkPlaces(worker)
        try:
            for name, front in self.fronts.items():
                places: dict[str, str] = {}
                if worker is not None:
                    for each in front.listeners():
                        places[each.name] = worker.places[self._fullName(name, each.name)]
                try:
                    await front.open(reactor, worker, places)
                except CannotListenError as error:
                    raise FrontFailed(name, error) from error
        except Exception:
            await self.close(0)
            raise
        return self.ports

    def _checkPlaces(self, worker: ProgramWorker) -> None:
        """
        Compare the listeners with those that the supervisor has bound.

        @raise ValueError: If one is new.
        """
        for each in self._listeners():
            bound = worker.endpoints.get(each.name)
            if bound is None:
                raise ValueError(f"the listener {each.name} is new: restart the program to open it")
            if bound != each.endpoint and not worker.link.index:
                _log.warn(
                    "needs a restart: {name} listens on {bound} instead of {endpoint}",
                    name=each.name,
                    bound=bound,
                    endpoint=each.endpoint,
                )


def _thisProgram() -> tuple[Sequence[str], Program]:
    """
    Return the program of this process.

    @raise SystemExit: If no other process can run it.
    """
    found = findProgram(sys.orig_argv, sys.modules["__main__"])
    if found is None:
        raise SystemExit(
            "storagegate: workers need a program that can be started again, such as a script;"
            " run this application with storagegate run MODULE:APP --workers N"
        )
    return found


def readEndpoint(address: int | str, hostname: str) -> str:
    """
    Read the address of a stream.

    @param address: A port, C{HOST:PORT}, C{unix:PATH}, or an endpoint string of Twisted.
    @param hostname: The interface if the address is only a port.
    @return: An endpoint string.
    @raise ValueError: If the address is invalid.
    """
    if isinstance(address, str) and address.startswith(_ENDPOINTS):
        return address
    host, port = _readPort(address, hostname)
    escaped = host.replace(":", "\\:")
    return f"tcp:{port}:interface={escaped}"


def readHostPort(address: int | str, hostname: str) -> str:
    """
    Read the address of gRPC or of datagrams.

    @param address: A port, or C{HOST:PORT}.
    @param hostname: The interface if the address is only a port.
    @return: C{HOST:PORT}.
    @raise ValueError: If the address is invalid.
    """
    host, port = _readPort(address, hostname)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _readPort(address: int | str, hostname: str) -> tuple[str, int]:
    host, _, digits = str(address).rpartition(":")
    if not digits.isascii() or not digits.isdigit() or int(digits) > _MAX_PORT:
        raise ValueError(
            f"{address!r} is not an address: expected a port, HOST:PORT, unix:PATH or an endpoint"
            " string"
        )
    return host.strip("[]") or hostname, int(digits)
