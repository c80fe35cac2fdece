"""Services with everything that a description has a word for, and helpers to look at one."""

from collections.abc import Iterator
from typing import Any

ROUTES = {
    "GET /orders/:id": "Orders.get",
    "PUT /orders/:id": "Orders.put",
    "GET /find/:customer?": "Orders.get",
    "POST /files/*": "Orders.put",
    "DELETE /orders/:name": "Orders.get",
}


async def _nothing(request: Any, context: Any) -> None:
    """Do nothing."""


ORDER = {
    "type": "object",
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    "properties": {
        "id": {"type": "string", "required": True},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "place": {"type": "array", "items": [{"type": "number"}], "additionalItems": False},
        "parent": {"$ref": "#"},
        "scan": {"type": "string", "contentEncoding": "base64"},
    },
}

ORDERS = {
    "name": "Orders",
    "authentication": {"required": True, "methods": ["apikey"], "authorize": lambda *given: True},
    "rateLimit": {"requests": 5, "window": 1000},
    "methods": {
        "get": {
            "handler": _nothing,
            "input": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "required": True},
                    "customer": {"type": "integer"},
                    "all": {"type": "boolean", "required": True},
                },
            },
            "output": ORDER,
        },
        "put": {"handler": _nothing, "input": ORDER},
        "watch": {"handler": _nothing, "streaming": "server", "output": ORDER},
        "load": {"handler": _nothing, "streaming": "client", "input": ORDER},
        "t~\u00e4lk": {"handler": _nothing, "streaming": "bidirectional"},
    },
}


def references(part: Any) -> Iterator[str]:
    """Give every reference in a document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def resolved(document: Any, reference: str) -> Any:
    """
    Give what a reference leads to.

    @raise KeyError: If it leads nowhere.
    """
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document
