"""What is built from the checkout: a wheel without what is gone, an sdist that has everything."""

import runpy
import shutil
import sys
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.assets import makeAssets
from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.support.wheels import CAN_BUILD, WHY_NOT, build, copySources

FOLDERS = (
    ".ci",
    "bench",
    "deploy",
    "docs",
    "examples",
    "newsfragments",
    "protos",
    "storagegate",
    "tests",
    "tools",
    "twisted",
)
"""What the checkout has, as against environments and what runs leave behind."""

LEFT = shutil.ignore_patterns(
    "__pycache__", "*.pyc", "dropin.cache", "build", "_trial_temp*", "*.egg-info", "static"
)


class WheelTests(SynchronousTestCase):
    """A wheel."""

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_staleBuild(self) -> None:
        """A module that an earlier build left behind is not in it."""
        source, built = (Path(self.mktemp()).absolute() for _ in range(2))
        copySources(source)
        stale = source / "build" / "lib" / "storagegate" / "gone.py"
        stale.parent.mkdir(parents=True)
        stale.write_text("")
        with zipfile.ZipFile(build(source, built)) as archive:
            names = archive.namelist()
        self.assertIn("storagegate/tap.py", names)
        self.assertNotIn("storagegate/gone.py", names)
        self.assertHasConsole(names)

    def assertHasConsole(self, names: list[str]) -> None:
        """The files of the console are in it with both compressed forms, and no source is."""
        files = {name for name in names if name.startswith("storagegate/console/static/")}
        made = {f"storagegate/console/static/{name}" for name in makeAssets()}
        self.assertEqual(files, {name + ending for name in made for ending in ("", ".br", ".gz")})
        self.assertEqual([name for name in names if "/web/" in name], [])


class SourceTests(SynchronousTestCase):
    """An sdist."""

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_whole(self) -> None:
        """It has every file of the checkout, tests and their data too, and nothing else."""
        source, built = (Path(self.mktemp()).absolute() for _ in range(2))
        source.mkdir()
        for name in FOLDERS:
            shutil.copytree(CHECKOUT / name, source / name, ignore=LEFT)
        for path in CHECKOUT.iterdir():
            if path.suffix in (".cfg", ".in", ".py", ".rst", ".toml") or path.name in (
                ".gitignore",
                "LICENSE",
            ):
                shutil.copy(path, source)
        wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
        with tarfile.open(build(source, built, "sdist")) as archive:
            names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        made = {name for name in names if name == "PKG-INFO" or ".egg-info/" in name}
        self.assertEqual(names - made, wanted)


class BoundTests(SynchronousTestCase):
    """What it requires."""

    def test_bounds(self) -> None:
        """Each requirement has a lower bound, which the CI installs."""
        setup = ConfigParser()
        setup.read(CHECKOUT / "setup.cfg")
        lines = setup["options"]["install_requires"].splitlines()
        requirements = [line for line in lines if line and not line.startswith("#")]
        self.assertGreater(len(requirements), 10)
        for requirement in requirements:
            self.assertRegex(requirement, r"^[a-z0-9.\[\]-]+>=[0-9.]+(,<[0-9.]+)?$")
        self.assertIn("install_requires", (CHECKOUT / ".ci" / "oldest").read_text())

    def test_oldPython(self) -> None:
        """A build with a Python that is too old ends with a line that says so."""
        setup = ConfigParser()
        setup.read(CHECKOUT / "setup.cfg")
        least = setup["options"]["python_requires"].removeprefix(">=")
        self.patch(sys, "version_info", (3, 10, 13))
        error = self.assertRaises(SystemExit, runpy.run_path, str(CHECKOUT / "setup.py"))
        self.assertEqual(
            error.code, f"storagegate needs Python {least} or newer, and this is Python 3.10"
        )

    def test_news(self) -> None:
        """Each change has a file whose kind the release knows."""
        settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["towncrier"]
        kinds = {kind["directory"] for kind in settings["type"]}
        for path in (CHECKOUT / "newsfragments").iterdir():
            if path.name not in settings["ignore"]:
                self.assertIn(path.name.split(".")[-2], kinds)
                self.assertEqual(path.suffix, ".rst")
