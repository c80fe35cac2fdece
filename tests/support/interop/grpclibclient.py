"""
The cases with grpclib, as a program that prints a line of JSON for each case.

Its arguments are two ports: the server's own, and the port of a tap in front of it. grpclib does
not support compression: it offers none and fails on a compressed message. It can therefore only
show that a server does not compress for a client that does not accept it.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.support.interop.cases import (
    CALL_SECONDS,
    CASES,
    INITIAL_NAME,
    INITIAL_VALUE,
    LARGE_REQUEST,
    LARGE_RESPONSE,
    PROTO,
    REQUEST_SIZES,
    REQUEST_TOTAL,
    RESPONSE_SIZES,
    SPECIAL_MESSAGE,
    STATUS_MESSAGE,
    STEP_NAME,
    TRAILING_NAME,
    TRAILING_VALUE,
    CannotExpress,
    CaseFailed,
    check,
    checkPayload,
    outcomeOf,
)


def compileProto(directory: str) -> tuple[Any, Any]:
    """Make the modules of the messages and the stubs, as users of grpclib do."""
    plugin = Path(sys.executable).with_name("protoc-gen-grpclib_python")
    status = protoc.main(
        [
            "protoc",
            f"--plugin=protoc-gen-grpclib_python={plugin}",
            f"--proto_path={PROTO.parent}",
            f"--python_out={directory}",
            f"--grpclib_python_out={directory}",
            PROTO.name,
        ]
    )
    if status:
        raise SystemExit(f"protoc ended with {status}")
    sys.path.insert(0, directory)
    return import_module("interop_pb2"), import_module("interop_grpc")


class GrpclibClient:
    """The cases, each as a method that raises if the server fails the case."""

    def __init__(self, messages: Any, stubs: Any, port: int, tappedPort: int) -> None:
        self.messages = messages
        self._channels = [Channel("127.0.0.1", each) for each in (port, tappedPort)]
        self.stub, self.tapped = (stubs.TestServiceStub(each) for each in self._channels)
        self.noService = stubs.UnimplementedServiceStub(self._channels[0])

    def close(self) -> None:
        """Close its connections."""
        for channel in self._channels:
            channel.close()

    def cases(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Return the methods by the names of their cases."""
        camel = {name: name.title().replace("_", "") for name in CASES}
        return {name: getattr(self, word[0].lower() + word[1:]) for name, word in camel.items()}

    def payload(self, size: int) -> Any:
        """Make a payload."""
        return self.messages.Payload(body=bytes(size))

    def largeRequest(self, **fields: Any) -> Any:
        """Make the request of the large unary cases."""
        return self.messages.SimpleRequest(
            response_size=LARGE_RESPONSE, payload=self.payload(LARGE_REQUEST), **fields
        )

    def duplexRequest(self, size: int, *responseSizes: int) -> Any:
        """Make a request for responses of some sizes."""
        wanted = [self.messages.ResponseParameters(size=each) for each in responseSizes]
        return self.messages.StreamingOutputCallRequest(
            response_parameters=wanted, payload=self.payload(size)
        )

    async def emptyUnary(self) -> None:
        """Send an empty message, and receive one."""
        response = await self.stub.EmptyCall(self.messages.Empty(), timeout=CALL_SECONDS)
        check(response, self.messages.Empty(), "response")

    async def largeUnary(self) -> None:
        """Send and receive large messages."""
        response = await self.stub.UnaryCall(self.largeRequest(), timeout=CALL_SECONDS)
        checkPayload(response, LARGE_RESPONSE)

    async def clientStreaming(self) -> None:
        """Send four messages."""
        request = self.messages.StreamingInputCallRequest
        response = await self.stub.StreamingInputCall(
            [request(payload=self.payload(size)) for size in REQUEST_SIZES], timeout=CALL_SECONDS
        )
        check(response.aggregated_payload_size, REQUEST_TOTAL, "sum of the sizes")

    async def serverStreaming(self) -> None:
        """Receive four messages."""
        request = self.duplexRequest(0, *RESPONSE_SIZES)
        responses = await self.stub.StreamingOutputCall(request, timeout=CALL_SECONDS)
        check(len(responses), len(RESPONSE_SIZES), "number of responses")
        for response, size in zip(responses, RESPONSE_SIZES, strict=True):
            checkPayload(response, size)

    async def pingPong(self) -> None:
        """Send each message when the previous one was answered."""
        async with self.stub.FullDuplexCall.open(timeout=CALL_SECONDS) as stream:
            for size, responseSize in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
                await stream.send_message(self.duplexRequest(size, responseSize))
                checkPayload(await stream.recv_message(), responseSize)
            await stream.end()
            check(await stream.recv_message(), None, "response after the last one")

    async def emptyStream(self) -> None:
        """Send and receive no messages."""
        responses = await self.stub.FullDuplexCall([], timeout=CALL_SECONDS)
        check(responses, [], "responses")

    async def clientCompressedUnary(self) -> None:
        """Report that compression is not supported."""
        raise CannotExpress("grpclib cannot compress a request")

    clientCompressedStreaming = clientCompressedUnary

    async def serverCompressedUnary(self) -> None:
        """Request a compressed response without accepting compression, and a plain one."""
        for step, wanted in (("compressed", True), ("plain", False)):
            response = await self.tapped.UnaryCall(
                self.largeRequest(response_compressed=wanted),
                timeout=CALL_SECONDS,
                metadata={STEP_NAME: f"server_compressed_unary.{step}"},
            )
            checkPayload(response, LARGE_RESPONSE)

    async def serverCompressedStreaming(self) -> None:
        """Request the same in a stream."""
        parameters = self.messages.ResponseParameters
        wanted = [parameters(size=31415, compressed=True), parameters(size=92653, compressed=False)]
        responses = await self.tapped.StreamingOutputCall(
            self.messages.StreamingOutputCallRequest(response_parameters=wanted),
            timeout=CALL_SECONDS,
            metadata={STEP_NAME: "server_compressed_streaming.mixed"},
        )
        for response, size in zip(responses, (31415, 92653), strict=True):
            checkPayload(response, size)

    async def customMetadata(self) -> None:
        """Receive the sent metadata as initial metadata and as trailers."""
        for method, request in (
            (self.stub.UnaryCall, self.largeRequest()),
            (self.stub.FullDuplexCall, self.duplexRequest(LARGE_REQUEST, LARGE_RESPONSE)),
        ):
            sent = {INITIAL_NAME: INITIAL_VALUE, TRAILING_NAME: TRAILING_VALUE}
            async with method.open(timeout=CALL_SECONDS, metadata=sent) as stream:
                await stream.send_message(request, end=True)
                checkPayload(await stream.recv_message(), LARGE_RESPONSE)
                await stream.recv_trailing_metadata()
            check(stream.initial_metadata.get(INITIAL_NAME), INITIAL_VALUE, "metadata")
            check(stream.trailing_metadata.get(TRAILING_NAME), TRAILING_VALUE, "trailer")

    async def statusCodeAndMessage(self) -> None:
        """Receive the requested status, in a unary call and a stream."""
        status = self.messages.EchoStatus(code=2, message=STATUS_MESSAGE)
        unary = self.messages.SimpleRequest(response_status=status)
        duplex = self.messages.StreamingOutputCallRequest(response_status=status)
        for call in (
            self.stub.UnaryCall(unary, timeout=CALL_SECONDS),
            self.stub.FullDuplexCall([duplex], timeout=CALL_SECONDS),
        ):
            await self._refused(call, Status.UNKNOWN, STATUS_MESSAGE)

    async def specialStatusMessage(self) -> None:
        """Receive a message with white space and characters of every length."""
        status = self.messages.EchoStatus(code=2, message=SPECIAL_MESSAGE)
        request = self.messages.SimpleRequest(response_status=status)
        call = self.stub.UnaryCall(request, timeout=CALL_SECONDS)
        await self._refused(call, Status.UNKNOWN, SPECIAL_MESSAGE)

    async def unimplementedMethod(self) -> None:
        """Call a method that does not exist."""
        call = self.stub.UnimplementedCall(self.messages.Empty(), timeout=CALL_SECONDS)
        await self._refused(call, Status.UNIMPLEMENTED)

    async def unimplementedService(self) -> None:
        """Call a service that does not exist."""
        call = self.noService.UnimplementedCall(self.messages.Empty(), timeout=CALL_SECONDS)
        await self._refused(call, Status.UNIMPLEMENTED)

    async def cancelAfterBegin(self) -> None:
        """Cancel when the headers were sent; the connection serves another call."""
        async with self.stub.StreamingInputCall.open(timeout=CALL_SECONDS) as stream:
            await stream.send_request()
            await stream.cancel()
        await self.clientStreaming()

    async def cancelAfterFirstResponse(self) -> None:
        """Cancel when a message has arrived; the connection serves another call."""
        async with self.stub.FullDuplexCall.open(timeout=CALL_SECONDS) as stream:
            await stream.send_message(self.duplexRequest(27182, 31415))
            checkPayload(await stream.recv_message(), 31415)
            await stream.cancel()
        await self.emptyStream()

    async def timeoutOnSleepingServer(self) -> None:
        """Give a waiting server a deadline of one millisecond."""
        parameters = self.messages.ResponseParameters(size=1, interval_us=10_000_000)
        request = self.messages.StreamingOutputCallRequest(
            response_parameters=[parameters], payload=self.payload(27182)
        )
        try:
            async with self.stub.FullDuplexCall.open(timeout=0.001) as stream:
                await stream.send_message(request)
                answer = await stream.recv_message()
        except TimeoutError:
            # The exception of grpclib's own deadline.
            return
        except GRPCError as error:
            check(error.status, Status.DEADLINE_EXCEEDED, "status")
            return
        raise CaseFailed(f"{answer!r:.80} instead of DEADLINE_EXCEEDED")

    async def _refused(
        self, call: Awaitable[object], status: Status, message: str | None = None
    ) -> None:
        try:
            answer = await call
        except GRPCError as error:
            check(error.status, status, "status")
            if message is not None:
                check(error.message, message, "message")
        else:
            raise CaseFailed(f"OK with {answer!r:.80} instead of {status.name}")


async def run(port: int, tappedPort: int) -> None:
    """Run all cases one after another, independently."""
    with tempfile.TemporaryDirectory() as directory:
        messages, stubs = compileProto(directory)
    client = GrpclibClient(messages, stubs, port, tappedPort)
    try:
        for name, case in client.cases().items():
            try:
                await case()
            except Exception as error:
                print(outcomeOf(name, error).line(), flush=True)
            else:
                print(outcomeOf(name, None).line(), flush=True)
    finally:
        client.close()


if __name__ == "__main__":
    asyncio.run(run(*map(int, sys.argv[1:3])))
