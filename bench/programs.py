"""Programs of this machine: where they are, and which versions."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from bench.places import CHECKOUT


def program(name: str, *folders: Path) -> str:
    """
    Find a program in some folders or on the path.

    @raise FileNotFoundError: If it is nowhere; the message says how to get it.
    """
    places = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        raise FileNotFoundError(f"no {name}: run bench/setup_peers.sh")
    return found


def firstVersion(command: list[str]) -> str:
    """Run a program for its version and find that in the answer."""
    # wrk tells its version and then fails for want of an address.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"[0-9]+(?:\.[0-9]+)+", done.stdout + done.stderr)
    return match[0] if match else "unknown"


def storagegateVersion(packages: Iterable[str] = ("twisted",)) -> str:
    """Say which commit runs, on which versions of distributions and of Python."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--tags"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    python = ".".join(map(str, sys.version_info[:3]))
    commit = described.stdout.strip() or "unknown"
    found = [f"{name} {version(name)}" for name in packages]
    return f"{commit} ({', '.join([*found, f'Python {python}'])})"
