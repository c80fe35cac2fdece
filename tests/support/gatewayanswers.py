"""What the clients of a gateway tell of a call, whatever the wire."""

from typing import Any

from attrs import frozen

SECONDS = 60
"""How long a client waits for anything: longer than a busy machine takes."""


@frozen
class Problem:
    """
    What went wrong with a call.

    @ivar code: The code; on gRPC the status.
    @ivar violations: The paths that do not fit a schema.
    @ivar retryAfterMs: When to come again, if that was said.
    """

    code: str
    message: str
    violations: tuple[str, ...] = ()
    retryAfterMs: int | None = None


@frozen
class Answer:
    """
    What a call was answered.

    @ivar values: The result, or the items of the stream.
    @ivar problem: C{None} if it ended well.
    """

    values: list[Any]
    problem: Problem | None = None


def readProblem(code: str, message: str, details: Any) -> Problem:
    """Read an error whose details are those of JSON."""
    violations = tuple(each["path"] for each in details) if isinstance(details, list) else ()
    after = details.get("retryAfterMs") if isinstance(details, dict) else None
    return Problem(code, message, violations, after)


def streams(kind: str) -> tuple[bool, bool]:
    """Tell whether requests and results of a kind are streams."""
    return kind in ("client", "bidirectional"), kind in ("server", "bidirectional")
