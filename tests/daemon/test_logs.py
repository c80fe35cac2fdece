"""Where the log of a process goes, by the options of twistd and the configuration."""

import os
import signal
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.application.service import Application
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogLevel, textFileLogObserver
from twisted.python.failure import Failure
from twisted.python.syslog import SyslogObserver
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import Configuration, load
from storagegate.daemon.logs import DROPPED, Logs
from storagegate.telemetry.metrics import MetricsRegistry

SECRET = "jwt-secret-of-32-characters-long"

CONFIGURATION = f"""
accessKey = "root"
secretKey = "the-root-secret"
[gateway.authentication.providers.jwt]
secret = "{SECRET}"
[gateway.authentication.providers.apikey]
validate = "module:validate"
"""


class Reactor(Clock):
    """Remembers what it was asked to do at its start and its stop."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def callWhenRunning(self, *call: Any) -> None:
        """Remember a call."""
        self.asked.append(call)

    def addSystemEventTrigger(self, *call: Any) -> None:
        """Remember a call."""
        self.asked.append(call)


class AttachTests(SynchronousTestCase):
    """What twistd finds when it looks for an observer."""

    def setUp(self) -> None:
        """Make an application and a log."""
        self.logs = Logs()
        self.addCleanup(self.logs.end)
        self.application: Any = Application("storagegate")
        handler = signal.getsignal(signal.SIGUSR1)
        self.addCleanup(signal.signal, signal.SIGUSR1, handler)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    def configuration(self, text: str = "", **flags: str) -> Configuration:
        """Make a configuration."""
        path = Path(self.mktemp())
        path.write_text(text)
        return load({"config": str(path)}, flags)

    def attach(self, configuration: Configuration | None = None, **options: Any) -> Any:
        """Attach it, with options of twistd; give the observer."""
        self.logs.attach(
            self.application, options, configuration or self.configuration(), Reactor()
        )
        return self.application.getComponent(ILogObserver, None)

    def say(self, observer: Any, text: str, level: Any = LogLevel.info) -> None:
        """Log a line."""
        observer({"log_level": level, "log_format": "{text}", "text": text, "log_time": 0.0})

    def test_file(self) -> None:
        """With C{--logfile} lines go into that file, in the form and from the level configured."""
        path = Path(self.mktemp()).absolute()
        configuration = self.configuration('logFormat = "json"\nlogLevel = "warn"')
        observer = self.attach(configuration, logfile=str(path), nodaemon=True)
        self.say(observer, "less")
        self.say(observer, "more", LogLevel.error)
        self.assertEqual(
            path.read_text(),
            '{"timestamp":"1970-01-01T00:00:00.000Z","level":"error","logger":"-",'
            '"message":"more"}\n',
        )

    def test_reload(self) -> None:
        """Form and level change while it runs."""
        path = Path(self.mktemp()).absolute()
        observer = self.attach(logfile=str(path))
        self.say(observer, "detail", LogLevel.debug)
        self.logs.configure(self.configuration('logFormat = "json"\nlogLevel = "debug"'))
        self.say(observer, "detail", LogLevel.debug)
        [line] = path.read_text().splitlines()
        self.assertIn('"level":"debug"', line)

    def test_default(self) -> None:
        """A daemon in the background that names no file has twistd's."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(directory)
        self.say(self.attach(), "here")
        self.assertIn("here", Path("twistd.log").read_text())

    def test_turned(self) -> None:
        """SIGUSR1 has the file moved aside, as with twistd, and does not end the process."""
        path = Path(self.mktemp()).absolute()
        observer = self.attach(logfile=str(path))
        self.say(observer, "old")
        os.kill(os.getpid(), signal.SIGUSR1)
        self.say(observer, "new")
        self.assertIn("new", path.read_text())
        self.assertIn("old", Path(f"{path}.1").read_text())

    def test_others(self) -> None:
        """An observer of the operator is kept, and calls are logged by it."""
        self.assertIsNone(self.attach(logger="module.observer"))
        theirs = textFileLogObserver(StringIO())
        self.application.setComponent(ILogObserver, theirs)
        self.assertIs(self.attach(logfile="unused"), theirs)
        self.assertFalse(Path("unused").exists())
        self.assertIsNone(self.logs.sink)

    def test_syslog(self) -> None:
        """With C{--syslog} the lines are the system's, and secrets are taken out of them, too."""
        said: list[str] = []
        self.patch(SyslogObserver, "syslog", lambda self, priority, line: said.append(line))
        observer = self.attach(self.configuration(CONFIGURATION), syslog=True, prefix="gate")
        self.say(observer, f"with {SECRET}")
        try:
            raise ValueError(SECRET)
        except ValueError:
            event = {"log_level": LogLevel.critical, "log_format": "x", "log_time": 0.0}
            observer({**event, "log_failure": Failure()})
        self.assertTrue(said[0].endswith("with ***"), said)
        self.assertIn("ValueError: ***", "".join(said))
        self.assertIsNone(self.logs.sink)

    def test_noFile(self) -> None:
        """A log that cannot be opened stops the start with one line."""
        error = self.assertRaises(SystemExit, self.attach, logfile="/nowhere/at/all.log")
        self.assertIn("cannot open the log", str(error.code))
        self.assertEqual(len(str(error.code).splitlines()), 1)

    def test_secrets(self) -> None:
        """What the configuration keeps secret is hidden in the log, and nothing else."""
        self.attach(self.configuration(CONFIGURATION), logfile=self.mktemp())
        self.assertEqual(self.logs.redactor.redact(f"a {SECRET} the-root-secret"), "a *** ***")
        self.assertEqual(self.logs.redactor.redact("module:validate"), "module:validate")

    def test_meter(self) -> None:
        """Lines that were dropped are counted."""
        meters = MetricsRegistry()
        self.logs.countInto(meters)
        [family] = meters.snapshot()
        self.assertEqual((family.name, family.samples), (DROPPED, [((), 0)]))
