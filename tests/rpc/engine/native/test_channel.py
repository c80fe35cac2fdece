"""The channel of a client: connections, their order, and their ends."""

from types import SimpleNamespace
from typing import Any

from hyperframe.frame import DataFrame, GoAwayFrame, HeadersFrame, PingFrame, SettingsFrame
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2.interfaces import HTTP2Limits
from storagegate.rpc.engine.native import channel, clientcall
from storagegate.rpc.interfaces import CallOptions, UnaryResult
from tests.support.channelserver import HEAD, OK, MemoryChannel, ServerSide
from tests.support.h2client import framed

CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE = 1, 4, 8, 14
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11

WAIT = CallOptions(waitForReady=True)


class ChannelCase(SynchronousTestCase):
    """A channel in memory."""

    def setUp(self) -> None:
        """Make it."""
        self.make()

    def make(self, **options: Any) -> None:
        """Make a channel with options."""
        self.channel = MemoryChannel(**options)
        self.engine = self.channel.engine

    def begin(self, options: CallOptions = CallOptions(), request: bytes = b"x") -> Any:  # noqa: B008
        """Make a unary call; return the list that gets its result."""
        results: list[UnaryResult] = []
        self.giveUp = self.engine.exchange("/a.B/C", options, request, results.append)
        self.channel.turn()
        return results

    def answered(self, server: ServerSide, number: int, results: Any) -> None:
        """See that a call is on a stream, and gets its answer."""
        server.receive()
        self.assertEqual(server.body[number], framed(b"x"))
        server.answer(number, framed(b"y"))
        self.assertEqual([(each.status, each.response) for each in results], [(0, b"y")])

    def assertStatus(self, results: Any, status: int, *texts: str) -> None:
        """See how a call has ended."""
        self.channel.turn()
        self.assertEqual([each.status for each in results], [status])
        for text in texts:
            self.assertIn(text, results[0].message)


