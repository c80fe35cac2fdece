"""The test suites in source distributions of clients: downloaded once per run by pip."""

import sys
import tarfile
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.support.programs import runInstaller

DOWNLOAD_SECONDS = 120


@cache
def _download(name: str) -> Path | str:
    """Download and unpack the sources of a distribution; return them, or the error as text."""
    directory = tempfile.mkdtemp(prefix="storagegate-sdist-")
    # The version that is installed, so that suite and client agree.
    wanted = f"{name}=={version(name)}"
    options = ("--quiet", "--no-deps", "--no-binary", name, "--no-build-isolation")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", directory, wanted]
    error = runInstaller(command, directory, DOWNLOAD_SECONDS)
    if error:
        return error
    [archive] = Path(directory).glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(directory, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def sourcesOf(name: str) -> Path:
    """
    Return the unpacked sources of an installed distribution, with its tests. Blocks.

    @raise SkipTest: If pip cannot download them.
    """
    found = _download(name)
    if isinstance(found, str):
        raise SkipTest(found)
    return found
