"""
Typed handlers: functions of a route whose parameters are parts of the request, by name and type.

A function is a typed handler if it cannot be called as C{(req, res)}, C{(req, res, next)} or
C{(error, req, res, next)}, or if one of its parameters says otherwise: by a marker, by C{Depends},
or, if it has no default, by a type of data. Everything is decided and compiled when the route is
registered.

A request is read in this order: the dependencies, the body, then all parameters of the handler.
The mistakes of the last step, and of the parameters of dependencies, are one error.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from inspect import Parameter as Signature
from inspect import isasyncgenfunction, isgeneratorfunction, signature
from types import NoneType, UnionType
from typing import Any, Literal, Never, NoReturn, Union, get_args, get_origin
from uuid import UUID

from msgspec import NODEFAULT

from storagegate.core.definitions import DefinitionError, readSchema
from storagegate.core.dependencies import (
    CallPlan,
    PlanMaker,
    Reader,
    contextReader,
    headerName,
    isContext,
)
from storagegate.core.parameters import (
    Body,
    Cookie,
    File,
    Form,
    FunctionParameter,
    Header,
    Path,
    Query,
    TextReader,
    evaluated,
    nameOfFunction,
    readParameters,
    textReader,
    underlying,
    withoutNone,
)
from storagegate.core.schemas import AnySchema, Schema, makeSchema
from storagegate.core.typeschemas import awaitedType, documentOf, isModel, itemOfList
from storagegate.core.validationerrors import errorDetail
from storagegate.http.dispatch import Handler, readHandler
from storagegate.http.middleware.upload import UploadedFile
from storagegate.http.request import HTTPRequest
from storagegate.http.response import HTTPResponse
from storagegate.http.sessions import Session
from storagegate.http.typedcalls import (
    FormSource,
    HandlerResult,
    JSONSource,
    TypedFunction,
    TypedSocket,
    filesOf,
    isResponse,
    readBody,
    readMember,
)
from storagegate.http.typedroutes import FunctionTypes, RouteParameter, readTexts
from storagegate.http.websocket import WebSocket

_SCALARS = (str, int, float, bool, bytes, datetime, date, time, timedelta, UUID, Decimal)

_COLLECTIONS = (list, set, frozenset, tuple, dict)

_BODILESS = ("GET", "HEAD")

_POSITIONS = {2: (0, 1), 3: (0, 1), 4: (1, 2)}
"""The positions of C{req} and C{res} among the required parameters of a classical handler."""


def typedFunction(
    function: Any,
    name: str,
    method: str | None,
    params: Collection[Any],
    isOpen: bool,
    types: Mapping[str, Any],
) -> Handler | None:
    """
    Compile a typed handler.

    @param name: The method and the path of the route, for errors.
    @param method: The method; C{None} for all.
    @param params: The names of the parameters of its path.
    @param isOpen: Whether its router may be mounted at a path with further parameters.
    @param types: The types that the route gives as keywords; only C{response} is allowed, and takes
        precedence over the annotation.
    @return: C{None} if it is not a typed handler.
    @raise DefinitionError: If a parameter has no source, or two.
    @raise TypeError: If the function is neither a typed handler nor another one.
    """
    if not callable(function) or isinstance(function, type):
        return None
    try:
        parameters = readParameters(function)
    except ValueError as error:
        if isinstance(error, DefinitionError):
            raise
        # Some built-in functions have no signature.
        return None
    try:
        _, count = readHandler(function)
    except TypeError as error:
        refusal: TypeError | None = error
        inner = underlying(function)
        if isgeneratorfunction(inner) or isasyncgenfunction(inner):
            raise
    else:
        refusal = None
        if not _isMarked(parameters, count):
            return None
    for key in types:
        if key != "response":
            raise DefinitionError(
                f"{name} has a type for its {key}, and a handler with typed parameters: use one"
            )
    response = types.get("response", Signature.empty)
    try:
        return _Compiler(name, method, params, isOpen).compile(function, parameters, response), 2
    except DefinitionError as problem:
        isPlain = all(each.type is Signature.empty for each in parameters)
        if refusal is None or not parameters or not isPlain:
            raise
        raise TypeError(f"{refusal}; {problem}") from None


def typedSocket(
    function: Any, name: str, params: Collection[Any], isOpen: bool
) -> TypedSocket | None:
    """
    Compile a handler of WebSockets whose further parameters come from the handshake.

    @param name: The path of the route, for errors.
    @param params: See L{typedFunction} for this and C{isOpen}.
    @return: C{None} for a handler of C{(socket)}.
    @raise DefinitionError: If a parameter has no source.
    """
    try:
        parameters = readParameters(function)
    except (ValueError, TypeError) as error:
        if isinstance(error, DefinitionError):
            raise
        return None
    required = [each for each in parameters if each.isRequired]
    isMarked = any(each.marker is not None for each in parameters)
    isPlain = all(each.type in (Signature.empty, Any) for each in parameters)
    if not isMarked and (isPlain or len(required) == 1):
        return None
    sockets = [each for each in parameters if _isSocket(each.base)]
    if len(sockets) != 1:
        raise DefinitionError(
            f"{nameOfFunction(function)} takes neither (socket) nor, among other parameters, one "
            "that is annotated as WebSocket"
        )
    # The positions are those of the plan.
    parameters.sort(key=lambda each: each.isKeyword)
    plan = _Compiler(name, None, params, isOpen).compileSocket(function, parameters)
    return TypedSocket(plan, parameters.index(sockets[0]))


def _isSocket(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, WebSocket)


def _isMarked(parameters: Sequence[FunctionParameter], count: int) -> bool:
    """Return whether a function is typed that could be called as a classical handler."""
    required = [each for each in parameters if each.isRequired and not each.isKeyword]
    if any(each.marker is not None for each in parameters):
        return True
    if any(_isData(each.base) for each in required):
        return True
    at = _POSITIONS.get(count, ())
    for kind, right in zip((HTTPRequest, HTTPResponse), at, strict=False):
        wrong = [each for position, each in enumerate(required) if position != right]
        if any(each.base is kind for each in wrong):
            return True
    return False


def _isData(found: Any) -> bool:
    """Return whether only a typed handler has a required parameter of a type."""
    found = withoutNone(found)
    origin = get_origin(found)
    if origin in _COLLECTIONS or origin is Literal or isContext(found):
        return True
    if origin in (Union, UnionType):
        return all(_isData(each) for each in get_args(found))
    if not isinstance(found, type) or issubclass(found, BaseException):
        return False
    return found in _SCALARS or issubclass(found, Enum | UploadedFile | Session) or isModel(found)


class _Compiler:
    """Compiles one handler."""

    def __init__(
        self, name: str, method: str | None, params: Collection[Any], isOpen: bool
    ) -> None:
        self._name = name
        self._method = method
        self._params = params
        self._isOpen = isOpen
        self._types = FunctionTypes()
        self._bodies: list[FunctionParameter] = []
        self._formFields: dict[str, Any] = {}
        self._formRequired: list[str] = []
        self._files: dict[str, int | None] = {}
        self._takesResponse = False

    def compile(
        self, function: Callable[..., Any], parameters: Sequence[FunctionParameter], response: Any
    ) -> TypedFunction:
        """Compile the handler."""
        self._bodies = [each for each in parameters if self._isBody(each)]
        plan = PlanMaker(self._dependencyReader).plan(function, parameters, self._reader)
        types = self._types
        form = None
        if self._formFields or self._files:
            if self._bodies:
                raise DefinitionError(f"{self._name} takes a JSON body and a form: use one of them")
            form = FormSource(self._files)
            types.form = {"type": "object", "properties": self._formFields}
            if self._formRequired:
                types.form = {**types.form, "required": self._formRequired}
            types.hasFiles = bool(self._files)
        source = form or (JSONSource(types.body) if self._bodies else None)
        given = _returned(function) if response is Signature.empty else response
        result, types.response = _readResult(self._name, given, self._takesResponse)
        return TypedFunction(function, plan, source, result, types)

    def compileSocket(
        self, function: Callable[..., Any], parameters: Sequence[FunctionParameter]
    ) -> CallPlan:
        """Compile a handler of WebSockets; the reader of the socket's parameter gives C{None}."""

        def make(parameter: FunctionParameter, name: str) -> Reader:
            if _isSocket(parameter.base):
                return lambda req: None
            return self._dependencyReader(parameter, name)

        return PlanMaker(self._dependencyReader).plan(function, parameters, make)

    def _isBody(self, parameter: FunctionParameter) -> bool:
        if parameter.marker is not None:
            return isinstance(parameter.marker, Body)
        if parameter.name in self._params or isContext(parameter.base):
            return False
        base = withoutNone(parameter.base)
        if isinstance(base, type) and issubclass(base, UploadedFile):
            return False
        return isModel(get_origin(base) or base) or isModel(itemOfList(base))

    def _dependencyReader(self, parameter: FunctionParameter, name: str) -> Reader:
        """Make the reader of a parameter of a dependency."""
        isBody = isinstance(parameter.marker, Body | Form | File) or self._isBody(parameter)
        if isBody:
            raise DefinitionError(
                f"{name} belongs to the body, which only a handler reads, after the dependencies"
            )
        return self._reader(parameter, name)

    def _reader(self, parameter: FunctionParameter, name: str) -> Reader:
        """Make the reader of a parameter."""
        marker, base = parameter.marker, withoutNone(parameter.base)
        if marker is None:
            known = self._known(base)
            if known is not None:
                return known
        if parameter.problem is not None:
            raise DefinitionError(
                f"{name} has an annotation that is not defined: {parameter.problem}"
            )
        if isContext(base):
            return contextReader(parameter, name)
        if isinstance(marker, Path) or (marker is None and parameter.name in self._params):
            return self._path(parameter, name)
        if isinstance(marker, Header):
            reader = contextReader(parameter, name)
            self._describe(parameter, "header", headerName(parameter.name), name)
            return reader
        if isinstance(marker, Cookie):
            return self._cookie(parameter, marker, name)
        if isinstance(marker, Form):
            return self._form(parameter, name)
        isFile = isinstance(base, type) and issubclass(base, UploadedFile)
        isFiles = itemOfList(base) is UploadedFile
        if isinstance(marker, File) or (marker is None and (isFile or isFiles)):
            return self._file(parameter, name, isFile, isFiles)
        if isinstance(marker, Body) or parameter in self._bodies:
            return self._body(parameter, name)
        if isinstance(marker, Query) or _isData(base):
            return self._query(parameter, name)
        if marker is None and not parameter.isRequired:
            default = parameter.default
            return lambda req: default
        raise DefinitionError(
            f"{name} has no source: annotate it as HTTPRequest or HTTPResponse, give it Depends, "
            "or a type of data with a marker such as Annotated[..., Body()]"
        )

    def _known(self, base: Any) -> Reader | None:
        """Return the reader of a value of the framework, by its type."""
        if not isinstance(base, type):
            return None
        if issubclass(base, HTTPRequest):
            return _request
        if issubclass(base, HTTPResponse):
            self._takesResponse = True
            return _response
        return _session if issubclass(base, Session) else None

    def _describe(
        self, parameter: FunctionParameter, place: str, own: str, name: str
    ) -> TextReader:
        """Describe a parameter, and return its reader of text."""
        reader = textReader(parameter, name)
        document = dict(reader.document)
        if not parameter.isRequired and isinstance(parameter.default, str | int | float):
            document["default"] = parameter.default
        isRequired = place == "path" or reader.isRequired
        self._types.add(RouteParameter(parameter.alias or own, place, document, isRequired))
        return reader

    def _isWhole(self, parameter: FunctionParameter) -> bool:
        """Return whether a parameter has all values of its place, as a model."""
        base = withoutNone(parameter.base)
        return isModel(get_origin(base) or base)

    def _whole(self, parameter: FunctionParameter, name: str, kind: str) -> AnySchema:
        """Make the schema of a model that has all values of a place."""
        schema, model = readSchema(kind, name, withoutNone(parameter.base))
        made = makeSchema(schema, model, name)
        assert made is not None
        return made

    def _path(self, parameter: FunctionParameter, name: str) -> Reader:
        if self._isWhole(parameter):
            self._types.params = schema = self._whole(parameter, name, "params")
            read = partial(readTexts, schema)
            return lambda req: read(req.params)
        own = parameter.alias or parameter.name
        if own not in self._params and not self._isOpen:
            raise DefinitionError(
                f"{name} is no parameter of the path {self._name.partition(' ')[2]}"
            )
        convert = self._describe(parameter, "path", own, name).bound(own)
        return lambda req: convert(req.params.get(own))

    def _query(self, parameter: FunctionParameter, name: str) -> Reader:
        if self._isWhole(parameter):
            self._types.query = schema = self._whole(parameter, name, "query")
            read = partial(readTexts, schema)
            return lambda req: read(req.query)
        own = parameter.alias or parameter.name
        convert = self._describe(parameter, "query", own, name).bound(own)
        return lambda req: convert(req.query.get(own))

    def _cookie(self, parameter: FunctionParameter, marker: Cookie, name: str) -> Reader:
        own = parameter.alias or parameter.name
        convert = self._describe(parameter, "cookie", own, name).bound(own)
        if marker.signed:
            return lambda req: convert(req.signedCookies.get(own))
        return lambda req: convert(req.cookies.get(own))

    def _form(self, parameter: FunctionParameter, name: str) -> Reader:
        if self._isWhole(parameter):
            schema = self._whole(parameter, name, "body")
            document = schema.document
            self._formFields.update(document.get("properties", {}))
            self._formRequired += document.get("required", ())
            read = partial(readTexts, schema)
            return lambda req: read(req.body or {})
        own = parameter.alias or parameter.name
        reader = textReader(parameter, name)
        self._formFields[own] = dict(reader.document)
        if reader.isRequired:
            self._formRequired.append(own)
        convert = reader.bound(own)
        return lambda req: convert((req.body or {}).get(own))

    def _file(self, parameter: FunctionParameter, name: str, isFile: bool, isFiles: bool) -> Reader:
        if not (isFile or isFiles):
            raise DefinitionError(f"{name} is a file: its type is UploadedFile, or a list of them")
        own = parameter.alias or parameter.name
        isOptional = withoutNone(parameter.base) is not parameter.base
        default = None if parameter.isRequired and isOptional else parameter.default
        content = {"type": "string", "contentMediaType": "application/octet-stream"}
        self._formFields[own] = {"type": "array", "items": content} if isFiles else content
        if default is NODEFAULT:
            self._formRequired.append(own)
        self._files[own] = None if isFiles else 1

        def read(req: Any) -> Any:
            found = filesOf(req, own)
            if not found:
                if default is NODEFAULT:
                    raise errorDetail(own, "is required")
                return default
            return found if isFiles else found[0]

        return read

    def _body(self, parameter: FunctionParameter, name: str) -> Reader:
        if self._method in _BODILESS:
            raise DefinitionError(
                f"{name} is a body, which a {self._method} request does not have: write "
                "Annotated[..., Query()] for a model of the query"
            )
        isMember = len(self._bodies) > 1 or parameter.alias is not None
        own = parameter.alias or parameter.name
        isOptional = withoutNone(parameter.base) is not parameter.base
        default = None if parameter.isRequired and isOptional else parameter.default
        schema = _schemaOf(parameter.type, name)
        if not isMember:
            self._types.body = schema
            return lambda req: readBody(schema, default, req)
        members = self._types.body.document if self._types.body is not None else _NO_MEMBERS
        required = [own] if default is NODEFAULT else []
        document = {
            "type": "object",
            "properties": {**members["properties"], own: schema.document},
            "required": [*members["required"], *required],
        }
        self._types.body = Schema(document, f"the body of {self._name}", isKnown=True)
        return lambda req: readMember(schema, own, default, req)