class ConnectTests(ChannelCase):
    """Connections begin when they are needed."""

    def test_firstUse(self) -> None:
        """The first call connects; calls wait for the server's settings."""
        self.assertEqual(self.channel.attempts, 0)
        results = self.begin()
        server = self.channel.acceptSilently()
        self.channel.turn()
        server.receive()
        self.assertEqual(server.requests, {})
        server.settings()
        self.channel.turn()
        self.answered(server, 1, results)
        self.assertEqual(self.channel.attempts, 1)

    def test_refused(self) -> None:
        """Without a server a call fails, and says of which; one that may wait does."""
        failing, waiting = self.begin(), self.begin(WAIT)
        self.channel.refuse()
        self.assertStatus(failing, UNAVAILABLE, "failed to connect to 192.0.2.1:443", "refused")
        self.assertEqual(waiting, [])
        # At once, until the next attempt.
        self.assertStatus(self.begin(), UNAVAILABLE, "192.0.2.1:443")
        self.channel.turn(1.0)
        self.answered(self.channel.accept(), 1, waiting)

    def test_backoff(self) -> None:
        """The delay grows from a second to two minutes, and begins anew after an answer."""
        results = self.begin(WAIT)
        for seconds in (1.0, 1.6, 2.56, 4.096):
            self.channel.refuse()
            before = self.channel.attempts
            self.channel.turn(seconds - 0.01)
            self.assertEqual(self.channel.attempts, before)
            self.channel.turn(0.02)
            self.assertEqual(self.channel.attempts, before + 1)
        for _ in range(10):
            self.channel.refuse()
            self.channel.turn(121)
        server = self.channel.accept()
        self.answered(server, 1, results)
        server.lose()
        again = self.begin(WAIT)
        self.channel.refuse()
        self.channel.turn(1.01)
        self.answered(self.channel.accept(), 1, again)

    def test_jitter(self) -> None:
        """Clients that failed together do not come back together."""
        delays = {round(channel._BACKOFF.seconds(3, uniform), 3) for uniform in (min, max)}
        self.assertEqual(delays, {3.277, 4.096})

    def test_noAttempts(self) -> None:
        """Without a call that waits, nothing connects; the next call does so at once."""
        self.begin()
        self.channel.refuse()
        self.channel.turn(600)
        self.assertEqual(self.channel.attempts, 1)
        results = self.begin()
        self.answered(self.channel.accept(), 1, results)

    def test_several(self) -> None:
        """The addresses of a list are tried in turn, the next one after a quarter of a second."""
        self.make(target="ipv4:192.0.2.1:1,192.0.2.2:2,192.0.2.3:3")
        results = self.begin()
        self.channel.refuse()
        self.channel.turn(0.3)
        self.channel.turn(0.3)
        places = [each[:2] for each in self.channel.reactor.tcpClients]
        self.assertEqual(places, [("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.3", 3)])
        server = self.channel.accept()
        self.answered(server, 1, results)
        self.assertEqual(server.requests[1][":authority"], "192.0.2.1:1")

    def test_silent(self) -> None:
        """A server that sends no settings in twenty seconds is none."""
        results = self.begin()
        server = self.channel.acceptSilently()
        self.channel.turn(19)
        self.assertEqual(results, [])
        self.channel.turn(2)
        self.assertTrue(server.transport.isAborted)
        server.lose()
        self.assertStatus(results, UNAVAILABLE)

    def test_other(self) -> None:
        """A server that speaks another protocol is unavailable, and the reason is said."""
        for wire in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail.example ESMTP\r\n"):
            self.make()
            results = self.begin()
            server = self.channel.acceptSilently()
            server.wire(wire)
            self.assertTrue(server.transport.disconnecting)
            server.lose()
            self.assertStatus(results, UNAVAILABLE, "failed to connect")

    def test_lostAgain(self) -> None:
        """A server that greets and closes, again and again, is met with delays."""
        results = self.begin(WAIT)
        for _ in range(2):
            server = self.channel.accept(MAX_CONCURRENT_STREAMS=0)
            server.lose()
        self.assertEqual((self.channel.attempts, results), (2, []))
        self.channel.turn(2)
        self.assertEqual(self.channel.attempts, 3)


class StreamsTests(ChannelCase):
    """How many calls a connection carries."""

    def test_limit(self) -> None:
        """Calls over the server's limit wait in their order, and begin as others end."""
        results = [self.begin() for _ in range(4)]
        server = self.channel.accept(MAX_CONCURRENT_STREAMS=2)
        server.receive()
        self.assertEqual([*server.requests], [1, 3])
        self.answered(server, 3, results[1])
        server.receive()
        self.assertEqual([*server.requests], [1, 3, 5])
        self.giveUp()
        self.assertStatus(results[3], CANCELLED)
        self.answered(server, 5, results[2])
        self.answered(server, 1, results[0])
        self.assertEqual(self.engine.waiting, {})
        self.assertEqual(self.engine._waitingBytes, 0)

    def test_raised(self) -> None:
        """A higher limit lets calls begin."""
        results = self.begin()
        server = self.channel.accept(MAX_CONCURRENT_STREAMS=0)
        server.receive()
        self.assertEqual(server.requests, {})
        server.settings(MAX_CONCURRENT_STREAMS=1)
        self.answered(server, 1, results)

    def test_bounded(self) -> None:
        """Not any number of calls waits, nor any size."""
        self.patch(channel, "_MOST_WAITING", 3)
        waiting = [self.begin() for _ in range(3)]
        self.assertStatus(self.begin(), RESOURCE_EXHAUSTED, "3 calls wait for 192.0.2.1:443")
        self.assertEqual(waiting, [[], [], []])
        self.make()
        self.patch(channel, "_WAITING_BYTES", 100_000)
        for _ in range(2):
            self.begin(request=bytes(60_000))
        self.assertStatus(self.begin(), RESOURCE_EXHAUSTED)

    def test_deadline(self) -> None:
        """A call that waits ends at its deadline, and is never sent."""
        import time

        results = self.begin(CallOptions(deadline=time.time() + 5, waitForReady=True))
        self.channel.turn(6)
        self.assertStatus(results, DEADLINE_EXCEEDED)
        server = self.channel.accept()
        self.channel.turn()
        server.receive()
        self.assertEqual(server.requests, {})

    def test_full(self) -> None:
        """While the transport is full, calls wait for it instead of in it."""
        first = self.begin()
        server = self.channel.accept()
        self.answered(server, 1, first)
        server.transport.producer.pauseProducing()
        results = [self.begin() for _ in range(5000)]
        server.receive()
        self.assertEqual([*server.requests], [1])
        server.transport.producer.resumeProducing()
        server.receive()
        self.assertEqual(len(server.requests), 5001)
        self.assertEqual(results[0], [])


