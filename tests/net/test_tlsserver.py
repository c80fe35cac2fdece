"""The server side of TLS connections, without sockets."""

import contextlib
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from OpenSSL.SSL import Error
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHandshakeListener,
    IProtocolNegotiationFactory,
    ISSLTransport,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from storagegate.net.certificates import withOptions
from storagegate.net.servercontexts import NoApplicationProtocol
from storagegate.net.tls import ServerTLSOptions, describeError
from storagegate.net.tlsserver import ServerTLSFactory
from tests.support.certificates import Authority

_APPLICATION_DATA = 23


@implementer(IHandshakeListener)
class Served(Protocol):
    """
    A protocol that keeps what it gets.

    @ivar greeting: Written as soon as there is a connection.
    """

    greeting = b""

    def __init__(self) -> None:
        self.received = b""
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.reason: Any = None

    def connectionMade(self) -> None:
        """Write."""
        self.events.append("made")
        assert self.transport is not None
        if self.greeting:
            self.transport.write(self.greeting)

    def handshakeCompleted(self) -> None:
        """Remember it."""
        self.events.append("completed")

    def dataReceived(self, data: bytes) -> None:
        """Keep it."""
        self.received += data
        self.pieces.append(len(data))

    def connectionLost(self, reason: Any = None) -> None:
        """Keep the reason."""
        self.events.append("lost")
        self.reason = reason.value


@implementer(IProtocolNegotiationFactory)
class Negotiating(Factory):
    """A factory with a choice of protocols."""

    protocol = Served

    def acceptableProtocols(self) -> list[bytes]:
        """Return them, the best first."""
        return [b"h2", b"http/1.1"]


