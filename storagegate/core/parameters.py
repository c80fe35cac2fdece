"""
Parameters of functions that are called with parts of a request: typed handlers and dependencies.

A parameter's type is its annotation. A marker in C{Annotated} names the part of the request and may
constrain the value::

    page: Annotated[int, Query(ge=1)] = 1
    agent: Annotated[str, Header("user-agent")] = ""

The front ends decide which parts they have; this module reads the signatures, and converts text to
the types.
"""

import inspect
import sys
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from math import isfinite
from types import FunctionType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    overload,
)

import msgspec
from attrs import evolve, field, frozen
from msgspec import NODEFAULT

from storagegate.core.definitions import DefinitionError
from storagegate.core.schemas import convertTexts
from storagegate.core.typeschemas import documentOf
from storagegate.core.validationerrors import asValidationError, errorDetail


class Constraints(TypedDict, total=False):
    """The constraints of a value, as C{msgspec.Meta} names them."""

    gt: float
    ge: float
    lt: float
    le: float
    multiple_of: float
    pattern: str
    min_length: int
    max_length: int
    tz: bool
    title: str
    description: str
    examples: list[Any]
    extra_json_schema: dict[str, Any]


class ParameterMarker:
    """
    Names the part of a request that a parameter is taken from.

    @ivar alias: The name in the request; C{None} for the name of the parameter.
    @ivar meta: The constraints; C{None} for none.
    @cvar place: The part of the request.
    """

    place: ClassVar[str]

    def __init__(self, alias: str | None = None, /, **constraints: Unpack[Constraints]) -> None:
        """
        @param alias: The name in the request.
        @raise TypeError: If a constraint is unknown.
        @raise ValueError: If constraints contradict each other.
        """
        self.alias = alias
        # Its overloads exclude contradictions, which are errors at run time, too.
        make: Any = msgspec.Meta
        self.meta: msgspec.Meta | None = make(**constraints) if constraints else None

    def __repr__(self) -> str:
        return type(self).__name__


class Path(ParameterMarker):
    """A parameter of the path."""

    place = "path"


class Query(ParameterMarker):
    """A parameter of the query; with a model as its type, all of them."""

    place = "query"


class Header(ParameterMarker):
    """
    A header field, or an entry of gRPC's metadata.

    Without an alias, C{userAgent} and C{user_agent} are C{user-agent}.
    """

    place = "header"


class Cookie(ParameterMarker):
    """
    A cookie.

    @ivar signed: Whether only a cookie with a valid signature counts.
    """

    place = "cookie"

    def __init__(
        self,
        alias: str | None = None,
        /,
        *,
        signed: bool = False,
        **constraints: Unpack[Constraints],
    ) -> None:
        """
        @param alias: The name in the request.
        @param signed: Whether only a cookie with a valid signature counts.
        """
        super().__init__(alias, **constraints)
        self.signed = signed


class Body(ParameterMarker):
    """The JSON body; with an alias, or beside another C{Body}, one member of it."""

    place = "body"


class Form(ParameterMarker):
    """A field of a form; with a model as its type, all fields."""

    place = "form"


class File(ParameterMarker):
    """A file of a multipart form; with a list as its type, all files of the field."""

    place = "file"


T = TypeVar("T")

Scope = Literal["request", "application"]
"""How long the value of a dependency is kept."""


@frozen(eq=False)
class Dependency:
    """
    A value that a function makes for a parameter; see L{Depends}.

    @ivar function: The function.
    @ivar scope: How long the value is kept.
    """

    function: Callable[..., Any]
    scope: Scope = "request"


@overload
def Depends(function: Callable[..., AsyncIterator[T]], *, scope: Scope = "request") -> T: ...


@overload
def Depends(function: Callable[..., Iterator[T]], *, scope: Scope = "request") -> T: ...


@overload
def Depends(function: Callable[..., Awaitable[T]], *, scope: Scope = "request") -> T: ...


@overload
def Depends(function: Callable[..., T], *, scope: Scope = "request") -> T: ...


def Depends(function: Callable[..., Any], *, scope: Scope = "request") -> Any:
    """
    Let a function make the value of a parameter: as its default, or in C{Annotated}.

    @param function: A function, plain or a coroutine function, whose own parameters come from the
        request as the parameters of a handler do. A generator yields the value once; the rest of it
        runs when the answer has gone. An exception of the handler is raised at its C{yield}.
    @param scope: C{request} calls the function once for each request, C{application} once for the
        application; the rest of a generator then runs when the application closes.
    @raise TypeError: If C{function} is not callable.
    @raise ValueError: If there is no such scope.
    """
    if not callable(function):
        raise TypeError(f"Depends takes a function, not {function!r}")
    if scope not in get_args(Scope):
        raise ValueError(f"the scope of a dependency is request or application, not {scope!r}")
    return Dependency(function, scope)


