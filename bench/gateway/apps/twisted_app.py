"""
An echo of frames on Twisted alone, over TCP or UDP.

    python twisted_app.py PORT tcp|udp
"""

import sys
from typing import Any

from twisted.internet.protocol import DatagramProtocol, Factory, Protocol

BACKLOG = 1024
"""Connections that wait to be accepted; Twisted's own 50 are fewer than come at once."""

HEAD = 6
"""Version, type, and the length of the payload in four bytes."""


class FrameEcho(Protocol):
    """Answers each frame with itself."""

    received = b""

    def connectionMade(self) -> None:
        """Send small frames at once."""
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Return each complete frame."""
        data = self.received + data
        while len(data) >= HEAD:
            end = HEAD + int.from_bytes(data[2:HEAD], "big")
            if len(data) < end:
                break
            self.transport.write(data[:end])
            data = data[end:]
        self.received = data


class DatagramEcho(DatagramProtocol):
    """Answers each datagram with itself."""

    noisy = False

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Answer."""
        self.transport.write(datagram, addr)


def main(port: int, wire: str) -> None:
    """Serve until the end."""
    from twisted.internet import reactor

    if wire == "udp":
        reactor.listenUDP(port, DatagramEcho(), "127.0.0.1", maxPacketSize=65536)
    else:
        factory = Factory.forProtocol(FrameEcho)
        factory.noisy = False
        reactor.listenTCP(port, factory, BACKLOG, "127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
