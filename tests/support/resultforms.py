"""
Declared results in every form, each with a value that also contains a secret.

Each value contains L{SECRET} in a member that its declared type or schema lacks; C{wanted} is the
result without it. Results are objects, which every transport supports.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic

SECRET = "hunter2-in-the-clear"

Item = TypeVar("Item")


@dataclass
class User:
    """A dataclass with several kinds of non-fields, and a field with a value set by the class."""

    name: str
    done: bool = False
    kind: ClassVar[str] = SECRET
    level: int = field(init=False, default=5)

    @property
    def derived(self) -> str:
        """Return a value that is not a field."""
        return SECRET

    @cached_property
    def cached(self) -> str:
        """Return a value that is stored in the dictionary of the instance."""
        return SECRET


@dataclass
class StoredUser(User):
    """A subclass with an additional field."""

    password: str = SECRET


@attrs.define
class AttrsUser:
    """An attrs class; a private field is not part of the result."""

    name: str
    _token: str = SECRET


@attrs.define
class StoredAttrsUser(AttrsUser):
    """A subclass with an additional field."""

    password: str = SECRET


@attrs.define(slots=False)
class OpenAttrsUser:
    """An attrs class whose instances accept any attribute."""

    name: str


class StructUser(msgspec.Struct):
    """A msgspec class."""

    name: str


class StoredStructUser(StructUser):
    """A subclass with an additional field."""

    password: str = SECRET


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A class that rejects additional fields in requests."""

    first_name: str


class StoredStrict(Strict):
    """A subclass with an additional field."""

    pass_word: str = SECRET


class Cat(msgspec.Struct, tag=True):
    """A member of a union."""

    lives: int


class Dog(msgspec.Struct, tag=True):
    """Another member of the union."""

    tricks: int


class StoredDog(Dog):
    """A subclass of a member, with its own tag."""

    password: str = SECRET


class Pair(NamedTuple):
    """A named tuple."""

    user: User
    count: int = 1


class UserDict(TypedDict):
    """A typed dictionary."""

    name: str
    user: NotRequired[User]


class Holder(msgspec.Struct):
    """Models in every kind of collection."""

    one: User
    many: list[User]
    byName: dict[str, User]
    few: tuple[User, ...] = ()
    maybe: User | None = None
    pet: Cat | Dog | None = None
    pair: Pair | None = None


@dataclass
class Page(Generic[Item]):
    """A generic model."""

    items: list[Item]


class Node(msgspec.Struct):
    """A recursive model."""

    name: str
    children: "list[Node]" = []


class StoredNode(Node):
    """A subclass with an additional field."""

    password: str = SECRET


class Address(pydantic.BaseModel):
    """A pydantic model."""

    street: str


class StoredAddress(Address):
    """A subclass with an additional field."""

    model_config = pydantic.ConfigDict(extra="allow")
    password: str = SECRET


class Person(pydantic.BaseModel):
    """A pydantic model with nested models."""

    home: Address
    others: list[Address] = []


def storedUser() -> StoredUser:
    """Make a user with every kind of secret."""
    user = StoredUser("Ada")
    assert user.cached == SECRET
    user.extra = SECRET  # type: ignore[attr-defined]
    return user


def openUser() -> OpenAttrsUser:
    """Make a user with an attribute that is not a field."""
    user = OpenAttrsUser("Ada")
    user.password = SECRET  # type: ignore[attr-defined]
    return user


def holder() -> Any:
    """Make a holder with a secret at every depth."""
    user = storedUser()
    mapping: Any = {"name": "Ada", "password": SECRET}
    named = {"k": user, "m": mapping}
    return Holder(user, [user, mapping], named, (user,), user, StoredDog(2), Pair(user))


_USER = {"name": "Ada", "done": False, "level": 5}
_DICT = {"name": "Ada", "password": SECRET}
_DOG = {"type": "Dog", "tricks": 2}
_HELD = {
    "one": _USER,
    "many": [_USER, _USER],
    "byName": {"k": _USER, "m": _USER},
    "few": [_USER],
    "maybe": _USER,
    "pet": _DOG,
    "pair": [_USER, 1],
}

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_ROLE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "role": {"type": "string"}},
    "required": ["name", "role"],
}
_ADMIN = {"name": "Ada", "role": "admin", "password": SECRET}

