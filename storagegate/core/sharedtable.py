"""
Shared memory for the processes of one machine: a hash table, byte locks, and process liveness.

One process creates the memory of a table (a C{memfd}); its children inherit the descriptor and map
it. There is no server: a process locks the bucket of a record, and reads or writes it::

    header:  magic, number of buckets, bytes of a record, random key       one page
    bucket:  heads of its 16 rows, then their records
    head:    digest of the key (16 bytes), start, length, end of validity

The random key makes the digests unpredictable, so that clients cannot choose a bucket. The lock of
a bucket is a POSIX record lock on one byte of the descriptor (C{fcntl(2)}), which the kernel
releases when a process dies. Other processes never see a half-written record: a head becomes valid
only when its last field, the end of validity, is written.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from mmap import mmap
from secrets import randbits, token_bytes
from struct import Struct
from threading import get_ident

WAYS = 16
"""
Rows of a bucket. With half of all rows in use, one bucket in 270 has more keys than rows. Finding a
digest in a bucket takes a third of a microsecond.
"""

MAX_BYTES = 1 << 32
"""The maximum size of a table in bytes; a larger number is a mistake."""

TRIES = 16
"""
How often an operation tries to lock a bucket. The tries take 25 microseconds, five times as long as
a running process holds it. A preempted process may hold it longer, but a reactor cannot wait for
that.
"""

STOPPED_SECONDS = 0.5
"""
After this time, the holder of a bucket is considered stopped, which is logged. Preemption takes
only tens of milliseconds, even on an overloaded machine.
"""

WARN_SECONDS = 60.0
"""The minimum time between two such log lines."""

_MAGIC = b"storagegate-tab1"
_PAGE = 4096
_HEADER = Struct("@16sQQ32s")
_HEAD = Struct("@16sdId")
_UNTIL = Struct("@d")
_HEADS = Struct("@" + "16sdId" * WAYS)
_UNTIL_AT = _HEAD.size - _UNTIL.size
_FIELDS = 4

Change = tuple[bytes, float]
"""The new record, and the end of its validity; an end that has passed removes the record."""

Act = Callable[[bytes | None, float, float], Change | None]
"""
C{act(record, until, now)} returns the change of a record; C{None} leaves it as it is. The record is
C{None} if it is absent or has expired.
"""


class TableBusy(Exception):
    """Another process holds the bucket of a record."""


class SharedTable:
    """
    Records of bounded size by key, each with an end of validity.

    In a full bucket, a new record replaces the one that expires first. A record that starts in the
    future counts as absent: the clock was set back.

    No process waits for another: after L{TableBusy}, a caller continues without the table. Only one
    thread of a process may use a table: record locks exclude processes, not threads.

    @ivar refusals: How often a bucket was busy.
    """

    @classmethod
    def make(cls, name: str, rows: int, size: int) -> int:
        """
        Create the memory of a table. Only used pages take memory.

        @param name: The name of the memory, as shown in C{/proc/PID/maps}.
        @param rows: The minimum number of rows. Buckets do not fill evenly, so it should be twice
            the number of records.
        @param size: The maximum size of a record in bytes.
        @return: A descriptor, which can be passed to child processes.
        @raise ValueError: If a number is not positive, or the table is too large.
        """
        buckets = -(-rows // WAYS)
        whole = _PAGE + buckets * _stride(size)
        if rows < 1 or size < 1 or whole > MAX_BYTES:
            raise ValueError(f"a table of {rows} rows of {size} bytes cannot be")
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, whole)
            os.pwrite(fd, _HEADER.pack(_MAGIC, buckets, size, token_bytes(32)), 0)
            # Access to truncated memory would kill a process.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @classmethod
    def attach(cls, fd: int) -> "SharedTable":
        """
        Attach to the table that another process created.

        @param fd: Its descriptor in this process.
        @raise ValueError: If the descriptor holds no table.
        """
        return cls(fd)

    def __init__(
        self,
        fd: int,
        now: Callable[[], float] = time.monotonic,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Map a table.

        @param fd: The descriptor of L{make}, perhaps inherited. It must stay open while the table
            is used; the caller closes it.
        @param now: Returns seconds of a clock that all processes share. The monotonic clock is the
            same for all processes of a machine.
        @param seconds: Returns seconds of a monotonic clock.
        @raise ValueError: If the descriptor holds no table.
        """
        whole = os.fstat(fd).st_size
        if whole < _PAGE:
            raise ValueError("the shared memory contains no table")
        self._memory = mmap(fd, whole)
        magic, buckets, size, key = _HEADER.unpack_from(self._memory)
        if magic != _MAGIC or whole != _PAGE + buckets * _stride(size):
            self._memory.close()
            raise ValueError("the shared memory contains no table")
        self.now = now
        self.size: int = size
        self.fd = fd
        self._buckets: int = buckets
        self._stride = _stride(size)
        self._rowBytes = _rowBytes(size)
        self._hash = blake2b(key=key, digest_size=16)
        self._thread = get_ident()
        self._seconds = seconds
        self.refusals = 0
        # Buckets that were busy at the last try, and since when.
        self._held: dict[int, float] = {}
        self._warnsAgain = 0.0

    def close(self) -> None:
        """Unmap the memory; the descriptor stays open."""
        self._memory.close()

    def __len__(self) -> int:
        """Return the number of valid records. It reads the whole table: for tests."""
        count, now = 0, self.now()
        for bucket in range(self._buckets):
            fields = _HEADS.unpack_from(self._memory, _PAGE + bucket * self._stride)
            times = zip(fields[1::_FIELDS], fields[3::_FIELDS], strict=True)
            count += sum(began <= now < until for began, until in times)
        return count

    def read(self, key: bytes) -> Change | None:
        """
        Return a record and the end of its validity, or C{None}.

        @param key: A key of any length; only its digest is stored.
        @raise TableBusy: If another process holds its bucket.
        """
        found: list[Change] = []

        def look(record: bytes | None, until: float, now: float) -> None:
            if record is not None:
                found.append((record, until))

        self.change(key, look)
        return found[0] if found else None

    def peek(self, key: bytes) -> Change | None:
        """
        Return a record and the end of its validity without a lock.

        The record may be slightly stale, or a mixture of two versions.
        """
        bucket, digest = self._digested(key)
        heads = _PAGE + bucket * self._stride
        _, record, until, _ = self._find(heads, digest, self.now())
        return None if record is None else (record, until)

    def change(self, key: bytes, act: Act) -> Change | None:
        """
        Change a record under its lock.

        @param act: Returns the change.
        @return: The change.
        @raise TableBusy: If another process holds its bucket.
        @raise ValueError: If the new record is too large.
        """
        assert get_ident() == self._thread, "one thread of a process may use a table"
        bucket, digest = self._digested(key)
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
        except OSError as error:
            self._tryAgain(bucket, error)
        if self._held:
            self._held.pop(bucket, None)
        try:
            return self._change(_PAGE + bucket * self._stride, digest, act)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, bucket)

    def _digested(self, key: bytes) -> tuple[int, bytes]:
        """Return the bucket of a key, and its digest."""
        hash = self._hash.copy()
        hash.update(key)
        digest = hash.digest()
        return int.from_bytes(digest[:6], "little") % self._buckets, digest

    def _find(
        self, heads: int, digest: bytes, now: float
    ) -> tuple[int, bytes | None, float, float]:
        """Return the head of a digest or -1, its record, its end and its start."""
        # No other field of the heads contains these sixteen bytes.
        head = self._memory.find(digest, heads, heads + _HEADS.size)
        if head >= 0:
            _, began, length, until = _HEAD.unpack_from(self._memory, head)
            if began <= now < until and length <= self.size:
                start = self._recordAt(heads, head)
                return head, self._memory[start : start + length], until, began
        return head, None, 0.0, now

    def _change(self, heads: int, digest: bytes, act: Act) -> Change | None:
        memory = self._memory
        now = self.now()
        head, record, until, began = self._find(heads, digest, now)
        change = act(record, until, now)
        if change is None:
            return None
        kept, end = change
        if len(kept) > self.size:
            raise ValueError(f"a record has at most {self.size} bytes, not {len(kept)}")
        if head < 0:
            if end <= now:
                return change
            head = self._free(heads, now)
        start = self._recordAt(heads, head)
        # Invalid until complete: a process killed in between leaves no record.
        _UNTIL.pack_into(memory, head + _UNTIL_AT, 0.0)
        memory[start : start + len(kept)] = kept
        _HEAD.pack_into(memory, head, digest, began, len(kept), end)
        return change

    def _recordAt(self, heads: int, head: int) -> int:
        """Return the offset of the record of a head."""
        return heads + _HEADS.size + (head - heads) // _HEAD.size * self._rowBytes

    def _free(self, heads: int, now: float) -> int:
        """Return the head for a new record."""
        fields = _HEADS.unpack_from(self._memory, heads)
        untils = fields[3::_FIELDS]
        ends = min(untils)
        if ends > now:
            # All rows are in use, unless the clock was set back: then some start in the future.
            for index, began in enumerate(fields[1::_FIELDS]):
                if began > now:
                    return heads + index * _HEAD.size
        return heads + untils.index(ends) * _HEAD.size

    def _tryAgain(self, bucket: int, error: OSError) -> None:
        """
        Retry locking a bucket; log a bucket that is held for long, at most once a minute.

        @raise TableBusy: If another process still holds it.
        """
        # A bucket that was already busy may stay busy for long: do not retry.
        for _ in range(0 if bucket in self._held else TRIES):
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
                return
            except OSError as again:
                error = again
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise error
        self.refusals += 1
        now = self._seconds()
        since = self._held.setdefault(bucket, now)
        if now - since >= STOPPED_SECONDS and now >= self._warnsAgain:
            self._warnsAgain = now + WARN_SECONDS
            # Imported late: processes without a log also use tables.
            from twisted.logger import Logger

            Logger().warn(
                "a stopped process holds a slot of the shared memory, {count} times so"
                " far; this one counts by itself meanwhile",
                count=self.refusals,
            )
        raise TableBusy("another process holds the shared memory") from error


