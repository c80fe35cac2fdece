"""
An asyncio program that serves a gateway, and calls it over each transport by the client.

It prints a line for each transport.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from storagegate import ServiceError, createGatewayClient, createProtocolGateway


async def double(request: Any, context: Any) -> Any:
    """Double a number."""
    await asyncio.sleep(0)
    return {"n": 2 * request["n"]}


async def count(request: Any, context: Any) -> AsyncIterator[Any]:
    """Count."""
    for n in range(3):
        await asyncio.sleep(0.001)
        yield {"n": n}


async def hang(requests: AsyncIterator[Any], context: Any) -> Any:
    """Read the requests, which never end."""
    return {"n": sum([each["n"] async for each in requests])}


async def endless() -> AsyncIterator[Any]:
    """Give a request, and no end."""
    yield {"n": 1}
    await asyncio.sleep(1000)


async def main() -> None:
    """Serve, and call."""
    methods = {"double": double, "count": count, "hang": {"handler": hang, "streaming": "client"}}
    options: dict[str, Any] = {"port": 0, "tcp": {"port": 0}, "udp": {"port": 0}}
    gateway = createProtocolGateway(enableGRPC=False, **options)
    gateway.addService({"name": "Numbers", "methods": methods})
    ports = await gateway.listen()
    for scheme, wire in (("http", "http"), ("ws", "http"), ("tcp", "tcp"), ("udp", "udp")):
        url = f"{scheme}://127.0.0.1:{ports[wire].getHost().port}"
        async with createGatewayClient(url) as client:

            async def ask(n: int, client: Any = client) -> int:
                found: int = (await client.call("Numbers", "double", {"n": n}))["n"]
                return found

            doubled = await asyncio.gather(*map(ask, range(3)))
            counted = [each["n"] async for each in client.call("Numbers", "count")]
            try:
                await client.call("Numbers", "hang", requests=endless(), deadlineMs=100)
            except ServiceError as error:
                print(scheme, doubled, counted, error.code, flush=True)
    await gateway.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
