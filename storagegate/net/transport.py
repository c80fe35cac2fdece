"""
TCP and UNIX connections that send within the reactor iteration of a write, and use sendfile.

A stock Twisted transport queues each write until the poller reports that the socket is writable,
which it nearly always is. L{FastServer} calls C{send} first, at the end of the iteration
(L{pollDirectly}), and queues only the rest. It also supports C{sendfile}. Everything except
L{writeAll} must run in the reactor thread.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from select import EPOLLIN
from socket import SO_REUSEPORT, SOL_SOCKET
from socket import socket as Socket
from typing import Any, Protocol

from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log
from twisted.python.failure import Failure

from storagegate.net.sendfile import Runner, SendfileTransfer, TruncatedFile

MAX_UNSENT = 64 * 1024 * 1024
"""Maximum number of bytes that wait for a slow client of WebSocket or TCP. Streams and reading
pause, so only the results of calls in flight can be this large."""

# Twisted's endpoints use 50, which a burst of a few hundred clients overflows.
_BACKLOG = 1024


class FastServer(tcp.Server):
    """
    A TCP connection that sends within the reactor iteration of a write.

    @ivar bufferSize: The size of a read; see L{setReadSize}.
    @ivar sentBytes: The number of bytes that the kernel has accepted from the queue or a file; a
        check for stalled connections compares two samples.
    """

    sentBytes = 0
    _sending: SendfileTransfer | None = None
    # Bytes to send at the end of the iteration; see pollDirectly.
    _held: list[bytes] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Each write reads these attributes; looking them up on the class takes ten times as long.
        self.TLS = self.TLS
        self._writeDisconnecting = self._writeDisconnecting
        self._sending = self._held = None
        # A head and the file that follows are two writes: waiting for the acknowledgement of the
        # first would cost a small object 40 ms.
        self.setTcpNoDelay(True)

    def setReadSize(self, size: int) -> None:
        """Read up to C{size} bytes at a time from now on."""
        self.bufferSize = size

    def hasUnsent(self) -> bool:
        """Return whether bytes or a file are still to be sent."""
        return bool(
            self._held or self._tempDataBuffer or self.dataBuffer or self._sending is not None
        )

    # Reading

    def doRead(self) -> Any:
        """Deliver received bytes."""
        try:
            data = self.socket.recv(self.bufferSize)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    # Writing

    def write(self, data: bytes) -> None:
        """
        Send C{data} in this iteration, or as much as the kernel accepts, and the rest later.

        @raise RuntimeError: If a file is being sent, which the bytes would overtake.
        """
        if self.TLS or self._tempDataBuffer or self.dataBuffer or self._sending is not None:
            self._refuseDuringFile()
            super().write(data)
            return
        if not data or not self.connected or self._writeDisconnecting:
            return
        if len(data) < _LARGE and _turn is not None:
            if self._held is None:
                self._held = [data]
                _turn.append(self)
                if len(_turn) >= _MOST_HELD:
                    _flush(_turn)
            else:
                self._held.append(data)
                if len(self._held) >= _MOST_HELD:
                    self._sendHeld()
            return
        if self._held is not None:
            self._held.append(data)
        else:
            self._held = [data]
        self._sendHeld()

    def _sendHeld(self) -> None:
        """Send the bytes held back for the end of the iteration."""
        held = self._held
        if held is None:
            return
        self._held = None
        if not self.connected:
            return
        data = held[0] if len(held) == 1 else b"".join(held)
        try:
            sent = self.socket.send(data)
        except OSError:
            # The next write, triggered by the poller, gets and reports the same error.
            sent = 0
        if sent != len(data):
            self._queue(data, sent)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send several pieces in one system call."""
        self._sendHeld()
        pieces = list(iovec)
        if self.TLS or self._tempDataBuffer or self.dataBuffer or self._sending is not None:
            self._refuseDuringFile()
            super().writeSequence(pieces)
            return
        if not self.connected or self._writeDisconnecting:
            return
        for piece, sent in self._sendPieces(pieces):
            self._queue(piece, sent)

    def writeBuffer(self, view: memoryview) -> None:
        """
        Send the bytes of a buffer that the caller writes to again. Only bytes that the kernel does
        not accept at once are copied.
        """
        if self.TLS or self._tempDataBuffer or self.dataBuffer or self._sending is not None:
            self.write(bytes(view))
            return
        if not self.connected or self._writeDisconnecting:
            return
        pieces, self._held = [*(self._held or ()), view], None
        for piece, sent in self._sendPieces(pieces):
            self._queue(bytes(piece[sent:]), 0)

    def _sendPieces(self, pieces: Sequence[Any]) -> list[tuple[Any, int]]:
        """
        Send several pieces in one system call.

        @return: The pieces that the kernel has not accepted whole, each with the number of its
            bytes that were sent.
        """
        try:
            sent = self.socket.sendmsg(pieces)
        except OSError:
            sent = 0
        unsent = []
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                unsent.append((piece, sent))
                sent = 0
        return unsent

    def loseConnection(self, *arguments: Any) -> None:
        """Close once everything is sent."""
        self._sendHeld()
        super().loseConnection(*arguments)

    def loseWriteConnection(self) -> None:
        """Close the sending half once everything is sent."""
        self._sendHeld()
        super().loseWriteConnection()

    def abortConnection(self) -> None:
        """Drop the connection; earlier writes may still arrive."""
        self._sendHeld()
        super().abortConnection()

    def startTLS(self, *arguments: Any) -> None:
        """Encrypt from now on."""
        self._sendHeld()
        super().startTLS(*arguments)

    def _refuseDuringFile(self) -> None:
        if self._sending is not None:
            raise RuntimeError("bytes were written while a file was being sent")

    def _queue(self, data: bytes, sent: int) -> None:
        if not self.dataBuffer:
            # The stock transport keeps the bytes being sent here. A piece in its list would first
            # be copied, which takes 0.1 s and 100 MB for 100 MB.
            self.dataBuffer, self.offset = data, sent
        else:
            self._tempDataBuffer.append(data)
            self._tempDataLen += len(data)
        self._maybePauseProducer()
        self.startWriting()

    def writeSomeData(self, data: bytes) -> Any:
        """Send from the queue, and count the bytes."""
        sent = super().writeSomeData(data)
        if isinstance(sent, int):
            self.sentBytes += sent
        return sent

    # Files

    def sendFile(self, fd: int, offset: int, count: int, run: Runner) -> Deferred[None]:
        """
        Send a range of an open file, after the bytes written before.

        The descriptor must stay open until the Deferred fires.

        @param fd: The descriptor; its file position is not used.
        @param count: The number of bytes; may be 0.
        @param run: Calls a function in a thread, to read ahead.
        @return: Fires when the kernel has accepted everything; fails with L{TruncatedFile}, an
            C{OSError} or the reason for the loss of the connection.
        @raise RuntimeError: If a file is already being sent, or the connection uses C{startTLS}.
        """
        self._refuseDuringFile()
        self._sendHeld()
        if self.TLS:
            raise RuntimeError("sendfile would bypass the encryption")
        if not self.connected:
            return fail(ConnectionDone())
        if count == 0:
            return succeed(None)
        sending = self._sending = SendfileTransfer(
            fd, offset, count, run, self._advanceFile, self._failFile
        )
        if not (self._tempDataBuffer or self.dataBuffer):
            self._advanceFile()
        else:
            self.startWriting()
        return sending.finished

    def _advanceFile(self) -> None:
        """Send the next window of the file, and schedule the one after it."""
        sending = self._sending
        if sending is None:
            return
        before = sending.offset
        try:
            sending.advance(self.socket.fileno())
        except ConnectionError:
            # Caused by the client, not the file: connectionLost notifies the sender.
            self.abortConnection()
            return
        except (OSError, TruncatedFile):
            self._failFile(Failure())
            return
        self.sentBytes += sending.offset - before
        if self._sending is not sending:
            # Reading ahead has already failed.
            return
        if not sending.remaining:
            self._endFile(None)
        elif sending.reading:
            self.stopWriting()
        else:
            self.startWriting()

    def _failFile(self, reason: Failure) -> None:
        """Fail the transfer, as reading ahead failed or the sender was cancelled."""
        if self._sending is not None:
            self.abortConnection()
            self._endFile(reason)

    def _endFile(self, reason: Failure | None) -> None:
        sending, self._sending = self._sending, None
        assert sending is not None
        self.stopWriting()
        if reason is None and (
            self.disconnecting or self._writeDisconnecting or self.producerPaused
        ):
            # The stock doWrite closes or resumes, which was postponed until the file was sent.
            self.startWriting()
        sending.end(reason)

    def doWrite(self) -> Any:
        """Send the queue, then the file."""
        if self._sending is None:
            return super().doWrite()
        if self._tempDataBuffer or self.dataBuffer:
            problem = self._sendQueue()
            if problem is not None or self.dataBuffer:
                return problem
        self._advanceFile()
        return None

    def _sendQueue(self) -> BaseException | None:
        """Send the queue without closing or resuming afterwards, unlike the stock transport."""
        data = b"".join([memoryview(self.dataBuffer)[self.offset :], *self._tempDataBuffer])
        self._tempDataBuffer = []
        self._tempDataLen = 0
        sent = self.writeSomeData(data)
        if isinstance(sent, BaseException):
            return sent
        self.dataBuffer, self.offset = (b"", 0) if sent == len(data) else (data, sent)
        return None

    def connectionLost(self, reason: Failure) -> None:
        """Fail the file being sent, then do as the stock transport."""
        self._sendHeld()
        sending, self._sending = self._sending, None
        super().connectionLost(reason)
        if sending is not None:
            sending.end(reason)


