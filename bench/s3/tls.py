"""The daemon's S3 listener over TLS, and the loads over HTTP/2 and over resumed connections."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attrs import evolve, frozen

from bench.cases import OURS, Load, MeasureError, Server
from bench.loads import HTTP1, askOverHTTP2, h2load, tlsload
from bench.processes import Answer, Running
from bench.s3.recipe import authorizer, createBucket, send, storagegate
from bench.s3.requests import BUCKET, sizeName
from bench.s3.signing import Request, encodeHead
from tests.support.certificates import Authority


def identity(running: Running) -> tuple[Path, Path]:
    """Return the files of the certificate, with ECDSA, and the key that servers of a run share."""

    @contextmanager
    def make() -> Iterator[tuple[Path, Path]]:
        yield Authority(running.session.folder / "authority").issue()

    found: tuple[Path, Path] = running.session.once("identity", make)
    return found


def _listener(running: Running) -> Mapping[str, object]:
    certificate, key = identity(running)
    place = f"ssl:{running.port}:interface=127.0.0.1"
    return {"s3": f"{place}:privateKey={key}:certKey={certificate}"}


def overTLS(name: str = OURS, protocol: str = "") -> Server:
    """
    Return the daemon with an S3 listener over TLS.

    @param protocol: L{HTTP1} if L{MultiplexedGet} asks it over that.
    """
    server = storagegate(name, listeners=_listener)
    traits = evolve(server.data, protocol=protocol)
    return evolve(server, data=traits, isTLS=True)


def storeObject(running: Running, size: int) -> tuple[Request, bytes]:
    """Write an object of random bytes, once; return the request that reads it, and the bytes."""
    request = Request("GET", f"{BUCKET}/tls/{sizeName(size)}")
    if request.path not in running.notes:
        createBucket(running, BUCKET)
        body = os.urandom(size)
        answer = send(running, Request("PUT", request.path, length=size), body)
        if answer.status not in (200, 201):
            raise MeasureError(f"{request.path}: {answer.status} {answer.body[:200]!r}")
        running.notes[request.path] = body
    return request, running.notes[request.path]


def _check(answer: Answer, body: bytes) -> None:
    if answer.status != 200 or answer.body != body:
        raise MeasureError(f"{answer.status} with {len(answer.body)} bytes, not the object")


@frozen
class MultiplexedGet:
    """Makes the load of one object over HTTP/2 on one connection, or over HTTP/1.1 on several."""

    size: int

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Write the object, check it, and return the load of h2load."""
        request, body = storeObject(running, self.size)
        isHTTP1 = running.server.data.protocol == HTTP1
        fields = authorizer(running)(request, running.host)
        ask = partial(running.exchange, "GET", request.path, None)
        if not isHTTP1:
            ask = partial(askOverHTTP2, running, request.path)
        _check(ask(fields), body)
        sizes = (self.size, self.size)
        return Load(h2load(running, request.path, connections, b"", sizes, fields, isHTTP1))


@frozen
class ResumedGet:
    """
    Makes the load of one object over new TLS connections that resume sessions.

    @ivar version: The version of TLS.
    """

    size: int
    version: str

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Write the object, check it, and return the load of tlsload."""
        request, body = storeObject(running, self.size)
        _check(send(running, request), body)
        head = encodeHead(request, running.host, authorizer(running))
        closing = head.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"
        return Load(tlsload(running, closing, connections, self.size, self.version))
