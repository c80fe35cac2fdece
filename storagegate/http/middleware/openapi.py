"""
C{openapi}: a description of an application's routes in OpenAPI 3.1, and a page that shows it.

The description is derived from the patterns and types of routes, and from the names and docstrings
of their handlers. Routes with a regular expression or a wildcard, or for all methods, are omitted.
Only the handler knows the status of a response, so it is C{2XX} unless the route declares it. A
route declares by its keyword C{openapi} what its handler and its types do not contain: see
L{RouteDescription<storagegate.http.options.RouteDescription>}.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from storagegate.core.codecs import JSON
from storagegate.core.definitions import readSchema
from storagegate.core.openapi import (
    ERROR,
    JSON_TYPE,
    OpenAPIWriter,
    describeContent,
    describeParameter,
)
from storagegate.core.options import takesMapping
from storagegate.core.schemas import AnySchema, makeSchema
from storagegate.core.typeschemas import TypeSchema, describeType
from storagegate.http.dispatch import LayerList, MiddlewareHandler
from storagegate.http.options import RouteDescription, readDescription
from storagegate.http.router import RouteInfo, RouteType, walkRoutes

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH"})
"""The methods that OpenAPI 3.1 supports."""

FORM_TYPES = ("multipart/form-data", "application/x-www-form-urlencoded")
"""The media types of a form; only the first one has files."""

_ERRORS = {"400": "The request does not fit", "415": "The body is not JSON"}

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


@frozen(kw_only=True)
class DocumentOptions:
    """
    The parts of a description that do not derive from routes.

    @ivar title: The name of the application.
    @ivar version: The version of the application, not of OpenAPI.
    @ivar servers: The URLs that paths are relative to; a relative one is relative to the document.
    @ivar securitySchemes: The credentials that exist, by name, as OpenAPI's Security Scheme
        Objects.
    @ivar security: The credentials of a route that declares none: alternatives, each a mapping of a
        scheme's name to its scopes.
    @ivar errors: The descriptions of the errors of all routes, by status or C{default}. Of 400 and
        415, a route has those that its types can cause.
    @ivar error: The type of the document of an error, if error handlers write their own.
    """

    title: str = "Application"
    version: str = "1.0.0"
    servers: Sequence[str] = ("/",)
    securitySchemes: Mapping[str, Any] | None = None
    security: Sequence[Mapping[str, Any]] | None = None
    errors: Mapping[str, str] | None = None
    error: RouteType = None


@takesMapping
def openapi(
    *,
    title: str = "Application",
    version: str = "1.0.0",
    docs: bool = True,
    servers: Sequence[str] = ("/",),
    securitySchemes: Mapping[str, Any] | None = None,
    security: Sequence[Mapping[str, Any]] | None = None,
    errors: Mapping[str, str] | None = None,
    error: RouteType = None,
) -> MiddlewareHandler:
    """
    Make middleware that serves the description of the application at C{openapi.json}.

    L{DocumentOptions} describes the other options.

    @param docs: Whether to serve a page C{docs} next to it that shows and calls the routes.
    """
    options = DocumentOptions(
        title=title,
        version=version,
        servers=servers,
        securitySchemes=securitySchemes,
        security=security,
        errors=errors,
        error=error,
    )

    def serve(req: Any, res: Any, next: Callable[..., Any]) -> Any:
        if req.method not in ("GET", "HEAD"):
            return next()
        if req.path == "/openapi.json":
            document = describeRoutes(req.app, options)
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


def describeRoutes(router: LayerList, options: DocumentOptions) -> dict[str, Any]:
    """Describe the routes of a router and of the routers mounted in it."""
    given = readSchema("error", "the application", options.error)
    error = makeSchema(*given, "the error of the application", isKnown=True)
    errors = _ERRORS if options.errors is None else options.errors
    writer = OpenAPIWriter(ERROR if error is None else error.document, errors)
    operations = _OperationWriter(writer, errors)
    for info, pattern in walkRoutes(router, ""):
        if isinstance(pattern.source, str) and info.method in _METHODS:
            operations.add(info)
    return writer.document(
        options.title,
        options.version,
        options.servers,
        {"securitySchemes": options.securitySchemes},
        options.security,
    )


class _OperationWriter:
    """Writes the operations of routes."""

    def __init__(self, writer: OpenAPIWriter, errors: Iterable[str]) -> None:
        self._writer = writer
        self._errors = errors
        self._ids: set[str] = set()

    def add(self, info: RouteInfo) -> None:
        """Describe a route, unless one with the same path and method is described."""
        self._writer.add(info.path, info.method, lambda path: self._operation(info, path))

    def _operation(self, info: RouteInfo, path: str) -> dict[str, Any]:
        said = readDescription(info.openapi or {})
        name = said.operationId or getattr(info.handler, "__name__", "")
        if not name.isidentifier() or name in self._ids:
            name = f"{info.method} {path}"
        self._ids.add(name)
        operation: dict[str, Any] = {"operationId": name, **_words(info.handler, said)}
        tags = [*said.tags] or list(filter(None, [_tagOf(info.mount)]))
        if tags:
            operation["tags"] = tags
        types = info.types
        operation["parameters"] = self._parameters(info, path, name)
        body = self._content(types.body if types else None, f"{name}.body", said.consumes)
        if types is not None and types.form is not None:
            kinds = FORM_TYPES[: 1 if types.hasFiles else 2]
            for kind in kinds:
                body |= describeContent(types.form, kind)
        if body:
            operation["requestBody"] = {"required": True, "content": body}
        response: dict[str, Any] = {"description": "Success"}
        content = self._content(
            types.response if types else None, f"{name}.response", said.produces, isResult=True
        )
        if content:
            response["content"] = content
        operation["responses"] = {said.status: response, **self._errorsOf(info)}
        if said.security is not None:
            operation["security"] = [*said.security]
        return {**operation, **said.extensions}

    def _parameters(self, info: RouteInfo, path: str, name: str) -> list[dict[str, Any]]:
        """Describe the parameters of a route outside of its body."""
        types = info.types
        own = types.parameters if types is not None else ()
        properties, _ = self._parts(types.params if types else None, f"{name}.params")
        inPath = {each.name: each.document for each in own if each.place == "path"}
        found = [
            describeParameter(
                each, "path", properties.get(each) or inPath.get(each, {"type": "string"}), True
            )
            for each in info.params
            if "{" + str(each) + "}" in path
        ]
        properties, required = self._parts(types.query if types else None, f"{name}.query")
        found += [
            describeParameter(each, "query", part, each in required)
            for each, part in properties.items()
        ]
        found += [
            describeParameter(each.name, each.place, each.document, each.isRequired)
            for each in own
            if each.place != "path"
        ]
        return found

    def _errorsOf(self, info: RouteInfo) -> dict[str, Any]:
        """Refer to the errors of a route."""
        types = info.types
        hasBody = types is not None and bool(types.body or types.form)
        caused = {
            "400": types is not None
            and bool(hasBody or types.query or types.params or types.parameters),
            "415": hasBody,
        }
        return self._writer.errors(each for each in self._errors if caused.get(each, True))

    def _content(
        self,
        schema: AnySchema | None,
        name: str,
        mediaTypes: Iterable[str],
        isResult: bool = False,
    ) -> dict[str, Any]:
        """Describe a body: JSON of a type, other media types, or both."""
        content: dict[str, Any] = {}
        if schema is not None:
            content |= describeContent(self._schema(schema, name, isResult))
        for mediaType in mediaTypes:
            if mediaType == JSON_TYPE:
                content |= describeContent({})
            elif mediaType.startswith("text/"):
                content |= describeContent({"type": "string"}, mediaType)
            else:
                # OpenAPI 3.1, section 4.8.14.3: bytes have no schema.
                content[mediaType] = {}
        return content

    def _parts(
        self, schema: AnySchema | None, name: str
    ) -> tuple[Mapping[str, Any], Iterable[str]]:
        """Return the properties of an object, and the names of the required ones."""
        if schema is None:
            return {}, ()
        document = schema.document
        if not isinstance(schema, TypeSchema):
            # It may refer to its own parts, which are then in the document.
            document = self._writer.collection.resolved(self._schema(schema, name, False))
        return document.get("properties", {}), document.get("required", ())

    def _schema(self, schema: AnySchema, name: str, isResult: bool) -> dict[str, Any]:
        """
        Refer to a schema.

        @param name: The name for a schema that has none.
        """
        collection = self._writer.collection
        if not isinstance(schema, TypeSchema):
            return collection.add(name, schema.document)
        return collection.addType(*describeType(schema.model, isResult))


def _words(handler: Callable[..., Any], said: RouteDescription) -> dict[str, str]:
    """
    Return summary and description: by default the first line of the handler's docstring, and the
    rest.
    """
    text = inspect.getdoc(handler) if inspect.isroutine(handler) else None
    summary, _, rest = (text or "").partition("\n")
    words = {
        "summary": said.summary or summary.strip(),
        "description": said.description or ("" if said.summary else rest.strip()),
    }
    return {key: value for key, value in words.items() if value}


def _tagOf(mount: str) -> str:
    """Return the last part of a router's mount path that is not a parameter."""
    parts = [part for part in mount.split("/") if part and ":" not in part and "*" not in part]
    return parts[-1] if parts else ""
