"""
One call on its way through middleware and handler to its status.

What answers each method: the handlers of a service beside its definition.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import CoroutineType
from typing import Any

from attrs import frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.definitions import DefinitionError, ServiceDefinition, readService
from storagegate.core.errors import (
    GRPC_STATUSES,
    UNKNOWN_MESSAGE,
    GrpcError,
    asGrpcError,
    codedError,
    isExpected,
)
from storagegate.core.schemas import ResultStream
from storagegate.core.task import Task
from storagegate.rpc.call import Call, RequestStream
from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import IServerCall, Metadata
from storagegate.rpc.protos import RPCMethod, RPCService, loadedService, serviceFromSchemas
from storagegate.rpc.status import DETAILS_KEY, encodeDetails, statusMessage

Answer = Callable[[Call], Any]
"""Gives a method's result, something to wait for, or an iterable of results."""

_log = Logger()


@frozen
class GRPCRoute:
    """
    One method with its handler.

    @ivar answer: C{None} if the service has no handler for it.
    """

    service: RPCService
    method: RPCMethod
    answer: Answer | None


Routes = dict[str, GRPCRoute]
"""By path."""

# What the gateway does with a definition, and nothing here: to leave it out would open a door.
_GATEWAY_ONLY = ("authentication", "middleware", "rateLimit")


def serviceRoutes(service: Any, rest: Any, named: Mapping[str, Any]) -> tuple[RPCService, Routes]:
    """
    Read a service with its handlers, in whichever form.

    @param service: A name, a loaded service, a mapping or a C{ServiceDefinition}.
    @param rest: The methods, or a mapping that has them; the implementation of a loaded service.
    @param named: C{name}, C{definition} and C{implementation}; C{None} is what was not said.
    @raise DefinitionError: If it is none.
    """
    if isinstance(service, ServiceDefinition):
        return definedRoutes(service)
    words: dict[str, Any] = {}
    if isinstance(service, RPCService):
        words = {"definition": service, "implementation": rest}
    elif isinstance(service, Mapping):
        words = dict(service)
    elif service is not None and not isinstance(service, str):
        raise DefinitionError(f"a service is a mapping or a loaded one, not {service!r:.80}")
    else:
        # As the gateway takes it.
        isWhole = isinstance(rest, Mapping) and isinstance(rest.get("methods"), Mapping)
        words = {**(rest if isWhole else {"methods": rest}), "name": service}
    words |= {key: value for key, value in named.items() if value is not None}
    if "definition" not in words:
        return definedRoutes(readService(words))
    definition, implementation = words["definition"], words.get("implementation")
    if not isinstance(definition, RPCService):
        raise DefinitionError(f"definition is a service of a loaded proto, not {definition!r:.80}")
    return definition, implementedRoutes(
        definition, {} if implementation is None else implementation
    )


def implementedRoutes(service: RPCService, implementation: Any) -> Routes:
    """
    Put a loaded service and functions of a call together.

    @param implementation: A mapping of method names, or an object that has methods of these names;
        as in the definition or in camelCase.
    @raise DefinitionError: If there is a handler for no method, or two for one, or it is no
        function.
    """
    handlers: dict[str, Answer] = {}
    if isinstance(implementation, Mapping):
        for name, value in implementation.items():
            method = service.find(name) if isinstance(name, str) else None
            if method is None:
                known = ", ".join(sorted(service.methods))
                raise DefinitionError(f"{service.name} has no method {name!r}; there is {known}")
            if method.name in handlers:
                raise DefinitionError(f"{service.name} has two handlers for {method.name}")
            if not callable(value):
                raise DefinitionError(f"{service.name}.{name} is no function")
            handlers[method.name] = value
    else:
        for name, method in service.methods.items():
            value = getattr(implementation, name, None)
            if value is None and service.find(method.camelName) is method:
                value = getattr(implementation, method.camelName, None)
            if callable(value):
                handlers[name] = value
    for name in service.methods:
        if name not in handlers:
            _log.warn("not implemented: {service}.{name}", service=service.name, name=name)
    return {
        method.path: GRPCRoute(service, method, handlers.get(name))
        for name, method in service.methods.items()
    }


def definedRoutes(definition: ServiceDefinition) -> tuple[RPCService, Routes]:
    """
    Find the messages for a definition whose handlers take C{(request)} or C{(request, call)}.

    @raise DefinitionError: If it asks for what only the gateway does, or cannot be one of gRPC.
    """
    _refuseGatewayOnly(definition)
    service = _loadedService(definition)
    if service is None:
        service = serviceFromSchemas(definition)
    answers = {
        name: _requestAnswer(method.handler, service.methods[name].streaming)
        for name, method in definition.methods.items()
    }
    return service, implementedRoutes(service, answers)


