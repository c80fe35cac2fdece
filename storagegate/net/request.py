"""
A request and its response, as our own resources see them.

Lean on purpose: slots, nothing parsed that nobody asked for, one write for a small response.
Whatever else C{IRequest} has comes from a stock Twisted request that is made on first use, see
L{Request.web}.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from zope.interface import classImplements

from storagegate.net.filesending import Runner, ShortFile
from storagegate.net.httpbody import RequestBody
from storagegate.net.httperrors import BodyLost, ClientLost
from storagegate.net.httphead import RequestHead
from storagegate.net.httpreply import Fields, ReplyHead, encodeFields
from storagegate.net.interfaces import IForeignReply, IRequestChannel

# Below this a copy costs less than a second piece in the system call.
_JOINED = 16 * 1024

# Pieces of a file that cannot go by sendfile.
_FILE_PIECE = 256 * 1024

_log = Logger()


class Request:
    """
    One request.

    Header names are lower case, values C{bytes} as received. Responses are given either whole
    (L{respond}) or in parts: L{begin}, then L{send} or L{sendFile}, then L{finish}.

    @ivar uri: The target in origin form, raw.
    @ivar path: C{uri} up to the question mark, raw.
    @ivar queryString: C{uri} after it, raw.
    @ivar headers: Repeated fields joined by commas, Cookie by semicolons.
    @ivar headerList: The fields in their order.
    @ivar contentLength: C{None} if the body is chunked, 0 if there is none.
    @ivar body: The body, perhaps still coming.
    @ivar started: Whether a response has begun.
    @ivar finished: Whether the response is complete, or the transport has been taken.
    @ivar disconnected: Whether the client was lost before the response was complete.
    @ivar lostReason: Why it was lost.
    """

    __slots__ = (
        "_callbacks",
        "_channel",
        "_chunked",
        "_closes",
        "_remaining",
        "_silent",
        "_waiter",
        "_web",
        "body",
        "contentLength",
        "disconnected",
        "finished",
        "headerList",
        "headers",
        "lostReason",
        "method",
        "path",
        "queryString",
        "started",
        "uri",
        "version",
        "wireObserver",
    )

    def __init__(self, channel: IRequestChannel, head: RequestHead, body: RequestBody) -> None:
        self.method = head.method
        self.uri = head.uri
        self.path = head.path
        self.queryString = head.queryString
        self.version = head.version
        self.headers = head.headers
        self.headerList = head.headerList
        self.contentLength = head.contentLength
        self.body = body
        self.started = False
        self.finished = False
        self.disconnected = False
        self.lostReason: Failure | None = None
        self.wireObserver: Callable[[bool], None] | None = None
        self._channel = channel
        self._callbacks: list[Callable[[], None]] | None = None
        self._waiter: Deferred[None] | None = None
        self._web: Any = None
        # How the body of the response is framed: how many bytes are to come (None: nobody knows),
        # in chunks or not, and whether there are any on the wire at all.
        self._remaining: int | None = None
        self._chunked = False
        self._silent = False
        self._closes = False

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
    def closes(self) -> bool:
        """Say whether the response has announced that the connection closes after it."""
        return self._closes

    # A whole response

    def respond(
        self, code: int, headers: Sequence[tuple[bytes, bytes]] | Fields, body: bytes = b""
    ) -> None:
        """
        Send a whole response.

        C{Date}, C{Content-Length} and C{Connection} are added. Does nothing if the client is gone.

        @param headers: The fields, or what
            L{checkedFields<storagegate.net.httpreply.checkedFields>} made of them.
        @param body: Not sent in answer to HEAD, or with 204 and 304.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head = self._begin(code, headers, len(body), b"")
        if self.disconnected:
            return
        self.started = True
        if self._silent or not body:
            self._channel.write(head)
        elif len(body) < _JOINED:
            self._channel.write(head + body)
        else:
            self._channel.writeSequence((head, body))
        self._end()

    # A response in parts

    def begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | Fields,
        length: int | None,
        phrase: bytes = b"",
    ) -> None:
        """
        Send the head of a response.

        @param length: How long the body will be; C{None} if that is not known and no
            C{Content-Length} is among the headers.
        @param phrase: A reason phrase in place of the usual one.
        @raise ValueError: If a header is not allowed; nothing has been sent.
        @raise RuntimeError: If there is a response already.
        """
        head = self._begin(code, headers, length, phrase)
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
        @raise ShortFile: If the file ends before. The connection is dropped.
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
            await fileSender.sendFile(fd, offset, count, run)
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

    # Framing

    def _begin(
        self,
        code: int,
        headers: Sequence[tuple[bytes, bytes]] | Fields,
        length: int | None,
        phrase: bytes,
    ) -> bytes:
        """Decide how the response is framed, and write its head."""
        if self.started:
            raise RuntimeError("there is a response already")
        fields = headers if isinstance(headers, Fields) else encodeFields(headers)
        reply = ReplyHead(self.method, self.version, code, fields, length)
        self._closes = reply.closes or self._channel.beginResponse(code)
        head = reply.encode(self._closes, phrase)
        self._remaining = reply.remaining
        self._chunked = reply.chunked
        self._silent = reply.silent
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
        self._channel.requestDone()

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
                raise ShortFile(f"{count} bytes are missing")
            if self.disconnected:
                raise ClientLost()
            self._channel.write(piece)
            offset += len(piece)
            count -= len(piece)
            if self._channel.wireFull:
                await self._wireReady()


# By attribute access: most of the interface is found through __getattr__.
classImplements(Request, IRequest, IForeignReply)
