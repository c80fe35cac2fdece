"""Responses: status, header fields, and a body that is whole, streamed or a file."""

import os
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import quote
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.task import fromCoroutine
from storagegate.http.conditional import bodyTag, isFresh
from storagegate.http.contenttypes import contentDisposition, withCharset, withUTF8
from storagegate.http.encoding import (
    INLINE_SIZE,
    ChooseEncoder,
    EncodedBody,
    IBodyEncoder,
    ResponseHooks,
    asBytes,
    encodeJSON,
    encodeWhole,
    waitForAll,
)
from storagegate.http.errors import HTTPError, ResponseSent
from storagegate.http.fields import (
    BODY_FIELDS,
    WIRES,
    CheckedField,
    HeaderValue,
    checkValue,
    constantField,
    dropContent,
    fieldPairs,
    listValues,
    typeField,
)
from storagegate.net.http.cookies import serializeCookie, signValue
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.message import (
    LOST,
    READY,
    UNSEEN,
    ChannelRequest,
    checkedFields,
    encodeFields,
    phraseOf,
)

if TYPE_CHECKING:
    from storagegate.http.sendfile import FileOptionsDict

FilePath = str | os.PathLike[str]

BODILESS = frozenset([204, 205, 304])
"""Statuses without a body."""

# Characters not to percent-encode, as the URL may be encoded already.
_URL_SAFE = ":/?#[]@!$&'()*+,;=%~-._"

# Fields that affect framing; the connection checks them.
FRAMING = frozenset(["connection", "content-length", "date", "transfer-encoding"])

_HTML = constantField("Content-Type", "text/html; charset=utf-8")
_JSON = constantField("Content-Type", "application/json; charset=utf-8")
_BYTES = constantField("Content-Type", "application/octet-stream")

# The number of bytes a handler may write before it waits for one reactor iteration, even if the
# client keeps up, and the fixed cost added for each write. A few milliseconds of work.
YIELD_SIZE = 512 * 1024
WRITE_COST = 256

# The ETag of a larger body is computed in a thread: SHA-1 takes 1 ms per MiB.
_TAG_SIZE = 4 * 1024 * 1024

_log = Logger()