def _rowBytes(size: int) -> int:
    """Return the size of a row in bytes, rounded up to words to align the heads."""
    return (size + 7) & ~7


def _stride(size: int) -> int:
    return _HEADS.size + WAYS * _rowBytes(size)


# struct flock of Linux on machines with 64 bits: type, whence, start, length, process.
_FLOCK = Struct("@hhqqi4x")


class ByteLocks:
    """
    Locks of one process on the bytes of a shared file or memory.

    The locks belong to an open file description (C{fcntl(2)}, C{F_OFD_SETLK}), not to the process:
    closing another descriptor of the file does not release them. The kernel releases them when the
    process dies. A byte need not exist to be locked.

    @ivar fd: The file, opened again: an inherited descriptor would share the locks.
    """

    def __init__(self, fd: int) -> None:
        """
        Open the file again, until L{close}.

        @param fd: The shared descriptor.
        @raise OSError: If it is not open.
        """
        self.fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def tryLock(self, byte: int) -> bool:
        """Lock a byte unless another process has it locked; return whether it is now locked."""
        try:
            self._control(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
        except BlockingIOError:
            return False
        return True

    def lock(self, byte: int) -> None:
        """Lock a byte. Blocks."""
        self._control(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, byte)

    def unlock(self, byte: int) -> None:
        """Release a lock."""
        self._control(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def isFree(self, byte: int) -> bool:
        """Return whether no other process has a byte locked."""
        found = self._control(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte)
        kind: int = _FLOCK.unpack(found)[0]
        return kind == fcntl.F_UNLCK

    def close(self) -> None:
        """Release all locks."""
        os.close(self.fd)

    def _control(self, command: int, kind: int, byte: int) -> bytes:
        return fcntl.fcntl(self.fd, command, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))


# Beyond the lock bytes of a table's buckets.
_FIRST = 1 << 60


class ProcessLiveness:
    """
    Publishes that this process is alive.

    A process takes a number that was never used and locks the byte at that offset, which the kernel
    unlocks at the end of the process. A stored number therefore always shows whether its process is
    alive, while process ids and worker indices are reused.

    @ivar number: The number of this process, never 0.
    """

    def __init__(self, fd: int) -> None:
        """
        Publish this process as alive until L{close} or its end.

        @param fd: The shared descriptor.
        """
        self._locks = ByteLocks(fd)
        self.number = 0
        while not self.number:
            number = randbits(56) or 1
            if self._locks.tryLock(_FIRST + number):
                self.number = number

    def isAlive(self, number: int) -> bool:
        """Return whether the process of a number, perhaps this one, is alive."""
        return number == self.number or not self._locks.isFree(_FIRST + number)

    def close(self) -> None:
        """Stop publishing this process as alive."""
        self._locks.close()
