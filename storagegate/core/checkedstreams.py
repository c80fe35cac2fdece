"""Requests and results, each held against its schema as it comes by."""

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
    if isinstance(results, AsyncIterable):
        try:
            async for result in results:
                if output is not None:
                    checkResult(output, name, result)
                yield result
        finally:
            close = getattr(results, "aclose", None)
            if close is not None:
                await close()
        return
    if not isinstance(results, Iterable) or isinstance(results, Mapping | str | bytes):
        raise TypeError(f"{name} gives a stream, not {type(results).__name__}")
    for result in results:
        if output is not None:
            checkResult(output, name, result)
        yield result


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
