"""
A third-party server: grpcio's own, in threads, with its own reflection.

It serves C{echo.proto}. C{python -m tests.support.grpcioserver} serves it in a separate process and
prints the port.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from storagegate.rpc.protos import LoadedProto, loadProto

ECHO = Path(__file__).parent / "echo.proto"

# Each open call holds a thread.
_THREADS = 40


class Echo:
    """
    Handlers of parcels, whose text selects the behaviour.

    @ivar given: The number of responses that were taken from streams.
    @ivar taken: The number of requests that were read from streams.
    @ivar ended: Set when a waiting or streaming call has ended.
    @ivar release: Set to resume calls that do not read.
    """

    def __init__(self, parcel: Any) -> None:
        self._parcel = parcel
        self.given = 0
        self.taken = 0
        self.ended = threading.Event()
        self.release = threading.Event()

    def send(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer with the request, or as its text says."""
        own = tuple(entry for entry in context.invocation_metadata() if entry[0][0] == "x")
        if request.text == "wait":
            self._wait(context)
        if request.text == "fail":
            self._fail(context, own)
        context.send_initial_metadata(own)
        context.set_trailing_metadata(own)
        return request

    def split(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer C{count} times."""
        context.send_initial_metadata((("x-begun", "yes"),))
        try:
            for number in range(request.count):
                self.given += 1
                yield self._parcel(count=number, body=request.body)
            if request.text == "wait":
                self._wait(context)
            if request.text == "fail":
                self._fail(context, ())
        finally:
            self.ended.set()

    def join(self, requests: Iterable[Any], context: grpc.ServicerContext) -> Any:
        """Answer with the texts of all requests."""
        seen = []
        for request in requests:
            if request.text == "deaf":
                self.release.wait(120)
            if request.text == "enough":
                context.abort(grpc.StatusCode.OUT_OF_RANGE, "enough")
            self.taken += 1
            seen.append(request.text)
        return self._parcel(seen=seen, count=len(seen))

    def chat(self, requests: Iterable[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer each request."""
        for request in requests:
            self.taken += 1
            if request.text == "leave":
                return
            yield request

    def miscount(self, requests: Iterable[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer as many times as the first request specifies."""
        for number in range(next(iter(requests)).count):
            yield self._parcel(count=number)

    def _wait(self, context: grpc.ServicerContext) -> None:
        over = threading.Event()
        if context.add_callback(over.set):
            over.wait(120)
        self.ended.set()

    def _fail(self, context: grpc.ServicerContext, trailers: tuple[Any, ...]) -> None:
        detail = any_pb2.Any()
        struct = struct_pb2.Struct()
        struct.update({"reason": "because"})
        detail.Pack(struct)
        status = status_pb2.Status(code=5, message="no such thing: ä", details=[detail])
        ended = rpc_status.to_status(status)
        context.set_trailing_metadata((*ended.trailing_metadata, *trailers))
        context.abort(ended.code, ended.details)


class GrpcioServer:
    """
    The server.

    @ivar loaded: The loaded proto.
    @ivar port: The port that it listens on.
    """

    def __init__(
        self,
        credentials: grpc.ServerCredentials | None = None,
        *,
        services: Iterable[str] = ("probe.Echo", "probe.Other"),
        reflect: Iterable[str] | None = ("probe.Echo",),
        address: str = "127.0.0.1:0",
        miscounts: bool = False,
        options: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        """
        @param miscounts: Whether methods with a single response return a requested number of
            responses.
        @param reflect: The services that reflection lists; C{None} disables reflection.
        """
        self.loaded: LoadedProto = loadProto(ECHO)
        descriptor = self.loaded.Echo.file
        self._parcel = GetMessageClass(descriptor.message_types_by_name["Parcel"])
        self.echo = Echo(self._parcel)
        self._miscounts = miscounts
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="grpcio")
        arguments = (("grpc.so_reuseport", 0), *options)
        self._server = grpc.server(self._pool, options=arguments)
        for service in services:
            self._server.add_generic_rpc_handlers((self._handlers(service),))
        if reflect is not None:
            names = (*reflect, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server, pool=descriptor.pool)
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    def _handlers(self, service: str) -> grpc.GenericRpcHandler:
        echo, parcel = self.echo, self._parcel

        def made(make: Callable[..., Any], behaviour: Any) -> Any:
            return make(behaviour, parcel.FromString, parcel.SerializeToString)

        if self._miscounts:
            several = made(grpc.stream_stream_rpc_method_handler, echo.miscount)
            return grpc.method_handlers_generic_handler(service, {"Send": several, "Join": several})
        send = made(grpc.unary_unary_rpc_method_handler, echo.send)
        if service == "probe.Other":
            return grpc.method_handlers_generic_handler(service, {"Send": send, "Only": send})
        return grpc.method_handlers_generic_handler(
            service,
            {
                "Send": send,
                "Split": made(grpc.unary_stream_rpc_method_handler, echo.split),
                "Join": made(grpc.stream_unary_rpc_method_handler, echo.join),
                "Chat": made(grpc.stream_stream_rpc_method_handler, echo.chat),
            },
        )

    def stop(self) -> None:
        """Stop, and wait for the threads. Must not run in the reactor thread."""
        self.echo.release.set()
        self._server.stop(0).wait(120)
        self._pool.shutdown()


if __name__ == "__main__":
    served = GrpcioServer()
    sys.stdout.write(f"{served.port}\n")
    sys.stdout.flush()
    threading.Event().wait()
