"""A user's service for the daemon: an echo, and calls that compute."""

import hashlib
from typing import Any

ROUNDS = 800
"""Hashes of one call: some 200 microseconds. So short ones keep the interpreter's lock."""

TEXT = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}


async def echo(request: Any, context: Any) -> Any:
    """Return the request."""
    return request


async def compute(request: Any, context: Any) -> Any:
    """Return the request after some computation."""
    digest = b""
    for _ in range(ROUNDS):
        digest = hashlib.sha256(digest).digest()
    return request


service = {
    "name": "Echo",
    "methods": {
        "echo": {"handler": echo, "input": TEXT, "output": TEXT},
        "compute": {"handler": compute, "input": TEXT, "output": TEXT},
    },
}
