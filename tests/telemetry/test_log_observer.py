"""Twisted's log as lines of the daemon's."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import MESSAGE_CHARACTERS, LineObserver
from storagegate.telemetry.redaction import Redactor

SECRET = "a-root-secret"

FORGED = "x\n2026-01-01T00:00:00+0000 [-] forged\x1b[2J\u2028\ud800"


class Sink:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lowest = 1
        self.lines: list[bytes] = []

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """Keep a line."""
        self.lines.append(line)

    def promise(self, make: Callable[[], Sequence[bytes]]) -> None:
        """Keep lines at once."""
        self.lines.extend(make())


class ObserverCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a logger whose lines go to a sink."""
        self.sink = Sink()
        self.observer = LineObserver(self.sink, Redactor([SECRET]), "json")
        self.log = Logger("the.namespace", observer=LogPublisher(self.observer))

    def failure(self, text: str) -> Failure:
        """Make a failure that has a traceback."""
        try:
            raise ValueError(text)
        except ValueError:
            return Failure()

    def only(self) -> Any:
        """Give the one object that was written."""
        [line] = self.sink.lines
        return json.loads(line)


class JSONTests(ObserverCase):
    """One object a line."""

    def test_fields(self) -> None:
        """A line tells when, how much it matters, who says it, and what."""
        self.observer(
            {
                "log_level": LogLevel.warn,
                "log_time": 1_700_000_000.25,
                "log_namespace": "the.namespace",
                "log_format": "{count} of them",
                "count": 3,
            }
        )
        self.assertEqual(
            self.only(),
            {
                "timestamp": "2023-11-14T22:13:20.250Z",
                "level": "warn",
                "logger": "the.namespace",
                "message": "3 of them",
            },
        )

    def test_failure(self) -> None:
        """The traceback of a failure is a field of its line, as is the trace where it is known."""
        self.log.failure("it failed", self.failure("why"), trace_id="a" * 32)
        line = self.only()
        self.assertEqual((line["level"], line["message"]), ("critical", "it failed"))
        self.assertEqual(line["trace_id"], "a" * 32)
        self.assertIn("Traceback", line["traceback"])
        self.assertTrue(line["traceback"].endswith("ValueError: why"))

    def test_worker(self) -> None:
        """The line of a worker says which one it is; the first is 0."""
        observer = LineObserver(self.sink, Redactor(), "json", worker=0)
        Logger("n", observer=LogPublisher(observer)).info("here")
        self.assertEqual(self.only()["worker"], 0)

    def test_unreadable(self) -> None:
        """A message that cannot be made, or a failure that cannot be shown, is a line, too."""

        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        self.log.info("{missing}")
        self.log.failure("broken", Failure(Broken()))
        self.assertEqual(len(self.sink.lines), 2)
        self.assertIn("missing", json.loads(self.sink.lines[0])["message"])
        self.assertIn("Broken", json.loads(self.sink.lines[1])["traceback"])

    def test_long(self) -> None:
        """A message without end is cut in its middle, and no secret stands at the cut."""
        self.log.info("{text}", text=("x" * MESSAGE_CHARACTERS + SECRET) * 20)
        message = self.only()["message"]
        self.assertLess(len(message), MESSAGE_CHARACTERS + 100)
        self.assertIn("characters left out", message)
        self.assertNotIn(SECRET, message)


class TextTests(ObserverCase):
    """Lines for people."""

    def setUp(self) -> None:
        """Have text written."""
        super().setUp()
        self.observer.format = "text"

    def test_line(self) -> None:
        """A line is that of twistd."""
        self.log.info("listening name={name}", name="s3")
        [line] = self.sink.lines
        self.assertRegex(
            line.decode(),
            r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \[the\.namespace#info\] listening name=s3$",
        )

    def test_failure(self) -> None:
        """A traceback stands behind its line, each of its lines after a tab."""
        self.log.failure("it failed", self.failure("why"), trace_id="a" * 32)
        [line] = self.sink.lines
        first, *rest = line.decode().split("\n")
        self.assertTrue(first.endswith("[the.namespace#critical] it failed trace_id=" + "a" * 32))
        self.assertTrue(all(each.startswith("\t") for each in rest))
        self.assertEqual(rest[-1], "\tbuiltins.ValueError: why")


class EitherTests(ObserverCase):
    """What holds for both forms."""

    def test_level(self) -> None:
        """What matters less than what is wanted is not written, from one line to the next."""
        for lowest, expected in ((0, 5), (1, 4), (2, 3), (3, 2)):
            self.sink.lowest = lowest
            self.sink.lines.clear()
            for level in LogLevel.iterconstants():
                self.log.emit(level, "x")
            self.assertEqual(len(self.sink.lines), expected)

    def test_secrets(self) -> None:
        """Secrets are in neither message nor traceback."""
        for form in ("json", "text"):
            self.observer.format = form
            self.log.failure(f"with {SECRET}", self.failure(f"token=abc {SECRET}"))
        for line in self.sink.lines:
            self.assertNotIn(SECRET.encode(), line)
            self.assertNotIn(b"token=abc", line)

    def test_forged(self) -> None:
        """Whoever puts control characters into a message or an error gets no line of his own."""
        for form in ("json", "text"):
            self.observer.format = form
            self.log.failure("{text}", self.failure(FORGED), text=FORGED)
        for line in self.sink.lines:
            self.assertIsNone(re.search(rb"^20.*forged", line[10:], re.MULTILINE), line)
            self.assertNotIn(b"\x1b", line)
            self.assertNotIn("\u2028".encode(), line)
            line.decode("utf-8")

    def test_empty(self) -> None:
        """An event that says nothing makes no line, as in twistd's own log."""
        self.observer({"log_level": LogLevel.info})
        self.assertEqual(self.sink.lines, [])
