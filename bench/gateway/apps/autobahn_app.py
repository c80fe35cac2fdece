"""
An echo of messages on Autobahn.

    python autobahn_app.py PORT
"""

import sys

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol

BACKLOG = 1024
"""Connections that wait to be accepted; Twisted's own 50 are fewer than come at once."""


class Echo(WebSocketServerProtocol):
    """Answers each message with itself."""

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Answer."""
        self.sendMessage(payload, isBinary)


def main(port: int) -> None:
    """Serve until the end."""
    from twisted.internet import reactor

    factory = WebSocketServerFactory()
    factory.protocol = Echo
    factory.setProtocolOptions(tcpNoDelay=True)
    factory.noisy = False
    reactor.listenTCP(port, factory, BACKLOG, "127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
