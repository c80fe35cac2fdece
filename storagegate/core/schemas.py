"""
Schemas of requests and responses: JSON Schema, with two additions.

A property itself may have C{"required": True}, in addition to JSON Schema's list::

    {"type": "object", "properties": {"id": {"type": "string", "required": True}}}

Text with C{"contentEncoding": "base64"} is bytes in handlers: text is decoded here, and bytes from
a binary transport are kept.

A response is reduced to the L{shape<storagegate.core.schemashapes>} of its schema.

Most schemas state only the types of properties and which are required, and most values are valid.
L{fastValidator} confirms this in a quarter of the time of a JSON Schema validator, which decides
about all other values and makes all errors.
"""

import re
from base64 import b64decode
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from storagegate.core.addresses import SCHEMES
from storagegate.core.definitions import DefinitionError, ServiceMethod
from storagegate.core.errors import ServiceError
from storagegate.core.typeschemas import (
    TypeSchema,
    UnionSchema,
    declaredPath,
    isDescribed,
    untaggedMembers,
)
from storagegate.core.validationerrors import errorDetail

if TYPE_CHECKING:
    from fastjsonschema import JsonSchemaValueException

    from storagegate.core.schemashapes import Project

Fits = Callable[[Any], bool]
"""Returns whether a value is certainly valid; C{False} means unknown."""

_TYPES: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "object": frozenset({dict}),
    "array": frozenset({list}),
}

# Keywords that do not constrain values.
_NOTES = frozenset({"title", "description", "default", "examples", "$comment"})

_OBJECT = frozenset({"type", "properties", "required"})


class _Absent:
    """The type of the marker of a missing property."""


_ABSENT = _Absent()


def fastValidator(schema: Any, isClosed: bool = False) -> Fits | None:
    """
    Make the fast validator of a schema.

    @param schema: A valid schema in plain JSON Schema.
    @param isClosed: Whether to reject members that C{properties} does not name.
    @return: C{None} unless the schema is an object whose properties only have a type.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    if schema.get("type") != "object" or not (schema.keys() - _NOTES <= _OBJECT):
        return None
    types = {name: _typesOf(part) for name, part in properties.items()}
    if not all(types.values()) or not all(name in types for name in required):
        return None
    parts = [
        (name, found if name in required else found | {_Absent})
        for name, found in types.items()
        if found
    ]

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        # A generator expression takes twice as long.
        for name, types in parts:  # noqa: SIM110
            if type(value.get(name, _ABSENT)) not in types:
                return False
        return True

    names = types.keys()
    if not isClosed or not names:
        return fits

    def fitsClosed(value: Any) -> bool:
        # Repeated from fits(): a call takes as long as the test of a member.
        if type(value) is not dict:
            return False
        for name, types in parts:
            if type(value.get(name, _ABSENT)) not in types:
                return False
        return value.keys() <= names

    return fitsClosed


def _typesOf(schema: Any) -> frozenset[type] | None:
    """Return the types all of whose values are valid; C{None} if the type does not decide."""
    if not isinstance(schema, Mapping) or schema.keys() - _NOTES != {"type"}:
        return None
    name = schema["type"]
    return _TYPES.get(name) if isinstance(name, str) else None


Validator = Callable[[Any], None]
"""Raises C{VALIDATION_ERROR} for an invalid value."""


def isBytes(schema: Any) -> bool:
    """Return whether a schema describes bytes."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") == "string"
        and schema.get("contentEncoding") == "base64"
    )


_MAX_DEPTH = 64
"""The maximum depth of a schema: a deeper one is a cycle."""

_KEYWORDS = frozenset(
    {
        *_NOTES,
        "$defs",
        "$id",
        "$ref",
        "$schema",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "components",
        "const",
        "contains",
        "contentEncoding",
        "contentMediaType",
        "definitions",
        "dependencies",
        "deprecated",
        "discriminator",
        "else",
        "enum",
        "example",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "externalDocs",
        "format",
        "if",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "properties",
        "propertyNames",
        "readOnly",
        "required",
        "then",
        "type",
        "uniqueItems",
        "writeOnly",
        "xml",
    }
)
"""The allowed keywords: draft 7 and the annotations of OpenAPI. Names in C{x-} are also allowed."""

_SUBSCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_SCHEMA_MAPS = ("properties", "patternProperties", "definitions", "$defs")


