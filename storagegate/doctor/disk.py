"""The disk under the data: room, files, what kind it is, and how long a sync takes."""

import errno
import os
import tempfile
from collections.abc import Iterator
from time import monotonic

from storagegate.doctor.findings import Check, Finding
from storagegate.doctor.permissions import nearest

_check = Check("disk")

# As the daemon's own warning: one part in twenty.
_LOW = 20

# What one object in the catalog takes; with less not even that is stored.
_LEAST_BYTES = 1 << 20
_LEAST_FILES = 100

_FILES = 200
_FILE_BYTES = 4096
_MOST_SECONDS = 2.0

# Measured: 0.1 to 2 ms on an SSD with a cache that keeps its bytes, 5 to 15 on a disk that turns.
_SLOW_MS = 20.0
_BAD_MS = 200.0

_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs")


def checkSpace(directory: str) -> Iterator[Finding]:
    """Look at the room and at the number of files that are left."""
    yield judgeSpace(directory, os.statvfs(nearest(directory)))


def judgeSpace(directory: str, figures: os.statvfs_result) -> Finding:
    """Say what the figures of a file system mean."""
    free, total = figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize
    room = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free at {directory}"
    if free < _LEAST_BYTES:
        return _check.problem(f"{room}: nothing can be stored")
    if free * _LOW < total:
        return _check.warning(f"{room}, less than 5 %")
    # Some file systems make files as long as there is room, and say 0 of 0.
    if figures.f_files and figures.f_favail < _LEAST_FILES:
        return _check.problem(f"{figures.f_favail} inodes are free at {directory}: no new files")
    if figures.f_files and figures.f_favail * _LOW < figures.f_files:
        return _check.warning(f"{figures.f_favail} inodes are free at {directory}, less than 5 %")
    return _check.ok(room)


def checkSyncs(directory: str) -> Iterator[Finding]:
    """Write small files as uploads do and see how long the disk takes; none is left."""
    place = nearest(directory)
    kind = _kindOf(place, _mounts())
    if kind in _VOLATILE:
        yield _check.problem(f"{directory} is kept in memory ({kind}): a restart loses all of it")
        return
    if kind in _REMOTE:
        yield _check.warning(
            f"{directory} is on a network ({kind}): locks and syncs may not hold what they promise"
        )
    try:
        times = _measure(place)
    except OSError as error:
        yield _check.problem(f"nothing can be written at {place}: {error.strerror}")
        return
    yield judgeSyncs(times)


def judgeSyncs(seconds: list[float]) -> Finding:
    """Say what the times of syncs mean."""
    milliseconds = sorted(each * 1000 for each in seconds)
    worst = milliseconds[min(len(milliseconds) * 99 // 100, len(milliseconds) - 1)]
    middle = milliseconds[len(milliseconds) // 2]
    figures = f"a sync takes {middle:.2f} ms, {worst:.2f} ms at the 99th percentile"
    if worst > _BAD_MS:
        return _check.problem(f"{figures}: this disk is no place for a store")
    if worst > _SLOW_MS:
        return _check.warning(f"{figures}: clients will wait for this disk")
    return _check.ok(figures)


def _measure(place: str) -> list[float]:
    times: list[float] = []
    end = monotonic() + _MOST_SECONDS
    while len(times) < _FILES and (not times or monotonic() < end):
        start = monotonic()
        descriptor = _namelessFile(place)
        try:
            os.write(descriptor, bytes(_FILE_BYTES))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        times.append(monotonic() - start)
    return times


def _namelessFile(place: str) -> int:
    """Make a file that never has a name: whatever ends this process, nothing is left of it."""
    try:
        return os.open(place, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
    # Where the file system knows no such files, the name goes before a byte is written.
    descriptor, path = tempfile.mkstemp(prefix=".doctor-", dir=place)
    os.unlink(path)
    return descriptor


def _mounts() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _kindOf(place: str, mounts: str) -> str:
    """Give the type of the file system of a place; nothing where the system does not say."""
    number = os.stat(place).st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if fields.split()[2:3] == [wanted]:
            return kind.split()[0]
    return ""
