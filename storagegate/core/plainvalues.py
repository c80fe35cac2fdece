"""
Values of plain schemas, which need no validator to be found good.

Most schemas name the type of each property and which have to be there, and most values fit. To see
that takes a quarter of the time of a validator of JSON Schema. What is not sure to fit is for the
validator: it has the last word, and all errors are its own.
"""

from collections.abc import Callable, Mapping
from typing import Any

Fits = Callable[[Any], bool]
"""Tells whether a value is sure to fit; C{False} says nothing."""

_TYPES: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "object": frozenset({dict}),
    "array": frozenset({list}),
}

# What says nothing of values.
_NOTES = frozenset({"title", "description", "default", "examples", "$comment"})

_OBJECT = frozenset({"type", "properties", "required"})


def plainFit(schema: Any) -> Fits | None:
    """
    Give what sees whether values fit a schema.

    @param schema: One that is known to be good, in plain JSON Schema: an object whose properties
        have a type and no more.
    @return: C{None} if it is any other.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    if schema.get("type") != "object" or not (schema.keys() - _NOTES <= _OBJECT):
        return None
    types = {name: _typesOf(part) for name, part in properties.items()}
    if not all(types.values()) or not all(name in types for name in required):
        return None
    parts = [(name, found, name in required) for name, found in types.items() if found]

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, types, isRequired in parts:
            if name in value:
                if type(value[name]) not in types:
                    return False
            elif isRequired:
                return False
        return True

    return fits


def _typesOf(schema: Any) -> frozenset[type] | None:
    """Give the types whose every value fits a schema; C{None} if that takes more than a type."""
    if not isinstance(schema, Mapping) or schema.keys() - _NOTES != {"type"}:
        return None
    name = schema["type"]
    return _TYPES.get(name) if isinstance(name, str) else None
