"""What the console shows."""

import io
import json
import os
import sys
import sysconfig
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.logger import Logger, LogLevel, globalLogBeginner
from twisted.trial.unittest import SynchronousTestCase

import storagegate
import twisted
from storagegate import server
from storagegate.http.development.console import (
    ConsoleObserver,
    ConsoleStream,
    ErrorReport,
    announce,
    beginConsole,
    hasColours,
    isInstalled,
)
from storagegate.http.testing import Client


class Terminal(io.StringIO):
    """A stream that shows colours."""

    def isatty(self) -> bool:
        """Say so."""
        return True


class ColourTests(SynchronousTestCase):
    """When there are colours."""

    def test_choice(self) -> None:
        """A terminal has colours, a file has none; NO_COLOR is stronger than FORCE_COLOR."""
        for stream, variables, expected in (
            (Terminal(), {}, True),
            (io.StringIO(), {}, False),
            (object(), {}, False),
            (Terminal(), {"NO_COLOR": "1"}, False),
            (Terminal(), {"NO_COLOR": ""}, True),
            (Terminal(), {"TERM": "dumb"}, False),
            (io.StringIO(), {"FORCE_COLOR": "1"}, True),
            (io.StringIO(), {"FORCE_COLOR": "0"}, False),
            (Terminal(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ):
            self.patch(os, "environ", variables)
            self.assertEqual(hasColours(stream), expected, (stream, variables))

    def test_stream(self) -> None:
        """Colours are taken off where there are none, and the output is whatever it is now."""
        self.patch(os, "environ", {})
        stream = ConsoleStream("stdout")
        for output, written in ((Terminal(), "\x1b[1;32mx\x1b[0m"), (io.StringIO(), "x")):
            self.patch(sys, "stdout", output)
            stream.write("\x1b[1;32mx\x1b[0m")
            self.assertEqual(output.getvalue(), written)
        self.patch(sys, "stdout", None)
        stream.write("nobody")


class RequestTests(SynchronousTestCase):
    """Requests."""

    def test_requests(self) -> None:
        """Each request is a line on the standard output, but for those of development itself."""
        self.patch(os, "environ", {})
        output = Terminal()
        self.patch(sys, "stdout", output)
        app = server.http().withOptions(development={"console": True, "hmr": True})
        app.get("/", lambda req, res: res.type("txt").send("x"))
        client = Client(app)
        client.get("/")
        client.get("/__storagegate/hmr.js")
        self.assertRegex(output.getvalue(), r"\AGET / \x1b\[32m200\x1b\[0m 1 - [0-9.]+ ms\n\Z")


class ObserverTests(SynchronousTestCase):
    """Events of the log."""

    def setUp(self) -> None:
        """Watch a log."""
        self.patch(os, "environ", {})
        self.output = io.StringIO()
        self.patch(sys, "stderr", self.output)
        self.observer = ConsoleObserver(ConsoleStream("stderr"))

    def say(self, namespace: str, level: Any, text: str) -> str:
        """Log something, and give what is shown of it."""
        self.output.truncate(0)
        self.output.seek(0)
        Logger(namespace=namespace, observer=self.observer).emit(level, text)
        return self.output.getvalue()

    def test_levels(self) -> None:
        """Warnings and errors of all are shown, and the news of the application itself."""
        for namespace, least in (
            ("shop.orders", LogLevel.info),
            ("storagegate.http.development.reloader", LogLevel.info),
            ("storagegate.net.http.site", LogLevel.warn),
            ("twisted.internet", LogLevel.warn),
            ("log_legacy", LogLevel.warn),
        ):
            for level in LogLevel.iterconstants():
                shown = self.say(namespace, level, "news")
                self.assertEqual(shown, "news\n" if level >= least else "", (namespace, level))

    def test_failure(self) -> None:
        """An error comes with its traceback, without the frames of who called the application."""
        log = Logger(namespace="a", observer=self.observer)
        try:
            raise ValueError("on purpose")
        except ValueError:
            log.failure("a handler failed")
        lines = self.output.getvalue().splitlines()
        self.assertEqual(lines[:2], ["a handler failed", "Traceback (most recent call last):"])
        self.assertIn("test_failure", lines[2])
        self.assertEqual(lines[-1], "ValueError: on purpose")

    def test_colours(self) -> None:
        """On a terminal errors are red and warnings yellow."""
        self.output = Terminal()
        self.patch(sys, "stderr", self.output)
        self.assertEqual(self.say("a", LogLevel.error, "x"), "\x1b[1;31mx\x1b[0m\n")
        self.assertEqual(self.say("a", LogLevel.warn, "x"), "\x1b[1;33mx\x1b[0m\n")

    def test_replaying(self) -> None:
        """What came before and has been shown already is not shown again."""
        self.observer.replaying = True
        self.assertEqual(self.say("a", LogLevel.critical, "x"), "")
        self.assertEqual(self.say("a", LogLevel.error, "x"), "x\n")

    def test_closed(self) -> None:
        """An output that has gone harms nobody."""
        self.output.close()
        Logger(namespace="a", observer=self.observer).error("x")

    def test_elsewhere(self) -> None:
        """Where the process logs somewhere already, as test runs do, nothing is added."""
        observers = list(globalLogBeginner._publisher._observers)
        beginConsole()
        self.assertEqual(list(globalLogBeginner._publisher._observers), observers)


class Port:
    """A port with an address."""

    def __init__(self, address: Any) -> None:
        self.address = address

    def getHost(self) -> Any:
        """Return the address."""
        return self.address


class AddressTests(SynchronousTestCase):
    """Where the application listens."""

    def test_urls(self) -> None:
        """
        A line on the standard output names a listener by what to type into a browser.
        """
        for address, isSecure, text in (
            (IPv4Address("TCP", "127.0.0.1", 3000), False, "http://127.0.0.1:3000"),
            (IPv4Address("TCP", "0.0.0.0", 443), True, "https://localhost:443"),
            (IPv6Address("TCP", "::1", 80), False, "http://[::1]:80"),
            (IPv6Address("TCP", "::", 80), False, "http://localhost:80"),
            (UNIXAddress("/run/x"), False, "unix:/run/x"),
        ):
            output = io.StringIO()
            self.patch(sys, "stdout", output)
            self.patch(os, "environ", {})
            port: Any = Port(address)
            announce(port, isSecure)
            self.assertEqual(output.getvalue(), f"listening on {text}\n")


def caught(function: Any) -> BaseException:
    """Give what a function raises."""
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


class ReportTests(SynchronousTestCase):
    """Errors as a developer sees them."""

    def test_place(self) -> None:
        """The place is the last in the application's own code, not that in what it called."""
        error = caught(lambda: json.loads("{"))
        report = ErrorReport.of(error)
        self.assertEqual(report.file, __file__)
        assert report.line is not None
        with open(__file__) as file:
            self.assertIn('json.loads("{")', file.read().splitlines()[report.line - 1])
        self.assertTrue(report.title.startswith("json.decoder.JSONDecodeError: Expecting"))
        self.assertIn("json/decoder.py", report.text)

    def test_syntax(self) -> None:
        """A syntax error is at the place that it names, and shows the line."""
        error = caught(lambda: compile("x = = 1\n", "/p/a.py", "exec"))
        # As where the script itself has it: no frame is the application's.
        report = ErrorReport.of(error.with_traceback(None))
        self.assertEqual((report.file, report.line), ("/p/a.py", 1))
        self.assertEqual(report.title, "SyntaxError: invalid syntax")
        self.assertNotIn("Traceback", report.text)

    def test_framework(self) -> None:
        """The frames of the framework are left out, those of a cause too."""
        client = Client(server.http())
        error = caught(lambda: client.get("nothing"))
        report = ErrorReport.of(error)
        self.assertNotIn("storagegate/http/", report.text)
        try:
            raise KeyError("outer") from error
        except KeyError as outer:
            self.assertNotIn("storagegate/http/", ErrorReport.of(outer).text)

    def test_onlyFramework(self) -> None:
        """An error that is all the framework's own keeps its frames."""
        client = Client(server.http())
        error = caught(lambda: client.get("nothing"))
        trace = error.__traceback__
        while trace is not None and "tests" in trace.tb_frame.f_code.co_filename:
            trace = trace.tb_next
        report = ErrorReport.of(error, trace)
        self.assertIn("storagegate/http/", report.text)
        self.assertIsNone(report.file)

    def test_importedSyntax(self) -> None:
        """A syntax error in a module comes with the traceback of its import."""
        error = caught(lambda: compile("x = = 1\n", "/p/a.py", "exec"))
        report = ErrorReport.of(error)
        self.assertEqual((report.file, report.line), ("/p/a.py", 1))
        self.assertIn("Traceback", report.text)

    def test_installed(self) -> None:
        """What came with Python, with a package or with the framework is not the application's."""
        framework = os.path.dirname(storagegate.__file__)
        for path in (
            json.__file__,
            twisted.__file__,
            framework + "/http/router.py",
            sysconfig.get_path("scripts") + "/trial",
            "/home/me/project/.venv/lib/python3.11/site-packages/x.py",
        ):
            self.assertTrue(isInstalled(path), path)
        self.assertFalse(isInstalled("/home/me/project/app.py"))
