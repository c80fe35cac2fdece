"""The calls that the test client makes."""

from typing import Any

from attrs import frozen

from storagegate.http.fetchbody import decodeJSON
from storagegate.http.fetchconnection import FetchConnection
from storagegate.http.fetchheaders import Headers
from storagegate.http.fetchwire import ResponseHead

_MAX_BODY = 64 * 1024 * 1024
"""More than any test wants; a response that never ends would fill the memory."""


class StillWaiting(AssertionError):
    """
    The application has not answered yet.

    @ivar call: The call that is waiting.
    """

    def __init__(self, call: "Call") -> None:
        super().__init__(
            f"{call.name} has not been answered yet; use client.start(), and let happen what the "
            "handler waits for: client.flush(), client.advance(seconds)"
        )
        self.call = call


@frozen
class TestResponse:
    """
    A response that has come to its end.

    @ivar headers: By name, in any case: C{headers["etag"]}, C{headers.get("vary")}.
    """

    __test__ = False

    status: int
    headers: Headers
    body: bytes
    statusText: str = ""

    @property
    def text(self) -> str:
        """Give the body, read as UTF-8."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """
        Give what the body says in JSON.

        @raise ValueError: If it is none.
        """
        return decodeJSON(self.body)


class Call:
    """
    A request that may still be waiting for its response.

    @ivar name: Method and path.
    @ivar reading: Whether the client reads what comes. One that does not makes the application
        wait once 64 KiB are on their way.
    """

    def __init__(self, name: str, connection: FetchConnection, reading: bool) -> None:
        self.name = name
        self.reading = reading
        self._connection = connection
        self._body = bytearray()

    @property
    def head(self) -> ResponseHead | None:
        """Give status, phrase and headers, once they are there."""
        return self._connection.head

    @property
    def received(self) -> bytes:
        """Give what has come of the body."""
        self.collect()
        return bytes(self._body)

    @property
    def done(self) -> bool:
        """Say whether the response has come to its end, or been cut short."""
        self.collect()
        connection = self._connection
        return connection.error is not None or (connection.ended and not connection.held)

    @property
    def response(self) -> TestResponse:
        """
        Give the response.

        @raise StillWaiting: If it is not complete.
        @raise ResponseLost: If it was cut short.
        """
        if not self.done:
            raise StillWaiting(self)
        head = self._connection.head
        if self._connection.error is not None:
            raise self._connection.error
        assert head is not None
        return TestResponse(head.status, head.headers, bytes(self._body), head.phrase)

    def disconnect(self) -> None:
        """Let the client go away."""
        self._connection.disconnect()

    def collect(self) -> bool:
        """
        Read what is here, if the client reads.

        @return: Whether there was anything.
        """
        before = len(self._body)
        while self.reading and self._connection.held:
            self._body += self._connection.takeReady()
            if len(self._body) > _MAX_BODY:
                self.disconnect()
                raise AssertionError(f"the response to {self.name} does not end")
        return len(self._body) > before
