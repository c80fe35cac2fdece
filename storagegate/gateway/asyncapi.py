"""
The description of services over WebSocket, TCP and UDP: AsyncAPI 3,
U{https://www.asyncapi.com/docs/reference/specification/v3.0.0}.

Each wire is a channel; a method is an operation on it, a request with a reply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from storagegate import __version__
from storagegate.core.errors import CODES
from storagegate.core.invoker import MethodEntry
from storagegate.gateway.openapi import SchemaCollection, componentName, reference
from storagegate.gateway.options import GatewayOptions

_ID = {"type": ["string", "integer"], "description": "Comes back with every answer"}

_REQUEST = {
    "id": _ID,
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

_FRAMES = {"tcp": "Framed JSON, and lines of the messages of WebSocket", "udp": "Framed JSON"}


def describeMessages(
    methods: Sequence[MethodEntry], options: GatewayOptions, baseUrl: str = ""
) -> dict[str, Any]:
    """Describe services over the wires of messages that are on."""
    collection = SchemaCollection(modern=False)
    wires = [wire for wire in ("websocket", "tcp", "udp") if wire in options.enabled]
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for wire in wires:
        channel = channels[wire] = _channel(wire, options)
        own = _wireMessages(wire)
        for bound in methods:
            answers = _methodMessages(wire, bound, collection)
            own.update(answers)
            name = componentName(wire, bound.service.name, bound.name)
            operations[name] = _operation(wire, bound, list(answers))
        channel["messages"] = {
            name: {"$ref": f"#/components/messages/{wire}.{name}"} for name in own
        }
        messages.update({f"{wire}.{name}": message for name, message in own.items()})
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Services", "version": __version__},
        "defaultContentType": "application/json",
        "servers": {wire: _server(wire, options) for wire in wires},
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {"Error": _ERROR, "ErrorCode": _CODE, **collection.schemas},
        },
    }


def _server(wire: str, options: GatewayOptions) -> dict[str, Any]:
    if wire == "websocket":
        return {
            "host": _host(options.hostname, options.port),
            "protocol": "ws",
            "pathname": options.websocket.path,
        }
    own = options.tcp if wire == "tcp" else options.udp
    host = _host(own.hostname or options.hostname, own.port)
    return {"host": host, "protocol": wire, "description": _FRAMES[wire]}


def _host(hostname: str, port: int) -> str:
    return f"[{hostname}]:{port}" if ":" in hostname else f"{hostname}:{port}"


def _channel(wire: str, options: GatewayOptions) -> dict[str, Any]:
    address = options.websocket.path if wire == "websocket" else None
    return {"address": address, "servers": [{"$ref": f"#/servers/{wire}"}]}


def _operation(wire: str, bound: MethodEntry, names: Sequence[str]) -> dict[str, Any]:
    """
    Describe a method as an operation.

    @param names: Those of its messages, the request first.
    """
    channel = f"#/channels/{wire}"
    asked = [names[0]]
    answers = [*names[1:], "error"]
    if bound.method.streamsRequests:
        asked += ["clientItem", "clientEnd"]
    if bound.method.streamsResponses:
        answers.append("end")
    return {
        "action": "receive",
        "channel": {"$ref": channel},
        "tags": [{"name": bound.service.name}],
        "messages": [{"$ref": f"{channel}/messages/{name}"} for name in asked],
        "reply": {
            "channel": {"$ref": channel},
            "messages": [{"$ref": f"{channel}/messages/{name}"} for name in answers],
        },
    }


def _methodMessages(
    wire: str, bound: MethodEntry, collection: SchemaCollection
) -> dict[str, dict[str, Any]]:
    """Describe the request of a method, and its response or an item of it."""
    service, name = bound.service.name, bound.name
    request = {
        **_REQUEST,
        "service": {"const": service},
        "method": {"const": name},
        "data": collection.request(bound),
    }
    data = collection.response(bound)
    streams = bound.method.streamsResponses
    kind = "item" if streams else "response"
    if wire == "websocket":
        answer: Any = {"id": _ID, "type": {"const": "stream" if streams else kind}, "data": data}
        if not streams:
            answer.update(method={"const": name}, timestamp={"type": "integer"})
        answer = _object(answer, "type", "data")
    elif wire == "udp" and streams:
        answer = _object({"id": _ID, "seq": {"type": "integer", "minimum": 0}, "data": data})
    else:
        # Without an id it is the bare result.
        answer = {"anyOf": [_object({"id": _ID, "data": data}, "id", "data"), data]}
    return {
        componentName(service, name, "request"): _message(_object(request, "service", "method")),
        componentName(service, name, kind): _message(answer),
    }


def _wireMessages(wire: str) -> dict[str, dict[str, Any]]:
    """Describe the messages that belong to no method."""
    if wire == "websocket":
        detailed = {"allOf": [reference("Error"), {"properties": {"code": reference("ErrorCode")}}]}
        return {
            "clientItem": _message(_typed("stream", {"data": {}})),
            "clientEnd": _message(_typed("stream_end")),
            "cancel": _message(_typed("cancel")),
            "end": _message(_typed("stream_end")),
            "error": _message(_typed("error", {"error": detailed})),
        }
    own = {"id": _ID, "error": reference("ErrorCode")}
    item: dict[str, Any] = {"id": _ID, "data": {}}
    if wire == "udp":
        item["seq"] = {"type": "integer", "minimum": 0}
    return {
        "clientItem": _message(_object(item)),
        "clientEnd": _message(_object({"id": _ID})),
        "cancel": _message(_object({"id": _ID})),
        "end": _message(_object({"id": _ID})),
        "error": _message({"allOf": [reference("Error"), {"properties": own}]}),
    }


def _typed(kind: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return _object({"id": _ID, "type": {"const": kind}, **(more or {})}, "type")


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "properties": properties}
    return {**shape, "required": list(required)} if required else shape


def _message(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"payload": payload}
