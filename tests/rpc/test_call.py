"""What handlers and middleware see of a call, and the stream of a client's messages."""

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from storagegate.rpc.call import READ_AHEAD, Call, CallMetadata, RequestStream, wireMetadata
from storagegate.rpc.interfaces import IServerCall
from tests.support.rpcwire import FakeServerCall

ENTRIES = (("a", "1"), ("b-bin", b"\xff"), ("a", "2"))


class MetadataTests(SynchronousTestCase):
    """What comes and goes beside calls."""

    def test_get(self) -> None:
        """All values of a name are there in their order; names are in any case."""
        metadata = CallMetadata(ENTRIES)
        self.assertEqual(metadata.get("A"), ["1", "2"])
        self.assertEqual(metadata.get("b-bin"), [b"\xff"])
        self.assertEqual(metadata.get("c"), [])

    def test_map(self) -> None:
        """The map has the first value of each name."""
        self.assertEqual(CallMetadata(ENTRIES).getMap(), {"a": "1", "b-bin": b"\xff"})
        self.assertEqual(list(CallMetadata(ENTRIES)), list(ENTRIES))
        self.assertEqual(len(CallMetadata(ENTRIES)), 3)
        self.assertIn("A", CallMetadata(ENTRIES))
        self.assertNotIn("c", CallMetadata(ENTRIES))

    def test_wire(self) -> None:
        """Values are single or several, text, numbers or bytes."""
        given = {"X-A": "1", "b": ["2", 3], "c-bin": b"\0"}
        expected = [("x-a", "1"), ("b", "2"), ("b", "3"), ("c-bin", b"\0")]
        self.assertEqual(wireMetadata(given), expected)
        # HTTP/2 has no spaces around values.
        self.assertEqual(wireMetadata({"a": " b c ", "d": " "}), [("a", "b c"), ("d", "")])

    def test_refused(self) -> None:
        """What gRPC cannot carry is refused, and the error names it."""
        for name, value in (
            ("a b", "1"),
            ("", "1"),
            ("grpc-status", "0"),
            (":path", "/"),
            ("Content-Length", "3"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("te", "gzip"),
            ("Host", "elsewhere"),
            ("content-type", "text/html"),
            ("a\r\n", "1"),
            ("a", "1\r\nb: 2"),
            ("a", "é"),
            ("a", b"1"),
            ("a", None),
            ("a", True),
            ("a-bin", "text"),
        ):
            error = self.assertRaises(ValueError, wireMetadata, {name: value})
            self.assertIn(repr(name)[1:-1] or "''", str(error))


class CallTests(SynchronousTestCase):
    """The call itself."""

    def test_facts(self) -> None:
        """A call knows its method, its metadata, its deadline and its client."""
        wire = FakeServerCall("/pkg.Svc/Get", ENTRIES, 5.0)
        verifyObject(IServerCall, wire)
        call = Call(wire, "pkg.Svc", "Get")
        self.assertEqual((call.service, call.method, call.path), ("pkg.Svc", "Get", "/pkg.Svc/Get"))
        self.assertEqual(call.metadata.get("a"), ["1", "2"])
        self.assertIs(call.metadata, call.metadata)
        self.assertEqual(call.deadline, 5.0)
        self.assertIsNone(call.user)
        self.assertEqual(call.authContext, {})
        self.assertFalse(call.cancelled)
        wire.leave()
        self.assertTrue(call.cancelled)

    def test_peer(self) -> None:
        """The peer is an address and a port, or a socket's path."""
        for wire, peer in (
            ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
            ("ipv6:[::1]:5000", "[::1]:5000"),
            ("unix:/run/s", "unix:/run/s"),
            ("unix:", "unix:"),
        ):
            self.assertEqual(Call(FakeServerCall(address=wire), "s", "m").getPeer(), peer)

    def test_metadata(self) -> None:
        """Initial metadata go out at once, trailers with the status; the last ones stand."""
        wire = FakeServerCall()
        call = Call(wire, "s", "m")
        call.sendMetadata({"a": "1"})
        self.assertEqual(wire.begun, [("a", "1")])
        call.setTrailers({"b": "2"})
        call.setTrailers({"c": "3"})
        self.assertEqual(call.trailers, [("c", "3")])
        self.assertRaises(ValueError, call.sendMetadata, {"a b": "1"})

    def test_noStream(self) -> None:
        """A call with one request is no stream of them."""
        error = self.assertRaises(TypeError, aiter, Call(FakeServerCall(), "s", "Get"))
        self.assertIn("Get takes one request", str(error))


class StreamTests(SynchronousTestCase):
    """A client's stream."""

    def setUp(self) -> None:
        """Make a stream, and what reads it all."""
        self.wire = FakeServerCall()
        self.stream = RequestStream(self.wire, bytes.decode)
        self.seen: list[str] = []

    def readAll(self) -> Deferred[None]:
        """Read until the end."""

        async def read() -> None:
            async for message in self.stream:
                self.seen.append(message)

        return Deferred.fromCoroutine(read())

    def test_read(self) -> None:
        """Messages come in order, those that are there at once, and the end after them."""
        self.wire.arrive(b"a", b"b")
        reading = self.readAll()
        self.assertEqual(self.seen, ["a", "b"])
        self.assertNoResult(reading)
        self.wire.arrive(b"c", None)
        self.successResultOf(reading)
        self.assertEqual(self.seen, ["a", "b", "c"])

    def test_again(self) -> None:
        """After its end a stream stays at its end."""
        self.wire.arrive(None)
        for _ in range(2):
            self.successResultOf(self.readAll())

    def test_bounded(self) -> None:
        """No more than a few messages are fetched before the handler asks."""
        self.readAll()
        self.assertEqual(self.wire.ahead, READ_AHEAD)

    def test_cancel(self) -> None:
        """The wait can be cancelled; a message that arrives later does no harm."""
        reading = self.readAll()
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.wire.arrive(b"a")

    def test_twoReaders(self) -> None:
        """A second reader is told so, and the first one goes on."""
        first = self.readAll()
        self.failureResultOf(self.readAll(), RuntimeError)
        self.wire.arrive(b"a", None)
        self.successResultOf(first)
        self.assertEqual(self.seen, ["a"])

    def test_badMessage(self) -> None:
        """A message that cannot be decoded is raised where it is read."""
        self.wire.arrive(b"\xff")
        self.failureResultOf(self.readAll(), UnicodeDecodeError)

    def test_unreadAfterCancel(self) -> None:
        """After a cancelled wait the stream can be read on, and no message is lost."""
        cancelled = self.readAll()
        cancelled.cancel()
        self.failureResultOf(cancelled, CancelledError)
        reading = self.readAll()
        self.wire.arrive(b"a", None)
        self.successResultOf(reading)
        self.assertEqual(self.seen, ["a"])

    def test_afterLeave(self) -> None:
        """Who reads on although its client has left is cancelled, again and again."""
        reading = self.readAll()
        self.wire.leave()
        reading.cancel()
        self.failureResultOf(reading, CancelledError)
        self.failureResultOf(self.readAll(), CancelledError)
