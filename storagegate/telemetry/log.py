"""
Lines on their way into the log: collected for a turn of the reactor, then written at once.

A log that cannot be written, because nobody reads the pipe or the disk is full, must not stop the
daemon. What is waiting is bounded; beyond that, lines are dropped and counted.

Text of others in lines of a log.

Lines of a log made of values: an object of JSON, or C{name=value}.

Twisted's log as lines of the daemon's: text for people, JSON for collectors.

An object of JSON has C{timestamp}, C{level}, C{logger} (the namespace) and C{message}, and where
they are known C{trace_id}, C{traceback} and C{worker}. A line of text is that of C{twistd}, with
the lines of a traceback behind it, each after a tab: nothing that others wrote begins a line.

What the lines of the log are written to, without ever waiting for it: a pipe, a terminal, a socket
such as systemd's, or a file that is moved aside when it has become large.
"""

import os
import re
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import RLock, get_ident
from typing import Any, Protocol

from msgspec import json
from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    eventAsText,
    formatEvent,
    formatTime,
)
from zope.interface import implementer

from storagegate.telemetry.redaction import Redactor

LEVELS = ("debug", "info", "warn", "error")
"""The words for how much a line matters, rising."""

FLUSH_BYTES = 1 << 16
"""What is written without waiting for the turn's end: as much as a pipe takes at once."""

LIMIT_BYTES = 4 << 20
"""What may wait: a second of a busy daemon's calls, for a reader that pauses."""

RETRY_SECONDS = 0.05
"""When a reader that had no room is asked again."""

PROMISED_SECONDS = 0.05
"""How long lines that were promised wait for others: who reads a log does not see so little, and
each turn of a busy reactor would have to write a few of them."""

FAILED_SECONDS = 1.0
"""When an output that failed is tried again: full disks and lost readers do not pass sooner."""


MakeLines = Callable[[], Sequence[bytes]]
"""Gives whole lines without their newlines. Raises nothing; is called in the reactor's thread."""


class LogSink(Protocol):
    """
    Where lines go.

    @ivar lowest: Lines of a level below this one, by its place in L{LEVELS}, are not wanted.
    """

    lowest: int

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """
        Take one whole line without its newline; in any thread, and without waiting.

        @param isUrgent: Whether it is to be written before anything else happens: what the
            process says of itself may be its last word.
        """

    def promise(self, make: MakeLines) -> None:
        """
        Take lines that are made when they are written; in any thread, and without waiting.

        That is L{PROMISED_SECONDS} later at most: many at once are made faster than one after the
        other between other work. A line that is urgent comes behind them, and takes them along.
        """


class Output(Protocol):
    """What lines are written to."""

    def write(self, data: memoryview) -> int:
        """
        Write what there is room for now.

        @return: How many bytes that were.
        @raise OSError: If it cannot be written to.
        """


