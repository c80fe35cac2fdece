"""
A request and its response, as our own resources see them.

Lean on purpose: slots, nothing parsed that nobody asked for, one write for a small response.
Whatever else C{IRequest} has comes from a stock Twisted request that is made on first use, see
L{ChannelRequest.web}.

Writes the head of a response.

What our own code gives as a header is checked on its way out: a value with a line end in it would
let a client write a header, or a whole response, of its own.

The response to a request, on its way out.

A small one is written at once; a stream follows the pace of the client; a file is sent by the
kernel where that is possible.

What is awaited where there is nothing to wait for.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from zope.interface import classImplements

from storagegate.core.options import parseDecimal
from storagegate.net.http.body import RequestBody
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    ClientLost,
    IRequestChannel,
    IWebResponse,
)
from storagegate.net.http.parser import RequestHead
from storagegate.net.sendfile import Runner, TruncatedFile

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

_STATUS_LINES = {
    code: b"HTTP/1.1 %d %b\r\n" % (code, phrase.encode("ascii"))
    for code, phrase in _PHRASES.items()
    if code >= 200
}

_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])

# Names that were found good, with their lower case. A program uses a few dozen; the bound is for
# one that makes names out of data.
_names: dict[bytes, bytes] = {}
_MAX_NAMES = 1024

_MAX_LENGTH = 2**63 - 1

_dateSecond = 0
_dateLine = b""


class HeaderFields:
    """
    The fields of a response, checked.

    @ivar block: Their lines, without those named below.
    @ivar length: The value of Content-Length, if there was one. It is not in C{block}.
    @ivar closes: Whether there was a C{Connection: close}. Connection is not in C{block}.
    """

    __slots__ = ("block", "closes", "length")

    def __init__(self, block: bytes, length: int | None, closes: bool) -> None:
        self.block = block
        self.length = length
        self.closes = closes


def encodeFields(headers: Iterable[tuple[bytes, bytes]], start: bytes = b"") -> HeaderFields:
    """
    Write header fields, and add C{Date}.

    @param start: Fields that are written and checked already, see L{checkedFields}.
    @raise ValueError: If a name is no token, a value has a control character, or framing is named
        that is the channel's to choose.
    """
    block = b""
    lines = 0
    length: int | None = None
    closes = False
    dated = False
    for name, value in headers:
        lowered = _names.get(name) or _checkName(name)
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
    if block.translate(None, _TEXT) != b"\r\n" * lines:
        raise ValueError("a header value has a control character")
    return HeaderFields(start + block if dated else start + block + dateLine(), length, closes)


def checkedFields(block: bytes) -> HeaderFields:
    """
    Take fields that have been written and checked already, and add C{Date}.

    @param block: Their lines. Nothing in it is about framing, and none is C{Date}.
    """
    return HeaderFields(block + dateLine(), None, False)


def phraseOf(code: int) -> str:
    """Give the usual words for a status, none for an unusual one."""
    return _PHRASES.get(code, "")


def statusLine(code: int, phrase: bytes = b"") -> bytes:
    """
    Write a status line.

    @param phrase: In place of the usual one.
    @raise ValueError: If this is no final status, or the phrase has a control character.
    """
    if not phrase and code in _STATUS_LINES:
        return _STATUS_LINES[code]
    if not 200 <= code <= 999:
        raise ValueError(f"{code} is not the status of a response")
    if phrase.translate(None, _TEXT):
        raise ValueError("a reason phrase has a control character")
    return b"HTTP/1.1 %d %b\r\n" % (code, phrase or b"Unknown")


class ResponseFraming:
    """
    How the body of a response is framed (RFC 9112 section 6).

    @ivar silent: Whether no body is sent, whatever its length is said to be.
    @ivar chunked: Whether the body goes out in chunks.
    @ivar remaining: How long the body is, C{None} if nothing says so.
    @ivar closes: Whether the connection has to close after it.
    """

    __slots__ = ("_code", "_fields", "_length", "_version", "chunked", "closes", "silent")

    def __init__(
        self, method: bytes, version: bytes, code: int, fields: HeaderFields, length: int | None
    ) -> None:
        """
        @param length: How long the body is, C{None} if that is not known.
        @raise ValueError: If the fields say another length.
        """
        if fields.length is not None:
            if method != b"HEAD" and code != 304 and length not in (None, fields.length):
                raise ValueError("the body and its Content-Length differ")
            length = fields.length
        elif code == 304:
            # What the length would be is not known; 0 would be a lie.
            length = None
        self._version = version
        self._code = code
        self._fields = fields
        self._length = length
        self.silent = method == b"HEAD" or code in (204, 304)
        unframed = length is None and not self.silent
        self.chunked = unframed and version == b"HTTP/1.1"
        self.closes = fields.closes or (unframed and not self.chunked)

    @property
    def remaining(self) -> int | None:
        """Say how many bytes have to follow."""
        return None if self.silent else self._length

    def encode(self, closes: bool, phrase: bytes) -> bytes:
        """
        Write the head.

        @param closes: Whether the connection closes after it.
        @param phrase: In place of the usual reason phrase, if not empty.
        """
        framing = b""
        if self.chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif self._length is not None and (self._code != 204 or self._fields.length == 0):
            # RFC 9110 section 8.6 wants none with 204, but some browsers wait for the 0 in answer
            # to a CORS preflight: one that is given is sent.
            framing = b"Content-Length: %d\r\n" % self._length
        if closes:
            framing += b"Connection: close\r\n"
        elif self._version == b"HTTP/1.0":
            framing += b"Connection: keep-alive\r\n"
        return b"%b%b%b\r\n" % (statusLine(self._code, phrase), self._fields.block, framing)


def dateLine() -> bytes:
    """Write the Date field. Made once a second: it costs more than the rest of a small head."""
    global _dateSecond, _dateLine
    second = int(time.time())
    if second != _dateSecond:
        _dateSecond = second
        _dateLine = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
    return _dateLine


def plainText(error: BadRequest) -> tuple[bytes, bytes]:
    """Give the content type and the body of a rejection where nobody wants another shape."""
    return b"text/plain; charset=utf-8", error.text.encode("ascii") + b"\n"


def rejection(error: BadRequest, contentType: bytes, body: bytes) -> bytes:
    """Write the whole response to a request that was no request. The connection closes after."""
    return b"".join(
        [
            statusLine(error.code),
            dateLine(),
            b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
            if error.code == 405
            else b"",
            b"Content-Type: %b\r\nContent-Length: %d\r\n" % (contentType, len(body)),
            b"Connection: close\r\n\r\n",
            body,
        ]
    )


def _checkName(name: bytes) -> bytes:
    if not name or not _TOKEN.issuperset(name):
        raise ValueError("a header name is no token")
    if len(_names) >= _MAX_NAMES:
        _names.clear()
    lowered = _names[name] = name.lower()
    return lowered


# Below this a copy costs less than a second piece in the system call.
_JOINED = 16 * 1024

# Pieces of a file that cannot go by sendfile.
_FILE_PIECE = 256 * 1024


class Reply:
    """
    The half of a request that answers it.

    Responses are given either whole (L{respond}) or in parts: L{begin}, then L{send} or
    L{sendFile}, then L{finish}.

    @ivar started: Whether a response has begun.
    @ivar finished: Whether the response is complete, or the transport has been taken.
    @ivar disconnected: Whether the client was lost before the response was complete.
    @ivar answerer: Whatever whoever answers wants to be kept until the response is complete.
    @ivar status: The code of the response; 0 before it has begun.
    @ivar bodySent: How many bytes of its body were given to the connection.
    """

    __slots__ = (
        "_callbacks",
        "_channel",
        "_chunked",
        "_closes",
        "_ends",
        "_remaining",
        "_silent",
        "_waiter",
        "answerer",
        "bodySent",
        "disconnected",
        "finished",
        "method",
        "started",
        "status",
        "version",
    )

    def __init__(self, channel: IRequestChannel, method: bytes, version: bytes) -> None:
        self.method = method
        self.version = version
        self.started = False
        self.finished = False
        self.disconnected = False
        self.answerer: Any = None
        self.status = 0
        self.bodySent = 0
        self._channel = channel
        self._callbacks: list[Callable[[], None]] | None = None
        self._waiter: Deferred[None] | None = None
        self._ends: tuple[Callable[[], None], ...] = ()
        # How the body of the response is framed: how many bytes are to come (None: nobody knows),
        # in chunks or not, and whether there are any on the wire at all.
        self._remaining: int | None = None
        self._chunked = False
        self._silent = False
        self._closes = False

    @property
    def closes(self) -> bool:
        """Say whether the response has announced that the connection closes after it."""
        return self._closes

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

        @param headers: The fields, or what
            L{checkedFields<storagegate.net.http.message.checkedFields>} made of them.
        @param body: Not sent in answer to HEAD, or with 204 and 304.
        @param start: Fields that go before these pairs, written and checked already.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head = self._begin(code, headers, len(body), b"", start)
        if self.disconnected:
            return
        self.started = True
        if not self._silent:
            self.bodySent = len(body)
        if self._silent or not body:
            self._channel.write(head)
        elif len(body) < _JOINED:
            self._channel.write(head + body)
        else:
            self._channel.writeSequence((head, body))
        self._end()

    def respondWith(self, code: int, block: bytes, body: bytes) -> None:
        """
        Send a whole response whose fields are written and checked already.

        As L{respond}, in two thirds of its time where nothing is unusual: 1.2 microseconds of the
        20 that a small request takes.

        @param block: As for L{checkedFields<storagegate.net.http.message.checkedFields>}.
        """
        if (
            self.started
            or self.disconnected
            or self.version != b"HTTP/1.1"
            or self.method == b"HEAD"
            or code in (204, 304)
            or len(body) >= _JOINED
        ):
            self.respond(code, checkedFields(block), body)
            return
        line = statusLine(code)
        channel = self._channel
        closes = self._closes = channel.beginResponse(code)
        end = b"\r\nConnection: close\r\n\r\n" if closes else b"\r\n\r\n"
        self.started = True
        self.status = code
        self.bodySent = len(body)
        channel.write(
            b"%b%b%bContent-Length: %d%b%b" % (line, block, dateLine(), len(body), end, body)
        )
        self._end()

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

        @param length: How long the body will be; C{None} if that is not known and no
            C{Content-Length} is among the headers.
        @param phrase: A reason phrase in place of the usual one.
        @param start: As for L{respond}.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head = self._begin(code, headers, length, phrase, start)
        if self.disconnected:
            return
        self.started = True
        self._channel.write(head)

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """
        Send a part of the body.

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
        return self._wireReady() if self._channel.wireFull else None

    async def sendFile(self, fd: int, offset: int, count: int, run: Runner) -> None:
        """
        Send a part of an open file as a part of the body.

        The kernel does it where it can; over TLS the file is read in pieces.

        @param fd: Stays open until this is done.
        @param run: Calls a function in a thread: C{run(function, *arguments) -> Deferred}.
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
        fileSender = self._channel.wire.fileSender
        if fileSender is not None:
            before = fileSender.sentBytes
            try:
                await fileSender.sendFile(fd, offset, count, run)
            except BaseException:
                # Clients drop large answers half read, to ask for another range.
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
            so that the client sees it too.
        """
        if self.disconnected:
            return
        if not self.started or self.finished:
            raise RuntimeError("there is no response to finish")
        if self._remaining:
            self.abort()
            raise ValueError(f"{self._remaining} bytes of the declared length were not sent")
        if self._chunked:
            self._channel.write(b"0\r\n\r\n")
        self._end()

    def abort(self) -> None:
        """Drop the connection, so that the client cannot take what it got for the whole."""
        self._channel.abort()

    # Framing

    def _begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | HeaderFields,
        length: int | None,
        phrase: bytes,
        start: bytes,
    ) -> bytes:
        """Decide how the response is framed, and write its head."""
        if self.started:
            raise RuntimeError("there is a response already")
        fields = headers if isinstance(headers, HeaderFields) else encodeFields(headers, start)
        reply = ResponseFraming(self.method, self.version, code, fields, length)
        self._closes = reply.closes or self._channel.beginResponse(code)
        head = reply.encode(self._closes, phrase)
        self._remaining = reply.remaining
        self._chunked = reply.chunked
        self._silent = reply.silent
        self.status = code
        return head

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

    def _end(self) -> None:
        self.finished = True
        self._callbacks = None
        self.answerer = None
        self.noteEnd()
        self._channel.requestDone()

    def onEnd(self, callback: Callable[[], None]) -> None:
        """
        Call C{callback} once: when the response is complete, or the client is lost before that.

        @param callback: Raises nothing.
        """
        self._ends = (*self._ends, callback)

    def noteEnd(self) -> None:
        """Tell whoever wants to know that the response has ended."""
        if self._ends:
            # They know the request, mostly: to keep them would make a circle for the collector.
            ends, self._ends = self._ends, ()
            for end in ends:
                end()

    def _wireReady(self) -> Deferred[None]:
        if self._waiter is None:
            self._waiter = Deferred(self._forgetWaiter)
        return self._waiter

    def _forgetWaiter(self, waiter: Deferred[None]) -> None:
        self._waiter = None

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
            if self._channel.wireFull:
                await self._wireReady()


