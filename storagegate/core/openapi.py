"""
The writer of OpenAPI 3.1 documents, U{https://spec.openapis.org/oas/v3.1.1.html}.

Routes of the framework, methods of the gateway and operations of the console differ in what an
operation contains. Paths, components, references and the responses of errors are the same in all
documents, and are written here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from storagegate.core.components import SchemaCollection, reference

JSON_TYPE = "application/json"

VERSION = "3.1.1"
"""The version of OpenAPI."""

ERROR: Mapping[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}, "details": {}},
}
"""The schema of the document of an error."""

_PARAMETER = re.compile(r":([^\W\d]\w*)(\?)?")
_OPTIONAL = re.compile(r"/:[^\W\d]\w*\?")


def pathTemplates(pattern: str) -> list[str]:
    """
    Return the OpenAPI templates for a pattern: with and without its optional parameters.

    @param pattern: The path of a route, such as C{/users/:id?}.
    @return: The templates; empty for a wildcard, which OpenAPI cannot express.
    """
    if "*" in pattern:
        return []
    shapes = (pattern, _OPTIONAL.sub("", pattern) or "/")
    return list(dict.fromkeys(_PARAMETER.sub(r"{\1}", shape) for shape in shapes))


def describeParameter(name: str, place: str, schema: Any, required: bool) -> dict[str, Any]:
    """
    Describe a path or query parameter.

    @param place: C{path} or C{query}.
    @param schema: The schema of its value.
    """
    return {"name": name, "in": place, "required": required, "schema": schema}


def describeContent(schema: Mapping[str, Any], mediaType: str = JSON_TYPE) -> dict[str, Any]:
    """Describe a body of one media type."""
    return {mediaType: {"schema": schema}}


class OpenAPIWriter:
    """
    A document under construction.

    @ivar collection: The schemas; C{Error} is the document of all errors.
    @ivar tags: The tags of the operations, as keys.
    """

    def __init__(
        self,
        error: Mapping[str, Any],
        errors: Mapping[str, str],
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """
        @param error: The schema of the document of an error.
        @param errors: The descriptions of the errors, by status or C{default}.
        @param headers: The header fields of the responses of errors.
        """
        self.collection = SchemaCollection(modern=True)
        self.collection.add("Error", error)
        self._errors = errors
        self._headers = headers or {}
        self._paths: dict[str, dict[str, Any]] = {}
        # Paths that differ only in parameter names are the same path, described once.
        self._known: dict[str, str] = {}
        self.tags: dict[str, None] = {}

    def add(self, pattern: str, method: str, describe: Callable[[str], Mapping[str, Any]]) -> None:
        """
        Describe an operation at each template of its path, unless one with the same path and method
        is described.

        @param describe: Returns the description for a template.
        """
        for path in pathTemplates(pattern):
            shape = re.sub(r"\{.*?\}", "{}", path)
            if self._known.setdefault(shape, path) != path:
                continue
            item = self._paths.setdefault(path, {})
            verb = method.lower()
            if verb not in item:
                item[verb] = operation = describe(path)
                self.tags |= dict.fromkeys(operation.get("tags", ()))

    def errors(self, statuses: Iterable[str]) -> dict[str, Any]:
        """Return references to the responses of errors."""
        return {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}

    def document(
        self,
        title: str,
        version: str,
        servers: Sequence[str],
        components: Mapping[str, Any],
        security: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """
        Return the document.

        @param title: The name of the application.
        @param version: The version of the application.
        @param servers: The URLs that the paths are relative to.
        @param components: Further components, such as C{securitySchemes}; empty ones are omitted.
        @param security: The credentials of operations that name none.
        """
        responses = {
            status: {
                "description": text,
                **({"headers": headers} if (headers := self._headersOf(status)) else {}),
                "content": describeContent(reference("Error")),
            }
            for status, text in self._errors.items()
        }
        return {
            "openapi": VERSION,
            "info": {"title": title, "version": version},
            "servers": [{"url": url} for url in servers],
            **({} if security is None else {"security": [*security]}),
            "tags": [{"name": name} for name in self.tags],
            "paths": self._paths,
            "components": {
                "schemas": self.collection.schemas,
                "responses": responses,
                **{name: each for name, each in components.items() if each},
            },
        }

    def _headersOf(self, status: str) -> dict[str, Any]:
        retry = {"Retry-After": {"schema": {"type": "integer"}}} if status == "429" else {}
        return {**self._headers, **retry}
