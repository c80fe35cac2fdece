"""Errors that know their answer."""

from typing import Any


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
        self, statusCode: int, message: str, code: str | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        if not 400 <= statusCode <= 599:
            raise ValueError(f"{statusCode} is not the status of an error")
        self.statusCode = self.status = statusCode
        self.message = message
        self.code = code
        self.__dict__.update(details)


class ResponseSent(RuntimeError):
    """The handler answers a request that has been answered already."""


def statusOf(error: object) -> int:
    """Give the status that an error asks for, 500 if it does not or cannot have it."""
    return _named(error) or 500


def namesStatus(error: object) -> bool:
    """
    Say whether an error asks for a status, so that its message is meant for the client.

    Errors of other libraries have a C{status} too, which may be no error of ours at all.
    """
    return _named(error) is not None


def _named(error: object) -> int | None:
    for name in ("statusCode", "status"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status <= 599:
            return status
    return None