class BufferedLogWriter:
    """
    Writes lines to an output: each at once, until L{buffer} has it wait for the turn's end.

    Every method may run in any thread.

    @ivar lowest: See L{LogSink}.
    @ivar dropped: How many lines found no room.
    """

    def __init__(self, output: Output, limit: int = LIMIT_BYTES) -> None:
        """
        @param limit: How many bytes may wait.
        """
        self.lowest = LEVELS.index("info")
        self.dropped = 0
        self._output = output
        self._limit = limit
        # A signal's handler or a finaliser may log in the middle of a write of the same thread.
        self._lock = RLock()
        self._lines: deque[bytes] = deque()
        self._promised: list[MakeLines] = []
        self._rest = memoryview(b"")
        self._size = 0
        self._reactor: Any = None
        self._thread = 0
        # Whether somebody comes and writes: the turn's end, or the next try.
        self._isDue = False
        self._isStuck = False
        self._isWriting = False

    def buffer(self, reactor: Any) -> None:
        """Collect the lines of each turn of a reactor from now on; in its thread."""
        with self._lock:
            self._reactor = reactor
            self._thread = get_ident()
            if self._size or self._promised:
                self._comeBack(0)

    def unbuffer(self) -> None:
        """Write every line at once again: the reactor has stopped."""
        with self._lock:
            self._reactor = None
            self._isDue = False
            self.flush()

    def finish(self, seconds: float) -> None:
        """Write the last lines of a process; blocks for a reader that pauses, so long at most."""
        end = time.monotonic() + seconds
        self.unbuffer()
        while self._size and time.monotonic() < end:
            time.sleep(RETRY_SECONDS)
            self.flush()

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """Take one whole line without its newline, see L{LogSink.write}."""
        with self._lock:
            if self._promised:
                self._keepPromises()
            self._add(line)
            isFull = isUrgent or self._size >= FLUSH_BYTES
            if self._reactor is None or (isFull and not self._isStuck):
                self.flush()
            elif not self._isDue:
                self._comeBack(0)

    def promise(self, make: MakeLines) -> None:
        """Take lines that are made when they are written, see L{LogSink.promise}."""
        with self._lock:
            self._promised.append(make)
            if self._reactor is None:
                self.flush()
            elif self._isStuck:
                # Nobody knows until when: what waits has to be counted.
                self._keepPromises()
            elif not self._isDue:
                self._comeBack(PROMISED_SECONDS)

    def _add(self, line: bytes) -> None:
        """Have a line wait, if there is room for it."""
        size = len(line) + 1
        if self._size + size > self._limit:
            self.dropped += 1
            return
        self._lines.append(line)
        self._size += size

    def _addAll(self, lines: Sequence[bytes]) -> None:
        """Have lines wait, as far as there is room for them."""
        size = sum(map(len, lines)) + len(lines)
        if self._size + size <= self._limit:
            self._lines.extend(lines)
            self._size += size
        else:
            for line in lines:
                self._add(line)

    def _keepPromises(self) -> None:
        """Have the lines made that were promised, if this is the reactor's thread."""
        if self._reactor is not None and get_ident() != self._thread:
            return
        # Whoever makes lines may promise more.
        while self._promised:
            promised, self._promised = self._promised, []
            for make in promised:
                self._addAll(make())

    def flush(self) -> None:
        """Write what waits, as far as there is room for it."""
        with self._lock:
            if self._isWriting:
                return
            self._isWriting = True
            try:
                again = self._writeAll()
            finally:
                self._isWriting = False
            self._isStuck = again is not None
            if again is not None:
                self._comeBack(again)

    def _writeAll(self) -> float | None:
        """Write; tell in how many seconds the rest may be tried again, if there is one."""
        self._keepPromises()
        while self._rest or self._lines:
            if not self._rest:
                self._rest = memoryview(b"\n".join(self._lines) + b"\n")
                self._lines.clear()
            try:
                written = self._output.write(self._rest)
            except OSError:
                return FAILED_SECONDS
            if not written:
                return RETRY_SECONDS
            self._rest = self._rest[written:]
            self._size -= written
        return None

    def _comeBack(self, seconds: float) -> None:
        """Have the rest written later, unless somebody comes anyway."""
        if self._isDue or self._reactor is None:
            return
        self._isDue = True
        if get_ident() == self._thread:
            self._reactor.callLater(seconds, self._due)
        else:
            self._reactor.callFromThread(self._reactor.callLater, seconds, self._due)

    def _due(self) -> None:
        with self._lock:
            self._isDue = False
            self.flush()


_ESCAPES = {
    "\\": r"\\",
    '"': r"\"",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
}


@cache
def _unsafe() -> re.Pattern[str]:
    """
    Find what could end a line or speak to a terminal, and what no encoding has.

    These patterns take a quarter of a megabyte to compile, and hardly any text needs them.
    """
    return re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@cache
def _unsafeInField() -> re.Pattern[str]:
    """Find also what could end a field in quotes."""
    return re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"\\\\]')


@cache
def _unsafeInLine() -> re.Pattern[str]:
    """Find the same in a whole line, in which quotes and colours may be meant."""
    return re.compile("[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\x1b(?!\\[[0-9;]*m)")


