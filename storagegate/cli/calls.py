"""
C{storagegate call}: calls a method of a service.

The daemon makes the call through one of its own wires, or, with C{--to}, this process calls any
gateway. Then the requests of a stream are read while results are printed.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from storagegate.cli.callinvocation import printEnd, readMetadata, readRequest, readToken
from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import MISUSED, UNREACHED, CommandError, Invocation
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
        if options.wire is not None:
            raise CommandError("--wire is for the daemon: the URL of --to names it", MISUSED)
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