TYPES: tuple[tuple[str, Any, Callable[[], Any], Any], ...] = (
    ("dataclass", User, storedUser, _USER),
    ("mapping for a dataclass", User, lambda: dict(_DICT), _USER),
    ("attrs", AttrsUser, lambda: StoredAttrsUser("Ada"), {"name": "Ada"}),
    ("attrs with attributes", OpenAttrsUser, openUser, {"name": "Ada"}),
    ("struct", StructUser, lambda: StoredStructUser("Ada"), {"name": "Ada"}),
    ("strict struct", Strict, lambda: StoredStrict("Ada"), {"firstName": "Ada"}),
    ("strict mapping", Strict, lambda: {"firstName": "Ada", "p": SECRET}, {"firstName": "Ada"}),
    (
        "typed dictionary",
        UserDict,
        lambda: {**_DICT, "user": storedUser()},
        {"name": "Ada", "user": _USER},
    ),
    ("nested", Holder, holder, _HELD),
    ("union", Cat | Dog, lambda: StoredDog(2), _DOG),
    ("optional", User | None, storedUser, _USER),
    ("mapping of models", dict[str, User], lambda: {"k": storedUser()}, {"k": _USER}),
    ("generic", Page[User], lambda: Page([storedUser()]), {"items": [_USER]}),
    (
        "recursive",
        Node,
        lambda: StoredNode("a", [StoredNode("b")]),
        {"name": "a", "children": [{"name": "b", "children": []}]},
    ),
    ("pydantic", Address, lambda: StoredAddress(street="x", more=SECRET), {"street": "x"}),  # type: ignore[call-arg]
    (
        "nested pydantic",
        Person,
        lambda: Person(home=StoredAddress(street="x"), others=[StoredAddress(street="y")]),
        {"home": {"street": "x"}, "others": [{"street": "y"}]},
    ),
)
"""Types: name, declared type, function that makes the handler's result, and expected result."""

SCHEMAS: tuple[tuple[str, Any, Any, Any], ...] = (
    ("flat", NAME, _DICT, {"name": "Ada"}),
    ("refused otherwise", {**NAME, "additionalProperties": False}, _DICT, {"name": "Ada"}),
    (
        "nested",
        {"type": "object", "properties": {"u": NAME, "us": {"type": "array", "items": NAME}}},
        {"u": _DICT, "us": [_DICT], "password": SECRET},
        {"u": {"name": "Ada"}, "us": [{"name": "Ada"}]},
    ),
    (
        "values of a mapping",
        {"type": "object", "additionalProperties": NAME},
        {"k": _DICT},
        {"k": {"name": "Ada"}},
    ),
    ("anyOf", {"anyOf": [NAME, _ROLE]}, _ADMIN, {"name": "Ada", "role": "admin"}),
    (
        "oneOf",
        {
            "oneOf": [
                {**NAME, "additionalProperties": False},
                {**_ROLE, "additionalProperties": False},
            ]
        },
        _ADMIN,
        {"name": "Ada", "role": "admin"},
    ),
    (
        "allOf",
        {"allOf": [NAME, {"properties": {"role": {"type": "string"}}}]},
        _ADMIN,
        {"name": "Ada", "role": "admin"},
    ),
    (
        "reference",
        {
            "definitions": {"User": NAME},
            "type": "object",
            "properties": {"u": {"$ref": "#/definitions/User"}},
        },
        {"u": _DICT},
        {"u": {"name": "Ada"}},
    ),
    (
        "condition",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "if": {"properties": {"name": {"const": "Ada"}}},
            "then": {"properties": {"role": {"type": "string"}}},
            "else": {"properties": {"password": {"type": "string"}}},
        },
        _ADMIN,
        {"name": "Ada", "role": "admin"},
    ),
)
"""Schemas as mappings, in the same form; the result is given directly."""

FORMS: tuple[tuple[str, Any, Callable[[], Any], Any], ...] = (
    *TYPES,
    *(
        (f"schema: {name}", schema, lambda value=value: value, wanted)
        for name, schema, value, wanted in SCHEMAS
    ),
)
"""All forms."""
