"""
Python types as schemas.

A model is a dataclass, an attrs or msgspec class, a C{TypedDict} or a pydantic model. msgspec
converts and checks values; pydantic does so for its own models. A result is reduced to the
L{shape<storagegate.core.resultshapes>} of its type. Services whose schemas are mappings do not use
this module.
"""

import dataclasses
import re
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import attrs
import msgspec

from storagegate.core.errors import ServiceError
from storagegate.core.validationerrors import (
    MAX_MISTAKES,
    asValidationError,
    clauseOf,
    errorDetail,
    errorDetails,
)

if TYPE_CHECKING:
    from storagegate.core.mistakes import MistakeFinder
    from storagegate.core.modeldefaults import Completer

DEFINITIONS = "#/$defs/"
"""The place that the references of L{describeType} point to."""

_MOST_MISTAKES = 10_000
"""Mistakes that pydantic describes in 0.1 seconds: it does not describe only the first ones."""

_STREAMS = (AsyncIterable, AsyncIterator, AsyncGenerator)
_RESULT_STREAMS = (*_STREAMS, Iterable, Iterator, Generator)

_STEP = re.compile(r"[^.\[\]]+(?![^\[]*\])")


def isModel(found: Any) -> bool:
    """Return whether a type describes objects with named fields."""
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or attrs.has(found)
        or issubclass(found, msgspec.Struct)
        or typing.is_typeddict(found)
        or _isPydantic(found)
    )


def holdsModel(found: Any) -> bool:
    """Return whether a type is a model, or contains one in a list, a mapping, a union, ..."""
    origin = get_origin(found)
    isTuple = isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
    if isTuple or isModel(origin or found):
        return True
    return any(holdsModel(each) for each in get_args(found) if not isinstance(each, str))


def itemOfList(found: Any) -> Any:
    """Return the type of the items of C{list[Item]}, C{None} for another type."""
    return get_args(found)[0] if get_origin(found) is list and get_args(found) else None


def _isPydantic(found: Any) -> bool:
    """Return whether a type is a pydantic model, or contains one."""
    if isinstance(found, type) and hasattr(found, "model_json_schema"):
        return True
    return any(_isPydantic(each) for each in get_args(found) if not isinstance(each, str))


def isDescribed(model: Any) -> bool:
    """
    Return whether msgspec describes the parts of a type; pydantic's models and unions of structs
    without tags have only a schema.
    """
    return not _isPydantic(model) and not untaggedMembers(model)


def _pydanticAdapter(model: Any) -> Any:
    # Imported only with a pydantic model.
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def handlerTypes(handler: Callable[..., Any]) -> tuple[Any, Any]:
    """
    Return the types of a request and a response from a function's annotations.

    @param handler: The function; an annotation such as C{AsyncIterator[Item]} gives the type of the
        items.
    @return: The types; C{None} for a request that is not a model, or a response that contains none.
    @raise NameError: If an annotation uses an undefined name.
    """
    function = handler if hasattr(handler, "__annotations__") else type(handler).__call__
    names = list(getattr(function, "__annotations__", ()))
    if not names:
        return None, None
    code = getattr(function, "__code__", None)
    parameters = list(code.co_varnames[: code.co_argcount]) if code else names
    if parameters[:1] == ["self"]:
        del parameters[0]
    hints = typing.get_type_hints(function, include_extras=True)
    request = _itemOf(hints.get(parameters[0]) if parameters else None, _STREAMS)
    response = _itemOf(awaitedType(hints.get("return")), _RESULT_STREAMS)
    return (
        request if isModel(request) else None,
        response if holdsModel(response) else None,
    )


def awaitedType(found: Any) -> Any:
    """Return the type of the value of an awaitable, such as C{Deferred[Item]}."""
    origin = get_origin(found)
    if isinstance(origin, type) and issubclass(origin, Awaitable) and get_args(found):
        return get_args(found)[-1]
    return found


def _itemOf(found: Any, streams: tuple[Any, ...]) -> Any:
    return get_args(found)[0] if get_origin(found) in streams and get_args(found) else found


