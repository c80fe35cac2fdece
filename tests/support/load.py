"""Clients that keep asking while something happens to whoever answers."""

import http.client
import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

SECONDS = 20.0
"""How long a client waits for anything: whoever is not answered then is not answered."""

T = TypeVar("T")


class Clients(Generic[T]):
    """
    Clients, each in a thread; which kind they are is said by C{converse}.

    @ivar answered: What they got.
    @ivar failures: What went wrong.
    """

    def __init__(self, port: int, clients: int) -> None:
        """Begin: whoever inherits this does so last."""
        self.answered: list[T] = []
        self.failures: list[str] = []
        self.port = port
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def waitFor(self, count: int) -> None:
        """Wait until there are so many answers and failures more. Blocking."""
        with self._news:
            wanted = self._count() + count
            self._news.wait_for(lambda: self._count() >= wanted, 30)

    def end(self) -> None:
        """Let all of them end. Blocking."""
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
        """Tell whether to begin nothing more."""
        return self._stop.is_set()

    def answer(self, answer: T) -> None:
        """Take note of an answer."""
        with self._news:
            self.answered.append(answer)
            self._news.notify_all()

    def fail(self, what: str) -> None:
        """Take note of what should not be."""
        with self._news:
            self.failures.append(what)
            self._news.notify_all()

    def converse(self) -> None:
        """Connect, and ask until the connection ends, or all is over."""
        raise NotImplementedError


class Load(Clients[tuple[int, bytes]]):
    """
    Clients that ask one request after the other, each on a connection that it keeps as long as the
    server lets it. Nothing is asked twice.

    What they got are pairs of a status and a body.
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
        self._request = (method, path, body, dict(headers))
        super().__init__(port, clients)

    def converse(self) -> None:
        """Ask until all is over."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            while not self.isOver:
                connection.request(*self._request)
                response = connection.getresponse()
                self.answer((response.status, response.read()))
        finally:
            connection.close()
