"""Errors with a status, and the status of any error."""

from typing import Any

from storagegate.net.http.message import phraseOf


class HTTPError(Exception):
    """
    An error with the status and the message of its response.

    Any further keyword becomes an attribute: C{field}, C{limit}, C{body}, C{headers} (a mapping,
    sent with the response), ...

    @ivar statusCode: The status, 400 to 599.
    @ivar status: Alias of C{statusCode}, for code that reads this name.
    @ivar message: The text sent to the client.
    @ivar code: A machine-readable name, such as C{entity.too.large}.
    """

    def __init__(
        self, statusCode: int, message: str | None = None, code: str | None = None, **details: Any
    ) -> None:
        """
        @param message: The text sent to the client; by default the phrase of the status.
        @param details: Further attributes of the error.
        @raise ValueError: If the status is not an error status.
        """
        if not 400 <= statusCode <= 599:
            raise ValueError(f"{statusCode} is not the status of an error")
        if message is None:
            message = phraseOf(statusCode) or f"Error {statusCode}"
        super().__init__(message)
        self.statusCode = self.status = statusCode
        self.message = message
        self.code = code
        self.__dict__.update(details)


def bodyTooLarge(limit: int, length: int | None) -> HTTPError:
    """
    Make the error for a body that is too long.

    @param limit: The limit in bytes.
    @param length: The declared length, or C{None}.
    """
    return HTTPError(413, "The body is too large", "entity.too.large", limit=limit, length=length)


class ResponseSent(RuntimeError):
    """A handler sends a second response to one request."""


class MissingResponse(RuntimeError):
    """All handlers of a request have ended without a response."""


def statusOf(error: object) -> int | None:
    """
    Return the C{statusCode} or C{status} of any error, or C{None} if it is not 400 to 599.

    @param error: An exception, or any value passed to C{next}.
    """
    for name in ("statusCode", "status"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
