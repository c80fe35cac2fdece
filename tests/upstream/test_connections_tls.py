"""The handshake with an instance, step by step: no sockets, and time that stands still."""

from pathlib import Path
from typing import Any

from OpenSSL import SSL
from service_identity import pyopenssl
from twisted.internet import _sslverify
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.http.clientconnection import ConnectionLostError
from storagegate.net.tls import InstanceTLSOptions, refusesCertificate
from storagegate.upstream.connections import TLSConnector
from storagegate.upstream.options import DiscoveredService, Instance
from storagegate.upstream.provider import LOG_SECONDS
from tests.support.certificates import Authority
from tests.support.log import LogCase

HERE = Instance("localhost", 8443)

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class _Transport(StringTransport):
    """A transport of TCP: what it is told is kept, and its end comes when the test says so."""

    isAborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Take note of nothing."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Take note of nothing."""

    def abortConnection(self) -> None:
        """Take note of the end."""
        self.isAborted = True

    def getHandle(self) -> "_Transport":
        """Give what stands for the socket."""
        return self

    def recv(self, size: int, flags: int) -> bytes:
        """Have nothing."""
        raise BlockingIOError


@implementer(IStreamClientEndpoint)
class _Endpoint:
    """Connects when it is told to."""

    def __init__(self) -> None:
        self.transport = _Transport()
        self.protocol: Any = None
        self.late: Deferred[None] = succeed(None)

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        """Connect."""

        def made(result: None) -> Any:
            self.protocol = protocolFactory.buildProtocol(None)
            self.protocol.makeConnection(self.transport)
            return self.protocol

        return self.late.addCallback(made)


