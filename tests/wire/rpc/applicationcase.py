"""An application whose messages are structs, and grpcio's own client of it."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate import server
from tests.wire.rpc.support import RPCCase

PATIENCE = 30.0


def write(value: Any) -> bytes:
    """Write a message of a service without a proto."""
    wire: bytes = ParseDict(value, Struct()).SerializeToString()
    return wire


def read(wire: bytes) -> Any:
    """Read one."""
    return MessageToDict(Struct.FromString(wire))


class ApplicationCase(RPCCase):
    """An application, and a client in a thread."""

    def setUp(self) -> None:
        """Make an application."""
        super().setUp()
        self.app = server.grpc()

    async def ask(self, use: Callable[[grpc.Channel], Any]) -> Any:
        """Listen, if not done yet, and use a connection; in a thread."""
        if not hasattr(self, "port"):
            self.port = await self.listen(self.app)

        def run() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                return use(channel)

        return await deferToThread(run)

    async def unary(self, path: str, request: Any = None, **options: Any) -> Any:
        """Make a call with one request and one response."""
        options = {"timeout": PATIENCE, **options}
        return await self.ask(
            lambda channel: channel.unary_unary(path, write, read)(request or {}, **options)
        )

    async def refused(self, path: str, **options: Any) -> tuple[str, str]:
        """Give how a call fails."""
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.unary(path, **options)), grpc.RpcError
        )
        return error.code().name, error.details()
