"""The log: safe text, formats, events as lines, and outputs that are slow, full or broken."""

import json
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import (
    FAILED_SECONDS,
    FLUSH_BYTES,
    LATER_SECONDS,
    LIMIT_BYTES,
    MESSAGE_CHARACTERS,
    RETRY_SECONDS,
    TOGETHER,
    BufferedLogWriter,
    LogObserver,
    escapeField,
    escapeLine,
    escapeMessage,
    formatJSON,
    formatText,
    formatTimestamp,
)
from storagegate.telemetry.redaction import Redactor
from tests.support.log import Sink

SECRET = "a-root-secret"

FORGED = "x\n2026-01-01T00:00:00+0000 [-] forged\x1b[2J\u2028\ud800"

# Everything that ends a line somewhere, speaks to a terminal, or is in no encoding.
UNSAFE = "a\nb\r\x1b[31m\x00\x7f\x85\u2028\u2029\ud800\udc80"

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")

anyText = st.text(st.characters(exclude_categories=()))


class EscapeTests(SynchronousTestCase):
    """One thing is one line, and speaks to no terminal."""

    def test_controls(self) -> None:
        """Every control character is escaped, and so are the quotes that end a field."""
        self.assertEqual(
            escapeField('a\r\n\t\x1b[31m\x00\x7f\x85\x9b\u2028\u2029"\\b'),
            'a\\r\\n\\t\\u001b[31m\\u0000\\u007f\\u0085\\u009b\\u2028\\u2029\\"\\\\b',
        )

    @given(st.text(st.characters()))
    def test_anyText(self, text: str) -> None:
        """Whatever is written is one line that can be printed and encoded."""
        for escape in (escapeField, escapeLine, escapeMessage):
            escaped = escape(text)
            self.assertLess(len(escaped.splitlines()), 2)
            self.assertFalse(any(c < " " or "\x7f" <= c <= "\x9f" for c in escaped))
            escaped.encode()

    def test_message(self) -> None:
        """A message may have quotes, and nothing for a terminal."""
        self.assertEqual(escapeMessage('"a" \\ \x1b[1m\n'), '"a" \\ \\u001b[1m\\n')

    def test_colours(self) -> None:
        """A line of one's own may have colours, and nothing else for a terminal."""
        self.assertEqual(escapeLine('\x1b[1;31m"a"\x1b[0m'), '\x1b[1;31m"a"\x1b[0m')
        self.assertEqual(escapeLine("\x1b[2J\x1b]0;a\x07\n"), "\\u001b[2J\\u001b]0;a\\u0007\\n")


class LineTests(SynchronousTestCase):
    """Both forms."""

    def test_json(self) -> None:
        """A line of JSON is an object, numbers are numbers, and others read the same text."""
        values: dict[str, Any] = {"method": "gr\u00fc\u00dfe", "duration": 1.5, "bytes_in": 3}
        self.assertEqual(json.loads(formatJSON(values)), values)

    def test_text(self) -> None:
        """A line of text is name=value, with quotes where they are needed."""
        values = {"method": "get", "agent": 'a "b"', "none": "", "n": 1.5, "eq": "a=b"}
        self.assertEqual(formatText(values), rb'method=get agent="a \"b\"" none="" n=1.5 eq="a=b"')

    def test_forged(self) -> None:
        """Nothing that a client sends ends a line or reaches a terminal."""
        for form in (formatJSON, formatText):
            line = form({"client_id": UNSAFE, "status": "ok"})
            self.assertIsNone(_CONTROL.search(line), line)
            line.decode("utf-8")
        shown = json.loads(formatJSON({"client_id": UNSAFE}))["client_id"]
        self.assertTrue(shown.startswith("a\nb\r\x1b[31m\x00\x7f\x85\u2028\u2029"))
        self.assertTrue(shown.endswith(r"\ud800\udc80"))

    @given(st.dictionaries(st.sampled_from(["a", "b", "c"]), anyText))
    def test_anything(self, values: dict[str, str]) -> None:
        """Any text makes one line of valid UTF-8 without control characters."""
        for form in (formatJSON, formatText):
            line = form(values)
            self.assertIsNone(_CONTROL.search(line))
            line.decode("utf-8")
        self.assertEqual(set(json.loads(formatJSON(values))), set(values))


