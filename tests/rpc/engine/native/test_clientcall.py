"""A call of a client: its messages, and how it ends, also with a server that lies."""

import zlib
from types import SimpleNamespace
from typing import Any

from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, WindowUpdateFrame
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.engine.native import clientcall
from storagegate.rpc.engine.native.messages import deflateMessage, inflateMessage
from storagegate.rpc.interfaces import CallOptions
from tests.support.channelserver import HEAD, OK, MemoryChannel, ServerSide
from tests.support.h2client import framed
from tests.support.selection import rounds

CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED = 1, 2, 4, 5, 7
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 12, 13, 14, 16

WINDOW = 256 * 1024
"""The window of a stream."""


class ClientCallCase(SynchronousTestCase):
    """A channel in memory, with one call and the server's end of its connection."""

    server: ServerSide

    def begin(
        self, request: bytes | None = None, options: CallOptions | None = None, **own: Any
    ) -> Any:
        """Begin a call, on a new channel with options of its own."""
        settings = own.pop("settings", {})
        self.channel = MemoryChannel(**own)
        call = self.channel.engine.call("/a.B/C", options or CallOptions(), request)
        self.server = self.channel.accept(**settings)
        self.channel.turn()
        self.server.receive()
        return call

    def read(self, call: Any) -> Deferred[bytes | None]:
        """Read a message."""
        message: Deferred[bytes | None] = Deferred()
        call.read(message.callback)
        return message

    def status(self, call: Any) -> tuple[int, str]:
        """Return how a call has ended."""
        self.channel.turn()
        status, message, _ = self.successResultOf(call.ended())
        return status, message

    def assertEnded(self, call: Any, status: int, *texts: str) -> None:
        """See how a call has ended, and that nothing more comes of it."""
        found, message = self.status(call)
        self.assertEqual(found, status, message)
        for text in texts:
            self.assertIn(text, message)
        self.assertIsNone(self.successResultOf(self.read(call)))
        self.assertFalse(call.send(b"late"))
        self.successResultOf(call.drained())
        self.successResultOf(call.begun())


