"""
The routes of a gRPC server: a handler for each method of a service.
"""

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from attrs import evolve
from google.protobuf.message import Message
from msgspec import Struct
from twisted.logger import Logger

from storagegate.core.definitions import (
    DefinitionError,
    ServiceDefinition,
    ServiceMethod,
    readService,
)
from storagegate.core.schemas import ResultStream, checkResult, makeSchema, methodProjection
from storagegate.core.task import resolve
from storagegate.core.typeschemas import TypeSchema
from storagegate.rpc.call import Call
from storagegate.rpc.protos import RPCMethod, RPCService, loadedService

_log = Logger()

Handler = Callable[[Call], Any]
"""Returns a method's result, an awaitable of it, or an iterable of results."""


class GRPCRoute(Struct, frozen=True):
    """
    One method with its handler.

    @ivar handler: C{None} if the method is not implemented.
    """

    service: RPCService
    method: RPCMethod
    handler: Handler | None


Routes = dict[str, GRPCRoute]
"""The routes by path."""

# Only the gateway enforces these: a definition with them is refused, not served unprotected.
_GATEWAY_ONLY = ("authentication", "middleware", "rateLimit")

Inject = Callable[[Callable[..., Any], str, int, bool], Callable[..., Any] | None]
"""See L{injectedHandler<storagegate.core.injection.injectedHandler>}, without the container."""


def serviceRoutes(
    service: Any,
    rest: Any,
    named: Mapping[str, Any],
    generate: Callable[[ServiceDefinition], RPCService],
    inject: Inject | None = None,
) -> tuple[RPCService, Routes]:
    """
    Read a service with its handlers, in any of the forms of C{addService}.

    @param service: A name, a loaded service, a mapping or a C{ServiceDefinition}.
    @param rest: The methods, a mapping that contains them, or the implementation of a loaded
        service.
    @param named: C{name}, C{definition} and C{implementation}; C{None} if absent.
    @param generate: Makes the service of a definition, with its messages.
    @param inject: Adapts handlers with dependencies; C{None} to support none.
    @raise DefinitionError: If the arguments do not define a service.
    """
    if isinstance(service, ServiceDefinition):
        return definedRoutes(service, generate, inject)
    words: dict[str, Any] = {}
    if isinstance(service, RPCService):
        words = {"definition": service, "implementation": rest}
    elif isinstance(service, Mapping):
        words = dict(service)
    elif service is not None and not isinstance(service, str):
        raise DefinitionError(f"a service is a mapping or a loaded one, not {service!r:.80}")
    else:
        # The form of the gateway.
        isWhole = isinstance(rest, Mapping) and isinstance(rest.get("methods"), Mapping)
        words = {**(rest if isWhole else {"methods": rest}), "name": service}
    words |= {key: value for key, value in named.items() if value is not None}
    if "definition" not in words:
        return definedRoutes(readService(words), generate, inject)
    definition, implementation = words["definition"], words.get("implementation")
    if not isinstance(definition, RPCService):
        raise DefinitionError(f"definition is a service of a loaded proto, not {definition!r:.80}")
    return definition, implementedRoutes(
        definition, {} if implementation is None else implementation, inject
    )


def implementedRoutes(
    service: RPCService, implementation: Any, inject: Inject | None = None
) -> Routes:
    """
    Make the routes of a loaded service; its handlers take the call.

    @param service: The service as its file defines it.
    @param implementation: A mapping of method names, or an object with methods of these names.
        Names are as in the definition or in camelCase.
    @param inject: See L{serviceRoutes}.
    @raise DefinitionError: If a handler matches no method, a method has two handlers, or a handler
        is not a function.
    """
    handlers: dict[str, Handler] = {}
    if isinstance(implementation, Mapping):
        for name, value in implementation.items():
            method = service.find(name) if isinstance(name, str) else None
            if method is None:
                known = ", ".join(sorted(service.methods))
                raise DefinitionError(
                    f"{service.name} has no method {name!r}; its methods: {known}"
                )
            if method.name in handlers:
                raise DefinitionError(f"{service.name} has two handlers for {method.name}")
            if not callable(value):
                raise DefinitionError(f"{service.name}.{name} is not a function")
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
        elif inject is not None:
            streams = service.methods[name].streaming in ("server", "bidirectional")
            whole = f"{service.name}.{name}"
            handlers[name] = inject(handlers[name], whole, 1, streams) or handlers[name]
    return {
        method.path: GRPCRoute(service, method, handlers.get(name))
        for name, method in service.methods.items()
    }