class Producer:
    """A producer that counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        """Count."""
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        """Count."""
        self.calls.append("resume")

    def stopProducing(self) -> None:
        """Count."""
        self.calls.append("stop")


class ServerCase(SynchronousTestCase):
    """A connection of a client to a server."""

    version = ssl.TLSVersion.TLSv1_3

    def setUp(self) -> None:
        """Connect."""
        folder = Path(self.mktemp())
        self.authority = Authority(folder)
        cert, key = self.authority.issue()
        self.certificates = withOptions(ServerTLSOptions(cert=cert, key=key))
        self.clock = Clock()
        self.connect()

    def connect(
        self, greeting: bytes = b"", offered: Sequence[str] = (), wrapped: Factory | None = None
    ) -> None:
        """
        Make a connection, without its handshake.

        @param offered: The protocols that the client offers.
        @param wrapped: Makes the protocol.
        """
        if wrapped is None:
            wrapped = Negotiating() if offered else Factory.forProtocol(Served)
        factory = ServerTLSFactory(self.certificates, False, wrapped, self.clock)
        self.server: Any = factory.buildProtocol(None)  # type: ignore[arg-type]
        self.served = self.server.wrappedProtocol
        self.served.greeting = greeting
        self.transport = StringTransport()
        self.server.makeConnection(self.transport)
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.minimum_version = context.maximum_version = self.version
        if offered:
            context.set_alpn_protocols(offered)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.sent = b""

    def shake(self) -> None:
        """Complete the handshake."""
        for _ in range(3):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.exchange()

    def exchange(self) -> None:
        """Deliver what each side has sent so far."""
        if self.outgoing.pending:
            self.server.dataReceived(self.outgoing.read())
        self.deliver()

    def deliver(self) -> None:
        """Deliver what the server has sent so far."""
        self.clock.advance(0)
        self.sent += self.transport.value()
        self.incoming.write(self.transport.value())
        self.transport.clear()

    def read(self) -> bytes:
        """Return what the client has received."""
        self.deliver()
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while received := self.client.read(65536):
                found += received
        return found

    def records(self) -> list[int]:
        """Return the lengths of the encrypted records that the server has sent so far."""
        found, wire = [], self.sent
        while wire:
            length = int.from_bytes(wire[3:5], "big")
            if wire[0] == _APPLICATION_DATA:
                found.append(length)
            wire = wire[5 + length :]
        return found


class WriteTests(ServerCase):
    """Bytes from the server to the client."""

    def test_together(self) -> None:
        """Small writes of an iteration are one record; the next iteration begins another."""
        self.shake()
        self.sent = b""
        for text in (b"a" * 10, b"b" * 20):
            self.served.transport.write(text)
        self.served.transport.writeSequence([b"c", b"", b"d"])
        self.assertTrue(self.served.transport.hasUnsent())
        self.assertEqual(self.transport.value(), b"")
        self.assertEqual(self.read(), b"a" * 10 + b"b" * 20 + b"cd")
        self.assertEqual(len(self.records()), 1)
        self.assertFalse(self.served.transport.hasUnsent())
        self.served.transport.write(b"more")
        self.assertEqual(self.read(), b"more")
        self.assertEqual(len(self.records()), 2)

    def test_large(self) -> None:
        """Large writes are encrypted at once, in whole records, after the small ones before."""
        self.shake()
        self.sent = b""
        body = bytes(range(256)) * 4096
        self.served.transport.write(b"head")
        self.served.transport.write(body)
        self.assertGreater(len(self.transport.value()), len(body))
        self.served.transport.write(b"tail")
        self.assertEqual(self.read(), b"head" + body + b"tail")
        self.assertEqual(len(self.records()), 66)

    def test_bounded(self) -> None:
        """Small writes that make a whole record are not held back."""
        self.shake()
        for number in range(1, 18):
            self.served.transport.write(b"x" * 1000)
            self.assertEqual(bool(self.transport.value()), number == 17)
        self.assertEqual(self.read(), b"x" * 17_000)

    def test_early(self) -> None:
        """What is written before the end of the handshake is sent after it, in order."""
        self.connect(b"welcome")
        self.served.transport.write(b", ")
        self.clock.advance(0)
        self.served.transport.write(b"x" * 40_000)
        self.served.transport.write(b"client")
        self.shake()
        self.assertEqual(self.read(), b"welcome, " + b"x" * 40_000 + b"client")
        self.assertEqual(self.served.events, ["made", "completed"])

    def test_producer(self) -> None:
        """A producer pauses while the handshake goes on, and with the transport."""
        producer = Producer()
        self.served.transport.registerProducer(producer, True)
        self.served.transport.write(b"a")
        self.clock.advance(0)
        self.assertEqual(producer.calls, ["pause"])
        self.shake()
        self.assertEqual(producer.calls, ["pause", "resume"])
        assert self.transport.producer is not None
        self.transport.producer.pauseProducing()
        self.assertEqual(producer.calls[2:], ["pause"])

    def test_negotiated(self) -> None:
        """The protocol of ALPN is known once the handshake is complete."""
        for offered, expected in ((["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1")):
            self.connect(offered=offered)
            self.shake()
            self.assertEqual(self.client.selected_alpn_protocol(), expected)
            self.assertEqual(self.server.negotiatedProtocol, expected.encode())
            self.assertEqual(self.served.events, ["made", "completed"])

    def test_noProtocol(self) -> None:
        """A client that offers only unknown protocols gets the alert of RFC 7301."""
        self.connect(offered=["foo", "http/1"])
        with self.assertRaises(ssl.SSLError):
            self.shake()
        # A fatal alert of number 120.
        self.assertEqual(self.sent, b"\x15\x03\x03\x00\x02\x02\x78")
        self.assertTrue(self.transport.disconnecting)
        self.server.connectionLost(Failure(ConnectionDone()))
        self.assertIsInstance(self.served.reason, NoApplicationProtocol)
        self.assertEqual(describeError(self.served.reason), "no application protocol")
        # The context is in use by others.
        self.connect(offered=["http/1.1"])
        self.shake()
        self.assertEqual(self.served.events, ["made", "completed"])

    def test_noOffer(self) -> None:
        """A client without ALPN gets a connection, and the protocol decides."""
        self.connect(wrapped=Negotiating())
        self.shake()
        self.assertEqual(self.served.events, ["made", "completed"])
        self.assertIsNone(self.server.negotiatedProtocol)

    def test_unnegotiated(self) -> None:
        """A listener of another protocol ignores the offer of a client."""
        self.connect(offered=["foo"], wrapped=Factory.forProtocol(Served))
        self.shake()
        self.assertEqual(self.served.events, ["made", "completed"])
        self.assertIsNone(self.client.selected_alpn_protocol())

    def test_interfaces(self) -> None:
        """It is a TLS transport."""
        self.assertTrue(ISSLTransport.providedBy(self.server))


class ReadTests(ServerCase):
    """Bytes from the client to the server."""

    def test_records(self) -> None:
        """The records of one read are delivered together."""
        self.shake()
        body = bytes(range(256)) * 400
        self.client.write(body)
        self.exchange()
        self.assertEqual(self.served.pieces, [len(body)])
        self.assertEqual(self.served.received, body)

    def test_last(self) -> None:
        """Records before the client's close, or before garbage, are delivered first."""
        for end in (b"", b"\x17\x03\x03\0\x20" + bytes(32)):
            self.connect()
            self.shake()
            self.client.write(b"last")
            if not end:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.client.unwrap()
            self.server.dataReceived(self.outgoing.read() + end)
            self.assertEqual(self.served.received, b"last")
            self.assertTrue(self.transport.disconnecting)
            self.server.connectionLost(Failure(ConnectionDone()))
            self.assertEqual(isinstance(self.served.reason, ConnectionDone), not end)


