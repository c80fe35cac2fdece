"""
The rules for the fields of messages (RFC 9113 section 8)::

    request  = :method :scheme :path [ :authority ] *field
             / :method [CONNECT] :authority *field
             / :method [CONNECT] :protocol :scheme :path :authority *field   ; RFC 8441
    response = :status *field
    trailers = *field

The pseudo-fields come in any order, each once. A proxy may forward what passes here over HTTP/1.1,
so no field may be able to end a line there, or to change the framing of its message.
"""

from storagegate.net.http.interfaces import BadRequest, HTTPLimits
from storagegate.net.http.parser import (
    FIELD_TEXT,
    RequestHead,
    checkHost,
    expectsContinue,
    isToken,
    joinRepeated,
    lowerName,
    readLength,
    readTarget,
)
from storagegate.net.http2.hpack import CONNECTION_FIELDS, SECRET_NAMES, Pair, ReceivedFields
from storagegate.net.http2.interfaces import ErrorCode, StreamFailure

_PSEUDO = frozenset([b":method", b":scheme", b":authority", b":path", b":protocol"])
_CONNECT_PSEUDO = {b":method", b":authority"}
_SCHEMES = (b"https", b"http")

# Checked fields: most are the same in all heads of a client.
_checked: set[Pair] = set()
_MAX_CHECKED = 1024
_MAX_FIELD = 96

_KeptRequest = tuple[
    bytes,
    bytes,
    bytes,
    bytes,
    dict[bytes, bytes],
    list[Pair],
    int | None,
    bool,
    bytes | None,
]
"""The attributes C{method}, C{uri}, C{path}, C{queryString}, C{headers}, C{headerList},
C{contentLength} and C{expectsContinue} of a L{RequestHead}, and the protocol."""


def _malformed(text: str) -> StreamFailure:
    return StreamFailure(ErrorCode.PROTOCOL_ERROR, text)


def readRequest(
    fields: ReceivedFields, limits: HTTPLimits, head: RequestHead, isEnded: bool
) -> bytes | None:
    """
    Read the head of a request.

    @param fields: The fields; they keep the result if they come repeatedly, so each is read with
        the same limits.
    @param limits: The limits; those on sizes apply.
    @param head: The object to fill in. Its C{Host} is the C{:authority}. Its C{contentLength} is
        C{None} if the stream goes on and no length is declared.
    @param isEnded: Whether the request has no body.
    @return: The C{:protocol} of an extended CONNECT (RFC 8441), or C{None}.
    @raise StreamFailure: If the request is malformed.
    @raise BadRequest: If it exceeds a limit, or asks for something that is not allowed, as in
        HTTP/1.1. C{head} is incomplete then.
    """
    kept: _KeptRequest | None = fields.head  # type: ignore[assignment]
    if kept is None:
        try:
            kept = _readRequest(fields, limits, head)
        except BadRequest as error:
            if error.code != 400:
                raise
            raise _malformed(error.text) from None
        if fields.isRepeated:
            fields.head = kept
    (
        head.method,
        head.uri,
        head.path,
        head.queryString,
        headers,
        head.headerList,
        length,
        head.expectsContinue,
        protocol,
    ) = kept
    head.headers = headers.copy()
    head.version = b"HTTP/2"
    head.keepAlive = True
    if isEnded:
        if length:
            raise _malformed("The request ends before its Content-Length")
        length = 0
    head.contentLength = length
    return protocol


def _readRequest(fields: ReceivedFields, limits: HTTPLimits, head: RequestHead) -> _KeptRequest:
    if fields.isTooLarge:
        raise BadRequest(431, "The header fields are too large")
    pseudo: dict[bytes, bytes] = {}
    pairs = fields.pairs
    for name, value in pairs:
        if name not in _PSEUDO:
            break
        if name in pseudo:
            raise _malformed("A pseudo-field stands twice")
        pseudo[name] = value
    headerList = pairs[len(pseudo) :]
    _checkFields(headerList)
    if len(headerList) > limits.headFields:
        raise BadRequest(431, "There are too many header fields")
    head.headerList = headerList
    head.headers = headers = dict(headerList)
    if len(headers) != len(headerList):
        joinRepeated(head)
        headers = head.headers
    protocol = _readPseudo(pseudo, limits, head)
    authority = pseudo.get(b":authority")
    host = headers.get(b"host")
    if authority is None:
        authority = host
    if not authority:
        raise _malformed("The authority is missing")
    checkHost(authority)
    if host is None:
        headers[b"host"] = authority
        headerList.insert(0, (b"host", authority))
    elif host != authority and host.lower() != authority.lower():
        # A proxy and its server would choose different virtual hosts.
        raise _malformed("The authority and the Host field differ")
    declared = headers.get(b"content-length")
    expectation = headers.get(b"expect")
    return (
        head.method,
        head.uri,
        head.path,
        head.queryString,
        headers,
        headerList,
        None if declared is None else readLength(declared),
        expectation is not None and expectsContinue(expectation),
        protocol,
    )


