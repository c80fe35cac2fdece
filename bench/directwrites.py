"""
What the floors on Twisted share: a transport that sends at once what the kernel takes.

Twisted's own waits until the socket is writable, which is two changes of C{epoll} and one more turn
of the reactor for each answer.
"""

from typing import Any

from twisted.internet import tcp

BACKLOG = 1024
"""Connections that wait to be accepted; Twisted's own 50 are fewer than come at once."""


class DirectServer(tcp.Server):
    """A connection that has been accepted."""

    def write(self, data: bytes) -> None:
        """Send, or leave to Twisted what the kernel does not take now."""
        if self.connected and not (self.dataBuffer or self._tempDataBuffer or self.disconnecting):
            try:
                sent = self.socket.send(data)
            except OSError:
                # Twisted's own way finds out whether the connection is lost.
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        super().write(data)


class DirectPort(tcp.Port):
    """A listener of such connections."""

    transport = DirectServer


def serve(port: int, factory: Any) -> None:
    """Serve on a port of the loopback interface until the end."""
    from twisted.internet import reactor

    factory.noisy = False
    DirectPort(port, factory, BACKLOG, "127.0.0.1", reactor).startListening()
    reactor.run()
