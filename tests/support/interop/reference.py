"""
The service of the cases on grpcio's own server, to verify the clients.

This program prints its port and serves until standard input ends. With C{--bare} it has no service.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tests.support.interop.cases import INITIAL_NAME, PROTO, TRAILING_NAME

_MESSAGES, _SERVICES = grpc.protos_and_services("tests/support/interop/" + PROTO.name)


class ReferenceService(_SERVICES.TestServiceServicer):  # type: ignore[misc, name-defined]
    """The methods, with the names in grpcio's generated code."""

    async def EmptyCall(self, request: Any, context: Any) -> Any:
        """Answer with an empty message."""
        return request

    async def UnaryCall(self, request: Any, context: Any) -> Any:
        """Answer with the requested size."""
        await self._begin(request, context)
        if request.HasField("response_compressed") and not request.response_compressed:
            context.disable_next_message_compression()
        return _MESSAGES.SimpleResponse(payload=_payload(request.response_size))

    async def StreamingOutputCall(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Answer with the requested messages."""
        for wanted in request.response_parameters:
            await asyncio.sleep(wanted.interval_us / 1e6)
            if wanted.HasField("compressed") and not wanted.compressed:
                context.disable_next_message_compression()
            yield _MESSAGES.StreamingOutputCallResponse(payload=_payload(wanted.size))

    async def StreamingInputCall(self, requests: Any, context: Any) -> Any:
        """Add up the sizes of the messages."""
        total = 0
        async for request in requests:
            total += len(request.payload.body)
        return _MESSAGES.StreamingInputCallResponse(aggregated_payload_size=total)

    async def FullDuplexCall(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Answer each message."""
        first = True
        async for request in requests:
            if first:
                await self._begin(request, context)
                first = False
            async for response in self.StreamingOutputCall(request, context):
                yield response

    async def _begin(self, request: Any, context: Any) -> None:
        sent = dict(context.invocation_metadata())
        if INITIAL_NAME in sent:
            await context.send_initial_metadata([(INITIAL_NAME, sent[INITIAL_NAME])])
        if TRAILING_NAME in sent:
            context.set_trailing_metadata([(TRAILING_NAME, sent[TRAILING_NAME])])
        if request.HasField("response_status"):
            # grpcio also accepts unknown codes, so the status must be looked up.
            code = next(
                each for each in grpc.StatusCode if each.value[0] == request.response_status.code
            )
            await context.abort(code, request.response_status.message)


def _payload(size: int) -> Any:
    return _MESSAGES.Payload(body=bytes(size))


async def serve(bare: bool) -> None:
    """Serve until standard input ends."""
    # Unlike an algorithm, a level leaves messages uncompressed for a client that does not accept
    # compression.
    server = grpc.aio.server(options=[("grpc.default_compression_level", 1)])
    if not bare:
        _SERVICES.add_TestServiceServicer_to_server(ReferenceService(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve("--bare" in sys.argv))
