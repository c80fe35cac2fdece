"""The description of the API as OpenAPI 3.1, from the table that routes it."""

import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, get_args

import msgspec

from storagegate.console.call import ConsoleCall
from storagegate.console.operations import OPERATIONS, APIOperation
from storagegate.version import __version__

_REFERENCE = "#/components/schemas/{name}"

_BYTES: Mapping[str, Any] = {"application/octet-stream": {}}

_RAW = frozenset({"putObject", "putPart"})
"""The operations whose body is binary."""

_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "details": {},
    },
    "required": ["error", "message"],
}


async def showOpenAPI(call: ConsoleCall) -> Any:
    """Describe this API."""
    return call.services.keep("openapi", lambda: describe(OPERATIONS))


def describe(operations: Sequence[APIOperation]) -> dict[str, Any]:
    """
    Build the OpenAPI document.

    @param operations: The table of operations.
    """
    types = [
        member
        for operation in operations
        for each in operation.types.values()
        for member in _members(each)
    ]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    found = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        own = {}
        for name, each in operation.types.items():
            some = [next(found) for _ in _members(each)]
            own[name] = some[0] if len(some) == 1 else {"anyOf": some}
        path = paths.setdefault("/" + operation.path, {})
        path[operation.method.lower()] = _operation(operation, own, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "storagegate console", "version": __version__},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": "storagegate-console"},
                "token": {"type": "apiKey", "in": "header", "name": "X-Console-Token"},
            },
        },
    }


def _members(found: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself; structs of a union have no tags."""
    return get_args(found) if isinstance(found, UnionType) else (found,)


def _operation(
    operation: APIOperation, schemas: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    """Describe an operation."""
    names = re.findall(r"\{(\w+)\}", operation.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    if "query" in schemas:
        query = components[schemas["query"]["$ref"].rpartition("/")[2]]
        required = query.get("required", ())
        for name, schema in query.get("properties", {}).items():
            parameters.append(
                {"name": name, "in": "query", "required": name in required, "schema": schema}
            )
    error = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    responses: dict[str, Any] = {"default": {"description": "An error", "content": error}}
    if operation.types.get("return") in (None, type(None)):
        responses["204"] = {"description": "Done"}
    else:
        content = {"application/json": {"schema": schemas["return"]}}
        responses["200"] = {"description": "Done", "content": content}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "x-role": operation.least,
        "parameters": parameters,
        "responses": responses,
        "security": [{"cookie": [], "token": []}] if operation.least else [],
    }
    if "body" in schemas:
        content = {"application/json": {"schema": schemas["body"]}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.name in _RAW:
        described["requestBody"] = {"required": True, "content": _BYTES}
    return described