def documentOf(model: Any, isResult: bool = False) -> dict[str, Any]:
    """
    Return the JSON Schema of a model, with every reference replaced by its target.

    @param isResult: Whether the schema describes results, which have the shape of the model.
    @raise TypeError: If msgspec or pydantic has no schema for it.
    """
    document, definitions = describeType(model, isResult)
    found: dict[str, Any] = _whole(document, definitions, ())
    return found


def describeType(model: Any, isResult: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Return the JSON Schema of a type, and the schemas of the models that it refers to.

    @param isResult: Whether the schema describes results, which have the shape of the model.
    @return: The schema, whose references are L{DEFINITIONS} and a name; the schemas by name.
    @raise TypeError: If msgspec or pydantic has no schema for it.
    """
    if _isPydantic(model):
        mode = "serialization" if isResult else "validation"
        document = _pydanticAdapter(model).json_schema(mode=mode)
        definitions = document.pop("$defs", {})
        if isModel(model) and "$ref" not in document:
            definitions[model.__name__] = document
            document = {"$ref": DEFINITIONS + model.__name__}
        return document, definitions
    members = untaggedMembers(model) or (model,)
    if isResult:
        # With the first model: the daemon's own services have none.
        from storagegate.core.resultshapes import describedShape

        members = tuple(describedShape(each) for each in members)
    documents, definitions = msgspec.json.schema_components(
        members, ref_template=DEFINITIONS + "{name}"
    )
    return documents[0] if len(documents) == 1 else {"anyOf": [*documents]}, definitions


def untaggedMembers(found: Any) -> tuple[Any, ...]:
    """
    Return the members of a union of several msgspec structs without tags, which msgspec itself does
    not support; empty for any other type.
    """
    members = get_args(found) if get_origin(found) in (Union, UnionType) else ()
    untagged = [
        each
        for each in members
        if isinstance(each, type)
        and issubclass(each, msgspec.Struct)
        and each.__struct_config__.tag is None
    ]
    return members if len(untagged) > 1 else ()


def _whole(part: Any, definitions: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    """
    Replace the references of a part of a schema.

    @param above: The enclosing names; a reference to one of these becomes any value, which ends the
        recursion.
    """
    if isinstance(part, list):
        return [_whole(each, definitions, above) for each in part]
    if not isinstance(part, Mapping):
        return part
    name = part.get("$ref")
    if isinstance(name, str):
        name = name.removeprefix(DEFINITIONS)
        if name in above:
            return {}
        return _whole(definitions[name], definitions, (*above, name))
    return {key: _whole(value, definitions, above) for key, value in part.items()}


class TypeSchema:
    """
    A schema made from a type instead of a mapping.

    @ivar model: The type: a model, or for results a type that contains a model.
    @ivar document: The schema in plain JSON Schema.
    """

    def __init__(self, model: Any, document: Mapping[str, Any]) -> None:
        """
        @param document: The result of L{documentOf}.
        """
        self.document = document
        self.model = model
        self._adapter = _pydanticAdapter(model) if _isPydantic(model) else None
        self._complete: Completer | None = None
        if self._adapter is None:
            from storagegate.core.modeldefaults import completerOf

            self._complete = completerOf(model)

    @property
    def isForeign(self) -> bool:
        """Return whether pydantic converts its values, not msgspec."""
        return self._adapter is not None

    @cached_property
    def _results(self) -> tuple[Callable[[Any, Any], Any], Any]:
        """The function that shapes results, and their shape; schemas of requests need neither."""
        from storagegate.core.resultshapes import fitted, makeShape

        return fitted, makeShape(self.model)

    def read(self, value: Any) -> Any:
        """
        Convert a request to the model.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        if self._adapter is not None:
            return self._validated(value)
        try:
            # The keys of JSON are text, also where the type has integers.
            found = msgspec.convert(value, self.model, str_keys=True)
            if self._complete is not None:
                self._complete(found)
            return found
        except msgspec.ValidationError as error:
            raise self._mistakes.errorOf(value, error) from None
        except RecursionError:
            raise errorDetail("", "is nested too deeply") from None

    @cached_property
    def _mistakes(self) -> "MistakeFinder":
        """Finds the other mistakes of an invalid request."""
        from storagegate.core.mistakes import MistakeFinder

        return MistakeFinder(self.model)

    def check(self, value: Any) -> Any:
        """
        Convert a response to mappings, lists and plain values, with bytes unchanged. The result has
        only the fields of the type.

        @param value: An instance of the model or of a subclass, an object with its attributes, or a
            mapping of its fields.
        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid. Its details contain no part of
            the value.
        """
        if self._adapter is not None:
            return self._dumped(value)
        return msgspec.to_builtins(self.shaped(value), builtin_types=(bytes,), str_keys=True)

    def shaped(self, value: Any) -> Any:
        """
        Convert a response as L{check}, to a value that msgspec encodes as the result of L{check}.
        """
        if self._adapter is not None:
            return self._dumped(value)
        try:
            fitted, shape = self._results
            return fitted(value, shape)
        except msgspec.ValidationError as error:
            problem = asValidationError(str(error), isResult=True)
        except RecursionError:
            problem = errorDetail("", "is nested too deeply")
        # Raised outside the except block: the error's context would hold the value.
        raise problem

    def _dumped(self, value: Any) -> Any:
        assert self._adapter is not None
        from pydantic_core import PydanticSerializationError

        try:
            found = self._adapter.validate_python(value)
            # Values assigned to an instance are not validated: as a warning, they would be written
            # unchanged.
            return self._adapter.dump_python(found, mode="json", by_alias=True, warnings="error")
        except PydanticSerializationError:
            problem = errorDetail("", "has a field of another type")
        except ValueError as error:
            details: Any = getattr(error, "errors", list)()
            first = details[0] if details else {"loc": (), "type": "value_error"}
            path = declaredPath(_pathOf(first["loc"]), self.document)
            problem = errorDetail(path, f"is invalid: {first['type']}")
        raise problem

    def _validated(self, value: Any) -> Any:
        assert self._adapter is not None
        try:
            return self._adapter.validate_python(value)
        except ValueError as error:
            count: int = getattr(error, "error_count", int)()
            if count > _MOST_MISTAKES:
                raise errorDetail("", f"has {count} mistakes") from None
            details: Any = getattr(error, "errors", list)()
            if not details:
                raise
            found = [
                (_pathOf(each["loc"]), clauseOf(each["msg"])) for each in details[:MAX_MISTAKES]
            ]
            raise errorDetails(found) from None


class UnionSchema(TypeSchema):
    """The schema of results of several msgspec structs without tags."""

    def __init__(self, model: Any, document: Mapping[str, Any], members: Iterable[Any]) -> None:
        """
        @param members: The result of L{untaggedMembers}.
        """
        self.document = document
        self.model = model
        self._members = {
            each: TypeSchema(each, documentOf(each, isResult=True)) for each in members
        }

    def read(self, value: Any) -> Any:
        """
        Requests have no such type.

        @raise TypeError: Always.
        """
        raise TypeError(f"{self.model!r} is a type of results")

    def check(self, value: Any) -> Any:
        """
        Convert a response: an instance by the member of its class, any other value by the first
        member that it fits.

        @raise ServiceError: C{VALIDATION_ERROR} if it fits no member.
        """
        for kind in type(value).__mro__:
            if kind in self._members:
                return self._members[kind].check(value)
        for member in self._members.values():
            try:
                return member.check(value)
            except ServiceError:
                continue
        # Outside the except block: the error's context would hold the value.
        raise errorDetail("", "is none of the declared values")

    def shaped(self, value: Any) -> Any:
        """See L{TypeSchema.shaped}."""
        return self.check(value)


def _pathOf(steps: Iterable[Any]) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps
    ).removeprefix(".")


def declaredPath(path: str, document: Any) -> str:
    """
    Return a path with C{*} for each step that the schema does not name.

    @param path: Names and indices, such as C{lines[0].count}.
    @param document: The schema.
    """
    names = frozenset(_propertyNames(document))
    return _STEP.sub(lambda step: step[0] if step[0] in names else "*", path)


def _propertyNames(document: Any) -> Iterator[str]:
    if isinstance(document, Mapping):
        properties = document.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        for each in document.values():
            yield from _propertyNames(each)
    elif isinstance(document, list | tuple):
        for each in document:
            yield from _propertyNames(each)