_log = Logger()


class ChannelRequest(Reply):
    """
    One request.

    Header names are lower case, values C{bytes} as received.

    @ivar uri: The target in origin form, raw.
    @ivar path: C{uri} up to the question mark, raw.
    @ivar queryString: C{uri} after it, raw.
    @ivar headers: Repeated fields joined by commas, Cookie by semicolons.
    @ivar headerList: The fields in their order.
    @ivar contentLength: C{None} if the body is chunked, 0 if there is none.
    @ivar body: The body, perhaps still coming.
    @ivar lostReason: Why the client was lost.
    """

    __slots__ = (
        "_web",
        "body",
        "contentLength",
        "headerList",
        "headers",
        "lostReason",
        "path",
        "queryString",
        "uri",
        "wireObserver",
    )

    def __init__(self, channel: IRequestChannel, head: RequestHead, body: RequestBody) -> None:
        super().__init__(channel, head.method, head.version)
        self.uri = head.uri
        self.path = head.path
        self.queryString = head.queryString
        self.headers = head.headers
        self.headerList = head.headerList
        self.contentLength = head.contentLength
        self.body = body
        self.lostReason: Failure | None = None
        self.wireObserver: Callable[[bool], None] | None = None
        self._web: Any = None

    @property
    def secure(self) -> bool:
        """Say whether the connection is encrypted."""
        secure: bool = self._channel.wire.secure
        return secure

    @property
    def clientHost(self) -> str:
        """Give the client's address, C{''} for a UNIX socket."""
        host: str = self._channel.wire.clientHost
        return host

    @property
    def clientPort(self) -> int:
        """Give the client's port, 0 for a UNIX socket."""
        port: int = self._channel.wire.clientPort
        return port

    # The connection

    def onDisconnect(self, callback: Callable[[], None]) -> None:
        """Call C{callback} if the client is lost before the response is complete, or is already."""
        if self.disconnected:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Take the connection over, for another protocol.

        The request is over with that; whoever takes the transport answers it.

        @return: The transport, and the bytes that came after the request.
        """
        taken = self._channel.takeTransport()
        self.started = self.finished = True
        self.noteEnd()
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
        """Let the body's reader, the writer and whoever asked know that the client is gone."""
        self.disconnected = True
        self.lostReason = reason
        self.body.fail(bodyError)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            # Not an error, which nobody may be waiting for: the next send raises ClientLost.
            waiter.callback(None)
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                # The others have work of their own to end.
                _log.failure("a listener to the loss of a client failed")
        # Last: whoever answers has learnt of it, and has counted what was sent.
        self.noteEnd()

    def wireChanged(self, full: bool) -> None:
        """Pause and resume whoever writes."""
        waiter = self._waiter
        if waiter is not None and not full:
            self._waiter = None
            waiter.callback(None)
        if self.wireObserver is not None:
            self.wireObserver(full)

    # For stock Twisted code

    @property
    def web(self) -> Any:
        """Give the stock C{twisted.web.server.Request} that stands for this one."""
        if self._web is None:
            self._web = self._channel.owner.webRequest(self)
        return self._web

    def __getattr__(self, name: str) -> Any:
        """Give the rest of C{IRequest} from L{web}."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.web, name)

    @property
    def channel(self) -> IRequestChannel:
        """Give the connection, as C{IRequest} has it."""
        return self._channel


# By attribute access: most of the interface is found through __getattr__.
classImplements(ChannelRequest, IRequest, IWebResponse)


class Completed:
    """Something awaited that has happened already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # makes it a generator


class ClientGone:
    """Something awaited by who writes to a client that is gone."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        raise ClientLost()
        yield  # makes it a generator


READY = Completed()

LOST = ClientGone()
