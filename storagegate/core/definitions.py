"""Definitions of services: methods, streaming, authentication and rate limits."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from attrs import evolve, field, frozen

from storagegate.core.typeschemas import (
    documentOf,
    handlerTypes,
    holdsModel,
    isModel,
    itemOfList,
)

STREAMING = ("none", "client", "server", "bidirectional")
"""The kinds of streaming: none, requests, responses, both."""

# A name is part of a path on most transports.
_NAME = re.compile(r"[^\s/]+")

MAX_METHOD_NAME = 200
"""The maximum length of the name of an undefined method."""

_ASYNCHRONOUS = re.compile(r"\bAsync(Iterable|Iterator|Generator)\b")

_PROVIDERS = ("jwt", "apikey", "oauth")


class DefinitionError(ValueError):
    """The definition of a service is invalid; the message names the problem."""


@frozen
class RateLimit:
    """
    How often a method may be called.

    @ivar requests: How many calls of a method each client may make in a window.
    @ivar window: The length of the window, in milliseconds.
    """

    requests: int
    window: int


@frozen
class ServiceAuthentication:
    """
    Authentication and authorisation of the calls of a service.

    @ivar required: Whether anonymous calls are refused.
    @ivar methods: The allowed providers; empty for the providers of the transport.
    @ivar authorize: C{authorize(user, method, request)}, called for every call; C{None} allows all.
    """

    required: bool = False
    methods: tuple[str, ...] = ()
    authorize: Callable[[Any, str, Any], Any] | None = None


MessageSchemas = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""The schemas of a request and a response; L{None} for any value."""


@frozen
class ServiceMethod:
    """
    One method.

    @ivar handler: C{handler(request, context)}, see the documentation of each kind of streaming.
    @ivar streaming: One of L{STREAMING}.
    @ivar input: The schema of a request; C{None} for any value.
    @ivar output: The schema of a response.
    @ivar inputType: The model whose schema C{input} is; handlers get its instances.
    @ivar outputType: The model whose schema C{output} is; handlers return its instances.
    @ivar authentication: Overrides the service's C{required}; C{None} keeps it.
    @ivar rateLimit: Overrides the service's limit.
    @ivar idempotent: Whether a call may be retried when its outcome is unknown.
    @ivar describe: Returns the schemas of a request and a response for descriptions, of a handler
        that validates requests itself: they change neither its errors nor its messages over gRPC.
    """

    handler: Callable[..., Any]
    streaming: str = "none"
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    authentication: bool | None = None
    rateLimit: RateLimit | None = None
    idempotent: bool = False
    inputType: Any = None
    outputType: Any = None
    describe: "Callable[[], MessageSchemas] | None" = None

    @property
    def streamsRequests(self) -> bool:
        """Return whether a call has a stream of requests."""
        return self.streaming in ("client", "bidirectional")

    @property
    def streamsResponses(self) -> bool:
        """Return whether a call has a stream of responses."""
        return self.streaming in ("server", "bidirectional")

    @property
    def shownInput(self) -> Mapping[str, Any] | None:
        """Return the schema of a request in descriptions; C{None} for the one that is enforced."""
        return None if self.describe is None else self.describe()[0]

    @property
    def shownOutput(self) -> Mapping[str, Any] | None:
        """Return the schema of a response in descriptions; C{None} as for C{shownInput}."""
        return None if self.describe is None else self.describe()[1]


@frozen
class ServiceDefinition:
    """
    A service.

    @ivar name: Its name, on every transport.
    @ivar methods: Its methods by name.
    @ivar middleware: C{async (request, context, next)}, the first one outermost.
    @ivar others: The method that handles all undefined names; C{None} rejects them. It is unary,
        and not available over gRPC.
    """

    name: str
    methods: Mapping[str, ServiceMethod]
    middleware: tuple[Callable[..., Any], ...] = ()
    authentication: ServiceAuthentication = field(factory=ServiceAuthentication)
    rateLimit: RateLimit | None = None
    others: ServiceMethod | None = None

    def isAnonymous(self, method: ServiceMethod) -> bool:
        """Return whether a method can be called without credentials."""
        required = method.authentication
        return not (self.authentication.required if required is None else required)


