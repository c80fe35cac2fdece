"""The cluster of C{deploy/cluster/configure.py --rehearse}, as separate processes."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.support.modules import CHECKOUT
from tests.support.patroni import CLUSTER
from tests.support.postgresql import binaries


def localClusterModule() -> Any:
    """Import C{deploy/cluster/localcluster.py}, which is not in a package."""
    spec = importlib.util.spec_from_file_location("localcluster", CLUSTER / "localcluster.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class RunningCluster:
    """
    A running cluster in its own directory. All methods block.

    @ivar directory: The directory of C{--rehearse}.
    @ivar cluster: The L{LocalCluster} from C{deploy/cluster/localcluster.py}.
    """

    def __init__(self) -> None:
        """
        Start it.

        @raise SkipTest: If a program is not installed.
        """
        self._base = Path(tempfile.mkdtemp(prefix="sglocal"))
        self._base.chmod(0o755)
        self.directory = self._base / "cluster"
        # Runs the checkout, not the installed copy.
        program = self._base / "storagegate"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m storagegate "$@"\n')
        program.chmod(0o755)
        own = [str(self._base), str(Path(sys.executable).parent), "/usr/sbin"]
        self.variables = {
            **{name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ},
            "PATH": os.pathsep.join([*own, os.environ["PATH"]]),
            "PYTHONPATH": str(CHECKOUT),
        }
        self.started = self.configure("--up", "--programs", str(binaries()))
        if "not installed: " in self.started.stderr:
            self.remove()
            raise SkipTest(self.started.stderr.strip())
        if self.started.returncode:
            text = f"{self.started.stderr}\n{self.log()}"
            self.remove()
            raise AssertionError(text)
        self.cluster: Any = localClusterModule().LocalCluster(self.directory)
        try:
            programs = self.cluster.programs()
        except Exception:
            # Otherwise its processes would outlive the tests.
            self.remove()
            raise
        self.programs = {(each.folder.name, each.name): each for each in programs}

    def configure(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run C{configure.py} for the directory."""
        command = [sys.executable, str(CLUSTER / "configure.py"), "--rehearse", str(self.directory)]
        return subprocess.run(
            [*command, *arguments],
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run a script as an operator would, with the configuration of the first machine."""
        environment = self.cluster.environment("one") | self.variables
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def processes(self) -> list[str]:
        """Return the commands of all processes that use the directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                where = os.readlink(path / "cwd")
            except OSError:
                continue
            name = str(self.directory)
            if name in command or where.startswith(name):
                found.append(f"{path.name} {command}")
        return found

    def log(self) -> str:
        """Return the last lines of all logs."""
        paths = sorted(self.directory.glob("*/*.log"))
        return "\n".join(f"{each}: {each.read_text(errors='replace')[-2000:]}" for each in paths)

    def remove(self) -> None:
        """Stop it, and remove its directory."""
        self.configure("--down")
        shutil.rmtree(self._base, ignore_errors=True)
