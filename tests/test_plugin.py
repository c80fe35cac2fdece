"""C{twistd} finds the plugin, from a checkout and from what C{pip install .} puts in place."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT, moduleFiles
from tests.support.selection import long
from tests.support.wheels import CAN_BUILD, WHY_NOT, build, copySources

PLUGIN = "twisted/plugins/storagegate_plugin.py"
TWISTD = "from twisted.scripts.twistd import run; run()"


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

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_wheel(self) -> None:
        """The wheel holds the plugin, every module and no test, and C{twistd} finds it all."""
        source, built, installed = (Path(self.mktemp()).absolute() for _ in range(3))
        copySources(source)
        wheel = build(source, built)
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            archive.extractall(installed)
        modules = {str(path.relative_to(CHECKOUT)) for path in moduleFiles().values()}
        python = {name for name in names if name.endswith(".py")}
        self.assertEqual(python, {PLUGIN, *modules})
        # Type checkers read the annotations of a package that has this.
        self.assertIn("storagegate/py.typed", names)
        self.assertIn("storagegate/http/page/page.js", names)
        self.assertIn("storagegate/console/static/index.html", names)
        self.assertIn("storagegate", twistd(installed, "--help"))
        self.assertRegex(twistd(installed, "storagegate", "--version"), r"\Astoragegate \d")
