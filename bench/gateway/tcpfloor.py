"""
The floor of the gateway's TCP: frames are found and sent back as they are, on asyncio alone.

    python -m bench.gateway.tcpfloor PORT
"""

import asyncio
import sys
from typing import cast

HEAD = 6
"""Version, type, and the length of the payload in four bytes."""

BACKLOG = 1024


class FrameEcho(asyncio.Protocol):
    """Answers each frame with itself."""

    _received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what is written to."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        if self._received:
            data = self._received + data
        while len(data) >= HEAD:
            end = HEAD + int.from_bytes(data[2:HEAD], "big")
            if len(data) < end:
                break
            self._transport.write(data[:end])
            data = data[end:]
        self._received = data


async def serve(port: int) -> None:
    """Serve until the end."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FrameEcho, "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
