"""The beginning of a connection: which protocol it has."""

import subprocess
import sys
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from storagegate.net.http2.connection import HTTP2Connection
from storagegate.net.http2.frames import PREFACE
from storagegate.net.http2.interfaces import ErrorCode
from tests.net.http2.support import Peer
from tests.net.http2.test_connection import echo
from tests.net.support import TestSite, head, hello, statuses


class PrefaceTests(SynchronousTestCase):
    """Clients without TLS, that know that the server speaks HTTP/2."""

    def test_split(self) -> None:
        """Requests may arrive in pieces of any size."""
        for piece in (1, 2, 3, 5, 7, 11, 16, 23, 24, 25):
            peer = Peer(TestSite(echo), piece=piece)
            for _ in range(2):
                answer = peer.ask("POST", "/", ("x-name", "value"), body=b"x" * 40)
                self.assertEqual((answer.status, answer.body), (200, b"x" * 40), piece)

    def test_splitOnce(self) -> None:
        """The preface may be cut at any byte."""
        for at in range(1, len(PREFACE)):
            connection = TestSite(hello).connect()
            connection.transport.protocol = connection.channel
            connection.channel.dataReceived(PREFACE[:at])
            connection.transport.protocol.dataReceived(PREFACE[at:])
            self.assertIsInstance(connection.transport.protocol, HTTP2Connection)
            self.assertFalse(connection.closed)
            # SETTINGS
            self.assertEqual(connection.received()[3:4], b"\x04")

    def test_counted(self) -> None:
        """The connection goes on to count, and ends as one."""
        site = TestSite(hello)
        peer = Peer(site)
        self.assertEqual(site.site.connections, 1)
        self.assertEqual(peer.server.share.connections, 1)
        share = peer.server.share
        peer.ask()
        peer.server.connectionLost()
        self.assertEqual((site.site.connections, share.connections), (0, 0))

    def test_malformed(self) -> None:
        """What begins as the preface and goes on differently is not HTTP/2."""
        connection = TestSite(hello).connect()
        connection.transport.protocol = connection.channel
        connection.channel.dataReceived(b"PRI * HTTP/2.0\r\n")
        connection.transport.protocol.dataReceived(b"Host: x\r\n\r\n")
        self.assertTrue(connection.closed)
        # SETTINGS, and GOAWAY.
        self.assertIn(b"\x07\x00\x00\x00\x00\x00", connection.received())

    def test_notFirst(self) -> None:
        """The preface is no request of HTTP/1.1."""
        for before in (head(), b"\r\n"):
            connection = TestSite(hello).connect()
            answered = connection.send(before + PREFACE)
            self.assertEqual(statuses(answered)[-1], 505)
            self.assertTrue(connection.closed)

    def test_off(self) -> None:
        """A listener without HTTP/2 refuses the preface."""
        site = TestSite(hello, http2=False)
        connection = site.connect()
        self.assertEqual(statuses(connection.send(PREFACE)), [505])
        self.assertTrue(connection.closed)
        self.assertEqual(site.site.acceptableProtocols(), [b"http/1.1"])

    def test_full(self) -> None:
        """A listener that is full refuses before it knows the protocol."""
        site = TestSite(hello, maxConnections=1)
        Peer(site)
        connection = site.connect()
        self.assertEqual(statuses(connection.received()), [503])
        self.assertTrue(connection.closed)

    def test_offered(self) -> None:
        """TLS clients are offered HTTP/2 first."""
        site = Site(None, HTTPLimits(), Clock())
        self.assertEqual(site.acceptableProtocols(), [b"h2", b"http/1.1"])


class LazinessTests(SynchronousTestCase):
    """What an idle process loads."""

    def test_imports(self) -> None:
        """HTTP/2 is loaded for the first client that speaks it."""
        program = """
import sys
from tests.net.support import TestSite, head, hello
connection = TestSite(hello).connect()
assert b"200" in connection.send(head())
print(sorted(each for each in sys.modules if "http2" in each))
import storagegate.http.application, storagegate.s3.resource
print(sorted(each for each in sys.modules if "storagegate.net.http2" in each))
"""
        found: Any = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        self.assertEqual(found.stdout.split(), ["[]", "[]"])


class GoAwayTests(SynchronousTestCase):
    """The end of connections."""

    def test_idle(self) -> None:
        """A connection that is idle for too long is closed, and its client is told."""
        site = TestSite(hello, keepAliveTimeout=2.0, http2KeepAliveTimeout=5.0)
        peer = Peer(site)
        peer.ask()
        site.letPass(4)
        peer.pump()
        self.assertEqual(peer.goAways, [])
        self.assertEqual(peer.ask().status, 200)
        site.letPass(7)
        peer.pump()
        self.assertEqual(peer.goAways, [(3, ErrorCode.NO_ERROR)])
        self.assertTrue(peer.transport.disconnecting)

    def test_unused(self) -> None:
        """A connection without a first request has only the time for a head."""
        site = TestSite(hello, headersTimeout=3.0)
        peer = Peer(site)
        used = Peer(site)
        used.ask()
        site.letPass(5)
        peer.pump()
        self.assertEqual(peer.goAways, [(0, ErrorCode.NO_ERROR)])
        self.assertTrue(peer.transport.disconnecting)
        site.letPass(280)
        used.pump()
        self.assertEqual(used.goAways, [])
        site.letPass(20)
        used.pump()
        self.assertEqual(used.goAways, [(1, ErrorCode.NO_ERROR)])

    def test_crowded(self) -> None:
        """While many connections are open, idle ones end as soon as over HTTP/1.1."""
        site = TestSite(hello, keepAliveTimeout=5.0, maxConnections=4)
        peers = [Peer(site) for _ in range(2)]
        for peer in peers:
            peer.ask()
        site.letPass(20)
        peers[0].pump()
        self.assertEqual(peers[0].goAways, [])
        peers.append(Peer(site))
        peers[2].ask()
        site.letPass(2)
        for peer in peers:
            peer.pump()
        self.assertEqual([len(peer.goAways) for peer in peers], [1, 1, 0])

    def test_silent(self) -> None:
        """A client that stops within its preface or a head is dropped."""
        for wire in (
            PREFACE[:20],
            PREFACE,
            PREFACE + b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x09\x01",
            PREFACE + b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x01\x01\x01\0\0\0\x01\x82",
        ):
            site = TestSite(hello, headersTimeout=10.0, keepAliveTimeout=5.0)
            connection = site.connect()
            connection.transport.protocol = connection.channel
            connection.channel.dataReceived(wire[:18])
            connection.transport.protocol.dataReceived(wire[18:])
            site.letPass(5)
            if b"\x01" in wire:
                # Trickling does not extend it.
                self.assertFalse(connection.closed)
            site.letPass(8)
            self.assertTrue(connection.closed, wire)

    def test_once(self) -> None:
        """Without keepAlive, a connection serves the streams that have begun."""
        peer = Peer(TestSite(hello, keepAlive=False))
        self.assertEqual(peer.ask().status, 200)
        self.assertEqual(peer.goAways, [(1, ErrorCode.NO_ERROR)])
        self.assertTrue(peer.transport.disconnecting)
