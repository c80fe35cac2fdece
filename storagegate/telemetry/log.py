"""
The log of a process: escaping, formats, the observer of Twisted's log, a writer that never blocks,
and its outputs.

A JSON line is an object with C{timestamp}, C{level}, C{logger} (the namespace) and C{message}, and,
where known, C{trace_id}, C{traceback} and C{worker}. A text line has the format of C{twistd}; the
lines of a traceback follow, each after a tab, so that text from a client never begins a line.

A full pipe or disk must not stop the daemon: the buffer is bounded, and further lines are dropped
and counted.
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
"""The log levels, in ascending order."""

FLUSH_BYTES = 1 << 16
"""Buffered bytes at which lines are written before the end of the reactor iteration: the capacity
of a pipe."""

LIMIT_BYTES = 4 << 20
"""Maximum number of buffered bytes: one second of a busy daemon's calls, for a reader that
pauses."""

RETRY_SECONDS = 0.05
"""Delay before a full output is retried."""

LATER_SECONDS = 0.05
"""Time during which deferred lines are collected, as each iteration of a busy reactor would write
only a few."""

TOGETHER = 64
"""Lines that are formatted together: the data of more lines does not stay in the processor's
cache."""

FAILED_SECONDS = 1.0
"""Delay before a failed output is retried: a full disk or a lost reader does not recover sooner."""

PIECE_BYTES = 4096
"""C{PIPE_BUF}: a pipe accepts this much atomically, so lines of several processes do not mix."""

ROTATE_BYTES = 100_000_000
"""The size at which a log file is rotated: editors and mail still handle it."""

KEPT_FILES = 5
"""The number of rotated files that are kept: half a gigabyte."""

MESSAGE_CHARACTERS = 1 << 14
"""Maximum length of a message: a longer one is a document inside an error."""

TRACEBACK_CHARACTERS = 1 << 15
"""Maximum length of a traceback, about three hundred frames; a longer one is cut in the middle."""

_LINE_BREAK = re.compile(r"\r\n|[\n\r]")

_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")

# A value that needs no quotes in name=value.
_PLAIN = re.compile(r'[^\s="\\]+')


# ---- Text


class _Escapes(dict[int, str]):
    """
    A C{str.translate} table of characters that end a line, control a terminal, or have no encoding.
    """

    def __missing__(self, code: int) -> str:
        isUnsafe = code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF
        if isUnsafe or code in (0x2028, 0x2029):
            return f"\\u{code:04x}"
        # translate() leaves the character unchanged.
        raise LookupError(code)


_CONTROLS = _Escapes({8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"})

_IN_FIELD = _Escapes({**_CONTROLS, ord('"'): r"\"", ord("\\"): r"\\"})


def escapeField(text: str) -> str:
    """Escape text for one field of a line: control characters, quotes and backslashes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return text.translate(_IN_FIELD)


