"""Parsed files of C{deploy/}."""

import subprocess
from pathlib import Path

from tests.support.modules import CHECKOUT

DEPLOY = CHECKOUT / "deploy"


def unitValues(path: Path, section: str, name: str) -> list[str]:
    """Return the values of a setting in a unit file, one for each line."""
    found, current = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif current == section and line.startswith(f"{name}="):
            found.append(line.partition("=")[2])
    return found


def serviceValue(name: str) -> str:
    """Return the single value of a setting of the service."""
    [value] = unitValues(DEPLOY / "storagegate.service", "Service", name)
    return value


def systemCalls(setting: str) -> set[str]:
    """Return the system calls of groups, according to the host's systemd."""
    names: set[str] = set()
    waiting = setting.split()
    while waiting:
        each = waiting.pop()
        if not each.startswith("@"):
            names.add(each)
            continue
        listed = subprocess.run(
            ["systemd-analyze", "syscall-filter", each], capture_output=True, text=True, check=True
        )
        lines = (line.strip() for line in listed.stdout.splitlines()[1:])
        waiting += [line for line in lines if line and not line.startswith("#")]
    return names


def dockerSteps(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile: word and rest, with continuation lines joined."""
    text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    lines = text.replace("\\\n", " ").splitlines()
    steps = (line.split(None, 1) for line in lines if line.strip())
    return [(word, " ".join(rest.split())) for word, rest in steps]
