"""Instances that are made from requests have every field."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.modeldefaults import completerOf
from storagegate.core.typeschemas import TypeSchema, documentOf


@dataclass
class Todo:
    """The plain case."""

    title: str
    done: bool = False
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    """One that cannot be changed."""

    title: str
    done: bool = False


@dataclass(kw_only=True)
class Inherited(Todo):
    """One that inherits defaults."""

    level: int = 1


@dataclass(slots=True)
class Slotted:
    """One with slots, which has always been whole."""

    title: str
    done: bool = False


class _Level:
    level = 7


@dataclass
class Shadowed(_Level):
    """One whose base class has the name of a field."""

    title: str
    level: int = field(default_factory=lambda: 3)


@attrs.define(slots=False)
class AttrsShadowed(_Level):
    """The same of attrs."""

    title: str
    level: int = 3


@attrs.define(slots=False)
class AttrsPlain:
    """One of attrs, which has always been whole."""

    title: str
    level: int = 3


class Pair(NamedTuple):
    """A named tuple."""

    todo: Todo


class Keys(TypedDict):
    """A typed dictionary."""

    todo: Todo


class _Upper:
    """A descriptor that keeps its value elsewhere."""

    def __get__(self, instance: Any, owner: Any = None) -> str:
        return "none" if instance is None else instance.__dict__.get("_kept", "none")

    def __set__(self, instance: Any, value: str) -> None:
        instance.__dict__["_kept"] = value.upper()


@dataclass
class Described:
    """One with a descriptor."""

    title: str
    word: Any = _Upper()


@dataclass
class Nested:
    """Others in every kind of collection, and a default that is none of its type."""

    many: list[Todo]
    named: dict[str, Todo]
    pair: Pair
    keys: Keys
    one: Frozen | None = None
    noted: Annotated[list[Todo], msgspec.Meta(description="noted")] | None = None
    two: tuple[int, Todo] | None = None
    wrong: list[Todo] = None  # type: ignore[assignment]
    itself: "Nested | None" = None


def read(model: Any, value: Any) -> Any:
    """Convert a request."""
    return TypeSchema(model, documentOf(model)).read(value)


class DefaultTests(SynchronousTestCase):
    """An instance from a request is as one made by hand."""

    def test_models(self) -> None:
        """What writes the attributes of an instance writes all fields."""
        for model in (Todo, Frozen, Inherited, Slotted, Shadowed, AttrsShadowed):
            byHand = model("a") if model is not Inherited else Inherited("a")
            self.assertEqual(
                msgspec.to_builtins(read(model, {"title": "a"})), msgspec.to_builtins(byHand), model
            )
            self.assertEqual(read(model, {"title": "a"}), byHand, model)

    def test_given(self) -> None:
        """A value that was sent stays, also where a descriptor keeps it."""
        self.assertEqual(read(Todo, {"title": "a", "done": True}), Todo("a", True))
        found = read(Described, {"title": "a", "word": "x"})
        self.assertEqual(found.word, "X")

    def test_nested(self) -> None:
        """So it is at every depth."""
        todo = {"title": "a"}
        value: dict[str, Any] = {
            "many": [todo],
            "named": {"k": todo},
            "pair": [todo],
            "keys": {"todo": todo},
            "one": todo,
            "noted": [todo],
            "two": [1, todo],
        }
        whole = {"title": "a", "done": False, "tags": []}
        wanted = {
            "many": [whole],
            "named": {"k": whole},
            "pair": (whole,),
            "keys": {"todo": whole},
            "one": {"title": "a", "done": False},
            "noted": [whole],
            "two": (1, whole),
            "wrong": None,
            "itself": None,
        }
        found = msgspec.to_builtins(read(Nested, {**value, "itself": value}))
        self.assertEqual(found, {**wanted, "itself": wanted})

    def test_unneeded(self) -> None:
        """A type whose instances are whole costs nothing."""
        for model in (Slotted, AttrsPlain, list[Slotted]):
            self.assertIsNone(completerOf(model))
