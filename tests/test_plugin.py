"""C{twistd} finds the plugin, from a checkout and from what C{pip install .} puts in place."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest import skipUnless

import setuptools
from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT, moduleFiles

PLUGIN = "twisted/plugins/storagegate_plugin.py"
TWISTD = "from twisted.scripts.twistd import run; run()"
BUILD = "import setuptools.build_meta as m, sys; print(m.build_wheel(sys.argv[1]))"

# Since 70.1 it builds wheels by itself; this one is what pyproject.toml asks for.
CAN_BUILD = int(setuptools.__version__.split(".")[0]) >= 77

# What a build reads. What else lies in a checkout (environments, data) is not copied.
SOURCES = ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.rst", "LICENSE")


def twistd(path: Path, *arguments: str) -> str:
    """Run C{twistd} with a directory first on its path, and give what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", TWISTD, *arguments],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


class CheckoutTests(SynchronousTestCase):
    """From a checkout."""

    def test_listed(self) -> None:
        """C{twistd} lists the daemon with what it is."""
        self.assertRegex(twistd(CHECKOUT, "--help"), r"\n    storagegate +A durable S3 server\.\n")

    def test_fourLines(self) -> None:
        """The plugin imports nothing of ours: C{twistd} loads every plugin for every command."""
        script = "import sys; from twisted.plugins import storagegate_plugin; print(*sys.modules)"
        result = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = result.stdout.split()
        self.assertIn("twisted.plugins.storagegate_plugin", loaded)
        self.assertEqual([name for name in loaded if name.startswith("storagegate")], [])


class WheelTests(SynchronousTestCase):
    """From a wheel."""

    @skipUnless(CAN_BUILD, f"setuptools {setuptools.__version__} is too old to build: 77 is needed")
    def test_wheel(self) -> None:
        """The wheel holds the plugin, every module and no test, and C{twistd} finds it all."""
        source, built, installed = (Path(self.mktemp()).absolute() for _ in range(3))
        for directory in (source, built):
            directory.mkdir()
        for name in SOURCES:
            shutil.copy(CHECKOUT / name, source)
        for name in ("storagegate", "twisted"):
            ignored = shutil.ignore_patterns("__pycache__", "dropin.cache")
            shutil.copytree(CHECKOUT / name, source / name, ignore=ignored)
        subprocess.run(
            [sys.executable, "-c", BUILD, str(built)], cwd=source, capture_output=True, check=True
        )
        (wheel,) = built.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            archive.extractall(installed)
        modules = {str(path.relative_to(CHECKOUT)) for path in moduleFiles().values()}
        python = {name for name in names if name.endswith(".py")}
        self.assertEqual(python, {PLUGIN, *modules})
        self.assertIn("storagegate", twistd(installed, "--help"))
        self.assertRegex(twistd(installed, "storagegate", "--version"), r"\Astoragegate \d")
