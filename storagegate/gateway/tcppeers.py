"""
The two ways to speak on a TCP connection: frames, and JSON by the line.

Each is a session's peer. A connection gives it the bytes that come, and has it take what of them is
complete, one after the other, so that it can stop in between.
"""

from typing import Protocol

from twisted.internet.defer import Deferred

from storagegate.core.context import Client
from storagegate.gateway.codecs import JSON
from storagegate.gateway.framemessages import FrameWriter, takeFrame
from storagegate.gateway.frames import GOING_AWAY, PING, FrameDecoder, encodeFrame
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.lines import LineDecoder
from storagegate.gateway.session import Session
from storagegate.gateway.wsmessages import MessageWriter, takeEncoded

PROTOCOL = "tcp"


class Wire(Protocol):
    """
    A connection, as its peer sees it.

    @ivar client: Who is there.
    """

    client: Client

    def send(self, data: bytes) -> None:
        """Send bytes."""

    def drained(self) -> Deferred[None] | None:
        """Wait until the client has read enough of what was sent; C{None} if it has."""

    def setReading(self, wanted: bool) -> None:
        """Take what comes, or let the client wait."""


class FramePeer(FrameWriter):
    """
    A client that speaks frames.

    @cvar goingAway: Says that no further calls are taken.
    @cvar probe: What a client that is there ignores, and the system of one that is not refuses.
    """

    goingAway = encodeFrame(GOING_AWAY, b"{}")
    probe = encodeFrame(PING, b"")

    def __init__(self, host: GatewayHost, wire: Wire, maxLength: int) -> None:
        super().__init__(host, PROTOCOL, maxLength, wire.send)
        self.decoder = FrameDecoder(maxLength)
        self.client = wire.client
        self.drained = wire.drained
        self.setReading = wire.setReading

    def takeNext(self, session: Session) -> bool:
        """
        Take the next frame.

        @return: Whether there was one.
        @raise FrameError: If there is something else.
        """
        frame = self.decoder.next()
        if frame is None:
            return False
        takeFrame(session, self, frame)
        return True


class LinePeer(MessageWriter):
    """
    A client that speaks JSON by the line.

    @cvar goingAway: Says that no further calls are taken.
    @cvar probe: What a client that is there ignores, and the system of one that is not refuses.
    """

    goingAway = JSON.encode({"type": "going_away"}) + b"\n"
    probe = JSON.encode({"type": "ping"}) + b"\n"

    def __init__(self, host: GatewayHost, wire: Wire, maxLength: int) -> None:
        def writeLine(message: bytes) -> None:
            wire.send(message + b"\n")

        super().__init__(host, PROTOCOL, JSON, writeLine)
        self.decoder = LineDecoder(maxLength)
        self.client = wire.client
        self.drained = wire.drained
        self.setReading = wire.setReading

    def takeNext(self, session: Session) -> bool:
        """
        Take the next line; an empty one says nothing.

        @return: Whether there was one.
        @raise FrameError: If it is too long.
        """
        line = self.decoder.next()
        if line is None:
            return False
        if line and not line.isspace():
            takeEncoded(session, self, JSON, line)
        return True


def makePeer(host: GatewayHost, wire: Wire, maxLength: int, data: bytes) -> FramePeer | LinePeer:
    """Make the peer that the first byte of a connection asks for."""
    kind = LinePeer if data.startswith(b"{") else FramePeer
    return kind(host, wire, maxLength)
