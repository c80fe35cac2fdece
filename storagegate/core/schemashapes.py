"""
Shapes of results whose schema is a mapping: a response has the members that C{properties} names, at
every depth.

  - A schema with C{properties} or C{patternProperties} is closed: other members are removed unless
    C{additionalProperties} allows them. JSON Schema allows them by default; here, a result with
    listed members has only these. C{additionalProperties: false} also removes them.
  - A schema that names no members, such as C{{"type": "object"}}, keeps all members.
  - C{allOf}, C{$ref} and C{dependencies} add the members that they name.
  - For C{anyOf} and C{oneOf}, the alternative applies that the value fits once it has its shape. If
    several fit, the one that keeps the most members applies, and the first among equals. C{then} or
    C{else} applies likewise.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import Any

from storagegate.core.errors import ServiceError

Project = Callable[[Any], Any]
"""Returns a value without the members that its schema does not name."""

Compile = Callable[[Mapping[str, Any]], Callable[[Any], None]]
"""Makes the validator of a schema, which raises L{ServiceError}."""

_UNFIT = object()

_CHOICES = ("anyOf", "oneOf", "if", "dependencies")
_CONDITIONAL = frozenset({*_CHOICES, "then", "else", "allOf"})
_OF_MEMBERS = frozenset({"properties", "patternProperties", "additionalProperties"})

_UNNAMED = frozenset({*_CONDITIONAL, "additionalProperties", "patternProperties"})
"""The keywords that add members besides C{properties}."""

_CLOSED: Mapping[str, Any] = {
    "additionalProperties": False,
    "items": {"additionalProperties": False},
}
"""The alternative for a value that fits none; the validator rejects the value."""

_PLACE = "whole"
"""The key under which a part of a schema holds the whole schema, for its references."""


def projectionOf(document: Mapping[str, Any], compile: Compile) -> Project | None:
    """
    Compile the projection of a schema.

    @param document: The schema in plain JSON Schema.
    @param compile: Makes the validators of alternatives.
    @return: C{None} if it changes no value.
    """
    return _Projections(document, compile).of((document,))


def namedOnly(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return a schema without the members that C{properties} does not name, for objects that become
    gRPC messages: a message has no field for them. The schema itself is returned if it allows none.
    """
    found = _namedOnly(document)
    return document if found == document else found