class HTTPResponse:
    """
    The response to one request.

    It is sent whole (L{send}, L{json}, L{html}, L{end}), in parts (L{write}, then L{end}) or as a
    file (L{sendFile}, L{download}). Any attribute may be assigned.

    @ivar raw: The channel's request, which sends the response.
    @ivar app: The application.
    @ivar statusCode: 100 to 999.
    @ivar sentLength: The length of the sent body in bytes, or C{None} for a stream whose length was
        unknown when its head was sent.
    """

    # Attributes of every response. Others go into __dict__, which most responses never create.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_begun",
        "_ended",
        "_fields",
        "_finishListeners",
        "_hooks",
        "_request",
        "app",
        "raw",
        "sentLength",
        "statusCode",
    )

    # Whether a file is being sent, which excludes other writes to the body.
    _isFile = False
    # Whether the head was sent and the client receives no body; the handler is cancelled.
    _isUnseen = False
    _body: EncodedBody | None = None
    _unwaited = 0
    _sending: Deferred[None] | None = None

    def __init__(self, raw: ChannelRequest, app: Any, request: Any) -> None:
        self.raw = raw
        self.app = app
        self.statusCode = 200
        self.sentLength: int | None = None
        self._hooks: ResponseHooks | None = None
        self._finishListeners: list[Callable[[], Any]] | None = None
        self._begun = self._ended = False
        # By name in lower case: the name as given, and the value or values.
        self._fields: dict[str, CheckedField] = {}
        # Weak, so that a request and its body are freed without the garbage collector. The
        # channel's request holds them until the response is complete.
        self._request = ref(request)

    @property
    def req(self) -> Any:
        """Return the request; C{None} once the response is complete and nothing else holds it."""
        return self._request()

    @property
    def locals(self) -> dict[str, Any]:
        """Return the values that handlers of this request share."""
        values: dict[str, Any] = self.__dict__.setdefault("_locals", {})
        return values

    @property
    def headersSent(self) -> bool:
        """Return whether the head was sent, after which it cannot change."""
        return self._begun or self.raw.started

    @property
    def finished(self) -> bool:
        """Return whether the response was ended; part of it may still be unsent."""
        return self._ended

    @property
    def unanswered(self) -> bool:
        """Return whether a connected client still lacks a response, sent or in preparation."""
        if self._ended or self.headersSent or self.raw.disconnected:
            return False
        if self._sending is None:
            return True
        from storagegate.http.sendfile import isUnhandled

        return bool(self._sending.called) and not isUnhandled(self._sending)

    def on(self, event: str, listener: Callable[[], Any]) -> Self:
        """
        Call a function on C{finish}, when the response has been sent, or on C{close}, when the
        client disconnects before that.

        @raise ValueError: If the event is unknown.
        """
        if event == "close":
            self.raw.onDisconnect(listener)
        elif event == "finish":
            if self._finishListeners is None:
                self._finishListeners = []
            self._finishListeners.append(listener)
        else:
            raise ValueError(f"a response has no event {event!r}, only finish and close")
        return self

    # The status

    def status(self, code: int) -> Self:
        """
        Set the status.

        @raise TypeError: If it is not a whole number.
        @raise ValueError: If it is not between 100 and 999.
        """
        if isinstance(code, bool) or not isinstance(code, int):
            raise TypeError(f"a status is a whole number, not {code!r}")
        if not 100 <= code <= 999:
            raise ValueError(f"a status is a number from 100 to 999, not {code}")
        self.statusCode = int(code)
        return self

    @property
    def phrase(self) -> str:
        """Return the reason phrase of the status, or its number."""
        return phraseOf(self.statusCode) or str(self.statusCode)

    # Fields

    def header(
        self, name: str | Mapping[str, HeaderValue], value: HeaderValue | None = None
    ) -> Self:
        """
        Set a field, or several. L{get} reads them.

        @param name: The name, or a mapping of names to values.
        @param value: Text, a number, or a sequence of texts for a repeated field.
        @raise TypeError: If no value is given.
        @raise ValueError: If the name is not a token, or the value has a control character or a
            character outside Latin-1.
        """
        if isinstance(name, Mapping):
            for key, each in name.items():
                self.header(key, each)
            return self
        if value is None:
            raise TypeError(f"header({name!r}) needs a value; res.get reads one")
        lowered = name.lower()
        text = checkValue(name, value)
        if lowered == "content-type" and isinstance(text, str):
            text = withCharset(text)
        elif lowered == "transfer-encoding" and text == "chunked":
            # Handlers that stream often set it; the connection decides the framing.
            return self
        self._fields[lowered] = (name, text)
        return self

    set = header

    def setChecked(self, fields: Mapping[str, CheckedField]) -> Self:
        """Set fields from L{checkFields}, at a tenth of the cost of L{header}."""
        self._fields.update(fields)
        return self

    def default(self, name: str, value: str) -> None:
        """Set a field if it is absent, without checks: for the framework's own values."""
        self._fields.setdefault(name.lower(), (name, value))

    def get(self, name: str) -> str | list[str] | None:
        """Return the value or values of a field; the name is case-insensitive."""
        field = self._fields.get(name.lower())
        return None if field is None else field[1]

    def append(self, name: str, value: HeaderValue) -> Self:
        """Add a value to a field, or set it."""
        before = self.get(name)
        if before is None:
            return self.header(name, value)
        more = checkValue(name, value)
        values = [*listValues(before), *listValues(more)]
        self._fields[name.lower()] = (name, values)
        return self

    def remove(self, name: str) -> Self:
        """Remove a field, if it is set."""
        self._fields.pop(name.lower(), None)
        return self

    def vary(self, *names: str) -> Self:
        """
        Add names of request fields that the response depends on.

        @param names: Names; each argument may hold several, separated by commas.
        """
        listed: dict[str, str] = {}
        for name in ",".join([*listValues(self.get("vary") or []), *names]).split(","):
            if name.strip():
                listed.setdefault(name.strip().lower(), name.strip())
        return self.header("Vary", "*" if "*" in listed else ", ".join(listed.values()))

    def type(self, name: str) -> Self:
        """
        Set the content type.

        @param name: A type (C{text/x-log}), or a file extension (C{html}, C{.html}).
        """
        self._fields["content-type"] = typeField(name)
        return self

    def links(self, links: Mapping[str, str]) -> Self:
        """Add values to C{Link}: URLs by relation, such as C{next}."""
        values = [f'<{url}>; rel="{rel}"' for rel, url in links.items()]
        before = self.get("link")
        return self.header("Link", ", ".join([*listValues(before or []), *values]))

    def writeEarlyHints(self, hints: Mapping[str, HeaderValue]) -> Self:
        """
        Send C{103 Early Hints}, so that the client loads other resources while the handler works
        (RFC 8297).

        @param hints: Fields, above all C{Link}: C{"</style.css>; rel=preload; as=style"}, or a list
            of these.
        @raise ValueError: If a name or a value is not allowed.
        @raise ResponseSent: If the response has begun.
        """
        fields = {name: (name, checkValue(name, value)) for name, value in hints.items()}
        self._checkUnanswered()
        if self._begun:
            raise ResponseSent("hints precede the response, which has begun")
        self.raw.sendInterim(103, fieldPairs(fields))
        return self

    def location(self, url: str) -> Self:
        """
        Set C{Location}.

        @param url: C{"back"} for the referring page. Characters that a URL cannot contain are
            percent-encoded.
        """
        if url == "back":
            url = self.req.get("referrer") or "/"
        return self.header("Location", quote(url, safe=_URL_SAFE))

    def attachment(self, filename: str | None = None) -> Self:
        """Have the client save the body; the extension of a given file name sets the type."""
        if filename is not None and "." in filename:
            self.type(filename[filename.rindex(".") :])
        return self.header("Content-Disposition", contentDisposition(filename))

    def cookie(self, name: str, value: str | int, *, signed: bool = False, **options: Any) -> Self:
        """
        Set a cookie.

        @param value: Text, or a number, written in decimal.
        @param signed: Whether to sign it; see C{req.signedCookies}.
        @param options: See L{serializeCookie<storagegate.net.http.cookies.serializeCookie>}. If
            only C{maxAge} is given, an equivalent C{Expires} is added for old clients.
        @raise ValueError: If the name, value or an option is invalid.
        @raise RuntimeError: If it is to be signed and the application has no C{cookieSecret}.
        """
        text = str(value)
        if signed:
            # The name is signed too, so that one cookie's value is not valid for another.
            text = signValue(f"{name}={text}", self.app.settings.cookieSecrets[0])[len(name) + 1 :]
        if options.get("maxAge") is not None and "expires" not in options:
            options["expires"] = self.app.runtime.now() + options["maxAge"] / 1000
        return self.append("Set-Cookie", serializeCookie(name, text, **options))

    def clearCookie(self, name: str, **options: Any) -> Self:
        """
        Delete a cookie at the client. The path and domain must match the cookie's.

        @param options: As in L{cookie}.
        """
        return self.cookie(name, "", **{**options, "maxAge": None, "expires": 0})

    def isFresh(self) -> bool:
        """Return whether the client's cached response is current."""
        if not 200 <= self.statusCode < 300:
            return False
        etag, modified = self.get("etag"), self.get("last-modified")
        return isFresh(
            self.raw.headers,
            etag if isinstance(etag, str) else None,
            modified if isinstance(modified, str) else None,
        )

    # Whole responses

    def send(self, body: Any = None) -> Self:
        """
        Send a body and end the response.

        @param body: Text (HTML unless a type is set), bytes, or any other value, which is sent as
            JSON. C{None} sends no body.
        @raise ResponseSent: If the response was already begun or ended.
        """
        if isinstance(body, str):
            return self._sendWhole(body.encode(), _HTML)
        if isinstance(body, bytes | bytearray | memoryview):
            return self._sendWhole(bytes(body), _BYTES)
        if body is None:
            return self.end()
        return self.json(body)

    def json(self, value: Any) -> Self:
        """
        Send a value as JSON and end the response.

        @param value: Any value that msgspec can encode: mappings, lists, numbers, dates, attrs
            objects, dataclasses, ...; or a pydantic model. NaN and infinities become null, as in
            JavaScript.
        @raise TypeError: If it cannot be encoded.
        @raise ResponseSent: If the response was already begun or ended.
        """
        return self._sendWhole(encodeJSON(value), _JSON)

    def html(self, text: str) -> Self:
        """Send text as HTML, overriding any type set before, and end the response."""
        self._fields["content-type"] = _HTML
        return self._sendWhole(text.encode(), _HTML)

    def render(
        self, name: str, values: Mapping[str, Any] | None = None, /, **more: Any
    ) -> Self | Deferred[None]:
        """
        Render a template with the application's C{views}, and send it as HTML unless a type is set.

        @param name: The name of the template.
        @param values: Values for it, in addition to L{locals}; as a mapping, by keyword, or both.
        @return: A Deferred for the end of the response, if C{views} is asynchronous.
        @raise RuntimeError: If the application has no C{views}.
        """
        views = self.app.settings.views
        if views is None:
            raise RuntimeError("res.render needs the option views of the application")
        rendered = views(name, {**self.locals, **(values or {}), **more})
        if not hasattr(rendered, "__await__"):
            return self.send(rendered)

        from storagegate.http.sendfile import startSending

        async def send() -> None:
            self.send(await rendered)

        self._sending = startSending(send(), self.app.runtime.clock, self._failed)
        return self._sending

    def end(self, body: bytes | str | None = None) -> Self:
        """
        End the response, optionally with a last piece of its body.

        @raise ResponseSent: If it has already ended, or a file is being sent.
        """
        if self._isUnseen:
            return self
        if self._ended or self.raw.started:
            self._checkUnanswered()
        if isinstance(body, bytes):
            chunk = body
        else:
            chunk = b"" if body is None else asBytes(body)
        if self._begun:
            if chunk:
                self.write(chunk)
            self._ended = True
            waiting = [] if self._hooks is None else self._hooks.startHolds()
            last = READY if self._body is None else self._body.finish()
            if waiting or last is not READY:
                self._later(self._endLater([*waiting, last]))
            else:
                self._finishStream()
        else:
            self._ended = True
            try:
                self._deliver(chunk)
            except BaseException:
                self._retract()
                raise
        return self

    # Named responses

    def sendStatus(self, code: int) -> Self:
        """Send a status with its phrase as the body."""
        return self.status(code).type("txt").send(self.phrase)

    def redirect(self, *arguments: Any) -> Self:
        """
        Redirect the client to another URL.

        @param arguments: The URL, or C{"back"} for the referring page; and a status before or after
            it, 302 by default.
        """
        urls = [each for each in arguments if isinstance(each, str)]
        statuses = [each for each in arguments if not isinstance(each, str)]
        if len(urls) != 1 or len(statuses) > 1:
            raise TypeError("redirect takes a URL and an optional status")
        self.status(statuses[0] if statuses else 302).location(urls[0])
        url = str(self.get("location"))
        text = f"{self.phrase}. Redirecting to "
        self.vary("Accept")
        if self.req.accepts("text", "html") == "html":
            link = escape(url, quote=True)
            return self.type("html").send(f'<p>{text}<a href="{link}">{link}</a></p>')
        return self.type("txt").send(text + url)

    def format(self, choices: Mapping[str, Callable[[], Any]]) -> Any:
        """
        Choose a representation by the client's C{Accept}.

        @param choices: Functions by type or extension, in order of preference; C{default} runs if
            no other is acceptable.
        @return: The result of the chosen function.
        @raise HTTPError: 406 if none is acceptable and there is no C{default}.
        """
        types = [name for name in choices if name != "default"]
        self.vary("Accept")
        chosen = self.req.accepts(*types) if types else None
        if chosen is not None:
            self.type(chosen)
            return choices[chosen]()
        if "default" in choices:
            return choices["default"]()
        raise HTTPError(406, "Not Acceptable", types=types)

    # Files

    def sendFile(
        self,
        path: FilePath,
        root: FilePath | None = None,
        *,
        dotfiles: str = "ignore",
        headers: Mapping[str, Any] | None = None,
        **options: Unpack["FileOptionsDict"],
    ) -> Deferred[None]:
        """
        Send a file, or the parts of it that the client needs: conditions and ranges are honoured.

        @param path: Absolute, or relative to C{root}, which no C{..} or symbolic link may leave.
        @param options: See L{readOptions<storagegate.http.sendfile.readOptions>}.
        @param dotfiles: The treatment of a leading dot in the name of the file or of a directory in
            C{path}: C{"ignore"} (404), C{"deny"} (403) or C{"allow"}.
        @param headers: Fields to set if the file exists.
        @return: Fires when the file has been sent or the client has disconnected. Fails with
            L{HTTPError<storagegate.http.errors.HTTPError>}: 404 if the file does not exist, 403,
            412, 416. A failure that nothing waits for goes to the error handlers.
        @raise ValueError: If the path is relative and no root is given, or an option is invalid.
        """
        text = os.fspath(path)
        if root is None and not os.path.isabs(text):
            raise ValueError("the path of a file must be absolute, unless a root is given")
        from storagegate.http.files import readDotfiles
        from storagegate.http.sendfile import readOptions, sendFile

        read = readOptions(**options)
        top = None if root is None else os.path.abspath(root)
        checked = readDotfiles(dotfiles)
        self._sending = sendFile(self, text, top, checked, headers or {}, read, self._failed)
        return self._sending

    def download(
        self,
        path: FilePath,
        filename: str | None = None,
        root: FilePath | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Deferred[None]:
        """
        Send a file for the client to save.

        @param path: As L{sendFile}, but without a root a relative path starts at the working
            directory.
        @param filename: The name to save it under; by default the name of the file.
        @param options: Further options of L{sendFile}.
        @return: As L{sendFile}. C{Content-Disposition} is not set on failure.
        @raise ValueError: If the name has a control character, or an option is invalid.
        """
        text = os.fspath(path)
        kept = {
            name: value
            for name, value in (headers or {}).items()
            if name.lower() != "content-disposition"
        }
        kept["Content-Disposition"] = contentDisposition(filename or text)
        if root is None:
            text = os.path.abspath(text)
        return self.sendFile(text, root, headers=kept, **options)

    # Streams

    def write(self, chunk: bytes | str) -> Any:
        """
        Send a piece of the body; the first sends the head.

        @param chunk: Text is sent as UTF-8.
        @return: An awaitable for the time when the client can receive more. It raises
            L{ClientLost<storagegate.net.http.interfaces.ClientLost>} if the client has
            disconnected, and C{CancelledError} in response to HEAD, which has no body.
        @raise ResponseSent: If the response has ended, or a file is being sent.
        """
        if not self._isUnseen:
            self._checkUnanswered()
        return self._writePiece(asBytes(chunk))

    def _writePiece(self, data: bytes) -> Any:
        """Send a piece of the body, as L{write}, even while a file is being sent."""
        if not self._begun:
            self.startBody(None)
        if self._isUnseen:
            return UNSEEN
        if self.raw.disconnected:
            return LOST
        ready = self._sendPiece(data) if self._body is None else self._body.write(data)
        if ready is not READY:
            self._unwaited = 0
            return ready
        self._unwaited += len(data) + WRITE_COST
        if self._unwaited < YIELD_SIZE:
            return READY
        # This client, or the encoder, keeps up: let other connections be served.
        self._unwaited = 0
        resumed: Deferred[None] = Deferred()
        self.app.runtime.clock.callLater(0, resumed.callback, None)
        return resumed

    def flush(self) -> Any:
        """Send the part of the body buffered by middleware such as C{compression}; see L{write}."""
        if not self._begun:
            self.startBody(None)
        return READY if self._body is None else self._body.flush()

    def startBody(self, length: int | None) -> bool:
        """
        Send the head of a response whose body follows in pieces.

        @param length: The length of the body, if known.
        @return: Whether the pieces are sent unencoded, so that the kernel may send a file.
        @raise ResponseSent: If the response was already begun or ended.
        """
        self._checkUnanswered()
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
            dropContent(self._fields, self.statusCode)
        self.sentLength = length
        if FRAMING.isdisjoint(self._fields):
            fields = checkedFields(self._lines())
        else:
            fields = encodeFields(fieldPairs(self._fields))
        dispatch = self.raw.handlerState
        self.raw.begin(self.statusCode, fields, length)
        self._begun = True
        if self.raw.method == b"HEAD" and not self.raw.disconnected:
            self._endUnseen(dispatch)
        return encoder is None

    def _endUnseen(self, dispatch: Any) -> None:
        """End the response to a HEAD request after its head, and cancel the body's handler."""
        self._isUnseen = self._ended = True
        waiting = [] if self._hooks is None else self._hooks.startHolds()
        if waiting:
            self._later(self._endLater(waiting))
        else:
            self._finishStream()
        if dispatch is not None:
            dispatch.cancelHandler()

    # For middleware

    def beforeHead(self, callback: Callable[[], Any]) -> None:
        """
        Call a function once, just before the head is built; the function may change the head.

        The last one added is called first. Its exceptions reach the sender of the response.
        """
        self._openHooks().beforeHead.append(callback)

    def encodeBody(self, choose: ChooseEncoder) -> None:
        """
        Register a function that chooses an encoder for the body. It runs after C{beforeHead}.

        @param choose: Takes the length of the body, or C{None} for a stream of unknown length, and
            returns an L{IBodyEncoder} or C{None}. It sets the header fields itself.
        """
        self._openHooks().choosers.append(choose)

    def holdEnd(self, callback: Callable[[], Awaitable[Any] | None]) -> None:
        """
        Delay the end of the response until an awaitable is done.

        A failure before the head is sent goes to the error handlers; a later one drops the
        connection.

        @param callback: Called once, after C{beforeHead}; returns the awaitable, or C{None}.
        """
        self._openHooks().holds.append(callback)

    def reopen(self) -> bool:
        """Allow another response if nothing has been sent; return whether it is allowed."""
        if self._begun or self.raw.started:
            return False
        self._ended = False
        return True

    def _retract(self) -> None:
        """Let error handlers respond in place of a whole response that could not be sent."""
        if self._ended and self.reopen():
            for name in BODY_FIELDS:
                self._fields.pop(name, None)
            if self.statusCode == 304:
                # Chosen for the body of the failed response.
                self.statusCode = 200

    def _abandon(self) -> None:
        """Drop the hooks and listeners, which refer to the request, after a disconnect."""
        self._hooks = self._finishListeners = None

    def _openHooks(self) -> ResponseHooks:
        if self._hooks is None:
            self._hooks = ResponseHooks()
        return self._hooks

    # Delivery

    def _checkUnanswered(self) -> None:
        """Refuse a second response."""
        if self._ended or self._isFile or (self.raw.started and not self._begun):
            raise ResponseSent("a response has already been sent")

    def _sendWhole(self, body: bytes, contentType: CheckedField) -> Self:
        if self._ended or self._begun or self.raw.started:
            self._checkUnanswered()
            raise ResponseSent("a body that is being written can only be ended")
        fields = self._fields
        field = fields.get("content-type")
        if field is None:
            fields["content-type"] = contentType
        elif contentType is not _BYTES and isinstance(field[1], str):
            # Text is sent in UTF-8, even with a type set by the handler.
            text = withUTF8(field[1])
            if text is not field[1]:
                fields["content-type"] = (field[0], text)
        # The actual length replaces the handler's, which is often a number of characters.
        if "content-length" in fields:
            del fields["content-length"]
        self._ended = True
        if "etag" not in fields:
            if len(body) > _TAG_SIZE:
                self._later(self._sendTagged(body))
                return self
            fields["etag"] = ("ETag", bodyTag(body))
        headers = self.raw.headers
        if b"if-none-match" in headers or b"if-modified-since" in headers:
            self._checkFresh()
        try:
            if self._hooks is None and self.statusCode not in BODILESS:
                self._respond(body)
            else:
                self._deliver(body)
        except BaseException:
            self._retract()
            raise
        return self

    async def _sendTagged(self, body: bytes) -> None:
        self._fields["etag"] = ("ETag", await self.app.runtime.run(bodyTag, body))
        self._checkFresh()
        self._deliver(body)

    def _checkFresh(self) -> None:
        """Respond with 304 if the client has a current copy."""
        if self.raw.method in (b"GET", b"HEAD") and self.isFresh():
            self.statusCode = 304

    def _deliver(self, body: bytes) -> None:
        """Send a whole response, encoded or delayed as middleware requires."""
        hooks = self._hooks
        encoder: IBodyEncoder | None = None
        if hooks is not None:
            hooks.runBeforeHead()
        if self.statusCode in BODILESS:
            if self.statusCode == 205:
                self._fields.pop("content-length", None)
            else:
                dropContent(self._fields, self.statusCode)
            body = b""
        elif hooks is not None:
            encoder = hooks.chooseEncoder(len(body))
            if encoder is not None:
                self._fields.pop("content-length", None)
        waiting = [] if hooks is None else hooks.startHolds()
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
        raw = self.raw
        if raw.disconnected:
            return
        self.sentLength = len(body)
        if FRAMING.isdisjoint(self._fields):
            raw.respondWith(self.statusCode, self._lines(), body)
        else:
            raw.respond(self.statusCode, encodeFields(fieldPairs(self._fields)), body)
        if self._finishListeners is not None:
            self._emitFinish()

    def _sendPiece(self, data: bytes) -> Any:
        try:
            return self.raw.send(data) or READY
        except ClientLost:
            return LOST

    async def _endLater(self, waiting: list[Awaitable[Any]]) -> None:
        await waitForAll(waiting)
        self._finishStream()

    def _finishStream(self) -> None:
        self._body = None
        if not self.raw.disconnected:
            self.raw.finish()
            self._emitFinish()

    def _emitFinish(self) -> None:
        listeners, self._finishListeners = self._finishListeners, None
        for listener in listeners or ():
            try:
                listener()
            except Exception:
                _log.failure("a listener failed")

    def _later(self, coroutine: Any) -> None:
        fromCoroutine(coroutine).addErrback(self._failed)

    def _failed(self, reason: Any) -> None:
        """Pass an uncaught error to the error handlers."""
        if reason.check(ClientLost):
            return
        dispatch = self.raw.handlerState
        if dispatch is None:
            _log.failure("a response failed after its end", reason)
        else:
            self._retract()
            dispatch.next(reason.value)
        if self._begun and not self.raw.finished:
            # Even if an error handler has run: this response can no longer be completed.
            self.raw.abort()

    def _lines(self) -> bytes:
        """
        Encode the fields as header lines.

        They were checked when they were set, so the connection does not check them again. A cached
        line costs a third of a line encoded here.
        """
        block = b""
        for field in self._fields.values():
            name, value = field
            if isinstance(value, str):
                block += WIRES.get(field) or f"{name}: {value}\r\n".encode("latin-1")
            else:
                for each in value:
                    block += f"{name}: {each}\r\n".encode("latin-1")
        return block
