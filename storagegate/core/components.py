"""
The common parts of the descriptions of services and routes.

Schemas are stored in C{components/schemas} of a document, and each C{$ref} in them is rewritten to
point there.
"""

import re
from collections.abc import Mapping
from typing import Any

from storagegate.core.invoker import MethodEntry

JSON_TYPE = "application/json"

PLACE = "#/components/schemas/"

_UNFIT = re.compile(r"[^A-Za-z0-9._-]")

_PARAMETER = re.compile(r":([^\W\d]\w*)(\?)?")
_OPTIONAL = re.compile(r"/:[^\W\d]\w*\?")


def componentName(*parts: str) -> str:
    """Make a valid name for a component of a document."""
    return _UNFIT.sub(lambda match: f"_{ord(match[0]):x}", ".".join(parts))


def reference(name: str) -> dict[str, Any]:
    """Return a reference to a schema component."""
    return {"$ref": PLACE + name}


def pathTemplates(pattern: str) -> list[str]:
    """
    Return the OpenAPI templates for a pattern: with and without its optional parameters.

    @param pattern: The path of a route, such as C{/users/:id?}.
    @return: The templates; empty for a wildcard, which OpenAPI cannot express.
    """
    if "*" in pattern:
        return []
    shapes = (pattern, _OPTIONAL.sub("", pattern) or "/")
    return list(dict.fromkeys(_PARAMETER.sub(r"{\1}", shape) for shape in shapes))


def describeParameter(name: str, place: str, schema: Any, required: bool) -> dict[str, Any]:
    """
    Describe a path or query parameter.

    @param place: C{path} or C{query}.
    @param schema: The schema of its value.
    """
    return {"name": name, "in": place, "required": required, "schema": schema}


class SchemaCollection:
    """
    The schemas of a document.

    @ivar schemas: The referenced schemas, by name.
    """

    def __init__(self, modern: bool) -> None:
        """
        @param modern: Whether to convert schemas to JSON Schema 2020-12 instead of draft 7.
        """
        self.schemas: dict[str, Any] = {}
        self._modern = modern

    def request(self, bound: MethodEntry) -> dict[str, Any]:
        """Return a reference to the schema of a method's request."""
        return self._ofMethod(bound, "request", bound.input)

    def response(self, bound: MethodEntry) -> dict[str, Any]:
        """Return a reference to the schema of a method's response."""
        return self._ofMethod(bound, "response", bound.output)

    def _ofMethod(self, bound: MethodEntry, kind: str, schema: Any) -> dict[str, Any]:
        if schema is None:
            return {}
        name = componentName(bound.service.name, bound.name, kind)
        if name not in self.schemas:
            self.schemas[name] = self._placed(schema.document, PLACE + name)
        return reference(name)

    def add(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """
        Add a schema, and return a reference to it; a different schema of the same name gets a
        number.

        @param name: The preferred name.
        @param document: The schema in plain JSON Schema.
        """
        name = wanted = componentName(name)
        number = 1
        while True:
            placed = self._placed(document, PLACE + name)
            if self.schemas.setdefault(name, placed) == placed:
                return reference(name)
            number += 1
            name = f"{wanted}_{number}"

    def resolved(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the target of a reference to a schema."""
        name = described.get("$ref", "").removeprefix(PLACE)
        found: Mapping[str, Any] = self.schemas.get(name, described)
        return found

    def _placed(self, part: Any, place: str) -> Any:
        if isinstance(part, list | tuple):
            return [self._placed(each, place) for each in part]
        if not isinstance(part, Mapping):
            return part
        placed = {key: self._placed(value, place) for key, value in part.items()}
        own = placed.get("$ref")
        if isinstance(own, str) and own.startswith("#"):
            placed["$ref"] = place + own[1:]
        if self._modern and isinstance(placed.get("items"), list):
            placed["prefixItems"] = placed.pop("items")
            if "additionalItems" in placed:
                placed["items"] = placed.pop("additionalItems")
        return placed
