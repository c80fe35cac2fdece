"""
A request and its response on a channel, for native resources.

The object is small on purpose: it has slots, parses nothing in advance, and sends a small response
in one write. A stock Twisted request, made on first use, provides the rest of C{IRequest}; see
L{ChannelRequest.web}.

A stream follows the pace of the client; the kernel sends files where it can. Header fields are
checked before they are sent: a value with a line end would let a client inject a header field or a
whole response.
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

# Below this size, a copy costs less than a second buffer in the system call.
_JOINED = 16 * 1024

_log = Logger()

_dateSecond = 0
_dateLine = b""


@define
class HeaderFields:
    """
    The header fields of a response, checked.

    @ivar block: The encoded lines, without Content-Length and Connection.
    @ivar length: The value of Content-Length, or C{None}.
    @ivar closes: Whether C{Connection: close} was given.
    """

    block: bytes
    length: int | None
    closes: bool


def encodeFields(headers: Iterable[tuple[bytes, bytes]], start: bytes = b"") -> HeaderFields:
    """
    Encode header fields, and add C{Date}.

    @param headers: Names and values in the order of the response.
    @param start: Lines already encoded and checked; see L{checkedFields}.
    @raise ValueError: If a name is not a token, a value has a control character, or only the
        channel may set the field.
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
    Encode header fields other than C{Date} and the fields that the channel sets.

    @raise ValueError: If a name is not a token, or a value has a control character.
    """
    pairs = [(name, value) for name, value in headers if lowerName(name)]
    block = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
    checkLines(block, len(pairs))
    return block


def checkLines(block: bytes, count: int) -> None:
    """
    Check encoded header fields, as a line end in a value would begin another field.

    @param count: The number of fields.
    @raise ValueError: If one has a control character.
    """
    if block.translate(None, FIELD_TEXT) != b"\r\n" * count:
        raise ValueError("a header value has a control character")


def checkedFields(block: bytes) -> HeaderFields:
    """
    Add C{Date} to fields already encoded and checked.

    @param block: The lines of the fields, without framing fields and C{Date}.
    """
    return HeaderFields(block + dateLine(), None, False)


def dateLine() -> bytes:
    """
    Encode the Date field, once a second: formatting it costs more than the rest of a small head.
    """
    global _dateSecond, _dateLine
    second = int(time.time())
    if second != _dateSecond:
        _dateSecond = second
        _dateLine = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
    return _dateLine


def phraseOf(code: int) -> str:
    """Return the reason phrase of a status, or C{""} for an unregistered one."""
    return _PHRASES.get(code, "")


def statusLine(code: int, phrase: bytes = b"") -> bytes:
    """
    Encode a status line.

    @param code: At least 200, as interim responses have no such head.
    @param phrase: Replaces the registered reason phrase.
    @raise ValueError: If the status is not final, or the phrase has a control character.
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


def setProtocol(transport: Any, protocol: Any) -> None:
    """Make a protocol the receiver of a transport's input."""
    # TLS delivers to its wrapped protocol; other transports deliver to their protocol attribute.
    if hasattr(transport, "wrappedProtocol"):
        transport.wrappedProtocol = protocol
    else:
        transport.protocol = protocol


