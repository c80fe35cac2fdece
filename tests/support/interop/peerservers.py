"""
Servers of C{echo.proto} that others have written, in asyncio: C{python -m ... aio} or C{grpclib}.

They print their port and serve until they are killed. The text of a parcel selects the behaviour.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from storagegate.rpc.protos import loadProto
from tests.support.grpcioserver import ECHO

Parcel = GetMessageClass(loadProto(ECHO).Echo.file.message_types_by_name["Parcel"])


class AioEcho(grpc.GenericRpcHandler):
    """The service on grpc.aio."""

    def service(self, details: Any) -> Any:
        """Find a method."""
        make, method = {
            "Send": (grpc.unary_unary_rpc_method_handler, self.send),
            "Split": (grpc.unary_stream_rpc_method_handler, self.split),
            "Join": (grpc.stream_unary_rpc_method_handler, self.join),
            "Chat": (grpc.stream_stream_rpc_method_handler, self.chat),
        }[details.method.rpartition("/")[2]]
        return make(method, Parcel.FromString, Parcel.SerializeToString)

    async def send(self, request: Any, context: Any) -> Any:
        """Give the request and its metadata back."""
        own = tuple(each for each in context.invocation_metadata() if each[0][:2] == "x-")
        await context.send_initial_metadata(own)
        context.set_trailing_metadata(own)
        if request.text == "fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: ä")
        if request.text == "wait":
            await asyncio.Event().wait()
        return request

    async def split(self, request: Any, context: Any) -> Any:
        """Answer C{count} times."""
        for number in range(request.count):
            yield Parcel(count=number, body=request.body)
        if request.text == "fail":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no more")

    async def join(self, requests: Any, context: Any) -> Any:
        """Answer with the texts of all requests."""
        seen = [each.text async for each in requests]
        return Parcel(seen=seen, count=len(seen))

    async def chat(self, requests: Any, context: Any) -> Any:
        """Answer each request."""
        async for each in requests:
            yield each


class LibEcho:
    """The service on grpclib."""

    async def send(self, stream: Any) -> None:
        """Give the request and its metadata back."""
        own = [each for each in stream.metadata.items() if each[0][:2] == "x-"]
        request = await stream.recv_message()
        await stream.send_initial_metadata(metadata=own)
        if request.text == "fail":
            raise GRPCError(Status.NOT_FOUND, "no such thing: ä")
        if request.text == "wait":
            await asyncio.Event().wait()
        await stream.send_message(request)
        await stream.send_trailing_metadata(metadata=own)

    async def split(self, stream: Any) -> None:
        """Answer C{count} times."""
        request = await stream.recv_message()
        for number in range(request.count):
            await stream.send_message(Parcel(count=number, body=request.body))
        if request.text == "fail":
            raise GRPCError(Status.NOT_FOUND, "no more")

    async def join(self, stream: Any) -> None:
        """Answer with the texts of all requests."""
        seen = [each.text async for each in stream]
        await stream.send_message(Parcel(seen=seen, count=len(seen)))

    async def chat(self, stream: Any) -> None:
        """Answer each request."""
        async for each in stream:
            await stream.send_message(each)

    def __mapping__(self) -> dict[str, Handler]:
        kinds = (
            ("Send", self.send, Cardinality.UNARY_UNARY),
            ("Split", self.split, Cardinality.UNARY_STREAM),
            ("Join", self.join, Cardinality.STREAM_UNARY),
            ("Chat", self.chat, Cardinality.STREAM_STREAM),
        )
        return {
            f"/probe.Echo/{name}": Handler(method, kind, Parcel, Parcel)
            for name, method, kind in kinds
        }


async def serveAio() -> int:
    """Start grpc.aio's server; return its port."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)], compression=grpc.Compression.Gzip)
    server.add_generic_rpc_handlers((AioEcho(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _kept.append(server)
    return int(port)


async def serveGrpclib() -> int:
    """Start grpclib's server; return its port."""
    server = Server([LibEcho()])
    await server.start("127.0.0.1", 0)
    _kept.append(server)
    return int(server._server.sockets[0].getsockname()[1])


_kept: list[Any] = []

SERVERS: dict[str, Callable[[], Awaitable[int]]] = {"aio": serveAio, "grpclib": serveGrpclib}


async def main(name: str) -> None:
    """Serve until the process is killed."""
    port = await SERVERS[name]()
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