class StatusTests(ClientCallCase):
    """The ends of calls."""

    def test_unreadEnd(self) -> None:
        """While an end is not read, a producer goes on, and does not keep the reactor busy."""
        call = self.begin()
        self.server.answer(1, framed(b"a"))
        for _ in range(3):
            self.assertFalse(call.send(b"late"))
            room = call.drained()
            self.channel.turn()
            self.assertNoResult(room)
            self.channel.turn(0.02)
            self.successResultOf(room)
        self.assertEqual(self.successResultOf(self.read(call)), b"a")
        self.assertEqual(self.status(call)[0], 0)

    def test_statuses(self) -> None:
        """The status, its text in percent signs, and the trailers are the server's."""
        call = self.begin(b"")
        trailers = [("grpc-status", "5"), ("grpc-message", "no %C3%A4 %zz"), ("x-why", "b")]
        self.server.answer(1, b"", trailers)
        self.assertEqual(
            self.successResultOf(call.ended()), (NOT_FOUND, "no ä %zz", [("x-why", "b")])
        )
        self.assertEqual(self.server.resets(), {})

    def test_spaces(self) -> None:
        """Spaces around values, which other servers send, do not hide the status."""
        for _ in range(3):
            call = self.begin(b"")
            self.server.headers(1, [*HEAD, ("x-a", " b")])
            self.assertEqual(self.successResultOf(call.begun()), [("x-a", "b")])
            trailers = [("grpc-status", "5"), ("grpc-message", "why: "), ("x-why", " ")]
            self.server.headers(1, trailers, True)
            found = self.successResultOf(call.ended())
            self.assertEqual(found, (NOT_FOUND, "why:", [("x-why", "")]))
        for name in (":status", "x\x01", "X-A"):
            call = self.begin(b"")
            self.server.headers(1, HEAD)
            self.server.headers(1, [("grpc-status", "0"), (name, " b ")], True)
            self.assertEnded(call, INTERNAL)

    def test_http(self) -> None:
        """An answer of HTTP has the status of its own, also if a body follows."""
        for code, status in (
            (400, INTERNAL),
            (401, UNAUTHENTICATED),
            (403, PERMISSION_DENIED),
            (404, UNIMPLEMENTED),
            (429, UNAVAILABLE),
            (502, UNAVAILABLE),
            (503, UNAVAILABLE),
            (504, UNAVAILABLE),
            (302, UNKNOWN),
            (500, UNKNOWN),
        ):
            for isLast in (True, False):
                call = self.begin(b"")
                fields = [(":status", str(code)), ("content-type", "text/html")]
                self.server.headers(1, fields, isLast)
                self.assertEqual(self.server.resets(), {} if isLast else {1: 8})
                self.server.data(1, b"<html>", True)
                self.assertEnded(call, status, f"HTTP status {code}")

    def test_statusOverHTTP(self) -> None:
        """The status of gRPC counts, if both are there."""
        call = self.begin(b"")
        self.server.headers(1, [(":status", "503"), ("grpc-status", "5")], True)
        self.assertEnded(call, NOT_FOUND)

    def test_contentType(self) -> None:
        """An answer that is not gRPC's is UNKNOWN, and its type is told."""
        for value in ("text/html", "application/grpcweb", "application/json"):
            call = self.begin(b"")
            self.server.headers(1, [(":status", "200"), ("content-type", value)])
            self.assertEnded(call, UNKNOWN, value)
        call = self.begin(b"")
        self.server.headers(1, [(":status", "200")])
        self.assertEnded(call, UNKNOWN)
        for value in ("application/grpc+proto", "application/grpc;charset=utf-8"):
            call = self.begin(b"")
            self.server.headers(1, [(":status", "200"), ("content-type", value)])
            self.server.headers(1, OK, True)
            self.assertEnded(call, 0)

    def test_resets(self) -> None:
        """The codes of resets are mapped as the specification says."""
        for code, status in (
            (0, INTERNAL),
            (1, INTERNAL),
            (2, INTERNAL),
            (3, INTERNAL),
            (4, INTERNAL),
            (5, UNKNOWN),
            (6, INTERNAL),
            (8, CANCELLED),
            (9, INTERNAL),
            (10, INTERNAL),
            (11, RESOURCE_EXHAUSTED),
            (12, PERMISSION_DENIED),
            (13, UNKNOWN),
            (99, UNKNOWN),
        ):
            call = self.begin()
            self.server.reset(1, code)
            self.assertEnded(call, status, "192.0.2.1:443 reset the call")

    def test_messagesFirst(self) -> None:
        """The messages that came before a status are read before it."""
        call = self.begin()
        ended = call.ended()
        self.server.answer(1, framed(b"a") + framed(b"b"), [("grpc-status", "5")])
        self.assertNoResult(ended)
        # The server needs nothing more.
        self.assertEqual(self.server.resets(), {1: 0})
        self.assertFalse(call.send(b"late"))
        room = call.drained()
        self.assertNoResult(room)
        self.channel.turn(0.02)
        self.successResultOf(room)
        self.assertEqual(self.successResultOf(self.read(call)), b"a")
        self.assertNoResult(ended)
        self.assertEqual(self.successResultOf(self.read(call)), b"b")
        self.assertEqual(self.successResultOf(ended)[0], NOT_FOUND)

    def test_interim(self) -> None:
        """Interim answers are passed over."""
        call = self.begin(b"")
        for code in ("100", "103"):
            self.server.headers(1, [(":status", code), ("link", "</x>")])
        self.server.answer(1, framed(b"y"))
        self.assertEqual(self.successResultOf(self.read(call)), b"y")
        self.assertEnded(call, 0)

    def test_cancel(self) -> None:
        """A call that is cancelled resets its stream; answers that cross with that are ignored."""
        call = self.begin()
        call.cancel()
        self.assertEnded(call, CANCELLED)
        self.assertEqual(self.server.resets(), {1: 8})
        self.server.answer(1, framed(b"y"))
        self.assertFalse(self.server.transport.disconnecting)

    def test_manyCancelled(self) -> None:
        """Thousands of calls may be cancelled while their answers are on the way."""
        self.begin()
        count = rounds(2000, 5000)
        calls = [self.channel.engine.call("/a.B/C", CallOptions(), b"") for _ in range(count)]
        self.channel.turn()
        for call in calls:
            call.cancel()
        self.channel.turn()
        for number in range(3, 2 * count + 3, 2):
            self.server.headers(number, [*HEAD, *OK], True)
        self.assertIsNone(self.channel.engine._connection.core.failure)  # type: ignore[union-attr]

    def test_deadline(self) -> None:
        """The deadline is sent, and kept here as well."""
        self.patch(clientcall, "time", SimpleNamespace(time=lambda: 1000.0))
        for seconds, value in ((0.05, "50m"), (5, "5000m"), (86_400 * 3, "259200S")):
            call = self.begin(options=CallOptions(deadline=1000 + seconds))
            self.assertEqual(self.server.requests[1]["grpc-timeout"], value)
            call.cancel()
        call = self.begin(options=CallOptions(deadline=1090))
        self.channel.turn(61)
        self.channel.turn(28)
        self.assertNoResult(call.ended())
        self.channel.turn(2)
        self.assertEnded(call, DEADLINE_EXCEEDED)
        self.assertEqual(self.server.resets(), {1: 8})


