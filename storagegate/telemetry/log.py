"""
The log of a process: text that is safe in a line, formats, the observer of Twisted's log, a writer
that never blocks, and the outputs that it writes to.

A line of JSON is an object with C{timestamp}, C{level}, C{logger} (the namespace) and C{message},
and where they are known C{trace_id}, C{traceback} and C{worker}. A line of text is that of
C{twistd}, and behind it those of a traceback, each after a tab: no text of a client begins a line.

A log that cannot be written, because a pipe is full or the disk is, must not stop the daemon: what
waits is bounded; lines beyond that are dropped and counted.
"""

import errno
import os
import re
import select
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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
    globalLogBeginner,
)
from zope.interface import implementer

from storagegate.telemetry.redaction import Redactor

LEVELS = ("debug", "info", "warn", "error")
"""The levels of the log, rising."""

FLUSH_BYTES = 1 << 16
"""Written without waiting for the end of the reactor iteration: as much as a pipe takes at once."""

LIMIT_BYTES = 4 << 20
"""Bytes that may wait: a second of a busy daemon's calls, for a reader that pauses."""

RETRY_SECONDS = 0.05
"""Until a full output is tried again."""

LATER_SECONDS = 0.05
"""How long deferred lines are collected: each iteration of a busy reactor would write a few."""

TOGETHER = 64
"""Lines that are formatted together: what more of them are made of is not in the processor's cache
any more."""

FAILED_SECONDS = 1.0
"""Until an output that failed is tried again: full disks and lost readers do not pass sooner."""

PIECE_BYTES = 4096
"""C{PIPE_BUF}: a pipe takes so much whole or not at all, so the lines of processes stay apart."""

ROTATE_BYTES = 100_000_000
"""The size at which a log file is moved aside: editors and mail still take it."""

KEPT_FILES = 5
"""How many files that were moved aside are kept: half a gigabyte."""

MESSAGE_CHARACTERS = 1 << 14
"""A message is cut at this length: a longer one is a document within an error."""

TRACEBACK_CHARACTERS = 1 << 15
"""A traceback is cut in its middle at this length, which holds three hundred frames."""

_LINE_BREAK = re.compile(r"\r\n|[\n\r]")

_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")

# Needs no quotes in name=value.
_PLAIN = re.compile(r'[^\s="\\]+')


# ---- Text


class _Escapes(dict[int, str]):
    """A table for C{str.translate}: what ends a line, controls a terminal, or has no encoding."""

    def __missing__(self, code: int) -> str:
        isUnsafe = code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF
        if isUnsafe or code in (0x2028, 0x2029):
            return f"\\u{code:04x}"
        # C{translate} leaves the character as it is.
        raise LookupError(code)


