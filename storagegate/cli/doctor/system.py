"""
The disk under the data: room, files, what kind it is, and how long a sync takes.

The clock: whether somebody steers it, whether it jumps, and whether it can be right at all.

The limits of the process.

Who may read and write the data directory, and what in it or beside it is secret.
"""

import ctypes
import errno
import os
import pwd
import resource
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from time import monotonic

from storagegate.cli.doctor.findings import Check, Finding

_checkClock = Check("clock")

# S3 refuses signatures that are further away than this; clients are on other machines.
_SKEW_SECONDS = 900

_UNSYNCHRONISED = 0x40

# Less than this is what a clock that is being steered does.
_JUMP_SECONDS = 0.5


class _Timex(ctypes.Structure):
    """The beginning of C{struct timex}, and room for the rest of it."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximumError", ctypes.c_long),
        ("estimatedError", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    ]


class ClockWatch:
    """Compares the clock with the monotonic one, between its making and its check."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._difference = lambda: wall() - monotonic()
        self._start = self._difference()

    def check(self) -> Iterator[Finding]:
        """Tell whether the clock was set meanwhile."""
        jump = self._difference() - self._start
        if abs(jump) > _JUMP_SECONDS:
            yield _checkClock.problem(f"it jumped by {jump:.1f} s while it was looked at")


def checkSynchronisation() -> Iterator[Finding]:
    """Ask the kernel whether a time service steers the clock."""
    timex = _Timex()
    adjust = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjust is None or adjust(ctypes.byref(timex)) < 0:
        yield _checkClock.warning("the kernel does not say whether the clock is synchronised")
        return
    yield judgeSynchronisation(timex.status, timex.maximumError)


def judgeSynchronisation(status: int, maximumErrorUs: int) -> Finding:
    """Say what the kernel's state of the clock means."""
    if status & _UNSYNCHRONISED:
        return _checkClock.warning(
            "no time service steers it (chrony, systemd-timesyncd, or the host of a container):"
            f" S3 clients are refused once it is {_SKEW_SECONDS // 60} minutes off"
        )
    return _checkClock.ok(f"it is synchronised, at most {maximumErrorUs / 1e6:.3f} s off")


def checkFiles(directory: str) -> Iterator[Finding]:
    """Compare the clock with the last writes to the data, which cannot be later than now."""
    for name in ("catalog.sqlite", "catalog.sqlite-wal"):
        path = os.path.join(directory, name)
        try:
            ahead = os.stat(path).st_mtime - time.time()
        except OSError:
            continue
        if ahead > _JUMP_SECONDS:
            yield _checkClock.problem(
                f"it is at least {ahead:.0f} s behind: {path} was written later than now"
            )
            return


_checkLimits = Check("limits")

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
        return _checkLimits.ok("there is no limit of open files")
    text = f"{hard} open files are allowed (ulimit -Hn, LimitNOFILE=)"
    if hard < _LEAST_FILES:
        return _checkLimits.problem(f"{text}: connections will be refused")
    if hard < _FEW_FILES:
        return _checkLimits.warning(f"{text}: that is few for a server")
    return _checkLimits.ok(text)


_checkPermissions = Check("permissions")

# Keys are in the catalog with their secrets.
_SECRETS = (".sqlite", ".sqlite-wal", ".sqlite-shm", "root-credentials")


def nearest(directory: str) -> str:
    """Give the directory itself, or where it is not there the first above it that is."""
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return directory


def checkData(directory: str) -> Iterator[Finding]:
    """Look at the data directory and at the files right in it."""
    if not os.path.exists(directory):
        above = nearest(directory)
        if os.access(above, os.W_OK | os.X_OK) and os.path.isdir(above):
            yield _checkPermissions.ok(f"{directory} is made by the first start")
        else:
            yield _checkPermissions.problem(f"{directory} cannot be made: {above} is not writable")
        return
    if not os.path.isdir(directory):
        yield _checkPermissions.problem(f"{directory} is no directory")
        return
    found = [*_ofDirectory(directory), *_ofFiles(directory)]
    yield from found or [
        _checkPermissions.ok(f"{directory} belongs to {_user(os.stat(directory).st_uid)}")
    ]


