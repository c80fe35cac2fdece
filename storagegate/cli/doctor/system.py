"""
Checks of the system: the clock (synchronised, no jumps, not behind the data), the limits of the
process, the permissions of the data directory and of secret files, and the disk (free space and
inodes, kind of file system, latency of a sync).
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

from storagegate.cli.doctor import Check, Finding

_CLOCK = Check("clock")

# S3 refuses signatures with a larger skew between client and server.
_SKEW_SECONDS = 900

_UNSYNCHRONISED = 0x40

# A slewed clock stays below this.
_JUMP_SECONDS = 0.5


class _Timex(ctypes.Structure):
    """The first fields of C{struct timex}, and space for the rest."""

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
    """Compares the wall clock with the monotonic clock, from its creation to its check."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._difference = lambda: wall() - monotonic()
        self._start = self._difference()

    def check(self) -> Iterator[Finding]:
        """Report whether the clock was set in the meantime."""
        jump = self._difference() - self._start
        if abs(jump) > _JUMP_SECONDS:
            yield _CLOCK.problem(f"the clock jumped by {jump:.1f} s during the check")


def checkSynchronisation() -> Iterator[Finding]:
    """Check the kernel's state of the clock: whether a time service synchronises it."""
    timex = _Timex()
    adjust = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjust is None or adjust(ctypes.byref(timex)) < 0:
        yield _CLOCK.warning("the kernel does not report whether the clock is synchronised")
        return
    yield evaluateSynchronisation(timex.status, timex.maximumError)


def evaluateSynchronisation(status: int, maximumErrorUs: int) -> Finding:
    """
    Evaluate the kernel's state of the clock.

    @param status: C{timex.status} of C{adjtimex(2)}.
    @param maximumErrorUs: The maximum error, in microseconds.
    """
    if status & _UNSYNCHRONISED:
        return _CLOCK.warning(
            "no time service steers it (chrony, systemd-timesyncd, or the host of a container):"
            f" S3 clients are refused once it is {_SKEW_SECONDS // 60} minutes off"
        )
    return _CLOCK.ok(f"it is synchronised, at most {maximumErrorUs / 1e6:.3f} s off")


def checkFiles(directory: str) -> Iterator[Finding]:
    """Compare the clock with the last writes of the data, which must not be in the future."""
    for name in ("catalog.sqlite", "catalog.sqlite-wal"):
        path = os.path.join(directory, name)
        try:
            ahead = os.stat(path).st_mtime - time.time()
        except OSError:
            continue
        if ahead > _JUMP_SECONDS:
            yield _CLOCK.problem(
                f"it is at least {ahead:.0f} s behind: {path} was written later than now"
            )
            return


_LIMITS = Check("limits")

# The maximum of calls in flight per listener; with fewer descriptors the daemon refuses
# connections.
_LEAST_FILES = 1024
_FEW_FILES = 8192


def checkLimits() -> Iterator[Finding]:
    """Check the hard limit of descriptors, which the daemon uses."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield evaluateFiles(hard)


def evaluateFiles(hard: int) -> Finding:
    """Evaluate the hard limit of descriptors."""
    if hard == resource.RLIM_INFINITY:
        return _LIMITS.ok("the number of open files is unlimited")
    text = f"{hard} open files are allowed (ulimit -Hn, LimitNOFILE=)"
    if hard < _LEAST_FILES:
        return _LIMITS.problem(f"{text}: connections will be refused")
    if hard < _FEW_FILES:
        return _LIMITS.warning(f"{text}: this is low for a server")
    return _LIMITS.ok(text)


_PERMISSIONS = Check("permissions")

# The catalog contains keys with their secrets.
_SECRETS = (".sqlite", ".sqlite-wal", ".sqlite-shm", "root-credentials")


def _nearest(directory: str) -> str:
    """Return a directory, or its nearest existing ancestor."""
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return directory


def checkData(directory: str) -> Iterator[Finding]:
    """Check the data directory, which the first start creates, and the files directly in it."""
    if not os.path.exists(directory):
        above = _nearest(directory)
        if os.access(above, os.W_OK | os.X_OK) and os.path.isdir(above):
            yield _PERMISSIONS.ok(f"{directory} will be created by the first start")
        else:
            yield _PERMISSIONS.problem(f"{directory} cannot be created: {above} is not writable")
        return
    if not os.path.isdir(directory):
        yield _PERMISSIONS.problem(f"{directory} is not a directory")
        return
    found = [*_ofDirectory(directory), *_ofFiles(directory)]
    yield from found or [
        _PERMISSIONS.ok(f"{directory} belongs to {_user(os.stat(directory).st_uid)}")
    ]


def checkSecretFile(path: str, what: str) -> Iterator[Finding]:
    """
    Check a file outside the data directory that only the daemon may read.

    @param path: A file that should exist.
    @param what: Its description, for the finding.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        yield _PERMISSIONS.problem(f"{what} {path}: {error.strerror}")
        return
    if not os.access(path, os.R_OK):
        yield _PERMISSIONS.problem(f"{what} {path} cannot be read by {_user(os.geteuid())}")
    elif mode & stat.S_IROTH:
        yield _PERMISSIONS.problem(f"{what} {path} is readable by every user: chmod o-r {path}")
    else:
        yield _PERMISSIONS.ok(f"{what} {path} is not readable by other users")


