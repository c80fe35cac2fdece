"""
Servers whose handlers use asyncio's libraries.

    python -m tests.support.asyncioprogram gateway|grpc|http [REACTOR]

Handlers report their cancellation on standard output, one line each.
"""

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred

from storagegate import createProtocolGateway, server

_number = contextvars.ContextVar[int]("number")

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def later(seconds: float) -> Deferred[str]:
    """Wait with a Deferred."""
    from twisted.internet import reactor
    from twisted.internet.task import deferLater

    return deferLater(reactor, seconds, lambda: "deferred")  # type: ignore[arg-type]


async def awaitLater() -> str:
    """Wait for a Deferred in an asyncio task."""
    return await later(0.001)


async def useAll() -> str:
    """Use asyncio's features; return a word for each one that worked."""
    words = []
    await asyncio.sleep(0)
    for wait in (lambda: asyncio.sleep(100), lambda: later(100)):
        try:
            async with asyncio.timeout(0.01):
                await wait()
        except TimeoutError:
            words.append("timeout")
    words += await asyncio.gather(awaitLater(), asyncio.sleep(0.001, "gathered"))
    async with asyncio.TaskGroup() as group, asyncio.Semaphore(1):
        tasks = [group.create_task(awaitLater()), group.create_task(asyncio.sleep(0, "slept"))]
    words += [task.result() for task in tasks]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fail())
            await later(100)
    except* KeyError:
        words.append("group")
    words.append(await asyncio.to_thread(lambda: "thread"))
    words.append(await asyncio.wait_for(later(0.001).asFuture(asyncio.get_running_loop()), 10))
    task = asyncio.current_task()
    assert task is not None and task in asyncio.all_tasks() and not task.cancelling()
    return " ".join(words)


ALL = "timeout timeout deferred gathered deferred slept group thread deferred"


async def _fail() -> None:
    await asyncio.sleep(0.001)
    raise KeyError("from a task")


async def wait(request: dict[str, Any], context: Any) -> dict[str, str]:
    """Use all features, in the context of the call."""
    _number.set(request["n"])
    text = await useAll()
    assert _number.get() == request["n"]
    return {"text": text}


async def count(request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, str]]:
    """Return a stream, with scopes that span several items."""
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for n in range(request["n"]):
            task = group.create_task(asyncio.sleep(0.001, n))
            yield {"text": str(await task)}


async def echo(
    requests: AsyncIterator[dict[str, Any]], context: Any
) -> AsyncIterator[dict[str, str]]:
    """Answer a stream with a stream; an asyncio task reads the requests."""
    while (request := await asyncio.create_task(anext(requests, None))) is not None:  # type: ignore[arg-type,func-returns-value]
        yield {"text": str(request["n"])}


async def hang(request: dict[str, Any], context: Any) -> dict[str, str]:
    """Wait forever, for a future or for a Deferred."""
    print("begun", flush=True)
    try:
        await (later(1000) if request["n"] else asyncio.sleep(1000))
    except asyncio.CancelledError as error:
        print(f"cancelled {type(error).__module__}", flush=True)
        raise
    finally:
        await asyncio.sleep(0.001)
        print("finally", flush=True)
    return {"text": ""}


async def tick(request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, str]]:
    """Stream forever."""
    print("begun", flush=True)
    try:
        async with asyncio.timeout(1000):
            while True:
                yield {"text": "tick"}
                await (later(0.001) if request["n"] else asyncio.sleep(0.001))
    finally:
        await asyncio.sleep(0.001)
        print("finally", flush=True)


async def fail(request: dict[str, Any], context: Any) -> dict[str, str]:
    """Fail in an asyncio task."""
    await asyncio.create_task(_fail())
    return {"text": ""}


async def tasks(request: dict[str, Any], context: Any) -> dict[str, str]:
    """Count the tasks of the loop, excluding the task of this call."""
    return {"text": str(len(asyncio.all_tasks()) - 1)}