def checkSecretFile(path: str, what: str) -> Iterator[Finding]:
    """Look at a file outside of the data directory that must be read by us, and not by all."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        yield _checkPermissions.problem(f"{what} {path}: {error.strerror}")
        return
    if not os.access(path, os.R_OK):
        yield _checkPermissions.problem(f"{what} {path} cannot be read by {_user(os.geteuid())}")
    elif mode & stat.S_IROTH:
        yield _checkPermissions.problem(f"{what} {path} can be read by everybody: chmod o-r {path}")
    else:
        yield _checkPermissions.ok(f"{what} {path} is not for everybody")


def _ofDirectory(directory: str) -> Iterator[Finding]:
    status = os.stat(directory)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        owner, us = _user(status.st_uid), _user(os.geteuid())
        yield _checkPermissions.problem(
            f"{directory} belongs to {owner} and is not writable by {us}"
        )
    if status.st_mode & 0o077:
        yield _checkPermissions.warning(
            f"{directory} has mode {stat.S_IMODE(status.st_mode):04o}, others may look into it:"
            f" chmod 700 {directory}"
        )


def _ofFiles(directory: str) -> Iterator[Finding]:
    owner = os.stat(directory).st_uid
    try:
        names = sorted(os.listdir(directory))
    except PermissionError:
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            # A running daemon opens and closes files.
            continue
        if status.st_uid != owner:
            yield _checkPermissions.problem(
                f"{path} belongs to {_user(status.st_uid)}, the directory to {_user(owner)}:"
                f" chown {_user(owner)} {path}"
            )
        if name.endswith(_SECRETS) and status.st_mode & 0o077:
            yield _checkPermissions.problem(
                f"{path} holds secrets and has mode {stat.S_IMODE(status.st_mode):04o}:"
                f" chmod 600 {path}"
            )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


_checkDisk = Check("disk")

# As the daemon's own warning: one part in twenty.
_LOW = 20

# What one object in the catalog takes; with less not even that is stored.
_LEAST_BYTES = 1 << 20
_LEAST_FREE_INODES = 100

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
        return _checkDisk.problem(f"{room}: nothing can be stored")
    if free * _LOW < total:
        return _checkDisk.warning(f"{room}, less than 5 %")
    # Some file systems make files as long as there is room, and say 0 of 0.
    if figures.f_files and figures.f_favail < _LEAST_FREE_INODES:
        return _checkDisk.problem(
            f"{figures.f_favail} inodes are free at {directory}: no new files"
        )
    if figures.f_files and figures.f_favail * _LOW < figures.f_files:
        return _checkDisk.warning(
            f"{figures.f_favail} inodes are free at {directory}, less than 5 %"
        )
    return _checkDisk.ok(room)


def checkSyncs(directory: str) -> Iterator[Finding]:
    """Write small files as uploads do and see how long the disk takes; none is left."""
    place = nearest(directory)
    kind = _kindOf(place, _mounts())
    if kind in _VOLATILE:
        yield _checkDisk.problem(
            f"{directory} is kept in memory ({kind}): a restart loses all of it"
        )
        return
    if kind in _REMOTE:
        yield _checkDisk.warning(
            f"{directory} is on a network ({kind}): locks and syncs may not hold what they promise"
        )
    try:
        times = _measure(place)
    except OSError as error:
        yield _checkDisk.problem(f"nothing can be written at {place}: {error.strerror}")
        return
    yield judgeSyncs(times)


def judgeSyncs(seconds: list[float]) -> Finding:
    """Say what the times of syncs mean."""
    milliseconds = sorted(each * 1000 for each in seconds)
    worst = milliseconds[min(len(milliseconds) * 99 // 100, len(milliseconds) - 1)]
    middle = milliseconds[len(milliseconds) // 2]
    figures = f"a sync takes {middle:.2f} ms, {worst:.2f} ms at the 99th percentile"
    if worst > _BAD_MS:
        return _checkDisk.problem(f"{figures}: this disk is no place for a store")
    if worst > _SLOW_MS:
        return _checkDisk.warning(f"{figures}: clients will wait for this disk")
    return _checkDisk.ok(figures)


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
