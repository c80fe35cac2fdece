"""What answers each method: the handlers of a service beside its definition."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.logger import Logger

from storagegate.core.definitions import DefinitionError, ServiceDefinition
from storagegate.rpc.call import Call
from storagegate.rpc.definitions import RPCMethod, RPCService

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


def implementedRoutes(service: RPCService, implementation: Any) -> dict[str, Route]:
    """
    Put a loaded service and functions of a call together.

    @param implementation: A mapping of method names, or an object that has methods of these names;
        as in the definition or in camelCase.
    @return: By path.
    @raise DefinitionError: If there is a handler for no method, or it is no function.
    """
    handlers: dict[str, Answer] = {}
    if isinstance(implementation, Mapping):
        for name, value in implementation.items():
            method = service.find(name)
            if method is None:
                known = ", ".join(sorted(service.methods))
                raise DefinitionError(f"{service.name} has no method {name!r}; there is {known}")
            if not callable(value):
                raise DefinitionError(f"{service.name}.{name} is no function")
            handlers[method.name] = value
    else:
        for name in service.methods:
            camel = name[:1].lower() + name[1:]
            value = getattr(implementation, name, None) or getattr(implementation, camel, None)
            if callable(value):
                handlers[name] = value
    for name in service.methods:
        if name not in handlers:
            _log.warn("not implemented: {service}.{name}", service=service.name, name=name)
    return {
        method.path: Route(service, method, handlers.get(name))
        for name, method in service.methods.items()
    }


def definedRoutes(service: RPCService, definition: ServiceDefinition) -> dict[str, Route]:
    """
    Put a service and the handlers of its definition together: C{(request)} or C{(request, call)}.

    @return: By path.
    @raise DefinitionError: If there is a handler for no method.
    """
    answers = {}
    for name, method in definition.methods.items():
        found = service.find(name)
        if found is None:
            known = ", ".join(sorted(service.methods))
            raise DefinitionError(f"{service.name} has no method {name!r}; there is {known}")
        answers[found.name] = _requestAnswer(method.handler, found.streaming)
    return implementedRoutes(service, answers)


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
