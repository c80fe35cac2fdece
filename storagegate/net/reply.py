"""
The response to a request, on its way out.

A small one is written at once; a stream follows the pace of the client; a file is sent by the
kernel where that is possible.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.net.filesending import Runner, ShortFile
from storagegate.net.httperrors import ClientLost
from storagegate.net.httpreply import (
    Fields,
    ReplyHead,
    checkedFields,
    dateLine,
    encodeFields,
    statusLine,
)
from storagegate.net.interfaces import IRequestChannel

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
        headers: Sequence[tuple[bytes, bytes]] | Fields,
        body: bytes = b"",
        start: bytes = b"",
    ) -> None:
        """
        Send a whole response.

        C{Date}, C{Content-Length} and C{Connection} are added. Does nothing if the client is gone.

        @param headers: The fields, or what
            L{checkedFields<storagegate.net.httpreply.checkedFields>} made of them.
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

        @param block: As for L{checkedFields<storagegate.net.httpreply.checkedFields>}.
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
        headers: Sequence[tuple[bytes, bytes]] | Fields,
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
        headers: Sequence[tuple[bytes, bytes]] | Fields,
        length: int | None,
        phrase: bytes,
        start: bytes,
    ) -> bytes:
        """Decide how the response is framed, and write its head."""
        if self.started:
            raise RuntimeError("there is a response already")
        fields = headers if isinstance(headers, Fields) else encodeFields(headers, start)
        reply = ReplyHead(self.method, self.version, code, fields, length)
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
                raise ShortFile(f"{count} bytes are missing")
            if self.disconnected:
                raise ClientLost()
            self._channel.write(piece)
            self.bodySent += len(piece)
            offset += len(piece)
            count -= len(piece)
            if self._channel.wireFull:
                await self._wireReady()
