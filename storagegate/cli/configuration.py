"""The commands C{storagegate config}."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from storagegate.cli.daemonclient import apiOf
from storagegate.cli.invocation import FAILED, Invocation
from storagegate.cli.output import Cell


def show(invocation: Invocation) -> int:
    """Print each key with its value and its origin; secrets as C{***}."""
    if invocation.isRemote:
        keys: Sequence[Mapping[str, Any]] = apiOf(invocation).get("config")
    else:
        from storagegate.daemon.consoleview import describeConfiguration

        configuration = invocation.configuration
        file = str(invocation.flags["config"] or "")
        isReplacing = configuration.workers > 1
        keys = describeConfiguration(configuration, configuration, isReplacing, file)
    output = invocation.output
    rows = [(each["key"], _value(each), each["origin"] or "-") for each in keys]
    output.result({"keys": keys}, output.table(("KEY", "VALUE", "ORIGIN"), rows))
    return 0


def check(invocation: Invocation) -> int:
    """Print all errors of the configuration; exit code 1 if there are any."""
    from storagegate.daemon.configcheck import everyError

    errors = everyError(invocation.flags, invocation.environment)
    output = invocation.output
    for error in errors:
        if not output.isJSON:
            output.line(error, "red")
    isOk = not errors
    output.result({"ok": isOk, "errors": errors}, ["the configuration is valid"] if isOk else [])
    return 0 if isOk else FAILED


def reload(invocation: Invocation) -> int:
    """Make the daemon reload its configuration."""
    found = apiOf(invocation).request("POST", "config/reload")
    lines = [f"applied: {', '.join(found['applied']) or 'nothing'}"]
    if found["needRestart"]:
        lines.append(f"need a restart: {', '.join(found['needRestart'])}")
    invocation.output.result(found, lines)
    return 0


def _value(row: Mapping[str, Any]) -> str | Cell:
    value = row["value"]
    if value is None:
        return Cell("-", "dim")
    return value if isinstance(value, str) else json.dumps(value)
