"""
Schemas of requests and responses.

A schema is JSON Schema with one habit of its own: a property may say C{"required": True} of itself,
besides the list that JSON Schema has::

    {"type": "object", "properties": {"id": {"type": "string", "required": True}}}

Text with C{"contentEncoding": "base64"} is bytes in handlers: what came as text is decoded here,
what came as bytes, from a wire that has them, is left.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from storagegate.core.definitions import DefinitionError
from storagegate.core.plainvalues import plainFit
from storagegate.core.violations import Validator, isBytes, violation

_MAX_DEPTH = 64
"""Schemas are nested by hand; this deep is a circle."""

_SUBSCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_SCHEMA_MAPS = ("properties", "patternProperties", "definitions", "$defs")


class Schema:
    """
    A compiled schema.

    @ivar document: The same in plain JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any], name: str, isKnown: bool = False) -> None:
        """
        @param name: What it is the schema of, for errors.
        @param isKnown: Whether it is known to be good: then it is compiled when it is needed.
        @raise DefinitionError: If it is none.
        """
        self._name = name
        try:
            self.document = normalised(schema)
        except ValueError as error:
            raise DefinitionError(f"{name} has a schema that is none: {error}") from None
        self._bytes = _bytesReader(self.document)
        self._validate = self._compileAndValidate if isKnown else self._compiled()
        self._fits = plainFit(self.document)

    def _compiled(self) -> Validator:
        # A megabyte that a daemon without calls does not need.
        from storagegate.core.schemacompiling import compileSchema

        return compileSchema(self.document, self._name)

    def _compileAndValidate(self, value: Any) -> Any:
        self._validate = self._compiled()
        return self._validate(value)

    def read(self, value: Any) -> Any:
        """
        Check a request.

        @return: The same with bytes where the schema has them.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit.
        """
        if self._fits is not None and self._fits(value):
            # Not one that has bytes: their text has more to it than its type.
            return value
        self._validate(value)
        return value if self._bytes is None else self._bytes(value, "")

    def check(self, value: Any) -> None:
        """
        Check a value.

        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit.
        """
        if self._fits is None or not self._fits(value):
            self._validate(value)


def normalised(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """
    Make plain JSON Schema of a schema in which properties say themselves that they are required.

    @raise ValueError: If it is nested too deeply, or a part of it is no schema.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if not isinstance(schema, Mapping):
        raise ValueError(f"{schema!r:.60} is no mapping")
    if not isinstance(schema.get("properties", {}), Mapping):
        raise ValueError("its properties are no mapping")
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "required" and isinstance(value, bool):
            continue
        if key in _SCHEMA_MAPS and isinstance(value, Mapping):
            value = {name: _inner(part, depth) for name, part in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list | tuple):
            value = [_inner(part, depth) for part in value]
        elif key in _SUBSCHEMAS and isinstance(value, Mapping):
            value = normalised(value, depth + 1)
        result[key] = value
    required = [
        name
        for name, part in schema.get("properties", {}).items()
        if isinstance(part, Mapping) and part.get("required") is True
    ]
    if required:
        result["required"] = list(dict.fromkeys([*result.get("required", ()), *required]))
    return result


def _inner(part: Any, depth: int) -> Any:
    # JSON Schema has True and False for anything and nothing.
    return part if isinstance(part, bool) else normalised(part, depth + 1)


Reader = Callable[[Any, str], Any]


def _bytesReader(schema: Any) -> Reader | None:
    """Give what decodes the bytes in a value of a schema; C{None} where it has none."""
    if isBytes(schema):
        return _readBytes
    if not isinstance(schema, Mapping):
        return None
    parts = {
        name: reader
        for name, part in (schema.get("properties") or {}).items()
        if (reader := _bytesReader(part)) is not None
    }
    items = _bytesReader(schema.get("items"))
    if not parts and items is None:
        return None

    def read(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            found = {
                name: reader(value[name], f"{path}.{name}" if path else name)
                for name, reader in parts.items()
                if name in value
            }
            return {**value, **found} if found else value
        if isinstance(value, list) and items is not None:
            return [items(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return read


def _readBytes(value: Any, path: str) -> Any:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise violation(path, "must be base64") from None
