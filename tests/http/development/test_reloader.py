"""Which programs can be started again, and what happens to the others."""

import os
import sys
import threading
import unittest
from types import ModuleType
from typing import Any

from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.application import Application
from storagegate.http.development.reloader import (
    Reloader,
    processReloader,
    programCommand,
)
from storagegate.http.options import reactorRuntime
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
        reactor, reloader, app = self.make()
        site = Site(app.resource, HTTPLimits(), reactor)
        before = set(threading.enumerate())
        opening = reloader.listen(app, reactor, "tcp:0", site)
        opened, isNew = self.successResultOf(opening)
        self.assertTrue(isNew)
        [watch] = set(threading.enumerate()) - before
        reloader.released(opened)
        self.assertEqual(reactor.getDelayedCalls(), [])
        watch.join(JOIN_SECONDS)
        self.assertFalse(watch.is_alive())
        opened.stopListening()

    def make(self) -> tuple[Any, Reloader, Application]:
        """Make an application that is reloaded."""
        reactor: Any = MemoryReactorClock()
        reactor.suggestThreadPoolSize = reactor.getThreadPool = lambda *arguments: None
        processReloader.cache_clear()
        self.addCleanup(processReloader.cache_clear)
        reloader = processReloader()
        self.patch(Application, "reloader", reloader)
        return reactor, reloader, server.http().withOptions(development={"hmr": True})

    def test_retire(self) -> None:
        """Pages are told to reload when their next request can come to the successor only."""
        reactor, reloader, app = self.make()
        app.runtime = reactorRuntime(reactor)
        app.get("/", lambda req, res: res.send("old"))
        listening = app.listen(0, "127.0.0.1", reactor=reactor)
        self.successResultOf(listening)
        [(_, factory)] = app._serving

        def connect(path: str) -> StringTransport:
            protocol, transport = factory.buildProtocol(None), StringTransport()
            protocol.makeConnection(transport)
            protocol.dataReceived(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return transport

        page, idle = connect("/__storagegate/hmr"), connect("/")
        self.assertIn(b"old", idle.value())
        reloader._retire(reactor, ["app.py"])
        for _ in range(9):
            if b"event: reload" in page.value():
                break
            reactor.advance(0)
        self.assertIn(b"event: reload", page.value())
        self.assertTrue(idle.disconnecting)
        self.assertTrue(factory.draining)
        reactor.advance(0)
        self.assertTrue(page.value().endswith(b"0\r\n\r\n"))