def _namedOnly(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    changed = dict(part)
    if isinstance(part.get("properties"), Mapping) and part["properties"]:
        changed = {key: each for key, each in part.items() if key not in _UNNAMED}
        changed["properties"] = {
            name: _namedOnly(each) for name, each in part["properties"].items()
        }
    if "items" in part:
        changed["items"] = _namedOnly(part["items"])
    return changed


class _Projections:
    """The projections of the parts of one schema, each compiled once."""

    def __init__(self, document: Mapping[str, Any], compile: Compile) -> None:
        self._document = document
        self._compile = compile
        self._known: dict[tuple[int, ...], Project | None] = {}
        self._validators: dict[int, Callable[[Any], None]] = {}

    def of(self, schemas: tuple[Any, ...]) -> Project | None:
        """Return the projection of values that several schemas describe."""
        views = tuple(view for each in schemas for view in self._views(each, ()))
        key = tuple(id(each) for each in views)
        if key in self._known:
            return self._known[key]
        made: list[Project | None] = []

        def later(value: Any) -> Any:
            found = made[0]
            return value if found is None else found(value)

        # Set before its parts are made: a schema may reference itself.
        self._known[key] = later
        made.append(self._make(views))
        self._known[key] = made[0]
        return made[0]

    def _views(self, schema: Any, above: tuple[int, ...]) -> Iterator[Mapping[str, Any]]:
        """Yield a schema, and the schemas that apply with it."""
        if not isinstance(schema, Mapping) or id(schema) in above:
            return
        above = (*above, id(schema))
        if "$ref" in schema:
            # Draft 7 ignores the siblings of a reference.
            yield from self._views(self._resolved(schema["$ref"]), above)
            return
        yield schema
        for each in schema.get("allOf", ()):
            yield from self._views(each, above)

    def _resolved(self, reference: Any) -> Any:
        found: Any = self._document
        if not isinstance(reference, str) or not reference.startswith("#"):
            return {}
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal():
                found = found[int(step)] if int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def _make(self, views: tuple[Mapping[str, Any], ...]) -> Project | None:
        if any(_isConditional(view) for view in views):
            return self._conditional(views)
        members, items = self._members(views), self._items(views)
        if members is None and items is None:
            return None

        def project(value: Any) -> Any:
            if isinstance(value, dict):
                return value if members is None else members(value)
            if isinstance(value, list | tuple):
                return value if items is None else items(value)
            return value

        return project

    def _members(self, views: tuple[Mapping[str, Any], ...]) -> Project | None:
        """Return the projection of the members of a mapping."""
        views = tuple(view for view in views if view.keys() & _OF_MEMBERS)
        isOpen = all(
            "properties" not in view
            and "patternProperties" not in view
            and view.get("additionalProperties") is not False
            for view in views
        ) or any(view.get("additionalProperties", False) is not False for view in views)
        patterns = [
            (re.compile(pattern), part)
            for view in views
            for pattern, part in view.get("patternProperties", {}).items()
        ]
        names = {name for view in views for name in view.get("properties", ())}
        further = tuple(view["additionalProperties"] for view in views if _hasFurther(view))
        parts: dict[str, Project | None] = {}
        for name in names:
            found = [
                view["properties"][name] for view in views if name in view.get("properties", ())
            ]
            found += [part for pattern, part in patterns if pattern.search(name)]
            parts[name] = self.of(tuple(found))
        ofFurther = self.of(further) if further else None
        if isOpen and ofFurther is None and not patterns and not any(parts.values()):
            return None
        ofPatterns = [(pattern, self.of((part,))) for pattern, part in patterns]

        def unnamed(name: Any, value: Any) -> tuple[bool, Any]:
            """Return whether a member that C{properties} does not name is kept, and its value."""
            isMatched = False
            if isinstance(name, str):
                for pattern, part in ofPatterns:
                    if pattern.search(name):
                        isMatched = True
                        value = value if part is None else part(value)
            if isMatched or not isOpen:
                return isMatched, value
            return True, value if ofFurther is None else ofFurther(value)

        keys = parts.keys()
        changing = [(name, part) for name, part in parts.items() if part is not None]

        def project(value: dict[Any, Any]) -> dict[Any, Any]:
            if value.keys() <= keys:
                # Most results have no further members: copying each would take twice as long.
                result = value
                for name, change in changing:
                    if name in value:
                        found = change(value[name])
                        if found is not value[name]:
                            result = dict(value) if result is value else result
                            result[name] = found
                return result
            result = {}
            for name, item in value.items():
                if name in parts:
                    part = parts[name]
                    result[name] = item if part is None else part(item)
                elif isOpen or ofPatterns:
                    stays, item = unnamed(name, item)
                    if stays:
                        result[name] = item
            return result

        return project

    def _items(self, views: tuple[Mapping[str, Any], ...]) -> Project | None:
        """Return the projection of the items of a list."""
        ofAll = tuple(view["items"] for view in views if isinstance(view.get("items"), Mapping))
        ofEach = self.of(ofAll) if ofAll else None
        tuples = [
            (
                [self.of((part,)) for part in view["items"]],
                self.of((view.get("additionalItems"),)),
            )
            for view in views
            if isinstance(view.get("items"), list)
        ]
        if ofEach is None and not any(rest or any(first) for first, rest in tuples):
            return None

        def project(value: Any) -> Any:
            result = list(value) if ofEach is None else [ofEach(item) for item in value]
            if not tuples:
                return value if all(map(is_, result, value)) else result
            for first, rest in tuples:
                for index, item in enumerate(result):
                    part = first[index] if index < len(first) else rest
                    if part is not None:
                        result[index] = part(item)
            return result

        return project

    def _conditional(self, views: tuple[Mapping[str, Any], ...]) -> Project:
        """Return the projection of schemas with alternatives, which depends on the value."""
        # Kept here because projections are cached by the identity of their schemas.
        plain = tuple(
            {key: part for key, part in view.items() if key not in _CONDITIONAL} for view in views
        )

        def project(value: Any) -> Any:
            if not isinstance(value, dict | list | tuple):
                return value
            chosen = [each for view in views for each in self._chosen(view, plain, value)]
            found = self.of((*plain, *chosen))
            return value if found is None else found(value)

        return project

    def _chosen(self, view: Mapping[str, Any], plain: tuple[Any, ...], value: Any) -> Iterator[Any]:
        """Yield the alternatives of a schema that apply to a value."""
        for key in ("anyOf", "oneOf"):
            if key in view:
                sizes = [
                    (_size(found), -index, each)
                    for index, each in enumerate(view[key])
                    if (found := self._fitted(each, plain, value)) is not _UNFIT
                ]
                yield max(sizes, key=lambda each: each[:2])[2] if sizes else _CLOSED
        if "if" in view:
            isMet = self._fitted(view["if"], plain, value) is not _UNFIT
            yield from (view["if"], view.get("then")) if isMet else (view.get("else"),)
        for name, part in view.get("dependencies", {}).items():
            if isinstance(value, dict) and name in value and isinstance(part, Mapping):
                yield part

    def _fitted(self, schema: Any, plain: tuple[Any, ...], value: Any) -> Any:
        """Return a value in the shape of an alternative, or L{_UNFIT}."""
        if isinstance(schema, bool):
            return value if schema else _UNFIT
        project = self.of((*plain, schema))
        found = value if project is None else project(value)
        validate = self._validators.get(id(schema))
        if validate is None:
            validate = self._compile(self._standing(schema))
            self._validators[id(schema)] = validate
        try:
            validate(found)
        except ServiceError:
            return _UNFIT
        return found

    def _standing(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        Return a part of the schema as a standalone schema, with the targets of its references.
        """
        return {**_moved(schema), "definitions": {_PLACE: _moved(self._document)}}


def _moved(part: Any) -> Any:
    """Return a part of a schema whose references point to the whole schema in C{definitions}."""
    if isinstance(part, list | tuple):
        return [_moved(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    moved = {key: _moved(value) for key, value in part.items() if key not in ("$id", "$schema")}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/definitions/{_PLACE}{reference[1:]}"
    return moved


def _size(value: Any) -> int:
    """Return the number of members in a value, at every depth."""
    if isinstance(value, dict):
        return len(value) + sum(_size(each) for each in value.values())
    return sum(_size(each) for each in value) if isinstance(value, list | tuple) else 0


def _isConditional(view: Mapping[str, Any]) -> bool:
    return any(key in view for key in _CHOICES)


def _hasFurther(view: Mapping[str, Any]) -> bool:
    return isinstance(view.get("additionalProperties"), Mapping)
