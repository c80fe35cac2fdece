"""The public interoperability cases of gRPC, by three clients that others have written."""

from typing import ClassVar, Protocol

from twisted.internet.defer import maybeDeferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from tests.support.grpctap import listenTapped
from tests.support.interop.cases import STEP_NAME
from tests.support.interop.runs import (
    ClientRun,
    RunClient,
    runGrpcioClient,
    runGrpcJsClient,
    runGrpclibClient,
)
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

COMPRESSED, PLAIN = 1, 0
"""The flag of a message, as it is on the wire."""


class MatrixCase(RPCCase):
    """
    One client. It runs once, through all cases, and each test looks at one of them.

    @cvar client: Runs it.
    """

    client: ClassVar[RunClient]
    timeout = 120
    _done: ClassVar[ClientRun | None] = None

    async def setUp(self) -> None:  # type: ignore[override]
        """Let the client run, the first time."""
        super().setUp()
        kind = type(self)
        if kind._done is None:
            kind._done = await self._ask()
        self.said = kind._done

    async def _ask(self) -> ClientRun:
        port = await self.serveInterop()
        tap, relay = listenTapped(self.reactor, port)
        self.addCleanup(lambda: maybeDeferred(relay.stopListening))
        tappedPort = relay.getHost().port  # type: ignore[attr-defined]
        done = await deferToThread(type(self).client, port, tappedPort)
        return ClientRun(done.outcomes, done.complaint, tap)

    def assertCase(self, name: str) -> None:
        """A case passed; it is skipped if the client cannot express it."""
        outcome = self.said.outcomes.get(name)
        if outcome is None:
            self.fail(f"the client did not get to {name}: {self.said.complaint}")
        elif outcome.ok is None:
            raise SkipTest(outcome.why)
        self.assertTrue(outcome.ok, outcome.why)

    def assertRequests(self, step: str, *flags: int) -> None:
        """The client's messages of a step had these flags."""
        self.assertEqual(self.said.tap.find(STEP_NAME, step)[0].flags, list(flags), step)

    def assertResponses(self, step: str, *flags: int) -> None:
        """The server's messages of a step had these flags."""
        self.assertEqual(self.said.tap.find(STEP_NAME, step)[1].flags, list(flags), step)


class _Tests(Protocol):
    """What the cases below need of L{MatrixCase}."""

    def assertCase(self, name: str) -> None: ...

    def assertRequests(self, step: str, *flags: int) -> None: ...

    def assertResponses(self, step: str, *flags: int) -> None: ...


class CommonCases:
    """The cases that are the same for every client."""

    def test_emptyUnary(self: _Tests) -> None:
        """A message of no bytes is answered by one of no bytes."""
        self.assertCase("empty_unary")

    def test_largeUnary(self: _Tests) -> None:
        """Messages larger than a window of flow control come whole, both ways."""
        self.assertCase("large_unary")

    def test_clientStreaming(self: _Tests) -> None:
        """The handler gets every message of a client's stream, and the client its one answer."""
        self.assertCase("client_streaming")

    def test_serverStreaming(self: _Tests) -> None:
        """A stream of responses comes whole and in order."""
        self.assertCase("server_streaming")

    def test_pingPong(self: _Tests) -> None:
        """Each message of a stream is answered before the next one is sent."""
        self.assertCase("ping_pong")

    def test_emptyStream(self: _Tests) -> None:
        """A stream without messages, in both directions, ends with OK."""
        self.assertCase("empty_stream")

    def test_customMetadata(self: _Tests) -> None:
        """Text and binary metadata arrive, and go back as initial metadata and as trailers."""
        self.assertCase("custom_metadata")

    def test_statusCodeAndMessage(self: _Tests) -> None:
        """The status that a handler raises is the client's, of a unary call and of a stream."""
        self.assertCase("status_code_and_message")

    def test_specialStatusMessage(self: _Tests) -> None:
        """White space and characters of every length survive in a status's message."""
        self.assertCase("special_status_message")

    def test_unimplementedMethod(self: _Tests) -> None:
        """A method without a handler is UNIMPLEMENTED."""
        self.assertCase("unimplemented_method")

    def test_unimplementedService(self: _Tests) -> None:
        """A service that was not added is UNIMPLEMENTED."""
        self.assertCase("unimplemented_service")

    def test_cancelAfterBegin(self: _Tests) -> None:
        """A call that is cancelled before its first message is CANCELLED."""
        self.assertCase("cancel_after_begin")

    def test_cancelAfterFirstResponse(self: _Tests) -> None:
        """A call that is cancelled between two messages is CANCELLED."""
        self.assertCase("cancel_after_first_response")

    def test_timeoutOnSleepingServer(self: _Tests) -> None:
        """A call whose handler takes too long is DEADLINE_EXCEEDED."""
        self.assertCase("timeout_on_sleeping_server")


