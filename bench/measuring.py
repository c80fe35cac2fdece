"""The measuring loop: every case, its servers in turns, round by round."""

import contextlib
import fcntl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import frozen

from bench import instructions
from bench.cases import OURS, Case, Load, MeasureError, Seen, Server, Started
from bench.processes import Running, Session, favour
from bench.results import Cell, Failure, Results

LOCK = Path(tempfile.gettempdir()) / "storagegate-bench.lock"
"""Held while a benchmark of this machine measures."""

FAVOURED = -15
"""The nice value of both sides during a measurement, where root may set it."""


@frozen
class Effort:
    """
    The extent of a run.

    @ivar seconds: Duration of a measurement.
    @ivar quick: Whether only the quick cases run, with their numbers of connections.
    @ivar connections: Numbers of connections in place of those of the cases.
    """

    rounds: int
    seconds: float
    quick: bool = False
    connections: tuple[int, ...] = ()

    def connectionsOf(self, case: Case) -> tuple[int, ...]:
        """Return the numbers of connections to measure a case with."""
        return self.connections or (case.quick if self.quick else case.connections)


@contextlib.contextmanager
def aloneOnTheCores() -> Iterator[None]:
    """Wait until no other benchmark of this machine measures, and keep it so."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def inTurns(servers: Sequence[Server], rounds: int) -> Iterator[Server]:
    """Return each server in each round; each round begins with another one."""
    for number in range(rounds):
        first = number % max(1, len(servers))
        yield from [*servers[first:], *servers[:first]]


def makeCell(
    case: Case, server: str, connections: int, seen: Seen, used: tuple[float, float]
) -> Cell:
    """
    Compute the figures of a measurement.

    @param used: CPU seconds of the server's first process, and of its others.
    """
    first, others = used
    if seen.serverSeconds is not None:
        first = seen.serverSeconds
    requests, seconds = max(1e-9, seen.requests), max(1e-9, seen.seconds)
    return Cell(
        case=case.name,
        server=server,
        connections=connections,
        rate=seen.requests / seconds,
        megabytes=seen.received / seconds / 1e6,
        p50Ms=seen.p50Ms,
        p99Ms=seen.p99Ms,
        cpuMicros=(first + others) * 1e6 / requests,
        othersMicros=others * 1e6 / requests,
        serverCores=(first + others) / seconds,
        clientCores=seen.clientSeconds / seconds,
        requests=seen.requests,
        doubts=seen.doubts,
    )


class Measurer:
    """
    Runs cases.

    @ivar results: Receives the figures.
    @ivar tell: Receives a line for each measurement.
    """

    def __init__(
        self,
        session: Session,
        results: Results,
        effort: Effort,
        tell: Callable[[str], None],
        save: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._effort = effort
        self._save = save
        self.results = results
        self.tell = tell
        self._running: dict[Server, tuple[Running, ExitStack]] = {}
        self._failed: dict[Server, str] = {}
        self._warm: set[tuple[Server, str]] = set()

    def measure(self, cases: Sequence[Case]) -> None:
        """
        Measure all cases.

        A server runs from the first case that it is in to the last one, so that cases share their
        servers, and nothing else runs meanwhile.
        """
        try:
            for number, case in enumerate(cases):
                for connections in self._effort.connectionsOf(case):
                    for server in inTurns(case.servers, self._effort.rounds):
                        self._try(case, server, connections)
                later = {each for rest in cases[number + 1 :] for each in rest.servers}
                for server in [each for each in self._running if each not in later]:
                    self._stop(case, server)
        finally:
            for server in list(self._running):
                self._stop(cases[-1], server)

    def countInstructions(self, cases: Sequence[Case]) -> None:
        """
        Count the instructions of a request outside of the kernel, of our servers.

        Other work of the machine does not change them, so that a difference of two per cent means
        something. A server runs fifty times slower meanwhile.
        """
        for case in cases:
            for server in case.servers:
                if server.command is None or not server.isOurs:
                    continue
                key = f"{case.name} {server.name}"
                try:
                    with Running(server, self._session, instructions.PREFIX) as running:
                        found = instructions.count(running, case)
                except Exception as error:
                    self.tell(f"{key}: {error}")
                    continue
                self.results.instructions[key] = found
                self._save()
                self.tell(f"{key:40} {found:12,.0f} instructions a request")

    def _try(self, case: Case, server: Server, connections: int) -> None:
        """Measure one round of a cell, or note the failure and go on with the others."""
        place = (case.name, server.name, connections)
        known = self.results.failures
        if any((each.case, each.server, each.connections) == place for each in known):
            return
        try:
            running = None if case.isFresh else self._start(server)
            try:
                cell = self._measure(case, server, running, connections)
            except Exception as error:
                raise MeasureError(running.explain(error) if running else str(error)) from error
        except Exception as error:
            reason = " ".join(str(error).split())[:600]
            self.results.failures.append(Failure(*place, reason))
            self.tell(f"{case.name} x{connections} {server.name}: {reason}")
        else:
            self.results.cells.append(cell)
            doubts = " ".join(cell.doubts)
            self.tell(
                f"{case.name + f' x{connections}':26} {server.name:12} {cell.rate:12,.1f}/s"
                f" {cell.cpuMicros:10,.1f} us {doubts}"
            )
        self._save()

    def _start(self, server: Server) -> Running:
        if server in self._failed:
            raise MeasureError(self._failed[server])
        if server not in self._running:
            stack = ExitStack()
            try:
                self._note(server)
                running = stack.enter_context(Running(server, self._session))
            except Exception as error:
                self._failed[server] = str(error)
                raise
            self._running[server] = (running, stack)
        return self._running[server][0]

    def _note(self, server: Server) -> None:
        """Keep the version of a server; settings of ours have one in common."""
        name = OURS if server.isOurs else server.name
        self.results.run.versions.setdefault(name, server.version())

    def _stop(self, case: Case, server: Server) -> None:
        running, stack = self._running.pop(server)
        key = f"{case.folder}/{server.name}"
        peak = running.memory("VmHWM")
        if peak:
            self.results.memory[key] = max(peak, self.results.memory.get(key, 0))
        stack.close()

    def _measure(
        self, case: Case, server: Server, running: Running | None, connections: int
    ) -> Cell:
        if running is None:
            self._note(server)
            with Running(server, self._session) as fresh:
                return self._measureOn(fresh, case, connections, isWarm=False)
        isWarm = (server, case.name) in self._warm
        self._warm.add((server, case.name))
        return self._measureOn(running, case, connections, isWarm)

    def _measureOn(self, running: Running, case: Case, connections: int, isWarm: bool) -> Cell:
        seconds = self._effort.seconds * case.longer
        load = case.load(running, connections, seconds)
        with aloneOnTheCores():
            if case.warmSeconds and not isWarm:
                load.run(min(case.warmSeconds, seconds), None)
            settleDisk(running)
            seen, used, grown = underLoad(running, load, seconds)
        load.finish(seen)
        if seen.fault or not seen.requests:
            raise MeasureError(seen.fault or "no request was answered")
        cell = makeCell(case, running.server.name, connections, seen, used)
        if grown is None:
            return cell
        fields = {name: getattr(cell, name) for name in cell.__struct_fields__}
        return Cell(**{**fields, "grownBytes": grown})


def settleDisk(running: Running) -> None:
    """
    Write out what earlier measurements left in the page cache.

    Else a server that syncs would pay in its turn for the unsynced writes of another.
    """
    subprocess.run(["sync", "-f", str(running.folder)], check=True)


def underLoad(
    running: Running, load: Load, seconds: float
) -> tuple[Seen, tuple[float, float], float | None]:
    """
    Run a load with both sides favoured.

    @return: The report, the CPU seconds of the server, and the growth of its memory if the load
        is about that.
    """
    running.favour(FAVOURED)
    try:
        with load.beside() as grown:
            before = running.cpu()
            started: Started = lambda pid: favour(pid, FAVOURED)  # noqa: E731
            seen = load.run(seconds, started)
            after = running.cpu()
    finally:
        running.favour(0)
    return seen, (after[0] - before[0], max(0.0, after[1] - before[1])), grown


def now() -> str:
    """Return the time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