def _refuseGatewayOnly(definition: ServiceDefinition) -> None:
    plain = ServiceDefinition(definition.name, {})
    asked = [key for key in _GATEWAY_ONLY if getattr(definition, key) != getattr(plain, key)]
    for name, method in definition.methods.items():
        if method.authentication is not None:
            asked.append(f"{name}.authentication")
        if method.rateLimit is not None:
            asked.append(f"{name}.rateLimit")
    if asked:
        raise DefinitionError(
            f"{definition.name} has {', '.join(asked)}, which is for the gateway: "
            "a gRPC application has middleware"
        )


def _loadedService(definition: ServiceDefinition) -> RPCService | None:
    """Give the loaded service for a definition that says nothing of messages itself."""
    if any(method.input or method.output for method in definition.methods.values()):
        return None
    service = loadedService(definition.name)
    if service is None or definition.methods.keys() <= service.methods.keys():
        return service
    # Names are taken to the letter: this is another service, or a misspelt one.
    _log.warn(
        "{service} has other methods than in {file}, whose messages it does not get",
        service=definition.name,
        file=service.file.name,
    )
    return None


def _requestAnswer(handler: Callable[..., Any], streaming: str) -> Answer:
    takesCall = _takesCall(handler)
    if streaming in ("client", "bidirectional"):
        if takesCall:
            return lambda call: handler(call.requests, call)
        return lambda call: handler(call.requests)
    if takesCall:
        return lambda call: handler(call.request, call)
    return lambda call: handler(call.request)