class Schema:
    """
    A compiled schema.

    @ivar document: The schema in plain JSON Schema.
    @ivar fits: Its fast validator, or C{None}; a request that fits needs no conversion.
    @ivar resultFits: The fast validator of responses, which rejects members that the schema does
        not name.
    """

    def __init__(self, schema: Mapping[str, Any], name: str, isKnown: bool = False) -> None:
        """
        @param schema: The schema.
        @param name: Its name, for errors.
        @param isKnown: Whether it is known to be valid, and so compiled on first use.
        @raise DefinitionError: If it is invalid.
        """
        self._name = name
        try:
            self.document = normalised(schema)
            if not isKnown:
                _checkKeywords(self.document, "")
        except ValueError as error:
            raise DefinitionError(f"{name} has an invalid schema: {error}") from None
        self._bytes = _bytesReader(self.document)
        self._validate: Validator = self._compileAndValidate
        if not isKnown:
            self._validate = compileSchema(self.document, name)
        self.fits = fastValidator(self.document)
        self.resultFits = fastValidator(self.document, isClosed=True)
        self._isProjected = False
        self._project: Project | None = None

    def _compileAndValidate(self, value: Any) -> None:
        self._validate = compileSchema(self.document, self._name)
        self._validate(value)

    def read(self, value: Any) -> Any:
        """
        Validate a request.

        @return: The request, with bytes decoded where the schema has them.
        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """
        if self.fits is not None and self.fits(value):
            # A schema with bytes has no fast validator, because it constrains their text.
            return value
        self._validate(value)
        return value if self._bytes is None else self._bytes(value, "")

    def check(self, value: Any) -> Any:
        """
        Validate a response, and return it without the members that the schema does not name.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid. Its details contain no part of
            the value.
        """
        if self.resultFits is not None and self.resultFits(value):
            return value
        try:
            if not self._isProjected:
                # With the first result that is not plainly of its shape.
                from storagegate.core.schemashapes import projectionOf

                self._isProjected = True
                self._project = projectionOf(
                    self.document, lambda part: compileSchema(part, self._name)
                )
            if self._project is not None:
                value = self._project(value)
            self._validate(value)
            return value
        except RecursionError:
            problem = errorDetail("", "is nested too deeply")
        except ServiceError as error:
            [detail] = error.details
            path = declaredPath(detail["path"], self.document)
            # The validator's message names the rejected members.
            isNaming = "must not contain" in detail["message"]
            problem = errorDetail(path, "has other members" if isNaming else detail["message"])
        # Raised outside the except block: the error's context would hold the value.
        raise problem


def methodProjection(method: ServiceMethod) -> "Project | None":
    """
    Make the projection of a method's valid results to the fields of its generated message.

    @return: C{None} if the message has a field for every member, as the message of a type has.
    """
    isType = method.outputType is not None and isDescribed(method.outputType)
    return None if isType else messageProjection(method.output)


def messageProjection(document: Mapping[str, Any] | None) -> "Project | None":
    """
    Make the projection of valid results to the fields of a message generated from their schema.

    @param document: The schema; C{None} for any.
    @return: C{None} if the message has a field for every member.
    """
    if document is None:
        return None
    from storagegate.core.schemashapes import namedOnly, projectionOf

    plain = normalised(document)
    named = namedOnly(plain)
    if named is plain:
        return None
    return projectionOf(named, lambda part: compileSchema(part, "a message"))


class AnySchema(Protocol):
    """The schema of requests or responses, such as a L{Schema} or a L{TypeSchema}."""

    @property
    def document(self) -> Mapping[str, Any]:
        """Return the schema in plain JSON Schema; an empty one if it cannot express the values."""

    def read(self, value: Any) -> Any:
        """
        Validate a request, and return it as handlers see it.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """

    def check(self, value: Any) -> Any:
        """
        Validate a response, and return it as transports encode it.

        @raise ServiceError: C{VALIDATION_ERROR} if it is invalid.
        """


def makeSchema(
    schema: Mapping[str, Any] | None, model: Any, name: str, isKnown: bool = False
) -> AnySchema | None:
    """
    Make a schema from the result of L{readSchema<storagegate.core.definitions.readSchema>}.

    @param name: Its name, for errors.
    @param isKnown: See L{Schema}.
    @raise DefinitionError: If it is invalid.
    """
    if schema is None:
        return None
    if model is None:
        return Schema(schema, name, isKnown)
    members = untaggedMembers(model)
    return UnionSchema(model, schema, members) if members else TypeSchema(model, schema)


