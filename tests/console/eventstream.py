"""A client of the event stream of the console."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead
from time import monotonic
from typing import Any, Self

_MOST_COMMENTS = 3


class EventStream:
    """
    A stream that is open.

    @ivar status: Of the response.
    @ivar comments: How many comments have been received.
    """

    def __init__(
        self, admin: tuple[str, int], query: str, headers: dict[str, str], receiveBytes: int = 0
    ) -> None:
        """
        @param query: With C{topics}.
        @param receiveBytes: The receive buffer of the socket; 0 for that of the system.
        """
        self.comments = 0
        self._connection = HTTPConnection(*admin, timeout=60)
        self._connection.connect()
        if receiveBytes:
            import socket

            sock: Any = self._connection.sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receiveBytes)
        self._connection.request("GET", f"/console/api/v1/events?{query}", None, headers)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = self._response.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def body(self) -> Any:
        """Return the document of an error."""
        return json.loads(self._response.read())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._response.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Give the events up to the end of the stream, as names and documents."""
        name = ""
        while True:
            try:
                line = self._response.readline()
            except (IncompleteRead, ConnectionError):
                return
            if not line:
                return
            if line.startswith(b":"):
                self.comments += 1
                # Of a quiet stream nothing else comes: the test ends by this.
                if self.comments > _MOST_COMMENTS:
                    return
            elif line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])

    def next(self, wanted: str, seconds: float = 20.0) -> Any:
        """
        Return the document of the next event of a name.

        @raise AssertionError: The stream ends before, or its comments alone come for that time.
        """
        end = monotonic() + seconds
        for name, document in self:
            if name == wanted:
                return document
            if monotonic() > end:
                break
        raise AssertionError(f"no event {wanted}")
