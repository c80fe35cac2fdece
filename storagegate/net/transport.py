"""
TCP and UNIX connections that send in the turn of the write, and hand whole files to the kernel.

A stock Twisted transport queues each write until the poller reports that the socket is writable,
which it nearly always is. L{FastServer} calls C{send} first, at the end of the turn
(L{pollDirectly}), and queues only the rest. It also has C{sendfile}. All of it but L{writeAll} runs
in the reactor thread.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from select import EPOLLIN
from socket import socket as Socket
from typing import Any

from twisted.internet import tcp, unix
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log
from twisted.python.failure import Failure

from storagegate.net.sendfile import Runner, SendfileTransfer, TruncatedFile

# Twisted's endpoints ask for 50, which a burst of a few hundred clients overruns.
_BACKLOG = 1024


class FastServer(tcp.Server):
    """
    A TCP connection that sends in the turn of the write.

    @ivar bufferSize: How many bytes one read takes, see L{setReadSize}.
    @ivar sentBytes: How many bytes the kernel took from the queue or a file since the start; a
        watcher of stalled connections compares two samples.
    """

    sentBytes = 0
    _sending: SendfileTransfer | None = None
    # What is sent at the end of the turn, see pollDirectly.
    _held: list[bytes] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Each write looks at these: an attribute of the class takes ten times as long.
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
        """Return whether bytes or a file wait for the peer to read."""
        return bool(
            self._held or self._tempDataBuffer or self.dataBuffer or self._sending is not None
        )

    # Reading

    def doRead(self) -> Any:
        """Deliver what has arrived."""
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
        Send C{data} in this turn, or as much as the kernel takes then and the rest when it can.

        @raise RuntimeError: If a file is on its way: bytes after it would overtake it.
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
        """Send what was held back for the end of the turn."""
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
            # The next write, which the poller triggers, gets the same error and reports it.
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
        try:
            sent = self.socket.sendmsg(pieces)
        except OSError:
            sent = 0
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                self._queue(piece, sent)
                sent = 0

    def loseConnection(self, *arguments: Any) -> None:
        """Close when all is sent."""
        self._sendHeld()
        super().loseConnection(*arguments)

    def loseWriteConnection(self) -> None:
        """Close the sending half when all is sent."""
        self._sendHeld()
        super().loseWriteConnection()

    def abortConnection(self) -> None:
        """Drop the connection; what was written before may arrive."""
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
            # Where the stock transport keeps what it is sending. A piece in its list would be
            # copied first: for 100 MB that is a tenth of a second, and 100 MB.
            self.dataBuffer, self.offset = data, sent
        else:
            self._tempDataBuffer.append(data)
            self._tempDataLen += len(data)
        self._maybePauseProducer()
        self.startWriting()

    def writeSomeData(self, data: bytes) -> Any:
        """Send from the queue, and count it."""
        sent = super().writeSomeData(data)
        if isinstance(sent, int):
            self.sentBytes += sent
        return sent

    # Files

    def sendFile(self, fd: int, offset: int, count: int, run: Runner) -> Deferred[None]:
        """
        Send a part of an open file, after the bytes that were written before.

        The descriptor must stay open until the Deferred fires.

        @param fd: Its own position is not used.
        @param count: Bytes; none is no error.
        @param run: Calls a function in a thread, for reading ahead.
        @return: Fires when the kernel has taken it all; fails with L{TruncatedFile}, an C{OSError}
            or the reason that the connection was lost for.
        @raise RuntimeError: If a file is on its way already, or the connection uses C{startTLS}.
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
            # The client's doing and not the file's: C{connectionLost} tells the sender.
            self.abortConnection()
            return
        except (OSError, TruncatedFile):
            self._failFile(Failure())
            return
        self.sentBytes += sending.offset - before
        if self._sending is not sending:
            # Reading ahead has failed already.
            return
        if not sending.remaining:
            self._endFile(None)
        elif sending.reading:
            self.stopWriting()
        else:
            self.startWriting()

    def _failFile(self, reason: Failure) -> None:
        """Fail the file: it could not be read ahead, or its sender was cancelled."""
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
            # The stock doWrite closes or resumes; that was put off until the file was out.
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
        """Send the queue without the closing and resuming that the stock transport does after."""
        data = b"".join([memoryview(self.dataBuffer)[self.offset :], *self._tempDataBuffer])
        self._tempDataBuffer = []
        self._tempDataLen = 0
        sent = self.writeSomeData(data)
        if isinstance(sent, BaseException):
            return sent
        self.dataBuffer, self.offset = (b"", 0) if sent == len(data) else (data, sent)
        return None

    def connectionLost(self, reason: Failure) -> None:
        """Fail the file that was on its way, then do as the stock transport."""
        self._sendHeld()
        sending, self._sending = self._sending, None
        super().connectionLost(reason)
        if sending is not None:
            sending.end(reason)


class FastUnixServer(FastServer, unix.Server):
    """A UNIX connection that sends at once; it passes no file descriptors."""


