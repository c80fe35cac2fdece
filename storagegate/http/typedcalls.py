"""
Calls of typed handlers: the body of a request, the call of the function, and its result.

See L{storagegate.http.typedhandlers}, which compiles them.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, update_wrapper
from types import CoroutineType
from typing import Any, is_typeddict

import msgspec
from msgspec import NODEFAULT

from storagegate.core.dependencies import CallPlan, DependencyCalls
from storagegate.core.errors import ServiceError
from storagegate.core.modeldefaults import completerOf
from storagegate.core.schemas import AnySchema, convertTexts, fittedResult
from storagegate.core.task import resolve
from storagegate.core.typeschemas import TypeSchema, isModel
from storagegate.core.validationerrors import errorDetail, errorDetails
from storagegate.http.encoding import INLINE_SIZE
from storagegate.http.middleware.bodyparser import parseJSON, urlencoded
from storagegate.http.middleware.upload import upload
from storagegate.http.options import DEFAULT_BODY_SIZE
from storagegate.http.response import HTTPResponse
from storagegate.http.typedroutes import (
    FunctionTypes,
    continueHere,
    isForm,
    isJSON,
    notJSON,
    parseJSONBody,
)
from storagegate.http.websocket import WebSocket
from storagegate.net.http.message import READY


def filesOf(req: Any, name: str) -> list[Any]:
    """Return the uploaded files of a field, in any of the forms that C{upload} gives them."""
    files = req.files
    if isinstance(files, Mapping):
        return list(files.get(name, ()))
    found = [req.file] if files is None and req.file is not None else files or ()
    return [each for each in found if each.fieldname == name]


def _bodyOf(req: Any) -> Any:
    """
    Return the parsed body; C{None} if it is absent, or C{null}.

    @raise ServiceError: C{UNSUPPORTED_MEDIA_TYPE} if it is not JSON.
    """
    body = req.body
    if body is None and _isSent(req) and not isJSON(req):
        raise notJSON()
    return body


def _isSent(req: Any) -> bool:
    """Return whether there is a body, other than an empty one of a declared length."""
    return bool(req.raw.contentLength != 0)


def readBody(schema: AnySchema, default: Any, req: Any) -> Any:
    """Read a parameter that is the whole body."""
    body = _bodyOf(req)
    if type(body) is getattr(schema, "model", None):
        # Decoded at once.
        return body
    if body is None:
        if default is not NODEFAULT:
            return default
        if not _isSent(req):
            # The mistakes then name the missing members.
            body = {}
    elif isinstance(body, dict) and isForm(req):
        body = convertTexts(body, schema.document)
    return schema.read(body)


def readMember(schema: AnySchema, name: str, default: Any, req: Any) -> Any:
    """Read a parameter that is a member of the body."""
    body = _bodyOf(req)
    if body is not None and not isinstance(body, Mapping):
        raise errorDetail("", "must be an object")
    value = None if body is None else body.get(name)
    if value is None:
        if default is not NODEFAULT:
            return default
        raise errorDetail(name, "is required")
    try:
        return schema.read(value)
    except ServiceError as error:
        if error.code != "VALIDATION_ERROR":
            raise
        mistakes = [(each["path"], each["message"]) for each in error.details]
    # A path that begins with an index follows without a dot.
    dots = [("" if path.startswith("[") or not path else ".") for path, _ in mistakes]
    raise errorDetails(
        (f"{name}{dot}{path}", message) for dot, (path, message) in zip(dots, mistakes, strict=True)
    )


class JSONSource:
    """The JSON body of a request."""

    def __init__(self, schema: AnySchema | None) -> None:
        """
        @param schema: The type of the body.
        """
        self._decode = bodyDecoder(schema)

    def prepare(self, req: Any, res: Any) -> Awaitable[Any] | None:
        """
        Parse the body, unless a parser did; return an awaitable if that takes time.

        A small body of the usual media type that has arrived is decoded as its type at once, in a
        fifth of the time of the parser and the conversion. Its mistakes are found by them.
        """
        if req.body is not None or not _isSent(req):
            return None
        if self._decode is not None:
            raw = req.raw
            headers, length = raw.headers, raw.contentLength
            isPlain = headers.get(b"content-type") == b"application/json"
            if isPlain and length is not None and length <= INLINE_SIZE:
                wire = None if b"content-encoding" in headers else req.takeBody()
                if wire is not None:
                    try:
                        req.body = self._decode(wire)
                    except (ValueError, RecursionError):
                        req.body = parseJSON(wire, "utf-8", strict=False)
                    return None
        parsing = parseJSONBody(req, res, continueHere)
        return None if parsing is READY else parsing


def bodyDecoder(schema: AnySchema | None) -> Callable[[bytes], Any] | None:
    """
    Return the decoder of a body whose type is a class.

    @return: Raises C{ValueError} for any other body; C{None} if the type is not a class of msgspec,
        attrs or dataclasses.
    """
    if not isinstance(schema, TypeSchema) or schema.isForeign:
        return None
    model = schema.model
    if not isModel(model) or is_typeddict(model):
        return None
    decode = msgspec.json.Decoder(model).decode
    complete = completerOf(model)
    if complete is None:
        return decode

    def decodeCompleted(wire: bytes) -> Any:
        found = decode(wire)
        complete(found)
        return found

    return decodeCompleted


class FormSource:
    """The form of a request."""

    def __init__(self, files: Mapping[str, int | None]) -> None:
        """
        @param files: Maximum number of files by field; C{None} for no limit.
        """
        fields = [{"name": name, "maxCount": count} for name, count in files.items()]
        self._multipart = upload().fields(fields) if fields else upload().none()
        self._urlencoded = urlencoded(limit=DEFAULT_BODY_SIZE)

    def prepare(self, req: Any, res: Any) -> Awaitable[Any] | None:
        """
        Parse the form, unless a parser did; return an awaitable if that takes time.

        @raise ServiceError: C{UNSUPPORTED_MEDIA_TYPE} if the body is not a form.
        """
        isParsed = req.body is not None or req.files is not None or req.file is not None
        if isParsed or not _isSent(req):
            return None
        if req.is_("multipart"):
            parsing = self._multipart(req, res, continueHere)
        elif req.is_("urlencoded"):
            parsing = self._urlencoded(req, res, continueHere)
        else:
            raise ServiceError(
                "UNSUPPORTED_MEDIA_TYPE",
                "The body must be a form, multipart/form-data or application/x-www-form-urlencoded",
                415,
            )
        return None if parsing is READY else parsing


class HandlerResult:
    """The declared type of a handler's result."""

    def __init__(
        self, name: str, schema: AnySchema | None, allowsNone: bool, isEmpty: bool
    ) -> None:
        """
        @param name: The method and the path, for errors.
        @param schema: Reduces a result to the type; C{None} for none.
        @param allowsNone: Whether C{None} is a result.
        @param isEmpty: Whether it is the only one: C{204 No Content}.
        """
        self._name = name
        # A TypeSchema has a form that needs no mappings.
        self._check = None if schema is None else getattr(schema, "shaped", schema.check)
        self._allowsNone = allowsNone
        self._isEmpty = isEmpty

    def answer(self, result: Any, res: Any) -> Any:
        """
        Respond with a result, if there is one.

        @raise ValueError: If it does not match the type.
        """
        check = self._check
        if result is None:
            if res.unanswered:
                if self._isEmpty:
                    res.status(204 if res.statusCode == 200 else res.statusCode).end()
                elif check is not None and self._allowsNone:
                    res.json(None)
            return None
        if check is None or result is res or isResponse(type(result)) or not res.unanswered:
            return result
        res.json(fittedResult(check, self._name, result))
        return None