def definedRoutes(
    definition: ServiceDefinition,
    generate: Callable[[ServiceDefinition], RPCService],
    inject: Inject | None = None,
) -> tuple[RPCService, Routes]:
    """
    Make the service and routes of a definition whose handlers take C{(request)} or C{(request,
    call)}.

    @param generate: Makes the service, unless a loaded file has it.
    @param inject: See L{serviceRoutes}.
    @raise DefinitionError: If it has options of the gateway, or cannot be a gRPC service.
    """
    _refuseGatewayOnly(definition)
    loaded = _loadedService(definition)
    streaming = {} if loaded is None else loaded.methods
    handlers = {}
    for name, method in definition.methods.items():
        whole = f"{definition.name}.{name}"
        injected = inject and inject(method.handler, whole, 2, method.streamsResponses)
        known = method if injected is None else evolve(method, handler=injected)
        kind = streaming[name].streaming if name in streaming else method.streaming
        handlers[name] = _typedHandler(whole, known, kind)
    # Last, because the server keeps what it generates.
    service = generate(definition) if loaded is None else loaded
    return service, implementedRoutes(service, handlers)


def _refuseGatewayOnly(definition: ServiceDefinition) -> None:
    plain = ServiceDefinition(definition.name, {})
    refused = [key for key in _GATEWAY_ONLY if getattr(definition, key) != getattr(plain, key)]
    for name, method in definition.methods.items():
        if method.authentication is not None:
            refused.append(f"{name}.authentication")
        if method.rateLimit is not None:
            refused.append(f"{name}.rateLimit")
    if refused:
        raise DefinitionError(
            f"{definition.name} has {', '.join(refused)}, which only the gateway supports: "
            "use middleware in a gRPC application"
        )


def _loadedService(definition: ServiceDefinition) -> RPCService | None:
    """Return the loaded service of a definition without schemas."""
    if any(method.input or method.output for method in definition.methods.values()):
        return None
    service = loadedService(definition.name)
    if service is None or definition.methods.keys() <= service.methods.keys():
        return service
    # Names are compared exactly: this is another service, or a misspelled one.
    _log.warn(
        "{service} has methods that {file} does not define, so its messages are not used",
        service=definition.name,
        file=service.file.name,
    )
    return None


def _requestHandler(
    handler: Callable[..., Any], streaming: str, convert: Callable[[Any], Any] | None = None
) -> Handler:
    """
    Adapt a handler that takes C{(request)} or C{(request, call)} to take a call.

    @param convert: Converts the request, or the stream of requests; C{None} for no conversion.
    """
    takesCall = _takesCall(handler)
    name = "requests" if streaming in ("client", "bidirectional") else "request"
    if convert is not None:
        if takesCall:
            return lambda call: handler(convert(getattr(call, name)), call)
        return lambda call: handler(convert(getattr(call, name)))
    if name == "requests":
        if takesCall:
            return lambda call: handler(call.requests, call)
        return lambda call: handler(call.requests)
    if takesCall:
        return lambda call: handler(call.request, call)
    return lambda call: handler(call.request)


def _typedHandler(name: str, method: ServiceMethod, streaming: str) -> Handler:
    """Adapt the handler of a method, with its types and schemas, to take a call."""
    if method.inputType is None:
        handler = _requestHandler(method.handler, streaming)
    else:
        read = TypeSchema(method.inputType, method.input or {}).read
        convert = partial(_convertEach, read) if method.streamsRequests else read
        handler = _requestHandler(method.handler, streaming, convert)
    output = makeSchema(method.output, method.outputType, f"the output of {name}")
    if output is None:
        return handler
    project = methodProjection(method)

    def shaped(result: Any) -> Any:
        if isinstance(result, Message):
            # A message already has exactly the fields of the output.
            return result
        found = checkResult(output, name, result)
        return found if project is None else project(found)

    if method.streamsResponses:

        async def each(call: Call) -> AsyncIterator[Any]:
            async with ResultStream(await resolve(handler(call)), name) as items:
                async for item in items:
                    yield shaped(item)

        return each

    async def handle(call: Call) -> Any:
        return shaped(await resolve(handler(call)))

    return handle


async def _convertEach(
    convert: Callable[[Any], Any], requests: AsyncIterable[Any]
) -> AsyncIterator[Any]:
    async for request in requests:
        yield convert(request)


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
    # A parameter with a default is not passed, except under one of these names.
    return required == 2 or (len(positional) > 1 and positional[1].name in ("call", "context"))
