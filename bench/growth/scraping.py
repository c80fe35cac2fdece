"""Read a daemon's metrics once a second, as a server that collects them does."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRAPE_SECONDS = 1
"""Between two reads: a tenth or less of what people configure."""


class SocketConnection(http.client.HTTPConnection):
    """A connection of HTTP to a UNIX socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Scraper:
    """
    Reads metrics in a thread.

    @ivar reads: How often they were read.
    @ivar problem: What was wrong the last time; C{None} if nothing was.
    """

    def __init__(self, path: Path) -> None:
        """
        @param path: The socket of the admin listener.
        """
        self.reads = 0
        self.problem: str | None = None
        self._path = path
        self._isOver = threading.Event()
        self._thread = threading.Thread(target=self._work, name="scraper", daemon=True)

    def read(self) -> str:
        """
        Read them once.

        @raise OSError: If nobody answers; or C{HTTPException}.
        """
        connection = SocketConnection(self._path, timeout=5)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise ConnectionError(f"the metrics are answered with {answer.status}")
        return text

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._isOver.set()
        self._thread.join()

    def _work(self) -> None:
        """Read until it is over. Runs in the thread."""
        # The first in the middle of the first second: the shortest run has one.
        wait = SCRAPE_SECONDS / 2
        while not self._isOver.wait(wait):
            wait = SCRAPE_SECONDS
            try:
                self.read()
                self.reads += 1
            except (OSError, http.client.HTTPException) as error:
                self.problem = str(error) or type(error).__name__


@contextmanager
def scraping(path: Path | None) -> Iterator[Scraper | None]:
    """
    Have metrics read while the context lasts.

    @param path: The socket of the admin listener; C{None} for no reading at all.
    """
    if path is None:
        yield None
        return
    scraper = Scraper(path)
    scraper.start()
    try:
        yield scraper
    finally:
        scraper.stop()
