"""Clients that keep asking while something happens to whoever answers."""

import http.client
import select
import threading
from collections.abc import Mapping


class Load:
    """
    Clients that ask one request after the other, each on a connection that it keeps as long as the
    server lets it. Nothing is asked twice.

    @ivar answers: What they got: pairs of a status and a body.
    @ivar failures: What went wrong.
    """

    def __init__(
        self,
        port: int,
        path: str = "/",
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
        clients: int = 4,
    ) -> None:
        """Begin."""
        self.answers: list[tuple[int, bytes]] = []
        self.failures: list[Exception] = []
        self._port = port
        self._request = (method, path, body, dict(headers))
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def waitFor(self, count: int) -> None:
        """Wait until there are so many answers and failures more. Blocking."""
        with self._news:
            wanted = self._count() + count
            self._news.wait_for(lambda: self._count() >= wanted, 120)

    def end(self) -> None:
        """Let all of them end. Blocking."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _count(self) -> int:
        return len(self.answers) + len(self.failures)

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop.is_set():
            # As every client that keeps connections looks: this one may have had no turn for long.
            if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
                connection.close()
            try:
                connection.request(*self._request)
                response = connection.getresponse()
                self.answers.append((response.status, response.read()))
            except Exception as error:
                self.failures.append(error)
                connection.close()
            with self._news:
                self._news.notify_all()
        connection.close()