class FastUnixServer(FastServer, unix.Server):
    """A UNIX connection that sends immediately; it passes no file descriptors."""


class _HeldSocket(Socket):
    """The socket of a held port, whose C{listen} does nothing."""

    def listen(self, backlog: int = 0) -> None:
        """Do nothing; L{HeldPort.beginListening} listens."""


class HeldPort:
    """
    A port that may be bound long before it listens; until then, the kernel refuses connections.

    A privileged port is bound early, while the process has the rights.
    """

    backlog: int
    socket: Socket
    _preexistingSocket: Any
    isHeld = False

    def hold(self) -> None:
        """Make C{startListening} only bind."""
        self.isHeld = True

    def createInternetSocket(self) -> Socket:
        """Make the socket."""
        made: Socket = super().createInternetSocket()  # type: ignore[misc]
        if not self.isHeld:
            return made
        held = _HeldSocket(made.family, made.type, made.proto, made.detach())
        held.setblocking(False)
        return held

    def startListening(self) -> None:
        """Bind, and listen unless the port is held."""
        isGiven = self._preexistingSocket is not None
        super().startListening()  # type: ignore[misc]
        if self.isHeld:
            self.stopReading()  # type: ignore[attr-defined]
        elif isGiven:
            # The process that bound the socket may not have listened.
            Socket.listen(self.socket, max(self.backlog or 0, _BACKLOG))

    def beginListening(self) -> None:
        """
        Listen and accept, if the port is held.

        @raise OSError: If another process has begun to listen on the address since it was bound.
        """
        if self.isHeld:
            self.isHeld = False
            # Bypasses the method of the held socket.
            Socket.listen(self.socket, max(self.backlog or 0, _BACKLOG))
            self.startReading()  # type: ignore[attr-defined]


