"""
Schemas of services as parts of a larger document.

They stand in C{components/schemas} of it, which is where C{$ref} of their own are led to.
"""

import re
from collections.abc import Mapping
from typing import Any

from storagegate.core.boundmethods import BoundMethod

PLACE = "#/components/schemas/"

_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def componentName(*parts: str) -> str:
    """Make a name that components of a document may have."""
    return _UNFIT.sub(lambda match: f"_{ord(match[0]):x}", ".".join(parts))


def reference(name: str) -> dict[str, Any]:
    """Refer to a schema."""
    return {"$ref": PLACE + name}


class SchemaCollection:
    """
    The schemas of a document.

    @ivar schemas: Those that were asked for, by name.
    """

    def __init__(self, modern: bool) -> None:
        """
        @param modern: Whether they are to be in the words of JSON Schema 2020-12, not of draft 7.
        """
        self.schemas: dict[str, Any] = {}
        self._modern = modern

    def request(self, bound: BoundMethod) -> dict[str, Any]:
        """Refer to the schema of a method's request."""
        return self._add(bound, "request", bound.input)

    def response(self, bound: BoundMethod) -> dict[str, Any]:
        """Refer to the schema of a method's response."""
        return self._add(bound, "response", bound.output)

    def resolved(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give what L{request} or L{response} refers to."""
        name = described.get("$ref", "").removeprefix(PLACE)
        found: Mapping[str, Any] = self.schemas.get(name, described)
        return found

    def _add(self, bound: BoundMethod, kind: str, schema: Any) -> dict[str, Any]:
        if schema is None:
            return {}
        name = componentName(bound.service.name, bound.name, kind)
        if name not in self.schemas:
            self.schemas[name] = self._placed(schema.document, PLACE + name)
        return reference(name)

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