def escapeField(text: str) -> str:
    """Escape what does not belong in one field of one line."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _unsafeInField().sub(_escape, text)


def escapeLine(text: str) -> str:
    """Escape what does not belong in one line; quotes and colours do."""
    return text if text.isprintable() else _unsafeInLine().sub(_escape, text)


def escapeMessage(text: str) -> str:
    """Escape what does not belong in one line; quotes do, and colours do not."""
    return text if text.isprintable() else _unsafe().sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"


# No reader of name=value takes a part of this for the end of the value.
_PLAIN = re.compile(r'[^\s="\\]+')

_encode = json.Encoder().encode


def asJSON(values: Mapping[str, Any]) -> bytes:
    """
    Write values as an object in one line.

    Control characters are escaped as JSON has it; what no encoding has, such as bytes that were no
    UTF-8, stands there as the text C{\\udc80}.
    """
    try:
        line = _encode(values)
    except UnicodeEncodeError:
        line = _encode({name: _encodable(value) for name, value in values.items()})
    # Next to every line is plain ASCII, and both questions together take 0.1 microseconds.
    if line.isascii() and b"\x7f" not in line:
        return line
    return _unsafeValue().sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()


def asText(values: Mapping[str, Any]) -> bytes:
    """Write values as C{name=value}, in quotes where a value could be taken for more than one."""
    return " ".join([f"{name}={_quoted(str(value))}" for name, value in values.items()]).encode()


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {"json": asJSON, "text": asText}
"""How lines are written, by the word of the options."""


class TimeStamps:
    """Writes times as RFC 3339 has them, in UTC with milliseconds."""

    def __init__(self) -> None:
        # In one piece, for several threads may write.
        self._last = (-1, "", -1, "")

    def format(self, when: float) -> str:
        """
        Write a time.

        @param when: Seconds since 1970.
        """
        milliseconds = int(when * 1000)
        known, text, second, start = self._last
        if milliseconds == known:
            return text
        if milliseconds // 1000 != second:
            # Which takes 1.5 microseconds, as much as all else that a line costs.
            second = milliseconds // 1000
            start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        text = f"{start}.{milliseconds % 1000:03d}Z"
        self._last = (milliseconds, text, second, start)
        return text


@cache
def _unsafeValue() -> re.Pattern[str]:
    """Find what JSON may carry, and terminals and readers of lines take for more than text."""
    return re.compile("[\x7f-\x9f\u2028\u2029]")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _quoted(text: str) -> str:
    isPlain = text.isprintable() and _PLAIN.fullmatch(text)
    return text if isPlain else f'"{escapeField(text)}"'


MESSAGE_CHARACTERS = 1 << 14
"""A message is cut here: what is longer is a document that somebody has put into an error."""

TRACEBACK_CHARACTERS = 1 << 15
"""A traceback is cut here in its middle; three hundred frames have room."""

_SEVERITIES: Mapping[Any, int] = {
    LogLevel.debug: 0,
    LogLevel.info: 1,
    LogLevel.warn: 2,
    LogLevel.error: 3,
    LogLevel.critical: 3,
}

_LINE_BREAK = re.compile(r"\r\n|[\n\r]")


@implementer(ILogObserver)
class LineObserver:
    """
    Writes events to a sink.

    @ivar format: C{text} or C{json}; it may change at any time.
    """

    def __init__(
        self, sink: LogSink, redactor: Redactor, format: str = "text", worker: int | None = None
    ) -> None:
        """
        @param worker: The index of this process among those of the daemon.
        """
        self.format = format
        self._sink = sink
        self._redact = redactor.redact
        self._worker = worker
        self._stamps = TimeStamps()

    def __call__(self, event: LogEvent) -> None:
        """Write an event; in any thread."""
        severity = _SEVERITIES.get(event.get("log_level"), 1)
        if severity < self._sink.lowest:
            return
        message = self._message(event)
        traceback = self._traceback(event)
        if not message and not traceback:
            return
        write = self._asJSON if self.format == "json" else self._asText
        self._sink.write(write(event, message, traceback), isUrgent=True)

    def _message(self, event: LogEvent) -> str:
        return self._shown(formatEvent(event), MESSAGE_CHARACTERS)

    def _traceback(self, event: LogEvent) -> str:
        if "log_failure" not in event:
            return ""
        # Alone, for it never fails, whatever is wrong with the exception's own text.
        alone = {"log_failure": event["log_failure"]}
        text = eventAsText(alone, includeTimestamp=False, includeSystem=False)
        return self._shown(text.strip("\n"), TRACEBACK_CHARACTERS)

    def _shown(self, text: str, limit: int) -> str:
        # A secret that a cut has gone through is not known again: first there is room around it.
        return _cut(self._redact(_cut(text, 4 * limit)), limit)

    def _asJSON(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        values = {
            "timestamp": self._stamps.format(event.get("log_time", 0)),
            "level": "info" if level is None else level.name,
            "logger": str(event.get("log_namespace") or event.get("log_system") or "-"),
            "message": message,
        }
        if event.get("trace_id"):
            values["trace_id"] = str(event["trace_id"])
        if traceback:
            values["traceback"] = traceback
        if self._worker is not None:
            values["worker"] = self._worker
        return asJSON(values)

    def _asText(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        system = event.get("log_system")
        if system is None:
            system = f"{event.get('log_namespace', '-')}#{'-' if level is None else level.name}"
        time = formatTime(event.get("log_time"))
        worker = "" if self._worker is None else f" worker={self._worker}"
        trace = f" trace_id={event['trace_id']}" if event.get("trace_id") else ""
        lines = [escapeMessage(f"{time} [{system}]{worker} {message}{trace}")]
        if traceback:
            lines += [escapeMessage(line) for line in _LINE_BREAK.split(traceback)]
        return "\n\t".join(lines).encode()


def _cut(text: str, limit: int) -> str:
    """Leave the middle out of a text that is too long: its end says as much as its beginning."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"


