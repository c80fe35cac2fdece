"""C{storagegate status}, and the output of the script without a command."""

import os
import time
from contextlib import closing
from typing import Any

from storagegate.cli.commands import COMMANDS
from storagegate.cli.daemonclient import apiOf, runningDaemon
from storagegate.cli.invocation import UNREACHED, CommandError, Invocation
from storagegate.cli.output import Cell, CommandOutput, formatBytes, formatTime
from storagegate.version import __version__

STOPPED = "stopped"
"""The status of a data directory on which no daemon runs."""

_COLOURS = {"ok": "green", "listening": "green", STOPPED: "yellow", "draining": "yellow"}

_MOST_BUCKETS = 10_000


def status(invocation: Invocation) -> int:
    """Print the state of the daemon; exit code 3 if no daemon runs."""
    found = _read(invocation)
    invocation.output.result(found, _lines(invocation.output, found))
    return UNREACHED if found["status"] == STOPPED else 0


def overview(invocation: Invocation) -> int:
    """Print the commands, and the state of the daemon in one line; the exit code is 0."""
    output = invocation.output
    if output.isJSON:
        commands = [{"command": each.path, "meaning": each.meaning} for each in COMMANDS]
        output.result({"version": __version__, "state": _state(invocation), "commands": commands})
        return 0
    rows = [(output.paint(each.path, "bold"), each.meaning) for each in COMMANDS]
    width = max(len(each.path) for each in COMMANDS)
    print(f"storagegate {__version__}: {_state(invocation)}\n")
    for (name, meaning), command in zip(rows, COMMANDS, strict=True):
        print(f"  {name}{' ' * (width - len(command.path))}  {meaning}")
    print("\nstoragegate COMMAND --help prints the flags of a command")
    return 0


def _state(invocation: Invocation) -> str:
    try:
        found = _read(invocation)
    except Exception as error:
        # The list of commands matters here: a broken store only changes the first line.
        return " ".join(str(error).split()) or type(error).__name__
    output = invocation.output
    word = output.paint(found["status"], _COLOURS.get(found["status"], "red"))
    store = found["store"]
    return f"{word}, {store['objects']} objects, {formatBytes(store['bytes'])}"


def _read(invocation: Invocation) -> dict[str, Any]:
    """Return the state in the shape of the API's C{GET overview}."""
    try:
        found: dict[str, Any] = apiOf(invocation).get("overview")
    except CommandError as error:
        isOurs = not invocation.isRemote and invocation.configuration.cluster is None
        if not isOurs or runningDaemon(invocation.configuration) is not None:
            raise
        return _stopped(invocation, error)
    return found


def _stopped(invocation: Invocation, error: CommandError) -> dict[str, Any]:
    from storagegate.cli.administration import catalogPath
    from storagegate.storage.commandresults import readResult
    from storagegate.storage.embedded.keyadmin import openForTools

    path = catalogPath(invocation)
    with closing(openForTools(path)) as catalog:
        usage = catalog.usage(_MOST_BUCKETS)
    rows = (*usage.buckets, usage.others)
    directory = os.path.dirname(path)
    disk = os.statvfs(directory)
    backup = readResult(directory, "backup")
    return {
        "status": STOPPED,
        "error": str(error),
        "parts": {},
        "warnings": {},
        "version": __version__,
        "startedMs": 0,
        "workers": 0,
        "disk": {"free": disk.f_bavail * disk.f_frsize, "total": disk.f_blocks * disk.f_frsize},
        "store": {
            "kind": "embedded",
            "objects": sum(each.objects for each in rows),
            "bytes": sum(each.bytes for each in rows),
            "buckets": len(usage.buckets),
            "uploads": sum(each.uploads for each in rows),
            "uploadBytes": sum(each.uploadBytes for each in rows),
            # Only a daemon knows the blobs that it found to be damaged.
            "damaged": None,
            "backupMs": 0 if backup is None or backup.error or backup.problems else backup.endedMs,
            "readOnly": None,
        },
        "wires": {},
        "growth": None,
        "top": [],
        "listeners": {},
        "refusals": [],
    }


def _lines(output: CommandOutput, found: dict[str, Any]) -> list[str]:
    disk, store = found["disk"], found["store"]
    rows: list[tuple[str, str | Cell]] = [
        ("status", _word(found["status"])),
        ("version", found["version"]),
        ("started", _started(found["startedMs"])),
        ("processes", str(found["workers"])),
        ("objects", f"{store['objects']} in {store['buckets']} buckets"),
        ("bytes", formatBytes(store["bytes"])),
        ("disk", f"{formatBytes(disk['free'])} of {formatBytes(disk['total'])} free"),
    ]
    if found["error"]:
        rows.append(("error", Cell(found["error"], "red")))
    if store["readOnly"]:
        rows.append(("read-only", Cell(store["readOnly"], "red")))
    rows += [(name, _word(state)) for name, state in found["parts"].items()]
    rows += [(f"warning: {name}", Cell(text, "yellow")) for name, text in found["warnings"].items()]
    lines = list(output.table(("", ""), rows))[1:]
    wires = [
        (
            name,
            f"{each['perSecond']:.1f}",
            _number(each["p50Ms"]),
            _number(each["p99Ms"]),
            str(each["errors"]),
        )
        for name, each in found["wires"].items()
    ]
    if wires:
        headings = ("PROTOCOL", "PER SECOND", "P50 MS", "P99 MS", "ERRORS")
        lines += ["", *output.table(headings, wires)]
    return lines


def _word(state: str) -> Cell:
    return Cell(state, _COLOURS.get(state, "red"))


def _started(ms: int) -> str:
    if not ms:
        return "-"
    hours, seconds = divmod(int(time.time() - ms / 1000), 3600)
    return f"{formatTime(ms)}, {hours} h {seconds // 60} min ago"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
