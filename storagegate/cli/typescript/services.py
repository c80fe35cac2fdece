"""The client of a gateway's services."""

from collections.abc import Iterable, Mapping
from inspect import getdoc
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
from storagegate.core.definitions import ServiceDefinition, ServiceMethod
from storagegate.core.schemas import normalised
from storagegate.core.typeschemas import DEFINITIONS, describeType

_CREATE = """\
/**
 * Make a client of the services.
 *
 * @param url The address of HTTP, https://host/api, or of WebSocket, wss://host/ws.
 */
export function createClient(url: string, options: ClientOptions = {}): Client {
    return new Client(transportOf(url, options));
}
"""


def servicesClient(services: Iterable[ServiceDefinition]) -> str:
    """
    Write the client of services, over HTTP and WebSocket.

    @return: The content of the file.
    """
    services = [*services]
    fields: dict[str, str] = {}
    classes: dict[str, str] = {}
    for service in services:
        last = service.name.rpartition(".")[2]
        isShort = sum(each.name.rpartition(".")[2] == last for each in services) == 1
        fields[service.name] = last if isShort and last != "close" else f"{service.name}Service"
        name = f"{identifier(last if isShort else service.name)}Client"
        while name in classes.values():
            name += "_"
        classes[service.name] = name
    types = TypeScriptTypes(classes.values())
    # Results first: they have the plain names of classes that differ in requests.
    results = {
        (service.name, name): _typeOf(types, service, name, method, isResult=True)
        for service in services
        for name, method in service.methods.items()
    }
    parts = []
    for service in services:
        lines = [f"export class {classes[service.name]} {{", "    readonly #transport: Transport;"]
        lines += ["", "    constructor(transport: Transport) {"]
        lines += ["        this.#transport = transport;", "    }"]
        for name, method in service.methods.items():
            request = _typeOf(types, service, name, method, isResult=False)
            lines += ["", *comment(getdoc(method.handler) or "", "    ")]
            lines += _method(service.name, name, method, request, results[service.name, name])
        parts.append("\n".join([*lines, "}"]) + "\n")
    lines = ["/** The services. */", "export class Client {"]
    lines += [f"    readonly {key(fields[each.name])}: {classes[each.name]};" for each in services]
    lines += ["    readonly #transport: Transport;", "", "    constructor(transport: Transport) {"]
    lines.append("        this.#transport = transport;")
    lines += [
        f"        this[{literal(fields[each.name])}] = new {classes[each.name]}(transport);"
        for each in services
    ]
    lines += ["    }", "", "    /** End the calls and the connection. */", "    close(): void {"]
    lines += ["        this.#transport.close();", "    }", "}", ""]
    texts = [part("base"), part("services"), types.text(), *parts, "\n".join(lines), _CREATE]
    return HEAD + "\n".join(each for each in texts if each)


def _typeOf(
    types: TypeScriptTypes,
    service: ServiceDefinition,
    name: str,
    method: ServiceMethod,
    isResult: bool,
) -> str:
    model = method.outputType if isResult else method.inputType
    schema: Any = method.output if isResult else method.input
    definitions: Mapping[str, Any] = {}
    if schema is None:
        return "unknown"
    if model is not None:
        schema, definitions = describeType(model, isResult)
    else:
        schema = normalised(schema)
    suffix = "Response" if isResult else "Request"
    last = service.name.rpartition(".")[2]
    return types.add(schema, definitions, DEFINITIONS, f"{last}.{name}.{suffix}", isResult)


def _method(
    service: str, name: str, method: ServiceMethod, request: str, response: str
) -> list[str]:
    """Return the lines of a method."""
    call = "each" if method.streamsResponses else "once"
    kind = "AsyncIterableIterator" if method.streamsResponses else "Promise"
    if method.streamsRequests:
        call = "sendEach" if method.streamsResponses else "sendOnce"
        parameter = f"requests: Iterable<{request}> | AsyncIterable<{request}>"
        argument = "requests"
    else:
        isNeeded = method.input is not None and bool(normalised(method.input).get("required"))
        parameter = f"request: {request}" + ("" if isNeeded else " = {}")
        argument = "request"
    return [
        f"    {methodKey(name)}(",
        f"        {parameter},",
        "        options?: CallOptions,",
        f"    ): {kind}<{response}> {{",
        f"        return this.#transport.{call}(",
        f"            {literal(service)},",
        f"            {literal(name)},",
        f"            {argument},",
        "            options,",
        f"        ) as {kind}<{response}>;",
        "    }",
    ]