def escapeMessage(text: str) -> str:
    """Escape control characters, including colour sequences, but not quotes."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def escapeLine(text: str) -> str:
    """Escape control characters except colour sequences, but not quotes."""
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
    Format values as a JSON object on one line.

    Control characters are escaped as in JSON. Characters without an encoding, such as undecodable
    bytes, become text such as C{\\udc80}.
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
    """Format values as C{name=value}, in quotes where a value would be ambiguous."""
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
"""Formatters by the name used in options."""


def formatTimestamp(when: float) -> str:
    """
    Format a time by RFC 3339, in UTC with milliseconds.

    @param when: Seconds since 1970.
    """
    milliseconds = int(when * 1000)
    return f"{_formatSecond(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _formatSecond(second: int) -> str:
    # Takes 1.5 microseconds, as much as the rest of a line.
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


# ---- Lines before they are written to an output


MakeLines = Callable[[], Sequence[bytes]]
"""Returns whole lines without newlines. Called in the reactor thread; must not raise."""


class Output(Protocol):
    """The destination of lines."""

    def write(self, data: memoryview) -> int:
        """
        Write as much as possible without blocking.

        @return: The number of bytes written.
        @raise OSError: If the output cannot be written.
        """


class BufferedLogWriter:
    """
    Writes lines to an output: synchronously at first, and after L{buffer} at the end of each
    reactor iteration.

    Every method may run in any thread; only L{finish} blocks.

    @ivar lowest: The lowest level that is logged, as an index into L{LEVELS}. Callers check it.
    @ivar dropped: Lines dropped because the buffer was full.
    @ivar redact: Removes secrets from text sent by a client; see L{Redactor.redact}. Callers that
        format their own lines call it.
    @ivar onChange: Called with the error when the output fails, and with C{None} when it recovers;
        may be C{None}.
    """

    def __init__(self, output: Output, limit: int = LIMIT_BYTES) -> None:
        """@param limit: Maximum number of buffered bytes."""
        self.lowest = LEVELS.index("info")
        self.dropped = 0
        self.redact: Callable[[str], str] = Redactor().redact
        self.onChange: Callable[[OSError | None], None] | None = None
        self._hasFailed = False
        self._output = output
        self._limit = limit
        # A signal handler or a finaliser may log during a write in the same thread.
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
        """
        Collect the lines of each reactor iteration from now on. Must run in the reactor thread.
        """
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
        """Write every line synchronously again, as the reactor has stopped."""
        with self._lock:
            self._reactor = None
            self._isScheduled = False
            self.flush()

    def finish(self, seconds: float) -> None:
        """
        Write the last lines of a process. Blocks if the reader is slow.

        @param seconds: The maximum time to block.
        """
        end = time.monotonic() + seconds
        self.unbuffer()
        while self._size and time.monotonic() < end:
            time.sleep(RETRY_SECONDS)
            self.flush()

    def write(self, line: bytes, isUrgent: bool = False) -> None:
        """
        Write one whole line.

        @param line: The line, without a newline.
        @param isUrgent: Whether to write it before returning, if the output accepts it: a line
            about the process itself may be its last.
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
        Write lines that are formatted together with others, at most L{LATER_SECONDS} later.

        Formatting many together is faster than formatting each between other work. A later L{write}
        follows them in the output, and writes them too.

        @param count: The number of lines.
        """
        with self._lock:
            self._makers.append(make)
            self._deferred += count
            if self._reactor is None:
                self.flush()
                return
            if self._deferred >= TOGETHER or self._isStuck:
                # The output may stay stuck, so the waiting bytes have to be counted.
                self._make()
            if self._size >= FLUSH_BYTES and not self._isStuck:
                self.flush()
            else:
                self._schedule(LATER_SECONDS)

    def flush(self) -> None:
        """Write as many waiting lines as the output accepts."""
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
        """Add lines to the buffer, within the limit."""
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
        """Format the deferred lines, if this is the reactor thread."""
        if not self._makers or (self._reactor is not None and get_ident() != self._thread):
            return
        # Formatting may defer more lines.
        while self._makers:
            self._deferred = 0
            makers, self._makers = self._makers, []
            for make in makers:
                self._add(make())

    def _writeAll(self) -> float | None:
        """
        Write the buffer; return the delay before the rest is retried, or C{None} if nothing
        remains.
        """
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
        """Schedule a write of the rest, unless one is scheduled."""
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


_PORT = re.compile(r"\(.* Port .* Closed\)|\S+(?: \(TLS\))? starting on \S+")
"""Messages that Twisted's ports log when they open and close."""

_PORT_CHARACTERS = 512
"""Maximum length of such a message, so that the pattern takes no quadratic time on others."""


def _severity(event: LogEvent) -> int:
    """
    Return the level of an event as an index into L{LEVELS}.

    Twisted's own C{info} events count as C{debug}: C{twistd} and ports report their start and end.
    """
    found = _SEVERITIES.get(event.get("log_level"), _INFO)
    if found != _INFO:
        return found
    if str(event.get("log_namespace")).startswith("twisted."):
        return _DEBUG
    text = str((event.get("message") or ("",))[0])
    return _DEBUG if len(text) <= _PORT_CHARACTERS and _PORT.fullmatch(text) else found


