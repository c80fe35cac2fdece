"""The flags and the output of C{storagegate call}, for both ways to make the call."""

import json
from typing import Any

from storagegate.cli.invocation import FAILED, MISUSED, CommandError, Invocation
from storagegate.cli.output import escape


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