class MessageTests(ClientCallCase):
    """Messages, and how far they run ahead."""

    def test_readMistake(self) -> None:
        """A read that finds a mistake ends with the call, also behind messages that wait."""
        for fields, waiting, mistake in (
            (HEAD, 70, b"\7\0\0\0\0"),
            ([*HEAD, ("grpc-encoding", "gzip")], 0, b"\1\0\0\0\2zz"),
        ):
            call = self.begin()
            self.server.headers(1, fields)
            self.server.data(1, framed(b"q") * waiting)
            self.server.data(1, mistake)
            message: bytes | None = b""
            while message is not None:
                message = self.successResultOf(self.read(call))
            self.assertEnded(call, INTERNAL)

    def test_sendWindow(self) -> None:
        """What the server does not take stops the sender, also at a window of nothing."""
        call = self.begin(settings={"INITIAL_WINDOW_SIZE": 0})
        sent = 0
        while call.send(bytes(10_000)):
            sent += 1
        self.assertLess(sent, 10)
        room = call.drained()
        self.channel.turn()
        self.server.receive()
        self.assertEqual(self.server.body[1], b"")
        self.assertNoResult(room)
        self.server.send(WindowUpdateFrame(1, window_increment=60_000))
        self.successResultOf(room)
        self.server.receive()
        self.assertEqual(len(self.server.body[1]), 60_000)

    def test_unconnected(self) -> None:
        """What waits for a connection is bounded as well."""
        channel = MemoryChannel()
        call: Any = channel.engine.call("/a.B/C", CallOptions())
        sent = 1
        while call.send(bytes(10_000)):
            sent += 1
        self.assertLess(sent, 10)
        room = call.drained()
        self.assertNoResult(room)
        call.sendEnd()
        server = channel.accept()
        for stream in (0, 1):
            server.send(WindowUpdateFrame(stream, window_increment=50_000))
        self.successResultOf(room)
        server.receive()
        self.assertEqual(server.body[1], framed(bytes(10_000)) * sent)
        self.assertIn("END_STREAM", server.frames[-1].flags)

    def test_receiveWindow(self) -> None:
        """A reader that stops stops the server, and lets it go on by reading."""
        call = self.begin()
        self.server.headers(1, HEAD)
        self.server.data(1, framed(bytes(50_000)) * 5)
        self.assertEqual(self.server.granted(1), 0)
        for _ in range(5):
            self.successResultOf(self.read(call))
        self.assertEqual(self.server.granted(1), 0)
        self.read(call)
        self.channel.turn()
        self.assertEqual(self.server.granted(1), 250_025)

    def test_overWindow(self) -> None:
        """More than the window is an error of the server."""
        call = self.begin()
        self.server.headers(1, HEAD)
        self.server.data(1, bytes(WINDOW + 1))
        self.assertEnded(call, INTERNAL, "window")

    def test_split(self) -> None:
        """Messages may be cut anywhere."""
        wire = framed(b"one") + framed(b"") + framed(b"three" * 10)
        for size in (1, 2, 3, 7, 100):
            call = self.begin()
            self.server.headers(1, HEAD)
            received: list[bytes | None] = []

            def got(message: bytes | None, call: Any = call, received: Any = received) -> None:
                received.append(message)
                if message is not None:
                    call.read(lambda more: got(more, call, received))

            call.read(got)
            for at in range(0, len(wire), size):
                self.server.data(1, wire[at : at + size])
            self.server.headers(1, OK, True)
            self.assertEqual(received, [b"one", b"", b"three" * 10, None])
            self.assertEnded(call, 0)

    def test_manySmall(self) -> None:
        """Thousands of messages in one read are kept as bytes, and read one after the other."""
        call = self.begin()
        self.server.headers(1, HEAD)
        wire = b"".join(framed(b"%d" % number) for number in range(5000))
        self.server.data(1, wire)
        self.server.headers(1, OK, True)
        self.assertLess(len(call._inbox), 5000)
        for number in range(5000):
            self.assertEqual(self.successResultOf(self.read(call)), b"%d" % number)
        self.assertEnded(call, 0)

    def test_compressedRequest(self) -> None:
        """Requests are compressed as the client or the call says."""
        message = b"x" * 1000
        for own, given, encoding in (
            ("gzip", None, "gzip"),
            ("deflate", None, "deflate"),
            (None, "gzip", "gzip"),
            ("gzip", "identity", None),
        ):
            for request in (message, None):
                call = self.begin(request, CallOptions(compression=given), compression=own)
                if request is None:
                    call.send(message)
                    call.sendEnd()
                self.channel.turn()
                self.server.receive()
                self.assertEqual(self.server.requests[1].get("grpc-encoding"), encoding)
                body = self.server.body[1]
                self.assertEqual(body[0], encoding is not None)
                if encoding is not None:
                    body = inflateMessage(encoding, body[5:], 1000)
                self.assertEqual(body[-1000:], message)
                self.assertIn("END_STREAM", self.server.frames[-1].flags)

    def test_compressedResponse(self) -> None:
        """Responses are inflated, beside plain ones."""
        for encoding in ("gzip", "deflate"):
            call = self.begin(b"")
            self.server.headers(1, [*HEAD, ("grpc-encoding", encoding)])
            packed = framed(deflateMessage(encoding, b"y" * 1000, 6), isCompressed=True)
            self.server.data(1, packed + framed(b"z"))
            self.assertEqual(self.successResultOf(self.read(call)), b"y" * 1000)
            self.assertEqual(self.successResultOf(self.read(call)), b"z")

    def test_longRequests(self) -> None:
        """A request over the limit ends its call, before anything of it is sent."""
        call = self.begin(maxSendMessageLength=10)
        self.assertFalse(call.send(bytes(11)))
        self.assertEnded(call, RESOURCE_EXHAUSTED, "11 vs. 10")
        channel = MemoryChannel(maxSendMessageLength=10)
        single = channel.engine.call("/a.B/C", CallOptions(), bytes(11))
        self.assertEqual(self.successResultOf(single.ended())[0], RESOURCE_EXHAUSTED)
        self.assertEqual(channel.attempts, 0)

    def test_lateRequests(self) -> None:
        """Messages after their end are not sent."""
        call = self.begin()
        call.sendEnd()
        self.assertFalse(call.send(b"late"))
        call.sendEnd()
        self.channel.turn()
        self.server.receive()
        self.assertEqual(self.server.body[1], b"")


