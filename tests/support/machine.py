"""
A test machine: systemd as the first process of a container, with the host's C{/usr}.

The container is isolated: it has its own root directory, processes, mounts, network and control
group. It requires root, C{systemd-nspawn} and a merged C{/usr}; otherwise L{Machine.boot} skips the
test.

    - C{/opt/python}: the interpreter of the tests; C{/opt/storagegate}: a virtual environment with
      the installed packages; C{/opt/checkout}: the checkout.
    - C{/etc/systemd/system}, C{/etc/sysusers.d}: the files of C{deploy/}, in the places that their
      headers name.
"""

import ctypes
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.support.modules import CHECKOUT
from tests.support.programs import needProgram
from tests.support.units import DEPLOY

# A command takes moments; a start of the daemon on a busy machine takes longer.
COMMAND_SECONDS = 100

_TOOLS = ("systemd-nspawn", "unshare", "setpriv", "nsenter", "mount")

# The container has its own /run, because nspawn registers running containers there, and its own
# view of the control groups, so that its systemd finds a single unified tree regardless of the
# host's.
_VIEW = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /sys/fs/cgroup
"""
_BOOT = _VIEW + 'mkdir "$0"\necho 0 > "$0/cgroup.procs"\ncd /\nexec "$@"\n'
_REMOVE = _VIEW + 'find "$0" -depth -type d -exec rmdir {} +\n'

# Started processes end with the process of the test, however it ends.
_APART = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--mount-proc")
_ONE_TREE = {"UNIFIED_CGROUP_HIERARCHY": "1"}
_PLAIN = {"PATH": "/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "SYSTEMD_COLORS": "0"}

# The content of a root directory: mount points for the host's files, and directories for systemd.
_EMPTY = ("usr", "var", "tmp", "run", "proc", "sys", "dev", "root", "srv")

_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"

_CLONE_NEWNET = 0x40000000


class MachineFailed(AssertionError):
    """The machine, or a command in it, did not behave as expected."""


class Machine:
    """
    One machine.

    @ivar root: Its root directory, as seen from the host.
    """

    def __init__(self, directory: Path) -> None:
        """@param directory: The directory, which is created; the name of the machine is random."""
        self.name = f"storagegate-{secrets.token_hex(4)}"
        self.root = directory / "root"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        self.root.mkdir(parents=True)
        directory.chmod(0o755)
        self._furnish()

    def setVariables(self, variables: Mapping[str, str]) -> None:
        """
        Write the service's environment file, including the variables that locate the checkout.
        """
        needed = {"PYTHONPATH": "/opt/checkout", "LD_LIBRARY_PATH": "/opt/python/lib"}
        path = self.root / "etc" / "storagegate" / "environment"
        path.write_text("".join(f"{k}={v}\n" for k, v in {**needed, **variables}.items()))
        path.chmod(0o600)

    def boot(self) -> None:
        """
        Boot it and wait until it is up.

        @raise SkipTest: If such a machine cannot be booted here.
        """
        self._check()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news, self._log.open("wb") as log:
            news.bind(f"\0{self.name}")
            self._process = subprocess.Popen(
                self._command("--notify-ready=yes", "--boot", "--", "--unit=sockets.target"),
                env={**_PLAIN, **_ONE_TREE, "NOTIFY_SOCKET": f"@{self.name}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            if not _isReady(news, self._process.pid):
                self.kill()
                raise SkipTest(f"no machine boots here: {self._log.read_text(errors='replace')}")
        [nspawn] = _children(self._process.pid)
        [self._first] = _children(nspawn)

    def _check(self) -> None:
        """Check the requirements; kernel restrictions only show when a machine is booted."""
        for tool in _TOOLS:
            needProgram(tool)
        if os.getuid() != 0:
            raise SkipTest("only root can boot a machine")
        if Path("/lib").resolve() != Path("/usr/lib"):
            raise SkipTest("/usr does not hold everything here")

    def kill(self) -> None:
        """Kill it with all its processes, and clean up; harmless if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        # Killing its init makes the kernel kill all its other processes; then nspawn ends.
        for number in _children(process.pid):
            os.kill(number, signal.SIGKILL)
        process.wait(COMMAND_SECONDS)
        # If the control group could not be created, it does not exist.
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", _REMOVE, self.name],
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def run(self, *command: str) -> str:
        """
        Run a command as root in the machine and return its output.

        @raise MachineFailed: If it fails.
        """
        result = subprocess.run(
            self._within(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=_PLAIN,
            timeout=COMMAND_SECONDS,
        )
        if result.returncode != 0:
            journal = "" if command[0] == "journalctl" else self.journal()
            raise MachineFailed(f"{command}: {result.stderr}{result.stdout}\n{journal}")
        return result.stdout

    def journal(self) -> str:
        """Return the messages of the service's journal."""
        return self.run("journalctl", "--unit=storagegate", "--output=cat", "--no-pager")

    def waitForJournal(self, pattern: str, after: str = "") -> None:
        """
        Wait until a line of the service's journal matches a pattern.

        @param after: A cursor; earlier lines are ignored.
        @raise MachineFailed: If no line matches in time.
        """
        since = f"--after-cursor={after}" if after else "--lines=all"
        follow = ("journalctl", "--unit=storagegate", "--output=cat", "--follow", since)
        lines = []
        with subprocess.Popen(
            self._within("timeout", str(COMMAND_SECONDS), *follow),
            stdout=subprocess.PIPE,
            text=True,
            env=_PLAIN,
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    if re.search(pattern, line):
                        return
            finally:
                process.terminate()
        raise MachineFailed(f"did not say {pattern!r}:\n{''.join(lines)}")

    def cursor(self) -> str:
        """Return the cursor of the current end of the journal."""
        shown = self.run("journalctl", "--lines=0", "--show-cursor", "--no-pager")
        return shown.rpartition("-- cursor: ")[2].strip()

    def show(self, name: str) -> str:
        """Return a property of the service."""
        return self.run("systemctl", "show", "storagegate", "--value", f"--property={name}").strip()

    @contextmanager
    def network(self) -> Iterator[None]:
        """Run this thread in the machine's network namespace."""
        with open("/proc/thread-self/ns/net") as before:
            with open(f"/proc/{self._first}/ns/net") as its:
                _enter(its.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def _furnish(self) -> None:
        """
        Create the files that a machine has before it boots, and the files that the guide installs.
        """
        for name in (*_EMPTY, "etc/sysusers.d", "etc/storagegate"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        etc = self.root / "etc"
        for name in ("os-release", "ld.so.cache"):
            if Path("/etc", name).exists():
                shutil.copy(f"/etc/{name}", etc / name)
        (etc / "machine-id").write_text(secrets.token_hex(16) + "\n")
        shutil.copy(DEPLOY / "storagegate.sysusers", etc / "sysusers.d" / "storagegate.conf")
        units = etc / "systemd" / "system"
        (units / "storagegate.service.d").mkdir(parents=True)
        for path in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.socket")):
            shutil.copy(path, units)
        shutil.copy(
            DEPLOY / "storagegate-sockets.conf", units / "storagegate.service.d/sockets.conf"
        )
        home = self.root / "opt" / "storagegate"
        (home / "bin").mkdir(parents=True)
        (home / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
        (home / "bin" / "python").symlink_to(f"/opt/python/bin/python{_VERSION}")
        program = home / "bin" / "twistd"
        program.write_text(
            "#!/opt/storagegate/bin/python\nfrom twisted.scripts.twistd import run\nrun()\n"
        )
        program.chmod(0o755)

    def _command(self, *arguments: str) -> list[str]:
        """Return the command that runs C{systemd-nspawn} with separate namespaces."""
        packages = f"/opt/storagegate/lib/python{_VERSION}/site-packages"
        return [
            *_APART,
            "--kill-child=KILL",
            "sh",
            "-c",
            _BOOT,
            self.name,
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--private-network",
            f"--machine={self.name}",
            f"--directory={self.root}",
            "--console=pipe",
            "--bind-ro=/usr",
            f"--bind-ro={sys.base_prefix}:/opt/python",
            f"--bind-ro={sysconfig.get_path('purelib')}:{packages}",
            f"--bind-ro={CHECKOUT}:/opt/checkout",
            *arguments,
        ]

    def _within(self, *command: str) -> list[str]:
        return ["nsenter", "--all", f"--target={self._first}", *command]


def _isReady(news: socket.socket, pid: int) -> bool:
    """Wait for the notification that the machine is up; return false if the process ends first."""
    ended = os.pidfd_open(pid)
    try:
        while news in select.select([news, ended], [], [], COMMAND_SECONDS)[0]:
            if b"READY=1" in news.recv(4096).split(b"\n"):
                return True
    finally:
        os.close(ended)
    return False


def _children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _enter(namespace: int) -> None:
    """Move this thread into a network namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network of the machine")
