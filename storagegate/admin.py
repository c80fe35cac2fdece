"""
The admin listener's answers: whether the process lives, and whether it is ready.

C{GET /healthz} is 200 as long as the reactor turns. C{GET /readyz} is 503 while the daemon stops
and while the store takes no writes, and names every part::

    {"status": "unavailable", "error": "...",
     "parts": {"catalog": "ok", "blobs": "...", "s3": "listening"}}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from attrs import field, frozen

Answer = tuple[int, Sequence[tuple[bytes, bytes]], bytes]

_JSON = (b"content-type", b"application/json")
_NO_STORE = (b"cache-control", b"no-store")


@frozen
class Readiness:
    """
    How the daemon is.

    @ivar status: C{"ok"}, C{"unavailable"} or C{"draining"}.
    @ivar error: Why it is not ready; L{None} where it is.
    @ivar parts: Each part and what is wrong with it; L{None} where nothing is.
    @ivar listeners: The same of each listener.
    @ivar warnings: What an operator should look at while requests are served; L{None} for nothing.
    """

    status: str = "ok"
    error: str | None = None
    parts: Mapping[str, str | None] = field(factory=dict)
    warnings: Mapping[str, str | None] = field(factory=dict)
    listeners: Mapping[str, str | None] = field(factory=dict)


def answer(method: bytes, path: bytes, readiness: Callable[[], Readiness]) -> Answer:
    """Make the answer to a request of the admin listener."""
    if method not in (b"GET", b"HEAD"):
        return _json(404, {"error": "not found"})
    if path == b"/healthz":
        return _json(200, {"status": "ok"})
    if path == b"/readyz":
        return _readyz(readiness())
    return _json(404, {"error": "not found"})


def describeError(request: object, error: BaseException) -> Answer:
    """Make the answer where making one failed."""
    return _json(500, {"error": "internal error"})


def _readyz(readiness: Readiness) -> Answer:
    document: dict[str, Any] = {"status": readiness.status}
    if readiness.error is not None:
        document["error"] = readiness.error
    document["parts"] = {name: wrong or "ok" for name, wrong in readiness.parts.items()}
    document["parts"].update(
        {name: wrong or "listening" for name, wrong in readiness.listeners.items()}
    )
    warnings = {name: text for name, text in readiness.warnings.items() if text is not None}
    if warnings:
        document["warnings"] = warnings
    return _json(200 if readiness.status == "ok" else 503, document)


def _json(code: int, document: Mapping[str, Any]) -> Answer:
    return code, (_JSON, _NO_STORE), msgspec.json.encode(document)
