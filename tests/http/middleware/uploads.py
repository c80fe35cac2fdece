"""An application that takes uploads, and a client that sends them."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.http.application import Application
from storagegate.http.options import Runtime
from tests.wire.http.support import RawClient

BOUNDARY = b"aB3x"
CONTENT_TYPE = b"multipart/form-data; boundary=aB3x"


def field(name: str, value: bytes, *lines: bytes) -> bytes:
    """Write a text field."""
    return _part(b'name="%b"' % name.encode(), value, lines)


def file(name: str, content: bytes, fileName: str = "f.txt", *lines: bytes) -> bytes:
    """Write a file."""
    parameters = b'name="%b"; filename="%b"' % (name.encode(), fileName.encode())
    return _part(parameters, content, lines)


def _part(parameters: bytes, content: bytes, lines: Sequence[bytes]) -> bytes:
    head = [b"Content-Disposition: form-data; " + parameters, *lines]
    return b"--aB3x\r\n%b\r\n\r\n%b\r\n" % (b"\r\n".join(head), content)


END = b"--aB3x--\r\n"


def form(*parts: bytes) -> bytes:
    """Write a form."""
    return b"".join(parts) + END


def post(
    body: bytes, *fields: bytes, contentType: bytes = CONTENT_TYPE, length: int | None = None
) -> bytes:
    """
    Write a request.

    @param length: What it declares, if that is not the truth.
    """
    lines = [
        b"POST / HTTP/1.1",
        b"Host: x",
        b"Connection: close",
        b"Content-Type: " + contentType,
        b"Content-Length: %d" % (len(body) if length is None else length),
        *fields,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(pieces: Sequence[bytes]) -> bytes:
    """Write a request with a chunked body."""
    lines = [b"POST / HTTP/1.1", b"Host: x", b"Connection: close"]
    lines += [b"Content-Type: " + CONTENT_TYPE, b"Transfer-Encoding: chunked", b"", b""]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"\r\n".join(lines) + body + b"0\r\n\r\n"


@frozen
class Answer:
    """What came back."""

    status: int
    body: Any


class UploadCase(TestCase):
    """
    A test with an application on a port and a directory for its files.

    @ivar runtime: The threads and the clock of the application, if not the reactor's.
    @ivar seen: The requests that came to the handler.
    @ivar errors: The errors that came to the error handler.
    """

    timeout = 180

    def setUp(self) -> None:
        """Take the reactor that runs the tests."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.directory = os.path.join(os.path.abspath(self.mktemp()), "uploads")
        self.runtime: Runtime | None = None
        self.seen: list[Any] = []
        self.errors: list[Any] = []

    def stored(self) -> list[str]:
        """List the directory."""
        return sorted(os.listdir(self.directory))

    async def serve(self, *middleware: Any, **options: Any) -> Any:
        """Serve an application with this middleware; give its port."""
        app: Application = server.http().withOptions(**options)
        app.post("/", *middleware, self._handle)
        app.use(self._noteError)
        if self.runtime is not None:
            app.runtime = self.runtime
        port: Any = await app.listen(0, reactor=self.reactor)
        self.addCleanup(app.close, 0)
        return port

    def _handle(self, req: Any, res: Any) -> None:
        self.seen.append(req)
        res.json({"body": req.body, "file": req.file, "files": req.files})

    def _noteError(self, error: Any, req: Any, res: Any, next: Any) -> Any:
        self.errors.append(error)
        return next(error)

    async def connect(self, port: Any) -> RawClient:
        """Connect a client."""
        client = RawClient()
        where = clientFromString(self.reactor, f"tcp:127.0.0.1:{port.getHost().port}")
        await connectProtocol(where, client)

        def disconnect() -> Deferred[bytes]:
            if not client.closed.called:
                client.drop()
            return client.closed

        self.addCleanup(disconnect)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the reactor turn until something is the case; the test's timeout ends it else."""
        while not condition():
            await deferLater(self.reactor, 0.001)

    async def send(self, port: Any, *pieces: bytes) -> Answer:
        """Send a request and wait for the end of the connection."""
        client = await self.connect(port)
        for piece in pieces:
            client.write(piece)
        return readAnswer(await client.closed)

    async def ask(self, middleware: Any, body: bytes, **options: Any) -> Answer:
        """Serve, send a form, and give the answer."""
        return await self.send(await self.serve(middleware, **options), post(body))

    async def assertRefused(
        self, middleware: Any, body: bytes, status: int, code: str | None, about: str | None = None
    ) -> None:
        """Expect an error, no handler, and no file."""
        answer = await self.ask(middleware, body)
        self.assertEqual((answer.status, list(answer.body)), (status, ["error"]), answer)
        error = self.errors.pop()
        self.assertEqual((error.code, getattr(error, "field", None)), (code, about))
        self.assertEqual((error.statusCode, self.seen), (status, []))
        if os.path.isdir(self.directory):
            self.assertEqual(self.stored(), [])


def readAnswer(received: bytes) -> Answer:
    """Read an answer whose body is JSON."""
    head, _, body = received.partition(b"\r\n\r\n")
    return Answer(int(head.split(b" ")[1]), json.loads(body))
