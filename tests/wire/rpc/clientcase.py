"""A client of ours beside a server that we did not write."""

import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.client import GrpcClient, createGrpcClient
from storagegate.rpc.engine.native.channel import NativeChannel
from tests.support.grpcioserver import GrpcioServer

T = TypeVar("T")


def spawn(coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Run a coroutine beside the test."""
    return Deferred.fromCoroutine(coroutine)


async def until(condition: Any) -> None:
    """Turn the reactor until something is so; the test's own timeout is the limit."""
    clock: Any = reactor
    while not condition():
        turned: Deferred[None] = Deferred()
        clock.callLater(0.001, turned.callback, None)
        await turned


class ClientCase(TestCase):
    """A client of ours, and grpcio's server in threads of this process."""

    timeout = 60

    async def setUp(self) -> None:
        """Start the server."""
        self.server = await self.serve()
        self.client = self.connect()

    async def serve(self, *arguments: Any, **options: Any) -> GrpcioServer:
        """Start a server."""
        server: GrpcioServer = await deferToThread(GrpcioServer, *arguments, **options)
        self.addCleanup(deferToThread, server.stop)
        return server

    def connect(
        self, service: Any = "loaded", credentials: Any = "insecure", **options: Any
    ) -> GrpcClient:
        """Make a client that is closed, with nothing left of it, when the test ends."""
        if service == "loaded":
            service = self.server.loaded.Echo
        port = options.pop("port", self.server.port)
        host = options.pop("host", "127.0.0.1")
        client = createGrpcClient(f"{host}:{port}", credentials, service, **options)
        self.addCleanup(self.closeClean, client)
        return client

    async def closeClean(self, client: GrpcClient) -> None:
        """Close a client and see that it has left no thread."""
        await client.close()
        pump = getattr(client._engine, "_pump", None)
        self.assertFalse(pump and pump._thread and pump._thread.is_alive())
        self.assertEqual(openCalls(client), [])

    async def assertEnds(self, call: Any, status: str) -> GrpcError:
        """See that a call of one response ends with a status."""
        error: GrpcError = await self.assertFailure(call.deferred(), GrpcError)
        self.assertEqual(error.statusName, status)
        return error


def openCalls(client: GrpcClient) -> list[Any]:
    """Return the calls that a client's engine has."""
    engine: Any = client._engine
    if isinstance(engine, NativeChannel):
        streams = [each for one in engine._connections for each in one.core.streams.values()]
        return [*engine.waiting, *streams]
    return list(engine._handles)


def clientThreads() -> list[threading.Thread]:
    """Give the threads that clients have."""
    return [thread for thread in threading.enumerate() if thread.name == "grpc-client"]