def _takesCall(handler: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (ValueError, TypeError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if required > 2 or not positional:
        name = getattr(handler, "__qualname__", repr(handler))
        raise DefinitionError(f"{name} takes neither (request) nor (request, call)")
    # A parameter with a default is the handler's own, unless its name says otherwise.
    return required == 2 or (len(positional) > 1 and positional[1].name in ("call", "context"))


Middleware = Callable[[Call, Callable[[], Awaitable[Any]]], Any]
"""C{async (call, next)}: what it returns is the response, or nothing, and that of next stands."""

_INVALID_ARGUMENT = GRPC_STATUSES["INVALID_ARGUMENT"]
_UNIMPLEMENTED = GRPC_STATUSES["UNIMPLEMENTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]

_NOTHING = object()

Refused = Callable[[Call, Exception], object]
"""Called with a call that no handler is asked about, and why."""


class CallDispatch(Task):
    """
    A call that is being answered.

    The common call, one request and one response of a handler that does not wait, takes none of
    the machinery here but C{_received} and C{_respond}.
    """

    __slots__ = ("_call", "_compresses", "_ended", "_middleware", "_refused", "_route", "_wire")

    def __init__(
        self,
        wire: IServerCall,
        route: GRPCRoute,
        middleware: Sequence[Middleware],
        compresses: Callable[[int], bool],
        ended: Callable[[], object],
        refused: Refused,
    ) -> None:
        """
        @param middleware: The first one outermost.
        @param compresses: Tells whether a message of so many bytes is to be compressed.
        @param ended: Called once the handler has ended, whether its client waited or not.
        @param refused: Called if the handler is not asked, and the client has not left.
        """
        self._wire = wire
        self._route = route
        self._middleware = middleware
        self._compresses = compresses
        self._ended = ended
        self._refused = refused
        self._call = Call(wire, route.service.name, route.method.name)

    def begin(self) -> None:
        """Read what the method needs, and answer."""
        if self._route.method.streaming in ("client", "bidirectional"):
            # Nothing of this object: the garbage collector would have to find the circle.
            decode = partial(_decode, self._route.method.request)
            self._call.requests = RequestStream(self._wire, decode)
            self._answer()
        else:
            self._wire.read(self._received)

    def _received(self, message: bytes | None) -> None:
        if message is None:
            self._refuseNothing()
            return
        try:
            self._call.request = _decode(self._route.method.request, message)
        except Exception as error:
            self._refuse(error)
            return
        self._answer()

    def _refuse(self, error: Exception) -> None:
        self._refused(self._call, error)
        self.failed(error)

    def _refuseNothing(self) -> None:
        """Refuse a call that has no request."""
        if self._wire.isRefused:
            self._refuse(codedError("PAYLOAD_TOO_LARGE", "The request is too long, or damaged"))
            return
        reason = f"{self._wire.path} takes exactly one request, and there was none"
        error = GrpcError(_UNIMPLEMENTED, reason)
        refused, call = self._refused, self._call

        def closed(isCancelled: bool) -> None:
            if not isCancelled:
                refused(call, error)

        # Of a client that leaves before its request came, as much is known until the end.
        self._wire.whenClosed(closed)
        self.failed(error)

    def _handler(self) -> Any:
        """
        Give what answers.

        @raise GrpcError: If nothing does.
        """
        answer = self._route.answer
        if answer is None:
            error = GrpcError(_UNIMPLEMENTED, f"{self._wire.path} is not implemented")
            self._refused(self._call, error)
            raise error
        return answer

    def _answer(self) -> None:
        method = self._route.method
        if not self._middleware and method.streaming == "none":
            try:
                result = self._handler()(self._call)
            except BaseException as error:
                self.failed(error)
                return
            if type(result) is CoroutineType:
                super().__init__(result)
                self.step()
            elif hasattr(result, "__await__"):
                super().__init__(_wait(result))
                self.step()
            else:
                self.returned(result)
        else:
            super().__init__(self._pass(0))
            # A client may leave before such a handler waits for anything.
            self._wire.watch(self.cancel)
            self.step()

    async def _pass(self, position: int) -> Any:
        """Go through the middleware from a position on, to the handler."""
        if position == len(self._middleware):
            return await self._handle()
        step = _Next(self, position + 1)
        result = self._middleware[position](self._call, step)
        # Twice where a coroutine returns next() without waiting for it, as in JavaScript.
        while hasattr(result, "__await__"):
            result = await result
        return await step.outcome() if result is None else result

    async def _handle(self) -> Any:
        result = self._handler()(self._call)
        if hasattr(result, "__await__"):
            result = await result
        if self._route.method.streaming in ("none", "client"):
            return result
        await self._sendAll(result)
        return _NOTHING

    async def _sendAll(self, results: Any) -> None:
        """Send a stream of responses, no faster than the client takes them."""
        async with ResultStream(results, self._wire.path) as items:
            async for result in items:
                if not self._send(result):
                    await self._wire.drained()
                    if self._wire.isOver:
                        raise CancelledError

    def _send(self, result: Any) -> bool:
        message = self._encode(result)
        return self._wire.send(message, self._isCompressed(message))

    def _encode(self, result: Any) -> bytes:
        try:
            return self._route.method.response.encode(result)
        except ConversionError as error:
            raise ValueError(f"the result of {self._wire.path} does not fit: {error}") from None

    def _isCompressed(self, message: bytes) -> bool:
        return self._call.compress and self._compresses(len(message))

    def waits(self) -> None:
        """Watch the client from the first time that something is waited for."""
        self._wire.watch(self.cancel)

    def returned(self, value: Any) -> None:
        """Send the response and C{OK}."""
        if self._route.method.streaming in ("server", "bidirectional"):
            if value is not _NOTHING:
                kind = type(value).__name__
                reason = f"no {kind} of a middleware replaces the stream of {self._wire.path}"
                self.failed(TypeError(reason))
                return
            self._wire.finish(0, "", self._call.trailers)
        else:
            try:
                message = self._encode(value)
            except Exception as error:
                self.failed(error)
                return
            self._wire.reply(message, self._call.trailers, self._isCompressed(message))
        self._ended()

    def failed(self, error: BaseException) -> None:
        """Send the status of an error."""
        try:
            self._tell(error)
        except Exception:
            _log.failure("{path} failed with an error that cannot be told", path=self._wire.path)
            self._wire.finish(_INTERNAL, UNKNOWN_MESSAGE)
        self._ended()

    def _tell(self, error: BaseException) -> None:
        if not self._wire.isOver:
            if not isExpected(error):
                _log.failure(
                    "{path} failed", Failure(error), path=self._wire.path, peer=self._wire.peer()
                )
            self._finish(asGrpcError(error))
        elif not isinstance(error, CancelledError | GeneratorExit) and not isExpected(error):
            _log.failure(
                "{path} failed after its client had left", Failure(error), path=self._wire.path
            )

    def _finish(self, error: GrpcError) -> None:
        trailers: Metadata = self._call.trailers
        if error.details is not None:
            details = encodeDetails(error)
            if details is not None:
                trailers = [*trailers, (DETAILS_KEY, details)]
        self._wire.finish(error.status, statusMessage(error.message), trailers)


class _Next:
    """
    What a middleware calls to go on.

    It gives something to wait for; what is not waited for by the middleware's end runs then.
    """

    __slots__ = ("_position", "_result", "_run", "_state")

    def __init__(self, run: CallDispatch, position: int) -> None:
        self._run = run
        self._position = position
        self._state = "unused"
        self._result: Any = None

    def __call__(self) -> "_Next":
        if self._state != "unused":
            raise RuntimeError("next was called twice")
        self._state = "called"
        return self

    def __await__(self) -> Any:
        if self._state == "called":
            self._state = "awaited"
            self._result = yield from self._run._pass(self._position).__await__()
        return None if self._result is _NOTHING else self._result

    async def outcome(self) -> Any:
        """Give what the rest of the chain gave, where the middleware itself gave nothing."""
        if self._state == "called":
            await self
        return self._result


def _decode(codec: MessageCodec, message: bytes) -> Any:
    try:
        return codec.decode(message)
    except ConversionError as error:
        raise GrpcError(_INVALID_ARGUMENT, str(error)) from None


async def _wait(result: Awaitable[Any]) -> Any:
    return await result
