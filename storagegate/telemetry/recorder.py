"""
The way of spans from the reactor's thread to a collector.

Records wait in a queue of bounded length. A thread takes them out in batches and exports them; it
begins with the first record. Whatever the collector does, the reactor's thread appends to the
queue, or counts what found no room in it.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from storagegate.core.meters import Family, Meters

FLUSH_SECONDS = 2
"""What the end of the process waits for the collector: a part of the ten seconds that a container
is given after it was told to stop."""

COMPLAINT_SECONDS = 60
"""Between two lines of the log that say that spans are lost."""

_log = Logger()


class Exporter(Protocol):
    """Who sends spans; it lives in the thread that made it."""

    def export(self, records: Sequence[Any]) -> str | None:
        """Send them; blocking. Gives why they are lost, C{None} if they are not."""

    def close(self) -> None:
        """Let go of what it has; blocking."""

    def abort(self) -> None:
        """Have L{export} return soon. Called in another thread."""


def _startThread(work: Callable[[], None]) -> None:
    # It must not keep a process that has ended: what it waits for may never come.
    threading.Thread(target=work, name="tracing", daemon=True).start()


class Recorder:
    """
    Keeps records and has them exported.

    The counts are of whole spans; each is written by one thread only.

    @ivar dropped: Those that found no room.
    @ivar exported: Those that the collector has taken.
    @ivar failed: Those that it has not.
    """

    def __init__(
        self,
        open: Callable[[], Exporter],
        reactor: Any,
        *,
        meters: Meters | None = None,
        queueSize: int = 2048,
        batchSize: int = 512,
        intervalSeconds: float = 5.0,
        startThread: Callable[[Callable[[], None]], None] = _startThread,
    ) -> None:
        """
        @param open: Makes the exporter, in the thread.
        @param reactor: Gives the time, and takes calls from the thread.
        @param intervalSeconds: How long a record waits for others.
        """
        self.dropped = self.exported = self.failed = 0
        self._open = open
        self._reactor = reactor
        self._records: deque[Any] = deque()
        self._queueSize = queueSize
        self._batchSize = min(batchSize, queueSize)
        self._intervalSeconds = intervalSeconds
        self._startThread = startThread
        self._hasThread = self._isStopping = self._isGivenUp = False
        self._exporter: Exporter | None = None
        self._wake = threading.Event()
        self._ended: Deferred[None] = Deferred()
        self._lastComplaint = float("-inf")
        if meters is not None:
            meters.watch(self._families)

    def put(self, record: Any) -> None:
        """Keep a record, if there is room."""
        records = self._records
        if len(records) >= self._queueSize or self._isStopping:
            self.dropped += 1
            if not self._isStopping:
                self._complain("the collector does not take them fast enough")
            return
        records.append(record)
        if len(records) == self._batchSize:
            self._wake.set()
        if not self._hasThread:
            self._hasThread = True
            self._startThread(self._work)

    def stop(self) -> Deferred[None]:
        """
        Send what waits, for L{FLUSH_SECONDS} at most.

        @return: Fires when all is sent or given up.
        """
        if self._isStopping or not self._hasThread:
            self._isStopping = True
            return succeed(None)
        self._isStopping = True
        self._wake.set()
        timer = self._reactor.callLater(FLUSH_SECONDS, self._giveUp)

        def ended(result: None) -> None:
            if timer.active():
                timer.cancel()

        return self._ended.addCallback(ended)

    def _giveUp(self) -> None:
        self._isGivenUp = True
        self.dropped += len(self._records)
        self._records.clear()
        if self._exporter is not None:
            self._exporter.abort()
        self._finish()

    def _finish(self) -> None:
        if not self._ended.called:
            self._ended.callback(None)

    # In the thread.

    def _work(self) -> None:
        """Export until it is told to stop. Runs in the thread."""
        try:
            exporter = self._exporter = self._open()
        except Exception as error:
            self._tell(self._refuse, f"tracing does not work: {error}")
            return
        while True:
            self._wake.wait(self._intervalSeconds)
            self._wake.clear()
            isLast = self._isStopping
            while self._records and not self._isGivenUp:
                self._exportBatch(exporter)
            if isLast:
                break
        exporter.close()
        if not self._isGivenUp:
            self._tell(self._finish)

    def _exportBatch(self, exporter: Exporter) -> None:
        records = self._records
        batch: list[Any] = []
        try:
            while len(batch) < self._batchSize:
                batch.append(records.popleft())
        except IndexError:
            if not batch:
                # They were given up just now.
                return
        try:
            problem = exporter.export(batch)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            self.exported += len(batch)
        else:
            self.failed += len(batch)
            if not self._isGivenUp:
                self._tell(self._complain, problem)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        self._reactor.callFromThread(function, *arguments)

    # In the reactor's thread.

    def _refuse(self, problem: str) -> None:
        """Drop everything, now and later: the exporter cannot be made."""
        _log.error("{problem}", problem=_line(problem))
        self._isStopping = True
        self.dropped += len(self._records)
        self._records.clear()
        self._finish()

    def _complain(self, problem: str) -> None:
        now = self._reactor.seconds()
        if now - self._lastComplaint < COMPLAINT_SECONDS:
            return
        self._lastComplaint = now
        _log.warn(
            "spans are lost: {problem}; exported={exported} failed={failed} dropped={dropped}",
            problem=_line(problem),
            exported=self.exported,
            failed=self.failed,
            dropped=self.dropped,
        )

    def _families(self) -> list[Family]:
        outcomes = {"exported": self.exported, "dropped": self.dropped, "failed": self.failed}
        return [
            Family(
                "storagegate_spans_total",
                "Spans by what became of them.",
                "counter",
                ("outcome",),
                (),
                "sum",
                [((outcome,), value) for outcome, value in outcomes.items()],
            )
        ]


def _line(text: str) -> str:
    """Give text of anybody's as a part of one line."""
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= 300 else f"{shown[:300]}..."
