"""
Reads the head of a request, strictly.

RFC 9112: C{head = request-line CRLF *(field-line CRLF) CRLF}, with
C{request-line = method SP target SP version}. The whole head is here when it is read, so nothing
is decided on half of it. httptools splits it into fields and refuses names that are no tokens,
control characters and continued lines; what it lets pass is refused here: missing and doubled Host
fields, odd transfer codings, versions, sizes.
"""

import re

import httptools

from storagegate.core.scalars import parseDecimal
from storagegate.net.httperrors import BadRequest
from storagegate.net.httplimits import HTTPLimits

METHODS = frozenset(
    b"ACL BIND CHECKOUT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL "
    b"MOVE NOTIFY OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT REBIND REPORT SEARCH SUBSCRIBE "
    b"UNBIND UNLINK UNLOCK UNSUBSCRIBE".split()
)
"""The methods that reach a resource: those registered, without CONNECT and TRACE."""

# A length that no 64-bit counter takes is an attack.
_MAX_LENGTH = 2**63 - 1

_REQUEST_LINE = re.compile(rb"([!-~]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
# What nearly every request begins with, found out in one step; whatever else comes, comes slowly.
_PLAIN_LINE = re.compile(rb"([A-Z]+) ((/[!-\"$->@-~]*)(?:\?([!-\"$-~]*))?) (HTTP/1\.[01])")
_ABSOLUTE = re.compile(rb"https?://([^/?#]+)([/?].*)?", re.IGNORECASE)
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w\-.~%!$&'()*+,;=]*)(?::[0-9]{0,5})?", re.ASCII)

# Hosts that were found good: a server has a few, and the expression costs a third of a microsecond.
_hosts: set[bytes] = set()
_MAX_HOSTS = 1024

# What httptools refuses in a whole head: control characters, a CR or LF alone, continued fields.
_BROKEN = re.compile(rb"[^\t\n\r -~\x80-\xff]|(?<!\r)\n|\r[^\n]|\n[ \t]")


class RequestHead:
    """
    The head of one request.

    @ivar uri: The target in origin form, raw.
    @ivar path: C{uri} up to the question mark.
    @ivar queryString: C{uri} after it.
    @ivar headers: Lower-case names; a repeated field's values joined by commas, as RFC 9110
        section 5.3 allows, Cookie by semicolons.
    @ivar headerList: The fields in their order, names in lower case.
    @ivar contentLength: C{None} if the body is chunked, 0 if there is none.
    @ivar keepAlive: Whether the client lets the connection go on.
    @ivar expectsContinue: Whether the client waits for a C{100 Continue} with its body.
    """

    __slots__ = (
        "contentLength",
        "expectsContinue",
        "headerList",
        "headers",
        "keepAlive",
        "method",
        "path",
        "queryString",
        "uri",
        "version",
    )

    method: bytes
    uri: bytes
    path: bytes
    queryString: bytes
    version: bytes
    headers: dict[bytes, bytes]
    headerList: list[tuple[bytes, bytes]]
    contentLength: int | None
    keepAlive: bool
    expectsContinue: bool


class _Fields:
    """What httptools reports to."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.strip(b" \t")))


def parseHead(wire: bytes, limits: HTTPLimits) -> RequestHead:
    """
    Read a head.

    @param wire: The head with the empty line that ends it.
    @raise BadRequest: If there is anything wrong with it.
    """
    head = RequestHead()
    _readRequestLine(head, wire[: wire.find(b"\r\n")], limits)
    if len(wire) > limits.headSize:
        raise BadRequest(431, "The header fields are too large")
    if wire.count(b"\r\n") - 2 > limits.headFields:
        raise BadRequest(431, "There are too many header fields")
    sink = _Fields()
    try:
        httptools.HttpRequestParser(sink).feed_data(wire)
    except httptools.HttpParserUpgrade:
        # Upgrades are for the resource to judge, and a body after one is a body.
        pass
    except httptools.HttpParserError:
        raise BadRequest(400, "The request is malformed") from None
    head.headerList = sink.fields
    head.headers = headers = dict(sink.fields)
    if len(headers) != len(sink.fields):
        _joinRepeated(head)
    _checkHost(head)
    _readFraming(head)
    return head


def checkPartialHead(wire: bytes, seen: int, limits: HTTPLimits) -> None:
    """
    Refuse the beginning of a head that can become no request, before its end has come.

    @param seen: How many bytes of it have been looked at before.
    @raise BadRequest: If there is anything wrong with it.
    """
    lineEnd = wire.find(b"\r\n")
    if lineEnd < 0:
        if len(wire) > limits.headSize:
            raise BadRequest(414, "The request target is too long")
    elif lineEnd + 2 > seen:
        _readRequestLine(RequestHead(), wire[:lineEnd], limits)
    if len(wire) > limits.headSize:
        raise BadRequest(431, "The header fields are too large")
    if _BROKEN.search(wire, max(0, seen - 1)):
        raise BadRequest(400, "The request is malformed")


def _readRequestLine(head: RequestHead, line: bytes, limits: HTTPLimits) -> None:
    plain = _PLAIN_LINE.fullmatch(line)
    if plain is not None:
        head.method, head.uri, head.path, query, head.version = plain.groups()
        if head.method in METHODS and len(head.path) <= limits.pathSize >= len(head.uri):
            head.queryString = query or b""
            return
    if len(line) > limits.headSize:
        raise BadRequest(414, "The request target is too long")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "The request line is malformed")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise BadRequest(505, "The version is not HTTP/1.0 or HTTP/1.1")
    if method not in METHODS:
        raise BadRequest(405, "The method is not allowed")
    head.method = method
    head.version = b"HTTP/1." + minor
    head.uri = target
    path, _, head.queryString = target.partition(b"?")
    head.path = path
    if len(path) > limits.pathSize:
        raise BadRequest(414, "The path is too long")
    if path[:1] != b"/" and not (
        _ABSOLUTE.fullmatch(target) or (target == b"*" and method == b"OPTIONS")
    ):
        raise BadRequest(400, "The request target is malformed")
    if b"#" in target:
        raise BadRequest(400, "The request target is malformed")


def _joinRepeated(head: RequestHead) -> None:
    headers: dict[bytes, bytes] = {}
    for name, value in head.headerList:
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise BadRequest(400, "A header field stands twice that may stand only once")
        else:
            headers[name] += (b"; " if name == b"cookie" else b",") + value
    head.headers = headers


# Two of these make two readers of one message disagree, so two equal ones are refused too.
_SINGLE = frozenset([b"host", b"content-length", b"transfer-encoding"])


def _checkHost(head: RequestHead) -> None:
    """RFC 9112 section 3.2: one Host, and the authority of an absolute target replaces it."""
    host = head.headers.get(b"host")
    if host is None:
        if head.version == b"HTTP/1.1":
            raise BadRequest(400, "The Host field is missing")
    elif host not in _hosts:
        _rememberHost(host)
    if head.uri[:1] == b"/" or head.uri == b"*":
        return
    match = _ABSOLUTE.fullmatch(head.uri)
    assert match is not None
    authority, rest = match.group(1), match.group(2) or b"/"
    if not _HOST.fullmatch(authority):
        raise BadRequest(400, "The request target is malformed")
    head.uri = rest if rest[:1] == b"/" else b"/" + rest
    head.path, _, head.queryString = head.uri.partition(b"?")
    head.headers[b"host"] = authority
    head.headerList = [(b"host", authority)] + [
        field for field in head.headerList if field[0] != b"host"
    ]


def _rememberHost(host: bytes) -> None:
    if not _HOST.fullmatch(host):
        raise BadRequest(400, "The Host field is malformed")
    if len(_hosts) >= _MAX_HOSTS:
        _hosts.clear()
    _hosts.add(host)


def _readFraming(head: RequestHead) -> None:
    """Find how long the body is, and whether the connection goes on (RFC 9112 sections 6, 9.3)."""
    headers = head.headers
    coding = headers.get(b"transfer-encoding")
    length = headers.get(b"content-length")
    if coding is not None:
        _checkCoding(coding, length, head.version)
        head.contentLength = None
    elif length is not None:
        try:
            head.contentLength = parseDecimal(length, _MAX_LENGTH)
        except ValueError:
            raise BadRequest(400, "The Content-Length is malformed") from None
    else:
        head.contentLength = 0
    connection = headers.get(b"connection")
    if connection is None:
        head.keepAlive = head.version == b"HTTP/1.1"
    else:
        tokens = [token.strip(b" \t") for token in connection.lower().split(b",")]
        head.keepAlive = b"close" not in tokens and (
            head.version == b"HTTP/1.1" or b"keep-alive" in tokens
        )
    expectation = headers.get(b"expect")
    head.expectsContinue = False
    # RFC 9110 section 10.1.1: a HTTP/1.0 client has not asked for anything by it.
    if expectation is not None and head.version == b"HTTP/1.1":
        if expectation.lower() != b"100-continue":
            raise BadRequest(417, "The expectation is not 100-continue")
        head.expectsContinue = True


def _checkCoding(coding: bytes, length: bytes | None, version: bytes) -> None:
    if length is not None:
        raise BadRequest(400, "Content-Length and Transfer-Encoding exclude each other")
    if version == b"HTTP/1.0":
        raise BadRequest(400, "HTTP/1.0 has no Transfer-Encoding")
    if coding.lower() != b"chunked":
        raise BadRequest(501, "The only Transfer-Encoding is chunked")
