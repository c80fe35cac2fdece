"""
What is asked of the HTTP framework and its peers, and what is the right answer.

Every server has the same application: C{GET /hello}, C{POST /echo}, the files of a folder under
C{/static}, and then C{GET /r0/:id}, C{/r1/:id} and so on, as many as the case wants. They are
defined in this order, and the last of the routes is the one that is asked for.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from attrs import frozen

from bench.measuring import MeasureError
from bench.processes import Answer

KIB = 1 << 10
MIB = 1 << 20
CONNECTIONS = (64,)
FEW_ROUTES = 10
MANY_ROUTES = 100
JSON = "application/json"
FILES: Mapping[str, int] = {"16k.bin": 16 * KIB, "10m.bin": 10 * MIB}
"""The files under C{/static}, and their sizes."""

ECHO_SIZE = KIB


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
class Case:
    """
    One kind of request.

    @ivar contentType: Of the right answer.
    @ivar wanted: The body of the right answer; JSON may be written otherwise.
    @ivar posted: What is sent; nothing with a GET.
    @ivar file: Which file is asked for, whose bytes are then the right answer.
    @ivar routes: How many routes with a parameter the application has.
    @ivar longer: How many times as long as others it is measured.
    """

    name: str
    target: str
    contentType: str
    wanted: bytes = b""
    posted: bytes = b""
    file: str = ""
    routes: int = FEW_ROUTES
    longer: int = 1
    connections: tuple[int, ...] = CONNECTIONS

    @property
    def method(self) -> str:
        """The method of the request."""
        return "POST" if self.posted else "GET"

    @property
    def size(self) -> int:
        """How long the body of an answer is, at least."""
        return FILES[self.file] if self.file else len(self.wanted)


def routeCase(routes: int) -> Case:
    """Ask for the last of some routes."""
    last = routes - 1
    wanted = b'{"route":%d,"id":"abc"}' % last
    return Case(f"route{routes}", f"/r{last}/abc", JSON, wanted, routes=routes)


def fileCase(file: str, longer: int = 1) -> Case:
    """Ask for a file."""
    name = f"static{file.removesuffix('.bin')}"
    return Case(name, f"/static/{file}", "application/octet-stream", file=file, longer=longer)


CASES = {
    case.name: case
    for case in (
        Case("hello", "/hello", "text/plain", b"Hello, World!"),
        routeCase(FEW_ROUTES),
        routeCase(MANY_ROUTES),
        Case("echo", "/echo", JSON, ECHO_BODY, posted=ECHO_BODY),
        fileCase("16k.bin"),
        # With 64 answers under way at once the slowest servers take seconds to the first end.
        fileCase("10m.bin", longer=2),
    )
}


def rightBody(case: Case, files: Path) -> bytes:
    """Give the body of the right answer."""
    return (files / case.file).read_bytes() if case.file else case.wanted


def checkAnswer(case: Case, answer: Answer, files: Path) -> None:
    """
    Compare an answer with the right one.

    @raise MeasureError: If it is another.
    """
    right = rightBody(case, files)
    same = answer.body == right
    if case.contentType == JSON and not same:
        try:
            same = msgspec.json.decode(answer.body) == msgspec.json.decode(right)
        except msgspec.DecodeError:
            same = False
    if answer.status != 200 or answer.contentType != case.contentType or not same:
        raise MeasureError(
            f"{case.name}: answered {answer.status} {answer.contentType} "
            f"with {len(answer.body)} bytes {answer.body[:60]!r}"
        )
