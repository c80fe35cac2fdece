"""The cases with grpcio's blocking stubs. All functions run outside of the reactor thread."""

import queue
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc

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
    CaseFailed,
    Outcome,
    check,
    checkPayload,
    runCases,
)

_MODULE = "tests/support/interop/" + PROTO.name
"""The path that grpcio finds below a folder of C{sys.path}."""


class RequestPipe:
    """A stream of requests that yields each request that is sent, until it is closed."""

    def __init__(self, *first: Any) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for request in first:
            self.send(request)

    def send(self, request: Any) -> None:
        """Add a request."""
        self._items.put(request)

    def close(self) -> None:
        """End the stream."""
        self._items.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.get, None)


class GrpcioClient:
    """
    The cases, each as a method that raises if the server fails the case.

    @ivar messages: The module of the messages.
    """

    def __init__(self, port: int, tappedPort: int) -> None:
        self.messages, services = grpc.protos_and_services(_MODULE)
        # Otherwise channels to the same port would share a connection with another test's.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [
            grpc.insecure_channel(f"127.0.0.1:{each}", options) for each in (port, tappedPort)
        ]
        self.stub, self.tapped = (services.TestServiceStub(each) for each in self._channels)
        self.noService = services.UnimplementedServiceStub(self._channels[0])

    def close(self) -> None:
        """Close its connections."""
        for channel in self._channels:
            channel.close()

    def cases(self) -> Mapping[str, Callable[[], object]]:
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

    def duplexRequest(self, size: int, *responseSizes: int, **fields: Any) -> Any:
        """Make a request for responses of some sizes."""
        wanted = [self.messages.ResponseParameters(size=each) for each in responseSizes]
        return self.messages.StreamingOutputCallRequest(
            response_parameters=wanted, payload=self.payload(size), **fields
        )

    def emptyUnary(self) -> None:
        """Send an empty message, and receive one."""
        response = self.stub.EmptyCall(self.messages.Empty(), timeout=CALL_SECONDS)
        check(response, self.messages.Empty(), "response")

    def largeUnary(self) -> None:
        """Send and receive large messages."""
        checkPayload(self.stub.UnaryCall(self.largeRequest(), timeout=CALL_SECONDS), LARGE_RESPONSE)

    def clientStreaming(self) -> None:
        """Send four messages."""
        self._sendStream(self.stub, REQUEST_SIZES, REQUEST_TOTAL)

    def serverStreaming(self) -> None:
        """Receive four messages."""
        request = self.duplexRequest(0, *RESPONSE_SIZES)
        responses = list(self.stub.StreamingOutputCall(request, timeout=CALL_SECONDS))
        check(len(responses), len(RESPONSE_SIZES), "number of responses")
        for response, size in zip(responses, RESPONSE_SIZES, strict=True):
            checkPayload(response, size)

    def pingPong(self) -> None:
        """Send each message when the previous one was answered."""
        pipe = RequestPipe()
        responses = self.stub.FullDuplexCall(iter(pipe), timeout=CALL_SECONDS)
        try:
            for size, responseSize in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
                pipe.send(self.duplexRequest(size, responseSize))
                checkPayload(next(responses), responseSize)
        finally:
            pipe.close()
        check(list(responses), [], "responses after the last one")

    def emptyStream(self) -> None:
        """Send and receive no messages."""
        responses = list(self.stub.FullDuplexCall(iter(()), timeout=CALL_SECONDS))
        check(responses, [], "responses")

    def clientCompressedUnary(self) -> None:
        """Send a compressed and an uncompressed message."""
        for step, compression in _COMPRESSIONS.items():
            response = self.tapped.UnaryCall(
                self.largeRequest(),
                timeout=CALL_SECONDS,
                compression=compression,
                metadata=((STEP_NAME, f"client_compressed_unary.{step}"),),
            )
            checkPayload(response, LARGE_RESPONSE)

    def serverCompressedUnary(self) -> None:
        """Request a compressed and an uncompressed response."""
        for step in _COMPRESSIONS:
            response = self.tapped.UnaryCall(
                self.largeRequest(response_compressed=step == "compressed"),
                timeout=CALL_SECONDS,
                metadata=((STEP_NAME, f"server_compressed_unary.{step}"),),
            )
            checkPayload(response, LARGE_RESPONSE)

    def clientCompressedStreaming(self) -> None:
        """
        Send a compressed and an uncompressed message, on a stream each.

        The stubs can only configure a whole call.
        """
        for (step, compression), size in zip(_COMPRESSIONS.items(), (27182, 45904), strict=True):
            self._sendStream(
                self.tapped,
                (size,),
                size,
                compression=compression,
                metadata=((STEP_NAME, f"client_compressed_streaming.{step}"),),
            )

    def serverCompressedStreaming(self) -> None:
        """Request a stream with a compressed and an uncompressed message."""
        parameters = self.messages.ResponseParameters
        wanted = [parameters(size=31415, compressed=True), parameters(size=92653, compressed=False)]
        responses = self.tapped.StreamingOutputCall(
            self.messages.StreamingOutputCallRequest(response_parameters=wanted),
            timeout=CALL_SECONDS,
            metadata=((STEP_NAME, "server_compressed_streaming.mixed"),),
        )
        for response, size in zip(responses, (31415, 92653), strict=True):
            checkPayload(response, size)

    def customMetadata(self) -> None:
        """Receive the sent metadata as initial metadata and as trailers."""
        sent = ((INITIAL_NAME, INITIAL_VALUE), (TRAILING_NAME, TRAILING_VALUE))
        response, unary = self.stub.UnaryCall.with_call(
            self.largeRequest(), timeout=CALL_SECONDS, metadata=sent
        )
        checkPayload(response, LARGE_RESPONSE)
        duplex = self.stub.FullDuplexCall(
            iter([self.duplexRequest(LARGE_REQUEST, LARGE_RESPONSE)]),
            timeout=CALL_SECONDS,
            metadata=sent,
        )
        for response in duplex:
            checkPayload(response, LARGE_RESPONSE)
        for call in (unary, duplex):
            check(dict(call.initial_metadata()).get(INITIAL_NAME), INITIAL_VALUE, "metadata")
            check(dict(call.trailing_metadata()).get(TRAILING_NAME), TRAILING_VALUE, "trailer")

    def statusCodeAndMessage(self) -> None:
        """Receive the requested status, in a unary call and a stream."""
        status = self.messages.EchoStatus(code=2, message=STATUS_MESSAGE)
        request = self.messages.SimpleRequest(response_status=status)
        self._refused(
            lambda: self.stub.UnaryCall(request, timeout=CALL_SECONDS), "UNKNOWN", STATUS_MESSAGE
        )
        duplex = self.messages.StreamingOutputCallRequest(response_status=status)
        self._refused(
            lambda: list(self.stub.FullDuplexCall(iter([duplex]), timeout=CALL_SECONDS)),
            "UNKNOWN",
            STATUS_MESSAGE,
        )

    def specialStatusMessage(self) -> None:
        """Receive a message with white space and characters of every length."""
        status = self.messages.EchoStatus(code=2, message=SPECIAL_MESSAGE)
        request = self.messages.SimpleRequest(response_status=status)
        self._refused(
            lambda: self.stub.UnaryCall(request, timeout=CALL_SECONDS), "UNKNOWN", SPECIAL_MESSAGE
        )

    def unimplementedMethod(self) -> None:
        """Call a method that does not exist."""
        call = self.stub.UnimplementedCall
        self._refused(lambda: call(self.messages.Empty(), timeout=CALL_SECONDS), "UNIMPLEMENTED")

    def unimplementedService(self) -> None:
        """Call a service that does not exist."""
        call = self.noService.UnimplementedCall
        self._refused(lambda: call(self.messages.Empty(), timeout=CALL_SECONDS), "UNIMPLEMENTED")

    def cancelAfterBegin(self) -> None:
        """Cancel before a message was sent."""
        pipe = RequestPipe()
        call = self.stub.StreamingInputCall.future(iter(pipe), timeout=CALL_SECONDS)
        call.cancel()
        pipe.close()
        check(call.code(), grpc.StatusCode.CANCELLED, "status")

    def cancelAfterFirstResponse(self) -> None:
        """Cancel when a message has arrived."""
        pipe = RequestPipe(self.duplexRequest(27182, 31415))
        call = self.stub.FullDuplexCall(iter(pipe), timeout=CALL_SECONDS)
        try:
            checkPayload(next(call), 31415)
            call.cancel()
            self._refused(lambda: next(call), "CANCELLED")
        finally:
            pipe.close()

    def timeoutOnSleepingServer(self) -> None:
        """Give a waiting server a deadline of one millisecond."""
        parameters = self.messages.ResponseParameters(size=1, interval_us=10_000_000)
        pipe = RequestPipe(
            self.messages.StreamingOutputCallRequest(
                response_parameters=[parameters], payload=self.payload(27182)
            )
        )
        try:
            call = self.stub.FullDuplexCall(iter(pipe), timeout=0.001)
            self._refused(lambda: next(call), "DEADLINE_EXCEEDED")
        finally:
            pipe.close()

    def _sendStream(self, stub: Any, sizes: tuple[int, ...], total: int, **settings: Any) -> None:
        requests = (
            self.messages.StreamingInputCallRequest(payload=self.payload(size)) for size in sizes
        )
        response = stub.StreamingInputCall(requests, timeout=CALL_SECONDS, **settings)
        check(response.aggregated_payload_size, total, "sum of the sizes")

    def _refused(self, call: Callable[[], object], code: str, message: str | None = None) -> None:
        try:
            answer = call()
        except grpc.RpcError as error:
            known: Any = error
            check(known.code().name, code, "status")
            if message is not None:
                check(known.details(), message, "message")
        else:
            raise CaseFailed(f"OK with {answer!r:.80} instead of {code}")


_COMPRESSIONS = {
    "compressed": grpc.Compression.Gzip,
    "plain": grpc.Compression.NoCompression,
}


def runGrpcio(port: int, tappedPort: int) -> list[Outcome]:
    """Run all cases against a server, and against the same server behind a tap. Blocks."""
    client = GrpcioClient(port, tappedPort)
    try:
        return list(runCases(client.cases()))
    finally:
        client.close()