METHODS = {
    "wait": {"input": NUMBER, "output": TEXT, "handler": wait},
    "count": {"input": NUMBER, "output": TEXT, "handler": count, "streaming": "server"},
    "echo": {"input": NUMBER, "output": TEXT, "handler": echo, "streaming": "bidirectional"},
    "tick": {"input": NUMBER, "output": TEXT, "handler": tick, "streaming": "server"},
    "hang": {"input": NUMBER, "output": TEXT, "handler": hang},
    "fail": {"input": NUMBER, "output": TEXT, "handler": fail},
    "tasks": {"input": NUMBER, "output": TEXT, "handler": tasks},
}


def gateway() -> Any:
    """Make a gateway with all transports."""
    made = createProtocolGateway(
        port=0,
        websocket={"path": "/ws"},
        grpc={"port": 0, "reflection": True},
        tcp={"port": 0},
        udp={"port": 0},
    )

    async def middleware(request: Any, context: Any, next: Any) -> Any:
        async with asyncio.timeout(1000):
            await asyncio.sleep(0)
            return await next()

    made.addService("Probe", {"methods": METHODS, "middleware": [middleware]})
    return made


def grpc() -> Any:
    """Make a gRPC application."""
    app = server.grpc().withOptions(grpc={"reflection": True})

    async def middleware(call: Any, next: Any) -> Any:
        async with asyncio.timeout(1000):
            await asyncio.sleep(0)
            return await next()

    app.use(middleware)
    app.addService("Probe", METHODS)
    return app


def http() -> Any:
    """Make an HTTP application."""
    app = server.http()

    @app.use
    async def middleware(req: Any, res: Any, next: Any) -> None:
        _number.set(7)
        await asyncio.sleep(0)
        await next()

    @app.get("/wait")
    async def waits(req: Any, res: Any) -> str:
        text = await useAll()
        return f"{text} {_number.get()}"

    @app.get("/plain")
    def plain(req: Any, res: Any) -> str:
        return "plain"

    @app.get("/httpx")
    async def fetches(req: Any, res: Any) -> str:
        import httpx

        async with httpx.AsyncClient(timeout=100) as client:
            response = await client.get(f"http://{req.get('host')}/plain")
        return response.text

    @app.get("/aiofiles")
    async def reads(req: Any, res: Any) -> str:
        import aiofiles

        async with aiofiles.open(req.query["path"]) as file:
            return await file.read()

    @app.get("/asyncpg")
    async def queries(req: Any, res: Any) -> Any:
        import asyncpg

        async with asyncpg.create_pool(
            host=req.query["path"], user="test", database="postgres"
        ) as pool:
            async with pool.acquire() as connection, connection.transaction():
                found = await connection.fetchval("select $1::int + 1", 41)
            try:
                async with asyncio.timeout(0.05):
                    await pool.fetchval("select pg_sleep(1000)")
            except TimeoutError:
                pass
            return {"found": found, "again": await pool.fetchval("select 1")}

    @app.get("/stream")
    async def streams(req: Any, res: Any) -> Any:
        from storagegate.http import Response

        async def pieces() -> AsyncIterator[bytes]:
            async with asyncio.timeout(100):
                for n in range(3):
                    await asyncio.sleep(0.001)
                    yield b"%d" % n

        return Response(pieces())

    @app.ws("/socket")
    async def answers(socket: Any) -> None:
        async with asyncio.timeout(100):
            async for message in socket:
                await socket.send(await asyncio.sleep(0.001, message))

    @app.get("/hang/:n", cancelOnDisconnect=True)
    async def hangs(req: Any, res: Any) -> Any:
        return await hang({"n": int(req.params["n"])}, None)

    @app.get("/fail")
    async def fails(req: Any, res: Any) -> Any:
        return await fail({}, None)

    @app.get("/tasks")
    async def counts(req: Any, res: Any) -> Any:
        return await tasks({}, None)

    @app.get("/background")
    async def begins(req: Any, res: Any) -> Any:
        req.app.background = asyncio.create_task(hang({"n": 0}, None))
        return "begun"

    return app


SERVICE = {"name": "Probe", "methods": METHODS}
"""The service of the daemon."""

if __name__ == "__main__":
    name = sys.argv[2] if len(sys.argv) > 2 else None
    {"gateway": gateway, "grpc": grpc, "http": http}[sys.argv[1]]().run(
        **({} if sys.argv[1] == "gateway" else {"port": 0}), reactor=name
    )
