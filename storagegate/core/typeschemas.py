"""
Types of Python as schemas.

A model is a dataclass, a class of attrs or msgspec, a C{TypedDict} or a model of pydantic. Values
are converted and checked by msgspec, models of pydantic by themselves. Services whose schemas are
mappings do not come here.
"""

import dataclasses
import re
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, get_args, get_origin

import attrs
import msgspec

from storagegate.core.errors import ServiceError, codedError

_STREAMS = (AsyncIterable, AsyncIterator, AsyncGenerator)

# "Expected `int`, got `str` - at `$.lines[0].count`"
_AT = re.compile(r"(?s)(.*) - at `\$\.?(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def errorDetail(path: str, message: str) -> ServiceError:
    """Make the error of an invalid value, with its path."""
    reason = f"{path} {message}" if path else f"the request {message}"
    return codedError("VALIDATION_ERROR", reason, [{"path": path, "message": message}])


def isModel(found: Any) -> bool:
    """Return whether a type describes objects with named fields."""
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or attrs.has(found)
        or issubclass(found, msgspec.Struct)
        or typing.is_typeddict(found)
        or _isPydantic(found)
    )


def itemOfList(found: Any) -> Any:
    """Return the type of the items of C{list[Item]}, C{None} if it is no such type."""
    return get_args(found)[0] if get_origin(found) is list and get_args(found) else None


def _isPydantic(found: Any) -> bool:
    found = itemOfList(found) or found
    return isinstance(found, type) and hasattr(found, "model_json_schema")


def _pydanticAdapter(model: Any) -> Any:
    # Imported where a model of it is.
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def handlerTypes(handler: Callable[..., Any]) -> tuple[Any, Any]:
    """
    Return the types of a request and of a response, where a function's annotations are models.

    @param handler: Of the items, where it is annotated with C{AsyncIterator[Item]}.
    @return: C{None} for each that is no model.
    @raise NameError: If an annotation names what does not exist.
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
    found = (hints.get(parameters[0]) if parameters else None, hints.get("return"))
    request, response = (_itemOf(each) for each in found)
    return (
        request if isModel(request) else None,
        response if isModel(response) else None,
    )


def _itemOf(found: Any) -> Any:
    return get_args(found)[0] if get_origin(found) in _STREAMS and get_args(found) else found


def documentOf(model: Any) -> dict[str, Any]:
    """
    Return the JSON Schema of a model, whole: a reference is replaced by what it refers to.

    @raise TypeError: If msgspec or pydantic has no schema of it.
    """
    if _isPydantic(model):
        document = _pydanticAdapter(model).json_schema()
        definitions = document.pop("$defs", {})
        prefix = "#/$defs/"
    else:
        (document,), definitions = msgspec.json.schema_components([model], ref_template="{name}")
        prefix = ""
    found: dict[str, Any] = _whole(document, definitions, prefix, ())
    return found


def _whole(part: Any, definitions: Mapping[str, Any], prefix: str, above: tuple[str, ...]) -> Any:
    """
    Replace the references of a part of a schema.

    @param above: The names that it stands within: one of these is any value, or there were no end.
    """
    if isinstance(part, list):
        return [_whole(each, definitions, prefix, above) for each in part]
    if not isinstance(part, Mapping):
        return part
    name = part.get("$ref")
    if isinstance(name, str):
        name = name.removeprefix(prefix)
        if name in above:
            return {}
        return _whole(definitions[name], definitions, prefix, (*above, name))
    return {key: _whole(value, definitions, prefix, above) for key, value in part.items()}


class TypeSchema:
    """
    The schema of a model, in place of one that is a mapping.

    @ivar model: The model, or C{list[Model]}.
    @ivar document: The same in plain JSON Schema.
    """

    def __init__(self, model: Any, document: Mapping[str, Any]) -> None:
        """
        @param document: What L{documentOf} returned.
        """
        self.document = document
        self.model = model
        self._adapter = _pydanticAdapter(model) if _isPydantic(model) else None

    def read(self, value: Any) -> Any:
        """
        Convert a request to the model.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        if self._adapter is not None:
            return self._validated(value)
        try:
            return msgspec.convert(value, self.model)
        except msgspec.ValidationError as error:
            raise _asServiceError(str(error)) from None
        except RecursionError:
            raise errorDetail("", "is nested too deeply") from None

    def check(self, value: Any) -> Any:
        """
        Convert a response to mappings, lists and plain values, with bytes as they are.

        @param value: An instance of the model, or a mapping of its fields.
        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        if self._adapter is not None:
            found = self._validated(value)
            return self._adapter.dump_python(found, mode="json", by_alias=True)
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        self.read(plain)
        return plain

    def _validated(self, value: Any) -> Any:
        assert self._adapter is not None
        try:
            return self._adapter.validate_python(value)
        except ValueError as error:
            details: Any = getattr(error, "errors", list)()
            if not details:
                raise
            first = details[0]
            path = "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]
            ).removeprefix(".")
            raise errorDetail(path, _started(first["msg"])) from None


def _asServiceError(message: str) -> ServiceError:
    found = _AT.fullmatch(message)
    reason, path = (found[1], found[2]) if found else (message, "")
    missing = _MISSING.fullmatch(reason)
    if missing:
        return errorDetail(f"{path}.{missing[1]}" if path else missing[1], "is required")
    return errorDetail(path, _started(reason.replace("`", "")))


def _started(sentence: str) -> str:
    """Begin a sentence in the middle of another one."""
    return sentence[:1].lower() + sentence[1:]
