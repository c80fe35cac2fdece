"""UDP in AsyncAPI, imported with the first description."""

from collections.abc import Mapping
from typing import Any

from storagegate.core.invoker import MethodEntry
from storagegate.gateway.asyncapi import ID, Channel, message, objectSchema

_SEQ = {"type": "integer", "minimum": 0}


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
