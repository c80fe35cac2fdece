"""Calls over HTTP: C{POST {basePath}/{Service}/{method}}, streams as lines of JSON."""

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
        *("connection", "content-length", "content-encoding", "content-type", "expect", "host"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "x-deadline-ms"),
    )
)
"""The fields that say how a request is framed, or what it is."""


def checkedFields(fields: Mapping[str, str]) -> dict[str, str]:
    """
    Return header fields that a client may add.

    @raise ServiceError: C{INVALID_ARGUMENT}: One of them cannot be sent, or is the caller's own.
    """
    for name, value in fields.items():
        lowered = name.lower()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise codedError("INVALID_ARGUMENT", f"The metadata {name!r:.80} is no header field")
        if lowered in _OWN or lowered.startswith("sec-websocket-"):
            raise codedError("INVALID_ARGUMENT", f"The metadata {name} is set by the call itself")
    return dict(fields)


def _head(target: CallTarget, call: MethodCall, length: int) -> bytes:
    """Write the head of a request; its body is a stream if its methods takes one."""
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

    @raise ServiceError: As of the interface.
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
    """Send the lines of a stream; a connection that is lost is seen where the answer is read."""
    try:
        for each in call.requests:
            await request.write(JSON.encode(each) + b"\n")
        request.finish()
    except Exception:
        return


def _readLine(line: bytes) -> Any:
    """
    Return the data of a line.

    @raise ServiceError: If it has an error.
    """
    shape = _decoded(line)
    if isinstance(shape, Mapping) and "data" in shape:
        return shape["data"]
    if isinstance(shape, Mapping) and "error" in shape:
        raise readError(shape)
    # What transformResponse has made of it.
    return shape


async def _readWhole(request: ClientRequest, status: int) -> Answer:
    """
    Return the result, and its bytes.

    @raise ServiceError: If it is an error.
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
    """Return what JSON has; text that is none as it is."""
    try:
        return JSON.decode(data)
    except ValueError:
        return data.decode("utf-8", "replace")
