"""Builds the package from a copy of the checkout, like C{pip}."""

import shutil
import subprocess
import sys
from pathlib import Path

import setuptools

from tests.support.modules import CHECKOUT

# setuptools builds wheels itself since 70.1; pyproject.toml requires this version.
CAN_BUILD = int(setuptools.__version__.split(".")[0]) >= 77
WHY_NOT = f"setuptools {setuptools.__version__} is too old to build: 77 is needed"

# The files that a build reads. Other content of a checkout (environments, data) is not copied.
_SOURCES = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.rst", "LICENSE")
_FOLDERS = ("storagegate", "twisted", "protos")

_BUILD = """
import sys
import setuptools.build_meta as backend
built, kind, mode = sys.argv[1:]
settings = {"editable_mode": mode} if mode else None
print(getattr(backend, "build_" + kind)(built, settings))
"""


def copySources(source: Path) -> None:
    """Copy the files that a build reads into a new directory."""
    source.mkdir()
    for name in _SOURCES:
        shutil.copy(CHECKOUT / name, source)
    for name in _FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "dropin.cache")
        shutil.copytree(CHECKOUT / name, source / name, ignore=ignored)


def build(source: Path, built: Path, kind: str = "wheel", mode: str = "") -> Path:
    """
    Build the package, and return the file.

    @param built: A new directory for the file.
    @param kind: C{wheel}, C{sdist} or C{editable}.
    @param mode: The mode of an editable build: C{compat} or empty.
    """
    built.mkdir()
    command = [sys.executable, "-c", _BUILD, str(built), kind, mode]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    (file,) = built.iterdir()
    return file
