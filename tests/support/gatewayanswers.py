"""The outcome of a call, as clients of a gateway report it on every transport."""

from typing import Any

from attrs import frozen

SECONDS = 60
"""The timeout of clients, longer than a busy machine needs."""


@frozen
class Problem:
    """
    The error of a call.

    @ivar code: The code; over gRPC the status.
    @ivar violations: The paths that violate a schema.
    @ivar retryAfterMs: The delay before a retry, if given.
    """

    code: str
    message: str
    violations: tuple[str, ...] = ()
    retryAfterMs: int | None = None


@frozen
class Answer:
    """
    The answer to a call.

    @ivar values: The result, or the items of the stream.
    @ivar problem: The error; C{None} if the call succeeded.
    """

    values: list[Any]
    problem: Problem | None = None


def readProblem(code: str, message: str, details: Any) -> Problem:
    """Read an error with details in JSON."""
    violations = tuple(each["path"] for each in details) if isinstance(details, list) else ()
    after = details.get("retryAfterMs") if isinstance(details, dict) else None
    return Problem(code, message, violations, after)


def streams(kind: str) -> tuple[bool, bool]:
    """Return whether requests and responses of a kind are streams."""
    return kind in ("client", "bidirectional"), kind in ("server", "bidirectional")