class ChannelRequest(RequestHead):
    """
    One request and its response.

    Header names are lower case, values C{bytes} as received. The response is given either whole
    (L{respond}) or in parts: L{begin}, then L{send} or L{sendFile}, then L{finish}.

    The parser fills in the inherited attributes of L{RequestHead}.

    @ivar body: The body, which may still be arriving.
    @ivar handlerState: Any object of the handler, kept until the response is complete.
    @ivar started: Whether a response has begun, or the connection was dropped in its place.
    @ivar finished: Whether the response is complete, or the transport was handed over.
    @ivar disconnected: Whether the client was lost before the response was complete.
    @ivar lostReason: The reason for the loss of the client.
    @ivar status: The status of the response; 0 before it begins.
    @ivar bodySent: Bytes of its body passed to the connection.
    @ivar ends: See L{onEnd}; the channel calls them.
    @ivar disconnectCallbacks: See L{onDisconnect}.
    @ivar onBackPressure: Called with C{True} when the client falls behind with reading, and with
        C{False} when it catches up.
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
        # Framing of the response body: the bytes to follow, None if unknown; whether it is chunked;
        # and whether its bytes are omitted (HEAD, 204, 304).
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
        """Return whether the body of the begun response is omitted: HEAD, 204, 304."""
        return self._silent

    @property
    def clientHost(self) -> str:
        """Return the client's address, or C{''} for a UNIX socket."""
        host: str = self._channel.connection.clientHost
        return host

    def clientAddresses(self, trust: Trust | None) -> list[str]:
        """
        Return the addresses from the peer towards the client, through the trusted proxies.

        @param trust: Decides which peers are trusted proxies; C{None} for no proxies.
        """
        if trust is None:
            return [self.clientHost]
        forwardedFor = self.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        forwarded = self.headers.get(b"forwarded", b"").decode("latin-1")
        return clientAddresses(self.clientHost, trust, forwardedFor, forwarded)

    def clientAddress(self, trust: Trust | None) -> str:
        """
        Return the client's address as reported by trusted proxies, or else the peer's.

        @param trust: Decides which peers are trusted proxies; C{None} for no proxies.
        """
        return self.clientHost if trust is None else self.clientAddresses(trust)[-1]

    @property
    def serverHost(self) -> str:
        """Return the local address of the connection, or C{''} for a UNIX socket."""
        host: str = getattr(self._channel.connection.transport.getHost(), "host", "")
        return host

    @property
    def tlsVersion(self) -> str | None:
        """Return C{"1.2"} or C{"1.3"}, or C{None} without TLS."""
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

        Adds C{Date}, C{Content-Length} and C{Connection}. Does nothing if the client has
        disconnected.

        @param code: The status; 204 and 304 have no body.
        @param headers: The fields, or a result of L{checkedFields}.
        @param body: The body; not sent with 204 and 304, nor in response to HEAD.
        @param start: Lines to put before these fields, already encoded and checked.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If a response has already begun.
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
        Send a whole response whose fields are already encoded and checked.

        Takes half the time of L{respond} for an ordinary response.

        @param block: As in L{checkedFields}.
        @param body: The body; not sent with 204 and 304, nor in response to HEAD.
        @param length: The length of the body that a response to HEAD describes; by default, the
            length of C{body}.
        """
        if self.started or self.disconnected or self.version == b"HTTP/1.0" or code in (204, 304):
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

    def sendInterim(self, code: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """
        Send an interim response, before the final one (RFC 9110 section 15.2).

        Does nothing for a client of HTTP/1.0, which knows none, or one that has disconnected.

        @param code: 102 or 103: the connection sends 100 itself, and 101 is an upgrade.
        @raise ValueError: If the status is another one, or a header is not allowed.
        @raise RuntimeError: If a response has already begun.
        """
        if code not in (102, 103):
            raise ValueError(f"{code} is not the status of an interim response")
        block = encodeLines(headers)
        if self.started:
            raise RuntimeError("there is a response already")
        if not self.disconnected and self.version != b"HTTP/1.0":
            phrase = phraseOf(code).encode("ascii")
            self._channel.interim(b"HTTP/1.1 %d %b\r\n%b" % (code, phrase, block))

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
        @param headers: As in L{respond}, like C{start}.
        @param length: The length of the body in bytes; C{None} if it is unknown and C{headers} has
            no C{Content-Length}.
        @param phrase: Replaces the registered reason phrase.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If a response has already begun.
        """
        head, closes = self._encodeHead(code, headers, length, phrase, start)
        if self.disconnected:
            return
        self.started = True
        self._channel.begin(code, head, closes)

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """
        Send a part of the body.

        @param chunk: Any number of bytes; they are not sent for HEAD, 204 and 304.
        @return: C{None} if more may follow immediately, otherwise a Deferred to wait for.
        @raise ValueError: If this exceeds the declared length.
        @raise ClientLost: If the client has disconnected.
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

    def sendBuffer(self, view: memoryview) -> Deferred[None] | None:
        """
        Send the bytes of a buffer that the caller writes to again after this call; see L{send}.

        It saves the copy of large parts: of 256 KiB, a tenth of the time to send them.
        """
        if self._chunked:
            return self.send(bytes(view))
        self._account(len(view))
        if self._silent:
            return None
        self.bodySent += len(view)
        self._channel.writeBuffer(view)
        return self._writable() if self._channel.isPaused else None

    async def sendFile(self, fd: int, offset: int, count: int, run: Runner) -> None:
        """
        Send a range of an open file as a part of the body.

        Uses sendfile where possible; over TLS the file is read in pieces.

        @param fd: The descriptor; it must stay open until this is done.
        @param offset: The offset of the first byte in the file.
        @param count: The number of bytes to send.
        @param run: Calls a function in a thread; see L{Runner}.
        @raise ValueError: If this exceeds the declared length.
        @raise TruncatedFile: If the file is too short. The connection is dropped.
        @raise ClientLost: If the client has disconnected. If that happens while the kernel sends,
            the reason of the disconnect is raised instead.
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
                # Clients often abort a large response in order to request another range.
                self.bodySent += min(count, fileSender.sentBytes - before)
                raise
            self.bodySent += count
        else:
            await self._sendPieces(fd, offset, count, run)
        if self._chunked:
            self._channel.write(b"\r\n")

    def finish(self) -> None:
        """
        End the response. Does nothing if the client has disconnected.

        @raise ValueError: If less than the declared length was sent; the connection is dropped, so
            that the client notices.
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
        """
        Drop the connection, so that the client does not take a partial response for a complete one.
        """
        # Nothing more can be sent.
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

        @return: The head without Connection and the final empty line, and whether the connection
            has to close after the response.
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
            # The length of the omitted body is unknown; 0 would be wrong.
            length = None
        unframed = length is None and not silent
        chunked = unframed and self.version == b"HTTP/1.1"
        framing = b""
        if chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif length is not None and (code != 204 or fields.length == 0):
            # RFC 9110 section 8.6 forbids it with 204, but some browsers wait for a 0 in the
            # response to a CORS preflight, so an explicit 0 is sent.
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
            # Shorter with many requests in flight, whose clients may all be slow.
            size = self._channel.owner.pieceSize()
            piece = await run(os.pread, fd, min(count, size), offset)
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
        Call C{callback} once, when the response is complete or the client is lost; immediately if
        that has happened.

        @param callback: Must not raise.
        """
        if self.finished or self.disconnected:
            callback()
        else:
            self.ends = (*self.ends, callback)

    def onDisconnect(self, callback: Callable[[], None]) -> None:
        """
        Call C{callback} if the client is lost before the response is complete; immediately if it is
        already lost.
        """
        if self.disconnected:
            callback()
        elif self.disconnectCallbacks is None:
            self.disconnectCallbacks = [callback]
        else:
            self.disconnectCallbacks.append(callback)

    def takeTransport(self) -> tuple[Any, bytes]:
        """Take over the connection; see L{IRequestChannel.takeTransport}."""
        taken = self._channel.takeTransport()
        self.started = self.finished = True
        return taken

    def upgrade(self, protocol: IProtocol) -> None:
        """Hand the connection, and the bytes after the request, over to C{protocol}."""
        transport, leftover = self.takeTransport()
        setProtocol(transport, protocol)
        protocol.makeConnection(transport)
        if leftover:
            protocol.dataReceived(leftover)

    # For the channel

    def ended(self) -> None:
        """Mark the response as complete, and call the callbacks of L{onEnd}."""
        self.finished = True
        self.disconnectCallbacks = self.handlerState = None
        if self.ends:
            # Most callbacks refer to the request; keeping them would make a cycle.
            ends, self.ends = self.ends, ()
            for end in ends:
                end()

    def connectionLost(self, reason: Failure, bodyError: BodyLost) -> None:
        """
        Notify the body's reader, the writer and the callbacks of the disconnect.

        @param bodyError: The error for the body's reader.
        """
        self.disconnected = True
        self.lostReason = reason
        self.body.fail(bodyError)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            # Not an errback, which might never be handled: the next send raises ClientLost.
            waiter.callback(None)
        callbacks, self.disconnectCallbacks = self.disconnectCallbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                # The other callbacks must still run.
                _log.failure("a listener to the loss of a client failed")
        # Called last: the cancelled handler has counted the sent bytes.
        ends, self.ends = self.ends, ()
        for end in ends:
            end()
        # They refer to the request, as the callbacks do; keeping them would make a cycle.
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
        """Return a stock C{twisted.web.server.Request} that represents this request."""
        if self._web is None:
            self._web = self._channel.owner.webRequest(self)
        return self._web

    @property
    def channel(self) -> IRequestChannel:
        """Return the channel, for C{IRequest}."""
        return self._channel


def _ofWeb(name: str) -> property:
    return property(lambda self: getattr(self.web, name))


# The stock request provides the rest of the interface. __getattr__ would make every access to the
# request's own attributes three times slower.
for _name in IRequest.names(all=True):
    if not hasattr(ChannelRequest, _name):
        setattr(ChannelRequest, _name, _ofWeb(_name))

classImplements(ChannelRequest, IRequest, IWebResponse)  # type: ignore[misc]


class Completed:
    """An awaitable that is already done."""

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
    """The awaitable of a write to an omitted body: it cancels the coroutine."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        raise CancelledError()
        yield  # makes it a generator


READY = Completed()

LOST = ClientGone()

UNSEEN = Unseen()
