"""Python, SQLite and the packages, against the bounds that the installation itself declares."""

import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

from storagegate.doctor.findings import Check, Finding

_check = Check("versions")

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?"
)
_BOUND = re.compile(r"\s*(>=|<=|==|!=|<|>|~=)\s*([0-9][0-9.]*)\S*\s*")
_DISTRIBUTION = "storagegate"


def checkVersions() -> Iterator[Finding]:
    """Compare what is installed with what is needed."""
    version = ".".join(map(str, sys.version_info[:3]))
    try:
        declared = metadata.metadata(_DISTRIBUTION)
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield _check.warning("storagegate is not installed by pip: versions are not compared")
        return
    found = list(judgePackages(requirements, metadata.version))
    needed = str(declared.json.get("requires_python", ""))
    if not _isWithin(version, needed):
        found.append(_check.problem(f"Python {version} is installed, {needed} is needed"))
    yield from found or [
        _check.ok(f"Python {version}, SQLite {sqlite3.sqlite_version}, every package as needed")
    ]


def judgePackages(
    requirements: Sequence[str], installed: Callable[[str], str]
) -> Iterator[Finding]:
    """
    Say which requirements are not met; those of extras are left out.

    @param installed: Gives the version of a package, or raises C{PackageNotFoundError}.
    """
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement.strip())
        if match is None or match[3]:
            continue
        name, bounds = match[1], match[2].strip()
        try:
            version = installed(name)
        except metadata.PackageNotFoundError:
            yield _check.problem(f"{name} is not installed: {name}{bounds} is needed")
            continue
        if not _isWithin(version, bounds):
            yield _check.problem(f"{name} {version} is installed, {bounds} is needed")


def _isWithin(version: str, bounds: str) -> bool:
    """Compare by the numbers of a release; what is no plain bound is taken as met."""
    have = _numbers(version)
    for bound in bounds.split(","):
        match = _BOUND.fullmatch(bound)
        if match is None:
            continue
        operator, wanted = match[1], _numbers(match[2])
        length = max(len(have), len(wanted))
        one, other = (each + (0,) * (length - len(each)) for each in (have, wanted))
        isMet = {
            ">=": one >= other,
            "<=": one <= other,
            "==": one == other,
            "!=": one != other,
            ">": one > other,
            "<": one < other,
            "~=": one >= other and one[: len(wanted) - 1] == wanted[:-1],
        }[operator]
        if not isMet:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