class BoundPort(HeldPort, tcp.Port):
    """A TCP port bound for other processes."""


class BoundUnixPort(HeldPort, unix.Port):
    """A UNIX socket bound for other processes."""


class _LastAccept(HeldPort):
    """
    A listening port that accepts the connections in its queue before it closes.

    Clients in the queue may have sent a request, and closing the socket would reset them.
    """

    numberAccepts: int
    _isShared = False

    def sharesSocket(self) -> None:
        """
        Accept one connection per iteration, and leave the rest to processes that share the socket.
        """
        self._isShared = True
        self.numberAccepts = 1

    def doRead(self) -> None:
        """Accept."""
        super().doRead()  # type: ignore[misc]
        if self._isShared:
            # The stock port accepts more in the next iteration if it reached its limit.
            self.numberAccepts = 1

    def connectionLost(self, reason: Failure) -> None:
        """Accept the connections already established by the kernel, then close."""
        self._isShared = False
        self.numberAccepts = _BACKLOG
        if not self.isHeld:
            self.doRead()
        super().connectionLost(reason)  # type: ignore[misc]


class FastPort(_LastAccept, tcp.Port):
    """A listening TCP port whose connections are L{FastServer}s."""

    transport: type[tcp.Server] = FastServer

    def __init__(self, port: Any, factory: Any, backlog: int = 0, *more: Any, **named: Any) -> None:
        super().__init__(port, factory, max(backlog or 0, _BACKLOG), *more, **named)


class SharedFastPort(FastPort):
    """A listening TCP port that other processes may listen on as well (C{SO_REUSEPORT})."""

    def createInternetSocket(self) -> Socket:
        """Make the socket."""
        made = super().createInternetSocket()
        made.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        return made


class FastUnixPort(_LastAccept, unix.Port):
    """A listening UNIX port whose connections are L{FastUnixServer}s."""

    transport: type[unix.Server] = FastUnixServer


class AdoptedPort(unix.Port):
    """
    A listening UNIX socket bound by another process.

    The process that bound the file owns it, sets its mode and keeps it for the next listener. The
    stock port would give access to all users, and remove the file on close.
    """

    # A shutdown would affect the socket in every process that has it.
    _shouldShutdown = False

    def startListening(self) -> None:
        """Begin to accept."""
        tcp._reservedFD.reserve()
        factory: Any = self.factory
        factory.doStart()
        given: Any = self._preexistingSocket
        if not getattr(self, "isHeld", False):
            given.listen(_BACKLOG)
        self.socket = given
        self.fileno = given.fileno  # type: ignore[method-assign]
        self.connected = True
        self.numberAccepts = _BACKLOG
        self.startReading()

    def connectionLost(self, reason: Failure) -> None:
        """Close only this process's descriptor."""
        tcp.Port.connectionLost(self, reason)


