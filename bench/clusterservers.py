"""
The servers of the cluster bench: the embedded daemon, nodes of a cluster, and the bare client of
a store of blobs. Behind them are the servers of the tests, with their data synced to the disk.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from bench import s3recipes
from bench.measuring import FAVOURED
from bench.places import CHECKOUT
from bench.processes import Recipe, Server, cpuSeconds, favour
from bench.s3cases import CASES as S3_CASES
from bench.s3cases import Case
from bench.s3recipes import CREDENTIALS, S3Recipe
from bench.s3server import S3Server
from bench.signing import Request
from tests.support.ceph import CephCluster, cephEnvironment
from tests.support.ports import heldPort
from tests.support.postgresql import Server as PostgreSQL

EMBEDDED = "embedded"
NODE = "node"
POOL = "bench"

_DURABLE = {
    "fsync": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "wal_compression": "on",
}


@frozen
class Setting:
    """
    A server of a case.

    @ivar catalog: What the catalog is: C{alone} or C{standby}; empty: the store is embedded.
    @ivar workers: How many nodes there are, as processes.
    @ivar blobs: C{files}, C{rados} or C{s3}.
    @ivar isBare: Whether it is no server, but the client of these blobs alone.
    """

    name: str
    catalog: str = ""
    workers: int = 1
    blobs: str = "files"
    isBare: bool = False


_ROWS = (
    Setting(EMBEDDED),
    Setting(NODE, "alone"),
    Setting("standby", "standby"),
    Setting("nodes2", "alone", workers=2),
)

_RADOS = (
    Setting("aio", blobs="rados", isBare=True),
    Setting("rados", "alone", blobs="rados"),
)

_S3 = (
    Setting("awscrt", blobs="s3", isBare=True),
    Setting("s3", "alone", blobs="s3"),
)


@frozen
class ClusterCase:
    """
    One kind of load, and who is measured with it.

    @ivar s3: What is requested.
    """

    name: str
    s3: Case
    settings: tuple[Setting, ...]
    connections: tuple[int, ...]


CASES = {
    case.name: case
    for case in (
        *(
            ClusterCase(name, S3_CASES[name], _ROWS, connections)
            for name, connections in (("put4k", (1, 64)), ("get4k", (1, 64)), ("head", (64,)))
        ),
        *(
            ClusterCase(f"{blobs}-{name}", S3_CASES[name], settings, (16,))
            for blobs, settings in (("rados", _RADOS), ("s3", _S3))
            for name in ("put1m", "get1m")
        ),
    )
}


class Backing:
    """
    The servers behind those that are measured, each started when it is first needed.

    @ivar folder: Where blobs in files are.
    """

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self._stack = stack
        self._servers: dict[str, PostgreSQL] = {}
        self._standbys: dict[str, PostgreSQL] = {}
        self._ceph: CephCluster | None = None
        self._upstream: S3Server | None = None

    def addCleanup(self, function: Any, *arguments: Any) -> None:
        """Call a function at the end."""
        self._stack.callback(function, *arguments)

    def server(self, catalog: str) -> PostgreSQL:
        """Return the server of a catalog."""
        found = self._servers.get(catalog)
        if found is None:
            found = self._servers[catalog] = PostgreSQL.make()
            self.addCleanup(found.remove)
            for name, value in _DURABLE.items():
                found.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            found.stop()
            found.start()
            if catalog == "standby":
                standby = self._standbys[catalog] = found.standby("standby")
                self.addCleanup(standby.remove)
        return found

    def blobs(self, kind: str, name: str) -> str:
        """Return the option for a new store of blobs."""
        if kind == "rados":
            if self._ceph is None:
                self._ceph = CephCluster(heldPort(self))
                self.addCleanup(self._ceph.stop)
                self._ceph.start()
                self._ceph.makePool(POOL)
            return f"rados:{POOL}?conf={self._ceph.configuration}&namespace={name}"
        if kind == "s3":
            if self._upstream is None:
                recipe = evolve(s3recipes.storagegate("full"), cores=f"0-{_lastCore()}")
                self._upstream = self._stack.enter_context(S3Server(recipe, self.folder))
            return f"s3:http://127.0.0.1:{self._upstream.port}/{_bucket(self._upstream, name)}"
        directory = self.folder / f"blobs-{name}"
        directory.mkdir()
        return f"files:{directory}"

    def favour(self, catalog: str, nice: int) -> None:
        """Set the weight of a catalog's servers against the other work of the machine."""
        for server in (self._servers.get(catalog), self._standbys.get(catalog)):
            for path in [] if server is None else _servingProcesses(server):
                favour(int(path.name), nice)

    def cpu(self, catalog: str) -> float:
        """Add up the CPU seconds of a catalog's servers."""
        server = self._servers.get(catalog)
        if server is None:
            return 0.0
        return sum(_cpuOf(path) for path in _servingProcesses(server))


