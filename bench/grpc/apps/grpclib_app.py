"""
The bench's service on grpclib.

    python grpclib_app.py PORT
"""

import asyncio
import sys
from typing import Any

import grpc
from grpclib.const import Cardinality, Handler
from grpclib.server import Server

# grpcio makes the messages only: they need no step that writes code.
Note = grpc.protos("echo.proto").Note


class Echo:
    """The service."""

    async def once(self, stream: Any) -> None:
        """Return the request."""
        await stream.send_message(await stream.recv_message())

    async def repeat(self, stream: Any) -> None:
        """Return the request as many times as it says."""
        note = await stream.recv_message()
        for _ in range(note.copies):
            await stream.send_message(note)

    async def chat(self, stream: Any) -> None:
        """Return each message."""
        async for note in stream:
            await stream.send_message(note)

    def __mapping__(self) -> dict[str, Handler]:
        kinds = (
            ("Once", self.once, Cardinality.UNARY_UNARY),
            ("Repeat", self.repeat, Cardinality.UNARY_STREAM),
            ("Chat", self.chat, Cardinality.STREAM_STREAM),
        )
        return {
            f"/bench.Echo/{name}": Handler(handler, kind, Note, Note)
            for name, handler, kind in kinds
        }


async def main(port: int) -> None:
    """Serve until the end."""
    server = Server([Echo()])
    await server.start("127.0.0.1", port)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
