"""The flags of C{twistd storagegate}, and what is made of them."""

import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.application.service import IService
from twisted.trial.unittest import SynchronousTestCase

from storagegate import __version__
from storagegate.daemon.config import ConfigurationError, loadAgain
from storagegate.daemon.configkeys import KEYS
from storagegate.tap import Options, makeService
from tests.support.parts import FakeReactor


def parsed(*arguments: str) -> Options:
    """Parse a command line."""
    options = Options()
    options.parseOptions(list(arguments))
    return options


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def test_flags(self) -> None:
        """There is a flag for every key that has an argument, and for no secret."""
        words = str(Options())
        for key in KEYS:
            self.assertEqual(f" --{key.name}=" in words, bool(key.argument), key.name)
            self.assertFalse(key.secret and key.argument)

    def test_notGiven(self) -> None:
        """A flag that is not given says nothing, so that variables and the file speak."""
        self.assertEqual({value for value in parsed().values() if value is not None}, set())

    def test_repeated(self) -> None:
        """A service may be given several times."""
        options = parsed("--service", "one:A", "--service", "two:B")
        self.assertEqual(options["service"], ["one:A", "two:B"])

    def test_unknownFlag(self) -> None:
        """An unknown flag is one line that names it, not the whole help."""
        error = self.assertRaises(SystemExit, parsed, "--dta", "x")
        self.assertEqual(error.code, "storagegate: option --dta not recognized")

    def test_stray(self) -> None:
        """A word that is no flag is refused in one line."""
        error = self.assertRaises(SystemExit, parsed, "start")
        self.assertEqual(len(str(error.code).splitlines()), 1)

    def test_version(self) -> None:
        """C{--version} gives the version of this program, not of Twisted."""
        output = StringIO()
        with redirect_stdout(output):
            error = self.assertRaises(SystemExit, parsed, "--version")
        self.assertEqual(error.code, 0)
        self.assertEqual(output.getvalue(), f"storagegate {__version__}\n")


class ServiceTests(SynchronousTestCase):
    """The service."""

    def setUp(self) -> None:
        """Keep the variables of the run out; some of its own start as the daemon's do."""
        self.patch(os, "environ", {})

    def test_service(self) -> None:
        """A good command line gives a service, and nothing is opened yet."""
        data = self.mktemp()
        service = makeService(parsed("--data", data), FakeReactor())
        self.assertTrue(IService.providedBy(service))
        self.assertFalse(Path(data).exists())

    def test_badValue(self) -> None:
        """A bad value stops the start with one line that names key and origin."""
        options = parsed("--durability", "fast")
        error = self.assertRaises(SystemExit, makeService, options, FakeReactor())
        self.assertEqual(
            error.code,
            "storagegate: durability (flag --durability): expected full or os, not 'fast'",
        )

    def test_pipe(self) -> None:
        """
        A reload refuses a pipe, as which a shell passes C{<(command)}: it is empty when it is read
        again, and a reload would replace every value by its default.
        """
        path = self.mktemp()
        os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, descriptor)
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.write(writing, f'data = "{self.mktemp()}"\nregion = "eu"\n'.encode())
        os.close(writing)
        pipe = f"/proc/self/fd/{reading}"
        service: Any = makeService(parsed("--config", pipe), FakeReactor())
        self.assertEqual(service._configuration.s3.region, "eu")
        for name in (pipe, path):
            error = self.assertRaises(ConfigurationError, loadAgain, {"config": name}, {})
            self.assertEqual(
                str(error), f"config (file {name}): not a regular file, so it is read only once"
            )
        self.assertRaises(ConfigurationError, service._load)

    def test_file(self) -> None:
        """The file is named by its whole path: the process may change its directory."""
        path = Path(self.mktemp())
        path.write_text("regoin = 1\n")
        options = parsed("--config", str(path))
        error = self.assertRaises(SystemExit, makeService, options, FakeReactor())
        self.assertEqual(error.code, f"storagegate: 'regoin' (file {path.absolute()}): unknown key")
