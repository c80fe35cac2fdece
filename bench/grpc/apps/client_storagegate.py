"""
A load of the bench's service by storagegate's client, as dictionaries.

    python client_storagegate.py PORT ENGINE METHOD CALLS SECONDS
"""

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

# Beside this program.
from clientload import ClientLoad  # type: ignore[import-not-found]
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults

from storagegate import createGrpcClient, loadProto

COPIES = 1000
NOTE = {"text": "hello, hello, hello!", "copies": COPIES}


def calls(client: Any) -> dict[str, Callable[[], Awaitable[int]]]:
    """Return the functions that make a call of each method."""

    async def once() -> int:
        await client.once(NOTE)
        return 1

    async def repeat() -> int:
        count = 0
        async for _ in client.repeat(NOTE):
            count += 1
        return count

    async def chat() -> int:
        count = 0
        async for _ in client.chat(NOTE for _ in range(COPIES)):
            count += 1
        return count

    return {"once": once, "repeat": repeat, "chat": chat}


def gather(coroutines: Sequence[Coroutine[Any, Any, None]]) -> Deferred[Any]:
    """Run coroutines at the same time."""
    return gatherResults([Deferred.fromCoroutine(each) for each in coroutines])


async def measure(port: int, engine: Any, method: str, inFlight: int, seconds: float) -> None:
    """Measure, and print the report."""
    echo = loadProto(Path(__file__).with_name("echo.proto")).Echo
    client = createGrpcClient(f"127.0.0.1:{port}", "insecure", echo, options={"engine": engine})
    await ClientLoad(calls(client)[method], gather).measure(inFlight, seconds)
    await client.close()


def main(port: str, engine: str, method: str, inFlight: str, seconds: str) -> None:
    """Run as a program."""
    loop: Any = reactor

    def begin() -> None:
        done = Deferred.fromCoroutine(
            measure(int(port), engine, method, int(inFlight), float(seconds))
        )
        done.addErrback(lambda failure: failure.printTraceback())
        done.addCallback(lambda ignored: loop.stop())

    loop.callWhenRunning(begin)
    loop.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
