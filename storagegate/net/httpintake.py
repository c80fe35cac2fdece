"""A body on its way from the wire to its reader."""

from storagegate.net.httpbody import RequestBody
from storagegate.net.httpframing import ChunkedDecoder, SizedDecoder
from storagegate.net.httphead import RequestHead
from storagegate.net.httplimits import HTTPLimits
from storagegate.net.interfaces import IBodySource


class BodyIntake:
    """
    Decodes a body and passes it on.

    @ivar body: What it passes it on to.
    @ivar isWanted: Whether it still does; a body that nobody wants is thrown away.
    @ivar owesContinue: Whether the client waits for C{100 Continue}.
    """

    __slots__ = ("_decoder", "_limits", "_received", "body", "isWanted", "owesContinue")

    def __init__(self, head: RequestHead, source: IBodySource, limits: HTTPLimits) -> None:
        self._limits = limits
        self._decoder: SizedDecoder | ChunkedDecoder
        if head.contentLength is None:
            self._decoder = ChunkedDecoder(limits)
        else:
            self._decoder = SizedDecoder(head.contentLength)
        self._received = 0
        self.body = RequestBody(source, head.contentLength, limits.bodyBuffer)
        self.isWanted = True
        self.owesContinue = head.expectsContinue

    @property
    def complete(self) -> bool:
        """Say whether the end has come."""
        return self._decoder.complete

    def feed(self, data: bytes) -> bytes:
        """
        Take a part of the body.

        @return: What follows the body.
        @raise BadRequest: If its framing is broken.
        """
        if data:
            # RFC 9110 section 10.1.1: who has begun to send needs no asking any more.
            self.owesContinue = False
        self._received += len(data)
        payload = self._decoder.feed(data)
        if self.isWanted:
            if self._decoder.complete:
                self.body.end(payload, self._decoder.trailers)
            else:
                self.body.feed(payload)
        return self._decoder.rest

    def isLarge(self) -> bool:
        """Say whether more is to come than a few small reads bring."""
        remaining = self._decoder.remaining
        return remaining is None or remaining > self._limits.drainedBody

    def blocksNext(self) -> bool:
        """
        Say whether the connection cannot go on after an answer that is given now.

        Too much of the body may be to come. Or the client waits for C{100 Continue}: then it may
        send its body next or another request, and nobody can tell which.
        """
        return not self._decoder.complete and (self.owesContinue or self.isLarge())

    def progress(self) -> int:
        """Count what has come, in steps that are worth calling progress."""
        if self._decoder.remaining is None:
            return self._received
        return self._received // self._limits.progressSize
