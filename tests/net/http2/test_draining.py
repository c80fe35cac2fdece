"""Connections of a site that stops."""

from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2 import frames
from tests.net.http2.support import Peer
from tests.net.support import TestSite, hello

LAST = 2**31 - 1


class DrainTests(SynchronousTestCase):
    """Draining loses no request."""

    def setUp(self) -> None:
        """Answer when told."""
        self.turns: list[Deferred[None]] = []
        self.site = TestSite(self.wait)
        self.peer = Peer(self.site)

    async def wait(self, request: ChannelRequest) -> None:
        """Answer later."""
        turn: Deferred[None] = Deferred()
        self.turns.append(turn)
        await turn
        request.respond(200, [], b"answered")

    def test_twice(self) -> None:
        """The client is warned first, and what it has sent by then is served."""
        first = self.peer.begin()
        drained = self.site.site.drain(30.0)
        # A request that crosses the first GOAWAY.
        number = self.peer.wire.get_next_available_stream_id()
        self.peer.wire.send_headers(
            number,
            [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")],
            end_stream=True,
        )
        self.peer.answers[number] = self.peer.answers[first].__class__()
        crossed = self.peer.wire.data_to_send()
        warned = self.peer.transport.value()
        self.assertIn((LAST).to_bytes(4, "big"), warned)
        self.peer.server.dataReceived(crossed)
        self.peer.pump()
        self.assertEqual(self.peer.goAways[0], (LAST, 0))
        self.assertEqual(self.peer.goAways[-1], (number, 0))
        self.assertNoResult(drained)
        self.assertFalse(self.peer.transport.disconnecting)
        for turn in self.turns:
            turn.callback(None)
        self.peer.pump()
        answers = [self.peer.answers[each].body for each in (first, number)]
        self.assertEqual(answers, [b"answered"] * 2)
        self.assertTrue(self.peer.transport.disconnecting)
        self.peer.server.connectionLost()
        self.successResultOf(drained)

    def test_noPong(self) -> None:
        """A client that answers no PING gets the last GOAWAY after a second."""
        drained = self.site.site.drain(30.0)
        self.assertEqual(self.peer.transport.value().count(b"\x07\x00\x00\x00\x00\x00"), 1)
        self.site.letPass(3)
        self.assertEqual(self.peer.transport.value().count(b"\x07\x00\x00\x00\x00\x00"), 2)
        self.assertTrue(self.peer.transport.disconnecting)
        self.peer.server.connectionLost()
        self.successResultOf(drained)

    def test_grace(self) -> None:
        """Streams that never end are dropped after the grace."""
        self.peer.begin()
        drained = self.site.site.drain(5.0)
        self.site.letPass(6)
        self.assertTrue(self.peer.transport.disconnected)
        self.peer.server.connectionLost()
        self.successResultOf(drained)

    def test_idleGrace(self) -> None:
        """While another process serves the address, idle clients are told at once."""
        site = TestSite(hello)
        peer = Peer(site)
        drained = site.site.drain(30.0, 5.0)
        peer.pump()
        self.assertEqual([last for last, _ in peer.goAways], [LAST, 0])
        self.assertTrue(peer.transport.disconnecting)
        peer.server.connectionLost()
        self.successResultOf(drained)

    def test_stillSending(self) -> None:
        """
        A client that is still sending gets the last response: its input is discarded, as a close
        with unread input would reset the connection.
        """
        self.peer.begin()
        self.peer.pump()
        self.site.site.drain(30.0)
        self.peer.pump()
        halves: list[str] = []
        client = self.peer.server.client
        client.fileSender = SimpleNamespace(loseWriteConnection=lambda: halves.append("closed"))
        # More than a turn's.
        self.peer.server.dataReceived(frames.frame(frames.PRIORITY, 0, 1, bytes(5)) * 100)
        self.turns[0].callback(None)
        self.assertEqual(halves, ["closed"])
        self.assertFalse(self.peer.transport.disconnecting)

    def test_new(self) -> None:
        """A connection whose preface arrives later is warned as well."""
        site = TestSite(hello)
        connection = site.connect()
        connection.transport.protocol = connection.channel
        connection.channel.dataReceived(b"PRI")
        site.site.drain(30.0)
        connection.channel.dataReceived(b" * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.assertIn((LAST).to_bytes(4, "big"), connection.received())
