"""What C{setup_peers.sh} has installed of Python, in environments of their own, and of Node."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.places import peersFolder
from bench.programs import firstVersion, program

# Prints the version of a distribution, and in parentheses those of others and of Python.
_VERSIONS = """
import platform, sys
from importlib.metadata import version
first, *others = sys.argv[1:]
others = [f"{name} {version(name)}" for name in others] + ["Python " + platform.python_version()]
print(version(first), "(" + ", ".join(others) + ")")
"""


def installed(path: Path) -> Path:
    """
    Find what C{setup_peers.sh} has installed.

    @raise FileNotFoundError: If it is not there; the message says how to get it.
    """
    if not path.exists():
        raise FileNotFoundError(f"no {path}: run bench/setup_peers.sh")
    return path


def pythonOf(part: str) -> str:
    """Find the Python of a virtual environment."""
    return str(installed(peersFolder() / part / "bin" / "python"))


def describePython(part: str, packages: Sequence[str]) -> str:
    """Give the version of the first distribution, and of others, in a virtual environment."""
    words = [pythonOf(part), "-c", _VERSIONS, *packages]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def node() -> str:
    """Find Node."""
    return program("node", peersFolder() / "node" / "bin")


def _modules() -> Path:
    return installed(peersFolder() / "node" / "node_modules")


def prepareNode(app: Path, folder: Path) -> Path:
    """Copy an application on Node into a folder; give the copy."""
    # Modules are looked for beside the application.
    (folder / "node_modules").symlink_to(_modules())
    return Path(shutil.copy(app, folder))


def describeNode(packages: Sequence[str]) -> str:
    """Give the version of the first package, and of others and Node."""
    first, *others = packages
    found = [f"{package} {packageVersion(_modules() / package)}" for package in others]
    found.append(f"Node {firstVersion([node(), '--version'])}")
    return f"{packageVersion(_modules() / first)} ({', '.join(found)})"


def packageVersion(folder: Path) -> str:
    """Read the version of a package of Node's."""
    version = msgspec.json.decode((installed(folder) / "package.json").read_bytes())["version"]
    return str(version)
