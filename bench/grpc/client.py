"""
A client beside the load: it asks once and shows the answer, or holds streams open.

    python -m bench.grpc.client ask PORT PATH < REQUESTS > ANSWERS
    python -m bench.grpc.client hold PORT PATH STREAMS

Messages stand there as gRPC frames them. C{hold} says C{held} when each stream was answered once,
has each of them answered again every second, and ends them when its standard input is closed.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio

ANSWER_SECONDS = 30
"""Longer than the slowest server takes under load."""

_STREAMS_A_CONNECTION = 50
"""A server may allow a connection no more than a hundred."""

_PREFIX = 5


def unframe(frames: bytes) -> Iterator[bytes]:
    """Return the messages of a stream."""
    while frames:
        end = _PREFIX + int.from_bytes(frames[1:_PREFIX], "big")
        yield frames[_PREFIX:end]
        frames = frames[end:]


def frame(message: bytes) -> bytes:
    """Put a message's length before it."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def ask(address: str, path: str, requests: bytes) -> bytes:
    """
    Make a call of any kind.

    @raise grpc.RpcError: If it ends badly.
    """
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(path)(unframe(requests), timeout=ANSWER_SECONDS)
        return b"".join(map(frame, call))


async def _exchange(call: Any) -> None:
    """Have a message answered: an empty one, which is one of any kind."""
    await call.write(b"")
    if await call.read() != b"":
        raise RuntimeError("a stream that is held open was not answered")


async def _finish(call: Any) -> None:
    """
    End a stream.

    @raise grpc.RpcError: If it ends badly.
    """
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:
        pass
    if await call.code() != grpc.StatusCode.OK:
        raise RuntimeError(f"a stream that was held open ended with {await call.code()}")


async def hold(address: str, path: str, streams: int) -> None:
    """Hold streams open until the standard input is closed."""
    calls: list[Any] = []
    channels = []
    for number in range(streams):
        if number % _STREAMS_A_CONNECTION == 0:
            # Channels that share their connections would have one among them.
            own = (("grpc.use_local_subchannel_pool", 1),)
            channels.append(grpc.aio.insecure_channel(address, options=own))
        calls.append(channels[-1].stream_stream(path)())

    async def withEach(step: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.gather(*map(step, calls))

    await withEach(_exchange)
    print("held", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not (await asyncio.wait([ended], timeout=1))[0]:
        await withEach(_exchange)
    await withEach(_finish)
    for channel in channels:
        await channel.close()


def main(arguments: Sequence[str]) -> None:
    """Run as a program."""
    command, port, path, *rest = arguments
    address = f"127.0.0.1:{port}"
    if command == "ask":
        sys.stdout.buffer.write(ask(address, path, sys.stdin.buffer.read()))
    else:
        asyncio.run(hold(address, path, int(rest[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
