"""
All four kinds of gRPC calls, with messages derived from schemas, and a client that uses reflection.

    python examples/grpc_users.py 3000
    python examples/grpc_users.py 3000 call
"""

import sys
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from storagegate import GrpcError, createGrpcClient, server

USER = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
users: list[dict[str, Any]] = []


async def create(request: Any) -> Any:
    """Take a request, return a response; an error has a status and may have details."""
    if not request.get("name"):
        raise GrpcError("INVALID_ARGUMENT", "no name", [{"path": "name", "message": "is required"}])
    users.append({"id": len(users) + 1, "name": request["name"]})
    return users[-1]


async def createAll(requests: AsyncIterator[Any]) -> Any:
    """Take a stream of requests; each one is read from the network on demand."""
    return [await create(request) async for request in requests][-1]


async def everybody(request: Any) -> AsyncIterator[Any]:
    """Return a stream of responses: it pauses while the client does not read."""
    for user in users:
        yield user


async def greet(requests: AsyncIterator[Any], call: Any) -> AsyncIterator[Any]:
    """Stream both ways: the client may wait for each response before its next request."""
    async for request in requests:
        yield {"name": f"{request.get('name')} at {call.getPeer()}"}


async def log(call: Any, next: Any) -> Any:
    """Wrap every call: to reject it, to change its response, or just to log it."""
    print(call.method, flush=True)
    return await next()


methods = {
    "Create": {"handler": create, "input": USER, "output": USER},
    "CreateAll": {"handler": createAll, "streaming": "client", "input": USER, "output": USER},
    "List": {"handler": everybody, "streaming": "server", "output": USER},
    "Greet": {"handler": greet, "streaming": "bidirectional", "input": USER, "output": USER},
}
app = server.grpc().withOptions(grpc={"reflection": True})
app.use(log).addService(name="Users", methods=methods)


async def main(reactor: Any, port: str = "3000", call: str = "") -> None:
    if not call:
        print(f"listening on 127.0.0.1:{(await app.listen(int(port))).getHost().port}", flush=True)
        reactor.addSystemEventTrigger("before", "shutdown", app.stop, 1000)
        await Deferred[None]()
    client = createGrpcClient(f"127.0.0.1:{port}", credentials="insecure")
    print(await client.create({"name": "Ada"}, deadlineMs=5000))
    print(await client.createAll({"name": name} for name in ("Alan", "Grace")))
    print([user["name"] async for user in client.list()])
    print([said["name"] async for said in client.greet({"name": name} for name in "AB")])
    try:
        await client.create({})
    except GrpcError as error:
        print(error, error.details)
    await client.close()


react(main, sys.argv[1:])