class GoAwayTests(ChannelCase):
    """Servers that end their connections."""

    def test_drains(self) -> None:
        """Calls of the old connection end there, new ones begin on the next one."""
        old = self.begin()
        server = self.channel.accept()
        server.receive()
        server.goAway(2**31 - 1)
        server.goAway(1)
        new = self.begin()
        self.assertEqual(self.channel.attempts, 2)
        following = self.channel.accept()
        self.answered(following, 1, new)
        self.assertFalse(server.transport.disconnecting)
        self.answered(server, 1, old)
        self.assertTrue(server.transport.disconnecting)

    def test_beyond(self) -> None:
        """Calls beyond the last stream were not processed: they go to the next connection."""
        first, second = self.begin(), self.begin()
        server = self.channel.accept()
        server.receive()
        server.goAway(1)
        self.answered(server, 1, first)
        self.assertEqual(second, [])
        self.answered(self.channel.accept(), 1, second)

    def test_onlyOnce(self) -> None:
        """They do so once; the text of the server is told."""
        results = self.begin()
        for _ in range(2):
            server = self.channel.accept()
            server.receive()
            server.goAway(0, ENHANCE_YOUR_CALM, b"enough of you")
            server.lose()
        self.assertStatus(results, UNAVAILABLE, "ENHANCE_YOUR_CALM", "enough of you")

    def test_refusedStream(self) -> None:
        """A refused stream is repeated once, on the same connection, with all its messages."""
        call = self.engine.call("/a.B/C", CallOptions(metadata=[("x-a", "b")]))
        for message in (b"one", b"two"):
            call.send(message)
        server = self.channel.accept()
        call.send(b"three")
        call.sendEnd()
        self.channel.turn()
        server.receive()
        server.reset(1, REFUSED_STREAM)
        self.channel.turn()
        server.receive()
        self.assertEqual(server.body[3], framed(b"one") + framed(b"two") + framed(b"three"))
        self.assertEqual(server.requests[3], server.requests[1])
        server.reset(3, REFUSED_STREAM)
        status, text, _ = self.successResultOf(call.ended())
        self.assertEqual(status, UNAVAILABLE)
        self.assertIn("did not process the call (REFUSED_STREAM)", text)

    def test_tooMuchToRepeat(self) -> None:
        """A call that has sent more than is kept is not repeated."""
        call = self.engine.call("/a.B/C", CallOptions())
        server = self.channel.accept()
        call.send(bytes(60_000))
        call.send(bytes(60_000))
        self.channel.turn()
        server.reset(1, REFUSED_STREAM)
        self.assertEqual(self.successResultOf(call.ended())[0], UNAVAILABLE)

    def test_begunIsFinal(self) -> None:
        """A call whose response has begun is not repeated, whatever the server says."""
        results = self.begin()
        server = self.channel.accept()
        server.headers(1, HEAD)
        server.reset(1, REFUSED_STREAM)
        self.assertStatus(results, UNAVAILABLE)

    def test_numbers(self) -> None:
        """A connection whose streams have used all numbers is followed by another one."""
        first = self.begin()
        server = self.channel.accept()
        self.answered(server, 1, first)
        self.engine._connection.core._nextStream = 2**31 - 1  # type: ignore[union-attr]
        last, following = self.begin(), self.begin()
        self.answered(server, 2**31 - 1, last)
        self.assertTrue(server.transport.disconnecting)
        self.answered(self.channel.accept(), 1, following)

    def test_lost(self) -> None:
        """Calls of a connection that is lost are not repeated, and the next call connects."""
        results = self.begin()
        server = self.channel.accept()
        server.lose()
        self.assertStatus(results, UNAVAILABLE, "the connection to 192.0.2.1:443 was lost")
        again = self.begin()
        self.answered(self.channel.accept(), 1, again)

    def test_broken(self) -> None:
        """A call after a mistake of the server connects before the old connection has closed."""
        results = self.begin()
        server = self.channel.accept()
        self.answered(server, 1, results)
        server.wire(b"\0\0\4\3\0\0\0\0\0abcd")
        again = self.begin()
        self.answered(self.channel.accept(), 1, again)

    def test_crossing(self) -> None:
        """Responses that cross the cancellations of their calls leave the connection alone."""
        self.engine.limits = HTTP2Limits(control=100)
        kept = self.begin()
        server = self.channel.accept()
        cancelled: list[UnaryResult] = []
        cancels = [
            self.engine.exchange("/a.B/C", CallOptions(), b"x", cancelled.append)
            for _ in range(300)
        ]
        self.channel.turn()
        server.receive()
        for cancel in cancels:
            cancel()
        self.channel.turn()
        self.assertEqual(len(cancelled), len(cancels))
        head, end = (server.encoder.encode(each) for each in (HEAD, OK))
        for number in list(server.requests)[1:]:
            server.send(
                HeadersFrame(number, data=head, flags=["END_HEADERS"]),
                DataFrame(number, data=framed(b"y")),
                HeadersFrame(number, data=end, flags=["END_HEADERS", "END_STREAM"]),
            )
        self.answered(server, 1, kept)
        self.assertEqual(set(server.resets().values()), {CANCEL})

    def test_uninvited(self) -> None:
        """A server that sends frames of closed streams without end loses the connection."""
        self.engine.limits = HTTP2Limits(control=100)
        first, second = self.begin(), self.begin()
        server = self.channel.accept()
        self.answered(server, 1, first)
        block = server.encoder.encode(HEAD)
        frame = HeadersFrame(1, data=block, flags=["END_HEADERS"]).serialize()
        server.wire(frame * 90)
        self.channel.turn()
        self.assertEqual(second, [])
        server.wire(frame * 20)
        self.assertStatus(second, RESOURCE_EXHAUSTED, "too many frames that do no work")


