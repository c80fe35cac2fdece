"""What the code says of itself, in the form that the documentation's tables have."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from attrs import fields

from tests.support.documents import literal


def publicNames(thing: object) -> set[str]:
    """Give the public members of an object: of its class, and its own."""
    return {name for name in {*dir(type(thing)), *vars(thing)} if not name.startswith("_")}


def firstWords(rows: Iterable[list[str]]) -> list[str]:
    """Give the names in the first column, without what is in parentheses."""
    return [literal(row[0]).partition("(")[0] for row in rows]


def defaults(function: Callable[..., Any]) -> list[list[str]]:
    """Give the options of a function and their defaults, as a table has them."""
    return [
        [name, "required" if p.default is p.empty else f"``{p.default!r}``"]
        for name, p in inspect.signature(function).parameters.items()
        if name != "self"
    ]


def attributeDefaults(kind: Any) -> list[list[str]]:
    """Give the attributes of an attrs class and their defaults, as a table has them."""
    return [
        [a.alias, "``{}``" if hasattr(a.default, "factory") else f"``{a.default!r}``"]
        for a in fields(kind)
    ]
