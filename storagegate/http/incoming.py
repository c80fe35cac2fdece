"""The body of a request from the wire, for standard handlers."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec


class IncomingBody:
    """
    Reads the body of a framework request.

    Held whole it is bounded by the application; read piece by piece, only if the application says
    so. What a middleware has read already is given again, if not to the letter: text as UTF-8, and
    what it has parsed as JSON.
    """

    def __init__(self, req: Any) -> None:
        self._req = req

    async def read(self) -> bytes:
        """
        Give it whole.

        @raise HTTPError: 413 if it is too long, 400 if it was cut short.
        """
        content = self._parsed()
        if content is None:
            content = self._req.takeBody()
        if content is None:
            content = await self._req.read()
        return content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._parsed()
        if content is not None:
            yield content
            return
        async for piece in self._req:
            yield piece

    def _parsed(self) -> bytes | None:
        body = self._req.body
        if body is None or isinstance(body, bytes):
            return body
        return body.encode("utf-8") if isinstance(body, str) else msgspec.json.encode(body)
