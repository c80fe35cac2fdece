"""npm packages for tests: installed once per run, outside of the checkout."""

import tempfile
from functools import lru_cache
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.support.programs import findProgram, missing, runInstaller

NODE_PACKAGES = ("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1", "ws@8.23.0")
"""Pinned, so that a new release cannot change the result of a test."""

AXE = "axe-core@4.14.1"
"""Checks the accessibility of pages in a browser."""

MINIO = "minio@8.0.7"
"""MinIO's client."""

HPACK = "hpack@1.0.0"
"""Has the header blocks of several encoders among its tests."""

CONNECT = (
    "@connectrpc/connect@2.3.0",
    "@connectrpc/connect-node@2.3.0",
    "@bufbuild/protobuf@2.17.0",
)
"""Connect's client, which also speaks gRPC."""

INSTALL_SECONDS = 120


@lru_cache
def _install(packages: tuple[str, ...]) -> Path | str:
    """Install packages; return their folder, or the error as text. Blocks."""
    for program in ("node", "npm"):
        if findProgram(program) is None:
            raise missing(program)
    directory = tempfile.mkdtemp(prefix="storagegate-node-")
    quiet = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--loglevel=error")
    command = ["npm", "install", "--prefix", directory, *quiet, *packages]
    error = runInstaller(command, directory, INSTALL_SECONDS)
    return error or Path(directory) / "node_modules"


def nodeModules(*packages: str) -> Path:
    """
    Return the folder of the packages, for C{NODE_PATH}. Blocks; the first call takes seconds.

    @param packages: The packages; the default is L{NODE_PACKAGES}.
    @raise SkipTest: Node is missing, or npm cannot install the packages.
    """
    found = _install(packages or NODE_PACKAGES)
    if isinstance(found, str):
        raise SkipTest(found)
    return found
