"""Clients that send requests continuously while the server is disturbed."""

import http.client
import select
import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

SECONDS = 60.0
"""The timeout of a client: later answers count as missing."""

T = TypeVar("T")


class Clients(Generic[T]):
    """
    Clients, each in a thread; C{converse} implements their kind.

    @ivar answered: The answers.
    @ivar failures: The failures.
    """

    def __init__(self, port: int, clients: int) -> None:
        """Start the threads; subclasses must call this last."""
        self.answered: list[T] = []
        self.failures: list[str] = []
        self.port = port
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def waitFor(self, count: int) -> None:
        """Wait for this many further answers and failures. Blocks."""
        with self._news:
            wanted = self._count() + count
            self._news.wait_for(lambda: self._count() >= wanted, 120)

    def end(self) -> None:
        """Stop all clients. Blocks."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _count(self) -> int:
        return len(self.answered) + len(self.failures)

    def _run(self) -> None:
        while not self.isOver:
            try:
                self.converse()
            except Exception as error:
                self.fail(repr(error))

    # For clients

    @property
    def isOver(self) -> bool:
        """Whether to stop sending."""
        return self._stop.is_set()

    def answer(self, answer: T) -> None:
        """Record an answer."""
        with self._news:
            self.answered.append(answer)
            self._news.notify_all()

    def fail(self, what: str) -> None:
        """Record a failure."""
        with self._news:
            self.failures.append(what)
            self._news.notify_all()

    def converse(self) -> None:
        """Connect, and send requests until the connection ends or the clients stop."""
        raise NotImplementedError


class Load(Clients[tuple[int, bytes]]):
    """
    Clients that send sequential requests, each on a connection that stays open as long as the
    server allows. Requests are never retried.

    Answers are pairs of a status and a body.
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
        """Start the clients."""
        self._request = (method, path, body, dict(headers))
        super().__init__(port, clients)

    def converse(self) -> None:
        """Send requests until the clients stop."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            while not self.isOver:
                # All clients with persistent connections check this: the thread may not have run
                # for long.
                if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
                    connection.close()
                connection.request(*self._request)
                response = connection.getresponse()
                self.answer((response.status, response.read()))
        finally:
            connection.close()