class CloseTests(ServerCase):
    """The ends of a connection."""

    def lose(self, reason: Exception) -> Any:
        """End the transport; return the reason that the protocol gets."""
        self.server.connectionLost(Failure(reason))
        return self.served.reason

    def test_server(self) -> None:
        """The server's close sends everything, and waits for the client's answer."""
        self.shake()
        self.served.transport.write(b"last")
        self.served.transport.loseConnection()
        self.served.transport.write(b"never")
        self.assertEqual(self.read(), b"last")
        self.assertFalse(self.transport.disconnecting)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.client.unwrap()
        self.exchange()
        self.assertTrue(self.transport.disconnecting)
        self.assertIsInstance(self.lose(ConnectionDone()), ConnectionDone)

    def test_unanswered(self) -> None:
        """A client that leaves without an answer to the close is no error."""
        self.shake()
        self.served.transport.loseConnection()
        self.assertIsInstance(self.lose(ConnectionDone()), ConnectionDone)

    def test_client(self) -> None:
        """The client's close is answered, and the transport closed."""
        self.shake()
        self.client.write(b"bye")
        with contextlib.suppress(ssl.SSLWantReadError):
            self.client.unwrap()
        self.exchange()
        self.assertEqual(self.served.received, b"bye")
        self.client.unwrap()
        self.assertTrue(self.transport.disconnecting)
        self.assertIsInstance(self.lose(ConnectionDone()), ConnectionDone)

    def test_cut(self) -> None:
        """The end of the transport without the client's close is a loss."""
        self.shake()
        self.assertIsInstance(self.lose(ConnectionDone()), ConnectionLost)

    def test_abort(self) -> None:
        """An abort sends nothing of what was written in this iteration."""
        self.shake()
        self.served.transport.write(b"secret")
        self.served.transport.abortConnection()
        self.assertTrue(self.transport.disconnected or self.transport.disconnecting)
        self.sent = b""
        self.assertEqual(self.read(), b"")
        self.lose(ConnectionDone())
        self.served.transport.write(b"after")
        self.clock.advance(0)

    def test_producerEnds(self) -> None:
        """A close waits for the producer, and for its last bytes."""
        self.shake()
        self.served.transport.registerProducer(Producer(), True)
        self.served.transport.loseConnection()
        self.served.transport.write(b"still")
        self.assertEqual(self.read(), b"still")
        self.served.transport.write(b" here")
        self.served.transport.unregisterProducer()
        self.assertEqual(self.read(), b" here")

    def test_garbage(self) -> None:
        """Bytes that are no TLS end the connection with OpenSSL's reason."""
        self.server.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
        self.assertTrue(self.transport.disconnecting)
        self.assertIsInstance(self.lose(ConnectionDone()), Error)
        self.assertEqual(self.served.events, ["made", "lost"])

    def test_lostInHandshake(self) -> None:
        """A client that leaves in the handshake leaves nothing behind."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.client.do_handshake()
        self.exchange()
        self.served.transport.write(b"x")
        self.lose(ConnectionDone())
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.served.events, ["made", "lost"])


class OldWriteTests(WriteTests):
    """The same with TLS 1.2."""

    version = ssl.TLSVersion.TLSv1_2


class OldReadTests(ReadTests):
    """Over TLS 1.2."""

    version = ssl.TLSVersion.TLSv1_2


class OldCloseTests(CloseTests):
    """The same with TLS 1.2."""

    version = ssl.TLSVersion.TLSv1_2