class GivenUnixPort(_LastAccept, AdoptedPort):
    """A listening UNIX socket of another process; its connections are L{FastUnixServer}s."""

    transport: type[unix.Server] = FastUnixServer


Buffer = bytes | bytearray | memoryview

_VECTOR = 1024
"""Maximum number of buffers of a C{writev} on Linux (C{IOV_MAX})."""


def writeAll(write: Callable[[Sequence[Buffer]], int], buffers: Sequence[Buffer]) -> None:
    """
    Write every byte of the buffers. May run in a thread.

    @param write: Writes some of the buffers; returns the number of bytes written.
    """
    waiting = [memoryview(buffer) for buffer in buffers if buffer]
    while waiting:
        written = write(waiting[:_VECTOR])
        whole = 0
        while whole < len(waiting) and written >= len(waiting[whole]):
            written -= len(waiting[whole])
            whole += 1
        del waiting[:whole]
        if written:
            waiting[0] = waiting[0][written:]


_MOST = 1024
"""Maximum number of events of one poll, which allocates room for that many each time."""

_LARGE = 16 * 1024
"""The size in bytes from which a write is sent immediately."""

_MOST_HELD = 32
"""Maximum number of connections, or writes of one connection, that are held back."""


class Sender(Protocol):
    """A connection that holds bytes back."""

    def _sendHeld(self) -> None:
        """Send them."""


# The connections whose writes are held back until the end of this iteration; None outside one.
_turn: list[Sender] | None = None


def sendAtEnd(connection: Sender) -> bool:
    """
    Send the bytes that a connection holds back at the end of this iteration.

    @return: Whether it will happen; otherwise no iteration is in progress, see L{pollDirectly}.
    """
    if _turn is None:
        return False
    _turn.append(connection)
    if len(_turn) >= _MOST_HELD:
        _flush(_turn)
    return True


def pollDirectly(reactor: Any) -> None:
    """
    Make a reactor call L{FastServer}s directly. Does nothing to a reactor without epoll.

    Twisted's reactors call each transport in its own log context, which identifies the source of
    lines without a logger. Our lines have loggers, and the context takes a tenth of the time of a
    small request. Other transports of the process keep it.

    Writes of an iteration, whether in response to input or from due calls, are sent at its end.
    Otherwise the first of 32 responses would wake a client on the same machine, which would then
    alternate with this process for each of the others. On loopback that takes a third of the total
    time.

    @param reactor: The process's reactor; affects only
        C{twisted.internet.epollreactor.EPollReactor}.
    """
    if type(reactor).__name__ == "EPollReactor" and "doIteration" not in vars(reactor):
        reactor.doIteration = partial(_poll, reactor)
        reactor.runUntilCurrent = partial(_runCalls, reactor.runUntilCurrent)


def _runCalls(run: Callable[[], None]) -> None:
    """Run due calls."""
    global _turn
    turn: list[Sender] = []
    _turn = turn
    try:
        run()
    finally:
        _turn = None
        if turn:
            _flush(turn)


def _poll(reactor: Any, timeout: float | None) -> None:
    """
    Wait for events and handle them, as C{EPollReactor.doPoll}.

    @param timeout: Seconds; C{None} for no limit.
    """
    global _turn
    selectables = reactor._selectables
    most = min(len(selectables), _MOST)
    events = reactor._poller.poll(-1 if timeout is None else timeout, most)
    turn: list[Sender] = []
    _turn = turn
    try:
        for fd, event in events:
            selectable = selectables.get(fd)
            if isinstance(selectable, FastServer):
                try:
                    if event != EPOLLIN:
                        reactor._doReadOrWrite(selectable, fd, event)
                        continue
                    try:
                        reason = selectable.doRead()
                    except Exception as error:
                        log.err()
                        reactor._disconnectSelectable(selectable, error, False)
                    else:
                        if reason is not None:
                            reactor._disconnectSelectable(selectable, reason, True)
                except Exception:
                    log.err()
            elif selectable is not None:
                log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, fd, event)
    finally:
        _turn = None
        if turn:
            _flush(turn)


def _flush(turn: list[Sender]) -> None:
    """Send the held-back bytes of connections, in the order of their first writes."""
    transports = turn[:]
    turn.clear()
    for transport in transports:
        try:
            transport._sendHeld()
        except Exception:
            log.err()
