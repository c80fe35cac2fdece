"""The request of a handler: its head, its body, and the client's address behind trusted proxies."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self, overload

from storagegate.core.context import ClientInfo
from storagegate.http.contenttypes import lookupType, matchesType
from storagegate.http.errors import HTTPError, bodyTooLarge
from storagegate.http.negotiation import (
    preferredCharsets,
    preferredEncodings,
    preferredLanguages,
    preferredTypes,
)
from storagegate.http.querystring import parseQuery
from storagegate.net.http.cookies import parseCookies, unsignValue
from storagegate.net.http.interfaces import BodyTooLarge, IncompleteBody
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import METHODS, isHost
from storagegate.net.http.ranges import parseRange

_SCHEMES = frozenset({"http", "https"})
_METHODS = {method: method.decode("ascii") for method in METHODS}


class HeaderMapping:
    """
    The header fields of a request by name in lower case; look-ups are case-insensitive.

    Iteration yields pairs of name and value, so C{dict(req.headers)} works.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: dict[bytes, bytes]) -> None:
        self._headers = headers

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or C{default} if it is absent."""
        value = self._headers.get(name.lower().encode("latin-1", "replace"))
        return default if value is None else value.decode("latin-1")

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower().encode("latin-1", "replace")].decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode("latin-1", "replace") in self._headers

    def __len__(self) -> int:
        return len(self._headers)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for name, value in self._headers.items():
            yield name.decode("latin-1"), value.decode("latin-1")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping | HeaderMapping) and dict(self) == dict(other)

    def __repr__(self) -> str:
        return f"HeaderMapping({dict(self)!r})"

    def keys(self) -> list[str]:
        """Return the names."""
        return [name for name, _ in self]

    def values(self) -> list[str]:
        """Return the values."""
        return [value for _, value in self]

    def items(self) -> list[tuple[str, str]]:
        """Return the pairs of names and values."""
        return list(self)


def _best(liked: list[str], offered: Sequence[str]) -> Any:
    """
    Return the client's first choice of an offer, or all its preferences if nothing is offered.
    """
    return next(iter(liked), None) if offered else liked


class HTTPRequest:
    """
    A request. Any attribute may be assigned.

    @ivar raw: The channel's request.
    @ivar app: The application.
    @ivar res: The response to it.
    @ivar method: In upper case. Setting it affects the choice of later layers.
    @ivar rewritten: The path that L{url} was set to, or C{None}.
    @ivar path: The raw path, below the path that the router or the middleware is mounted at.
    @ivar baseUrl: The path that the router or the middleware is mounted at.
    @ivar params: The values of the route's parameters; an instance if they have a type.
    @ivar body: The parsed body, or an instance of the route's body type.
    @ivar user: The user, set by authentication middleware.
    @ivar session: The session, if C{session} is installed.
    @ivar file: The file that was uploaded, if C{upload} is installed.
    @ivar files: All uploaded files, as C{file}.
    """

    # Attributes that every request uses. Others go into __dict__, which most requests never create.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "app",
        "baseUrl",
        "body",
        "method",
        "params",
        "path",
        "raw",
        "res",
        "rewritten",
    )

    res: Any

    user: Any = None
    session: Any = None
    file: Any = None
    files: Any = None
    _target: str | None = None

    def __init__(self, raw: ChannelRequest, app: Any) -> None:
        self.raw = raw
        self.app = app
        self.method = _METHODS[raw.method]
        self.path = raw.path.decode("ascii")
        self.baseUrl = ""
        self.params: Any = {}
        self.body: Any = None
        self.rewritten: str | None = None

    @cached_property
    def token(self) -> str | None:
        """The bearer token of C{Authorization}; C{None} without one."""
        value = self.raw.headers.get(b"authorization")
        if value is None:
            return None
        # Imported with the first use: most applications have their own login.
        from storagegate.auth.tokens import bearerToken

        return bearerToken(value.decode("latin-1")) or None

    @cached_property
    def client(self) -> ClientInfo:
        """The client."""
        address = self.ip
        # The port of a client behind a proxy is unknown.
        port = self.raw.clientPort if address == self.raw.clientHost else 0
        return ClientInfo(f"{address}:{port}", address, port, self.get("user-agent"))

    @property
    def sessionID(self) -> str | None:
        """Return the session ID, or C{None} without a session."""
        session = self.session
        return None if session is None else session.id

    @property
    def httpVersion(self) -> str:
        """Return C{1.0}, C{1.1} or C{2.0}."""
        version = self.raw.version[5:].decode("ascii")
        return "2.0" if version == "2" else version

    def on(self, event: str, listener: Callable[[], Any]) -> Self:
        """
        Call a function on C{close}, when the client disconnects before the response is complete.

        @raise ValueError: If the event is unknown.
        """
        if event != "close":
            raise ValueError(f"a request has no event {event!r}, only close")
        self.raw.onDisconnect(listener)
        return self

    # The head

    @overload
    def get(  # type: ignore[overload-overlap]
        self, name: Literal["set-cookie", "Set-Cookie"]
    ) -> list[str] | None: ...

    @overload
    def get(self, name: str) -> str | None: ...

    def get(self, name: str) -> Any:
        """
        Return a header field, or C{None} if it is absent; C{referer} and C{referrer} are
        equivalent.

        Values of a repeated field are joined by a comma and a space, of C{Cookie} by semicolons.
        Of a repeated field with one value, such as C{Content-Type}, the first counts. The values
        of C{Set-Cookie} are a list.
        """
        lowered = name.lower()
        headers = self.raw.headers
        if lowered == "set-cookie":
            values = [value for name, value in self.raw.headerList if name == b"set-cookie"]
            return [value.decode("latin-1") for value in values] or None
        value = headers.get(lowered.encode("latin-1", "replace"))
        if value is None and lowered in ("referer", "referrer"):
            value = headers.get(b"referer") or headers.get(b"referrer")
        return None if value is None else value.decode("latin-1")

    header = get

    @property
    def headers(self) -> HeaderMapping:
        """Return all header fields."""
        return HeaderMapping(self.raw.headers)

    # Addresses

    @property
    def originalUrl(self) -> str:
        """Return the path and query as received."""
        return self.raw.uri.decode("ascii")

    @property
    def url(self) -> str:
        """Return the full URL. If a layer sets it, later layers match the new path and query."""
        return f"{self.protocol}://{self.host}{self._target or self.originalUrl}"

    @url.setter
    def url(self, value: str) -> None:
        # Takes 20 ms to import.
        from storagegate.http.fetch import parseURL

        self._target = parseURL(value).target
        path, _, query = self._target.partition("?")
        self.rewritten = self.path = path
        self.query = parseQuery(query.encode("ascii"))

    @property
    def query(self) -> Any:
        """
        Return the query parameters, text by name; a repeated parameter is a list.

        @return: The parameters, or an instance of the route's query type.
        """
        query = self.__dict__.get("_query")
        if query is None:
            query = self.__dict__["_query"] = parseQuery(self.raw.queryString)
        return query

    @query.setter
    def query(self, value: Any) -> None:
        self.__dict__["_query"] = value

    @property
    def ips(self) -> list[str]:
        """Return the addresses reported by trusted proxies, the client first; empty without any."""
        return self._addresses()[:0:-1]

    @property
    def ip(self) -> str:
        """Return the client's address, as reported by proxies that C{trustProxy} accepts."""
        return self.raw.clientHost if self.app.trust is None else self._addresses()[-1]

    def _addresses(self) -> list[str]:
        return self.raw.clientAddresses(self.app.trust)

    def _forwarded(self, name: str) -> str | None:
        """Return the first value of a field, if it comes from a trusted proxy."""
        trust = self.app.trust
        if trust is None or not trust(self.raw.clientHost, 0):
            return None
        value = self.get(name)
        return value.split(",")[0].strip() if value else None

    @property
    def protocol(self) -> str:
        """Return C{http} or C{https}."""
        forwarded = (self._forwarded("x-forwarded-proto") or "").lower()
        return forwarded if forwarded in _SCHEMES else "https" if self.raw.secure else "http"

    @property
    def secure(self) -> bool:
        """Return whether the client's connection is encrypted."""
        return self.protocol == "https"

    @property
    def host(self) -> str:
        """Return the requested host, with its port if given."""
        forwarded = self._forwarded("x-forwarded-host")
        if forwarded and isHost(forwarded.encode("latin-1", "replace")):
            return forwarded
        return self.get("host") or ""

    @property
    def hostname(self) -> str:
        """Return the host without the port."""
        host = self.host
        if host.startswith("["):
            return host[: host.find("]") + 1]
        return host.partition(":")[0]

    @property
    def xhr(self) -> bool:
        """Return whether C{X-Requested-With} is C{XMLHttpRequest}."""
        return (self.get("x-requested-with") or "").lower() == "xmlhttprequest"

    @property
    def cookies(self) -> dict[str, str]:
        """Return the cookies."""
        cookies: dict[str, str] | None = self.__dict__.get("_cookies")
        if cookies is None:
            cookies = self.__dict__["_cookies"] = parseCookies(self.get("cookie") or "")
        return cookies

    @property
    def signedCookies(self) -> dict[str, str]:
        """
        Return the cookies signed by C{res.cookie} whose signatures are valid.

        @raise RuntimeError: If the application has no C{cookieSecret}.
        """
        secrets = self.app.settings.cookieSecrets
        signed: dict[str, str] = {}
        for name, value in self.cookies.items():
            found = unsignValue(f"{name}={value}", secrets)
            if found is not None and found.startswith(f"{name}="):
                signed[name] = found[len(name) + 1 :]
        return signed

    # Content negotiation

    def accepts(self, *types: str) -> Any:
        """
        Return the type that the client prefers.

        @param types: Types or file extensions, such as C{json} or C{text/html}.
        @return: One of them as given, or C{None} if none is acceptable; without arguments, all
            accepted types.
        """
        header = self.get("accept")
        if not types:
            return preferredTypes(header)
        full = {lookupType(each) if "/" not in each else each: each for each in types}
        known = [each for each in full if each]
        liked = preferredTypes(header, known) if known else []
        return full[liked[0]] if liked else None

    def acceptsEncodings(self, *encodings: str) -> Any:
        """Return the content coding that the client prefers; see L{accepts}."""
        return _best(preferredEncodings(self.get("accept-encoding"), encodings), encodings)

    def acceptsCharsets(self, *charsets: str) -> Any:
        """Return the charset that the client prefers; see L{accepts}."""
        return _best(preferredCharsets(self.get("accept-charset"), charsets), charsets)

    def acceptsLanguages(self, *languages: str) -> Any:
        """Return the language that the client prefers; see L{accepts}."""
        return _best(preferredLanguages(self.get("accept-language"), languages), languages)

    def is_(self, *types: str) -> Any:
        """
        Return the type that the body has.

        @param types: Types such as C{json}, C{text/*}, C{+json}.
        @return: The first match, or the actual type if the match is a wildcard; C{None} without a
            body, C{False} if no type matches.
        """
        if not self.hasBody:
            return None
        return matchesType(self.get("content-type"), types) or False

    def range(self, size: int) -> list[tuple[int, int]] | None:
        """
        Return the requested ranges of a representation of C{size} bytes.

        @return: Offsets of the first and last byte of each; empty if no range is satisfiable,
            C{None} if the client requests the whole.
        """
        ranges = parseRange(self.raw.headers.get(b"range"), size)
        return None if ranges is None else [(each.first, each.last) for each in ranges]

    @property
    def fresh(self) -> bool:
        """Return whether the client has a current copy of the response described so far."""
        if self.raw.method not in (b"GET", b"HEAD"):
            return False
        fresh: bool = self.res.isFresh()
        return fresh

    @property
    def stale(self) -> bool:
        """Return the opposite of L{fresh}."""
        return not self.fresh

    # The body

    @property
    def contentLength(self) -> int | None:
        """Return the length of the body, or C{None} if it is not declared."""
        return self.raw.contentLength

    @property
    def hasBody(self) -> bool:
        """Return whether there is a body, even an empty one."""
        return self.raw.contentLength != 0 or b"content-length" in self.raw.headers

    def takeBody(self) -> bytes | None:
        """
        Return the raw body if it was received completely, otherwise C{None}.

        @raise HTTPError: 413 if it exceeds the application's limit.
        """
        self._checkDeclared(self.app.settings.wholeBodySize)
        return self.raw.body.readAvailable()

    async def read(self, limit: int | None = None, isHeld: bool = False) -> bytes:
        """
        Return the raw body.

        @param limit: The maximum length, at most the application's limit.
        @param isHeld: Whether its bytes count as held until C{raw.body.hold(0)}, while it is
            parsed.
        @raise HTTPError: 413 if it is longer, before a byte is read if the length is declared. 400
            if it was cut short.
        @raise TooMuchHeld: 429 if all requests together hold too many bytes.
        """
        bound = self.app.settings.wholeBodySize
        bound = bound if limit is None else min(limit, bound)
        self._checkDeclared(bound)
        try:
            return await self.raw.body.read(bound, isHeld)
        except BodyTooLarge:
            raise bodyTooLarge(bound, None) from None
        except IncompleteBody:
            raise HTTPError(
                400, "The body was cut short", "request.size.invalid", expected=self.contentLength
            ) from None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """
        Iterate over the pieces of the raw body; the client is paused while no piece is awaited.
        """
        limit = self.app.settings.maxRequestBodySize
        return self.raw.body if limit is None else self._bounded(limit)

    async def _bounded(self, limit: int) -> AsyncIterator[bytes]:
        self._checkDeclared(limit)
        size = 0
        async for chunk in self.raw.body:
            size += len(chunk)
            if size > limit:
                raise bodyTooLarge(limit, None)
            yield chunk

    def _checkDeclared(self, limit: int) -> None:
        length = self.raw.contentLength
        if length is not None and length > limit:
            raise bodyTooLarge(limit, length)
