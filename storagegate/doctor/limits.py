"""The limits of the process."""

import resource
from collections.abc import Iterator

from storagegate.doctor.findings import Check, Finding

_check = Check("limits")

# The calls in flight of one listener; below it the daemon refuses what it should serve.
_LEAST_FILES = 1024
_FEW_FILES = 8192


def checkLimits() -> Iterator[Finding]:
    """Look at how many descriptors a process may have: the daemon takes all that it may."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judgeFiles(hard)


def judgeFiles(hard: int) -> Finding:
    """Say what the hard limit of descriptors means."""
    if hard == resource.RLIM_INFINITY:
        return _check.ok("there is no limit of open files")
    text = f"{hard} open files are allowed (ulimit -Hn, LimitNOFILE=)"
    if hard < _LEAST_FILES:
        return _check.problem(f"{text}: connections will be refused")
    if hard < _FEW_FILES:
        return _check.warning(f"{text}: that is few for a server")
    return _check.ok(text)
