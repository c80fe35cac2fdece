"""The process that exports, as the thread that feeds it sees it."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from attrs import asdict

from storagegate.telemetry.options import Collector
from storagegate.telemetry.pipes import Pipe, PipeTimeout

START_SECONDS = 30
"""How long the process may take to import what it needs, on a machine that has much to do."""

SPARE_SECONDS = 5
"""What it may take beyond the time that the collector has: then it is stuck, and killed."""

RESTART_SECONDS = 10
"""Between two starts: a process that ends at once must not be started all the time."""


class ChildExporter:
    """
    Has spans exported by a process of its own, and replaces that if it ends.

    Made and used in a thread; only L{abort} may be called in another.
    """

    def __init__(self, collector: Collector) -> None:
        """
        @raise RuntimeError: If the process cannot export.
        """
        self._collector = collector
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._started = float("-inf")
        self._isAborted = False
        self._start()

    def export(self, records: Sequence[Any]) -> str | None:
        """Send records; give why they are lost."""
        try:
            pipe = self._pipe or self._start()
            pipe.write(records)
            answer = pipe.read(self._collector.timeoutSeconds + SPARE_SECONDS)
            return None if answer is None else str(answer)
        except PipeTimeout:
            self._end(isKilled=True)
            return "the exporting process was stuck"
        except (OSError, EOFError):
            self._end(isKilled=True)
            return "the exporting process ended"
        except RuntimeError as error:
            return str(error)

    def abort(self) -> None:
        """Give up what is under way. May be called in any thread."""
        self._isAborted = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Let the process end."""
        self._end(isKilled=False)

    def _start(self) -> Pipe:
        """
        Start the process and wait until it can export.

        @raise RuntimeError: If it cannot, or was started just now.
        """
        now = time.monotonic()
        if self._isAborted or now - self._started < RESTART_SECONDS:
            raise RuntimeError("the exporting process ended")
        self._started = now
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "storagegate.telemetry.exporting"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        pipe = self._pipe = Pipe(process.stdout.fileno(), process.stdin.fileno())
        try:
            pipe.write(asdict(self._collector))
            problem = pipe.read(START_SECONDS)
        except (OSError, EOFError, PipeTimeout):
            problem = "the exporting process did not start"
        if problem is not None:
            self._end(isKilled=True)
            raise RuntimeError(str(problem))
        return pipe

    def _end(self, isKilled: bool) -> None:
        process, self._process, self._pipe = self._process, None, None
        if process is None:
            return
        if isKilled:
            process.kill()
        with process:
            # Its input ends, and so does it; what it is sending it has had time for.
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment() -> dict[str, str]:
    """Give the environment in which the process finds this package."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [package, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