_NO_MEMBERS: Mapping[str, Any] = {"properties": {}, "required": []}


def _request(req: Any) -> Any:
    return req


def _response(req: Any) -> Any:
    return req.res


def _session(req: Any) -> Any:
    if req.session is None:
        raise RuntimeError("there is no session: install the middleware session() before the route")
    return req.session


def _schemaOf(found: Any, name: str, isResult: bool = False) -> AnySchema:
    """
    Make the schema of a type.

    @param name: Names the parameter or the result, for the error.
    @raise DefinitionError: If the type has none.
    """
    try:
        made = makeSchema(documentOf(found, isResult), found, name)
    except (TypeError, NameError) as error:
        raise DefinitionError(f"{name} has no schema: {error}") from None
    assert made is not None
    return made


def _returned(function: Callable[..., Any]) -> Any:
    """Return the annotation of a function's result; C{Signature.empty} without one."""
    given = signature(function).return_annotation
    if given is Signature.empty or isinstance(function, type):
        return Signature.empty
    try:
        return evaluated(given, function)
    except Exception as error:
        raise DefinitionError(
            f"the result of {nameOfFunction(function)} has an annotation that is not defined: "
            f"{error}"
        ) from None


_UNSHAPED = (Signature.empty, Any, object, str, bytes, NoReturn, Never)
"""The annotations of results that are sent as the results of any handler are."""


def _readResult(name: str, declared: Any, takesResponse: bool) -> tuple[HandlerResult, Any]:
    """
    Read the declared type of a handler's result.

    @param declared: The annotation; C{Signature.empty} without one.
    @param takesResponse: Whether the handler may send the response itself.
    @return: The result, and its schema or C{None}.
    @raise DefinitionError: If the type has no schema.
    """
    declared = awaitedType(declared)
    isUnion = get_origin(declared) in (Union, UnionType)
    members = get_args(declared) if isUnion else (declared,)
    kept = tuple(each for each in members if not isResponse(each))
    allowsNone = NoneType in kept or None in kept
    isOnlyNone = set(kept) <= {None, NoneType}
    schema = None
    if not isOnlyNone and not any(each in _UNSHAPED for each in kept):
        union: Any = Union
        found = union[kept] if isUnion else declared
        text = f"the result of {name}, which may be annotated as Any,"
        schema = _schemaOf(found, text, isResult=True)
    isEmpty = not takesResponse and isOnlyNone and bool(kept)
    return HandlerResult(name, schema, allowsNone, isEmpty), schema
