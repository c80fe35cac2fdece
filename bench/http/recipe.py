"""
The application of the HTTP cases, and its right answers.

Every server has the same application: C{GET /hello}, C{POST /echo}, the files of a directory under
C{/static}, and then C{GET /r0/:id}, C{/r1/:id} and so on. They are defined in this order, and the
last of the routes is requested.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
from attrs import frozen

from bench.cases import Load, MeasureError
from bench.loads import HTTP1, askOverHTTP2, h2load, wrk
from bench.processes import Answer, Running, Session

KIB = 1 << 10
MIB = 1 << 20
APPS = Path(__file__).with_name("apps")
FEW_ROUTES = 10
MANY_ROUTES = 100
JSON = "application/json"

FILES: Mapping[str, int] = {"16k.bin": 16 * KIB, "10m.bin": 10 * MIB}
"""The files under C{/static}, and their sizes."""

ECHO_SIZE = KIB


def filesOf(session: Session) -> Path:
    """Return the directory of files that all servers of a run serve."""

    @contextlib.contextmanager
    def make() -> Iterator[Path]:
        folder = session.folder / "files"
        folder.mkdir()
        for name, size in FILES.items():
            (folder / name).write_bytes(os.urandom(size))
        yield folder

    found: Path = session.once("files", make)
    return found


def files(running: Running) -> Path:
    """Return the directory as an argument of an application."""
    return filesOf(running.session)


def echoDocument() -> dict[str, object]:
    """Make the document that is posted: an order, with a note that fills it up to its size."""
    items = [
        {"sku": f"A-{1000 + number}", "count": number, "price": number + 0.5, "tags": ["new"]}
        for number in range(1, 13)
    ]
    order: dict[str, object] = {"id": 4711, "user": "ada", "paid": True, "items": items, "note": ""}
    order["note"] = "n" * (ECHO_SIZE - len(msgspec.json.encode(order)))
    return order


ECHO_BODY = msgspec.json.encode(echoDocument())


@frozen
class Page:
    """
    A request, and the right answer.

    @ivar contentType: The media type of the answer.
    @ivar wanted: The body of the answer; JSON may be spelled otherwise.
    @ivar posted: The body of a POST; empty for a GET.
    @ivar file: The file whose bytes are the answer.
    """

    target: str
    contentType: str
    wanted: bytes = b""
    posted: bytes = b""
    file: str = ""

    @property
    def size(self) -> int:
        """Return the least size of an answer."""
        return FILES[self.file] if self.file else len(self.wanted)

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Check the answer, and return the load of wrk."""
        fields = {"Content-Type": JSON} if self.posted else {}
        method = "POST" if self.posted else "GET"
        answer = running.exchange(method, self.target, self.posted or None, fields)
        self.check(answer, files(running))
        return Load(wrk(running, self.target, connections, self.posted, self.size))

    def check(self, answer: Answer, folder: Path) -> None:
        """
        Compare an answer with the right one.

        @raise MeasureError: It differs.
        """
        right = (folder / self.file).read_bytes() if self.file else self.wanted
        isSame = answer.body == right
        if self.contentType == JSON and not isSame:
            with contextlib.suppress(msgspec.DecodeError):
                isSame = msgspec.json.decode(answer.body) == msgspec.json.decode(right)
        if answer.status != 200 or answer.contentType != self.contentType or not isSame:
            raise MeasureError(
                f"{self.target}: {answer.status} {answer.contentType} with "
                f"{len(answer.body)} bytes {answer.body[:60]!r}"
            )


@frozen
class MultiplexedPage:
    """
    Makes the load of a page over HTTP/2, on one connection.

    A server whose data is L{HTTP1} is asked over HTTP/1.1, on so many connections.
    """

    page: Page

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Check the answer, and return the load of h2load."""
        target, size = self.page.target, self.page.size
        isHTTP1 = running.server.data == HTTP1
        ask = partial(running.exchange, "GET") if isHTTP1 else partial(askOverHTTP2, running)
        self.page.check(ask(target), files(running))
        return Load(h2load(running, target, connections, b"", (size, size), {}, isHTTP1))


HELLO = Page("/hello", "text/plain", b"Hello, World!")
ECHO = Page("/echo", JSON, ECHO_BODY, posted=ECHO_BODY)


_ORDER = {
    "customer": "ada",
    "lines": [{"article": f"A-{number}", "count": number} for number in range(1, 6)],
}

TYPED = Page(
    "/orders/7?page=2",
    JSON,
    msgspec.json.encode({"id": 7, "customer": "ada", "page": 2, "articles": 15}),
    posted=msgspec.json.encode(_ORDER),
)
"""An order whose path, query and body have types, and its invoice."""


def lastRoute(routes: int) -> Page:
    """Return the page of the last of some routes."""
    last = routes - 1
    return Page(f"/r{last}/abc", JSON, b'{"route":%d,"id":"abc"}' % last)


def filePage(file: str) -> Page:
    """Return the page of a file."""
    return Page(f"/static/{file}", "application/octet-stream", file=file)
