"""
C{openapi}: a description of an application's routes in OpenAPI 3.1, and a page that shows it.

The description is derived from the patterns and types of routes, and from the names and docstrings
of their handlers. Routes with a regular expression or a wildcard, or for all methods, are omitted.
Only the handler knows the status of a response, so it is C{2XX}.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from storagegate.core.codecs import JSON
from storagegate.core.components import (
    JSON_TYPE,
    SchemaCollection,
    describeParameter,
    pathTemplates,
    reference,
)
from storagegate.core.options import takesMapping
from storagegate.core.schemas import AnySchema
from storagegate.core.typeschemas import TypeSchema, isModel, itemOfList
from storagegate.http.dispatch import LayerList, MiddlewareHandler
from storagegate.http.router import RouteInfo, walkRoutes

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}, "details": {}},
}

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH"})
"""The methods that OpenAPI 3.1 supports."""

_STATUSES = {"400": "The request does not fit", "415": "The body is not JSON"}

PAGE: Mapping[str, tuple[str, str]] = {
    "/docs": ("index.html", "html"),
    "/docs/page.js": ("page.js", "text/javascript"),
    "/docs/page.css": ("page.css", "css"),
}
"""The files of the documentation page with their types, by path relative to the description."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page: only its own files and this server."""


@takesMapping
def openapi(
    *, title: str = "Application", version: str = "1.0.0", docs: bool = True
) -> MiddlewareHandler:
    """
    Make middleware that serves the description of the application at C{openapi.json}.

    @param title: The name of the application in the description.
    @param version: The version of the application, not of OpenAPI.
    @param docs: Whether to serve a page C{docs} next to it that shows and calls the routes.
    """

    def serve(req: Any, res: Any, next: Callable[..., Any]) -> Any:
        if req.method not in ("GET", "HEAD"):
            return next()
        if req.path == "/openapi.json":
            document = describeRoutes(req.app, title, version)
            return res.type("json").send(JSON.encode(document))
        return sendPage(res, req.path) if docs and req.path in PAGE else next()

    return serve


def sendPage(res: Any, path: str) -> Any:
    """
    Send a file of the page for people.

    @param path: One of L{PAGE}.
    """
    name, kind = PAGE[path]
    content = (Path(__file__).parent.parent / "page" / name).read_bytes()
    res.header("Content-Security-Policy", _POLICY).header("X-Content-Type-Options", "nosniff")
    return res.type(kind).send(content)


def describeRoutes(router: LayerList, title: str, version: str) -> dict[str, Any]:
    """
    Describe the routes of a router and of the routers mounted in it.

    @param title: The name of the application.
    @param version: The version of the application.
    """
    description = _Description()
    for info, pattern in walkRoutes(router, ""):
        if isinstance(pattern.source, str) and info.method in _METHODS:
            description.add(info)
    return {
        "openapi": "3.1.1",
        "info": {"title": title, "version": version},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in description.tags],
        "paths": description.paths,
        "components": {
            "schemas": {**description.collection.schemas, "Error": _ERROR},
            "responses": {
                status: {"description": text, "content": _content(reference("Error"))}
                for status, text in _STATUSES.items()
            },
        },
    }


class _Description:
    """
    A description under construction.

    @ivar paths: The path items, by template.
    @ivar tags: The names of the mounted routers, as keys.
    """

    def __init__(self) -> None:
        self.collection = SchemaCollection(modern=True)
        self.collection.schemas["Error"] = _ERROR
        self.paths: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, None] = {}
        # Paths that differ only in parameter names are the same path, described once.
        self._known: dict[str, str] = {}
        self._ids: set[str] = set()

    def add(self, info: RouteInfo) -> None:
        """Describe a route, unless one with the same path and method is described."""
        for path in pathTemplates(info.path):
            shape = re.sub(r"\{.*?\}", "{}", path)
            if self._known.setdefault(shape, path) == path:
                item = self.paths.setdefault(path, {})
                verb = info.method.lower()
                if verb not in item:
                    item[verb] = self._operation(info, path)

    def _operation(self, info: RouteInfo, path: str) -> dict[str, Any]:
        types = info.types
        name = getattr(info.handler, "__name__", "")
        if not name.isidentifier() or name in self._ids:
            name = f"{info.method} {path}"
        self._ids.add(name)
        operation: dict[str, Any] = {"operationId": name, **_words(info.handler)}
        tag = _tagOf(info.mount)
        if tag:
            self.tags[tag] = None
            operation["tags"] = [tag]
        inPath = [each for each in info.params if "{" + str(each) + "}" in path]
        properties, _ = self._parts(types.params if types else None, f"{name}.params")
        operation["parameters"] = [
            describeParameter(each, "path", properties.get(each, {"type": "string"}), True)
            for each in inPath
        ]
        properties, required = self._parts(types.query if types else None, f"{name}.query")
        operation["parameters"] += [
            describeParameter(each, "query", part, each in required)
            for each, part in properties.items()
        ]
        response: dict[str, Any] = {"description": "Success"}
        operation["responses"] = responses = {"2XX": response}
        if types is not None:
            if types.response is not None:
                response["content"] = _content(self._schema(types.response, f"{name}.response"))
            if types.body is not None:
                content = _content(self._schema(types.body, f"{name}.body"))
                operation["requestBody"] = {"required": True, "content": content}
                responses["415"] = {"$ref": "#/components/responses/415"}
            if types.body or types.query or types.params:
                responses["400"] = {"$ref": "#/components/responses/400"}
        return operation

    def _parts(
        self, schema: AnySchema | None, name: str
    ) -> tuple[Mapping[str, Any], Iterable[str]]:
        """Return the properties of an object, and the names of the required ones."""
        if schema is None:
            return {}, ()
        document = schema.document
        if not isinstance(schema, TypeSchema):
            # It may refer to its own parts, which are then in the document.
            document = self.collection.resolved(self._schema(schema, name))
        return document.get("properties", {}), document.get("required", ())

    def _schema(self, schema: AnySchema, name: str) -> dict[str, Any]:
        """
        Refer to a schema.

        @param name: The name for a schema that has none.
        """
        if not isinstance(schema, TypeSchema):
            return self.collection.add(name, schema.document)
        item = itemOfList(schema.model)
        if isModel(item):
            items = self.collection.add(item.__name__, schema.document["items"])
            return {"type": "array", "items": items}
        named = schema.model.__name__ if isinstance(schema.model, type) else name
        return self.collection.add(named, schema.document)


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {JSON_TYPE: {"schema": schema}}


def _words(handler: Callable[..., Any]) -> dict[str, str]:
    """Return summary and description: the first line of a docstring, and the rest."""
    text = inspect.getdoc(handler) if inspect.isroutine(handler) else None
    summary, _, rest = (text or "").partition("\n")
    words = {"summary": summary.strip(), "description": rest.strip()}
    return {key: value for key, value in words.items() if value}


def _tagOf(mount: str) -> str:
    """Return the last part of a router's mount path that is not a parameter."""
    parts = [part for part in mount.split("/") if part and ":" not in part and "*" not in part]
    return parts[-1] if parts else ""