@frozen
class FunctionParameter:
    """
    One parameter of a function.

    @ivar type: The annotation without the marker, with its constraints as C{msgspec.Meta};
        C{inspect.Parameter.empty} without an annotation.
    @ivar marker: The marker, or the dependency that makes its value; or C{None}.
    @ivar default: The default; C{msgspec.NODEFAULT} without one.
    @ivar isKeyword: Whether it is passed by name.
    @ivar problem: The error of its annotation, which cannot be evaluated; or C{None}.
    """

    name: str
    type: Any
    marker: "ParameterMarker | Dependency | None" = None
    default: Any = NODEFAULT
    isKeyword: bool = False
    problem: str | None = field(default=None, repr=False)

    @property
    def isRequired(self) -> bool:
        """Return whether it has no default."""
        return self.default is NODEFAULT

    @property
    def alias(self) -> str | None:
        """Return its name in the request, if its marker has one."""
        return getattr(self.marker, "alias", None)

    @property
    def base(self) -> Any:
        """Return the type without its constraints."""
        return get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type


def readParameters(function: Callable[..., Any]) -> list[FunctionParameter]:
    """
    Read the parameters of a function. C{*} and C{**} parameters get no value, and are omitted.

    @raise DefinitionError: If a parameter has two markers, or a marker in the wrong place.
    """
    found = []
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        default = NODEFAULT if each.default is each.empty else each.default
        parameter = FunctionParameter(
            each.name, each.annotation, None, default, each.kind is each.KEYWORD_ONLY
        )
        try:
            parameter = evolve(parameter, type=evaluated(each.annotation, function))
        except Exception as error:
            # The function may take a value of this type from elsewhere.
            parameter = evolve(parameter, type=each.empty, problem=str(error))
        found.append(_marked(parameter, function))
    return found


def isMarker(value: object) -> bool:
    """Return whether metadata of an annotation, or a default, says where a value comes from."""
    return isinstance(value, ParameterMarker | Dependency)


def _marked(parameter: FunctionParameter, function: Callable[..., Any]) -> FunctionParameter:
    """Take the marker of a parameter out of its annotation, or its default."""
    name = f"the parameter {parameter.name} of {nameOfFunction(function)}"
    base, extra = parameter.type, []
    if get_origin(base) is Annotated:
        base, *extra = get_args(base)
    if get_origin(base) in (Union, UnionType):
        inner = [part for each in get_args(base) for part in getattr(each, "__metadata__", ())]
        if any(isMarker(each) for each in inner):
            raise DefinitionError(f"{name} has its marker inside of a union: mark the whole type")
    markers = [each for each in extra if isMarker(each)]
    if any(
        isinstance(each, type) and issubclass(each, ParameterMarker)
        for each in (*extra, parameter.default)
    ):
        raise DefinitionError(f"{name} has a class as its marker: call it, as in Query()")
    default = parameter.default
    if isMarker(default):
        if isinstance(default, ParameterMarker):
            raise DefinitionError(
                f"{name} has a marker as its default: write Annotated[..., {default!r}()], "
                "and the default after it"
            )
        markers.append(default)
        default = NODEFAULT
    if not markers:
        return parameter
    if len(markers) > 1:
        raise DefinitionError(f"{name} has more than one marker: {markers}")
    kept = [each for each in extra if each is not markers[0]]
    meta = getattr(markers[0], "meta", None)
    kept += [] if meta is None else [meta]
    for each in kept:
        base = Annotated[base, each]
    return evolve(parameter, type=base, marker=markers[0], default=default)


def evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """
    Evaluate an annotation of a function, which may be text.

    @raise NameError: If it uses an undefined name.
    """
    if isinstance(annotation, type) and not isinstance(annotation, str):
        return annotation
    inner = underlying(function)

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    names = getattr(inner, "__globals__", None)
    if names is None:
        names = vars(sys.modules.get(getattr(inner, "__module__", ""), typing))
    return typing.get_type_hints(holder, names, include_extras=True)["it"]


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function that a callable object finally calls."""
    found: Any = function
    while True:
        inner: Any = inspect.unwrap(found)
        if isinstance(inner, partial):
            inner = inner.func
        elif hasattr(inner, "__func__"):
            inner = inner.__func__
        elif not isinstance(inner, FunctionType | type):
            call = getattr(type(inner), "__call__", None)  # noqa: B004
            inner = call if isinstance(call, FunctionType) else inner
        if inner is found:
            return inner  # type: ignore[no-any-return]
        found = inner


def nameOfFunction(function: Any) -> str:
    """Return the name of a function, for messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def withoutNone(found: Any) -> Any:
    """Return a type without C{None}, if it is a union with it."""
    if get_origin(found) not in (Union, UnionType):
        return found
    members = tuple(each for each in get_args(found) if each is not type(None))
    # Some types do not support the operator.
    union: Any = Union
    return union[members] if members else found


