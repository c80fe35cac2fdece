"""
Declared results in every form, each with a value that has a secret besides.

Each value holds L{SECRET} in a member that its declared type or schema does not have; C{wanted} is
the result without it. Results are objects, which every transport can carry.
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
    """A dataclass, with all that is no field and a field that its class sets."""

    name: str
    done: bool = False
    kind: ClassVar[str] = SECRET
    level: int = field(init=False, default=5)

    @property
    def derived(self) -> str:
        """Return what is no field."""
        return SECRET

    @cached_property
    def cached(self) -> str:
        """Return what stands in the dictionary of the instance."""
        return SECRET


@dataclass
class StoredUser(User):
    """A subclass with a further field."""

    password: str = SECRET


@attrs.define
class AttrsUser:
    """A class of attrs; a private field is none of its result."""

    name: str
    _token: str = SECRET


@attrs.define
class StoredAttrsUser(AttrsUser):
    """A subclass with a further field."""

    password: str = SECRET


@attrs.define(slots=False)
class OpenAttrsUser:
    """A class of attrs whose instances take any attribute."""

    name: str


class StructUser(msgspec.Struct):
    """A class of msgspec."""

    name: str


class StoredStructUser(StructUser):
    """A subclass with a further field."""

    password: str = SECRET


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A class that refuses further fields in requests."""

    first_name: str


class StoredStrict(Strict):
    """A subclass with a further field."""

    pass_word: str = SECRET


class Cat(msgspec.Struct, tag=True):
    """A member of a union."""

    lives: int


class Dog(msgspec.Struct, tag=True):
    """Another member of it."""

    tricks: int


class StoredDog(Dog):
    """A subclass of a member, with a tag of its own."""

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
    """A model that holds itself."""

    name: str
    children: "list[Node]" = []


class StoredNode(Node):
    """A subclass with a further field."""

    password: str = SECRET


class Address(pydantic.BaseModel):
    """A model of pydantic."""

    street: str


class StoredAddress(Address):
    """A subclass with a further field."""

    model_config = pydantic.ConfigDict(extra="allow")
    password: str = SECRET


class Person(pydantic.BaseModel):
    """A model of pydantic with others in it."""

    home: Address
    others: list[Address] = []


def storedUser() -> StoredUser:
    """Make a user with every kind of secret."""
    user = StoredUser("Ada")
    assert user.cached == SECRET
    user.extra = SECRET  # type: ignore[attr-defined]
    return user


def openUser() -> OpenAttrsUser:
    """Make a user with an attribute that is no field."""
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
"""Types: a name, the declared type, what makes the handler's result, and what leaves."""

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
"""Schemas that are mappings, in the same way; the result stands for itself."""

FORMS: tuple[tuple[str, Any, Callable[[], Any], Any], ...] = (
    *TYPES,
    *(
        (f"schema: {name}", schema, lambda value=value: value, wanted)
        for name, schema, value, wanted in SCHEMAS
    ),
)
"""All of them."""
