"""
The description of services over message transports: AsyncAPI 3,
U{https://www.asyncapi.com/docs/reference/specification/v3.0.0}.

Each transport is a channel, see L{Channel}; a method is an operation on it, a request with a reply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from storagegate.core.components import SchemaCollection, componentName, reference
from storagegate.core.errors import CODES
from storagegate.core.invoker import MethodEntry
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.registry import findTransport, loadReference
from storagegate.version import __version__

ID: Mapping[str, Any] = {
    "type": ["string", "integer"],
    "description": "Returned with every response",
}
"""The schema of a call's id."""

_REQUEST = {
    "id": ID,
    "auth": {"type": "object", "properties": {"token": {"type": "string"}}},
    "deadlineMs": {"type": "number", "exclusiveMinimum": 0},
    "traceparent": {"type": "string"},
    "tracestate": {"type": "string"},
}

_ERROR = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}, "details": {}},
}

_CODE = {"type": "string", "examples": list(CODES)}


class Channel:
    """
    A transport as a channel: by default, frames or lines of JSON without a C{type}.

    A transport's row in the registry names its subclass.

    @ivar name: The transport's name.
    @cvar protocol: The protocol of the server; C{None} for the transport's name.
    @cvar description: A description of the protocol.
    """

    protocol: str | None = None
    description: str | None = None

    def __init__(self, name: str, settings: GatewayOptions) -> None:
        """
        @param settings: The options of the gateway.
        """
        self.name = name
        self.settings = settings
        self.options: Any = settings.of(name)

    @property
    def address(self) -> str | None:
        """Return the address of the channel on its server; C{None} without one."""
        return None

    def host(self) -> str:
        """Return the host and port of the server."""
        port = getattr(self.options, "port", self.settings.port)
        hostname = getattr(self.options, "hostname", None) or self.settings.hostname
        return f"[{hostname}]:{port}" if ":" in hostname else f"{hostname}:{port}"

    def server(self) -> dict[str, Any]:
        """Describe the server."""
        server = {"host": self.host(), "protocol": self.protocol or self.name}
        return server if self.description is None else {**server, "description": self.description}

    def answer(self, bound: MethodEntry, data: Mapping[str, Any]) -> dict[str, Any]:
        """
        Describe the response of a method, or an item of its stream.

        @param data: The schema of the method's result or item.
        """
        # A request without an id gets the bare result.
        return {"anyOf": [objectSchema({"id": ID, "data": data}, "id", "data"), data]}

    def messages(self) -> dict[str, dict[str, Any]]:
        """Describe the messages that belong to no method, by name."""
        own = {"id": ID, "error": reference("ErrorCode")}
        return {
            "clientItem": message(objectSchema({"id": ID, "data": {}})),
            "clientEnd": message(objectSchema({"id": ID})),
            "cancel": message(objectSchema({"id": ID})),
            "end": message(objectSchema({"id": ID})),
            "error": message({"allOf": [reference("Error"), {"properties": own}]}),
        }


def objectSchema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """
    Make the schema of an object.

    @param required: The required properties.
    """
    shape: dict[str, Any] = {"type": "object", "properties": properties}
    return {**shape, "required": list(required)} if required else shape


def message(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Make a message from the schema of its content."""
    return {"payload": payload}


def describeMessages(
    methods: Sequence[MethodEntry], options: GatewayOptions, baseUrl: str = ""
) -> dict[str, Any]:
    """Describe services over the enabled message transports."""
    collection = SchemaCollection(modern=False)
    described: list[Channel] = []
    for name in options.enabled:
        describe = findTransport(name).describe
        if describe is not None:
            described.append(loadReference(describe)(name, options))
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for channel in described:
        name = channel.name
        own = channel.messages()
        for bound in methods:
            answers = _methodMessages(channel, bound, collection)
            own.update(answers)
            operation = componentName(name, bound.service.name, bound.name)
            operations[operation] = _operation(name, bound, list(answers))
        channels[name] = {
            "address": channel.address,
            "servers": [{"$ref": f"#/servers/{name}"}],
            "messages": {key: {"$ref": f"#/components/messages/{name}.{key}"} for key in own},
        }
        messages.update({f"{name}.{key}": each for key, each in own.items()})
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Services", "version": __version__},
        "defaultContentType": "application/json",
        "servers": {channel.name: channel.server() for channel in described},
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {"Error": _ERROR, "ErrorCode": _CODE, **collection.schemas},
        },
    }


def _operation(name: str, bound: MethodEntry, names: Sequence[str]) -> dict[str, Any]:
    """
    Describe a method as an operation.

    @param names: The names of its messages, the request first.
    """
    channel = f"#/channels/{name}"
    inputs = [names[0]]
    answers = [*names[1:], "error"]
    if bound.method.streamsRequests:
        inputs += ["clientItem", "clientEnd"]
    if bound.method.streamsResponses:
        answers.append("end")
    return {
        "action": "receive",
        "channel": {"$ref": channel},
        "tags": [{"name": bound.service.name}],
        "messages": [{"$ref": f"{channel}/messages/{each}"} for each in inputs],
        "reply": {
            "channel": {"$ref": channel},
            "messages": [{"$ref": f"{channel}/messages/{each}"} for each in answers],
        },
    }


def _methodMessages(
    channel: Channel, bound: MethodEntry, collection: SchemaCollection
) -> dict[str, dict[str, Any]]:
    """Describe the request of a method, and its response or an item of its stream."""
    service, name = bound.service.name, bound.name
    request = {
        **_REQUEST,
        "service": {"const": service},
        "method": {"const": name},
        "data": collection.request(bound),
    }
    kind = "item" if bound.method.streamsResponses else "response"
    answer = channel.answer(bound, collection.response(bound))
    return {
        componentName(service, name, "request"): message(
            objectSchema(request, "service", "method")
        ),
        componentName(service, name, kind): message(answer),
    }
