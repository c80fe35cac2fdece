"""TCP, UDP and WebSocket in AsyncAPI. Imported with the first description."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.components import reference
from storagegate.core.invoker import MethodEntry
from storagegate.gateway.asyncapi import ID, Channel, message, objectSchema

_SEQ = {"type": "integer", "minimum": 0}


class TCPChannel(Channel):
    """The channel of TCP."""

    description = "Framed JSON, and lines of the messages of WebSocket"


class UDPChannel(Channel):
    """The channel of UDP: items of streams are numbered."""

    description = "Framed JSON"

    def answer(self, bound: MethodEntry, data: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a response or an item."""
        if bound.method.streamsResponses:
            return objectSchema({"id": ID, "seq": _SEQ, "data": data})
        return super().answer(bound, data)

    def messages(self) -> dict[str, dict[str, Any]]:
        """Describe the messages that belong to no method."""
        item = message(objectSchema({"id": ID, "data": {}, "seq": _SEQ}))
        return {**super().messages(), "clientItem": item}


class WebSocketChannel(Channel):
    """The channel of WebSocket, whose messages have a type."""

    protocol = "ws"

    @property
    def address(self) -> str | None:
        """Return the path."""
        path: str = self.options.path
        return path

    def server(self) -> dict[str, Any]:
        """Describe the server, which HTTP shares."""
        return {**super().server(), "pathname": self.options.path}

    def answer(self, bound: MethodEntry, data: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a response or an item."""
        streams = bound.method.streamsResponses
        kind = {"const": "stream" if streams else "response"}
        answer: dict[str, Any] = {"id": ID, "type": kind, "data": data}
        if not streams:
            answer.update(method={"const": bound.name}, timestamp={"type": "integer"})
        return objectSchema(answer, "type", "data")

    def messages(self) -> dict[str, dict[str, Any]]:
        """Describe the messages that belong to no method."""
        detailed = {"allOf": [reference("Error"), {"properties": {"code": reference("ErrorCode")}}]}
        return {
            "clientItem": _typed("stream", {"data": {}}),
            "clientEnd": _typed("stream_end"),
            "cancel": _typed("cancel"),
            "end": _typed("stream_end"),
            "error": _typed("error", {"error": detailed}),
        }


def _typed(kind: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return message(objectSchema({"id": ID, "type": {"const": kind}, **(more or {})}, "type"))
