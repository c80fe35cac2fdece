"""All mistakes of an invalid request, for every kind of type."""

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.typeschemas import TypeSchema, documentOf


@dataclass
class Line:
    """A line of an order."""

    article: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


class Place(msgspec.Struct, rename={"zip": "zip-code"}):
    """A place, whose names differ on the wire."""

    zip: str
    city: str | None = None


@attrs.define
class Item:
    """An item of attrs."""

    name: str
    size: int


class Entry(TypedDict):
    """A dictionary."""

    key: str


@dataclass
class Order:
    """An order of all of these."""

    lines: list[Line]
    place: Place | None = None
    item: Item | None = None
    entries: dict[str, int] = field(default_factory=dict)
    entry: Entry | None = None


class Checked(msgspec.Struct):
    """A model with a rule of its own."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Compare them."""
        if self.low > self.high:
            raise ValueError("low is above high")


@dataclass
class Tree:
    """A model that contains itself."""

    name: str
    below: list["Tree"] = field(default_factory=list)


class Large(msgspec.Struct):
    """A list of any length."""

    a: list[int]
    b: int
    c: list["Large"] = []


class MistakeTests(SynchronousTestCase):
    """The errors of requests."""

    def mistakes(self, model: Any, value: Any) -> list[tuple[str, str]]:
        """Return the mistakes of a refused request."""
        error = self.assertRaises(ServiceError, TypeSchema(model, documentOf(model)).read, value)
        self.assertEqual(error.code, "VALIDATION_ERROR")
        return [(each["path"], each["message"]) for each in error.details]

    def test_deep(self) -> None:
        """Mistakes in lists, models and optional parts, with the names of the wire."""
        value = {
            "lines": [{"count": 0}, {"article": "a"}, 7],
            "place": {"city": 1},
            "item": {"name": "x", "size": "y"},
            "entries": {"a": "b"},
            "entry": {},
        }
        self.assertEqual(
            self.mistakes(Order, value),
            [
                ("lines[0].article", "is required"),
                ("lines[0].count", "expected int >= 1"),
                ("lines[2]", "expected object, got int"),
                ("place.zip-code", "is required"),
                ("place.city", "expected str | null, got int"),
                ("item.size", "expected int, got str"),
                ("entries[...]", "expected int, got str"),
                ("entry.key", "is required"),
            ],
        )

    def test_one(self) -> None:
        """One mistake is what it was."""
        self.assertEqual(
            self.mistakes(Order, {"lines": [{"article": 1}]}),
            [("lines[0].article", "expected str, got int")],
        )
        self.assertEqual(self.mistakes(Order, 7), [("", "expected object, got int")])

    def test_rule(self) -> None:
        """A rule of a model counts if its parts are right."""
        self.assertEqual(self.mistakes(Checked, {"low": 2, "high": 1}), [("", "low is above high")])
        self.assertEqual(len(self.mistakes(Checked, {"low": "a", "high": "b"})), 2)

    def test_recursive(self) -> None:
        """A model may contain itself."""
        value = {"name": 1, "below": [{"name": "a", "below": [{}]}]}
        self.assertEqual(
            [path for path, _ in self.mistakes(Tree, value)], ["name", "below[0].below[0].name"]
        )

    def test_bounded(self) -> None:
        """No more than twenty are listed."""
        self.assertEqual(len(self.mistakes(Order, {"lines": [{}] * 100})), 20)

    def test_large(self) -> None:
        """The parts of a large value are not all examined; the first mistake is named."""
        schema = TypeSchema(Large, documentOf(Large))
        for value, paths in (
            ({"a": [1] * 300_000, "b": "x"}, ["b"]),
            ({"a": ["x", *[1] * 300_000], "b": "x"}, ["a[0]"]),
            ({"a": [*[1] * 300_000, "x"], "b": 1}, ["a[300000]"]),
            ({"a": [], "c": [{"a": []}] * 30_000, "b": 1}, ["c[0].b"]),
        ):
            calls: list[str] = []
            sys.setprofile(lambda frame, event, argument, calls=calls: calls.append(event))
            try:
                error = self.assertRaises(ServiceError, schema.read, value)
            finally:
                sys.setprofile(None)
            self.assertLess(len(calls), 200_000)
            self.assertEqual([each["path"] for each in error.details][: len(paths)], paths)
