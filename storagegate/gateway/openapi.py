"""
The description of services over HTTP: OpenAPI 3.1, U{https://spec.openapis.org/oas/v3.1.1.html}.

It is generated from the service definitions. A stream is described by the schema of one line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from storagegate.core.errors import CODES
from storagegate.core.invoker import MethodEntry
from storagegate.core.openapi import ERROR, OpenAPIWriter, describeContent, describeParameter
from storagegate.gateway.options import GatewayOptions
from storagegate.gateway.transports.http import BEARER_SCHEME, PROTOCOL, HTTPRoute, readRoutes
from storagegate.net.http.lines import EVENTS, NDJSON
from storagegate.version import __version__

_ERROR = {
    **ERROR,
    "required": ["error", "message"],
    "properties": {**ERROR["properties"], "error": {"type": "string", "examples": list(CODES)}},
}

_TRACE_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$"}

_PARAMETERS = {
    "deadline": {
        "name": "X-Deadline-Ms",
        "in": "header",
        "description": "Timeout of the call in milliseconds, from the arrival of the request",
        "schema": {"type": "integer", "minimum": 1},
    },
    "trace": {
        "name": "traceparent",
        "in": "header",
        "description": "The trace that the call belongs to (W3C Trace Context)",
        "schema": {"type": "string"},
    },
}

_STATUSES = {
    "400": "The request is malformed or invalid",
    "401": "The caller is not authenticated",
    "403": "The caller is not permitted",
    "413": "The request is too large",
    "415": "The request is not JSON",
    "429": "Too many calls",
    "504": "The deadline has passed",
    "default": "The call failed",
}


def describeHTTP(
    methods: Sequence[MethodEntry],
    options: GatewayOptions,
    baseUrl: str,
    apiKeyHeader: str = "X-API-Key",
    traceHeader: str = "X-Trace-ID",
) -> dict[str, Any]:
    """
    Describe services over HTTP.

    @param baseUrl: The prefix of the paths of the methods.
    @param methods: The methods in the order of the document.
    @param options: The options of the gateway.
    @param apiKeyHeader: The header field of API keys.
    @param traceHeader: The header field of trace ids.
    """
    traced = {traceHeader: {"schema": _TRACE_ID}}
    writer = OpenAPIWriter(_ERROR, _STATUSES, traced)
    # Routes come first, tags are in the order of the methods.
    writer.tags |= dict.fromkeys(bound.service.name for bound in methods)
    operations = _MethodWriter(writer, options, traced)
    operations.addRoutes(methods)
    for bound in methods:
        path = f"/{quote(bound.service.name)}/{quote(bound.name)}"
        writer.add(path, "post", partial(operations.ofMethod, bound))
    components = {
        "parameters": _PARAMETERS,
        "securitySchemes": {
            "token": BEARER_SCHEME,
            "apiKey": {"type": "apiKey", "in": "header", "name": apiKeyHeader},
        },
    }
    return writer.document("Services", __version__, [baseUrl or "/"], components)


class _MethodWriter:
    """Writes the operations of methods."""

    def __init__(
        self, writer: OpenAPIWriter, options: GatewayOptions, traced: dict[str, Any]
    ) -> None:
        self._writer = writer
        self._collection = writer.collection
        self._traced = traced
        http = options.of(PROTOCOL)
        self._routes = readRoutes(http.routes)
        self._isTransformed = http.transformResponse is not None

    def addRoutes(self, methods: Iterable[MethodEntry]) -> None:
        """Describe the configured routes, except wildcard routes, which OpenAPI cannot express."""
        byName = {(bound.service.name, bound.name): bound for bound in methods}
        for route in self._routes:
            bound = byName.get((route.service, route.method))
            if bound is not None:
                describe = partial(self._ofRoute, bound, route)
                self._writer.add(route.path, route.verb, describe)

    def ofMethod(self, bound: MethodEntry, path: str) -> dict[str, Any]:
        """Describe the path that every method has."""
        operation = self._operation(bound, f"{bound.service.name}.{bound.name}")
        request = self._collection.request(bound) or {"type": "object"}
        operation["requestBody"] = _body(bound, request)
        return operation

    def _ofRoute(self, bound: MethodEntry, route: HTTPRoute, path: str) -> dict[str, Any]:
        operation = self._operation(bound, f"{route.verb} {path}")
        request = self._collection.request(bound)
        schema = self._collection.resolved(request)
        properties, required = schema.get("properties", {}), schema.get("required", ())
        inPath = re.findall(r"\{(.*?)\}", path)
        for name in inPath:
            part = properties.get(name, {"type": "string"})
            operation["parameters"].append(describeParameter(name, "path", part, True))
        rest = {name: part for name, part in properties.items() if name not in inPath}
        needed = [name for name in required if name in rest]
        if not route.takesBody:
            for name, part in rest.items():
                operation["parameters"].append(
                    describeParameter(name, "query", part, name in needed)
                )
        elif bound.method.streamsRequests or not inPath:
            operation["requestBody"] = _body(bound, request or {"type": "object"})
        else:
            whole: dict[str, Any] = {**schema, "type": "object", "properties": rest}
            operation["requestBody"] = _body(bound, {**whole, "required": needed})
        return operation

    def _operation(self, bound: MethodEntry, operationId: str) -> dict[str, Any]:
        response = self._collection.response(bound)
        schema: dict[str, Any] = {}
        if not self._isTransformed:
            schema = {"type": "object", "required": ["data"], "properties": {"data": response}}
        if bound.method.streamsResponses:
            content = {
                **describeContent(schema, NDJSON),
                **describeContent({"type": "string"}, EVENTS),
            }
        else:
            content = describeContent(schema)
        ok = {"description": "The result", "headers": self._traced, "content": content}
        return {
            "operationId": operationId,
            "tags": [bound.service.name],
            "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in _PARAMETERS],
            "responses": {"200": ok, **self._writer.errors(_errorsOf(bound))},
            "security": _security(bound),
            "x-streaming": bound.method.streaming,
        }


def _body(bound: MethodEntry, schema: Mapping[str, Any]) -> dict[str, Any]:
    if bound.method.streamsRequests:
        return {"required": True, "content": describeContent(schema, NDJSON)}
    # An empty body is an empty object.
    shown = bound.method.shownInput
    if shown is None:
        shown = {} if bound.input is None else bound.input.document
    isNeeded = bool(shown.get("required"))
    return {"required": isNeeded, "content": describeContent(schema)}


def _errorsOf(bound: MethodEntry) -> list[str]:
    """Return the statuses of the errors that calls of a method can have."""
    authentication = bound.service.authentication
    possible = {
        "401": not bound.isPublic,
        "403": authentication.authorize is not None,
        "429": bound.rates is not None,
    }
    return [status for status in _STATUSES if possible.get(status, True)]


def _security(bound: MethodEntry) -> list[dict[str, list[str]]]:
    """Return the accepted credentials; a public method accepts them and requires none."""
    providers = bound.service.authentication.methods or ("jwt", "apikey", "oauth")
    ways: list[dict[str, list[str]]] = [] if not bound.isPublic else [{}]
    if "jwt" in providers or "oauth" in providers:
        ways.append({"token": []})
    if "apikey" in providers:
        ways.append({"apiKey": []})
    return ways