_COLLECTIONS = (list, set, frozenset, tuple)

_NUMBERS = ("integer", "number", "boolean")


class TextReader:
    """
    Converts text to a type: of the path, the query, a header field, a cookie or a form.

    @ivar document: The JSON Schema of the type.
    @ivar isList: Whether the type holds several values.
    """

    def __init__(self, found: Any, default: Any = NODEFAULT) -> None:
        """
        @param found: A type that msgspec supports, other than a model.
        @param default: The value if the request has none; C{msgspec.NODEFAULT} requires one.
        @raise TypeError: If msgspec does not support it.
        """
        self._default = default
        base, *extra = get_args(found) if get_origin(found) is Annotated else (found,)
        base = withoutNone(base)
        for each in extra:
            base = Annotated[base, each]
        self._type = base
        self.document: Mapping[str, Any] = documentOf(base)
        plain = get_args(base)[0] if get_origin(base) is Annotated else base
        self.isList = (get_origin(plain) or plain) in _COLLECTIONS
        self._isText = base is str
        document = self.document.get("items", {}) if self.isList else self.document
        # Otherwise a date could be a number of seconds.
        self._isStrict = not _takesNumbers(document)

    @property
    def isRequired(self) -> bool:
        """Return whether the request must have a value."""
        return self._default is NODEFAULT

    def bound(self, path: str) -> Callable[[Any], Any]:
        """
        Return L{readOr} for one path.

        It converts most texts in one call, which takes half of the time.
        """
        found, isStrict, readOr = self._type, self._isStrict, self.readOr
        if self.isList:
            return partial(readOr, path)
        if self._isText:

            def readText(value: Any) -> Any:
                return value if type(value) is str else readOr(path, value)

            return readText

        def read(value: Any) -> Any:
            if type(value) is str:
                try:
                    converted = msgspec.convert(value, found, strict=isStrict)
                except msgspec.ValidationError:
                    return readOr(path, value)
                if type(converted) is not float:
                    return converted
            return readOr(path, value)

        return read

    def readOr(self, path: str, value: Any) -> Any:
        """
        Convert a value, or return the default for C{None}.

        @param path: Its name, for errors.
        @raise ServiceError: C{VALIDATION_ERROR}.
        """
        if value is not None:
            return self.read(path, value)
        if self._default is NODEFAULT:
            raise errorDetail(path, "is required")
        return self._default

    def read(self, path: str, value: Any) -> Any:
        """
        Convert a value.

        @param path: Its name, for errors.
        @param value: Text, or a list of texts.
        @raise ServiceError: C{VALIDATION_ERROR}.
        """
        if self._isText and type(value) is str:
            return value
        if self.isList and type(value) is str:
            value = [value]
        try:
            found = msgspec.convert(value, self._type, strict=self._isStrict)
        except msgspec.ValidationError as error:
            problem = error
        else:
            if type(found) is not float or isfinite(found):
                return found
            problem = msgspec.ValidationError("Expected `float`, got `str`")
        # A text that is no number is described as such.
        convertTexts({path: value}, {"properties": {path: self.document}})
        raise asValidationError(str(problem), path) from None


def textReader(parameter: FunctionParameter, name: str) -> TextReader:
    """
    Make the reader of a parameter from its type. Without a type it is text.

    @param name: Names the parameter, for the error.
    @raise DefinitionError: If text cannot be converted to its type.
    """
    if parameter.problem is not None:
        raise DefinitionError(f"{name} has an annotation that is not defined: {parameter.problem}")
    found = str if parameter.type is inspect.Parameter.empty else parameter.type
    default = parameter.default
    if default is NODEFAULT and withoutNone(parameter.base) is not parameter.base:
        # An absent value is None, if None is one.
        default = None
    try:
        return TextReader(found, default)
    except (TypeError, NameError) as error:
        raise DefinitionError(f"{name} has a type that text has not: {error}") from None


def _takesNumbers(document: Any) -> bool:
    """Return whether a schema has numbers or booleans among its values."""
    if not isinstance(document, Mapping):
        return False
    kinds = document.get("type", ())
    if any(kind in _NUMBERS for kind in ((kinds,) if isinstance(kinds, str) else kinds)):
        return True
    if any(isinstance(each, int | float) for each in document.get("enum", ())):
        return True
    return any(_takesNumbers(each) for each in document.get("anyOf", ()))
