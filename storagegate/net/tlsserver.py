"""
The server side of TLS connections.

Twisted's protocol spends more time on a short connection than OpenSSL does: it declares every
interface of the transport anew, begins the handshake before the client has sent anything, and sends
each small response from a delayed call of its own.
"""

from collections.abc import Iterable
from typing import Any

from OpenSSL.SSL import SENT_SHUTDOWN, Error, WantReadError, ZeroReturnError
from twisted.internet.interfaces import IConsumer, IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.transport import sendAtEnd

# From this size on, bytes are encrypted at once; a record has at most as many (RFC 8446, 5.1).
_LARGE = 16 * 1024

# Records sent at a time, and room for them with their overhead and messages of the handshake.
_RECORDS = 4
_ROOM = (_RECORDS + 1) * _LARGE


@implementer(IConsumer, IPushProducer, ITCPTransport)
class ServerTLSProtocol(TLSMemoryBIOProtocol):
    """
    The server side of a TLS connection. Writes of a reactor iteration are encrypted together at its
    end, in one record if they fit.
    """

    transport: Any

    # Bytes to encrypt at the end of the iteration, and whether that is scheduled.
    _held: list[bytes] | None = None
    _heldBytes = 0
    _isScheduled = False

    def makeConnection(self, transport: Any) -> None:
        """Wait for the client's first message."""
        self._tlsConnection = self.factory._creatorCallable(self)
        self._appSendBuffer: list[bytes] = []
        Protocol.makeConnection(self, transport)
        self.factory.registerProtocol(self)
        self.wrappedProtocol.makeConnection(self)

    def hasUnsent(self) -> bool:
        """Return whether bytes are still to be sent."""
        hasUnsent = getattr(self.transport, "hasUnsent", bool)
        return bool(self._held or self._appSendBuffer or hasUnsent())

    # Reading

    def _flushReceiveBIO(self) -> None:
        """
        Deliver received bytes: all records of a read together, or an upload would be handled in
        pieces of 16 KiB.
        """
        pieces: list[bytes] = []
        error: Exception | None = None
        while not self._lostTLSConnection:
            try:
                pieces.append(self._tlsConnection.recv(_ROOM))
            except WantReadError:
                break
            except Error as caught:
                error = caught
                break
        if pieces and not self._aborted:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.wrappedProtocol.dataReceived(data)
        if error is not None and not self._lostTLSConnection:
            self._receivingEnded(error)
        if not self._isScheduled and not self.disconnecting and not self._lostTLSConnection:
            # OpenSSL may have messages of its own. They otherwise go out with the response.
            self._flushSendBIO()

    def _receivingEnded(self, error: Exception) -> None:
        """Close, because the client has closed or broken the protocol."""
        if not isinstance(error, ZeroReturnError):
            self._tlsShutdownFinished(Failure(error))
        elif self._tlsConnection.get_shutdown() & SENT_SHUTDOWN:
            # This is the response to our closing message.
            self._lostTLSConnection = True
            self.transport.loseConnection()
        else:
            self._shutdownTLS()
            self._tlsShutdownFinished(None)

    # Writing

    def write(self, data: bytes) -> None:
        """Send C{data} at the end of this iteration, or immediately if it makes a record."""
        if self._lostTLSConnection or (self.disconnecting and self._producer is None):
            return
        if self._held is None:
            self._held = []
            self._heldBytes = 0
        self._held.append(data)
        self._heldBytes += len(data)
        if self._heldBytes >= _LARGE:
            self._sendHeld()
        elif not self._isScheduled:
            self._isScheduled = True
            if not sendAtEnd(self):
                self.factory._clock.callLater(0, self._sendHeld)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send several pieces together."""
        self.write(b"".join(iovec))

    def _sendHeld(self) -> None:
        """Encrypt and send the bytes held back for the end of the iteration."""
        self._isScheduled = False
        held, self._held = self._held, None
        if held is not None:
            self._write(held[0] if len(held) == 1 else b"".join(held))
        elif not self.disconnecting and not self._lostTLSConnection:
            self._flushSendBIO()

    def _write(self, data: bytes) -> None:
        if self._lostTLSConnection or not data:
            return
        if self._appSendBuffer:
            # The handshake is in progress.
            self._bufferedWrite(data)
            return
        view = memoryview(data)
        records = 0
        while view:
            try:
                # One record.
                sent = self._tlsConnection.send(view[:_LARGE])
            except WantReadError:
                self._bufferedWrite(bytes(view))
                break
            except Error:
                self._tlsShutdownFinished(Failure())
                break
            view = view[sent:]
            records += 1
            if not view or records % _RECORDS == 0:
                self._flushSendBIO()

    def _flushSendBIO(self) -> None:
        """Send what OpenSSL has encrypted."""
        try:
            data = self._tlsConnection.bio_read(_ROOM)
        except WantReadError:
            return
        self.transport.write(data)

    def unregisterProducer(self) -> None:
        """Forget the producer; if C{loseConnection} was called, close."""
        if self._held is not None:
            self._sendHeld()
        super().unregisterProducer()

    # Closing

    def loseConnection(self) -> None:
        """Close once everything is sent."""
        if self._held is not None:
            self._sendHeld()
        super().loseConnection()

    def abortConnection(self) -> None:
        """Drop the connection, and the bytes not yet sent."""
        self._held = None
        super().abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the protocol."""
        self._held = None
        if self.disconnecting and self._handshakeDone and not self._lostTLSConnection:
            # Everything received was delivered; a client need not answer the closing message.
            self._lostTLSConnection = True
        super().connectionLost(reason)


class ServerTLSFactory(TLSMemoryBIOFactory):
    """Makes the server side of TLS connections."""

    protocol: type[ProtocolWrapper] = ServerTLSProtocol  # type: ignore[assignment]
