"""
The bench's service on storagegate: its handlers get and give dictionaries in the reactor thread.

    python storagegate_app.py PORT [ENGINE]
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from storagegate import server
from storagegate.rpc import Call, loadProto


def once(call: Call) -> Any:
    """Return the request."""
    return call.request


async def repeat(call: Call) -> AsyncIterator[Any]:
    """Return the request as many times as it says."""
    for _ in range(call.request["copies"]):
        yield call.request


async def chat(call: Call) -> AsyncIterator[Any]:
    """Return each message."""
    async for note in call:
        yield note


def main(port: int, *engine: str) -> None:
    """Serve until the end."""
    proto = loadProto(Path(__file__).with_name("echo.proto"))
    handlers = {"once": once, "repeat": repeat, "chat": chat}
    app = server.grpc()
    if engine:
        app.withOptions(grpc={"engine": engine[0]})
    app.addService(definition=proto.Echo, implementation=handlers)
    app.run(port)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