class _HeldSocket(Socket):
    """A socket whose port is held: the port's own C{listen} does nothing."""

    def listen(self, backlog: int = 0) -> None:
        """Do nothing; L{HeldPort.beginListening} listens."""


class HeldPort:
    """
    A port that may be bound long before it listens: until then the kernel refuses connections.

    A port whose number needs rights is bound first, when the process has them.
    """

    backlog: int
    socket: Socket
    isHeld = False

    def hold(self) -> None:
        """Bind only, at C{startListening}."""
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
        super().startListening()  # type: ignore[misc]
        if self.isHeld:
            self.stopReading()  # type: ignore[attr-defined]

    def beginListening(self) -> None:
        """
        Listen and accept, if the port is held.

        @raise OSError: Another process has begun to listen at the address since it was bound.
        """
        if self.isHeld:
            self.isHeld = False
            # Not the method of a held socket.
            Socket.listen(self.socket, max(self.backlog or 0, _BACKLOG))
            self.startReading()  # type: ignore[attr-defined]


class BoundPort(HeldPort, tcp.Port):
    """A TCP port that is bound for other processes."""


class BoundUnixPort(HeldPort, unix.Port):
    """A UNIX socket that is bound for other processes."""


class _LastAccept(HeldPort):
    """
    A listening port that accepts the connections in its queue before it closes.

    Clients that have connected meanwhile may have sent a request; closing the socket resets them.
    """

    numberAccepts: int
    _isShared = False

    def sharesSocket(self) -> None:
        """Take one connection a turn, and leave the rest to processes that share the socket."""
        self._isShared = True
        self.numberAccepts = 1

    def doRead(self) -> None:
        """Accept."""
        super().doRead()  # type: ignore[misc]
        if self._isShared:
            # The stock port takes more at the next turn where there were as many as it took.
            self.numberAccepts = 1

    def connectionLost(self, reason: Failure) -> None:
        """Take the connections that the kernel has made already, then close."""
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


class FastUnixPort(_LastAccept, unix.Port):
    """A listening UNIX port whose connections are L{FastUnixServer}s."""

    transport: type[unix.Server] = FastUnixServer


class AdoptedPort(unix.Port):
    """
    A listening UNIX socket that another process has bound.

    The file belongs to the process that bound it, which sets its mode and keeps it for the next
    listener. The stock port gives access to all users, and removes the file when it closes.
    """

    # That would shut the socket down in every process that has it.
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
        """Close this process's own descriptor."""
        tcp.Port.connectionLost(self, reason)


class GivenUnixPort(_LastAccept, AdoptedPort):
    """A listening UNIX socket of another process; its connections are L{FastUnixServer}s."""

    transport: type[unix.Server] = FastUnixServer


Buffer = bytes | bytearray | memoryview

_VECTOR = 1024
"""Buffers a C{writev}: Linux takes no more (C{IOV_MAX})."""


def writeAll(write: Callable[[Sequence[Buffer]], int], buffers: Sequence[Buffer]) -> None:
    """
    Write every byte of the buffers. May run in a thread.

    @param write: Writes some of the buffers; returns how many bytes were written.
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
"""Events of one call of the kernel, which makes room for so many each time."""

_LARGE = 16 * 1024
"""Bytes of a write that is sent at once."""

_MOST_HELD = 32
"""Connections, or writes of one, whose bytes are held back."""

# The connections whose writes are held back for the end of this turn; None outside of one.
_turn: list[FastServer] | None = None


def pollDirectly(reactor: Any) -> None:
    """
    Let a reactor call L{FastServer}s directly. Does nothing to one that polls in another way.

    Twisted's reactors call each transport inside of a log context of its own, which says of lines
    that have no logger where they come from. Ours have loggers; the context takes a tenth of a
    small request. Other transports of the process keep it.

    What a turn writes, in answer to all that was read or in calls that were due, is sent at its
    end: the first of 32 responses would wake a client of the same machine up, which then takes
    turns with us for each of the others. On loopback that is a third of the time of all.

    @param reactor: The process's own; C{twisted.internet.epollreactor.EPollReactor}.
    """
    if type(reactor).__name__ == "EPollReactor" and "doIteration" not in vars(reactor):
        reactor.doIteration = partial(_poll, reactor)
        reactor.runUntilCurrent = partial(_runCalls, reactor.runUntilCurrent)


def _runCalls(run: Callable[[], None]) -> None:
    """Make the calls that are due."""
    global _turn
    turn: list[FastServer] = []
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

    @param timeout: Seconds; C{None} for no end.
    """
    global _turn
    selectables = reactor._selectables
    most = min(len(selectables), _MOST)
    events = reactor._poller.poll(-1 if timeout is None else timeout, most)
    turn: list[FastServer] = []
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


def _flush(turn: list[FastServer]) -> None:
    """Send what connections hold back, in the order of their first writes."""
    transports = turn[:]
    turn.clear()
    for transport in transports:
        try:
            transport._sendHeld()
        except Exception:
            log.err()
