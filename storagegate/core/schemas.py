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

from fastjsonschema import JsonSchemaException, JsonSchemaValueException, compile

from storagegate.core.definitions import DefinitionError
from storagegate.core.errors import codedError

_DRAFT = "http://json-schema.org/draft-07/schema#"

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

    def __init__(self, schema: Mapping[str, Any], name: str) -> None:
        """
        @param name: What it is the schema of, for errors.
        @raise DefinitionError: If it is none.
        """
        try:
            self.document = normalised(schema)
            self._validate = compile(
                {"$schema": _DRAFT, **_masked(self.document)},
                handlers={"http": _refuse, "https": _refuse, "file": _refuse},
                use_default=False,
            )
        except (JsonSchemaException, ValueError, TypeError, AttributeError) as error:
            raise DefinitionError(f"{name} has a schema that is none: {error}") from None
        self._bytes = _bytesReader(self.document)

    def read(self, value: Any) -> Any:
        """
        Check a request.

        @return: The same with bytes where the schema has them.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit.
        """
        self.check(value)
        return value if self._bytes is None else self._bytes(value, "")

    def check(self, value: Any) -> None:
        """
        Check a value.

        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit.
        """
        try:
            self._validate(value)
        except JsonSchemaValueException as error:
            raise _violation(_pathOf(error), _messageOf(error)) from None
        except RecursionError:
            raise _violation("", "is nested too deeply") from None


def normalised(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """
    Make plain JSON Schema of a schema in which properties say themselves that they are required.

    @raise ValueError: If it is nested too deeply, or a part of it is no schema.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if not isinstance(schema, Mapping):
        raise ValueError(f"{schema!r:.60} is no mapping")
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
        for name, part in (schema.get("properties") or {}).items()
        if isinstance(part, Mapping) and part.get("required") is True
    ]
    if required:
        result["required"] = list(dict.fromkeys([*result.get("required", ()), *required]))
    return result


def _inner(part: Any, depth: int) -> Any:
    # JSON Schema has True and False for anything and nothing.
    return part if isinstance(part, bool) else normalised(part, depth + 1)


def isBytes(schema: Any) -> bool:
    """Tell whether a schema is one of bytes."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") == "string"
        and schema.get("contentEncoding") == "base64"
    )


def _masked(schema: Any) -> Any:
    """Leave out what bytes would not fit, although their base64 does."""
    if isBytes(schema):
        return {}
    if isinstance(schema, Mapping):
        return {key: _masked(value) for key, value in schema.items()}
    return [_masked(value) for value in schema] if isinstance(schema, list) else schema


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
        raise _violation(path, "must be base64") from None


def _violation(path: str, message: str) -> Exception:
    reason = f"{path} {message}" if path else f"the request {message}"
    return codedError("VALIDATION_ERROR", reason, [{"path": path, "message": message}])


def _pathOf(error: JsonSchemaValueException) -> str:
    path = (error.name or "").removeprefix("data").removeprefix(".")
    if error.rule == "required":
        missing = next(iter(_missing(error)), "")
        return f"{path}.{missing}" if path and missing else missing or path
    return str(path)


def _missing(error: JsonSchemaValueException) -> list[str]:
    value = error.value if isinstance(error.value, Mapping) else {}
    return [name for name in error.rule_definition or () if name not in value]


def _messageOf(error: JsonSchemaValueException) -> str:
    if error.rule == "required":
        return "is required"
    return str(error.message.removeprefix(error.name or "").strip())


def _refuse(uri: str) -> Any:
    raise ValueError(f"a schema is not fetched from {uri:.60}")
