"""A text as a bare ASGI application, without a framework."""

from typing import Any

_HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"13")]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer each request with the text."""
    if scope["type"] != "http":
        raise RuntimeError(f"only HTTP is served, not {scope['type']}")
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"Hello, World!"})
