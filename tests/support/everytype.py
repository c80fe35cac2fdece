"""A service whose messages have a field of every type."""

import datetime
import decimal
import enum
import uuid
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Required, TypedDict

import attrs
from msgspec import Meta, Struct

from storagegate.rpc.application import GRPCServer


class Color(enum.Enum):
    """A colour."""

    RED = "red"
    darkBlue = "dark blue"


class Priority(enum.IntEnum):
    """How soon."""

    LOW = 1
    HIGH = 5


class Circle(Struct, tag=True):
    """A round shape."""

    radius: float


class Square(Struct, tag="sq"):
    """A shape with corners."""

    side: float
    label: str | None = None


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 0


class Stamp(TypedDict, total=False):
    """When and why."""

    createdAt: Required[datetime.datetime]
    reason: str


@attrs.frozen
class Tag:
    """A label of a note."""

    name: str


@dataclass
class Note:
    """
    A note, with a field of every type.

    It closes no comment: */
    """

    id: int
    text: str
    color: Color
    priority: Priority
    made: datetime.datetime
    took: datetime.timedelta
    key: uuid.UUID
    price: decimal.Decimal
    day: datetime.date
    kind: Literal["draft", "final"]
    shape: Circle | Square
    raw: bytes
    small: Annotated[int, Meta(ge=-5, le=100, description="A small number")]
    port: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    ratio: float
    isOpen: bool
    tags: list[Tag]
    grid: list[list[int]]
    byName: dict[str, Tag]
    byNumber: dict[int, list[datetime.timedelta]]
    byColor: dict[Color, str]
    point: Point
    stamp: Stamp
    anything: Any
    loose: dict[str, Any]
    either: int | str | None
    shapes: list[Circle | Square]
    gaps: list[int | None]
    pair: tuple[int, str]
    children: list["Note"]
    maybe: list[str] | None = None
    parent: Tag | None = None
    colors: list[Color] = field(default_factory=list)


@dataclass
class NoteId:
    """Which note."""

    id: int


@dataclass
class Count:
    """How many notes."""

    count: int


def makeNote(id: int, *children: Note) -> Note:
    """Make a note whose fields all differ from their defaults, but for empty lists."""
    return Note(
        id=id,
        text="tea & \u2603",
        color=Color.darkBlue,
        priority=Priority.HIGH,
        made=datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC),
        took=datetime.timedelta(days=-1, seconds=1.5),
        key=uuid.UUID(int=id),
        price=decimal.Decimal("1.10"),
        day=datetime.date(2026, 1, 2),
        kind="final",
        shape=Square(1.5),
        raw=b"\xff\x00",
        small=-5,
        port=2**32 - 1,
        ratio=0.1,
        isOpen=False,
        tags=[],
        grid=[[1], [], [2, 3]],
        byName={"a": Tag("x")},
        byNumber={7: [datetime.timedelta(hours=1)]},
        byColor={Color.RED: "warm"},
        point=Point(3),
        stamp={"createdAt": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
        anything={"x": [None, 1]},
        loose={"k": 1.5},
        either="seven",
        shapes=[Circle(1.0), Square(2.0, "q")],
        gaps=[1, None],
        pair=(1, "b"),
        children=[*children],
        maybe=[] if children else None,
        parent=Tag("p") if children else None,
        colors=[Color.RED, Color.darkBlue],
    )


NOTE = makeNote(2, makeNote(1))


class Notes(Protocol):
    """The service, for clients."""

    async def Get(self, wanted: NoteId) -> Note: ...

    async def Echo(self, note: Note) -> Note: ...

    def Watch(self, wanted: NoteId) -> AsyncIterator[Note]: ...

    async def Add(self, notes: AsyncIterable[Note]) -> Count: ...

    def Chat(self, notes: AsyncIterable[Note]) -> AsyncIterator[Note]: ...

    async def Tags(self, wanted: NoteId) -> list[Tag]: ...

    async def Find(self, wanted: NoteId) -> Tag | None: ...


async def get(wanted: NoteId) -> Note:
    """Return the note."""
    return NOTE


async def echo(note: Note) -> Note:
    """Return the note that was sent."""
    assert note == NOTE, note
    return note


async def watch(wanted: NoteId) -> AsyncIterator[Note]:
    """Return the note twice."""
    yield NOTE
    yield NOTE


async def add(notes: AsyncIterator[Note]) -> Count:
    """Count the notes that were sent."""
    return Count(sum([note == NOTE async for note in notes]))


async def chat(notes: AsyncIterator[Note]) -> AsyncIterator[Note]:
    """Return each note that was sent."""
    async for note in notes:
        yield note


async def tags(wanted: NoteId) -> list[Tag]:
    """Return two tags."""
    return [Tag("a"), Tag("b")]


async def find(wanted: NoteId) -> Tag | None:
    """Return the tag of a note other than 0."""
    return Tag("a") if wanted.id else None


METHODS = {
    "Get": get,
    "Echo": echo,
    "Watch": watch,
    "Add": add,
    "Chat": chat,
    "Tags": tags,
    "Find": find,
}

SERVICE = "notes.v1.Notes"


def makeServer() -> GRPCServer:
    """Make a server of the service."""
    return GRPCServer().addService(name=SERVICE, methods=METHODS)


app = makeServer()
