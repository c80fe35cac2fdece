"""
Nodes of a cluster, and the servers behind them, which are those of the tests with synced data.

The servers behind use both processors, and so does the load: on two cores they are part of the
measurement. So the CPU time of a request counts; PostgreSQL's part is in the column of others.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cases import BOTH_CORES, Load, MeasureError, Server
from bench.loads import runPinned, selfMeasured
from bench.processes import Running, Session
from bench.s3 import recipe as s3
from bench.s3.recipe import CREDENTIALS, ourEnvironment, send
from bench.s3.signing import Request
from tests.support.postgresql import Server as PostgreSQL

EMBEDDED = "embedded"
NODE = "node"
LISTED = 100_000
"""Keys of the catalogs to list."""

_DURABLE = {
    "fsync": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "wal_compression": "on",
}


class Backing:
    """
    The servers behind those that are measured, each started when it is first needed.

    @ivar session: The run.
    """

    def __init__(self, session: Session, stack: ExitStack) -> None:
        self.session = session
        self._stack = stack
        self._made: dict[str, Any] = {}

    def addCleanup(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function at the end of the run."""
        self._stack.callback(function, *arguments)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def postgresql(self, kind: str) -> PostgreSQL:
        """
        Return a server of PostgreSQL.

        @param kind: C{alone} or C{standby}.
        """
        found: PostgreSQL = self._once(kind, lambda: self._startPostgreSQL(kind))
        return found

    def _startPostgreSQL(self, kind: str) -> PostgreSQL:
        made = PostgreSQL.make()
        self.addCleanup(made.remove)
        for name, value in _DURABLE.items():
            made.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        made.stop()
        made.start()
        if kind == "standby":
            self.addCleanup(made.standby("standby").remove)
        return made

    def blobs(self, kind: str, name: str) -> str:
        """Return the option of a new store of blobs: C{files} or C{s3}."""
        if kind == "s3":
            upstream: Running = self._once(kind, self._startUpstream)
            answer = send(upstream, Request("PUT", f"/{name}"))
            assert answer.status in (200, 409), answer
            return f"s3:http://127.0.0.1:{upstream.port}/{name}"
        directory = self.session.folder / f"blobs-{name}"
        directory.mkdir()
        return f"files:{directory}"

    def _startUpstream(self) -> Running:
        server = s3.storagegate("upstream", cores=BOTH_CORES)
        return self._stack.enter_context(Running(server, self.session))


def backing(running: Running) -> Backing:
    """Return the servers behind those of a run."""

    @contextmanager
    def make() -> Iterator[Backing]:
        with ExitStack() as stack:
            yield Backing(running.session, stack)

    found: Backing = running.session.once("backing", make)
    return found


def variables() -> dict[str, str]:
    """Return the variables of nodes: the upstream has the same key pair."""
    pair = {
        "AWS_ACCESS_KEY_ID": CREDENTIALS.access,
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS.secret,
    }
    return {**ourEnvironment(), **pair}


def processesOf(server: PostgreSQL) -> list[int]:
    """Return the processes of a server; its standby runs in another directory."""
    first = Path(server.directory, "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [int(each) for each in (first, *children)]


def node(name: str, catalog: str = "alone", workers: int = 1, blobs: str = "files") -> Server:
    """
    Return the daemon as a node of a cluster.

    @param catalog: The kind of PostgreSQL, see L{Backing.postgresql}.
    @param workers: The number of nodes, as processes.
    @param blobs: The kind of blobs, see L{Backing.blobs}.
    """

    def prepare(running: Running) -> None:
        behind = backing(running)
        server = behind.postgresql(catalog)
        synchronous = "required" if catalog == "standby" else "off"
        path = running.folder / "cluster.toml"
        path.write_text(
            f'[cluster]\ncatalog = ["{server.database()}"]\n'
            f'blobs = "{behind.blobs(blobs, f"{name}{running.port}")}"\n'
            f'synchronous = "{synchronous}"\n'
        )
        words = [sys.executable, "-m", "storagegate", "cluster", "init", "--config", str(path)]
        environment = {**os.environ, **variables()}
        done = subprocess.run(words, env=environment, cwd=running.folder, capture_output=True)
        if done.returncode:
            raise MeasureError(done.stderr.decode(errors="replace")[-600:])

    def words(running: Running) -> list[object]:
        found: list[object] = ["--config", running.folder / "cluster.toml"]
        return [*found, "--workers", workers] if workers > 1 else found

    return s3.storagegate(
        name,
        words=words,
        prepare=prepare,
        behind=lambda running: processesOf(backing(running).postgresql(catalog)),
        environment=variables(),
    )


def catalog(kind: str) -> Server:
    """
    Return a catalog by itself, without HTTP: C{sqlite} or C{postgresql}.

    Both commit with C{fsync}, on the same disk.
    """

    def prepare(running: Running) -> None:
        if kind == "postgresql":
            running.notes["place"] = backing(running).postgresql("alone").store()
        else:
            running.notes["place"] = running.folder

    def behind(running: Running) -> list[int]:
        return processesOf(backing(running).postgresql("alone")) if kind == "postgresql" else []

    return Server(kind, None, prepare=prepare, behind=behind, isOurs=True)


def catalogLoad(work: str) -> Callable[[Running, int, float], Load]:
    """Return the load of a work of C{catalog.py}."""

    def load(running: Running, connections: int, seconds: float) -> Load:
        keys = LISTED // running.session.scale
        place = (running.server.name, running.notes["place"], keys)
        if "isFilled" not in running.notes:
            runPinned([sys.executable, "-m", "bench.cluster.catalog", *place, "fill", 1, 0])
            running.notes["isFilled"] = True
        return Load(selfMeasured("bench.cluster.catalog", *place, work, connections))

    return load
