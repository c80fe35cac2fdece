"""The response, as handlers see it."""

from collections.abc import Awaitable, Callable
from typing import Any, Self
from weakref import ref

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.http.asbytes import asBytes
from storagegate.http.awaitables import LOST, READY
from storagegate.http.contenttypes import withUTF8
from storagegate.http.encodedbody import INLINE_SIZE, EncodedBody, encodeWhole
from storagegate.http.errors import ResponseSent
from storagegate.http.fileanswers import FileAnswers
from storagegate.http.freshness import bodyTag, isConditional
from storagegate.http.responseheaders import BODILESS
from storagegate.http.responsehooks import (
    ChooseEncoder,
    IBodyEncoder,
    ResponseHooks,
    waitForAll,
)
from storagegate.net.httperrors import ClientLost
from storagegate.net.request import Request as LeanRequest

_HTML = ("Content-Type", "text/html; charset=utf-8")
_JSON = ("Content-Type", "application/json; charset=utf-8")
_BYTES = ("Content-Type", "application/octet-stream")

# How much a handler writes in one go before others get their turn, though nothing makes it wait;
# and what a write counts for beside its bytes. Some milliseconds' work.
_TURN_SIZE = 512 * 1024
_WRITE_COST = 256

# A body over this gets its ETag in a thread: SHA-1 takes a millisecond for each MiB.
_TAG_SIZE = 4 * 1024 * 1024

_encodeJSON = msgspec.json.Encoder().encode

_log = Logger()


