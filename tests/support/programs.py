"""
Programs that tests run but pip does not install.

A test whose program is missing, or lacks a module, is skipped with its reason. At the end of the
run a summary lists the number of skipped tests for each program, and how to install it. C{.ci/run}
installs them all, and fails if one is missing.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from twisted.trial.unittest import SkipTest

T = TypeVar("T")

VARIABLE = "TESTS_MISSING"
"""The file in which the processes of a run record missing programs."""

_FOLDERS = (os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin")

PACKAGES = {
    "bash": "bash",
    "caddy": "caddy",
    "chromium": "chromium",
    "curl": "curl",
    "etcd": "etcd-server",
    "fish": "fish",
    "h2load": "nghttp2-client",
    "haproxy": "haproxy",
    "logrotate": "logrotate",
    "mkfs.ext4": "e2fsprogs",
    "nc": "netcat-openbsd",
    "nghttp": "nghttp2-client",
    "nginx": "nginx-light",
    "node": "nodejs",
    "npm": "npm",
    "pgbouncer": "pgbouncer",
    "postgres": "postgresql",
    "promtool": "prometheus",
    "redis-server": "redis-server",
    "restic": "restic",
    "s3cmd": "s3cmd",
    "strace": "strace",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
    "systemd-socket-activate": "systemd",
    "taskset": "util-linux",
    "zsh": "zsh",
}
"""Debian's package of each program."""


@cache
def findProgram(name: str) -> str | None:
    """
    Return the path of a program; C{None} if it is missing.

    The search starts beside the interpreter, and ends in Debian's folders for servers.

    @param name: The file name of the program.
    """
    beside = Path(sys.executable).parent / name
    return (
        str(beside)
        if os.access(beside, os.X_OK)
        else shutil.which(name, path=os.pathsep.join(_FOLDERS))
    )


def needProgram(name: str) -> str:
    """
    Return the path of a program.

    @param name: A key of L{PACKAGES}, or a program that pip installs.
    @raise SkipTest: If it is missing.
    """
    found = findProgram(name)
    if found is None:
        raise missing(name)
    return found


def missing(name: str, reason: str = "is not installed", remedy: str = "") -> SkipTest:
    """
    Record that a test is skipped because a program is missing; return the exception to raise.

    @param name: The program, or a part of it.
    @param reason: The reason, in words that follow the name.
    @param remedy: The installation command, if not for the package in L{PACKAGES}.
    """
    remedy = remedy or _remedy(name)
    path = os.environ.get(VARIABLE)
    if path:
        with open(path, "a") as file:
            file.write(f"{name} {reason} ({remedy})\n")
    return SkipTest(f"{name} {reason}: {remedy}")


def needs(*names: str) -> Callable[[T], T]:
    """
    Skip a test or a class of tests if a program is missing.

    @param names: The programs, as in L{needProgram}.
    """

    def mark(test: T) -> T:
        for name in names:
            if findProgram(name) is None:
                test.skip = f"{name} is not installed: {_remedy(name)}"  # type: ignore[attr-defined]
                test.wants = name  # type: ignore[attr-defined]
        return test

    return mark


def noteWanted(test: object) -> None:
    """
    Record a test that L{needs} skips.

    @param test: The test, or its class.
    """
    if (name := getattr(test, "wants", None)) is not None:
        missing(name)


def _remedy(name: str) -> str:
    package = PACKAGES.get(name)
    return f"apt-get install {package}" if package else f"pip install {name}"


@cache
def needNginxModule(name: str) -> Path | None:
    """
    Return the file of a module that nginx must load; C{None} if the module is built in.

    @param name: The name in nginx's options and packages, such as C{stream}.
    @raise SkipTest: If nginx or the module is missing.
    """
    program = needProgram("nginx")
    file = Path("/usr/lib/nginx/modules", f"ngx_{name}_module.so")
    if file.exists():
        return file
    options = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stderr
    if f"--with-{name}" in options.split():
        return None
    raise missing("nginx", f"lacks its module {name}", f"apt-get install libnginx-mod-{name}")


def runInstaller(command: Sequence[str], directory: str, seconds: float) -> str:
    """
    Run a package manager in a directory that exists until the process ends. Blocks.

    @return: The error as text; empty if it succeeded.
    """
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not respond within {seconds} s"
    if not done.returncode:
        return ""
    error = (done.stderr or done.stdout).decode("utf-8", "backslashreplace")
    return f"{' '.join(command)} failed: {error.strip()[-300:]}"


def collectMissing() -> None:
    """Collect the records of this run's processes, and print the summary when this process ends."""
    if VARIABLE in os.environ:
        # A worker, or a test program.
        return
    descriptor, path = tempfile.mkstemp(prefix="storagegate-missing-")
    os.close(descriptor)
    os.environ[VARIABLE] = path
    atexit.register(_report, path)


def _report(path: str) -> None:
    notes = Counter(Path(path).read_text().splitlines())
    os.unlink(path)
    for note, count in sorted(notes.items()):
        print(f"{count} tests were skipped: {note}", file=sys.stderr)
