"""
A client of the console's API.

Each request carries the key pair, so the connection uses TLS or stays on this machine. Errors of
the API become one line; an unreachable daemon has its own exit code.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from attrs import define, field

from storagegate.auth.keyheaders import ACCESS_HEADER, SECRET_HEADER
from storagegate.cli.awssettings import S3Credentials
from storagegate.cli.invocation import MISUSED, UNREACHED, CommandError
from storagegate.core.addresses import DEFAULT_PORTS
from storagegate.objects.issuedkeys import CREDENTIAL

_API = "api/v1/"


# The header in which S3 clients send the token of a temporary key.
_TOKEN_HEADER = "x-amz-security-token"

_TRACE_HEADER = "x-trace-id"

_SECONDS = 60.0
"""Timeout: four times the interval of comments in an event stream."""

_DOCUMENT_LIMIT = 64 << 20
"""Largest document, in bytes: a page of 1,000 items fits."""

_LINE_LIMIT = 16 << 20
"""Longest line of a stream, in bytes: the items of a call have at most 1 MiB, before escaping."""

_PAGE = 1_000


@define
class ConsoleClient:
    """
    A client of one daemon. Blocks.

    @ivar url: The URL of the admin listener, or of the console behind a proxy.
    @ivar credentials: The key pair; each request carries it.
    @ivar caFile: Certificates of trusted authorities, PEM; empty for the system's.
    @ivar pinned: The files of the server's own certificates, PEM. If given, the server must present
        one of them; its name is not checked.
    """

    url: str
    _credentials: S3Credentials
    _caFile: str = ""
    _pinned: tuple[str, ...] = ()
    _host: str = field(init=False, default="")
    _port: int | None = field(init=False, default=None)
    _isSecure: bool = field(init=False, default=False)
    _base: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts = urlsplit("")
        if "@" in parts.netloc:
            # The message omits the URL, which contains a password.
            raise CommandError("the URL must not contain a user name or password", MISUSED)
        if parts.scheme not in DEFAULT_PORTS or not self._host:
            raise CommandError(f"{self.url}: expected a URL such as http://127.0.0.1:9001", MISUSED)
        self._isSecure = parts.scheme == "https"
        if not self._isSecure and not _isLoopback(self._host):
            reason = "the secret key would be sent in clear text: use https or loopback"
            raise CommandError(f"{self.url}: {reason}", MISUSED)
        if not all(
            each.isascii() and each.isprintable()
            for each in (
                self._credentials.accessKey,
                self._credentials.secretKey,
                self._credentials.sessionToken,
            )
        ):
            # The library's own error would reveal the key pair.
            raise CommandError(f"one half of the key pair is not {CREDENTIAL}", MISUSED)
        path = parts.path.rstrip("/")
        self._base = f"{path or '/console'}/{_API}"

    def get(self, path: str, **query: Any) -> Any:
        """
        Read a document.

        @param path: The escaped path below the API.
        @param query: Query parameters; L{None} and empty values are omitted.
        @raise CommandError: The request was refused, or the daemon is unreachable.
        """
        return self.request("GET", path, None, query)

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Read all pages of a list."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.get(path, **query, limit=_PAGE, after=after)
            found += page["items"]
            after = page["next"]
            if not after:
                return found

    def request(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] = {}
    ) -> Any:
        """
        Send a request; return the document of the response, L{None} for an empty one.

        @param body: Sent as JSON; L{None} for no body.
        @raise CommandError: The request was refused, or the daemon is unreachable.
        """
        with self._exchange(method, path, body, query) as response:
            content = response.read(_DOCUMENT_LIMIT)
            return json.loads(content) if content else None

    def lines(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] = {}
    ) -> Iterator[str]:
        """
        Send a request; yield the lines of the response as they arrive, without line endings.

        @raise CommandError: The request was refused, or the connection was lost.
        """
        with self._exchange(method, path, body, query) as response:
            while line := response.readline(_LINE_LIMIT):
                yield line.decode("utf-8", "replace").rstrip("\r\n")

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: Any, query: Mapping[str, Any]
    ) -> Iterator[HTTPResponse]:
        given = {name: value for name, value in query.items() if value not in (None, "")}
        target = f"{self._base}{path}?{urlencode(given)}" if given else self._base + path
        headers = {
            ACCESS_HEADER.decode(): self._credentials.accessKey,
            SECRET_HEADER.decode(): self._credentials.secretKey,
            "Accept": "*/*",
        }
        if self._credentials.sessionToken:
            headers[_TOKEN_HEADER] = self._credentials.sessionToken
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connect()
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise _refusal(response, self.url)
            if response.headers[_TRACE_HEADER] is None:
                # Each response of a console has this header; other servers may also answer with
                # success.
                raise _stranger(response, self.url)
            yield response
        except (OSError, HTTPException) as error:
            # Some errors have an empty text.
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CommandError(f"{self.url}: {reason}", UNREACHED) from error
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        if not self._isSecure:
            return HTTPConnection(self._host, self._port, timeout=_SECONDS)
        names = self._pinned or (self._caFile,)
        try:
            if self._pinned:
                context = _pinnedContext(self._pinned)
            else:
                context = ssl.create_default_context(cafile=self._caFile or None)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"{', '.join(names)}: {error}", MISUSED) from error
        return HTTPSConnection(self._host, self._port, timeout=_SECONDS, context=context)


def _pinnedContext(paths: tuple[str, ...]) -> ssl.SSLContext:
    """
    Make a context that accepts only some certificates, under any name.

    @param paths: The files of the certificates, PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # A certificate of an authority is trusted by itself, too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for path in paths:
        context.load_verify_locations(path)
    return context


def escapeSegment(text: str) -> str:
    """Escape a path segment."""
    return quote(text, safe="")


def _isLoopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refusal(response: HTTPResponse, url: str) -> CommandError:
    """Return the error for a response with an error status."""
    try:
        document = json.loads(response.read(_DOCUMENT_LIMIT))
        code = document["error"]
        return CommandError(f"{document['message']} ({code})", error=code)
    except (ValueError, KeyError, TypeError):
        return _stranger(response, url)


def _stranger(response: HTTPResponse, url: str) -> CommandError:
    """Return the error for a response of another kind of server."""
    status = f"{response.status} {response.reason}"
    return CommandError(f"{url}: {status}: this is not a storagegate console", UNREACHED)