class TimestampTests(SynchronousTestCase):
    """Times."""

    def test_format(self) -> None:
        """A time is RFC 3339 in UTC with milliseconds."""
        self.assertEqual(formatTimestamp(0), "1970-01-01T00:00:00.000Z")
        self.assertEqual(formatTimestamp(1_700_000_000.0625), "2023-11-14T22:13:20.062Z")
        # In the same second, and in the one before.
        self.assertEqual(formatTimestamp(1_700_000_000.75), "2023-11-14T22:13:20.750Z")
        self.assertEqual(formatTimestamp(1_699_999_999.5), "2023-11-14T22:13:19.500Z")

    @given(st.integers(0, 4_000_000_000_000))
    def test_readable(self, milliseconds: int) -> None:
        """Others read the same time."""
        text = formatTimestamp((milliseconds + 0.5) / 1000)
        self.assertEqual(
            round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), milliseconds
        )


class Output:
    """
    Takes as much as there is room for.

    @ivar room: Bytes that it still takes; C{None} for any number.
    @ivar failure: What it raises instead.
    """

    def __init__(self) -> None:
        self.data = b""
        self.writes = 0
        self.room: int | None = None
        self.failure: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Take what there is room for."""
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        taken = bytes(data if self.room is None else data[: self.room])
        if self.room is not None:
            self.room -= len(taken)
        self.data += taken
        return len(taken)


class Reactor(Clock):
    """Remembers what came from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.fromThread: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def callFromThread(self, function: Callable[..., object], *arguments: object) -> None:
        """Remember a call."""
        self.fromThread.append((function, arguments))


class WriterCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a writer for a reactor that runs."""
        self.output = Output()
        self.reactor = Reactor()
        self.writer = BufferedLogWriter(self.output)
        self.writer.buffer(self.reactor)


class TurnTests(WriterCase):
    """When lines are written."""

    def test_turn(self) -> None:
        """The lines of a turn are written at its end, with one write."""
        self.writer.write(b"one")
        self.writer.write(b"two")
        self.assertEqual(self.output.writes, 0)
        self.reactor.advance(0)
        self.assertEqual((self.output.data, self.output.writes), (b"one\ntwo\n", 1))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_large(self) -> None:
        """What fills a pipe does not wait for the end of the turn."""
        self.writer.write(b"x" * (FLUSH_BYTES - 1))
        self.assertEqual(len(self.output.data), FLUSH_BYTES)

    def test_urgent(self) -> None:
        """An urgent line does not wait, nor does what came before it."""
        self.writer.write(b"call")
        self.writer.write(b"error", isUrgent=True)
        self.assertEqual(self.output.data, b"call\nerror\n")
        self.output.room = 0
        self.writer.write(b"more", isUrgent=True)
        self.writer.write(b"more", isUrgent=True)
        # A full output is not tried with each line.
        self.assertEqual(self.output.writes, 2)

    def test_before(self) -> None:
        """Before the reactor runs and after it has stopped, every line is written at once."""
        writer = BufferedLogWriter(self.output)
        writer.write(b"starting")
        self.assertEqual(self.output.data, b"starting\n")
        self.writer.write(b"last turn")
        self.writer.unbuffer()
        self.writer.write(b"stopped")
        self.assertEqual(self.output.data, b"starting\nlast turn\nstopped\n")

    def test_thread(self) -> None:
        """Lines of other threads are written by the reactor's, too."""
        thread = threading.Thread(target=self.writer.write, args=(b"elsewhere",))
        thread.start()
        thread.join()
        self.assertEqual(self.output.data, b"")
        [(function, arguments)] = self.reactor.fromThread
        function(*arguments)
        self.reactor.advance(0)
        self.assertEqual(self.output.data, b"elsewhere\n")

    def test_later(self) -> None:
        """Lines that are deferred are made soon, or before a line that comes later."""
        made: list[bytes] = []

        def make() -> list[bytes]:
            made.append(b"made")
            return [b"one", b"two"]

        self.writer.writeLater(make)
        self.assertEqual((made, self.output.data), ([], b""))
        self.writer.write(b"three", isUrgent=True)
        self.assertEqual((made, self.output.data), ([b"made"], b"one\ntwo\nthree\n"))
        self.reactor.advance(LATER_SECONDS)
        self.writer.writeLater(make)
        self.reactor.advance(LATER_SECONDS)
        self.assertEqual(self.output.data, b"one\ntwo\nthree\none\ntwo\n")
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_laterTogether(self) -> None:
        """Enough deferred lines are made at once, and enough bytes of them are written at once."""
        made: list[int] = []

        def make() -> list[bytes]:
            made.append(1)
            return [b"x" * 1023]

        for _ in range(TOGETHER - 1):
            self.writer.writeLater(make)
        self.assertEqual(made, [])
        self.writer.writeLater(make)
        self.assertEqual((len(made), len(self.output.data)), (TOGETHER, FLUSH_BYTES))
        self.writer.writeLater(lambda: [b"y"] * TOGETHER, TOGETHER)
        self.assertEqual(len(self.output.data), FLUSH_BYTES)
        self.reactor.advance(LATER_SECONDS)
        self.assertEqual(len(self.output.data), FLUSH_BYTES + 2 * TOGETHER)

    def test_laterBefore(self) -> None:
        """Before the reactor runs and after it has stopped, they are written at once."""
        writer = BufferedLogWriter(self.output)
        writer.writeLater(lambda: [b"starting"])
        self.writer.writeLater(lambda: [b"last turn"])
        self.writer.unbuffer()
        self.assertEqual(self.output.data, b"starting\nlast turn\n")

    def test_reentrant(self) -> None:
        """A line that is logged in the middle of a write, as a signal may do, is not lost."""
        write = self.output.write

        def interrupted(data: memoryview) -> int:
            if not self.output.data:
                self.writer.write(b"signal")
            return write(data)

        self.output.write = interrupted  # type: ignore[method-assign]
        self.writer.write(b"line")
        self.reactor.pump([0, 0])
        self.assertEqual(self.output.data, b"line\nsignal\n")