PIECE_BYTES = 4096
"""
What a pipe takes whole or not at all (C{PIPE_BUF} of Linux): so lines of several processes stay
apart.
"""

ROTATE_BYTES = 100_000_000
"""A log file of this size is moved aside: editors and mail still take it."""

KEPT_FILES = 5
"""So many that were moved aside are kept: half a gigabyte, which a small disk has left."""


class DescriptorOutput:
    """An open descriptor that others may hold as well, so that its own flags stay as they are."""

    def __init__(self, descriptor: int) -> None:
        """
        @param descriptor: Stays open, and stays the caller's.
        """
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._mayBlock = False
        self._isFile = False
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # Opened once more, it has flags of its own.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError:
                # Somebody else's terminal, or no /proc.
                self._mayBlock = True
        else:
            self._isFile = True

    def write(self, data: memoryview) -> int:
        """
        Write what there is room for now.

        @raise OSError: If it cannot be written to.
        """
        try:
            if not self._isFile and len(data) > PIECE_BYTES:
                data = _lines(data)
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if self._mayBlock and not select.select([], [self._descriptor], [], 0)[1]:
                return 0
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0


def _lines(data: memoryview) -> memoryview:
    """Give the whole lines at the beginning that fit into a piece; what is longer is cut."""
    end = bytes(data[:PIECE_BYTES]).rfind(b"\n")
    return data[: end + 1 or PIECE_BYTES]


class FileOutput:
    """
    A file that lines are appended to.

    It may be moved away by others at any time: a new one is begun then. Several processes may
    append to one file.

    @ivar path: Its name.
    @ivar descriptor: The open file, for processes to inherit.
    @ivar isTurned: Set it to have the file moved aside before the next line, as C{twistd} does on
        SIGUSR1.
    """

    def __init__(
        self,
        path: str,
        limit: int = ROTATE_BYTES,
        kept: int = KEPT_FILES,
        descriptor: int | None = None,
    ) -> None:
        """
        @param limit: From this size on the file is moved aside.
        @param kept: How many of those are kept: C{path.1} is the newest.
        @param descriptor: The file as another process has opened it, which is also the one that
            moves it.
        @raise OSError: If it cannot be opened.
        """
        # twistd changes its directory.
        self.path = os.path.abspath(path)
        self._limit = limit
        self._kept = kept
        self._mayMove = descriptor is None
        self.isTurned = False
        self.descriptor = self._open() if descriptor is None else descriptor

    def write(self, data: memoryview) -> int:
        """
        Write to the file that has the name now.

        @raise OSError: If the disk is full, or fails.
        """
        self._follow()
        return os.write(self.descriptor, data)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # What a daemon logs is for its own user and group.
        return os.open(self.path, flags, 0o640)

    def _follow(self) -> None:
        """Begin a new file if this one was moved, or is large enough to be."""
        mine = os.fstat(self.descriptor)
        if self._mayMove and mine.st_size and (self.isTurned or mine.st_size >= self._limit):
            self.isTurned = False
            self._moveAside()
        try:
            theirs: os.stat_result | None = os.stat(self.path)
        except OSError:
            theirs = None
        if theirs is None or not os.path.samestat(mine, theirs):
            try:
                descriptor = self._open()
            except OSError:
                # The directory is not ours any more: the file that is open is better than none.
                return
            # The number stays, for workers that are started later inherit it.
            os.dup2(descriptor, self.descriptor, inheritable=False)
            os.close(descriptor)

    def _moveAside(self) -> None:
        try:
            for number in range(self._kept, 0, -1):
                older = self.path if number == 1 else f"{self.path}.{number - 1}"
                if os.path.exists(older):
                    os.replace(older, f"{self.path}.{number}")
        except OSError:
            # It grows on: to write matters more than to move.
            return
