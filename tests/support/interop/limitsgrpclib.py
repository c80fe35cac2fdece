"""
Long messages and metadata, half-closed streams and GOAWAY with grpclib, as a program that prints a
line of JSON. Its arguments are a port, and the file of an authority for TLS.
"""

import asyncio
import json
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError

from tests.support.interop.cases import CALL_SECONDS, INITIAL_NAME
from tests.support.interop.grpclibclient import compileProto

_LONGEST = (4 << 20) - 100


async def _patient(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call until its connection does not end meanwhile."""
    while True:
        with suppress(StreamTerminatedError):
            return await attempt()


async def _main(messages: Any, stubs: Any, port: int, context: ssl.SSLContext | None) -> Any:
    found: dict[str, Any] = {}

    def parameters(number: int, ms: int) -> Any:
        each = messages.ResponseParameters(size=10, interval_us=ms * 1000)
        return messages.StreamingOutputCallRequest(response_parameters=[each] * number)

    async with Channel("localhost", port, ssl=context) as channel:
        stub = stubs.TestServiceStub(channel)
        payload = messages.Payload(body=bytes(_LONGEST))

        async def large() -> int:
            request = messages.SimpleRequest(response_size=_LONGEST, payload=payload)
            return len((await stub.UnaryCall(request, timeout=CALL_SECONDS)).payload.body)

        async def metadata() -> int:
            long = {INITIAL_NAME: "v" * 8192}
            async with stub.UnaryCall.open(metadata=long, timeout=CALL_SECONDS) as stream:
                await stream.send_message(messages.SimpleRequest(), end=True)
                await stream.recv_message()
                return len(stream.initial_metadata[INITIAL_NAME])

        async def halfClosed() -> int:
            async with stub.FullDuplexCall.open(timeout=CALL_SECONDS) as stream:
                await stream.send_message(parameters(5, 20), end=True)
                return len([each async for each in stream])

        for attempt in (large, metadata, halfClosed):
            found[attempt.__name__] = await _patient(attempt)

        async def watch() -> Any:
            try:
                async with stub.StreamingOutputCall.open(timeout=CALL_SECONDS) as stream:
                    await stream.send_message(parameters(40, 20), end=True)
                    return len([each async for each in stream])
            except StreamTerminatedError:
                return "terminated"

        watching = asyncio.ensure_future(watch())
        statuses: Counter[str] = Counter()
        for _ in range(300):
            try:
                await stub.UnaryCall(messages.SimpleRequest(response_size=10), timeout=CALL_SECONDS)
                statuses["0"] += 1
            except StreamTerminatedError:
                statuses["terminated"] += 1
        found["statuses"] = statuses
        found["through"] = await watching
    return found


if __name__ == "__main__":
    port, *authority = sys.argv[1:]
    tls = ssl.create_default_context(cafile=authority[0]) if authority else None
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as directory:
        modules = compileProto(directory)
        print(json.dumps(asyncio.run(_main(*modules, int(port), tls))))
