"""The bodies of the Fetch standard: streams of bytes that are read once."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from storagegate.http.fetchclones import tee
from storagegate.http.fetchsource import ByteSource, WholeSource


class Body:
    """
    What a request and a response have in common.

    @ivar bodyUsed: Whether somebody has begun to read.
    """

    bodyUsed = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    @property
    def body(self) -> "BodyStream":
        """Give the body in pieces: C{async for chunk in message.body}."""
        return BodyStream(self)

    async def bytes(self) -> bytes:
        """
        Give the whole body.

        @raise TypeError: If it was read before.
        """
        return await self._use().read()

    # What the standard calls it that most programs know; Python has no other buffer to give.
    arrayBuffer = bytes

    async def text(self) -> str:
        """
        Give the whole body, read as UTF-8; what is none becomes U+FFFD.

        @raise TypeError: If it was read before.
        """
        return (await self.bytes()).decode("utf-8-sig", "replace")

    async def readJSON(self) -> Any:
        """
        Give what the body says in JSON.

        @raise TypeError: If it was read before.
        @raise ValueError: If it is no JSON.
        """
        return decodeJSON(await self.bytes())

    def cancel(self) -> None:
        """Want no more of the body: whoever sends it is told, as if this client had gone."""
        self.bodyUsed = True
        cancel = getattr(self._source, "cancel", None)
        if cancel is not None:
            cancel()

    def _use(self) -> ByteSource:
        """Begin to read."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        self.bodyUsed = True
        return self._source

    def _fork(self) -> ByteSource:
        """Let this body and another one have the same bytes."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        if isinstance(self._source, WholeSource):
            return self._source
        self._source, second = tee(self._source)
        return second


class BodyStream:
    """A body, as an asynchronous iterator of its pieces."""

    def __init__(self, message: Body) -> None:
        self._message = message
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> "BodyStream":
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return await anext(self._pieces)


def decodeJSON(content: bytes) -> Any:
    """
    Read JSON.

    @raise ValueError: If it is none, or nested deeper than anybody means.
    """
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
