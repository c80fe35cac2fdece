"""C{storagegate trace}: live requests of the daemon, from the events of its console."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import FAILED, UNREACHED, CommandError, Invocation
from storagegate.cli.output import CommandOutput, escape, formatBytes

_FILTERS = ("wire", "operation", "status", "key", "bucket", "prefix", "slowerThanMs")


def trace(invocation: Invocation) -> int:
    """Print requests until the count is reached, or the session ends."""
    options, output = invocation.options, invocation.output
    query = {name: getattr(options, name) for name in _FILTERS}
    lines = apiOf(invocation).lines("GET", "events", None, {"topics": "requests", **query})
    printed = 0
    for name, event in readEvents(lines):
        if name == "signedout":
            raise CommandError("the key pair is no longer valid", FAILED)
        if name == "dropped":
            output.note(f"storagegate: {event['total']} requests were omitted so far")
        if name != "requests":
            continue
        output.record(event, _line(output, event))
        printed += 1
        if printed == options.count:
            return 0
    raise CommandError("the daemon ended the stream", UNREACHED)


def readEvents(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """
    Yield the events of a stream, as names and documents.

    @param lines: The lines of a C{text/event-stream}; comments are skipped.
    """
    name = ""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield name or "message", json.loads("\n".join(data))
            name, data = "", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def _line(output: CommandOutput, event: dict[str, Any]) -> str:
    """Format a request as one line."""
    status = event["status"]
    colour = "red" if status >= 500 else "yellow" if status >= 400 else "green"
    at = event["atMs"]
    stamp = time.strftime("%H:%M:%S", time.localtime(at / 1000)) + f".{at % 1000:03d}"
    named = "/".join(each for each in (event.get("bucket", ""), event.get("key", "")) if each)
    words = [
        output.paint(stamp, "dim"),
        f"{event['wire']:<9}",
        f"{escape(event['operation']):<24}",
        output.paint(str(status), colour),
        f"{event['ms']:>9.1f} ms",
        f"{formatBytes(event.get('bytesIn', 0)):>10} in",
        f"{formatBytes(event.get('bytesOut', 0)):>10} out",
        escape(event.get("accessKey") or event.get("user") or "-"),
        escape(named or "-"),
        escape(": ".join(each for each in (event.get("code"), event.get("reason")) if each)),
    ]
    return "  ".join(words).rstrip()
