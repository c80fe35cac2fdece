"""
A load of the bench's service by the stubs of grpc.aio.

    python client_grpcaio.py PORT METHOD CALLS SECONDS
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import grpc
import grpc.aio

# Beside this program.
from clientload import ClientLoad  # type: ignore[import-not-found]

protos, services = grpc.protos_and_services("echo.proto")
NOTE = protos.Note(text="hello, hello, hello!", copies=1000)


def calls(stub: Any) -> dict[str, Callable[[], Awaitable[int]]]:
    """Return the functions that make a call of each method."""

    async def once() -> int:
        await stub.Once(NOTE)
        return 1

    async def repeat() -> int:
        return len([None async for _ in stub.Repeat(NOTE)])

    async def chat() -> int:
        return len([None async for _ in stub.Chat(NOTE for _ in range(NOTE.copies))])

    return {"once": once, "repeat": repeat, "chat": chat}


async def gather(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at the same time."""
    await asyncio.gather(*coroutines)


async def main(port: str, method: str, inFlight: str, seconds: str) -> None:
    """Measure, and print the report."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        make = calls(services.EchoStub(channel))[method]
        await ClientLoad(make, gather).measure(int(inFlight), float(seconds))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