def isResponse(found: Any) -> bool:
    """Return whether a class is that of a response, of the framework or the Fetch standard."""
    if not isinstance(found, type):
        return False
    # The Fetch standard takes 10 ms to import: without it there is no such result.
    fetch = sys.modules.get("storagegate.http.fetch")
    return issubclass(found, HTTPResponse) or (
        fetch is not None and issubclass(found, fetch.Response)
    )


class TypedFunction:
    """
    A typed handler, as dispatch calls it.

    @ivar routeTypes: Its types.
    """

    routeTypes: FunctionTypes

    def __init__(
        self,
        function: Callable[..., Any],
        plan: CallPlan,
        source: JSONSource | FormSource | None,
        result: HandlerResult,
        types: FunctionTypes,
    ) -> None:
        """
        @param source: Parses the body; C{None} if no parameter needs it.
        """
        self._plan = plan
        self._source = source
        self._result = result
        self._hasDependencies = bool(plan.dependencies)
        self.routeTypes = types
        # The attributes are not copied.
        update_wrapper(self, function, updated=())

    def __call__(self, req: Any, res: Any) -> Any:
        """
        Read the parameters, and call the function.

        @raise ServiceError: C{VALIDATION_ERROR} with all mistakes of the request.
        """
        if self._hasDependencies:
            return self._callWithDependencies(req, res)
        source = self._source
        if source is not None:
            parsing = source.prepare(req, res)
            if parsing is not None:
                return self._callLater(parsing, req, res)
        result = self._run(req)
        if hasattr(result, "__await__"):
            return self._answerLater(result, res)
        return self._result.answer(result, res)

    def _run(self, req: Any) -> Any:
        """Read the parameters of a function without dependencies, and call it."""
        plan = self._plan
        values = plan.blank()
        mistakes = plan.read(req, values)
        if mistakes:
            raise errorDetails(mistakes)
        return plan.apply(values)

    async def _answerLater(self, result: Awaitable[Any], res: Any) -> Any:
        return self._result.answer(await result, res)

    async def _callLater(self, parsing: Awaitable[Any], req: Any, res: Any) -> Any:
        await parsing
        result = self._run(req)
        return self._result.answer(await result if hasattr(result, "__await__") else result, res)

    def _callWithDependencies(self, req: Any, res: Any) -> Any:
        calls = DependencyCalls(req, req.app.dependencies)
        try:
            values = self._plan.begin(calls)
            isPending = type(values) is CoroutineType
            parsing = None
            if not isPending and self._source is not None:
                parsing = self._source.prepare(req, res)
            if isPending or parsing is not None:
                return self._finishLater(calls, values, parsing, req, res)
            calls.finish(self._plan, values)
            result = self._plan.apply(values)
            if hasattr(result, "__await__"):
                return self._finish(calls, result, req, res)
            result = self._result.answer(result, res)
        except BaseException as error:
            _endLater(calls, req, error)
            raise
        _endLater(calls, req, None)
        return result

    async def _finish(
        self, calls: DependencyCalls, result: Awaitable[Any], req: Any, res: Any
    ) -> Any:
        """Wait for the function, answer, and let the dependencies end after the answer."""
        try:
            answer = self._result.answer(await result, res)
        except BaseException as error:
            _endLater(calls, req, error)
            raise
        _endLater(calls, req, None)
        return answer

    async def _finishLater(
        self,
        calls: DependencyCalls,
        values: Any,
        parsing: Awaitable[Any] | None,
        req: Any,
        res: Any,
    ) -> Any:
        return await self._finish(calls, self._runLater(calls, values, parsing, req, res), req, res)

    async def _runLater(
        self,
        calls: DependencyCalls,
        values: Any,
        parsing: Awaitable[Any] | None,
        req: Any,
        res: Any,
    ) -> Any:
        if type(values) is CoroutineType:
            values = await values
            if self._source is not None:
                parsing = self._source.prepare(req, res)
        if parsing is not None:
            await parsing
        calls.finish(self._plan, values)
        result = self._plan.apply(values)
        return await result if hasattr(result, "__await__") else result