class RateLimitDict(TypedDict, total=False):
    """The keywords of L{RateLimit}."""

    requests: int
    window: int


class ServiceDefinitionDict(TypedDict, total=False):
    """The keywords of L{ServiceDefinition}, as L{readService} reads them, without the name."""

    methods: Mapping[str, Any]
    middleware: Iterable[Callable[..., Any]] | None
    authentication: Mapping[str, Any] | None
    rateLimit: RateLimitDict | RateLimit | None
    others: Any


def readService(definition: Any, name: str | None = None) -> ServiceDefinition:
    """
    Read the definition of a service.

    @param definition: A L{ServiceDefinition}, or a mapping of its attributes.
    @param name: The name, unless the definition contains it.
    @raise DefinitionError: If it is invalid.
    """
    if isinstance(definition, ServiceDefinition):
        return definition if name is None else evolve(definition, name=_readName(name))
    if not isinstance(definition, Mapping):
        raise DefinitionError(f"a service is a mapping with methods, not {definition!r}")
    known = {"name", "methods", "middleware", "authentication", "rateLimit", "others"}
    name = _readName(definition.get("name") if name is None else name)
    _refuseUnknown(definition, known, f"the service {name}")
    methods = definition.get("methods")
    if not isinstance(methods, Mapping) or not methods:
        raise DefinitionError(f"the service {name} has no methods")
    others = definition.get("others")
    if others is not None:
        others = _readMethod(name, "others", others)
        if others.streaming != "none":
            raise DefinitionError(f"{name}.others does not stream: clients do not know its kind")
    return ServiceDefinition(
        name,
        {key: _readMethod(name, key, value) for key, value in methods.items()},
        _readMiddleware(name, definition.get("middleware")),
        _readAuthentication(name, definition.get("authentication")),
        readRateLimit(name, definition.get("rateLimit")),
        others,
    )


def streamingOf(handler: Callable[..., Any]) -> str:
    """
    Infer the kind of streaming of a function.

    @param handler: An asynchronous generator function streams responses; a first parameter that is
        annotated as an asynchronous iterable streams requests.
    """
    function = inspect.unwrap(handler)
    # A callable object streams as its __call__ method does.
    called = getattr(type(function), "__call__", None)  # noqa: B004
    streams = inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(called)
    takes = False
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (ValueError, TypeError):
        first = None
    if first is not None and first.annotation is not first.empty:
        takes = _ASYNCHRONOUS.search(str(first.annotation)) is not None
    return STREAMING[takes + 2 * streams]


