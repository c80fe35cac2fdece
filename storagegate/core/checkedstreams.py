"""Streams of requests and results, each item held against its schema as it comes by."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from storagegate.core.errors import ServiceError
from storagegate.core.schemas import Schema


async def checkedRequests(
    requests: AsyncIterable[Any], check: Callable[[Any], Any]
) -> AsyncIterator[Any]:
    """Give the requests of a stream, each as the check gives it."""
    async for request in requests:
        yield check(request)


async def checkedResults(output: Schema | None, name: str, results: Any) -> AsyncIterator[Any]:
    """
    Give the responses of a handler, whatever kind of stream it made; each is checked.

    @param name: The method's, for errors.
    """
    async with ResultStream(results, name) as items:
        async for result in items:
            if output is not None:
                checkResult(output, name, result)
            yield result


class ResultStream:
    """
    The stream that a handler made, of whatever kind: to be entered, and walked through.

    It is closed when it is left, for what a handler holds is let go of when nobody reads on. An
    asynchronous stream is walked through as it is: nothing stands between it and its reader.
    """

    __slots__ = ("_items",)

    def __init__(self, results: Any, name: str) -> None:
        """
        @param name: The method's, for the error.
        @raise TypeError: If it is no stream. Neither a mapping nor a text is one.
        """
        if isinstance(results, AsyncIterable):
            self._items: AsyncIterable[Any] = results
        elif isinstance(results, Iterable) and not isinstance(results, Mapping | str | bytes):
            self._items = _each(results)
        else:
            raise TypeError(f"{name} gives a stream, not {type(results).__name__}")

    async def __aenter__(self) -> AsyncIterable[Any]:
        return self._items

    async def __aexit__(self, *error: object) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


async def _each(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def checkResult(output: Schema, name: str, result: Any) -> None:
    """
    Check a result.

    @param name: The method's, for the error.
    @raise ValueError: If it does not fit: that is the method's mistake, not its caller's.
    """
    try:
        output.check(result)
    except ServiceError as error:
        raise ValueError(f"the result of {name} does not fit: {error.details}") from None
