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
from typing import Any

from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError

from tests.support.interop.cases import CALL_SECONDS, INITIAL_NAME
from tests.support.interop.grpclibclient import compileProto

_LONGEST = (4 << 20) - 100


async def _count(stream: Any) -> Any:
    found = 0
    try:
        async for _ in stream:
            found += 1
    except StreamTerminatedError:
        return f"terminated after {found}"
    return found


async def _main(messages: Any, stubs: Any, port: int, context: ssl.SSLContext | None) -> Any:
    found: dict[str, Any] = {}

    def parameters(number: int, ms: int) -> Any:
        each = messages.ResponseParameters(size=10, interval_us=ms * 1000)
        return messages.StreamingOutputCallRequest(response_parameters=[each] * number)

    async with Channel("localhost", port, ssl=context) as channel:
        stub = stubs.TestServiceStub(channel)
        payload = messages.Payload(body=bytes(_LONGEST))
        large = await stub.UnaryCall(
            messages.SimpleRequest(response_size=_LONGEST, payload=payload), timeout=CALL_SECONDS
        )
        found["large"] = len(large.payload.body)
        long = {INITIAL_NAME: "v" * 8192}
        async with stub.UnaryCall.open(metadata=long, timeout=CALL_SECONDS) as stream:
            await stream.send_message(messages.SimpleRequest(), end=True)
            await stream.recv_message()
            found["metadata"] = len(stream.initial_metadata[INITIAL_NAME])
        async with stub.FullDuplexCall.open(timeout=CALL_SECONDS) as stream:
            await stream.send_message(parameters(5, 20), end=True)
            found["halfClosed"] = await _count(stream)

        async def watch() -> Any:
            try:
                async with stub.StreamingOutputCall.open(timeout=CALL_SECONDS) as stream:
                    await stream.send_message(parameters(40, 20), end=True)
                    return await _count(stream)
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