def _ofDirectory(directory: str) -> Iterator[Finding]:
    status = os.stat(directory)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        owner, us = _user(status.st_uid), _user(os.geteuid())
        yield _PERMISSIONS.problem(f"{directory} belongs to {owner} and is not writable by {us}")
    if status.st_mode & 0o077:
        yield _PERMISSIONS.warning(
            f"{directory} has mode {stat.S_IMODE(status.st_mode):04o}, other users can list it:"
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
            # A running daemon creates and removes files.
            continue
        if status.st_uid != owner:
            yield _PERMISSIONS.problem(
                f"{path} belongs to {_user(status.st_uid)}, the directory to {_user(owner)}:"
                f" chown {_user(owner)} {path}"
            )
        if name.endswith(_SECRETS) and status.st_mode & 0o077:
            yield _PERMISSIONS.problem(
                f"{path} contains secrets and has mode {stat.S_IMODE(status.st_mode):04o}:"
                f" chmod 600 {path}"
            )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


_DISK = Check("disk")

# The threshold of the daemon's own warning: one twentieth.
_LOW = 20

# Enough for the catalog entry of one object.
_LEAST_BYTES = 1 << 20
_LEAST_FREE_INODES = 100

_FILES = 200
_FILE_BYTES = 4096
_MOST_SECONDS = 2.0

# Measured: 0.1 to 2 ms on an SSD with a power-protected cache, 5 to 15 ms on a rotating disk.
_SLOW_MS = 20.0
_BAD_MS = 200.0

_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs")


def checkSpace(directory: str) -> Iterator[Finding]:
    """Check the free space and the free inodes."""
    yield evaluateSpace(directory, os.statvfs(_nearest(directory)))


def evaluateSpace(directory: str, figures: os.statvfs_result) -> Finding:
    """Evaluate the statistics of a file system."""
    free, total = figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize
    space = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free at {directory}"
    if free < _LEAST_BYTES:
        return _DISK.problem(f"{space}: nothing more can be stored")
    if free * _LOW < total:
        return _DISK.warning(f"{space}, less than 5 %")
    # File systems without an inode limit report 0 of 0.
    if figures.f_files and figures.f_favail < _LEAST_FREE_INODES:
        return _DISK.problem(f"{figures.f_favail} inodes are free at {directory}: no new files")
    if figures.f_files and figures.f_favail * _LOW < figures.f_files:
        return _DISK.warning(f"{figures.f_favail} inodes are free at {directory}, less than 5 %")
    return _DISK.ok(space)


def checkSyncs(directory: str) -> Iterator[Finding]:
    """Measure the time to sync small files, as uploads write them; no file remains."""
    path = _nearest(directory)
    kind = _kindOf(path, readMounts())
    if kind in _VOLATILE:
        yield _DISK.problem(f"{directory} is in memory ({kind}): a restart loses all data")
        return
    if kind in _REMOTE:
        yield _DISK.warning(
            f"{directory} is on a network file system ({kind}): locks and syncs may be unreliable"
        )
    try:
        times = _measure(path)
    except OSError as error:
        yield _DISK.problem(f"cannot write to {path}: {error.strerror}")
        return
    yield evaluateSyncs(times)


def evaluateSyncs(seconds: list[float]) -> Finding:
    """Evaluate the durations of syncs."""
    milliseconds = sorted(each * 1000 for each in seconds)
    worst = milliseconds[min(len(milliseconds) * 99 // 100, len(milliseconds) - 1)]
    middle = milliseconds[len(milliseconds) // 2]
    figures = f"a sync takes {middle:.2f} ms, {worst:.2f} ms at the 99th percentile"
    if worst > _BAD_MS:
        return _DISK.problem(f"{figures}: the disk is too slow for a store")
    if worst > _SLOW_MS:
        return _DISK.warning(f"{figures}: the disk will slow down clients")
    return _DISK.ok(figures)


def _measure(path: str) -> list[float]:
    times: list[float] = []
    end = monotonic() + _MOST_SECONDS
    while len(times) < _FILES and (not times or monotonic() < end):
        start = monotonic()
        descriptor = _namelessFile(path)
        try:
            os.write(descriptor, bytes(_FILE_BYTES))
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        times.append(monotonic() - start)
    return times


def _namelessFile(path: str) -> int:
    """Open an unnamed file, which disappears when this process ends."""
    try:
        return os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
    # The file system does not support O_TMPFILE: remove the name before writing a byte.
    descriptor, name = tempfile.mkstemp(prefix=".doctor-", dir=path)
    os.unlink(name)
    return descriptor


def readMounts() -> str:
    """Return the mounts that this process sees, a line each; empty if they are unknown."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _kindOf(path: str, mounts: str) -> str:
    """Return the file system type of a path; empty if it is unknown."""
    number = os.stat(path).st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if fields.split()[2:3] == [wanted]:
            return kind.split()[0]
    return ""
