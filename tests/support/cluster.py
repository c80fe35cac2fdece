"""
A store over several machines, all on this one: real PostgreSQL servers, a store of blobs, and nodes
that are processes. Everything here blocks; L{Cluster} is a context manager.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self

from storagegate.cluster.initialisation import initialise
from storagegate.cluster.options import ClusterOptions
from tests.support.clients import ROOT, botoClient
from tests.support.daemon import Daemon, daemonEnvironment
from tests.support.postgresql import Server, execute, sharedServer

LEASE_SECONDS = 3


class Cluster:
    """
    A cluster.

    @ivar directory: Has the data directories of the nodes, the configuration and the blobs.
    @ivar conninfos: One a server; a case may put a proxy before one, before it starts nodes.
    @ivar blobs: As the option of the configuration.
    @ivar nodes: In the order in which they were made.
    @ivar primary: The server of the catalog.
    @ivar standby: The other one, which commits wait for; L{None} if there is none.
    """

    def __init__(
        self,
        blobs: str = "",
        isSynchronous: bool = False,
        options: Mapping[str, Any] = {},
        isInitialised: bool = True,
        environment: Mapping[str, str] = {},
    ) -> None:
        """
        Start the servers of the catalog, and make the cluster.

        @param blobs: C{rados:POOL} or C{s3:URL}; empty: files in a directory of this cluster.
        @param isSynchronous: Whether there is a standby, with servers that no other case uses.
        @param options: Of the table C{[cluster]}, besides.
        @param isInitialised: Whether C{storagegate cluster init} has been.
        @param environment: Variables of nodes and commands, such as those of Ceph.
        """
        self.directory = Path(mkdtemp(prefix="cluster-", dir=Path.cwd()))
        self.nodes: list[Daemon] = []
        self.standby: Server | None = None
        if isSynchronous:
            self.primary = Server.make()
            self.conninfos = [self.primary.database()]
            self.standby = self.primary.standby("standby")
            name = self.conninfos[0].rpartition("=")[2]
            self.conninfos.append(self.standby.conninfo(name))
        else:
            self.primary = sharedServer()
            self.conninfos = [self.primary.database()]
        self._isSynchronous = isSynchronous
        if not blobs:
            (self.directory / "blobs").mkdir()
            blobs = f"files:{self.directory / 'blobs'}"
        self.blobs = blobs
        self._options = dict(options)
        self._environment = environment
        if isInitialised:
            self.initialise()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def options(self) -> dict[str, Any]:
        """The table C{[cluster]}."""
        return {
            "catalog": list(self.conninfos),
            "blobs": self.blobs,
            "leaseSeconds": LEASE_SECONDS,
            "synchronous": "required" if self._isSynchronous else "off",
            **self._options,
        }

    def initialise(self) -> None:
        """Do what C{storagegate cluster init} does, with the root key pair of the tests."""
        if self.blobs.startswith("files:"):
            from twisted.internet import reactor

            initialise(ClusterOptions(**self.options), ROOT.accessKey, ROOT.secretKey, reactor)
            return
        # Ceph's library is found by variables of the process.
        pair = {
            "STORAGEGATE_ACCESS_KEY": ROOT.accessKey,
            "STORAGEGATE_SECRET_KEY": ROOT.secretKey,
        }
        code, text = self.command("cluster", "init", environment=pair)
        assert code == 0, text

    def command(
        self,
        *arguments: str,
        environment: Mapping[str, str] = {},
        path: Path | None = None,
        stdin: str = "",
    ) -> tuple[int, str]:
        """
        Run C{storagegate} with the configuration of the cluster.

        @param arguments: Its command.
        @param environment: Variables besides those of L{environment}.
        @param path: Another configuration.
        @param stdin: The standard input.
        @return: The exit code, and the output.
        """
        command = [sys.executable, "-m", "storagegate", *arguments]
        done = subprocess.run(
            [*command, "--config", str(path or self.configuration())],
            env=daemonEnvironment({**self.environment(), **environment}),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout

    def configuration(self, text: str = "", **changes: Any) -> Path:
        """
        Write a configuration.

        @param text: The part of the file before the table.
        @param changes: Options of the table that are other ones.
        """
        rows = {**self.options, **changes}.items()
        lines = [f"{name} = {_toml(value)}" for name, value in rows if value is not None]
        path = self.directory / f"{len(list(self.directory.glob('*.toml')))}.toml"
        path.write_text("\n".join([text, "[cluster]", *lines]))
        return path

    def node(
        self,
        *flags: str,
        environment: Mapping[str, str] = {},
        configuration: Path | None = None,
        expect: Sequence[str] = ("s3", "admin"),
        program: str | None = None,
    ) -> Daemon:
        """
        Make a node, which is not started.

        @param flags: Of the daemon.
        @param environment: Variables besides those of all daemons of tests, and the credentials of
            an S3 server with the blobs.
        @param configuration: The file; by default one of L{configuration}.
        @param expect: The listeners that a start waits for.
        @param program: See L{tests.support.daemon.daemonCommand}.
        """
        path = configuration or self.configuration()
        settings: dict[str, Any] = {} if program is None else {"program": program}
        made = Daemon(
            self.directory / f"node{len(self.nodes)}",
            *("--config", str(path), *flags),
            environment={**self.environment(), **environment},
            expect=expect,
            **settings,
        )
        self.nodes.append(made)
        return made

    def start(self, count: int = 1, *flags: str) -> list[Daemon]:
        """
        Make and start nodes.

        @param count: How many.
        @param flags: Of each.
        """
        made = [self.node(*flags) for _ in range(count)]
        for each in made:
            each.launch()
        for each in made:
            each.waitForListeners()
        return made

    def environment(self) -> dict[str, str]:
        """Give the variables of nodes and commands: the root key pair is that of the catalog."""
        return {
            "STORAGEGATE_ACCESS_KEY": "",
            "STORAGEGATE_SECRET_KEY": "",
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
            **self._environment,
        }

    def client(self, node: Daemon, **settings: Any) -> Any:
        """
        Make a client of boto3 with the root key pair.

        @param node: Which node it talks to.
        @param settings: See L{botoClient}.
        """
        return botoClient(node.url(), **settings)

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Run a statement in the catalog's database, on the first server."""
        return execute(self.conninfos[0], sql, *values)

    def suspend(self, node: Daemon) -> None:
        """Let no process of a node go on."""
        os.killpg(node.pid, signal.SIGSTOP)

    def resume(self, node: Daemon) -> None:
        """Undo L{suspend}."""
        os.killpg(node.pid, signal.SIGCONT)

    def close(self) -> None:
        """End all nodes, and the servers that are this cluster's own."""
        for each in self.nodes:
            each.kill()
        if self.standby is not None:
            self.standby.remove()
            self.primary.remove()


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
