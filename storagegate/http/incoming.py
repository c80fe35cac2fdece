"""The body of a request from the wire, for standard handlers."""

from collections.abc import AsyncIterator
from typing import Any


class IncomingBody:
    """
    Reads the body of a framework request.

    Held whole it is bounded by the application; read piece by piece, only if the application says
    so. A body that a middleware has parsed is gone: what came of it is in C{req.body}, and a
    handler of a route table that wants to read bodies itself stands before such middleware.
    """

    def __init__(self, req: Any) -> None:
        self._req = req

    async def read(self) -> bytes:
        """
        Give it whole.

        @raise HTTPError: 413 if it is too long, 400 if it was cut short.
        """
        content: bytes | None = self._req.takeBody()
        if content is None:
            content = await self._req.read()
        return content

    def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: AsyncIterator[bytes] = aiter(self._req)
        return pieces
