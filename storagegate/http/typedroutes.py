"""
Typed routes: validation of requests and of the results of handlers.

The body, query and path parameters are checked and converted before the last handler of such a
route runs, and after the other handlers, which may refuse the request. The result of the last
handler is checked and sent as JSON. A response that it sends itself is not checked.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, lru_cache, update_wrapper
from inspect import isroutine
from typing import Any

from attrs import frozen

from storagegate.core.definitions import readSchema
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import AnySchema, checkResult, convertTexts, makeSchema
from storagegate.http.contenttypes import isToolDefault, matchesType
from storagegate.http.dispatch import ERROR_HANDLER, Handler, HandlerTask
from storagegate.http.middleware.bodyparser import json
from storagegate.http.options import DEFAULT_BODY_SIZE
from storagegate.net.http.message import READY, Completed


class RouteTypes:
    """
    The types of a route as schemas; C{None} for any value.

    A schema whose type a function returns is made on first use, any other one at once.

    @ivar name: The method and the path, for errors.
    @cvar parameters: Empty: all parameters are in the types.
    @cvar form: C{None}: forms are parsed by middleware.
    @cvar hasFiles: C{False}.
    """

    parameters = ()
    form = None
    hasFiles = False

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        """
        @param given: The types by the names of the properties.
        @raise DefinitionError: If a type is invalid.
        """
        self.name = name
        self._given = given
        for key, value in given.items():
            if not isroutine(value):
                getattr(self, key)

    @cached_property
    def body(self) -> AnySchema | None:
        """The type of the body."""
        return self._schema("body")

    @cached_property
    def query(self) -> AnySchema | None:
        """The type of the query."""
        return self._schema("query")

    @cached_property
    def params(self) -> AnySchema | None:
        """The type of the path parameters, as an object."""
        return self._schema("params")

    @cached_property
    def response(self) -> AnySchema | None:
        """The type of the result."""
        return self._schema("response")

    @property
    def hasResponse(self) -> bool:
        """Whether a type of the result is declared, which may not be made yet."""
        return "response" in self._given

    def _schema(self, key: str) -> AnySchema | None:
        given = self._given.get(key)
        value = given() if isroutine(given) else given
        takesLists = key in ("body", "response")
        schema, model = readSchema(key, self.name, value, takesLists=takesLists)
        return makeSchema(schema, model, f"the {key} of {self.name}")


@frozen
class RouteParameter:
    """
    A parameter of a route outside of its body, for descriptions.

    @ivar place: C{path}, C{query}, C{header} or C{cookie}.
    @ivar document: The JSON Schema of its value.
    """

    name: str
    place: str
    document: Mapping[str, Any]
    isRequired: bool


class FunctionTypes:
    """
    The types of a typed handler, as schemas; see
    L{RouteTypes}.

    @ivar params: The type of all parameters of the path, if one parameter has them all.
    @ivar query: The same for the query.
    @ivar body: The type of the JSON body.
    @ivar response: The type of the result.
    @ivar form: The JSON Schema of the form; C{None} without one.
    @ivar hasFiles: Whether the form has files.
    @ivar parameters: The parameters that are no members of these.
    """

    def __init__(self) -> None:
        self.params: AnySchema | None = None
        self.query: AnySchema | None = None
        self.body: AnySchema | None = None
        self.response: AnySchema | None = None
        self.form: Mapping[str, Any] | None = None
        self.hasFiles = False
        self.parameters: list[RouteParameter] = []

    def add(self, parameter: RouteParameter) -> None:
        """Add a parameter, unless another function of the route has the same one."""
        known = [(each.name, each.place) for each in self.parameters]
        if (parameter.name, parameter.place) not in known:
            self.parameters.append(parameter)


def typedHandlers(
    handlers: tuple[Handler, ...], name: str, types: Mapping[str, Any]
) -> tuple[Handler, ...]:
    """
    Apply the types of a route to its last handler that is not an error handler.

    @param name: The method and the path, for errors.
    @param types: Models, schemas that are mappings, and functions that return one, by the names in
        L{RouteTypes}.
    @raise DefinitionError: If a type is invalid.
    @raise TypeError: If all handlers are error handlers.
    """
    given = RouteTypes(name, types)
    last = max((at for at, (_, kind) in enumerate(handlers) if kind != ERROR_HANDLER), default=-1)
    if last < 0:
        raise TypeError(f"{name} has types but no handler that uses them")
    typed = TypedHandler(handlers[last], given)
    return (*handlers[:last], (typed, 3), *handlers[last + 1 :])


def isJSON(req: Any) -> bool:
    """Return whether the body of a request counts as JSON."""
    headers = req.raw.headers
    contentType = headers.get(b"content-type")
    return contentType is None or isToolDefault(headers) or _matches(contentType, _JSON_TYPES)


def isForm(req: Any) -> bool:
    """Return whether the body of a request is a form."""
    contentType = req.raw.headers.get(b"content-type")
    return contentType is not None and _matches(contentType, _FORM_TYPES)


_JSON_TYPES = ("json", "+json")
_FORM_TYPES = ("urlencoded", "multipart")


# As many as clients of one application have; parsing one takes as long as parsing a small body.
@lru_cache(maxsize=64)
def _matches(contentType: bytes, types: tuple[str, ...]) -> bool:
    return matchesType(contentType.decode("latin-1"), types) is not None


# The application's limit also applies. An earlier parser has its own limit.
parseJSONBody = json(limit=DEFAULT_BODY_SIZE, strict=False, type=isJSON)
"""The parser of bodies with a type: middleware, whose C{next} is L{continueHere}."""


def continueHere() -> Completed:
    """Continue after middleware, in the caller."""
    return READY


def notJSON() -> ServiceError:
    """Make the error of a body that is not JSON."""
    return ServiceError(
        "UNSUPPORTED_MEDIA_TYPE",
        "The body must be JSON, with Content-Type: application/json",
        415,
    )


class TypedHandler:
    """
    A handler with the types of its route.

    @ivar routeTypes: The types.
    """

    routeTypes: RouteTypes

    def __init__(self, handler: Handler, types: RouteTypes) -> None:
        self._function, self._kind = handler
        self.routeTypes = types
        # The attributes are not copied.
        update_wrapper(self, self._function, updated=())

    def __call__(self, req: Any, res: Any, next: Callable[..., Any]) -> Any:
        """
        Check the request, and call the handler.

        @raise ServiceError: C{VALIDATION_ERROR} if the request does not match the types.
        """
        types = self.routeTypes
        if types.params is not None:
            req.params = readTexts(types.params, req.params)
        if types.query is not None:
            req.query = readTexts(types.query, req.query)
        if types.body is not None:
            if req.body is None:
                # A function without a reference to this call, which would make a cycle.
                parsing = parseJSONBody(req, res, continueHere)
                if parsing is not READY:
                    return self._callLater(parsing, req, res, next)
            self._readBody(types.body, req)
        return self._call(req, res, next)

    async def _callLater(self, parsing: Awaitable[Any], req: Any, res: Any, next: Any) -> Any:
        await parsing
        assert self.routeTypes.body is not None
        self._readBody(self.routeTypes.body, req)
        result = self._call(req, res, next)
        return await result if hasattr(result, "__await__") else result

    def _readBody(self, schema: AnySchema, req: Any) -> None:
        body = req.body
        if body is None and not req.hasBody:
            body = {}
        elif body is None and not isJSON(req):
            raise notJSON()
        if isinstance(body, dict) and isForm(req):
            body = convertTexts(body, schema.document)
        req.body = schema.read(body)

    def _call(self, req: Any, res: Any, next: Any) -> Any:
        result = self._function(req, res, next) if self._kind == 3 else self._function(req, res)
        if not self.routeTypes.hasResponse or isinstance(result, (HandlerTask, Completed)):
            # A HandlerTask or Completed is the result of next().
            return result
        if hasattr(result, "__await__"):
            return self._answerLater(result, res)
        return self._answer(result, res)

    async def _answerLater(self, result: Awaitable[Any], res: Any) -> Any:
        return self._answer(await result, res)

    def _answer(self, result: Any, res: Any) -> Any:
        """
        Respond with a result, if there is one.

        @raise ValueError: If it does not match the type.
        """
        if result is None or not res.unanswered:
            return result
        # Imported with the first result: the Fetch standard takes 10 ms.
        from storagegate.http.fetch import Response

        if isinstance(result, Response):
            return result
        schema = self.routeTypes.response
        if schema is None:
            return result
        if result is not res:
            res.json(checkResult(schema, self.routeTypes.name, result))
        return None


def readTexts(schema: AnySchema, values: Mapping[Any, Any]) -> Any:
    """Check and convert a query, or the parameters of a path; absent ones are C{None}."""
    named = {name: value for name, value in values.items() if value is not None}
    return schema.read(convertTexts(named, schema.document))
