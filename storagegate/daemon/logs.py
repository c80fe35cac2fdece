"""
The log of a process of the daemon: its output, its format, and the secrets that it hides.

C{twistd} makes its own observer as it starts, unless the application has one. Therefore the daemon
sets the observer of its application. C{--logfile}, the terminal and C{twistd.log} keep their
meaning in C{twistd}. With C{--logger} the operator provides the log. With C{--syslog} the lines go
to syslog in its format, with secrets removed.
"""

import atexit
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twisted.logger import (
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    Logger,
    eventAsText,
    globalLogBeginner,
)
from twisted.python.components import Componentized
from zope.interface import implementer

from storagegate.daemon.config import Configuration
from storagegate.daemon.process import startError
from storagegate.telemetry.log import (
    LEVELS,
    BufferedLogWriter,
    DescriptorOutput,
    FileOutput,
    LogObserver,
    Output,
)
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry
from storagegate.telemetry.redaction import Redactor

DROPPED = "storagegate_log_lines_dropped_total"

_DEFAULT_FILE = "twistd.log"

_LAST_SECONDS = 1.0
"""Limit of the time that an exiting process waits for the reader of its last lines."""

_SECRET_KEYS = ("secret", "password", "token", "key")
"""Suffixes of the names of options whose values are secrets."""


