"""Where the bytes of standard bodies come from."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Protocol, TypeAlias

# What a body may be made of.
BodyInit: TypeAlias = "bytes | bytearray | memoryview | str | AsyncIterable[bytes] | None"


class ByteSource(Protocol):
    """Where a body's bytes come from."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """Give all of them."""
        ...


class WholeSource:
    """
    Bytes that are all here.

    @ivar content: They.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self) -> bytes:
        """Give them."""
        return self.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.content:
            yield self.content


class StreamSource:
    """The bytes of an asynchronous iterator."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks

    async def read(self) -> bytes:
        """Give them all."""
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._chunks)
        try:
            async for chunk in chunks:
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise TypeError(f"a body is made of bytes, not of {type(chunk).__name__}")
                yield bytes(chunk)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()


def makeSource(init: Any) -> tuple[ByteSource, str | None]:
    """
    Find out what a body is made of.

    @return: Where its bytes come from, and the content type that goes without saying.
    @raise TypeError: If it is nothing that a body can be made of.
    """
    if init is None:
        return WholeSource(b""), None
    if isinstance(init, str):
        return WholeSource(init.encode("utf-8")), "text/plain;charset=UTF-8"
    if isinstance(init, bytes | bytearray | memoryview):
        return WholeSource(bytes(init)), None
    if hasattr(init, "__aiter__"):
        return StreamSource(init), None
    raise TypeError(
        "a body is bytes, str, an asynchronous iterator of bytes or None, not "
        f"{type(init).__name__}; for JSON use json.dumps or Response.json"
    )
