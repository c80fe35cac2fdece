"""
The log of a process of the daemon: its output, its format, and the secrets that it hides.

C{twistd} makes an observer of its own as it starts, unless the application has one. So the daemon
gives its own to the application that it becomes part of. C{--logfile}, the terminal and
C{twistd.log} mean what they mean to C{twistd}; with C{--logger} the log is the operator's own, and
with C{--syslog} the system's: there, secrets are taken out, and the form is that of syslog.
"""

import atexit
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""How long the end of a process waits for the reader of its last lines."""

_SECRET_KEYS = ("secret", "password", "token", "key")
"""Suffixes of the names of options whose values are secrets."""


class Logs:
    """
    The log of this process. It writes nothing before L{begin} or L{attach}.

    @ivar sink: Where lines of calls go; C{None} if another observer writes the log.
    @ivar redactor: Hides the secrets.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.sink: BufferedLogWriter | None = None
        self.redactor = Redactor()
        self._writer: BufferedLogWriter | None = None
        self._file: FileOutput | None = None
        self._observer: LogObserver | None = None

    def begin(
        self, output: Output, configuration: Configuration, reactor: Any, worker: int | None = None
    ) -> LogObserver:
        """
        Make the observer of this process.

        @param output: Where lines go; a L{FileOutput} is closed at the end.
        @param reactor: Lines are buffered while it runs.
        @param worker: The index of this process among those of the daemon.
        """
        self._file = output if isinstance(output, FileOutput) else None
        writer = self.sink = self._writer = BufferedLogWriter(output)
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
        @raise SystemExit: If the log cannot be opened, with one line.
        """
        self.configure(configuration)
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

    def end(self) -> None:
        """Write the last lines and close the file; blocks for a second at most."""
        atexit.unregister(self.end)
        if self._writer is not None:
            self._writer.finish(_LAST_SECONDS)
        if self._file is not None:
            self._file.close()
        self._writer = self._file = self.sink = None

    def handOver(self, inherit: Callable[[int], int]) -> list[Any] | None:
        """
        Return where the workers of this process log to, for L{takeOver}.

        @param inherit: Has workers inherit a descriptor, and returns its number there.
        @return: C{None}: to their standard output.
        """
        return None if self._file is None else [inherit(self._file.descriptor), self._file.path]

    def takeOver(
        self, handed: Sequence[Any] | None, configuration: Configuration, reactor: Any, index: int
    ) -> None:
        """
        Begin the log of a worker.

        @param handed: What L{handOver} returned to its supervisor.
        @param index: The index of this worker.
        """
        if handed is None:
            output: Output = DescriptorOutput(sys.stdout.fileno())
        else:
            descriptor, path = handed
            output = FileOutput(path, descriptor=descriptor)
        globalLogBeginner.beginLoggingTo([self.begin(output, configuration, reactor, index)])

    def relay(self, data: bytes) -> None:
        """Log the finished lines of workers, if another observer writes the log."""
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            self._log.info("{line}", line=line)

    def configure(self, configuration: Configuration) -> None:
        """Apply the format and the level of a configuration, and hide its secrets."""
        self.redactor.hide(*_secretsOf(configuration))
        if self._writer is not None and self._observer is not None:
            self._writer.lowest = LEVELS.index(configuration.logLevel)
            self._observer.format = configuration.logFormat

    def countInto(self, meters: MetricsRegistry) -> None:
        """Have the metrics include the lines that were dropped."""
        meters.watch(self._families)

    def _families(self) -> Iterable[MetricFamily]:
        dropped = 0 if self._writer is None else self._writer.dropped
        text = "Lines of the log that found no room, for it could not be written."
        return [MetricFamily(DROPPED, text, "counter", (), (), "sum", [((), dropped)])]


def _secretsOf(configuration: Configuration) -> Iterator[str]:
    """Yield the secrets in a configuration."""
    if configuration.s3.root is not None:
        yield configuration.s3.root.secretKey
    yield from _secretsIn(configuration.gateway)


def _secretsIn(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            # A table of TLS has names of files, which errors have to show.
            yield from _secretsIn(value if name != "tls" else {})
        elif isinstance(value, str) and name.lower().endswith(_SECRET_KEYS):
            yield value


def _twistdOutput(options: Mapping[str, Any]) -> Output | None:
    """
    Open what C{twistd} would log to; C{None} if there is nothing of the kind.

    @raise OSError: If it cannot be opened.
    """
    name = options.get("logfile")
    isForeground = bool(options.get("nodaemon") or options.get("debug"))
    if name == "-" and not isForeground:
        # C{twistd} reports that itself.
        return None
    if isForeground and name in (None, "", "-"):
        try:
            return DescriptorOutput(sys.stdout.fileno())
        except (OSError, AttributeError):
            return None
    output = FileOutput(name or _DEFAULT_FILE)
    # The signal's default would end the process. The file is moved aside before the next line, for
    # the signal may have come in the middle of one.
    if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, None):
        signal.signal(signal.SIGUSR1, lambda number, frame: setattr(output, "isRotationDue", True))
    return output


_SYSLOG_KEYS = frozenset({"log_time", "log_level", "log_namespace", "log_system"})


def _syslog(prefix: str, redactor: Redactor) -> Any:
    """Make the observer that C{twistd --syslog} would make, without secrets."""
    from twisted.python.syslog import SyslogObserver

    emit: Any = SyslogObserver(prefix).emit
    wrapped = LegacyLogObserverWrapper(emit)

    @implementer(ILogObserver)
    def observe(event: LogEvent) -> None:
        text = eventAsText(event, includeTimestamp=False, includeSystem=False)
        kept = {key: value for key, value in event.items() if key in _SYSLOG_KEYS}
        wrapped({**kept, "log_format": "{log_text}", "log_text": redactor.redact(text)})

    return observe