def _readPseudo(pseudo: dict[bytes, bytes], limits: HTTPLimits, head: RequestHead) -> bytes | None:
    """
    Fill in the method and the target.

    @return: The C{:protocol}.
    """
    method = pseudo.get(b":method")
    if method is None or not isToken(method):
        raise _malformed("The method is missing or malformed")
    protocol = pseudo.get(b":protocol")
    if method == b"CONNECT" and protocol is None:
        if pseudo.keys() != _CONNECT_PSEUDO:
            raise _malformed("A CONNECT request has an authority, and no scheme or path")
        checkHost(pseudo[b":authority"])
        raise BadRequest(405, "The method is not allowed")
    target = pseudo.get(b":path")
    if target is None or (target[:1] != b"/" and target != b"*"):
        raise _malformed("The path is missing or malformed")
    if pseudo.get(b":scheme") not in _SCHEMES:
        raise _malformed("The scheme is not http or https")
    if protocol is None:
        readTarget(head, method, target, limits)
        return None
    if method != b"CONNECT" or b":authority" not in pseudo or not isToken(protocol):
        raise _malformed("Only a CONNECT request with an authority has a protocol")
    # Its target has the rules of a GET request.
    readTarget(head, b"GET", target, limits)
    head.method = method
    return protocol


def readResponse(fields: ReceivedFields) -> tuple[int, list[Pair]]:
    """
    Read the head of a response.

    @return: The status, which is below 200 for an interim response, and the other fields; do not
        modify.
    @raise StreamFailure: If it is malformed or too large.
    """
    kept: tuple[int, list[Pair]] | None = fields.head  # type: ignore[assignment]
    if kept is not None:
        return kept
    _checkSize(fields)
    pairs = fields.pairs
    if not pairs or pairs[0][0] != b":status":
        raise _malformed("The status is missing")
    status = pairs[0][1]
    # RFC 9113 section 8.6: HTTP/2 has no 101.
    if len(status) != 3 or not status.isdigit() or status[0] == 0x30 or status == b"101":
        raise _malformed("The status is malformed")
    rest = pairs[1:]
    _checkFields(rest)
    if fields.isRepeated:
        fields.head = int(status), rest
    return int(status), rest


def readTrailers(fields: ReceivedFields) -> tuple[Pair, ...]:
    """
    Read the fields after a body.

    @raise StreamFailure: If they are malformed or too large.
    """
    _checkSize(fields)
    _checkFields(fields.pairs)
    return tuple(fields.pairs)


def _checkSize(fields: ReceivedFields) -> None:
    if fields.isTooLarge:
        raise StreamFailure(ErrorCode.ENHANCE_YOUR_CALM, "The header fields are too large")


def _checkFields(pairs: list[Pair]) -> None:
    checked = _checked
    for pair in pairs:
        if pair not in checked:
            _checkField(pair)


def _checkField(pair: Pair) -> None:
    """Refuse a field that is malformed (section 8.2) or a pseudo-field in a wrong place."""
    name, value = pair
    if name[:1] == b":":
        raise _malformed("A pseudo-field is unknown or stands after a field")
    try:
        isLower = lowerName(name) == name
    except ValueError:
        isLower = False
    if not isLower:
        raise _malformed("A field name is no token in lower case")
    if value.translate(None, FIELD_TEXT) or value.strip(b" \t") != value:
        raise _malformed("A field value has control characters, or white space around it")
    if name in CONNECTION_FIELDS or (name == b"te" and value.lower() != b"trailers"):
        raise _malformed("A field of the connection has no place in HTTP/2")
    if len(name) + len(value) <= _MAX_FIELD and name not in SECRET_NAMES:
        if len(_checked) >= _MAX_CHECKED:
            _checked.clear()
        _checked.add(pair)


def readCallFields(fields: ReceivedFields) -> tuple[bytes, bytes, list[Pair]]:
    """
    Read the head of a request of gRPC, whose path is the name of a method.

    @return: The method, the path, and the other fields in order.
    @raise StreamFailure: If the request is malformed.
    """
    pseudo: dict[bytes, bytes] = {}
    for name, value in fields.pairs:
        if name not in _PSEUDO:
            break
        if name in pseudo:
            raise _malformed("A pseudo-field stands twice")
        pseudo[name] = value
    pairs = fields.pairs[len(pseudo) :]
    _checkFields(pairs)
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not isToken(method):
        raise _malformed("The method is missing or malformed")
    if path[:1] != b"/" or path.translate(None, FIELD_TEXT):
        raise _malformed("The path is missing or malformed")
    if pseudo.get(b":scheme") not in _SCHEMES:
        raise _malformed("The scheme is not http or https")
    if not (pseudo.get(b":authority") or dict(pairs).get(b"host")):
        raise _malformed("The authority is missing")
    return method, path, pairs
