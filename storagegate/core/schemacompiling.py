"""
The compiler of schemas.

A module of its own, for the library takes a megabyte that nobody needs before the first schema.
"""

from collections.abc import Mapping
from typing import Any

from fastjsonschema import JsonSchemaException, JsonSchemaValueException, compile

from storagegate.core.definitions import DefinitionError
from storagegate.core.violations import Validator, isBytes, violation

_DRAFT = "http://json-schema.org/draft-07/schema#"


def compileSchema(document: Mapping[str, Any], name: str) -> Validator:
    """
    Compile a schema.

    @param document: In plain JSON Schema.
    @param name: What it is the schema of, for errors.
    @raise DefinitionError: If it is none.
    """
    try:
        check = compile(
            {"$schema": _DRAFT, **_masked(document)},
            handlers={"http": _refuse, "https": _refuse, "file": _refuse},
            use_default=False,
        )
    except (JsonSchemaException, ValueError, TypeError, AttributeError) as error:
        raise DefinitionError(f"{name} has a schema that is none: {error}") from None

    def validate(value: Any) -> None:
        try:
            check(value)
        except JsonSchemaValueException as error:
            raise violation(_pathOf(error), _messageOf(error)) from None
        except RecursionError:
            raise violation("", "is nested too deeply") from None

    return validate


def _masked(schema: Any) -> Any:
    """Leave out what bytes would not fit, although their base64 does."""
    if isBytes(schema):
        return {}
    if isinstance(schema, Mapping):
        return {key: _masked(value) for key, value in schema.items()}
    return [_masked(value) for value in schema] if isinstance(schema, list) else schema


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