class PingTests(ChannelCase):
    """Pings and idle connections."""

    def test_keepalive(self) -> None:
        """A server that is silent is pinged, and left if it does not answer."""
        self.make(keepaliveTimeMs=10_000, keepaliveTimeoutMs=2000)
        results = self.begin()
        server = self.channel.accept()
        self.channel.turn(10)
        # The settings were data.
        self.assertEqual(server.pings(), [])
        self.channel.turn(10)
        [ping] = server.pings()
        server.send(PingFrame(0, opaque_data=ping.opaque_data, flags=["ACK"]))
        self.channel.turn(10)
        self.assertEqual(len(server.pings()), 2)
        self.channel.turn(2.1)
        self.assertTrue(server.transport.isAborted)
        server.lose()
        self.assertStatus(results, UNAVAILABLE, "lost")

    def test_withoutCalls(self) -> None:
        """Without a call there is a ping only on demand."""
        for wanted in (False, True):
            self.make(keepaliveTimeMs=10_000, keepalivePermitWithoutCalls=wanted)
            results = self.begin()
            server = self.channel.accept()
            self.answered(server, 1, results)
            for _ in range(3):
                self.channel.turn(10)
            self.assertEqual(bool(server.pings()), wanted)

    def test_tooMany(self) -> None:
        """A server that complains of pings gets half as many."""
        self.make(keepaliveTimeMs=10_000)
        results = self.begin()
        server = self.channel.accept()
        self.answered(server, 1, results)
        server.goAway(1, ENHANCE_YOUR_CALM, b"too_many_pings")
        self.assertEqual(self.engine.options.keepalive, 20.0)

    def test_idle(self) -> None:
        """A connection without calls is closed, with a farewell; the next call connects."""
        self.make(maxConnectionIdle=60_000)
        results = self.begin()
        server = self.channel.accept()
        self.channel.turn(100)
        self.answered(server, 1, results)
        self.channel.turn(50)
        self.assertFalse(server.transport.disconnecting)
        self.channel.turn(20)
        self.channel.turn(20)
        self.assertTrue(server.transport.disconnecting)
        self.assertIsInstance(server.receive()[-1], GoAwayFrame)
        server.lose()
        again = self.begin()
        self.answered(self.channel.accept(), 1, again)

    def test_idleWithPings(self) -> None:
        """Pings of either side do not keep an idle connection open."""
        for options in ({}, {"keepaliveTimeMs": 20_000, "keepalivePermitWithoutCalls": True}):
            self.make(maxConnectionIdle=60_000, **options)
            results = self.begin()
            server = self.channel.accept()
            self.answered(server, 1, results)
            for _ in range(13):
                self.channel.turn(5)
                server.send(PingFrame(0, opaque_data=b"12345678"))
                for ping in server.pings():
                    server.send(PingFrame(0, opaque_data=ping.opaque_data, flags=["ACK"]))
            self.assertTrue(server.transport.disconnecting)

    def test_answersPings(self) -> None:
        """The pings of a server are answered."""
        self.begin()
        server = self.channel.accept()
        server.send(PingFrame(0, opaque_data=b"12345678"))
        [pong] = server.pings()
        self.assertEqual((pong.opaque_data, pong.flags), (b"12345678", {"ACK"}))

    def test_forgiven(self) -> None:
        """Pings in the course of months do not add up to a flood."""
        results = self.begin()
        server = self.channel.accept()
        for _ in range(12):
            self.channel.turn(10_000)
            server.wire(PingFrame(0, opaque_data=b"12345678").serialize() * 1000)
        self.answered(server, 1, results)


