"""
The bench's service on grpcio's server for asyncio.

    python grpcaio_app.py PORT
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

_protos, services = grpc.protos_and_services("echo.proto")


class Echo(services.EchoServicer):
    """The service."""

    async def Once(self, request: Any, context: Any) -> Any:
        """Return the request."""
        return request

    async def Repeat(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Return the request as many times as it says."""
        for _ in range(request.copies):
            yield request

    async def Chat(self, notes: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Return each message."""
        async for note in notes:
            yield note


async def main(port: int) -> None:
    """Serve until the end."""
    server = grpc.aio.server()
    services.add_EchoServicer_to_server(Echo(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