def _lastCore() -> int:
    return (os.cpu_count() or 1) - 1


def _bucket(upstream: S3Server, name: str) -> str:
    answer = upstream.send(Request("PUT", f"/{name}"))
    assert answer.status in (200, 409), answer
    return name


def _servingProcesses(server: PostgreSQL) -> list[Path]:
    """List a server's processes; its standby follows from another directory."""
    first = Path(server.directory, "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [Path("/proc", each) for each in (first, *children)]


def _cpuOf(path: Path) -> float:
    try:
        return cpuSeconds((path / "stat").read_text())
    except OSError:
        return 0.0


def environment() -> dict[str, str]:
    """Return the variables of nodes and bare clients."""
    return {
        "PYTHONPATH": str(CHECKOUT),
        "STORAGEGATE_ACCESS_KEY": CREDENTIALS.access,
        "STORAGEGATE_SECRET_KEY": CREDENTIALS.secret,
        "AWS_ACCESS_KEY_ID": CREDENTIALS.access,
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS.secret,
    }


def nodeRecipe(setting: Setting, backing: Backing) -> S3Recipe:
    """Describe the daemon as a node, or as several."""
    variables = environment()
    if setting.blobs == "rados":
        variables.update(cephEnvironment())
    plain = s3recipes.storagegate("full")

    def prepare(folder: Path, port: int) -> None:
        server = backing.server(setting.catalog)
        blobs = backing.blobs(setting.blobs, f"{setting.name}{port}")
        synchronous = "required" if setting.catalog == "standby" else "off"
        path = folder / "cluster.toml"
        path.write_text(
            f'[cluster]\ncatalog = ["{server.database()}"]\nblobs = "{blobs}"\n'
            f'synchronous = "{synchronous}"\n'
        )
        words = [sys.executable, "-m", "storagegate", "cluster", "init", "--config", str(path)]
        subprocess.run(words, check=True, env={**os.environ, **variables}, cwd=folder)

    def command(folder: Path, port: int) -> list[str]:
        words = [*plain.command(folder, port), "--config", str(folder / "cluster.toml")]
        return words if setting.workers == 1 else [*words, "--workers", str(setting.workers)]

    return evolve(plain, name=setting.name, command=command, prepare=prepare, environment=variables)


class BarePieces(Server):
    """No server: the client of a store of blobs, which C{barepieces.py} is."""

    def __init__(self, setting: Setting, backing: Backing, folder: Path) -> None:
        recipe = Recipe(setting.name, lambda folder, port: [], lambda: "")
        super().__init__(recipe, folder)
        self.setting = setting
        self._backing = backing
        self._blobs = ""

    def __enter__(self) -> "BarePieces":
        self._blobs = self._backing.blobs(self.setting.blobs, f"bare{self.port}")
        return self

    def __exit__(self, *error: object) -> None:
        """Leave nothing."""

    def command(self, work: str, connections: int, seconds: float) -> Sequence[str]:
        """Return the command that measures."""
        program = str(CHECKOUT / "bench" / "barepieces.py")
        return [sys.executable, program, self._blobs, work, str(connections), str(seconds)]

    def variables(self) -> dict[str, str]:
        """Return its variables."""
        found = {**os.environ, **environment()}
        return {**found, **cephEnvironment()} if self.setting.blobs == "rados" else found

    def peakMemory(self) -> int:
        """Return nothing: it does not last."""
        return 0

    def explain(self, error: Exception) -> str:
        """Write on one line what went wrong."""
        return " ".join(str(error).split())[:600]


class NodeServer(S3Server):
    """The embedded daemon, or nodes."""

    def __init__(self, setting: Setting, backing: Backing, folder: Path) -> None:
        if setting.catalog:
            recipe = nodeRecipe(setting, backing)
        else:
            recipe = evolve(s3recipes.storagegate("full"), name=setting.name)
        super().__init__(recipe, folder)
        self.setting = setting
        self._backing = backing

    @contextmanager
    def favoured(self) -> Iterator[None]:
        """Favour its catalog's servers as the bench does a server."""
        self._backing.favour(self.setting.catalog, FAVOURED)
        try:
            yield
        finally:
            self._backing.favour(self.setting.catalog, 0)

    def behindCpu(self) -> float:
        """Add up the CPU seconds that its catalog's server has used."""
        return self._backing.cpu(self.setting.catalog)


def makeServer(setting: Setting, backing: Backing, folder: Path) -> Server:
    """Make the server of a setting, which is not started."""
    kind = BarePieces if setting.isBare else NodeServer
    return kind(setting, backing, folder)
