"""Which programs can be started again, and what happens to the others."""

import os
import sys
import threading
import unittest
from types import ModuleType
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.application import Application
from storagegate.http.development.reloader import Reloader, programCommand
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site

# The thread ends in a quarter of a second.
JOIN_SECONDS = 60


def script(file: str | None = None) -> ModuleType:
    """Make the module C{__main__} of a program."""
    module = ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    return module


class CommandTests(SynchronousTestCase):
    """Command lines."""

    def test_shapes(self) -> None:
        """Scripts, modules and code can be started again, with the interpreter's options."""
        for command, file, options, kind, target, arguments in (
            ("python app.py -p 1", "/p/app.py", [], "script", "/p/app.py", ["-p", "1"]),
            ("python -u -X dev ./serve", "/p/serve", ["-u", "-X", "dev"], "script", "/p/serve", []),
            ("python -m shop x", "/p/shop/__main__.py", [], "module", "shop", ["x"]),
            ("python -um shop", "/p/shop/__main__.py", ["-u"], "module", "shop", []),
            ("python -W error -c pass -m", None, ["-W", "error"], "code", "pass", ["-m"]),
        ):
            found = programCommand(command.split(), script(file))
            assert found is not None, command
            shown, *rest = found[1][2]
            self.assertIn(shown, command)
            self.assertEqual(rest, arguments)
            self.assertEqual((found[0], *found[1][:2]), (options, kind, target))

    def test_others(self) -> None:
        """Installed programs, those that run in another program, and prompts cannot."""
        for command, file in (
            ("python", None),
            ("python -i", None),
            ("python -", None),
            ("python /venv/bin/twistd -n", f"{sys.prefix}/bin/twistd"),
            ("python -m unittest", f"{os.path.dirname(unittest.__file__)}/__main__.py"),
            ("python /p/debugger app.py", "/p/app.py"),
            ("python -c spawn_main() --multiprocessing-fork", None),
        ):
            self.assertIsNone(programCommand(command.split(), script(file)), command)

    def test_thisProcess(self) -> None:
        """A test runner is not started again."""
        self.assertIsNone(programCommand(sys.orig_argv, sys.modules["__main__"]))


class UnsupervisedTests(SynchronousTestCase):
    """A process that cannot be started again."""

    def test_listen(self) -> None:
        """Its applications listen and close as ever, and nothing is left that runs."""
        reactor: Any = MemoryReactorClock()
        reactor.suggestThreadPoolSize = reactor.getThreadPool = lambda *arguments: None
        reloader = Reloader()
        self.patch(Application, "reloader", reloader)
        app = server.http().withOptions(development={"hmr": True})
        site = Site(app.resource, HTTPLimits(), reactor)
        port: Any = "tcp:0"
        before = set(threading.enumerate())
        opening = reloader.listen(app, reactor, port, site)
        opened, isNew = self.successResultOf(opening)
        self.assertTrue(isNew)
        [watch] = set(threading.enumerate()) - before
        reloader.released(opened)
        self.assertEqual(reactor.getDelayedCalls(), [])
        watch.join(JOIN_SECONDS)
        self.assertFalse(watch.is_alive())
        opened.stopListening()
