"""Calls over HTTP: C{POST {basePath}/{Service}/{method}}, streams as JSON lines."""

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred

from storagegate.console.callers.interfaces import (
    CONNECT_SECONDS,
    MAX_BYTES,
    Answer,
    CallTarget,
    MethodCall,
    cut,
    readError,
    tooLarge,
)
from storagegate.core.codecs import JSON
from storagegate.core.errors import ServiceError, codedError
from storagegate.net.http.clientconnection import (
    ClientRequest,
    ConnectionLostError,
    openConnection,
)
from storagegate.net.http.lines import NDJSON, LineTooLong, NDJSONDecoder

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_OWN = frozenset(
    (
        "connection",
        "content-length",
        "content-encoding",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-deadline-ms",
    )
)
"""Header fields that the caller itself sets."""


def checkedFields(fields: Mapping[str, str]) -> dict[str, str]:
    """
    Return header fields after checking that a client may add them.

    @raise ServiceError: C{INVALID_ARGUMENT}: a field is malformed, or reserved for the caller
        itself.
    """
    for name, value in fields.items():
        lowered = name.lower()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise codedError(
                "INVALID_ARGUMENT", f"The metadata {name!r:.80} is not a valid header field"
            )
        if lowered in _OWN or lowered.startswith("sec-websocket-"):
            raise codedError("INVALID_ARGUMENT", f"The metadata {name} is set by the call itself")
    return dict(fields)


def _head(target: CallTarget, call: MethodCall, length: int) -> bytes:
    """Return the head of a request; its body is a stream if its method takes one."""
    lines = [
        f"POST {target.path}/{quote(call.service, safe='')}/{quote(call.method, safe='')} HTTP/1.1",
        f"Host: {target.authority}",
        "Connection: close",
        f"Accept: {NDJSON}, application/json",
        f"X-Deadline-Ms: {call.deadlineMs}",
    ]
    if call.streamsRequests:
        lines += [f"Content-Type: {NDJSON}", "Transfer-Encoding: chunked"]
    else:
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    fields = checkedFields(call.fields(target.apiKeyHeader))
    fields.setdefault("user-agent", "storagegate-console")
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


async def makeCall(target: CallTarget, call: MethodCall) -> AsyncGenerator[Answer]:
    """
    Call a method.

    @raise ServiceError: See L{storagegate.console.callers.interfaces}.
    """
    body = None if call.streamsRequests else JSON.encode(call.request)
    head = _head(target, call, len(body or b""))
    connection = await openConnection(
        target.endpoint, target.reactor, CONNECT_SECONDS, target.context
    )
    sending: Deferred[None] | None = None
    try:
        request = connection.begin(head, body, endsByClosing=True)
        if body is None:
            sending = Deferred.fromCoroutine(_send(request, call))
        received = await request.head()
        kind = received.fields.get(b"content-type", b"").decode("latin-1")
        if received.status == 200 and kind.startswith(NDJSON):
            decoder = NDJSONDecoder(MAX_BYTES)
            isOver = False
            while not isOver:
                piece = await request.read()
                isOver = not piece
                for line in decoder.end() if isOver else decoder.feed(piece):
                    yield _readLine(line), len(line)
        else:
            yield await _readWhole(request, received.status)
    except LineTooLong:
        raise tooLarge() from None
    except ConnectionLostError as error:
        raise cut() from error
    finally:
        if sending is not None:
            sending.cancel()
        connection.abort()


async def _send(request: ClientRequest, call: MethodCall) -> None:
    """Send the lines of a stream; the reader of the response detects a lost connection."""
    try:
        for each in call.requests:
            await request.write(JSON.encode(each) + b"\n")
        request.finish()
    except Exception:
        return


def _readLine(line: bytes) -> Any:
    """
    Return the data of a line.

    @raise ServiceError: The line holds an error.
    """
    shape = _decoded(line)
    if isinstance(shape, Mapping) and "data" in shape:
        return shape["data"]
    if isinstance(shape, Mapping) and "error" in shape:
        raise readError(shape)
    # The application's transformResponse has changed the shape.
    return shape


async def _readWhole(request: ClientRequest, status: int) -> Answer:
    """
    Return the result, and its size in bytes.

    @raise ServiceError: The response is an error.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := await request.read():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            raise tooLarge()
    shape = _decoded(b"".join(pieces))
    if status >= 400:
        error = readError(shape)
        raise ServiceError(
            error.code, error.message or f"HTTP status {status}", status, error.details
        )
    isUsual = isinstance(shape, Mapping) and set(shape) == {"data"}
    return (shape["data"] if isUsual else shape), size


def _decoded(data: bytes) -> Any:
    """Decode JSON; return malformed JSON as text."""
    try:
        return JSON.decode(data)
    except ValueError:
        return data.decode("utf-8", "replace")
