"""
Typed routes: validation of requests and of the results of handlers.

The body, query and path parameters are checked and converted before the last handler of such a
route runs, and after the other handlers, which may refuse the request. The result of the last
handler is checked and sent as JSON. A response that it sends itself is not checked.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, update_wrapper
from inspect import isroutine
from typing import Any

from storagegate.core.definitions import readSchema
from storagegate.core.errors import ServiceError
from storagegate.core.schemas import AnySchema, checkResult, convertTexts, makeSchema
from storagegate.http.contenttypes import isToolDefault
from storagegate.http.dispatch import ERROR_HANDLER, Handler, HandlerTask
from storagegate.http.middleware.bodyparser import json
from storagegate.http.options import DEFAULT_BODY_SIZE
from storagegate.net.http.message import READY, Completed


class RouteTypes:
    """
    The types of a route as schemas; C{None} for any value.

    A schema whose type a function returns is made on first use, any other one at once.

    @ivar name: The method and the path, for errors.
    """

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


def _isJSON(req: Any) -> bool:
    headers = req.raw.headers
    return (
        b"content-type" not in headers or isToolDefault(headers) or bool(req.is_("json", "+json"))
    )


# The application's limit also applies. An earlier parser has its own limit.
_parseBody = json(limit=DEFAULT_BODY_SIZE, strict=False, type=_isJSON)


def _ready() -> Completed:
    return READY


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
            req.params = _readTexts(types.params, req.params)
        if types.query is not None:
            req.query = _readTexts(types.query, req.query)
        if types.body is not None:
            if req.body is None:
                # A function without a reference to this call, which would make a cycle.
                parsing = _parseBody(req, res, _ready)
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
        elif body is None and not _isJSON(req):
            raise ServiceError(
                "UNSUPPORTED_MEDIA_TYPE",
                "The body must be JSON, with Content-Type: application/json",
                415,
            )
        if isinstance(body, dict) and req.is_("urlencoded", "multipart"):
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


def _readTexts(schema: AnySchema, values: Mapping[Any, Any]) -> Any:
    """Check and convert a query, or the parameters of a path; absent ones are C{None}."""
    named = {name: value for name, value in values.items() if value is not None}
    return schema.read(convertTexts(named, schema.document))