class LieTests(ClientCallCase):
    """Servers that do not keep to the protocol."""

    def answered(self, body: bytes, *head: tuple[str, str], trailers: Any = OK, **own: Any) -> Any:
        """Begin a call, answer, and read one message; return the call."""
        call = self.begin(b"", **own)
        call.read(lambda message: None)
        self.server.headers(1, [*HEAD, *head])
        self.server.data(1, body)
        if trailers is not None:
            self.server.headers(1, trailers, True)
        return call

    def test_cut(self) -> None:
        """An end within a message is INTERNAL, unless the server says why."""
        for body in (b"\0", framed(b"abc")[:-1]):
            self.assertEnded(self.answered(body), INTERNAL, "responses end within a message")
        call = self.answered(b"\0", trailers=[("grpc-status", "5")])
        self.assertEnded(call, NOT_FOUND)
        call = self.begin(b"")
        self.server.headers(1, HEAD)
        self.server.data(1, framed(b"abc")[:-1], True)
        self.assertEnded(call, INTERNAL, "within a message")

    def test_noStatus(self) -> None:
        """An answer without a status is not OK."""
        call = self.begin(b"")
        self.server.headers(1, HEAD)
        self.server.data(1, framed(b"abc"), True)
        self.successResultOf(self.read(call))
        self.assertEnded(call, INTERNAL, "without a status")
        call = self.begin(b"")
        self.server.headers(1, HEAD)
        self.server.headers(1, [("x-a", "b")], True)
        self.assertEnded(call, UNKNOWN, "no grpc-status")
        call = self.begin(b"")
        self.server.headers(1, HEAD, True)
        self.assertEnded(call, UNKNOWN, "no grpc-status")

    def test_badStatus(self) -> None:
        """A status that does not exist is UNKNOWN, and told."""
        for value in ("17", "-1", "abc", "", "+5", "5 ", "4294967296"):
            call = self.begin(b"")
            fields = [("grpc-status", value.strip()), ("grpc-message", "why")]
            if value != value.strip():
                continue
            self.server.headers(1, [*HEAD, *fields], True)
            self.assertEnded(call, UNKNOWN, repr(value), "why")

    def test_flags(self) -> None:
        """Flags other than 0 and 1, and compression without an encoding, are INTERNAL."""
        self.assertEnded(self.answered(b"\2" + framed(b"x")[1:]), INTERNAL, "flag 2")
        self.assertEnded(self.answered(b"\1" + framed(b"x")[1:]), INTERNAL, "grpc-encoding")
        for encoding in ("br", "gzip", "deflate"):
            call = self.answered(b"\1" + framed(b"x")[1:], ("grpc-encoding", encoding))
            self.assertEnded(call, INTERNAL)

    def test_twoHeads(self) -> None:
        """A second head is INTERNAL."""
        call = self.begin(b"")
        self.server.headers(1, HEAD)
        self.server.headers(1, HEAD)
        self.assertEnded(call, INTERNAL, "trailers that do not end their stream")

    def test_afterTrailers(self) -> None:
        """What follows the status changes nothing."""
        call = self.begin(b"")
        self.server.answer(1, framed(b"y"))
        self.server.data(1, framed(b"z"))
        self.server.headers(1, [("grpc-status", "5")], True)
        self.assertEqual(self.successResultOf(self.read(call)), b"y")
        self.assertEnded(call, 0)

    def test_noHead(self) -> None:
        """Messages without a head are INTERNAL."""
        call = self.begin(b"")
        self.server.data(1, framed(b"y"))
        self.assertEnded(call, INTERNAL, "DATA before the head")

    def test_malformedHeads(self) -> None:
        """Heads that HTTP/2 forbids are INTERNAL."""
        for fields in (
            [("content-type", "application/grpc")],
            [(":status", "2xx"), *HEAD[1:]],
            [(":status", "101"), *HEAD[1:]],
            [*HEAD, (":status", "200")],
            [*HEAD, ("Upper", "x")],
            [*HEAD, ("x", "a\nb")],
            [*HEAD, ("connection", "close")],
        ):
            call = self.begin(b"")
            self.server.headers(1, fields)
            self.assertEnded(call, INTERNAL, "192.0.2.1:443 broke the protocol")

    def test_badMetadata(self) -> None:
        """Metadata that are not base64 are INTERNAL, at either end."""
        call = self.begin(b"")
        self.server.headers(1, [*HEAD, ("x-a-bin", "!!")])
        self.assertEnded(call, INTERNAL, "x-a-bin")
        call = self.answered(b"", trailers=[*OK, ("x-a-bin", "!!")])
        self.assertEnded(call, INTERNAL, "x-a-bin")

    def test_longHeads(self) -> None:
        """Header fields over the limit are RESOURCE_EXHAUSTED; the connection goes on."""
        fields = [(f"x-{number}", "v" * 100) for number in range(125)]
        call = self.begin(b"")
        self.server.headers(1, [*HEAD, *fields])
        self.assertEnded(call, RESOURCE_EXHAUSTED, "too large")
        call = self.answered(b"", trailers=[*OK, *fields])
        self.assertEnded(call, RESOURCE_EXHAUSTED, "too large")
        self.assertFalse(self.server.transport.disconnecting)

    def test_endlessHeads(self) -> None:
        """A header block without an end costs the connection, and no memory."""
        call = self.begin(b"")
        self.server.send(HeadersFrame(1, data=self.server.encoder.encode(HEAD)))
        for _ in range(100):
            self.server.send(ContinuationFrame(1, data=b"\0\1a\x7f\xff\x7f" + bytes(16_000)))
            if self.server.transport.disconnecting:
                break
        self.assertTrue(self.server.transport.disconnecting)
        self.assertEnded(call, RESOURCE_EXHAUSTED, "header block")

    def test_longMessages(self) -> None:
        """A message over the limit ends its call with its prefix, before it has arrived."""
        call = self.answered(b"\0\0\0\0\x65", trailers=None, maxReceiveMessageLength=100)
        self.assertEnded(call, RESOURCE_EXHAUSTED, "101 vs. 100")
        self.assertEqual(self.server.resets(), {1: 8})

    def test_bombs(self) -> None:
        """A compressed message over the limit is RESOURCE_EXHAUSTED, and is not inflated."""
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = packer.compress(bytes(50 << 20)) + packer.flush()
        call = self.answered(
            framed(bomb, isCompressed=True), ("grpc-encoding", "gzip"), trailers=None
        )
        self.assertEnded(call, RESOURCE_EXHAUSTED, "larger than max")

    def test_longFrames(self) -> None:
        """A frame over the limit ends the connection."""
        call = self.begin(b"")
        self.server.wire((70_000).to_bytes(3, "big") + b"\0\0\0\0\0\1")
        self.assertTrue(self.server.transport.disconnecting)
        self.assertEnded(call, UNAVAILABLE, "a frame is too long")

    def test_length(self) -> None:
        """A body that is not as long as it says is INTERNAL."""
        call = self.answered(framed(b"abc"), ("content-length", "7"))
        self.assertEnded(call, INTERNAL, "declared length")
        call = self.answered(b"", ("content-length", "x"))
        self.assertEnded(call, INTERNAL, "content-length")

    def test_empty(self) -> None:
        """A flood of frames that do no work ends the connection."""
        call = self.begin(b"")
        self.server.headers(1, HEAD)
        for _ in range(200):
            self.server.send(*[DataFrame(1, data=b"")] * 100)
            if self.server.transport.disconnecting:
                break
        self.assertTrue(self.server.transport.disconnecting)
        self.assertEnded(call, RESOURCE_EXHAUSTED)

    def test_callbacks(self) -> None:
        """A reader that fails costs its own call, not the others."""
        call = self.begin()
        other = self.channel.engine.call("/a.B/C", CallOptions(), b"")
        self.channel.turn()

        def fail(message: bytes | None) -> None:
            raise ZeroDivisionError

        call.read(fail)
        self.server.headers(1, HEAD)
        self.server.data(1, framed(b"x"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.status(call)[0], INTERNAL)
        self.server.answer(3, b"")
        self.assertEqual(self.successResultOf(other.ended())[0], 0)