_CONTROLS = _Escapes({8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"})

_IN_FIELD = _Escapes({**_CONTROLS, ord('"'): r"\"", ord("\\"): r"\\"})


def escapeField(text: str) -> str:
    """Escape what does not belong into one field of one line: control characters and quotes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return text.translate(_IN_FIELD)


def escapeMessage(text: str) -> str:
    """Escape control characters, colours too; quotes stay."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def escapeLine(text: str) -> str:
    """Escape control characters but those of colours; quotes stay."""
    if text.isprintable():
        return text
    parts = _COLOUR.split(text)
    # Every second part is a colour.
    parts[::2] = [part.translate(_CONTROLS) for part in parts[::2]]
    return "".join(parts)


# ---- Formats


_encode = json.Encoder().encode


def formatJSON(values: Mapping[str, Any]) -> bytes:
    """
    Write values as a JSON object in one line.

    Control characters are escaped as JSON has it; what has no encoding, such as bytes that were no
    UTF-8, becomes the text C{\\udc80}.
    """
    try:
        line = _encode(values)
    except UnicodeEncodeError:
        plain = {
            name: value.encode("utf-8", "backslashreplace").decode()
            if isinstance(value, str)
            else value
            for name, value in values.items()
        }
        line = _encode(plain)
    # Most lines are plain ASCII; both checks together take 0.1 microseconds.
    if line.isascii() and b"\x7f" not in line:
        return line
    return line.decode().translate(_CONTROLS).encode()


def formatText(values: Mapping[str, Any]) -> bytes:
    """Write values as C{name=value}, in quotes where a value could be taken for several."""
    parts = []
    for name, value in values.items():
        text = str(value)
        isPlain = text.isprintable() and _PLAIN.fullmatch(text)
        parts.append(f"{name}={text}" if isPlain else f'{name}="{escapeField(text)}"')
    return " ".join(parts).encode()


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {
    "json": formatJSON,
    "text": formatText,
}
"""How lines are written, by the word of the options."""


def formatTimestamp(when: float) -> str:
    """
    Write a time by RFC 3339, in UTC with milliseconds.

    @param when: Seconds since 1970.
    """
    milliseconds = int(when * 1000)
    return f"{_formatSecond(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _formatSecond(second: int) -> str:
    # Takes 1.5 microseconds, as much as all else of a line.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


# ---- Lines before they are written to an output


MakeLines = Callable[[], Sequence[bytes]]
"""Returns whole lines without their newlines. Raises nothing; is called in the reactor thread."""


class Output(Protocol):
    """The destination of lines."""

    def write(self, data: memoryview) -> int:
        """
        Write what fits without blocking.

        @return: The number of bytes written.
        @raise OSError: If it cannot be written to.
        """


class BufferedLogWriter:
    """
    Writes lines to an output: each line synchronously, until L{buffer} has lines wait for the end
    of the reactor iteration.

    Every method may run in any thread; none blocks but L{finish}.

    @ivar lowest: The lowest level that is logged, by its index in L{LEVELS}. Callers check it.
    @ivar dropped: Lines dropped because too many bytes waited.
    @ivar redact: Removes secrets from a text that a client has sent, see L{Redactor.redact}. Those
        that write lines of their own call it.
    @ivar onChange: Called with the error when the output fails, and with C{None} when it is well
        again; C{None} for nothing.
    """

    def __init__(self, output: Output, limit: int = LIMIT_BYTES) -> None:
        """
        @param limit: How many bytes may wait.
        """
        self.lowest = LEVELS.index("info")
        self.dropped = 0
        self.redact: Callable[[str], str] = Redactor().redact
        self.onChange: Callable[[OSError | None], None] | None = None
        self._hasFailed = False
        self._output = output
        self._limit = limit
        # A signal handler or a finaliser may log in the middle of a write of the same thread.
        self._lock = RLock()
        self._lines: deque[bytes] = deque()
        self._makers: list[MakeLines] = []
        self._deferred = 0
        self._rest = memoryview(b"")
        self._size = 0
        self._reactor: Any = None
        self._thread = 0
        self._isScheduled = self._isStuck = self._isWriting = False

    def buffer(self, reactor: Any) -> None:
        """Collect the lines of each reactor iteration from now on. Must run in its thread."""
        with self._lock:
            self._reactor = reactor
            self._thread = get_ident()
            if self._size or self._makers:
                self._schedule(0)

    def bufferWhileRunning(self, reactor: Any) -> None:
        """Collect the lines of each reactor iteration from its start until it has stopped."""
        reactor.callWhenRunning(self.buffer, reactor)
        reactor.addSystemEventTrigger("after", "shutdown", self.unbuffer)

    def unbuffer(self) -> None:
        """Write every line synchronously again: the reactor has stopped."""
        with self._lock:
            self._reactor = None
            self._isScheduled = False
            self.flush()

    def finish(self, seconds: float) -> None:
        """
        Write the last lines of a process. Blocks for a slow reader.

        @param seconds: The longest time that this blocks.
        """
        end = time.monotonic() + seconds
        self.unbuffer()
        while self._size and time.monotonic() < end:
            time.sleep(RETRY_SECONDS)
            self.flush()

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """
        Write one whole line.

        @param line: Without its newline.
        @param isUrgent: Whether it is written before this returns, if the output accepts it: what
            the process logs of itself may be its last line.
        """
        with self._lock:
            self._make()
            self._add([line])
            isFull = isUrgent or self._size >= FLUSH_BYTES
            if self._reactor is None or (isFull and not self._isStuck):
                self.flush()
            else:
                self._schedule(0)

    def writeLater(self, make: MakeLines, count: int = 1) -> None:
        """
        Write lines that are formatted together with others, and written L{LATER_SECONDS} later at
        most.

        Formatting many together is faster than each between other work. A later line comes behind
        them, and has them written with it.

        @param count: How many lines there will be.
        """
        with self._lock:
            self._makers.append(make)
            self._deferred += count
            if self._reactor is None:
                self.flush()
                return
            if self._deferred >= TOGETHER or self._isStuck:
                # It may stay stuck: what waits has to be counted.
                self._make()
            if self._size >= FLUSH_BYTES and not self._isStuck:
                self.flush()
            else:
                self._schedule(LATER_SECONDS)

    def flush(self) -> None:
        """Write the waiting lines as far as the output accepts them."""
        with self._lock:
            if self._isWriting:
                return
            self._isWriting = True
            try:
                retrySeconds = self._writeAll()
            finally:
                self._isWriting = False
            self._isStuck = retrySeconds is not None
            if retrySeconds is not None:
                self._schedule(retrySeconds)

    def _add(self, lines: Sequence[bytes]) -> None:
        """Add lines to those that wait, within the limit."""
        size = sum(map(len, lines)) + len(lines)
        if self._size + size <= self._limit:
            self._lines.extend(lines)
            self._size += size
        elif len(lines) == 1:
            self.dropped += 1
        else:
            for line in lines:
                self._add([line])

    def _make(self) -> None:
        """Make the lines that were deferred, if this is the reactor thread."""
        if not self._makers or (self._reactor is not None and get_ident() != self._thread):
            return
        # Formatting may defer more lines.
        while self._makers:
            self._deferred = 0
            makers, self._makers = self._makers, []
            for make in makers:
                self._add(make())

    def _writeAll(self) -> float | None:
        """Write; return in how many seconds the rest may be tried again, C{None} without one."""
        self._make()
        while self._rest or self._lines:
            if not self._rest:
                self._rest = memoryview(b"\n".join(self._lines) + b"\n")
                self._lines.clear()
            try:
                written = self._output.write(self._rest)
            except OSError as error:
                self._noteState(error)
                return FAILED_SECONDS
            if not written:
                return RETRY_SECONDS
            self._noteState(None)
            self._rest = self._rest[written:]
            self._size -= written
        return None

    def _noteState(self, error: OSError | None) -> None:
        if self._hasFailed != (error is not None):
            self._hasFailed = error is not None
            if self.onChange is not None:
                self.onChange(error)

    def _schedule(self, seconds: float) -> None:
        """Have the rest written later, unless that is scheduled."""
        if self._isScheduled or self._reactor is None:
            return
        self._isScheduled = True
        if get_ident() == self._thread:
            self._reactor.callLater(seconds, self._due)
        else:
            self._reactor.callFromThread(self._reactor.callLater, seconds, self._due)

    def _due(self) -> None:
        with self._lock:
            self._isScheduled = False
            self.flush()


# ---- Twisted's log


_DEBUG, _INFO = LEVELS.index("debug"), LEVELS.index("info")

_SEVERITIES = {level: min(at, 3) for at, level in enumerate(LogLevel.iterconstants())}


_PORT = re.compile(r"\(.* Port .* Closed\)|\S+ starting on \S+")
"""What a port of Twisted says when it opens and closes."""


def _severity(event: LogEvent) -> int:
    """
    Return the level of an event, by its index in L{LEVELS}.

    The information of Twisted itself is C{debug}: C{twistd} and ports report their start and end.
    """
    found = _SEVERITIES.get(event.get("log_level"), _INFO)
    if found != _INFO:
        return found
    if str(event.get("log_namespace")).startswith("twisted."):
        return _DEBUG
    text = event.get("message") or ("",)
    return _DEBUG if _PORT.fullmatch(str(text[0])) else found


@implementer(ILogObserver)
class LogObserver:
    """
    Writes the events of Twisted's log to a sink, without secrets.

    @ivar format: C{text} or C{json}; it may change at any time.
    """

    def __init__(
        self,
        sink: BufferedLogWriter,
        redactor: Redactor,
        format: str = "text",
        worker: int | None = None,
    ) -> None:
        """
        @param worker: The index of this process among those of the daemon.
        """
        self.format = format
        self._sink = sink
        self._redact = redactor.redact
        self._worker = worker

    def __call__(self, event: LogEvent) -> None:
        """Write an event; in any thread."""
        if _severity(event) < self._sink.lowest:
            return
        message = self._shown(formatEvent(event), MESSAGE_CHARACTERS)
        traceback = ""
        if "log_failure" in event:
            # Alone it does not fail, even if the exception has no text.
            alone = {"log_failure": event["log_failure"]}
            text = eventAsText(alone, includeTimestamp=False, includeSystem=False)
            traceback = self._shown(text.strip("\n"), TRACEBACK_CHARACTERS)
        if message or traceback:
            write = self._asJSON if self.format == "json" else self._asText
            self._sink.write(write(event, message, traceback), isUrgent=True)

    def _shown(self, text: str, limit: int) -> str:
        # A secret that is cut is not recognised: the first cut is far from the second.
        return _cut(self._redact(_cut(text, 4 * limit)), limit)

    def _asJSON(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        values = {
            "timestamp": formatTimestamp(event.get("log_time", 0)),
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
        return formatJSON(values)

    def _asText(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        system = event.get("log_system")
        if system is None:
            system = f"{event.get('log_namespace', '-')}#{'-' if level is None else level.name}"
        time = formatTime(event.get("log_time"))
        worker = "" if self._worker is None else f" worker={self._worker}"
        trace = f" trace_id={event['trace_id']}" if event.get("trace_id") else ""
        lines = [f"{time} [{system}]{worker} {message}{trace}"]
        lines += _LINE_BREAK.split(traceback) if traceback else []
        return "\n\t".join(map(escapeMessage, lines)).encode()


def _cut(text: str, limit: int) -> str:
    """Leave out the middle of a text that is too long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"


# ---- Outputs


class DescriptorOutput:
    """
    A pipe, a terminal, a socket such as systemd's, or a file, by its descriptor.

    Other processes may hold it as well, so its own flags are not changed.
    """

    def __init__(self, descriptor: int) -> None:
        """
        @param descriptor: Stays open; the caller closes it.
        """
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._mayBlock = self._isFile = False
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # Opened again, it has flags of its own.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError:
                # A terminal of another user, or no /proc.
                self._mayBlock = True
        else:
            self._isFile = True

    def write(self, data: memoryview) -> int:
        """Write what fits without blocking, see L{Output.write}."""
        if not self._isFile and len(data) > PIECE_BYTES:
            # The whole lines that fit into a piece; a longer line is cut.
            end = bytes(data[:PIECE_BYTES]).rfind(b"\n") + 1
            data = data[: end or PIECE_BYTES]
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if self._mayBlock and not select.select([], [self._descriptor], [], 0)[1]:
                return 0
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0


def hasLogBegun() -> bool:
    """Return whether the process logs to an observer of its own."""
    # No public name says so; until then this observer prints critical events.
    return getattr(globalLogBeginner, "_temporaryObserver", None) is None


def standardError(reactor: Any) -> BufferedLogWriter | None:
    """
    Make a writer to standard error for a script; C{None} if it has none.

    @param reactor: Lines are buffered while it runs.
    """
    try:
        output = DescriptorOutput(sys.stderr.fileno())
    except (OSError, AttributeError, ValueError):
        return None
    writer = BufferedLogWriter(output)
    writer.bufferWhileRunning(reactor)
    return writer


def logScript(reactor: Any) -> None:
    """
    Have a script log warnings and errors to standard error, unless it has begun a log itself when
    the reactor starts.

    Until a log begins, Twisted keeps the last 200 events, with the frames of failures and so the
    bodies of the requests that failed.
    """

    def begin() -> None:
        if hasLogBegun():
            return
        observers = []
        writer = standardError(reactor)
        if writer is not None:
            writer.lowest = LEVELS.index("warn")
            observers.append(LogObserver(writer, Redactor()))
        # Errors of the buffer have been printed already.
        globalLogBeginner.beginLoggingTo(observers, discardBuffer=True, redirectStandardIO=False)

    reactor.callWhenRunning(begin)


class FileOutput:
    """
    A file that lines are appended to, also by several processes.

    When it grows large, it is moved aside; when another program moves it, a new one is begun.

    @ivar path: Its name.
    @ivar descriptor: The open file, for processes to inherit.
    @ivar isRotationDue: Set it to have the file moved aside before the next line, as C{twistd}
        does on SIGUSR1.
    """

    def __init__(
        self,
        path: str,
        limit: float = ROTATE_BYTES,
        kept: int = KEPT_FILES,
        descriptor: int | None = None,
    ) -> None:
        """
        @param limit: The size in bytes from which the file is moved aside.
        @param kept: How many such files are kept: C{path.1} is the newest.
        @param descriptor: The file as another process has opened it, which alone moves it.
        @raise OSError: If it cannot be opened.
        """
        # twistd changes its directory.
        self.path = os.path.abspath(path)
        self._limit = limit
        self._kept = kept
        self._mayRotate = descriptor is None
        self.isRotationDue = False
        self.descriptor = self._open() if descriptor is None else descriptor

    def write(self, data: memoryview) -> int:
        """
        Write to the file that has the name now.

        @raise OSError: If the disk is full, or fails: then the file ends with a whole line, unless
            another process has written at the same time.
        """
        mine = os.fstat(self.descriptor)
        isLarge = mine.st_size >= self._limit
        if self._mayRotate and mine.st_size and (self.isRotationDue or isLarge):
            self.isRotationDue = False
            self._rotate()
        if self._reopen(mine):
            mine = os.fstat(self.descriptor)
        written = os.write(self.descriptor, data)
        if written < len(data):
            return self._cutLine(mine.st_size, bytes(data[:written]))
        return written

    def reopen(self) -> None:
        """Begin a new file, if the name is that of no file, or of another."""
        self._reopen(os.fstat(self.descriptor))

    def _cutLine(self, before: int, data: bytes) -> int:
        """
        Take a line that was not written whole away from the end of the file.

        @param before: The size of the file before.
        @param data: What was written.
        @return: How much of it stays.
        @raise OSError: If that is nothing.
        """
        whole = data.rfind(b"\n") + 1
        if os.fstat(self.descriptor).st_size != before + len(data):
            return len(data)
        os.ftruncate(self.descriptor, before + whole)
        if not whole:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # The log is for the daemon's own user and group.
        return os.open(self.path, flags, 0o640)

    def _reopen(self, mine: os.stat_result) -> bool:
        """Begin a new file if the name is that of no file, or of another; return whether it is."""
        try:
            if os.path.samestat(mine, os.stat(self.path)):
                return False
        except OSError:
            pass
        try:
            descriptor = self._open()
        except OSError:
            # The directory is not writable any more: the open file is better than none.
            return False
        # The number stays: workers that are started later inherit it.
        os.dup2(descriptor, self.descriptor, inheritable=False)
        os.close(descriptor)
        return True

    def _rotate(self) -> None:
        try:
            for number in range(self._kept, 0, -1):
                older = self.path if number == 1 else f"{self.path}.{number - 1}"
                if os.path.exists(older):
                    os.replace(older, f"{self.path}.{number}")
        except OSError:
            # The file grows: to write matters more than to rotate.
            return