class FullTests(WriterCase):
    """An output that takes no more for now, or never again."""

    def test_pause(self) -> None:
        """What a reader has no room for is kept, in order, and written when it has."""
        self.output.room = 6
        for line in (b"one", b"two", b"three"):
            self.writer.write(line)
        self.reactor.advance(0)
        self.assertEqual(self.output.data, b"one\ntw")
        self.writer.write(b"four")
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(self.output.data, b"one\ntwo\nthree\nfour\n")
        self.assertEqual(self.writer.dropped, 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_drop(self) -> None:
        """What waits is bounded; lines beyond it are dropped whole and counted."""
        self.output.room = 0
        line = b"x" * 1023
        for _ in range(LIMIT_BYTES // 1024 + 7):
            self.writer.write(line)
        self.assertEqual(self.writer.dropped, 7)
        # It is not asked again with each line.
        self.assertEqual(self.output.writes, 1)
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(len(self.output.data), LIMIT_BYTES)
        self.assertTrue(self.output.data.endswith(line + b"\n"))

    def test_laterFull(self) -> None:
        """Deferred lines count like others while the output is full."""
        self.output.room = 0
        self.writer.write(b"x", isUrgent=True)
        line = b"x" * 1023
        for _ in range(LIMIT_BYTES // 4096 + 1):
            self.writer.writeLater(lambda: [line] * 4)
        self.assertEqual(self.writer.dropped, 5)
        self.output.room = None
        self.reactor.advance(RETRY_SECONDS)
        self.assertEqual(len(self.output.data), LIMIT_BYTES - 1024 + 2)

    def test_failure(self) -> None:
        """A full disk raises no error, and is tried again."""
        self.output.failure = OSError(28, "No space left on device")
        self.writer.write(b"one")
        self.reactor.advance(0)
        self.output.failure = None
        self.reactor.advance(FAILED_SECONDS)
        self.assertEqual(self.output.data, b"one\n")

    def test_change(self) -> None:
        """The first failure is reported and its end, not each attempt."""
        found: list[OSError | None] = []
        self.writer.onChange = found.append
        failure = self.output.failure = OSError(28, "No space left on device")
        self.writer.write(b"one")
        for _ in range(3):
            self.reactor.advance(FAILED_SECONDS)
        self.assertEqual(found, [failure])
        self.output.failure = None
        self.reactor.advance(FAILED_SECONDS)
        self.assertEqual(found, [failure, None])

    def test_finish(self) -> None:
        """The end of a process waits for a reader, and not for ever."""
        self.output.room = 0
        self.writer.write(b"one")
        self.writer.finish(2 * RETRY_SECONDS)
        self.assertEqual(self.output.data, b"")
        self.output.room = None
        self.writer.finish(0)
        self.assertEqual(self.output.data, b"one\n")


class ObserverCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a logger whose lines go to a sink."""
        self.sink = Sink()
        self.observer = LogObserver(self.sink, Redactor([SECRET]), "json")
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
        observer = LogObserver(self.sink, Redactor(), "json", worker=0)
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
        self.assertIn("characters omitted", message)
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
        """Control characters in a message or an error begin no line."""
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

    def test_ports(self) -> None:
        """The messages of ports matter less; other texts like them take no quadratic time."""
        for text in ("Site starting on 8080", "(TCP Port 8080 Closed)"):
            self.observer({"log_level": LogLevel.info, "message": (text,)})
        self.assertEqual(self.sink.lines, [])
        text = "(" + " Port " * 200_000
        self.observer({"log_level": LogLevel.info, "message": (text,), "log_format": "x"})
        self.assertEqual(len(self.sink.lines), 1)
