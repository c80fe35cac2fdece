"""
The schemas of descriptions of services and routes.

Schemas are stored in C{components/schemas} of a document, and each C{$ref} in them is rewritten to
point there.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from storagegate.core.invoker import MethodEntry
from storagegate.core.schemas import AnySchema
from storagegate.core.typeschemas import DEFINITIONS

PLACE = "#/components/schemas/"

_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def componentName(*parts: str) -> str:
    """Make a valid name for a component of a document."""
    return _UNFIT.sub(lambda match: f"_{ord(match[0]):x}", ".".join(parts))


def reference(name: str) -> dict[str, Any]:
    """Return a reference to a schema component."""
    return {"$ref": PLACE + name}


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
        return self._ofMethod(bound, "request", bound.method.shownInput, bound.input)

    def response(self, bound: MethodEntry) -> dict[str, Any]:
        """Return a reference to the schema of a method's response."""
        return self._ofMethod(bound, "response", bound.method.shownOutput, bound.output)

    def _ofMethod(
        self,
        bound: MethodEntry,
        kind: str,
        shown: Mapping[str, Any] | None,
        schema: AnySchema | None,
    ) -> dict[str, Any]:
        if shown is None:
            if schema is None:
                return {}
            shown = schema.document
        name = componentName(bound.service.name, bound.name, kind)
        if name not in self.schemas:
            self.schemas[name] = self._placed(shown, PLACE + name)
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

    def addType(
        self, document: Mapping[str, Any], definitions: Mapping[str, Any]
    ) -> dict[str, Any]:
        """
        Add the types that a schema refers to; a different type of the same name gets a number.

        @param document: The schema of a type, see
            L{describeType<storagegate.core.typeschemas.describeType>}.
        @param definitions: The schemas that it refers to, by name.
        @return: The schema, with references to the components.
        """
        names: dict[str, str] = {}
        for name in definitions:
            _rename(names, name, names.values())
        while True:
            placed = {names[name]: _linked(each, names) for name, each in definitions.items()}
            taken = [
                name
                for name in definitions
                if self.schemas.get(names[name], placed[names[name]]) != placed[names[name]]
            ]
            if not taken:
                break
            for name in taken:
                _rename(names, name, names.values())
        self.schemas.update(placed)
        linked: dict[str, Any] = _linked(document, names)
        return linked

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


def _rename(names: dict[str, str], name: str, taken: Collection[str]) -> None:
    """Give a definition the next name that is not taken: C{Order}, C{Order_2}, C{Order_3}."""
    wanted = found = componentName(name)
    number = 1
    if name in names:
        number = int(names[name].removeprefix(wanted).removeprefix("_") or 1) + 1
        found = f"{wanted}_{number}"
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    names[name] = found


def _linked(part: Any, names: Mapping[str, str]) -> Any:
    """Replace references to definitions, also in the mapping of a discriminator."""
    if isinstance(part, str) and part.startswith(DEFINITIONS):
        name = names.get(part.removeprefix(DEFINITIONS))
        return part if name is None else PLACE + name
    if isinstance(part, list | tuple):
        return [_linked(each, names) for each in part]
    if isinstance(part, Mapping):
        return {key: _linked(value, names) for key, value in part.items()}
    return part