@implementer(ILogObserver)
class LogObserver:
    """
    Writes the events of Twisted's log to a sink, with secrets removed.

    @ivar format: C{text} or C{json}; it may change at any time.
    """

    def __init__(
        self,
        sink: BufferedLogWriter,
        redactor: Redactor,
        format: str = "text",
        worker: int | None = None,
    ) -> None:
        """@param worker: The index of this worker process."""
        self.format = format
        self._sink = sink
        self._redact = redactor.redact
        self._worker = worker

    def __call__(self, event: LogEvent) -> None:
        """Write an event. May run in any thread."""
        if _severity(event) < self._sink.lowest:
            return
        message = self._shown(formatEvent(event), MESSAGE_CHARACTERS)
        traceback = ""
        if "log_failure" in event:
            # A separate event formats without an error, even if the exception has no text.
            alone = {"log_failure": event["log_failure"]}
            text = eventAsText(alone, includeTimestamp=False, includeSystem=False)
            traceback = self._shown(text.strip("\n"), TRACEBACK_CHARACTERS)
        if message or traceback:
            write = self._asJSON if self.format == "json" else self._asText
            self._sink.write(write(event, message, traceback), isUrgent=True)

    def _shown(self, text: str, limit: int) -> str:
        # A truncated secret is not recognised, so the first cut is far from the second.
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
    """Cut the middle out of a text that is too long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters omitted ... {text[-half:]}"


# ---- Outputs


class DescriptorOutput:
    """
    A pipe, a terminal, a socket such as systemd's, or a file, by its descriptor.

    Other processes may share it, so its flags are not changed.
    """

    def __init__(self, descriptor: int) -> None:
        """@param descriptor: The descriptor; the caller closes it."""
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._mayBlock = self._isFile = False
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # A new open file description has its own flags.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
            except OSError:
                # A terminal of another user, or no /proc.
                self._mayBlock = True
        else:
            self._isFile = True

    def write(self, data: memoryview) -> int:
        """Write as much as possible without blocking; see L{Output.write}."""
        if not self._isFile and len(data) > PIECE_BYTES:
            # Write the whole lines that fit into a piece; a longer line is split.
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
    """Return whether the process has begun logging to its own observers."""
    # There is no public API for this; until then, this observer prints critical events.
    return getattr(globalLogBeginner, "_temporaryObserver", None) is None


def standardError(reactor: Any) -> BufferedLogWriter | None:
    """
    Make a writer to standard error for a script, or C{None} if it has no standard error.

    @param reactor: The reactor; lines are buffered while it runs.
    """
    try:
        output = DescriptorOutput(sys.stderr.fileno())
    except (OSError, AttributeError, ValueError):
        return None
    writer = BufferedLogWriter(output)
    writer.bufferWhileRunning(reactor)
    return writer


def logScript(reactor: Any, worker: int | None = None) -> None:
    """
    Log a script's warnings and errors to standard error, unless it has begun its own log when the
    reactor starts.

    Until a log begins, Twisted keeps the last 200 events, including the frames of failures and so
    the bodies of failed requests.

    @param worker: The index of this worker process, for each line.
    """

    def begin() -> None:
        if hasLogBegun():
            return
        observers = []
        writer = standardError(reactor)
        if writer is not None:
            writer.lowest = LEVELS.index("warn")
            observers.append(LogObserver(writer, Redactor(), worker=worker))
        # The errors in the buffer have already been printed.
        globalLogBeginner.beginLoggingTo(observers, discardBuffer=True, redirectStandardIO=False)

    reactor.callWhenRunning(begin)


class FileOutput:
    """
    A file that one or several processes append lines to.

    A large file is rotated; when another program moves the file, a new one is begun.

    @ivar path: The path of the file.
    @ivar descriptor: The open file, for processes to inherit.
    @ivar isRotationDue: Set it to rotate the file before the next line, as C{twistd} does on
        SIGUSR1.
    """

    def __init__(
        self,
        path: str,
        limit: float = ROTATE_BYTES,
        kept: int = KEPT_FILES,
        descriptor: int | None = None,
    ) -> None:
        """
        @param limit: The size in bytes at which the file is rotated.
        @param kept: The number of rotated files to keep; C{path.1} is the newest.
        @param descriptor: A descriptor opened by another process; only that process rotates the
            file.
        @raise OSError: If the file cannot be opened.
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
        Write to the file that now has the path.

        @raise OSError: If the disk is full or fails. The file then ends with a whole line, unless
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
        """Begin a new file if the path has no file, or another one."""
        self._reopen(os.fstat(self.descriptor))

    def _cutLine(self, before: int, data: bytes) -> int:
        """
        Remove a partially written line from the end of the file.

        @param before: The size of the file before the write.
        @param data: The bytes written.
        @return: The number of bytes that remain.
        @raise OSError: If nothing remains.
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
        """Begin a new file if the path has no file, or another one; return whether it did."""
        try:
            if os.path.samestat(mine, os.stat(self.path)):
                return False
        except OSError:
            pass
        try:
            descriptor = self._open()
        except OSError:
            # The directory is no longer writable: the open file is better than none.
            return False
        # The descriptor's number stays the same: workers started later inherit it.
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
            # The file grows: writing matters more than rotation.
            return
