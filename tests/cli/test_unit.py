"""The unit of C{storagegate init --unit}, beside the one of C{deploy/}."""

import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import skipIf, skipUnless

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.invocation import CommandError
from storagegate.cli.unit import SERVICE_USER, giveData, pythonWarning, serviceUser, unitText
from tests.cli.test_main import ScriptCase
from tests.support.documents import DOCS
from tests.support.units import DEPLOY

ANALYZE = shutil.which("systemd-analyze")

PLACES = {"ExecStart", "Group", "LogsDirectory", "StateDirectory", "StateDirectoryMode", "User"}
"""The directives in which the two units differ, with the next ones."""

OWN = {"ReadWritePaths", "RequiresMountsFor", "WorkingDirectory"}

MOST_DIFFERENCE = 2
"""Tenths of systemd's exposure level."""


def directives(text: str) -> list[str]:
    """Return the lines that set something."""
    return [line for line in text.splitlines() if "=" in line and line[0] != "#"]


def exposure(path: Path) -> int:
    """Return the exposure level that systemd gives a unit, in tenths."""
    assert ANALYZE is not None
    command = [ANALYZE, "security", "--offline=yes", "--no-pager", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"Overall exposure level for \S+ ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return round(float(found[1]) * 10)


class UnitTests(SynchronousTestCase):
    """The unit."""

    def setUp(self) -> None:
        """Write both units with a command that exists here."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.patch(sys, "executable", "/usr/bin/python3")
        self.text = unitText(
            Path("/etc/storagegate/storagegate.toml"), Path("/var/lib/storagegate"), SERVICE_USER
        )
        self.delivered = (DEPLOY / "storagegate.service").read_text()

    def test_hardening(self) -> None:
        """It has every directive of the delivered unit but those of its own places."""
        names = PLACES | OWN
        ours, theirs = (
            [each for each in directives(text) if each.partition("=")[0] not in names]
            for text in (self.text, self.delivered)
        )
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertIn("\nUser=storagegate\n", self.text)
        self.assertIn("\nUser=storagegate\n", self.delivered)

    def test_mounts(self) -> None:
        """
        It waits for the disk of the data, as the delivered unit does by its C{StateDirectory}.
        Below an empty mount point the daemon would create another store.
        """
        self.assertIn("\nRequiresMountsFor=/var/lib/storagegate\n", self.text.split("[Service]")[0])
        self.assertIn("\nStateDirectory=storagegate\n", self.delivered)

    def test_home(self) -> None:
        """A place in a home stays visible, for else the service could not start."""
        text = unitText(Path("/home/a/s.toml"), Path("/var/lib/storagegate"), "a")
        self.assertIn("\nProtectHome=read-only\n", text)
        self.assertIn("\nProtectHome=yes\n", self.text)

    @skipUnless(ANALYZE, "systemd-analyze is not installed")
    def test_exposure(self) -> None:
        """Systemd finds it as closed as the delivered one, for which the page has the figure."""
        levels = []
        for name, text in (("ours", self.text), ("delivered", self.delivered)):
            path = self.directory / f"{name}.service"
            path.write_text(text.replace("/opt/storagegate/bin/twistd", "/usr/bin/true"))
            levels.append(exposure(path))
        self.assertLessEqual(abs(levels[0] - levels[1]), MOST_DIFFERENCE, levels)
        page = (DOCS / "operations.rst").read_text()
        found = re.search(r"security storagegate`` gives (\d)\.(\d) of 10", page)
        assert found is not None
        # Other releases of systemd weigh a little differently.
        self.assertLessEqual(abs(int(found[1] + found[2]) - levels[1]), 1, levels)


class UserTests(ScriptCase):
    """The user of the service."""

    def test_user(self) -> None:
        """The owner of the data directory, and never root: then a user of its own."""
        data = Path(self.mktemp()).absolute()
        own = pwd.getpwuid(os.geteuid()).pw_name
        expected = SERVICE_USER if own == "root" else own
        self.assertEqual(serviceUser(data, None), expected)
        data.mkdir()
        self.assertEqual(serviceUser(data, None), expected)
        self.assertEqual(serviceUser(data, "other"), "other")
        if own == "root":
            os.chown(data, pwd.getpwnam("nobody").pw_uid, -1)
            self.assertEqual(serviceUser(data, None), "nobody")

    @skipIf(os.geteuid(), "only root can give files away")
    def test_given(self) -> None:
        """What root makes belongs to the user of the service; the configuration stays root's."""
        base = Path(self.mktemp()).absolute()
        data, config, unit = base / "data", base / "etc" / "s.toml", base / "s.service"
        command = ["init", "--data", str(data), "--config", str(config), "--unit", str(unit)]
        code, _output, errors = self.script(*command, "--user", "nobody")
        self.assertEqual((code, errors), (0, ""))
        nobody = pwd.getpwnam("nobody")
        for path in (data, data / "root-credentials"):
            self.assertEqual(path.stat().st_uid, nobody.pw_uid)
            self.assertEqual(path.stat().st_mode & 0o077, 0)
        found = config.stat()
        self.assertEqual((found.st_uid, found.st_gid), (0, nobody.pw_gid))
        self.assertEqual(found.st_mode & 0o777, 0o640)
        self.assertIn("\nUser=nobody\n", unit.read_text())
        # Again: nothing is changed.
        code, output, errors = self.script(*command, "--user", "nobody", "--json")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn('"made": []', output)

    @skipIf(os.geteuid(), "only root makes units for other users")
    def test_python(self) -> None:
        """A Python in root's home cannot be read by the user of the service; that is said."""
        self.patch(sys, "executable", "/root/venv/bin/python")
        self.assertIn("/root/venv/bin/python", str(pythonWarning("nobody")))
        self.assertIsNone(pythonWarning("root"))
        self.patch(sys, "executable", "/opt/storagegate/bin/python")
        self.assertIsNone(pythonWarning("nobody"))

    @skipIf(os.geteuid(), "only root can give files away")
    def test_rootsData(self) -> None:
        """Data that root wrote before are not given away; the line says how to."""
        data = Path(self.mktemp()).absolute()
        data.mkdir()
        (data / "catalog.sqlite").touch()
        error = self.assertRaises(CommandError, giveData, data, data, "nobody", False)
        self.assertIn(f"chown -R nobody: {data}", str(error))
        self.assertEqual(data.stat().st_uid, 0)

    def test_unknown(self) -> None:
        """A number that no user has is refused, before anything is made."""
        base = Path(self.mktemp()).absolute()
        places = ("--data", str(base / "d"), "--config", str(base / "c"))
        code, _output, errors = self.script(
            "init", *places, "--unit", str(base / "u"), "--user", "4000123"
        )
        self.assertEqual(code, 2)
        self.assertIn("no such user: 4000123", errors)
        self.assertFalse(base.exists())
