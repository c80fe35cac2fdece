"""The client of the routes that an OpenAPI document describes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from storagegate.cli.typescript import HEAD, part
from storagegate.cli.typescript.types import (
    TypeScriptTypes,
    comment,
    identifier,
    key,
    literal,
    methodKey,
)
from storagegate.core.components import PLACE

_PARAMETER = re.compile(r"\{([^{}]*)\}")

_VERBS = ("get", "put", "post", "delete", "patch", "options", "head")

_CREATE = """\
/**
 * Make a client of the routes.
 *
 * @param url The address that the paths follow, https://host.
 */
export function createClient(url: string, options: ClientOptions = {}): Client {
    return new Client(url, options);
}
"""


def routesClient(document: Mapping[str, Any]) -> str:
    """
    Write the client of an HTTP application.

    @param document: Its description in OpenAPI 3.1.
    @return: The content of the file.
    """
    types = TypeScriptTypes()
    definitions = document.get("components", {}).get("schemas", {})
    methods: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
    for path, item in document.get("paths", {}).items():
        for verb in _VERBS:
            if verb in item:
                name = _methodName(item[verb].get("operationId") or f"{verb} {path}")
                while name in methods:
                    name += "_"
                methods[name] = path, verb, item[verb]
    lines = ["/** The routes. */", "export class Client {", "    readonly #routes: Routes;", ""]
    lines += ["    constructor(url: string, options: ClientOptions = {}) {"]
    lines += ["        this.#routes = new Routes(url, options);", "    }"]
    writer = _RouteWriter(types, definitions)
    results = {name: writer.result(name, operation) for name, (_, _, operation) in methods.items()}
    for name, (path, verb, operation) in methods.items():
        lines += ["", *writer.method(name, path, verb, operation, results[name])]
    lines += ["}", ""]
    texts = [part("base"), part("routes"), types.text(), "\n".join(lines), _CREATE]
    return HEAD + "\n".join(each for each in texts if each)


def _methodName(name: str) -> str:
    found = identifier(name) if not name.isidentifier() else name
    return found[:1].lower() + found[1:]


class _RouteWriter:
    """Writes the methods of routes."""

    def __init__(self, types: TypeScriptTypes, definitions: Mapping[str, Any]) -> None:
        self._types = types
        self._definitions = definitions

    def _typeOf(self, schema: Any, name: str, isResult: bool = False) -> str:
        needed = _needed(schema, self._definitions)
        return self._types.add(schema, needed, PLACE, name, isResult)

    def result(self, name: str, operation: Mapping[str, Any]) -> str:
        """Return the type of the result of a route."""
        for status, response in operation.get("responses", {}).items():
            if not str(status).startswith("2") or not isinstance(response, Mapping):
                continue
            content = response.get("content")
            if not content:
                return "void"
            for mediaType, described in content.items():
                if mediaType.endswith("json"):
                    schema = described.get("schema", {})
                    return self._typeOf(schema, f"{name}.Response", isResult=True)
            return "string"
        return "unknown"

    def method(
        self, name: str, path: str, verb: str, operation: Mapping[str, Any], result: str
    ) -> Iterator[str]:
        """Yield the lines of a route."""
        places: dict[str, list[Any]] = {"path": [], "query": [], "header": []}
        for each in operation.get("parameters", ()):
            if each.get("in") in places:
                places[each["in"]].append(each)
        body = operation.get("requestBody")
        content = {} if body is None else body.get("content", {})
        schemas = [each.get("schema", {}) for kind, each in content.items() if "json" in kind]
        schema = schemas[0] if schemas else None
        given = []
        for place, found in places.items():
            fields = [
                f"{key(each['name'])}{'' if each.get('required') else '?'}:"
                f" {self._typeOf(each.get('schema', {}), f'{name}.{place}')}"
                for each in found
            ]
            if fields:
                isNeeded = any(each.get("required") for each in found)
                given.append(f"{place}: {{ {'; '.join(fields)} }}{'' if isNeeded else ' = {}'}")
        if schema is not None:
            given.append(f"body: {self._typeOf(schema, f'{name}.Body')}")
        summary = (operation.get("summary", ""), operation.get("description", ""))
        yield from comment("\n\n".join(filter(None, summary)), "    ")
        yield f"    {methodKey(name)}("
        yield from (f"        {each}," for each in given)
        yield "        options?: CallOptions,"
        yield f"    ): Promise<{result}> {{"
        yield "        return this.#routes.call("
        yield f"            {literal(verb.upper())},"
        yield f"            {_pathExpression(path)},"
        for place in ("query", "header"):
            yield f"            {place}," if places[place] else "            {},"
        yield "            undefined," if schema is None else "            { value: body },"
        yield "            options,"
        yield f"        ) as Promise<{result}>;"
        yield "    }"


def _pathExpression(path: str) -> str:
    """Return the expression of a path, whose parameters are encoded."""
    parts = []
    at = 0
    for found in _PARAMETER.finditer(path):
        parts.append(literal(path[at : found.start()]))
        parts.append(f"encodeURIComponent(String(path[{literal(found[1])}]))")
        at = found.end()
    parts.append(literal(path[at:]))
    return " + ".join(each for each in parts if each != '""') or '""'


def _needed(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema refers to, directly or not."""
    found: dict[str, Any] = {}
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            name = part.get("$ref")
            if isinstance(name, str):
                name = name.removeprefix(PLACE).partition("/")[0]
                if name in definitions and name not in found:
                    found[name] = definitions[name]
                    pending.append(definitions[name])
            pending += part.values()
        elif isinstance(part, list | tuple):
            pending += part
    return found
