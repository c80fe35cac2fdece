"""The sockets that a supervisor shares with its workers."""

import socket

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import TestCase

from storagegate.serving.listeners import SharedListeners, workerCommand


class ListenerTests(TestCase):
    """Listeners of three kinds, for two workers."""

    def setUp(self) -> None:
        """Make the listeners."""
        from twisted.internet import reactor

        self.listeners = SharedListeners(reactor, 2)
        self.addCleanup(self.listeners.close)
        self.addCleanup(self.listeners.stopListening)

    def test_handOver(self) -> None:
        """Each worker gets the stream, one of the datagram sockets, and the reserved address."""
        self.listeners.bind("udp", "127.0.0.1:0", "datagram")
        self.listeners.bind("grpc", "127.0.0.1:0", "reuseport")
        self.listeners.bind("http", "tcp:0:interface=127.0.0.1")
        inheritance = self.listeners.inheritance()
        first = inheritance.add(0)
        places = self.listeners.handOver(inheritance)
        last = inheritance.add(1)
        port = self.listeners.addresses["grpc"].port  # type: ignore[attr-defined]
        self.assertEqual(places["grpc"], f"127.0.0.1:{port}")
        stream = int(places["http"].removeprefix("inherited:"))
        datagram = int(places["udp"].removeprefix("inherited:"))
        # No number is used twice, whatever the order, and 3 is for the supervisor.
        self.assertEqual(sorted((first, stream, datagram, last)), [4, 5, 6, 7])
        self.assertEqual([first, last], [4, 7])
        own = [each[datagram] for each in inheritance.own]
        self.assertEqual(len(set(own)), 2)
        command = workerCommand(["worker"], {}, inheritance, places, {}, {"a": 1})
        self.assertEqual(command.setup.count, 2)
        self.assertEqual(set(command.descriptors), {first, stream, last})

    def test_taken(self) -> None:
        """An address that is taken, or is none, is an error."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertRaises(CannotListenError, self.listeners.bind, "http", f"tcp:{port}")
        self.assertRaises(ValueError, self.listeners.bind, "http", "nothing:1")
        self.assertEqual(self.listeners.addresses, {})
