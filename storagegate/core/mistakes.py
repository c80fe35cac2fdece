"""
All mistakes of an invalid request.

C{msgspec.convert} stops at the first one. A L{MistakeFinder} converts the parts of a refused value
one by one; a valid request never needs it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from storagegate.core.errors import ServiceError
from storagegate.core.resultshapes import shapeOfPart
from storagegate.core.validationerrors import MAX_MISTAKES, asValidationError, errorDetails

_Check = Callable[[Any, str, list[dict[str, str]]], None]
"""Appends the mistakes of a value at a path."""

MAX_PARTS = 10_000
"""Maximum number of parts that are examined, one by one, in 20 ms; a large value has millions."""

_OBJECTS = (inspect.DataclassType, inspect.StructType, inspect.TypedDictType)
_LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)


class _TooManyParts(Exception):
    """Further parts are not examined."""


class MistakeFinder:
    """Finds the mistakes of values of one type."""

    def __init__(self, model: Any) -> None:
        """
        @raise TypeError: If msgspec cannot describe the type.
        """
        self._known: dict[int, _Check] = {}
        # Kept, because the identities of its parts are the keys.
        self._info = inspect.type_info(model)
        # How many more parts are examined.
        self._left = 0

    def errorOf(self, value: Any, error: msgspec.ValidationError) -> ServiceError:
        """
        Return the error of a refused value, with up to L{MAX_MISTAKES} mistakes: the first one, and
        others among L{MAX_PARTS} parts.

        @param error: The first mistake, as C{msgspec.convert} found it.
        """
        first = asValidationError(str(error))
        found: list[dict[str, str]] = []
        self._left = MAX_PARTS
        try:
            self._of(self._info)(value, "", found)
        except _TooManyParts:
            pass
        except RecursionError:
            return first
        [known] = first.details
        if all(each["path"] != known["path"] for each in found):
            # A rule of a whole model, such as one of its __post_init__.
            found.insert(0, known)
        if len(found) < 2:
            return first
        return errorDetails((each["path"], each["message"]) for each in found[:MAX_MISTAKES])

    def _countPart(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooManyParts

    def _of(self, info: Any) -> _Check:
        known = self._known.get(id(info))
        if known is not None:
            return known
        made: list[_Check] = []
        # Stored before its parts are made: a part may be the type itself.
        self._known[id(info)] = lambda value, path, found: made[0](value, path, found)
        made.append(self._make(info))
        self._known[id(info)] = made[0]
        return made[0]

    def _make(self, info: Any) -> _Check:
        if isinstance(info, inspect.Metadata):
            return self._of(info.type)
        if isinstance(info, inspect.UnionType):
            members = [each for each in info.types if not isinstance(each, inspect.NoneType)]
            # A plain value has one mistake, which then names null, too.
            if len(members) == 1 and isinstance(members[0], (*_OBJECTS, *_LISTS)):
                inner = self._of(members[0])

                def checkPresent(value: Any, path: str, found: list[dict[str, str]]) -> None:
                    if value is not None:
                        inner(value, path, found)

                return checkPresent
        whole = self._whole(info)
        if isinstance(info, _OBJECTS) and not getattr(info, "array_like", False):
            return self._object(info, whole)
        if isinstance(info, _LISTS):
            return self._list(info, whole)
        return whole

    def _whole(self, info: Any) -> _Check:
        """Check a value that has no parts, or is no collection of them."""
        shape: list[Any] = []

        def check(value: Any, path: str, found: list[dict[str, str]]) -> None:
            self._countPart()
            if not shape:
                shape.append(shapeOfPart(info))
            try:
                msgspec.convert(value, shape[0])
            except msgspec.ValidationError as error:
                found.extend(asValidationError(str(error), path).details)

        return check

    def _object(self, info: Any, whole: _Check) -> _Check:
        fields = [(each.encode_name, self._of(each.type), each.required) for each in info.fields]

        def check(value: Any, path: str, found: list[dict[str, str]]) -> None:
            if not isinstance(value, Mapping):
                whole(value, path, found)
                return
            self._countPart()
            for name, inner, isRequired in fields:
                inPath = f"{path}.{name}" if path else name
                if name in value:
                    inner(value[name], inPath, found)
                elif isRequired:
                    found.append({"path": inPath, "message": "is required"})

        return check

    def _list(self, info: Any, whole: _Check) -> _Check:
        inner = self._of(info.item_type)

        def check(value: Any, path: str, found: list[dict[str, str]]) -> None:
            before = len(found)
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if len(found) >= MAX_MISTAKES:
                        return
                    inner(item, f"{path}[{index}]", found)
            if len(found) == before:
                whole(value, path, found)

        return check
