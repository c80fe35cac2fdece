"""Packages from npm that tests run: installed once a run, outside the checkout."""

import atexit
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.support.programs import findProgram, missing

NODE_PACKAGES = ("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1", "ws@8.23.0")
"""Pinned: a new release must not change what a test of ours says."""

AXE = "axe-core@4.14.1"
"""Judges the accessibility of pages, in a browser."""

INSTALL_SECONDS = 120


@lru_cache
def _install(packages: tuple[str, ...]) -> Path | str:
    """Install packages, or tell why that did not work. Blocks."""
    for program in ("node", "npm"):
        if findProgram(program) is None:
            raise missing(program)
    directory = tempfile.mkdtemp(prefix="storagegate-node-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    quiet = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--loglevel=error")
    command = ["npm", "install", "--prefix", directory, *quiet, *packages]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"npm did not answer within {INSTALL_SECONDS} s"
    if done.returncode:
        error = (done.stderr or done.stdout).decode("utf-8", "backslashreplace")
        return f"npm could not install {', '.join(packages)}: {error.strip()[-300:]}"
    return Path(directory) / "node_modules"


def nodeModules(*packages: str) -> Path:
    """
    Give the folder of the packages, for C{NODE_PATH}. Blocks, the first time for seconds.

    @param packages: Those of L{NODE_PACKAGES} if none is named.
    @raise SkipTest: Node is missing, or npm cannot install the packages.
    """
    found = _install(packages or NODE_PACKAGES)
    if isinstance(found, str):
        raise SkipTest(found)
    return found