class SecuringTests(LogCase):
    """One connection, whose other end the test holds."""

    def setUp(self) -> None:
        """Have an authority, and an instance that it vouches for."""
        super().setUp()
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder)
        self.clock = Clock()
        self.endpoint = _Endpoint()
        self.context = self.makeContext()
        self.serve()

    def makeContext(self, isNamed: bool = True) -> SSL.Context:
        """Make what an instance is secured with."""
        certificate, key = self.authority.issue("localhost", isNamed=isNamed)
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_certificate_file(str(certificate))
        context.use_privatekey_file(str(key))
        return context

    def serve(self) -> None:
        """Have the other end of a connection."""
        self.server = SSL.Connection(self.context, None)
        self.server.set_accept_state()

    def connect(self, seconds: float = 1.0, instance: Instance = HERE, **tls: Any) -> Any:
        """Begin to connect."""
        options = InstanceTLSOptions(**{"caFile": str(self.authority.path), **tls})
        self.securing = TLSConnector("Probe", DiscoveredService(tls=options), self.clock)
        self.securing.check()
        return self.securing.connect(self.endpoint, instance, seconds)

    def carry(self) -> None:
        """Carry bytes to and fro until both sides are silent."""
        # What is written is gathered until the next turn of the reactor.
        self.clock.advance(0)
        while sent := self.endpoint.transport.value():
            self.endpoint.transport.clear()
            self.server.bio_write(sent)
            try:
                self.server.do_handshake()
            except SSL.Error:
                # It waits for more, or has said what is wrong.
                pass
            self.deliver()

    def deliver(self) -> None:
        """Carry what the instance says."""
        try:
            said = self.server.bio_read(65536)
        except SSL.WantReadError:
            return
        self.endpoint.protocol.dataReceived(said)

    def lose(self) -> None:
        """End the connection."""
        self.endpoint.protocol.connectionLost(Failure(ConnectionDone()))

    def test_shaken(self) -> None:
        """A connection is one when the handshake is over, and not before."""
        connecting = self.connect()
        self.assertNoResult(connecting)
        self.carry()
        connection = self.successResultOf(connecting)
        self.assertTrue(connection.isAlive())
        exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
        self.carry()
        self.assertEqual(self.server.recv(100), b"GET / HTTP/1.1\r\n\r\n")
        self.server.send(ANSWER)
        self.deliver()
        head = self.successResultOf(Deferred.fromCoroutine(exchange.head()))
        self.assertEqual(head.status, 204)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """The time for a connection holds for the handshake, too; then it is closed."""
        self.endpoint.late = Deferred()
        connecting = self.connect(seconds=1.0)
        self.clock.advance(0.4)
        self.endpoint.late.callback(None)
        self.clock.advance(0.59)
        self.assertNoResult(connecting)
        self.clock.advance(0.02)
        self.failureResultOf(connecting)
        self.assertTrue(self.endpoint.transport.isAborted)
        self.lose()
        self.assertEqual(len(self.told()), 1)

    def test_cancelled(self) -> None:
        """A handshake that was cancelled ends synchronously, and is no problem."""
        connecting = self.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(self.endpoint.transport.isAborted)
        self.lose()
        self.assertEqual((self.told(), self.clock.getDelayedCalls()), ([], []))

    def test_lost(self) -> None:
        """One that breaks off fails at once."""
        connecting = self.connect()
        self.lose()
        self.failureResultOf(connecting, ConnectionLost)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_wrongName(self) -> None:
        """An instance with another name receives nothing; the log has the reason."""
        connecting = self.connect(serverName="other.example")
        self.carry()
        self.lose()
        self.failureResultOf(connecting)
        self.assertIn("Probe: localhost:8443: the certificate has another name", self.told()[0])

    def refused(self, reason: str) -> None:
        """Check that a connection is refused, after which nothing has been sent."""
        connecting = self.connect(serverName="other.example")
        self.carry()
        self.failureResultOf(connecting)
        self.assertTrue(self.endpoint.transport.isAborted)
        self.lose()
        self.assertIn(reason, self.told()[0])
        # Twisted's own check, which lets the connection pass.
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_noNames(self) -> None:
        """A certificate that has no names at all is for no server."""
        self.context = self.makeContext(isNamed=False)
        self.serve()
        self.refused("CertificateError: Certificate does not contain any")

    def test_brokenLibrary(self) -> None:
        """A library that fails in an unexpected way has verified no name."""

        def broken(*arguments: Any, **more: Any) -> None:
            raise TypeError("the library has changed")

        for each in (_sslverify, pyopenssl):
            self.patch(each, "verify_service_identity", broken)
        self.refused("TypeError: the library has changed")

    def test_brokenCallback(self) -> None:
        """Where only the check within the handshake fails, the name is verified after it."""

        def broken(*arguments: Any, **more: Any) -> None:
            raise TypeError("the library has changed")

        self.patch(_sslverify, "extract_patterns", broken)
        self.refused("the certificate has another name")

    def test_logged(self) -> None:
        """The log says so once a minute, however many handshakes fail."""
        connecting = self.connect(seconds=1.0)
        for _ in range(int(LOG_SECONDS)):
            self.clock.advance(1)
            self.failureResultOf(connecting)
            connecting = self.securing.connect(_Endpoint(), HERE, 1.0)
        self.assertEqual(len(self.told()), 1)
        self.clock.advance(1)
        self.failureResultOf(connecting)
        self.assertEqual(len(self.told()), 2)

    def test_noName(self) -> None:
        """A host whose name no certificate can have is not connected to; the log says why."""
        connecting = self.connect(instance=Instance("a_b", 1))
        self.failureResultOf(connecting, UnicodeError)
        self.assertIsNone(self.endpoint.protocol)
        self.assertEqual(len(self.told()), 1)

    def test_given(self) -> None:
        """The name may come from who has found the instance; that of the options wins."""
        for options, expected in (({}, b"found.example"), ({"serverName": "said"}, b"said")):
            self.serve()
            self.endpoint = _Endpoint()
            service = DiscoveredService(tls=InstanceTLSOptions(**options))
            securing = TLSConnector("Probe", service, self.clock, "found.example")
            securing.connect(self.endpoint, HERE, 1.0)
            self.carry()
            self.assertEqual(self.server.get_servername(), expected)

    def test_names(self) -> None:
        """Neither a zone nor the dot at the end is a part of a name."""
        self.connect(instance=Instance("localhost.", 1))
        self.carry()
        self.assertEqual(self.server.get_servername(), b"localhost")
        self.serve()
        self.endpoint = _Endpoint()
        connecting = self.connect(instance=Instance("127.0.0.1%lo", 1))
        self.carry()
        self.successResultOf(connecting)

    def test_closedWithAnswer(self) -> None:
        """A connection whose end came together with an answer is not used again."""
        connecting = self.connect()
        self.carry()
        connection = self.successResultOf(connecting)
        alive: list[bool] = []

        async def ask() -> None:
            exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
            await exchange.head()
            # Here, where the next call begins that waited for this one.
            alive.append(connection.isAlive())

        asking = Deferred.fromCoroutine(ask())
        self.carry()
        self.server.send(ANSWER)
        self.server.shutdown()
        self.deliver()
        self.successResultOf(asking)
        self.assertEqual(alive, [False])

    def refusal(self, isAnswered: bool) -> Any:
        """Send a request to an instance that wants to know who we are, as we cannot prove."""
        self.context = self.makeContext()
        self.context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
        self.serve()
        connecting = self.connect()
        for _ in range(3):
            if connecting.called:
                break
            sent = self.endpoint.transport.value()
            self.endpoint.transport.clear()
            self.server.bio_write(sent)
            self.assertRaises(SSL.WantReadError, self.server.do_handshake)
            self.deliver()
        connection = self.successResultOf(connecting)
        exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
        if isAnswered:
            connection.dataReceived(ANSWER[:10])
        self.carry()
        self.lose()
        waiting = Deferred.fromCoroutine(exchange.head())
        return self.failureResultOf(waiting, ConnectionLostError).value

    def test_unknown(self) -> None:
        """
        Of TLS 1.3 a client is done before the server has seen its certificate: an instance that
        refuses it then has read nothing of the request that is under way.
        """
        self.assertTrue(self.refusal(isAnswered=False).isUnread)

    def test_unknownLater(self) -> None:
        """Who has begun to answer has read something, whatever it says later."""
        self.assertFalse(self.refusal(isAnswered=True).isUnread)

    def test_alerts(self) -> None:
        """Other alerts say nothing of what was read; nor do errors of our own."""
        for text, expected in (
            ("tlsv13 alert certificate required", True),
            ("ssl/tls alert bad certificate", True),
            ("tlsv1 alert unknown ca", True),
            ("sslv3 alert bad record mac", False),
            ("tlsv1 alert internal error", False),
            ("certificate verify failed", False),
        ):
            error = SSL.Error([("SSL routines", "", text)])
            self.assertEqual(refusesCertificate(error), expected, text)
        self.assertFalse(refusesCertificate(ConnectionDone()))
        self.assertFalse(refusesCertificate(SSL.Error()))

    def told(self) -> list[str]:
        """Give what the log says of handshakes."""
        return [line for line in self.logged() if "TLS to instances" in line]