def normalised(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """
    Convert a schema to plain JSON Schema: C{required} moves from properties to the list.

    @param schema: Any value; it must be a mapping.
    @param depth: The number of levels above it.
    @raise ValueError: If it is nested too deeply, or a part of it is not a schema.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if not isinstance(schema, Mapping):
        raise ValueError(f"{schema!r:.60} is no mapping")
    if not isinstance(schema.get("properties", {}), Mapping):
        raise ValueError("its properties are no mapping")
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "required" and isinstance(value, bool):
            continue
        if key in _SCHEMA_MAPS and isinstance(value, Mapping):
            value = {name: _inner(part, depth) for name, part in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list | tuple):
            value = [_inner(part, depth) for part in value]
        elif key in _SUBSCHEMAS and isinstance(value, Mapping):
            value = normalised(value, depth + 1)
        result[key] = value
    required = [
        name
        for name, part in schema.get("properties", {}).items()
        if isinstance(part, Mapping) and part.get("required") is True
    ]
    if required:
        result["required"] = list(dict.fromkeys([*result.get("required", ()), *required]))
    return result


def _inner(part: Any, depth: int) -> Any:
    # True and False are schemas that allow any value, or none.
    return part if isinstance(part, bool) else normalised(part, depth + 1)


def _checkKeywords(schema: Mapping[str, Any], path: str) -> None:
    """
    Check that a schema has only known keywords.

    @raise ValueError: If it has an unknown keyword, which validators ignore.
    """
    for key, value in schema.items():
        if key not in _KEYWORDS and not str(key).startswith("x-"):
            # Imported late: only a mistake needs it.
            from difflib import get_close_matches

            near = get_close_matches(str(key), _KEYWORDS, 1)
            advice = f"; is it {near[0]}?" if near else ""
            raise ValueError(f"{path}{key} is no keyword of JSON Schema, draft 7{advice}")
        parts: Iterable[tuple[str, Any]] = ()
        if key in _SCHEMA_MAPS and isinstance(value, Mapping):
            parts = [(f"{path}{key}.{name}.", part) for name, part in value.items()]
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            parts = [(f"{path}{key}[{index}].", part) for index, part in enumerate(value)]
        elif key in _SUBSCHEMAS:
            parts = [(f"{path}{key}.", value)]
        for name, part in parts:
            if isinstance(part, Mapping):
                _checkKeywords(part, name)


Reader = Callable[[Any, str], Any]


def _bytesReader(schema: Any) -> Reader | None:
    """Return the decoder of the bytes in values of a schema; C{None} if the schema has no bytes."""
    if isBytes(schema):
        return _boundedReader(schema)
    if not isinstance(schema, Mapping):
        return None
    chosen = [
        part
        for keyword in ("anyOf", "oneOf")
        for part in schema.get(keyword) or ()
        if part != {"type": "null"}
    ]
    if len(chosen) == 1:
        optional = _bytesReader(chosen[0])
        return optional and (lambda value, path: value if value is None else optional(value, path))
    parts = {
        name: reader
        for name, part in (schema.get("properties") or {}).items()
        if (reader := _bytesReader(part)) is not None
    }
    items, further = _bytesReader(schema.get("items")), _furtherReader(schema)
    if not parts and items is None and further is None:
        return None

    def read(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            readers = parts
            if further is not None:
                readers = {name: reader for name in value if (reader := further(name)) is not None}
            found = {
                name: reader(value[name], f"{path}.{name}" if path else name)
                for name, reader in readers.items()
                if name in value
            }
            return {**value, **found} if found else value
        if isinstance(value, list) and items is not None:
            return [items(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    return read


def _furtherReader(schema: Mapping[str, Any]) -> Callable[[str], Reader | None] | None:
    """
    Return the function that finds the decoder of a member; C{None} if only the named properties of
    a schema have bytes.
    """
    reader = _bytesReader(schema.get("additionalProperties"))
    if reader is None:
        return None
    properties = schema.get("properties") or {}
    named = {name: _bytesReader(part) for name, part in properties.items()}
    patterns = [re.compile(pattern) for pattern in schema.get("patternProperties") or ()]

    def find(name: str) -> Reader | None:
        if name in named:
            return named[name]
        return None if any(pattern.search(name) for pattern in patterns) else reader

    return find


def _boundedReader(schema: Mapping[str, Any]) -> Reader:
    """Return the decoder of bytes whose schema may limit the length of their text."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return _readBytes

    def read(value: Any, path: str) -> Any:
        found = _readBytes(value, path)
        length = -(-len(found) // 3) * 4
        if length < least:
            raise errorDetail(path, f"must be longer than or equal to {least} characters")
        if most is not None and length > most:
            raise errorDetail(path, f"must be shorter than or equal to {most} characters")
        return found

    return read


def _readBytes(value: Any, path: str) -> Any:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise errorDetail(path, "must be base64") from None


_DRAFT = "http://json-schema.org/draft-07/schema#"


def compileSchema(document: Mapping[str, Any], name: str) -> Validator:
    """
    Compile a schema.

    @param document: The schema in plain JSON Schema.
    @param name: Its name, for errors.
    @raise DefinitionError: If it is invalid.
    """
    # Imported late: it takes 0.5 MB, which a daemon needs only for its first schema.
    from fastjsonschema import JsonSchemaException, JsonSchemaValueException, compile

    try:
        check = compile(
            {"$schema": _DRAFT, **_masked(document)},
            handlers=dict.fromkeys((*SCHEMES, "file"), _refuse),
            formats=_FORMATS,
            use_default=False,
        )
    except (JsonSchemaException, ValueError, TypeError, AttributeError) as error:
        raise DefinitionError(f"{name} has an invalid schema: {error}") from None

    def validate(value: Any) -> None:
        try:
            check(value)
        except JsonSchemaValueException as error:
            raise _asServiceError(error) from None
        except RecursionError:
            raise errorDetail("", "is nested too deeply") from None
        except (OverflowError, ValueError):
            # A quotient that multipleOf cannot compute; the library does not report the path.
            raise errorDetail("", "has a number that is out of range") from None

    return validate


# Bytes have no type of JSON Schema.
_TEXT_OR_BYTES = {"not": {"type": ["null", "boolean", "number", "object", "array"]}}


def _masked(schema: Any) -> Any:
    """Replace schemas of bytes, which would reject decoded bytes."""
    if isBytes(schema):
        return _TEXT_OR_BYTES
    if isinstance(schema, Mapping):
        return {key: _masked(value) for key, value in schema.items()}
    return [_masked(value) for value in schema] if isinstance(schema, list) else schema


_MESSAGE_CHARACTERS = 1000
"""Maximum length of a message: a client corrects no more at once."""


def _asServiceError(error: "JsonSchemaValueException") -> ServiceError:
    path = (error.name or "").removeprefix("data").removeprefix(".")
    if error.rule == "not" and error.rule_definition == _TEXT_OR_BYTES["not"]:
        return errorDetail(path, "must be base64")
    if error.rule != "required":
        message = error.message.removeprefix(error.name or "").strip()
        # The message of additionalProperties has the names of all members that are not allowed.
        isLong = len(message) > _MESSAGE_CHARACTERS
        return errorDetail(path, f"{message[:_MESSAGE_CHARACTERS]}..." if isLong else message)
    value = error.value if isinstance(error.value, Mapping) else {}
    missing = next((name for name in error.rule_definition or () if name not in value), "")
    return errorDetail(".".join(filter(None, [path, missing])), "is required")


def _isInternationalEmail(text: str) -> bool:
    local, _, domain = text.partition("@")
    return bool(local) and "@" not in domain and "." in domain[1:-1]


def _isEmail(text: str) -> bool:
    local = text.partition("@")[0]
    isDotted = ".." in local or local.startswith(".") or local.endswith(".")
    return not isDotted and _isInternationalEmail(text)


# The library's patterns take quadratic time: hours for a megabyte of dots.
_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": _isEmail,
    "idn-email": _isInternationalEmail,
}


def _refuse(uri: str) -> Any:
    raise ValueError(f"a schema is not fetched from {uri:.60}")


# RFC 8259 section 6, with bounded lengths.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,39})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}

_TEXT_FORMS = {"boolean": "true, false, 1 or 0", "integer": "an integer", "number": "a number"}
"""The texts that are values of a type, for errors."""


def convertTexts(values: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    Convert texts to the types that a schema gives their names.

    @param values: Text, or a list of texts, by name: a query, or the parameters of a path.
    @param schema: The plain JSON Schema of an object; C{None} for any.
    @raise ServiceError: C{VALIDATION_ERROR} for a text that does not parse as a boolean or a
        number.
    """
    properties = schema.get("properties") if schema is not None else None
    if not properties:
        return dict(values)
    converted = {name: _convertText(value, properties.get(name)) for name, value in values.items()}
    for name, value in converted.items():
        _checkText(name, value, properties.get(name))
    return converted


def _convertText(value: Any, schema: Any) -> Any:
    """Convert one text; text that does not parse stays text."""
    if not isinstance(schema, Mapping):
        return value
    for part in schema.get("anyOf", ()):
        found = _convertText(value, part)
        if found is not value:
            return found
    kinds = kindsOf(schema)
    if "array" in kinds:
        # A name that occurs once is not a list yet.
        items = value if isinstance(value, list) else [value]
        return [_convertText(item, schema.get("items")) for item in items]
    if not isinstance(value, str):
        return value
    if "integer" in kinds and _INTEGER.fullmatch(value):
        return int(value)
    if "number" in kinds and _NUMBER.fullmatch(value):
        number = int(value) if _INTEGER.fullmatch(value) else float(value)
        return number if isfinite(number) else value
    return _BOOLEANS.get(value.lower(), value) if "boolean" in kinds else value


def kindsOf(schema: Any) -> Sequence[str]:
    """Return the types that a schema names; none if it is not decided by types alone."""
    if not isinstance(schema, Mapping):
        return ()
    if "anyOf" in schema:
        parts = [kindsOf(part) for part in schema["anyOf"]]
        return tuple(chain.from_iterable(parts)) if all(parts) else ()
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else kinds


def _checkText(path: str, value: Any, schema: Any) -> None:
    """Refuse a text that was not converted, and is not a value of the schema."""
    if isinstance(value, list):
        parts = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
        items = next((part.get("items") for part in parts if "array" in kindsOf(part)), None)
        for index, item in enumerate(value):
            _checkText(f"{path}[{index}]", item, items)
    if not isinstance(value, str):
        return
    kinds = [kind for kind in kindsOf(schema) if kind != "null"]
    if kinds and all(kind in _TEXT_FORMS for kind in kinds):
        raise errorDetail(path, "must be " + " or ".join(_TEXT_FORMS[kind] for kind in kinds))


async def checkedResults(output: AnySchema | None, name: str, results: Any) -> AsyncIterator[Any]:
    """
    Yield the validated responses of a handler's stream, see L{ResultStream}.

    @param output: The schema; C{None} for any.
    """
    async with ResultStream(results, name) as items:
        async for result in items:
            yield result if output is None else checkResult(output, name, result)


class ResultStream:
    """
    A handler's stream, asynchronous or not, as an asynchronous context manager of an iterable.

    It is closed at the end of the context, which releases the resources of the handler. An
    asynchronous stream is iterated directly.
    """

    __slots__ = ("_items",)

    def __init__(self, results: Any, name: str) -> None:
        """
        @param results: An iterable other than a mapping or text, perhaps asynchronous.
        @param name: The name of the method, for the error.
        @raise TypeError: If the results are not a stream.
        """
        if isinstance(results, AsyncIterable):
            self._items: AsyncIterable[Any] = results
        elif isinstance(results, Iterable) and not isinstance(results, Mapping | str | bytes):
            self._items = _each(results)
        else:
            raise TypeError(f"{name} gives a stream, not {type(results).__name__}")

    async def __aenter__(self) -> AsyncIterable[Any]:
        return self._items

    async def __aexit__(self, *error: object) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


async def _each(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def checkResult(output: AnySchema, name: str, result: Any) -> Any:
    """
    Return a result as transports encode it: valid, and in the shape of its schema.

    @raise ValueError: If it is invalid, which is a bug of the method and not of its caller. The
        error contains the path and no part of the result.
    """
    return fittedResult(output.check, name, result)


def fittedResult(check: Callable[[Any], Any], name: str, result: Any) -> Any:
    """
    Return a result in the shape that a function gives it, see L{checkResult}.

    @param check: Raises C{VALIDATION_ERROR} for a result that does not fit.
    @raise ValueError: If it does not fit.
    """
    try:
        return check(result)
    except ServiceError as error:
        details = error.details
    raise ValueError(f"the result of {name} does not fit: {details}")