def _readName(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(f"a service has a name without white space and slashes, not {name!r}")
    return name


def _readMethod(service: str, key: Any, value: Any) -> ServiceMethod:
    if not isinstance(key, str) or not _NAME.fullmatch(key):
        raise DefinitionError(
            f"a method of {service} has a name without white space and slashes, not {key!r}"
        )
    name = f"{service}.{key}"
    if isinstance(value, ServiceMethod):
        return value
    if callable(value):
        value = {"handler": value}
    if not isinstance(value, Mapping):
        raise DefinitionError(f"{name} is neither a function nor a mapping with a handler")
    known = {"handler", "input", "output", "streaming", "authentication", "rateLimit", "idempotent"}
    _refuseUnknown(value, known, name)
    handler = value.get("handler")
    if not callable(handler):
        raise DefinitionError(f"{name} has no handler")
    streaming = value.get("streaming") or streamingOf(handler)
    if streaming not in STREAMING:
        raise DefinitionError(f"{name} streams {streaming!r}; there is {', '.join(STREAMING)}")
    required, idempotent = value.get("authentication"), value.get("idempotent", False)
    if not isinstance(required, bool | None):
        raise DefinitionError(f"the authentication of {name} is True or False")
    if not isinstance(idempotent, bool):
        raise DefinitionError(f"idempotent of {name} is True or False")
    try:
        annotated = handlerTypes(handler)
    except NameError as error:
        raise DefinitionError(f"{name} has an annotation that is not defined: {error}") from None
    input, inputType = readSchema("input", name, value.get("input", annotated[0]))
    result = annotated[1]
    if streaming in ("server", "bidirectional"):
        # A stream may be made from a list.
        result = itemOfList(result) or result
    output, outputType = readSchema("output", name, value.get("output", result))
    limit = readRateLimit(name, value.get("rateLimit"))
    return ServiceMethod(
        handler, streaming, input, output, required, limit, idempotent, inputType, outputType
    )


def readSchema(
    key: str, name: str, value: Any, takesLists: bool = False
) -> tuple[Mapping[str, Any] | None, Any]:
    """
    Read the schema of a request, of a response, or of a part of one.

    @param key: The part that the schema describes, for errors.
    @param name: The name of the method or route, for errors.
    @param value: A schema, a model, or C{None} for any value.
    @param takesLists: Whether to accept C{list[Model]} as well. A result may have any type that
        contains a model.
    @return: The schema, and its model if it has one.
    @raise DefinitionError: If the value is none of these.
    """
    if value is None or isinstance(value, Mapping):
        return value, None
    isResult = key in ("output", "response")
    isFit = holdsModel(value) if isResult else isModel(value)
    if not (isFit or (takesLists and isModel(itemOfList(value)))):
        raise DefinitionError(f"the {key} of {name} is a schema or a model, not {value!r}")
    try:
        return documentOf(value, isResult), value
    except (TypeError, NameError) as error:
        raise DefinitionError(f"the {key} of {name} has no schema: {error}") from None


def isMethodName(name: str) -> bool:
    """Return whether text from a client can be the name of a method."""
    return (
        len(name) <= MAX_METHOD_NAME and _NAME.fullmatch(name) is not None and name.strip(".") != ""
    )


def _readMiddleware(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    if value is None:
        return ()
    isList = isinstance(value, Iterable) and not callable(value)
    middleware = tuple(value) if isList else (value,)
    if not all(callable(each) for each in middleware):
        raise DefinitionError(f"the middleware of {name} is a list of functions")
    return middleware


def _readAuthentication(name: str, value: Any) -> ServiceAuthentication:
    if value is None:
        return ServiceAuthentication()
    if isinstance(value, ServiceAuthentication):
        return value
    if not isinstance(value, Mapping):
        raise DefinitionError(f"the authentication of {name} is a mapping")
    _refuseUnknown(value, {"required", "methods", "authorize"}, f"the authentication of {name}")
    required, authorize = value.get("required", False), value.get("authorize")
    if not isinstance(required, bool):
        raise DefinitionError(f"authentication.required of {name} is True or False")
    if authorize is not None and not callable(authorize):
        raise DefinitionError(f"authentication.authorize of {name} is a function")
    methods = value.get("methods") or ()
    if not isinstance(methods, list | tuple | set | frozenset):
        raise DefinitionError(f"authentication.methods of {name} is a list, not {methods!r}")
    for method in methods:
        if method not in _PROVIDERS:
            raise DefinitionError(
                f"{name} authenticates by {method!r}; there is {', '.join(_PROVIDERS)}"
            )
    return ServiceAuthentication(required, tuple(methods), authorize)


def readRateLimit(name: str, value: Any) -> RateLimit | None:
    """
    Read a rate limit.

    @param name: The name of the service or method, for errors.
    @param value: A L{RateLimit}, a mapping of its attributes, or C{None} for no limit.
    @raise DefinitionError: If it is invalid.
    """
    if value is None or isinstance(value, RateLimit):
        return value
    if not isinstance(value, Mapping):
        raise DefinitionError(f"the rateLimit of {name} is a mapping")
    _refuseUnknown(value, {"requests", "window"}, f"the rateLimit of {name}")
    for key in ("requests", "window"):
        number = value.get(key)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise DefinitionError(f"rateLimit.{key} of {name} is a positive number")
    return RateLimit(value["requests"], value["window"])


def _refuseUnknown(value: Mapping[str, Any], known: set[str], name: str) -> None:
    for key in value:
        if key not in known:
            raise DefinitionError(f"{name} has no {key!r}; there is {', '.join(sorted(known))}")
