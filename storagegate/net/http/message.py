"""
A request and its response on a channel, as native resources see them.

Small on purpose: slots, nothing parsed in advance, one write for a small response. The rest of
C{IRequest} comes from a stock Twisted request that is made on first use, see L{ChannelRequest.web}.

A small response is written whole; a stream follows the pace of the client; the kernel sends a file
where it can. Header fields are checked on their way out: a value with a line end in it would let a
client write a header, or a whole response, of its own.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from zope.interface import classImplements

from storagegate.core.options import parseDecimal
from storagegate.net.forwarded import Trust, clientAddresses
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    ClientLost,
    IRequestChannel,
    IWebResponse,
)
from storagegate.net.http.parser import (
    FIELD_TEXT,
    NO_BODY,
    RequestBody,
    RequestHead,
    lowerName,
)
from storagegate.net.sendfile import Runner, TruncatedFile

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

_STATUS_LINES = {
    code: b"HTTP/1.1 %d %b\r\n" % (code, phrase.encode("ascii"))
    for code, phrase in _PHRASES.items()
    if code >= 200
}

_MAX_LENGTH = 2**63 - 1

# Below this a copy costs less than a second piece in the system call.
_JOINED = 16 * 1024

# Bytes read at a time from a file that cannot be sent by sendfile.
_FILE_PIECE = 256 * 1024

_log = Logger()

_dateSecond = 0
_dateLine = b""


@define
class HeaderFields:
    """
    The header fields of a response, checked.

    @ivar block: The encoded lines, without Content-Length and Connection.
    @ivar length: The value of Content-Length, C{None} if it was not given.
    @ivar closes: Whether C{Connection: close} was given.
    """

    block: bytes
    length: int | None
    closes: bool


def encodeFields(headers: Iterable[tuple[bytes, bytes]], start: bytes = b"") -> HeaderFields:
    """
    Encode header fields, and add C{Date}.

    @param headers: Names and values in the order of the response.
    @param start: Lines that are encoded and checked already, see L{checkedFields}.
    @raise ValueError: If a name is no token, a value has a control character, or the field is for
        the channel to set.
    """
    block = b""
    lines = 0
    length: int | None = None
    closes = False
    dated = False
    for name, value in headers:
        lowered = lowerName(name)
        if lowered == b"content-length":
            length = parseDecimal(value, _MAX_LENGTH)
            continue
        if lowered == b"connection":
            closes = closes or b"close" in value.lower()
            continue
        if lowered == b"transfer-encoding":
            raise ValueError("the transfer coding is chosen by the connection")
        if lowered == b"date":
            dated = True
        block += b"%b: %b\r\n" % (name, value)
        lines += 1
    # One pass over all lines costs less than one over each value.
    checkLines(block, lines)
    return HeaderFields(start + block if dated else start + block + dateLine(), length, closes)


def encodeLines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """
    Encode header fields that are none of the channel's and not C{Date}.

    @raise ValueError: If a name is no token, or a value has a control character.
    """
    pairs = [(name, value) for name, value in headers if lowerName(name)]
    block = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    checkLines(block, len(pairs))
    return block


def checkLines(block: bytes, count: int) -> None:
    """
    Check encoded header fields: a value with a line end would be a field of its own.

    @param count: How many fields they are.
    @raise ValueError: If one has a control character.
    """
    if block.translate(None, FIELD_TEXT) != b"\r\n" * count:
        raise ValueError("a header value has a control character")


def checkedFields(block: bytes) -> HeaderFields:
    """
    Add C{Date} to fields that are encoded and checked already.

    @param block: Their lines, without framing fields and C{Date}.
    """
    return HeaderFields(block + dateLine(), None, False)


def dateLine() -> bytes:
    """Encode the Date field. Made once a second: it costs more than the rest of a small head."""
    global _dateSecond, _dateLine
    second = int(time.time())
    if second != _dateSecond:
        _dateSecond = second
        _dateLine = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
    return _dateLine


def phraseOf(code: int) -> str:
    """Return the reason phrase of a status, C{""} for an unregistered one."""
    return _PHRASES.get(code, "")


def statusLine(code: int, phrase: bytes = b"") -> bytes:
    """
    Encode a status line.

    @param code: From 200 on: interim responses have no such head.
    @param phrase: In place of the registered reason phrase.
    @raise ValueError: If this is no final status, or the phrase has a control character.
    """
    if not phrase and code in _STATUS_LINES:
        return _STATUS_LINES[code]
    if not 200 <= code <= 999:
        raise ValueError(f"{code} is not the status of a response")
    if phrase.translate(None, FIELD_TEXT):
        raise ValueError("a reason phrase has a control character")
    return b"HTTP/1.1 %d %b\r\n" % (code, phrase or b"Unknown")


def plainText(error: BadRequest) -> tuple[bytes, bytes]:
    """Return the content type and the body of a rejection as plain text."""
    return b"text/plain; charset=utf-8", error.text.encode("ascii") + b"\n"


def rejection(error: BadRequest, contentType: bytes, body: bytes) -> bytes:
    """Encode the whole response to a request that breaks the protocol. The connection closes."""
    head = statusLine(error.code) + dateLine()
    if error.code == 405:
        head += b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    head += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (contentType, len(body))
    return head + b"Connection: close\r\n\r\n" + body


class ChannelRequest(RequestHead):
    """
    One request and its response.

    Header names are lower case, values C{bytes} as received. The response is given either whole
    (L{respond}) or in parts: L{begin}, then L{send} or L{sendFile}, then L{finish}.

    It is its own head, which the parser fills in.

    @ivar body: The body, perhaps still arriving.
    @ivar handlerState: Any object that the handler keeps here until the response is complete.
    @ivar started: Whether a response has begun, or the connection was dropped in its place.
    @ivar finished: Whether the response is complete, or the transport was handed over.
    @ivar disconnected: Whether the client was lost before the response was complete.
    @ivar lostReason: Why the client was lost.
    @ivar status: The code of the response; 0 before it has begun.
    @ivar bodySent: Bytes of its body that were given to the connection.
    @ivar ends: See L{onEnd}; the channel calls them.
    @ivar disconnectCallbacks: See L{onDisconnect}.
    @ivar onBackPressure: Called with whether the client is behind with reading, at each change.
    """

    __slots__ = (
        "_channel",
        "_chunked",
        "_remaining",
        "_silent",
        "_waiter",
        "_web",
        "body",
        "bodySent",
        "disconnectCallbacks",
        "disconnected",
        "ends",
        "finished",
        "handlerState",
        "lostReason",
        "onBackPressure",
        "started",
        "status",
    )

    def __init__(self, channel: IRequestChannel) -> None:
        self.body: RequestBody = NO_BODY
        self.handlerState: Any = None
        self.started = False
        self.finished = False
        self.disconnected = False
        self.lostReason: Failure | None = None
        self.status = 0
        self.bodySent = 0
        self.ends: tuple[Callable[[], None], ...] = ()
        self.onBackPressure: Callable[[bool], None] | None = None
        self._channel = channel
        self.disconnectCallbacks: list[Callable[[], None]] | None = None
        self._waiter: Deferred[None] | None = None
        self._web: Any = None
        # How the body of the response is framed: the bytes that are to follow, C{None} if that is
        # not known; in chunks or not; and whether its bytes are left out (HEAD, 204, 304).
        self._remaining: int | None = None
        self._chunked = False
        self._silent = False

    @property
    def secure(self) -> bool:
        """Return whether the connection is encrypted."""
        secure: bool = self._channel.connection.secure
        return secure

    @property
    def isSilent(self) -> bool:
        """Return whether the body of the response that has begun is not sent: HEAD, 204, 304."""
        return self._silent

    @property
    def clientHost(self) -> str:
        """Return the client's address, C{''} for a UNIX socket."""
        host: str = self._channel.connection.clientHost
        return host

    def clientAddresses(self, trust: Trust | None) -> list[str]:
        """
        Return the addresses from the peer outwards, as far as proxies are trusted.

        @param trust: Which peers are such proxies; L{None}: none is.
        """
        if trust is None:
            return [self.clientHost]
        forwardedFor = self.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        forwarded = self.headers.get(b"forwarded", b"").decode("latin-1")
        return clientAddresses(self.clientHost, trust, forwardedFor, forwarded)

    def clientAddress(self, trust: Trust | None) -> str:
        """
        Return the address of the client that a trusted proxy names, or else of the peer.

        @param trust: Which peers are such proxies; L{None}: none is.
        """
        return self.clientHost if trust is None else self.clientAddresses(trust)[-1]

    @property
    def serverHost(self) -> str:
        """Return the address that the client is connected to, C{''} for a UNIX socket."""
        host: str = getattr(self._channel.connection.transport.getHost(), "host", "")
        return host

    @property
    def tlsVersion(self) -> str | None:
        """Return C{"1.2"} or C{"1.3"}, L{None} for a connection without TLS."""
        version: str | None = self._channel.connection.tlsVersion()
        return version

    @property
    def clientPort(self) -> int:
        """Return the client's port, 0 for a UNIX socket."""
        port: int = self._channel.connection.clientPort
        return port

    # A whole response

    def respond(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | HeaderFields,
        body: bytes = b"",
        start: bytes = b"",
    ) -> None:
        """
        Send a whole response.

        C{Date}, C{Content-Length} and C{Connection} are added. Does nothing if the client is gone.

        @param code: The status; 204 and 304 have no body.
        @param headers: The fields, or what L{checkedFields} made of them.
        @param body: Not sent with 204 and 304, and to HEAD.
        @param start: Lines that go before these fields, encoded and checked already.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head, closes = self._encodeHead(code, headers, len(body), b"", start)
        if self.disconnected:
            return
        self.started = True
        if self._silent:
            body = b""
        self.bodySent = len(body)
        self._channel.respond(code, head, body, closes)

    def respondWith(self, code: int, block: bytes, body: bytes, length: int | None = None) -> None:
        """
        Send a whole response whose fields are encoded and checked already.

        As L{respond}, in half of its time where nothing is unusual.

        @param block: As for L{checkedFields}.
        @param body: Not sent with 204 and 304, and to HEAD.
        @param length: Of the body that a response to HEAD describes; by default, of C{body}.
        """
        if self.started or self.disconnected or self.version != b"HTTP/1.1" or code in (204, 304):
            fields = checkedFields(block)
            if code != 304:
                fields.length = length
            self.respond(code, fields, body)
            return
        line = _STATUS_LINES.get(code) or statusLine(code)
        if length is None:
            length = len(body)
        if self.method == b"HEAD":
            body = b""
        self.started = True
        self.status = code
        self.bodySent = len(body)
        head = b"%b%b%bContent-Length: %d\r\n" % (line, block, dateLine(), length)
        self._channel.respond(code, head, body, False)

    # A response in parts

    def begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | HeaderFields,
        length: int | None,
        phrase: bytes = b"",
        start: bytes = b"",
    ) -> None:
        """
        Send the head of a response.

        @param code: The status; 204 and 304 have no body.
        @param headers: As for L{respond}, and C{start}.
        @param length: Bytes of the body; C{None} if that is not known and no C{Content-Length} is
            among the headers.
        @param phrase: A reason phrase in place of the registered one.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head, closes = self._encodeHead(code, headers, length, phrase, start)
        if self.disconnected:
            return
        self.started = True
        self._channel.begin(code, head, closes)

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """
        Send a part of the body.

        @param chunk: Any number of bytes; none are sent for HEAD, 204 and 304.
        @return: C{None} if more may follow at once, otherwise a Deferred to wait for.
        @raise ValueError: If this is more than the declared length.
        @raise ClientLost: If the client is gone.
        """
        self._account(len(chunk))
        if self._silent or not chunk:
            return None
        self.bodySent += len(chunk)
        if not self._chunked:
            self._channel.write(chunk)
        elif len(chunk) < _JOINED:
            self._channel.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        else:
            self._channel.writeSequence((b"%x\r\n" % len(chunk), chunk, b"\r\n"))
        return self._writable() if self._channel.isPaused else None

    async def sendFile(self, fd: int, offset: int, count: int, run: Runner) -> None:
        """
        Send a part of an open file as a part of the body.

        The kernel does it where it can; over TLS the file is read in pieces.

        @param fd: Stays open until this is done.
        @param offset: The first byte, from the beginning of the file.
        @param count: How many bytes are sent; fewer in the file are an error.
        @param run: Calls a function in a thread, see L{Runner}.
        @raise ValueError: If this is more than the declared length.
        @raise TruncatedFile: If the file ends before. The connection is dropped.
        @raise ClientLost: If the client is gone. One that goes while the kernel sends raises the
            reason that the connection was lost for.
        """
        self._account(count)
        if self._silent or not count:
            return
        if self._chunked:
            self._channel.write(b"%x\r\n" % count)
        fileSender = self._channel.connection.fileSender
        if fileSender is not None:
            before = fileSender.sentBytes
            try:
                await fileSender.sendFile(fd, offset, count, run)
            except BaseException:
                # Clients drop large responses half read, to request another range.
                self.bodySent += min(count, fileSender.sentBytes - before)
                raise
            self.bodySent += count
        else:
            await self._sendPieces(fd, offset, count, run)
        if self._chunked:
            self._channel.write(b"\r\n")

    def finish(self) -> None:
        """
        End the response. Does nothing if the client is gone.

        @raise ValueError: If less than the declared length was sent; the connection is dropped,
            so that the client notices too.
        """
        if self.disconnected:
            return
        if not self.started or self.finished:
            raise RuntimeError("there is no response to finish")
        if self._remaining:
            self.abort()
            raise ValueError(f"{self._remaining} bytes of the declared length were not sent")
        self._channel.finish(b"0\r\n\r\n" if self._chunked else b"")

    def abort(self) -> None:
        """Drop the connection, so that the client cannot take a part for the whole."""
        # Nothing can be sent any more.
        self.started = True
        self._channel.abort()

    def _encodeHead(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | HeaderFields,
        length: int | None,
        phrase: bytes,
        start: bytes,
    ) -> tuple[bytes, bool]:
        """
        Choose the framing of the body (RFC 9112 section 6), and encode the head.

        @return: The head without Connection and its last line end, and whether the connection has
            to close after the response.
        """
        if self.started:
            raise RuntimeError("there is a response already")
        fields = headers if isinstance(headers, HeaderFields) else encodeFields(headers, start)
        silent = self.method == b"HEAD" or code in (204, 304)
        if fields.length is not None:
            if self.method != b"HEAD" and code != 304 and length not in (None, fields.length):
                raise ValueError("the body and its Content-Length differ")
            length = fields.length
        elif code == 304:
            # What the length would be is not known; 0 would be wrong.
            length = None
        unframed = length is None and not silent
        chunked = unframed and self.version == b"HTTP/1.1"
        framing = b""
        if chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif length is not None and (code != 204 or fields.length == 0):
            # RFC 9110 section 8.6 forbids it with 204, but some browsers wait for the 0 in the
            # response to a CORS preflight: one that is given is sent.
            framing = b"Content-Length: %d\r\n" % length
        head = b"%b%b%b" % (statusLine(code, phrase), fields.block, framing)
        self._remaining = None if silent else length
        self._chunked = chunked
        self._silent = silent
        self.status = code
        return head, fields.closes or (unframed and not chunked)

    def _account(self, count: int) -> None:
        """Count bytes of the body before they are sent."""
        if self.disconnected:
            raise ClientLost()
        if not self.started or self.finished:
            raise RuntimeError("there is no response that takes more")
        if self._remaining is not None:
            if count > self._remaining:
                raise ValueError("this is more than the declared length")
            self._remaining -= count

    def _writable(self) -> Deferred[None]:
        if self._waiter is None:
            self._waiter = Deferred(lambda waiter: setattr(self, "_waiter", None))
        return self._waiter

    async def _sendPieces(self, fd: int, offset: int, count: int, run: Runner) -> None:
        while count:
            piece = await run(os.pread, fd, min(count, _FILE_PIECE), offset)
            if not piece:
                self.abort()
                raise TruncatedFile(f"{count} bytes are missing")
            if self.disconnected:
                raise ClientLost()
            self._channel.write(piece)
            self.bodySent += len(piece)
            offset += len(piece)
            count -= len(piece)
            if self._channel.isPaused:
                await self._writable()

    # The connection

    def onEnd(self, callback: Callable[[], None]) -> None:
        """
        Call C{callback} once: when the response is complete, or the client is lost before that. At
        once if that has happened.

        @param callback: Raises nothing.
        """
        if self.finished or self.disconnected:
            callback()
        else:
            self.ends = (*self.ends, callback)

    def onDisconnect(self, callback: Callable[[], None]) -> None:
        """Call C{callback} if the client is lost before the response is complete, or is already."""
        if self.disconnected:
            callback()
        elif self.disconnectCallbacks is None:
            self.disconnectCallbacks = [callback]
        else:
            self.disconnectCallbacks.append(callback)

    def takeTransport(self) -> tuple[Any, bytes]:
        """Take the connection over, see L{IRequestChannel.takeTransport}."""
        taken = self._channel.takeTransport()
        self.started = self.finished = True
        return taken

    def upgrade(self, protocol: IProtocol) -> None:
        """Let C{protocol} have the connection, and the bytes that came after the request."""
        transport, leftover = self.takeTransport()
        # TLS wraps the protocol it delivers to; elsewhere the transport delivers to it itself.
        if hasattr(transport, "wrappedProtocol"):
            transport.wrappedProtocol = protocol
        else:
            transport.protocol = protocol
        protocol.makeConnection(transport)
        if leftover:
            protocol.dataReceived(leftover)

    # For the channel

    def connectionLost(self, reason: Failure, bodyError: BodyLost) -> None:
        """
        Notify the body's reader, the writer and the callbacks that the client is gone.

        @param bodyError: For the body's reader.
        """
        self.disconnected = True
        self.lostReason = reason
        self.body.fail(bodyError)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            # Not an error, which might never be handled: the next send raises ClientLost.
            waiter.callback(None)
        callbacks, self.disconnectCallbacks = self.disconnectCallbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                # The others have work of their own to end.
                _log.failure("a listener to the loss of a client failed")
        # Last: the handler has been cancelled, and has counted what was sent.
        ends, self.ends = self.ends, ()
        for end in ends:
            end()
        # They know the request, as the callbacks do: to keep them would make a cycle.
        self.handlerState = self.onBackPressure = None

    def setPaused(self, isPaused: bool) -> None:
        """Pause or resume the writer."""
        waiter = self._waiter
        if waiter is not None and not isPaused:
            self._waiter = None
            waiter.callback(None)
        if self.onBackPressure is not None:
            self.onBackPressure(isPaused)

    # For stock Twisted code

    @property
    def web(self) -> Any:
        """Return the stock C{twisted.web.server.Request} that stands for this one."""
        if self._web is None:
            self._web = self._channel.owner.webRequest(self)
        return self._web

    @property
    def channel(self) -> IRequestChannel:
        """Return the connection, as C{IRequest} has it."""
        return self._channel


def _ofWeb(name: str) -> property:
    return property(lambda self: getattr(self.web, name))


# The rest of the interface is that of the stock request. Not by __getattr__, which would make every
# access to the request's own attributes three times as long.
for _name in IRequest.names(all=True):
    if not hasattr(ChannelRequest, _name):
        setattr(ChannelRequest, _name, _ofWeb(_name))

classImplements(ChannelRequest, IRequest, IWebResponse)  # type: ignore[misc]


class Completed:
    """An awaitable that has happened already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # makes it a generator


class ClientGone:
    """An awaitable that fails with L{ClientLost}."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        raise ClientLost()
        yield  # makes it a generator


class Unseen:
    """An awaitable of more of a body that is not sent: it cancels the coroutine."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        raise CancelledError()
        yield  # makes it a generator


READY = Completed()

LOST = ClientGone()

UNSEEN = Unseen()
