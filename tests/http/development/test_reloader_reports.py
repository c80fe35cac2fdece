"""Errors, as people are told of them."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.development.reloader import ErrorReport, reportOf
from storagegate.http.testing import Client


def caught(function: Any) -> BaseException:
    """Give what a function raises."""
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


class ReportTests(SynchronousTestCase):
    """Reports."""

    def test_place(self) -> None:
        """The place is the last in the application's own code, not that in what it called."""
        error = caught(lambda: json.loads("{"))
        report = reportOf(error, isOwn=lambda path: path == __file__)
        self.assertEqual(report.file, __file__)
        assert report.line is not None
        with open(__file__) as file:
            self.assertIn('json.loads("{")', file.read().splitlines()[report.line - 1])
        self.assertTrue(report.title.startswith("json.decoder.JSONDecodeError: Expecting"))
        self.assertIn("json/decoder.py", report.text)

    def test_syntax(self) -> None:
        """A syntax error is at the place that it names, and shows the line."""
        error = caught(lambda: compile("x = = 1\n", "/p/a.py", "exec"))
        report = reportOf(error, isOwn=lambda path: path == "/p/a.py")
        self.assertEqual((report.file, report.line), ("/p/a.py", 1))
        self.assertEqual(report.title, "SyntaxError: invalid syntax")
        self.assertNotIn("Traceback", report.text)

    def test_framework(self) -> None:
        """The frames of the framework are left out, those of a cause too."""
        client = Client(server.http())
        error = caught(lambda: client.get("nothing"))
        report = reportOf(error)
        self.assertNotIn("storagegate/http/", report.text)
        try:
            raise KeyError("outer") from error
        except KeyError as outer:
            self.assertNotIn("storagegate/http/", reportOf(outer).text)

    def test_onlyFramework(self) -> None:
        """An error that is all the framework's own keeps its frames."""
        client = Client(server.http())
        error = caught(lambda: client.get("nothing"))
        trace = error.__traceback__
        while trace is not None and "tests" in trace.tb_frame.f_code.co_filename:
            trace = trace.tb_next
        report = reportOf(error, trace)
        self.assertIn("storagegate/http/", report.text)
        self.assertIsNone(report.file)

    def test_mapping(self) -> None:
        """A report can be sent."""
        self.assertEqual(
            ErrorReport("t", None, None, "x").asMapping(),
            {"title": "t", "file": None, "line": None, "text": "x"},
        )
