"""Errors that know their answer."""

from typing import Any

from storagegate.net.http.message import phraseOf


class HTTPError(Exception):
    """
    An error that is answered with a status and a message of its own.

    Any further keyword becomes an attribute: C{field}, C{limit}, C{body}, C{headers} (a mapping,
    sent with the answer), ...

    @ivar statusCode: The status, 400 to 599.
    @ivar status: The same, as some know it.
    @ivar message: What the client is told.
    @ivar code: A name that programs can compare, such as C{entity.too.large}.
    """

    def __init__(
        self, statusCode: int, message: str | None = None, code: str | None = None, **details: Any
    ) -> None:
        """
        @param message: What the client is told; the usual words for the status if there is none.
        @raise ValueError: If this is not the status of an error.
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

    @param limit: How many bytes it may have.
    @param length: How many it says it has, C{None} if it does not say.
    """
    return HTTPError(413, "The body is too large", "entity.too.large", limit=limit, length=length)


class ResponseSent(RuntimeError):
    """The handler answers a request that has been answered already."""


def statusOf(error: object) -> int | None:
    """Give the status that an error asks for, C{None} if it does not or cannot have it."""
    for name in ("statusCode", "status"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