class HTTPResponse(FileAnswers):
    """
    The response to one request.

    It is given whole (L{send}, L{json}, L{html}, L{end}) or in parts (L{write}, then L{end}). Any
    attribute may be assigned.

    @ivar lean: The request of the connection, which the response goes out by.
    @ivar app: The application.
    @ivar sentLength: How long the body is that has gone out, as far as its head could know.
    """

    _hooks: ResponseHooks | None = None
    _body: EncodedBody | None = None
    _listeners: dict[str, list[Callable[..., Any]]] | None = None
    _begun = False
    _unwaited = 0
    _ended = False
    sentLength: int | None = None

    def __init__(self, lean: LeanRequest, app: Any, request: Any) -> None:
        super().__init__()
        self.lean = lean
        self.app = app
        # Weak, so that a request and its body are gone with the last who holds them and need no
        # garbage collector. Until the response is complete, the connection's request holds them.
        self._request = ref(request)

    @property
    def req(self) -> Any:
        """Give the request; C{None} once the response is complete and nobody holds it."""
        return self._request()

    @property
    def locals(self) -> dict[str, Any]:
        """Give a place for what handlers want to tell one another."""
        values: dict[str, Any] = self.__dict__.setdefault("_locals", {})
        return values

    @property
    def headersSent(self) -> bool:
        """Say whether the head is out, so that nothing about it can be changed."""
        return self._begun or self.lean.started

    @property
    def finished(self) -> bool:
        """Say whether the response has been ended; it may still be on its way."""
        return self._ended

    def on(self, event: str, listener: Callable[..., Any]) -> Self:
        """
        Call a function on C{finish}, when the response has been sent, or on C{close}, when the
        client goes away before that.

        @raise ValueError: If there is no such event.
        """
        if event not in ("finish", "close"):
            raise ValueError(f"a response has no event {event!r}, only finish and close")
        if event == "close":
            self.lean.onDisconnect(listener)
        else:
            if self._listeners is None:
                self._listeners = {}
            self._listeners.setdefault(event, []).append(listener)
        return self

    # Whole responses

    def send(self, body: Any = None) -> Self:
        """
        Send a body and end the response.

        @param body: Text (HTML unless there is a type already), bytes, anything else as JSON, or
            nothing.
        @raise ResponseSent: If there is a response already.
        """
        if isinstance(body, str):
            self._describeText()
            return self._sendWhole(body.encode(), _HTML)
        if isinstance(body, bytes | bytearray | memoryview):
            return self._sendWhole(bytes(body), _BYTES)
        if body is None:
            return self.end()
        return self.json(body)

    def json(self, value: Any) -> Self:
        """
        Send a value as JSON and end the response.

        @param value: What msgspec can write: mappings, lists, numbers, dates, attrs objects, ...
            A number that JSON has no word for becomes null, as in JavaScript.
        @raise TypeError: If it cannot be written.
        @raise ResponseSent: If there is a response already.
        """
        body = _encodeJSON(value)
        self._describeText()
        return self._sendWhole(body, _JSON)

    def html(self, text: str) -> Self:
        """Send text as HTML, whatever type was set before, and end the response."""
        self._fields["content-type"] = _HTML
        return self._sendWhole(text.encode(), _HTML)

    def end(self, body: bytes | str | None = None) -> Self:
        """
        End the response, with a last piece of its body perhaps.

        @raise ResponseSent: If it was ended before.
        """
        self._refuseSecond()
        chunk = b"" if body is None else asBytes(body)
        if self._begun:
            if chunk:
                self.write(chunk)
            self._ended = True
            self._endStream()
        else:
            self._ended = True
            self._deliver(chunk)
        return self

    def _describeText(self) -> None:
        """Name the charset in the type that a handler has set: text goes out in UTF-8."""
        field = self._fields.get("content-type")
        if field is not None and isinstance(field[1], str):
            self._fields["content-type"] = (field[0], withUTF8(field[1]))

    def _sendWhole(self, body: bytes, contentType: tuple[str, str]) -> Self:
        self._refuseSecond()
        if self._begun:
            raise ResponseSent("a body that is being written can only be ended")
        fields = self._fields
        if "content-type" not in fields:
            fields["content-type"] = contentType
        # The body's own counts: what a handler has set is often a number of characters.
        fields.pop("content-length", None)
        if "etag" not in fields:
            if len(body) > _TAG_SIZE:
                self._ended = True
                self._later(self._sendTagged(body))
                return self
            fields["etag"] = ("ETag", bodyTag(body))
        self._sendUnlessFresh(body)
        return self

    async def _sendTagged(self, body: bytes) -> None:
        self._fields["etag"] = ("ETag", await self.app.runtime.run(bodyTag, body))
        self._sendUnlessFresh(body)

    def _sendUnlessFresh(self, body: bytes) -> None:
        lean = self.lean
        if isConditional(lean.headers) and lean.method in (b"GET", b"HEAD") and self.isFresh():
            self.statusCode = 304
        self._ended = True
        self._deliver(body)

    def _refuseSecond(self) -> None:
        if self._ended or (self.lean.started and not self._begun):
            raise ResponseSent("there is a response already")

    def _deliver(self, body: bytes) -> None:
        """Send a whole response."""
        hooks = self._hooks
        if hooks is not None:
            hooks.runBeforeHead()
        if self.statusCode in BODILESS:
            self._dropContent()
            body = b""
        if hooks is not None:
            encoder = None if self.statusCode in BODILESS else hooks.chooseEncoder(len(body))
            if encoder is not None or hooks.holds:
                self._deliverWith(hooks, encoder, body)
                return
        self._respond(body)

    def _deliverWith(self, hooks: ResponseHooks, encoder: IBodyEncoder | None, body: bytes) -> None:
        if encoder is not None:
            self._fields.pop("content-length", None)
        waiting = hooks.startHolds()
        if waiting or (encoder is not None and len(body) > INLINE_SIZE):
            self._later(self._deliverLater(waiting, encoder, body))
        else:
            self._respond(body if encoder is None else encodeWhole(encoder, body))

    async def _deliverLater(
        self, waiting: list[Awaitable[Any]], encoder: IBodyEncoder | None, body: bytes
    ) -> None:
        await waitForAll(waiting)
        if encoder is not None:
            body = await self.app.runtime.run(encodeWhole, encoder, body)
        self._respond(body)

    def _respond(self, body: bytes) -> None:
        if not self.lean.disconnected:
            self.sentLength = len(body)
            self._respondNow(body)
            if self._listeners is not None:
                self._emit("finish")

    # Streams

    def write(self, chunk: bytes | str) -> Any:
        """
        Send a piece of the body; the first sends the head.

        @return: Something to await until the client has room for more. It raises
            L{ClientLost<storagegate.net.httperrors.ClientLost>} if the client is gone.
        @raise ResponseSent: If the response was ended.
        """
        self._refuseSecond()
        data = asBytes(chunk)
        if not self._begun:
            self.startBody(None)
        if self.lean.disconnected:
            return LOST
        ready = self._sendPiece(data) if self._body is None else self._body.write(data)
        if ready is not READY:
            self._unwaited = 0
            return ready
        self._unwaited += len(data) + _WRITE_COST
        return READY if self._unwaited < _TURN_SIZE else self._nextTurn()

    def _nextTurn(self) -> Deferred[None]:
        """Let others have their turn: this client, or the encoder, takes whatever comes."""
        self._unwaited = 0
        turn: Deferred[None] = Deferred()
        self.app.runtime.clock.callLater(0, turn.callback, None)
        return turn

    def flush(self) -> Any:
        """
        Send what a middleware may hold back of the body, such as C{compression}.

        @return: As L{write}.
        """
        if not self._begun:
            self.startBody(None)
        return READY if self._body is None else self._body.flush()

    def startBody(self, length: int | None) -> bool:
        """
        Send the head of a response whose body follows in pieces.

        @param length: How long the body will be, if that is known.
        @return: Whether the pieces go out as they are, so that a file may be sent by the kernel.
        @raise ResponseSent: If there is a response already.
        """
        self._refuseSecond()
        encoder = None
        if self._hooks is not None:
            self._hooks.runBeforeHead()
            if self.statusCode not in BODILESS:
                encoder = self._hooks.chooseEncoder(length)
        if encoder is not None:
            self._fields.pop("content-length", None)
            length = None
            self._body = EncodedBody(encoder, self._sendPiece, self.app.runtime.run)
        if self.statusCode in (204, 304):
            self._dropContent()
        self.sentLength = length
        self.lean.begin(self.statusCode, self._wireFields(), length)
        self._begun = True
        return encoder is None

    def _sendPiece(self, data: bytes) -> Any:
        try:
            return self.lean.send(data) or READY
        except ClientLost:
            return LOST

    def _endStream(self) -> None:
        """End a response whose head is out."""
        waiting = [] if self._hooks is None else self._hooks.startHolds()
        last = READY if self._body is None else self._body.finish()
        if waiting or last is not READY:
            self._later(self._endLater([*waiting, last]))
        else:
            self._finishStream()

    async def _endLater(self, waiting: list[Awaitable[Any]]) -> None:
        await waitForAll(waiting)
        self._finishStream()

    def _finishStream(self) -> None:
        self._body = None
        if not self.lean.disconnected:
            self.lean.finish()
            self._emit("finish")

    # For middleware

    def beforeHead(self, callback: Callable[[], Any]) -> None:
        """
        Call a function once, just before the head is made; it may change it.

        The last that was added is called first. What it raises, the sender of the response gets.
        """
        self._hooked().addBeforeHead(callback)

    def encodeBody(self, choose: ChooseEncoder) -> None:
        """
        Let a function choose an encoder for the body, after C{beforeHead}.

        @param choose: Gets the length of the body, C{None} if it is a stream of unknown length;
            gives an L{IBodyEncoder} or C{None}. It sets the header fields itself.
        """
        self._hooked().addChooser(choose)

    def holdEnd(self, callback: Callable[[], Awaitable[Any] | None]) -> None:
        """
        Let the end of the response wait.

        If it fails before the head is out, the error goes the way of a handler's; afterwards the
        connection is dropped.

        @param callback: Called once, after C{beforeHead}; gives what to wait for, or C{None}.
        """
        self._hooked().holds.append(callback)

    def reopen(self) -> bool:
        """
        Make ready for another answer, if nothing of this one has been sent.

        @return: Whether that is so.
        """
        if self._begun or self.lean.started:
            return False
        self._ended = False
        return True

    def _hooked(self) -> ResponseHooks:
        if self._hooks is None:
            self._hooks = ResponseHooks()
        return self._hooks

    def _later(self, coroutine: Any) -> None:
        Deferred.fromCoroutine(coroutine).addErrback(self._failed)

    def _failed(self, reason: Any) -> None:
        if not reason.check(ClientLost):
            way = self.lean.answerer
            if way is None:
                _log.failure("a response failed behind its end", reason)
            else:
                way.next(reason.value)
            if self._begun and not self.lean.finished:
                # Also if a handler of errors has taken it: nothing can complete this any more.
                self.lean.abort()

    def _emit(self, event: str) -> None:
        listeners, self._listeners = self._listeners, None
        for listener in (listeners or {}).get(event, ()):
            try:
                listener()
            except Exception:
                _log.failure("a listener failed")