class CompressedCases:
    """The compressed cases, for clients that can read a compressed message."""

    def test_clientCompressedUnary(self: _Tests) -> None:
        """A compressed request is understood, and so is one that is not."""
        self.assertCase("client_compressed_unary")
        self.assertRequests("client_compressed_unary.compressed", COMPRESSED)
        self.assertRequests("client_compressed_unary.plain", PLAIN)

    def test_serverCompressedUnary(self: _Tests) -> None:
        """A response is compressed or not, as its handler says."""
        self.assertCase("server_compressed_unary")
        self.assertResponses("server_compressed_unary.compressed", COMPRESSED)
        self.assertResponses("server_compressed_unary.plain", PLAIN)

    def test_serverCompressedStreaming(self: _Tests) -> None:
        """One stream has compressed messages and others."""
        self.assertCase("server_compressed_streaming")
        self.assertResponses("server_compressed_streaming.mixed", COMPRESSED, PLAIN)


@long("runs grpc-js")
class GrpcioTests(CommonCases, CompressedCases, MatrixCase):
    """grpcio's own blocking stubs, in a thread."""

    client = staticmethod(runGrpcioClient)

    def test_clientCompressedStreaming(self) -> None:
        """
        Streams of compressed messages are understood, and so are others.

        The stubs compress a whole call or none of it, so it takes two streams.
        """
        self.assertCase("client_compressed_streaming")
        self.assertRequests("client_compressed_streaming.compressed", COMPRESSED)
        self.assertRequests("client_compressed_streaming.plain", PLAIN)


@long("runs grpc-js")
class GrpcJsTests(CommonCases, CompressedCases, MatrixCase):
    """@grpc/grpc-js, in a process of node."""

    client = staticmethod(runGrpcJsClient)

    def test_clientCompressedStreaming(self) -> None:
        """One stream of requests may have compressed messages and others."""
        self.assertCase("client_compressed_streaming")
        self.assertRequests("client_compressed_streaming.mixed", COMPRESSED, PLAIN)


@long("runs grpc-js")
class GrpclibTests(CommonCases, MatrixCase):
    """
    grpclib, in a process with a loop of asyncio.

    It has no compression, so that the cases of compressed requests cannot be expressed with it.
    """

    client = staticmethod(runGrpclibClient)

    def test_clientCompressedUnary(self) -> None:
        """A compressed request is understood."""
        self.assertCase("client_compressed_unary")

    def test_clientCompressedStreaming(self) -> None:
        """A stream of compressed requests is understood."""
        self.assertCase("client_compressed_streaming")

    def test_serverCompressedUnary(self) -> None:
        """A client that has not said that it can read gzip gets no compressed response."""
        self.assertCase("server_compressed_unary")
        self.assertResponses("server_compressed_unary.compressed", PLAIN)
        self.assertResponses("server_compressed_unary.plain", PLAIN)

    def test_serverCompressedStreaming(self) -> None:
        """Nor does it get a compressed message in a stream."""
        self.assertCase("server_compressed_streaming")
        self.assertResponses("server_compressed_streaming.mixed", PLAIN, PLAIN)
