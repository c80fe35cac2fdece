"""
Services in the gateway's form, C{handler(request, context)}, behind a gRPC server.

The service's definition and the proto it is served by are put together here: its handlers get the
context that every wire gives, and what the proto has no room for is left out of their results.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from storagegate.core.context import Client, RequestContext
from storagegate.core.definitions import ServiceDefinition
from storagegate.core.tracing import newTracing, parseTraceparent
from storagegate.rpc.call import Call
from storagegate.rpc.definitions import RPCService

Shape = Callable[[Any], Any]
"""Makes what goes on the wire of what a handler gave."""


def implementService(
    definition: ServiceDefinition, service: RPCService, shapes: Mapping[str, Shape] | None = None
) -> dict[str, Callable[[Call], Any]]:
    """
    Make the implementation of a loaded service of a service in the gateway's form.

    @param shapes: By method with a single response, what becomes of one that the proto cannot carry
        as it is.
    @return: For C{addService(definition=service, implementation=...)}: what the service and the
        definition both have.
    """
    return {
        name: _adapt(definition, name, (shapes or {}).get(name))
        for name in definition.methods
        if service.find(name) is not None
    }


def contextOf(call: Call, service: str) -> RequestContext:
    """Tell of a call what the gateway tells its handlers on every wire."""
    headers: dict[str, str] = {}
    for name, value in call.metadata:
        if isinstance(value, str):
            headers.setdefault(name, value)
    peer = call.getPeer()
    address, _, port = peer.rpartition(":")
    if peer.startswith("unix:"):
        address, port = peer, "0"
    return RequestContext(
        protocol="grpc",
        service=service,
        method=call.method,
        client=Client(
            id=peer,
            address=address.strip("[]"),
            port=int(port) if port.isdigit() else 0,
            userAgent=headers.get("user-agent"),
        ),
        tracing=parseTraceparent(headers.get("traceparent", "")) or newTracing(),
        headers=headers,
        metadata={} if call.deadline is None else {"deadline": call.deadline},
        authentication=call.user,
    )


def _adapt(definition: ServiceDefinition, name: str, shape: Shape | None) -> Callable[[Call], Any]:
    method = definition.methods[name]
    handler = method.handler

    def call(call: Call) -> Any:
        request = call.requests if method.streamsRequests else call.request
        return handler(request, contextOf(call, definition.name))

    if shape is None:
        return call
    return _shaped(call, shape)


def _shaped(answer: Callable[[Call], Any], shape: Shape) -> Callable[[Call], Any]:
    async def shaped(call: Call) -> Any:
        result = answer(call)
        return shape(await result if inspect.isawaitable(result) else result)

    return shaped