class CloseTests(ChannelCase):
    """The end of a channel."""

    def test_close(self) -> None:
        """Calls are cancelled, the server is told, and nothing runs afterwards."""
        self.make(keepaliveTimeMs=1000)
        running = self.begin()
        server = self.channel.accept(MAX_CONCURRENT_STREAMS=1)
        waiting = self.begin()
        closed: Deferred[None] = self.engine.close()
        self.assertStatus(running, CANCELLED)
        self.assertStatus(waiting, CANCELLED)
        self.assertEqual(server.resets(), {1: CANCEL})
        self.assertIsInstance(server.frames[-1], GoAwayFrame)
        self.assertNoResult(closed)
        server.lose()
        self.successResultOf(closed)
        self.assertEqual(self.channel.reactor.getDelayedCalls(), [])

    def test_closedAtDeadline(self) -> None:
        """A close at the deadline of a call leaves no timer of other calls."""
        self.patch(clientcall, "time", SimpleNamespace(time=lambda: 1000.0))
        first, far = (
            self.engine.call("/a.B/C", CallOptions(deadline=1000 + seconds), b"x")
            for seconds in (60, 600)
        )
        server = self.channel.accept()
        first.ended().addCallback(lambda ended: self.engine.close())
        self.channel.turn(60.02)
        self.assertEqual(self.successResultOf(far.ended())[0], CANCELLED)
        server.lose()
        self.assertEqual(self.channel.reactor.getDelayedCalls(), [])

    def test_stubborn(self) -> None:
        """A server that does not close is left after a second."""
        results = self.begin()
        server = self.channel.accept()
        self.answered(server, 1, results)
        self.engine.close()
        self.channel.turn(1.1)
        self.assertTrue(server.transport.isAborted)
        server.lose()

    def test_connecting(self) -> None:
        """An attempt to connect ends with the channel, and so does a pause between two."""
        results = self.begin()
        closed = self.engine.close()
        self.assertStatus(results, CANCELLED)
        self.successResultOf(closed)
        self.assertTrue(self.channel.reactor.connectors[0].stoppedConnecting)
        self.make()
        self.begin(WAIT)
        self.channel.refuse()
        self.successResultOf(self.engine.close())
        self.assertEqual(self.channel.reactor.getDelayedCalls(), [])

    def test_greeting(self) -> None:
        """So does a connection whose server has not greeted."""
        results = self.begin()
        server = self.channel.acceptSilently()
        closed = self.engine.close()
        self.assertStatus(results, CANCELLED)
        server.lose()
        self.successResultOf(closed)
        self.assertEqual(self.channel.reactor.getDelayedCalls(), [])


