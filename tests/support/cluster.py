"""
A store over several machines, simulated on this one: real PostgreSQL servers, a blob store, and
nodes as processes. All functions block; L{Cluster} is a context manager.
"""

import os
import re
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

    @ivar directory: The directory with the nodes' data directories, the configuration and the
        blobs.
    @ivar conninfos: One conninfo per server; before it starts nodes, a test may put a proxy in
        front of a server.
    @ivar blobs: The value of the configuration option.
    @ivar nodes: The nodes in the order of their creation.
    @ivar primary: The server of the catalog.
    @ivar standby: The standby that commits wait for; C{None} without one.
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
        Start the catalog's servers, and create the cluster.

        @param blobs: C{rados:POOL} or C{s3:URL}; the default is files in a directory of this
            cluster.
        @param isSynchronous: Whether to use a standby, with servers that no other test uses.
        @param options: Additional options of the table C{[cluster]}.
        @param isInitialised: Whether to run C{storagegate cluster init}.
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
        """Do the work of C{storagegate cluster init}, with the root key pair of the tests."""
        if self.blobs.startswith("files:"):
            from twisted.internet import reactor

            initialise(ClusterOptions(**self.options), ROOT.accessKey, ROOT.secretKey, reactor)
            return
        # Environment variables of the process locate Ceph's library.
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

        @param arguments: The command and its arguments.
        @param environment: Variables in addition to L{environment}.
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
        Write a configuration file.

        @param text: The part of the file before the table.
        @param changes: Changed options of the table.
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
        Make a node without starting it.

        @param flags: Flags of the daemon.
        @param environment: Variables in addition to the defaults of test daemons and the
            credentials of an S3 blob store.
        @param configuration: The configuration file; the default is a new one from
            L{configuration}.
        @param expect: The listeners that a start waits for.
        @param program: See L{tests.support.daemon.daemonCommand}.
        """
        path = configuration or self.configuration()
        settings: dict[str, Any] = {} if program is None else {"program": program}
        made = Daemon(
            self.directory / f"node{len(self.nodes)}",
            "--config",
            str(path),
            *flags,
            environment={**self.environment(), **environment},
            expect=expect,
            **settings,
        )
        self.nodes.append(made)
        return made

    def start(self, count: int = 1, *flags: str) -> list[Daemon]:
        """
        Make and start nodes.

        @param count: The number of nodes.
        @param flags: Flags of each node.
        """
        made = [self.node(*flags) for _ in range(count)]
        for each in made:
            each.launch()
        for each in made:
            each.waitForListeners()
        return made

    def environment(self) -> dict[str, str]:
        """
        Return the environment variables of nodes and commands: the catalog has the root key pair.
        """
        return {
            "STORAGEGATE_ACCESS_KEY": "",
            "STORAGEGATE_SECRET_KEY": "",
            "AWS_ACCESS_KEY_ID": ROOT.accessKey,
            "AWS_SECRET_ACCESS_KEY": ROOT.secretKey,
            **self._environment,
        }

    def client(self, node: Daemon, **settings: Any) -> Any:
        """
        Make a boto3 client with the root key pair.

        @param node: The node to connect to.
        @param settings: See L{botoClient}.
        """
        return botoClient(node.url(), **settings)

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Run a statement in the catalog's database, on the first server."""
        return execute(self.conninfos[0], sql, *values)

    def lostLeases(self) -> int:
        """
        Return the number of leases that the nodes lost before they stopped, because a busy machine
        delayed a renewal. The row of such a lease stays until another node sweeps it.
        """
        lost = re.compile("this node holds no lease: (?!this node is stopping)")
        return sum(len(lost.findall(each.log)) for each in self.nodes)

    def suspend(self, node: Daemon) -> None:
        """Suspend all processes of a node."""
        os.killpg(node.pid, signal.SIGSTOP)

    def resume(self, node: Daemon) -> None:
        """Undo L{suspend}."""
        os.killpg(node.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill all nodes, and remove the servers that only this cluster uses."""
        for each in self.nodes:
            each.kill()
        if self.standby is not None:
            self.standby.remove()
            self.primary.remove()


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
