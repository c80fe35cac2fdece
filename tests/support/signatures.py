"""Names and defaults from the code, in the form of the documentation's tables."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from attrs import fields

from tests.support.documents import literal


def publicNames(thing: object) -> set[str]:
    """Return the public members of an object and its class."""
    return {name for name in {*dir(type(thing)), *vars(thing)} if not name.startswith("_")}


def firstWords(rows: Iterable[list[str]]) -> list[str]:
    """Return the names in the first column, without text in parentheses."""
    return [literal(row[0]).partition("(")[0] for row in rows]


def defaults(function: Callable[..., Any]) -> list[list[str]]:
    """Return the options of a function and their defaults, in the form of a table."""
    return [
        [name, "required" if p.default is p.empty else f"``{p.default!r}``"]
        for name, p in inspect.signature(function).parameters.items()
        if name != "self"
    ]


def attributeDefaults(kind: Any) -> list[list[str]]:
    """Return the attributes of an attrs class and their defaults, in the form of a table."""
    return [
        [a.alias, "``{}``" if hasattr(a.default, "factory") else f"``{a.default!r}``"]
        for a in fields(kind)
    ]
