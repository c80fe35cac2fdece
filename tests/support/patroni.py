"""
The machines of C{deploy/cluster}, with its own files: etcd, Patroni with PostgreSQL, HAProxy.

Each machine is an address of the loopback network, 127.X.Y.1 and so on, with the ports in the
files. PostgreSQL refuses to run as root, so the programs run as C{nobody} then.
"""

import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from storagegate.storage.cluster.primary import findPrimary
from storagegate.storage.sqlite import CatalogUnusable
from tests.support.modules import CHECKOUT
from tests.support.postgresql import binaries
from tests.support.programs import missing, needProgram
from tests.support.sourceprocess import findEtcd

CLUSTER = CHECKOUT / "deploy" / "cluster"

NAMES = ("one", "two", "three")

START_SECONDS = 60.0

_PAUSE_SECONDS = 0.1


def until(
    condition: Callable[[], bool], seconds: float = START_SECONDS, log: Callable[[], str] = str
) -> float:
    """
    Wait until a condition holds; return the time that it took.

    @param log: Returns text for the error after a timeout.
    """
    begin = monotonic()
    while not condition():
        assert monotonic() < begin + seconds, f"it took too long: {log()}"
        Event().wait(_PAUSE_SECONDS)
    return monotonic() - begin


class ClusterMachine:
    """
    A machine: a group of programs that start together and are killed together.

    @ivar name: The name in all files.
    @ivar address: The address in the loopback network.
    @ivar directory: The directory with the machine's configuration files and data.
    """

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.name = name
        self.address = address
        self.directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def isRunning(self) -> bool:
        """Whether it was started and not killed."""
        return bool(self._running)

    def start(self) -> None:
        """Start or restart etcd and Patroni."""
        self.startEtcd()
        self.startPatroni()

    def startEtcd(self) -> None:
        """Start only etcd."""
        self._begin("etcd", *_asUser(), _etcd(), "--config-file", str(self.directory / "etcd.yml"))

    def startPatroni(self) -> None:
        """Start Patroni, which starts PostgreSQL."""
        # Patroni shuts PostgreSQL down when it is terminated, as happens with this process.
        patroni = [sys.executable, "-m", "patroni", str(self.directory / "patroni.yml")]
        self._begin("patroni", *_asUser(), *patroni)

    def startBalancer(self) -> None:
        """Start HAProxy."""
        program = needProgram("haproxy")
        # HAProxy drops root privileges itself.
        self._begin(
            "haproxy",
            "setpriv",
            "--pdeathsig",
            "TERM",
            program,
            "-db",
            "-f",
            str(self.directory / "haproxy.cfg"),
        )

    def startNode(self) -> None:
        """Start the daemon with the machine's own configuration."""
        program = "from twisted.scripts.twistd import run; run()"
        arguments = ("-n", "--pidfile=", "storagegate")
        self._begin("storagegate", *_asUser(), sys.executable, "-c", program, *arguments)

    def stopNode(self) -> int:
        """Terminate the daemon; return its exit code."""
        process = self._running.pop("storagegate")
        process.terminate()
        return process.wait(START_SECONDS)

    def isReady(self) -> bool:
        """Return whether the daemon is ready."""
        try:
            with urlopen(f"http://{self.address}:9001/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run C{storagegate} with the machine's own configuration, as the user of the daemon."""
        return subprocess.run(
            [*_asUser(), sys.executable, "-m", "storagegate", *arguments],
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def kill(self) -> None:
        """Kill all programs, like a power failure."""
        for process in self._running.values():
            process.kill()
        for each in self._postgresql():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def burn(self) -> None:
        """Kill all programs, and delete the data of etcd, PostgreSQL and the daemon."""
        self.kill()
        for name in ("etcd", "postgresql", "storagegate"):
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def killPostgreSQL(self) -> None:
        """Kill only PostgreSQL, like a crash."""
        for each in self._postgresql():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def log(self, name: str) -> str:
        """Return the log of a program."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def conninfo(self, database: str = "storagegate", role: str = "storagegate") -> str:
        """Return the conninfo of the machine's PostgreSQL, with the role's password."""
        words = f"host={self.address} port=5432 dbname={database} user={role} connect_timeout=2"
        return f"{words} passfile={self.directory / 'pgpass'}"

    def members(self) -> dict[str, tuple[str, str]]:
        """
        Return the role and state of each member, according to this machine's Patroni.

        @return: An empty mapping if Patroni does not respond.
        """
        try:
            with urlopen(f"http://{self.address}:8008/cluster", timeout=2) as answer:
                found: list[dict[str, Any]] = json.load(answer)["members"]
        except (OSError, URLError, ValueError):
            return {}
        return {each["name"]: (each["role"], each.get("state", "")) for each in found}

    def servers(self) -> dict[str, str]:
        """Return the state of each node in this machine's balancer: C{UP}, C{DOWN} and so on."""
        with urlopen(f"http://{self.address}:8404/;csv", timeout=5) as answer:
            rows = [line.split(",") for line in answer.read().decode().splitlines()]
        place = rows[0].index("status")
        return {row[1]: row[place] for row in rows if row[0] == "nodes" and row[1] in NAMES}

    def _begin(self, name: str, *command: str) -> None:
        running = self._running.get(name)
        if running is not None and running.poll() is None:
            return
        with open(self.directory / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        names = ("PATH", "LD_LIBRARY_PATH")
        return {
            **{name: os.environ[name] for name in names if name in os.environ},
            "HOME": str(self.directory),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
            "STORAGEGATE_CONFIG": str(self.directory / "storagegate.toml"),
        }

    def _postgresql(self) -> list[int]:
        try:
            with open(self.directory / "postgresql" / "postmaster.pid") as file:
                first = int(file.readline())
            children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        except (OSError, ValueError):
            return []
        return [first, *map(int, children)]


class PatroniCluster:
    """
    The machines of a cluster. All methods block.

    @ivar machines: The machines by name.
    @ivar blobs: The directory of the blobs.
    """

    def __init__(self) -> None:
        """Write the files. The nodes keep blobs in a shared directory."""
        self.directory = Path(tempfile.mkdtemp(prefix="sgpatroni"))
        network = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"
        addresses = {name: f"{network}.{number}" for number, name in enumerate(NAMES, 1)}
        machines = [f"{name}={address}" for name, address in addresses.items()]
        folder = self.directory / "files"
        self.blobs = self.directory / "blobs"
        self.blobs.mkdir()
        options = ["--blobs", f"files:{self.blobs}", "--programs", str(binaries())]
        subprocess.run(
            [sys.executable, str(CLUSTER / "configure.py"), *options, str(folder), *machines],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.machines = {
            name: ClusterMachine(name, address, folder / name)
            for name, address in addresses.items()
        }
        for machine in self.machines.values():
            _place(machine.directory)
        _give(self.directory)

    def start(self) -> None:
        """Start all machines, and wait until two standbys follow the primary."""
        for machine in self.machines.values():
            machine.start()
        until(self.isWhole, log=self.log)

    def burn(self) -> None:
        """Destroy all machines and blobs, and start new machines with an empty database."""
        for machine in self.machines.values():
            machine.burn()
        for each in self.blobs.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        self.start()

    def giveBlobs(self) -> None:
        """Let the nodes use the blobs that a command of root has written."""
        _give(self.blobs)

    def isWhole(self) -> bool:
        """Return whether all members follow one primary and commits wait for a standby."""
        roles = sorted(self.roles().values())
        return roles == ["leader", "quorum_standby", "quorum_standby"]

    def roles(self) -> dict[str, str]:
        """Return the role of each running member, according to the first Patroni that answers."""
        for machine in self.machines.values():
            members = machine.members()
            if members:
                running = ("running", "streaming")
                return {name: role for name, (role, state) in members.items() if state in running}
        return {}

    def primary(self) -> ClusterMachine | None:
        """Return the machine of the primary that nodes use; C{None} without one."""
        with suppress(CatalogUnusable):
            found, _ = findPrimary(self.conninfos())
            return next(each for each in self.machines.values() if each.conninfo() == found)
        return None

    def conninfos(self) -> list[str]:
        """Return the conninfos of the nodes."""
        return [machine.conninfo() for machine in self.machines.values()]

    def log(self) -> str:
        """Return the last lines of all logs."""
        parts = []
        for machine in self.machines.values():
            for path in sorted(machine.directory.glob("*.log")):
                text = path.read_text(errors="replace")
                parts.append(f"{machine.name} {path.name}: {text[-4000:]}")
        return "\n".join(parts)

    def remove(self) -> None:
        """Kill all programs, and remove their data."""
        for machine in self.machines.values():
            machine.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def _place(directory: Path) -> None:
    """Replace system folders with folders of the test in the files of a machine."""
    places = {
        "/var/lib/etcd": directory / "etcd",
        "/var/lib/postgresql/storagegate.pgpass": directory / "patroni.pgpass",
        "/var/lib/postgresql/storagegate": directory / "postgresql",
        "/etc/patroni/database.sql": directory / "database.sql",
        "/etc/storagegate/pgpass": directory / "pgpass",
        "/var/lib/storagegate": directory / "storagegate",
        # Servers are killed, but the test machine never is, so fsync is not needed; and three
        # servers share its memory.
        "shared_buffers: 512MB": "shared_buffers: 64MB",
        "max_wal_size: 8GB": "max_wal_size: 1GB",
        "wal_keep_size: 1GB": "wal_keep_size: 128MB",
        'synchronous_commit: "on"': 'synchronous_commit: "on"\n        fsync: "off"\n'
        "        dynamic_shared_memory_type: mmap",
    }
    for path in directory.iterdir():
        text = path.read_text()
        for written, there in places.items():
            text = text.replace(written, str(there))
        if os.getuid():
            text = text.replace("    user haproxy\n    group haproxy\n", "")
        # In the loopback network all clients connect from one address.
        path.write_text(re.sub(r"127\.\d+\.\d+\.\d+/32", "127.0.0.1/32", text))


def _give(directory: Path) -> None:
    """Change the owner of a folder and its content to the user of the programs."""
    if os.getuid() == 0:
        found = pwd.getpwnam("nobody")
        for path in (directory, *directory.rglob("*")):
            os.chown(path, found.pw_uid, found.pw_gid)


def _etcd() -> str:
    found = findEtcd()
    if found is None:
        raise missing("etcd")
    return found


def _asUser() -> list[str]:
    command = ["setpriv", "--pdeathsig", "TERM"]
    if os.getuid() == 0:
        found = pwd.getpwnam("nobody")
        command += [f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
        # Required because Python and its packages may be in root's home directory.
        command += [f"--{kind}-caps=-all,+dac_override" for kind in ("inh", "ambient")]
    return command