class HeadTests(ChannelCase):
    """What the server gets to see."""

    def test_fields(self) -> None:
        """The head has the fields of the specification, those that are metadata among them."""
        metadata = [("x-name", "a"), ("x-raw-bin", b"\0\xff")]
        self.begin(CallOptions(metadata))
        server = self.channel.accept()
        server.receive()
        found = dict(server.requests[1])
        self.assertRegex(found.pop("user-agent"), r"^storagegate/\d")
        self.assertEqual(
            found,
            {
                ":method": "POST",
                ":scheme": "http",
                ":path": "/a.B/C",
                ":authority": "192.0.2.1:443",
                "te": "trailers",
                "content-type": "application/grpc",
                "grpc-accept-encoding": "identity,gzip,deflate",
                "x-name": "a",
                "x-raw-bin": "AP8",
            },
        )

    def test_repeated(self) -> None:
        """The fields that repeat take a byte each from the second call on."""
        server = None
        for number in (1, 3, 5):
            self.begin()
            server = server or self.channel.accept()
            server.receive()
            self.assertEqual(server.requests[number], server.requests[1])
        assert server is not None
        self.assertGreater(len(server.blocks[1]), 100)
        self.assertEqual(len(server.blocks[5]), 8)

    def test_table(self) -> None:
        """The table follows the limit of the server's decoder, also to nothing."""
        self.begin()
        server = self.channel.accept()
        server.receive()
        for size in (0, 4096, 100, 65_536):
            server.decoder.max_allowed_table_size = size
            server.settings(HEADER_TABLE_SIZE=size)
            for _ in range(3):
                self.begin()
                server.receive()
            self.assertEqual(len({str(each) for each in server.requests.values()}), 1)
            self.assertLessEqual(server.decoder.header_table_size, min(size, 4096))

    def test_methods(self) -> None:
        """Any number of methods has a table of bounded size."""
        for number in range(200):
            self.engine.call(f"/a.B/Method{number}", CallOptions(), b"")
        server = self.channel.accept()
        self.channel.turn()
        server.receive()
        paths = [each[":path"] for each in server.requests.values()]
        self.assertEqual(paths, [f"/a.B/Method{number}" for number in range(200)])

    def test_settings(self) -> None:
        """Nothing may be pushed, and the limits are announced."""
        self.begin()
        server = self.channel.accept()
        server.receive()
        settings = next(each for each in server.frames if isinstance(each, SettingsFrame))
        self.assertEqual(settings.settings[SettingsFrame.ENABLE_PUSH], 0)
        self.assertEqual(settings.settings[SettingsFrame.MAX_HEADER_LIST_SIZE], 16 * 1024)

    def test_lateMetadata(self) -> None:
        """Trailers have metadata of their own, those alone included."""
        results = self.begin()
        server = self.channel.accept()
        fields = [*HEAD, *OK, ("x-end", "1"), ("x-end-bin", "AP8,AA")]
        server.headers(1, fields, isLast=True)
        self.assertEqual(results[0].metadata, ())
        self.assertEqual(
            results[0].trailers,
            [("x-end", "1"), ("x-end-bin", b"\0\xff"), ("x-end-bin", b"\0")],
        )