class Logs:
    """
    The log of this process. It writes nothing before L{begin} or L{attach}.

    @ivar sink: The writer of the log; C{None} if another observer writes it.
    @ivar accessSink: The writer of the access log; C{None} to use Twisted's log.
    @ivar redactor: Hides the secrets.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.sink: BufferedLogWriter | None = None
        self.accessSink: BufferedLogWriter | None = None
        self.redactor = Redactor()
        self._writer: BufferedLogWriter | None = None
        self._file: FileOutput | None = None
        self._accessFile: FileOutput | None = None
        self._droppedLines = 0
        self._observer: LogObserver | None = None

    def begin(
        self, output: Output, configuration: Configuration, reactor: Any, worker: int | None = None
    ) -> LogObserver:
        """
        Make the observer of this process.

        @param output: The output of the lines; a L{FileOutput} is closed at the end.
        @param reactor: The reactor; lines are buffered while it runs.
        @param worker: The index of this worker process.
        """
        self._file = output if isinstance(output, FileOutput) else None
        writer = self.sink = self._writer = BufferedLogWriter(output)
        writer.redact = self.redactor.redact
        if self._accessFile is None:
            self.accessSink = writer
        self._observer = LogObserver(writer, self.redactor, worker=worker)
        self.configure(configuration)
        writer.bufferWhileRunning(reactor)
        atexit.register(self.end)
        return self._observer

    def attach(
        self,
        application: object,
        twistdOptions: Mapping[str, Any] | None,
        configuration: Configuration,
        reactor: Any,
    ) -> None:
        """
        Set the observer of an application of C{twistd}, unless it has one.

        @param twistdOptions: C{None} if C{twistd} does not run the daemon.
        @raise SystemExit: If the log cannot be opened; the text is one line.
        """
        self.configure(configuration)
        if configuration.accessLog is not None:
            try:
                self.beginAccess(FileOutput(configuration.accessLog, limit=math.inf), reactor)
            except OSError as error:
                raise startError(f"cannot open the access log: {error}", twistdOptions) from error
        if twistdOptions is None or not isinstance(application, Componentized):
            return
        if twistdOptions.get("logger") or application.getComponent(ILogObserver, None) is not None:
            return
        if twistdOptions.get("syslog"):
            observer: Any = _syslog(str(twistdOptions.get("prefix") or ""), self.redactor)
        else:
            try:
                output = _twistdOutput(twistdOptions)
            except OSError as error:
                raise startError(f"cannot open the log: {error}", twistdOptions) from error
            if output is None:
                return
            observer = self.begin(output, configuration, reactor)
        application.setComponent(ILogObserver, observer)

    def beginAccess(self, file: FileOutput, reactor: Any) -> None:
        """
        Write the access log to a file.

        @param file: A file that this process does not rotate, because it must not delete lines.
        @param reactor: The reactor; lines are buffered while it runs.
        """
        self._accessFile = file
        writer = self.accessSink = BufferedLogWriter(file)
        writer.redact = self.redactor.redact
        # A separate option sets the level of these lines.
        writer.lowest = 0
        writer.onChange = self._accessChanged
        writer.bufferWhileRunning(reactor)
        atexit.register(self.end)

    def _accessChanged(self, error: OSError | None) -> None:
        """Log that the access log cannot be written, or is writable again."""
        if self.accessSink is None or self._accessFile is None:
            return
        path, dropped = self._accessFile.path, self.accessSink.dropped
        if error is not None:
            reason = error.strerror or str(error)
            self._droppedLines = dropped
            self._log.error(
                "cannot write the access log {path}: {reason}", path=path, reason=reason
            )
            return
        count = dropped - self._droppedLines
        self._log.info(
            "the access log {path} is writable again, {count} lines were dropped",
            path=path,
            count=count,
        )

    def reopen(self) -> None:
        """Start a new access log, if the file was moved away."""
        if self._accessFile is not None:
            self._accessFile.reopen()

    def end(self) -> None:
        """Write the last lines and close the files; blocks for at most a second per file."""
        atexit.unregister(self.end)
        for writer in {self._writer, self.accessSink}:
            if writer is not None:
                writer.finish(_LAST_SECONDS)
        for each in (self._file, self._accessFile):
            if each is not None:
                each.close()
        self._writer = self._file = self._accessFile = self.sink = self.accessSink = None

    def handOver(self, inherit: Callable[[int], int]) -> dict[str, Any]:
        """
        Return the log files of the workers of this process, for L{takeOver}.

        @param inherit: Makes workers inherit a descriptor, and returns its number in the workers.
        @return: Descriptor and path of the files C{log} and C{access}; without C{log}, workers log
            to their standard output.
        """
        files = {"log": self._file, "access": self._accessFile}
        return {
            name: [inherit(file.descriptor), file.path]
            for name, file in files.items()
            if file is not None
        }

    def takeOver(
        self, handed: Mapping[str, Any], configuration: Configuration, reactor: Any, index: int
    ) -> None:
        """
        Set up the log of a worker.

        @param handed: The result of L{handOver} in the supervisor.
        @param index: The index of this worker.
        """
        if "access" in handed:
            descriptor, path = handed["access"]
            self.beginAccess(FileOutput(path, descriptor=descriptor), reactor)
        output: Output = DescriptorOutput(sys.stdout.fileno())
        if "log" in handed:
            descriptor, path = handed["log"]
            output = FileOutput(path, descriptor=descriptor)
        globalLogBeginner.beginLoggingTo([self.begin(output, configuration, reactor, index)])

    def relay(self, data: bytes) -> None:
        """Log complete lines of workers, if another observer writes the log."""
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            self._log.info("{line}", line=line)

    def configure(self, configuration: Configuration) -> None:
        """Apply the format and the level of a configuration, and hide its secrets."""
        self.redactor.hide(*_secretsOf(configuration))
        if self._writer is not None and self._observer is not None:
            self._writer.lowest = LEVELS.index(configuration.logLevel)
            self._observer.format = configuration.logFormat

    def countInto(self, meters: MetricsRegistry) -> None:
        """Include the number of dropped lines in the metrics."""
        meters.watch(self._families)

    def _families(self) -> Iterable[MetricFamily]:
        writers = {self._writer, self.accessSink}
        dropped = sum(writer.dropped for writer in writers if writer is not None)
        text = "Log lines dropped because the buffer was full."
        return [MetricFamily(DROPPED, text, "counter", (), (), "sum", [((), dropped)])]


def _secretsOf(configuration: Configuration) -> Iterator[str]:
    """Yield the secrets in a configuration."""
    if configuration.s3.root is not None:
        yield configuration.s3.root.secretKey
    if configuration.cluster is not None:
        yield from configuration.cluster.secrets()
    if configuration.vault is not None:
        yield from configuration.vault.secrets()
    if token := configuration.values.get("metricsToken"):
        yield token
    yield from _secretsIn(configuration.gateway)


def _secretsIn(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            # A TLS table contains file names, which errors have to show.
            yield from _secretsIn(value if name != "tls" else {})
        elif isinstance(value, str) and name.lower().endswith(_SECRET_KEYS):
            yield value


def _twistdOutput(options: Mapping[str, Any]) -> Output | None:
    """
    Open the output that C{twistd} would log to; C{None} if it has none.

    @raise OSError: If the output cannot be opened.
    """
    name = options.get("logfile")
    isForeground = bool(options.get("nodaemon") or options.get("debug"))
    if name == "-" and not isForeground:
        # C{twistd} reports this itself.
        return None
    if isForeground and name in (None, "", "-"):
        try:
            return DescriptorOutput(sys.stdout.fileno())
        except (OSError, AttributeError):
            return None
    output = FileOutput(name or _DEFAULT_FILE)
    # The default action of the signal would end the process. The file is rotated before the next
    # line, because the signal may arrive in the middle of a line.
    if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, None):
        signal.signal(signal.SIGUSR1, lambda number, frame: setattr(output, "isRotationDue", True))
    return output


_SYSLOG_KEYS = frozenset({"log_time", "log_level", "log_namespace", "log_system"})


def _syslog(prefix: str, redactor: Redactor) -> Any:
    """Make the observer that C{twistd --syslog} would make, with secrets removed."""
    from twisted.python.syslog import SyslogObserver

    emit: Any = SyslogObserver(prefix).emit
    wrapped = LegacyLogObserverWrapper(emit)

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        text = eventAsText(event, includeTimestamp=False, includeSystem=False)
        kept = {key: value for key, value in event.items() if key in _SYSLOG_KEYS}
        wrapped({**kept, "log_format": "{log_text}", "log_text": redactor.redact(text)})

    return observe