class TypedSocket:
    """A handler of WebSockets whose parameters come from the handshake."""

    def __init__(self, plan: CallPlan, position: int) -> None:
        """
        @param position: The position of the WebSocket among the values.
        """
        self._plan = plan
        self._position = position

    async def prepare(self, req: Any) -> "PreparedSocket":
        """
        Read the parameters before the handshake is accepted.

        @raise ServiceError: C{VALIDATION_ERROR} with all mistakes, or the error of a dependency.
        """
        calls = DependencyCalls(req, req.app.dependencies)
        try:
            values = self._plan.begin(calls)
            if type(values) is CoroutineType:
                values = await values
            calls.finish(self._plan, values)
        except BaseException as error:
            _endLater(calls, req, error)
            raise
        return PreparedSocket(self._plan, self._position, calls, values)


class PreparedSocket:
    """A handler of one WebSocket, with its arguments."""

    def __init__(
        self, plan: CallPlan, position: int, calls: DependencyCalls, values: list[Any]
    ) -> None:
        self._plan = plan
        self._position = position
        self._calls = calls
        self._values = values

    async def __call__(self, socket: WebSocket) -> None:
        """Run the handler; the dependencies end after it."""
        self._values[self._position] = socket
        try:
            await resolve(self._plan.apply(self._values))
        except BaseException as error:
            self._calls.end(error)
            raise
        self._calls.end()

    def discard(self, error: BaseException | None = None) -> None:
        """
        End the dependencies of a handshake that was not accepted.

        @param error: The error of the handshake; C{None} if it was refused.
        """
        self._calls.end(error)


def _endLater(calls: DependencyCalls, req: Any, error: BaseException | None) -> None:
    """End the dependencies when the answer has gone, or the client has."""
    if calls.hasOpened:
        req.raw.onEnd(partial(calls.end, error))
