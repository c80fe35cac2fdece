"""Formats of request logs, on requests that never were."""

import os
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.accesslog import RequestRecord, compileFormat

NOON = 1_700_000_000.25
"""14 November 2023, 22:13:20.250 in Greenwich."""


def exchange(**changes: Any) -> RequestRecord:
    """Make a request that has been answered after 12.3456 ms, and has been over for 20 ms."""
    values: dict[str, Any] = {
        "headers": {},
        "status": 200,
        "sent": {"content-length": "5"},
        "isLost": False,
        "headersSent": True,
        "answered": NOON - 0.0076544,
    } | changes
    req = SimpleNamespace(
        method="GET",
        originalUrl="/a?b=c",
        httpVersion="1.1",
        ip="192.0.2.7",
        get=values["headers"].get,
    )
    res = SimpleNamespace(
        statusCode=values["status"],
        headersSent=values["headersSent"],
        sentLength=None,
        get=lambda name: values["sent"].get(name.lower()),
    )
    return RequestRecord(
        req, res, lambda: NOON, NOON - 0.02, values["answered"], isLost=values["isLost"]
    )


def line(format: str, **changes: Any) -> str | None:
    """Write a line."""
    return compileFormat(format)(exchange(**changes))


ALICE = {
    "authorization": "Basic YWxpY2U6c2VjcmV0",
    "referrer": "http://x/",
    "user-agent": "Test/1",
}


class FormatTests(SynchronousTestCase):
    """The formats by name."""

    def test_combined(self) -> None:
        """Apache's combined format."""
        self.assertEqual(
            line("combined", headers=ALICE),
            '192.0.2.7 - alice [14/Nov/2023:22:13:20 +0000] "GET /a?b=c HTTP/1.1" 200 5 '
            '"http://x/" "Test/1"',
        )

    def test_missing(self) -> None:
        """What a request or an answer does not have is a dash."""
        self.assertEqual(
            line("combined", sent={}),
            '192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] "GET /a?b=c HTTP/1.1" 200 - "-" "-"',
        )

    def test_common(self) -> None:
        """The common format is the combined one without the last two fields."""
        self.assertEqual(
            line("common", headers=ALICE),
            '192.0.2.7 - alice [14/Nov/2023:22:13:20 +0000] "GET /a?b=c HTTP/1.1" 200 5',
        )

    def test_short(self) -> None:
        """The short format."""
        self.assertEqual(
            line("short", headers=ALICE),
            "192.0.2.7 alice GET /a?b=c HTTP/1.1 200 5 - 12.346 ms",
        )

    def test_tiny(self) -> None:
        """The tiny format."""
        self.assertEqual(line("tiny"), "GET /a?b=c 200 5 - 12.346 ms")

    def test_dev(self) -> None:
        """The format for development colours the status by its first digit, and no other."""
        for status, colour in ((200, 32), (304, 36), (404, 33), (503, 31)):
            self.assertEqual(
                line("dev", status=status),
                f"GET /a?b=c \x1b[{colour}m{status}\x1b[0m 5 - 12.346 ms",
            )
        self.assertEqual(line("dev", status=700), "GET /a?b=c 700 5 - 12.346 ms")
        self.assertEqual(line("dev", isLost=True), "GET /a?b=c - 5 - 12.346 ms")

    def test_lost(self) -> None:
        """A client that was lost logs no status."""
        self.assertEqual(
            line("tiny", isLost=True, headersSent=False, answered=None), "GET /a?b=c - - - - ms"
        )


class TokenTests(SynchronousTestCase):
    """The tokens one by one."""

    def test_dates(self) -> None:
        """Dates are written in three ways, whatever the language of the machine."""
        self.assertEqual(line(":date[clf]"), "14/Nov/2023:22:13:20 +0000")
        self.assertEqual(line(":date[iso]"), "2023-11-14T22:13:20.250Z")
        self.assertEqual(line(":date[web]"), "Tue, 14 Nov 2023 22:13:20 GMT")
        self.assertEqual(line(":date"), "Tue, 14 Nov 2023 22:13:20 GMT")

    def test_times(self) -> None:
        """Times are milliseconds with as many digits as are asked for, three by default."""
        self.assertEqual(
            line(":response-time :response-time[0] :response-time[4]"), "12.346 12 12.3456"
        )
        self.assertEqual(line(":total-time :total-time[1]"), "20.000 20.0")
        self.assertEqual(line(":total-time", answered=None), "-")

    def test_clockSetBack(self) -> None:
        """No time is negative."""
        self.assertEqual(line(":response-time[1]", answered=NOON - 60), "0.0")

    def test_headers(self) -> None:
        """Any header may be named, in any case."""
        self.assertEqual(
            line(":req[ACCEPT] :res[Content-Length]", headers={"accept": "text/html"}),
            "text/html 5",
        )
        self.assertEqual(line(":res[set-cookie]", sent={"set-cookie": ["a=b", "c=d"]}), "a=b, c=d")
        self.assertEqual(line(":res[content-length]", headersSent=False), "-")

    def test_process(self) -> None:
        """The process is known by its number."""
        self.assertEqual(line(":pid"), str(os.getpid()))

    def test_remoteUser(self) -> None:
        """The user is the one of Basic credentials, and absent if they cannot be decoded."""
        for credentials, user in (
            ("basic YWxpY2U6c2VjcmV0", "alice"),
            ("Basic  YWxpY2U6 ", "alice"),
            ("Basic eDpi", "x"),
            ("Basic w6k6eA", "\u00e9"),
            ("Basic OnNlY3JldA==", "-"),
            ("Basic YWxpY2U=", "-"),
            ("Basic Y", "-"),
            ("Basic !", "-"),
            ("Basic YWxpY2U6c2VjcmV0, x", "-"),
            ("Bearer YWxpY2U6c2VjcmV0", "-"),
            ("", "-"),
        ):
            self.assertEqual(line(":remote-user", headers={"authorization": credentials}), user)

    def test_literals(self) -> None:
        """What is no token is written as it is."""
        self.assertEqual(
            line("100% :: %s :method: {0} \\ [:status]"), "100% :: %s GET: {0} \\ [200]"
        )

    def test_refused(self) -> None:
        """A format that says nothing, or asks for what there is not, is an error that names it."""
        for format, text in (
            ("combned", "combned"),
            ("", "combined"),
            (":methd", ":methd"),
            (":status[x]", ":status"),
            (":req", ":req"),
            (":res", ":res"),
            (":date[us]", "us"),
            (":response-time[x]", "response-time"),
            (":total-time[10]", "total-time"),
        ):
            error = self.assertRaises(ValueError, compileFormat, format)
            self.assertIn(text, str(error))


class EscapeTests(SynchronousTestCase):
    """One request is one line, and speaks to no terminal."""

    def test_clientsWords(self) -> None:
        """What a client sends is escaped wherever it goes."""
        evil = 'x" 200 5\n\x1b]0;owned\x07\u2028'
        basic = "Basic eAo6eA=="
        written = line(
            ":user-agent :referrer :req[x] :remote-user",
            headers={"user-agent": evil, "referrer": evil, "x": evil, "authorization": basic},
        )
        assert written is not None
        self.assertEqual(written.count('x\\" 200 5\\n\\u001b]0;owned\\u0007\\u2028'), 3)
        self.assertTrue(written.endswith(" x\\n"))
