"""A span collector as a separate process, for blocking tests."""

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("collectorprogram.py")

# Longer than the collector itself waits.
SECONDS = 150


class Collector:
    """
    Collects spans; see L{tests.support.collectorprogram}.

    @ivar port: The port that it listens on.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Python's server reports every disconnected client there.
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def url(self, mode: str = "ok", path: str = "/v1/traces") -> str:
        """Return the URL to send spans to."""
        return f"http://127.0.0.1:{self.port}/{mode}{path}"

    def spans(self, count: int) -> list[dict[str, Any]]:
        """Wait for this many spans, and return all."""
        return self._ask(f"/{count}")

    def requests(self, count: int) -> list[dict[str, Any]]:
        """Wait for this many requests, and return the heads of all."""
        return self._ask(f"/requests/{count}")

    def stop(self) -> None:
        """Kill the process."""
        with self._process as process:
            process.kill()

    def _ask(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = json.loads(response.read())
            assert response.status == 200, f"only {len(body)} came: {body}"
            return body
        finally:
            connection.close()
