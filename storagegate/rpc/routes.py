"""What answers each method: the handlers of a service beside its definition."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.logger import Logger

from storagegate.core.definitions import DefinitionError, ServiceDefinition, readService
from storagegate.rpc.call import Call
from storagegate.rpc.definitions import RPCMethod, RPCService
from storagegate.rpc.protos import loadedService
from storagegate.rpc.schemas import serviceFromSchemas

Answer = Callable[[Call], Any]
"""Gives a method's result, something to wait for, or an iterable of results."""

_log = Logger()


@frozen
class Route:
    """
    One method with its handler.

    @ivar answer: C{None} if the service has no handler for it.
    """

    service: RPCService
    method: RPCMethod
    answer: Answer | None


Routes = dict[str, Route]
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
        method.path: Route(service, method, handlers.get(name))
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
