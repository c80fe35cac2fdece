"""The transport under an HTTP channel: what is the same whether it is TCP, UNIX or TLS."""

from typing import Any

from twisted.internet.interfaces import ISSLTransport

from storagegate.net.transport import FastServer


class HTTPWire:
    """
    A transport, and whether it is being read.

    @ivar transport: The transport itself. Under TLS it is a wrapper that passes attributes it
        does not know on to the L{FastServer} below.
    @ivar secure: Whether it is encrypted.
    @ivar clientHost: The peer's address, C{''} for a UNIX socket.
    @ivar clientPort: Its port, 0 for a UNIX socket.
    @ivar fileSender: The transport, if it may send files as they are.
    """

    __slots__ = ("_reading", "clientHost", "clientPort", "fileSender", "secure", "transport")

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.secure: bool = ISSLTransport.providedBy(transport)
        peer = transport.getPeer()
        self.clientHost: str = getattr(peer, "host", "")
        self.clientPort: int = getattr(peer, "port", 0)
        self.fileSender: FastServer | None = None
        if isinstance(transport, FastServer) and not self.secure:
            self.fileSender = transport
        self._reading = True

    def setReading(self, reading: bool) -> None:
        """Read, or let the peer wait."""
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def setReadSize(self, size: int) -> None:
        """Read up to C{size} bytes at a time, if the transport lets us choose."""
        setReadSize = getattr(self.transport, "setReadSize", None)
        if setReadSize is not None:
            setReadSize(size)

    def hasUnsent(self) -> bool:
        """Say whether bytes or a file wait for the peer to read."""
        hasUnsent = getattr(self.transport, "hasUnsent", None)
        return hasUnsent is not None and hasUnsent()

    def sentBytes(self) -> int:
        """Count what the peer let us send after waiting; two samples show progress."""
        return getattr(self.transport, "sentBytes", 0)

    def close(self, linger: bool) -> None:
        """
        Close once everything is sent.

        A peer that is still sending gets a reset from a plain close, and may lose our last words
        to it.

        @param linger: Close only our half, and go on reading; L{closeAtLast} does the rest.
        """
        self.transport.unregisterProducer()
        if linger and self.fileSender is not None:
            self.fileSender.loseWriteConnection()
            self.setReading(True)
        else:
            self.transport.loseConnection()

    def closeAtLast(self) -> None:
        """
        Close without waiting for the peer any longer.

        The kernel still sends what it has. TLS waits for the peer's own goodbye after a C{close},
        so this reaches below it.
        """
        getattr(self.transport, "transport", self.transport).loseConnection()

    def release(self) -> None:
        """Leave the transport as it was, for another protocol."""
        self.transport.unregisterProducer()
        self.setReading(True)
