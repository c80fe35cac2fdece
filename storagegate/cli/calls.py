"""
C{storagegate call}: calls a method of a service.

The daemon makes the call through one of its own wires, or, with C{--to}, this process calls any
gateway. Then the requests of a stream are read while results are printed.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import FAILED, MISUSED, UNREACHED, CommandError, Invocation
from storagegate.cli.output import escape
from storagegate.gateway.transports.registry import TransportName

_LINE_LIMIT = 1 << 20
"""Characters of a request; the API accepts 1 MiB in total."""


def call(invocation: Invocation) -> int:
    """Call a method; exit code 1 if the call ends with an error."""
    options, output = invocation.options, invocation.output
    service, _, method = options.method.rpartition(".")
    if not service or not method:
        raise CommandError(f"{options.method}: expected SERVICE.METHOD", MISUSED)
    if options.to is not None:
        from storagegate.cli.gatewaycalls import callGateway

        return callGateway(invocation, service, method)
    if options.stream:
        raise CommandError("--stream is for --to: the daemon knows its methods", MISUSED)
    wanted = {
        "wire": options.wire or get_args(TransportName)[0],
        "service": service,
        "method": method,
        "requests": list(_requests(options.request or [])),
        "metadata": readMetadata(options.metadata or []),
        "token": readToken(invocation),
        "deadlineMs": options.deadlineMs,
    }
    items: list[dict[str, Any]] = []
    for line in apiOf(invocation).lines("POST", "gateway/calls", wanted):
        if not line:
            continue
        event = json.loads(line)
        if event["at"] != "item":
            return printEnd(invocation, items, len(items), event)
        items.append({name: event[name] for name in ("data", "ms", "bytes")})
        if not output.isJSON:
            output.line(json.dumps(event["data"], ensure_ascii=False))
    raise CommandError("the daemon ended the response before the call ended", UNREACHED)


def printEnd(
    invocation: Invocation, items: list[dict[str, Any]], count: int, event: dict[str, Any]
) -> int:
    """
    Print the end of a call.

    @param items: The results, with the time and the size of each, for JSON.
    @param count: The number of results.
    @param event: The last line of the daemon's response: C{at}, C{data}, C{ms} and C{bytes}.
    @return: The exit code.
    """
    output = invocation.output
    error = event["data"] if event["at"] == "error" else None
    document = {"items": items, "error": error, "ms": event["ms"], "bytes": event["bytes"]}
    output.result(document)
    if not output.isJSON:
        if error is not None:
            output.note(f"storagegate: {error['message']} ({error['error']})")
        output.note(f"{count} items, {event['bytes']} bytes, {event['ms']:.1f} ms")
    return 0 if error is None else FAILED


def _requests(texts: list[str]) -> Iterator[Any]:
    """
    Yield the requests of the flags, reading standard input for a hyphen.

    @raise CommandError: A request is not JSON.
    """
    for text in texts:
        if text != "-":
            yield readRequest(text)
            continue
        while line := sys.stdin.readline(_LINE_LIMIT):
            if line.strip():
                yield readRequest(line)


def readRequest(text: str) -> Any:
    """
    Read a request.

    @raise CommandError: It is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        shown = escape(text.strip())[:80]
        raise CommandError(f"a request is not JSON: {error}: {shown}", MISUSED) from error


def readMetadata(texts: list[str]) -> dict[str, str]:
    """
    Read the metadata of the flags.

    @raise CommandError: A text is not C{NAME=VALUE}.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"--metadata {text}: expected NAME=VALUE", MISUSED)
        found[name] = value
    return found


def readToken(invocation: Invocation) -> str:
    """
    Read the token or API key from the variable that the flags name; an empty text without one.

    @raise CommandError: The variable is not set.
    """
    name = invocation.options.tokenVariable
    if not name:
        return ""
    token = invocation.environment.get(name)
    if not token:
        raise CommandError(f"the variable {name} is not set", MISUSED)
    return token
