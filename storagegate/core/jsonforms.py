"""
The JSON form of values that a schema declares, as proto3's JSON mapping writes them.

JSON has no NaN and no infinities. Where a schema declares a number, they are the texts C{"NaN"},
C{"Infinity"} and C{"-Infinity"}; handlers see floats, as over gRPC.
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import Any

from storagegate.core.errors import ServiceError
from storagegate.core.schemas import AnySchema, Fits, kindsOf

_NUMBERS: Mapping[str, float] = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}

_Change = Callable[[Any], Any]
"""Returns a value, changed or the same object."""


class JSONForm:
    """
    A schema for transports with JSON messages.

    @ivar document: The schema in plain JSON Schema.
    @ivar fits: See L{Schema<storagegate.core.schemas.Schema>}.
    @ivar resultFits: The same for responses, which also need finite numbers.
    """

    def __init__(self, schema: AnySchema, parts: "_Parts") -> None:
        """
        @param schema: The schema of the handler's values.
        @param parts: The places of its numbers.
        """
        self._schema = schema
        self.document = schema.document
        self._fromText, self._toText = parts.changing(_readNumber), parts.changing(_writeNumber)
        self.fits: Fits | None = getattr(schema, "fits", None)
        self.resultFits: Fits | None = None
        resultFits = getattr(schema, "resultFits", None)
        if resultFits is not None:
            toText = self._toText
            self.resultFits = lambda value: resultFits(value) and toText(value) is value

    def read(self, value: Any) -> Any:
        """
        Validate a request, and return it with its numbers as floats.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        try:
            return self._schema.read(value)
        except ServiceError:
            # Few requests have such a text, so only a request that does not fit is searched.
            changed = self._fromText(value)
            if changed is value:
                raise
        return self._schema.read(changed)

    def check(self, value: Any) -> Any:
        """
        Validate a response, and return it in JSON's form.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        return self._toText(self._schema.check(value))


def jsonForm(schema: AnySchema | None) -> AnySchema | None:
    """
    Return the form of a schema for transports with JSON messages.

    @return: The schema itself if it declares no numbers.
    """
    parts = None if schema is None else _partsOf(schema.document)
    return schema if schema is None or parts is None else JSONForm(schema, parts)


def _readNumber(value: Any) -> Any:
    return _NUMBERS.get(value, value) if type(value) is str else value


def _writeNumber(value: Any) -> Any:
    if type(value) is not float or isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


class _Parts:
    """
    The places of numbers in the values of a schema.

    @ivar isNumber: Whether the value itself is a number.
    """

    def __init__(
        self,
        isNumber: bool,
        members: Mapping[str, "_Parts"],
        further: "_Parts | None" = None,
        items: "_Parts | None" = None,
    ) -> None:
        """
        @param members: The parts of named members.
        @param further: The parts of the other members.
        @param items: The parts of the items of a list.
        """
        self.isNumber = isNumber
        self._members = members
        self._further = further
        self._items = items

    def changing(self, leaf: _Change) -> _Change:
        """Return the function that changes the numbers of a value."""
        if self.isNumber:
            return leaf
        members = {name: part.changing(leaf) for name, part in self._members.items()}
        further = None if self._further is None else self._further.changing(leaf)
        items = None if self._items is None else self._items.changing(leaf)

        def change(value: Any) -> Any:
            if isinstance(value, dict):
                found = {}
                for name, part in value.items() if further else members.items():
                    changed = members.get(name, further) if further else part
                    before = value.get(name)
                    if changed is not None and (after := changed(before)) is not before:
                        found[name] = after
                return {**value, **found} if found else value
            if items is not None and isinstance(value, list | tuple):
                changedItems = [items(each) for each in value]
                isSame = all(a is b for a, b in zip(changedItems, value, strict=True))
                return value if isSame else changedItems
            return value

        return change


def _partsOf(schema: Any) -> _Parts | None:
    """Return the places of numbers in a schema; C{None} if it has none."""
    if not isinstance(schema, Mapping):
        return None
    kinds = kindsOf(schema)
    if "number" in kinds and "string" not in kinds:
        return _Parts(True, {})
    chosen = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    if len(chosen) == 1:
        return _partsOf(chosen[0])
    members = {
        name: part
        for name, each in (schema.get("properties") or {}).items()
        if (part := _partsOf(each)) is not None
    }
    further, items = _partsOf(schema.get("additionalProperties")), _partsOf(schema.get("items"))
    return _Parts(False, members, further, items) if members or further or items else None
