"""
A hash table in memory that the processes of one machine share.

One process makes the memory (a C{memfd}) and hands its descriptor down, each of the others maps it.
Nothing serves it: whoever wants a record locks its bucket, reads or writes, and goes on::

    header:  magic, number of buckets, bytes of a record, random key       one page
    bucket:  heads of its 16 rows, then their records
    head:    digest of the key (16 bytes), when it began, length, until when it holds

The random key makes the digests, so nobody who chooses keys can choose a bucket. The lock of a
bucket is a POSIX record lock on one byte of the descriptor (C{fcntl(2)}), which the kernel takes
back from a process that dies. What such a process was writing is not seen by the others: a head
holds from the moment in which its last field is written, and that is C{until}.

Locks on the bytes of a file, or of memory with a descriptor, that processes share.

They are locks of an open file (fcntl(2), C{F_OFD_SETLK}) and not of a process: they do not go when
somebody closes another descriptor of the file, and the kernel takes them back at any death of those
who have it open. A byte needs not exist to be locked.

Which of the processes that share some memory are there.

Each takes a number that nobody had before, and a lock on the byte of the shared descriptor that has
this number, which the kernel takes back when the process ends, however it ends. So a number that
was written down tells for all times whether its process is still there, which an id of a process
does not: those are used again, and a worker's place among the others is, too.
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
Rows of a bucket. With half of the rows in use one bucket in 270 has more keys than rows; finding a
digest among so many costs a third of a microsecond.
"""

MAX_BYTES = 1 << 32
"""Of a table: more is a number that was mistaken for another."""

TRIES = 16
"""
How often an operation tries for a bucket that another process holds: 25 microseconds, five times as
long as who has a processor holds it. Who has lost it may be away for long, and a reactor cannot
wait for that.
"""

STOPPED_SECONDS = 0.5
"""
Who holds a bucket for longer did not just lose the processor, which takes tens of milliseconds on a
machine that has more to do than it can: it was stopped, and somebody should know.
"""

WARN_SECONDS = 60.0
"""The least time between two lines of the log that say so."""

_MAGIC = b"storagegate-tab1"
_PAGE = 4096
_HEADER = Struct("@16sQQ32s")
_HEAD = Struct("@16sdId")
_UNTIL = Struct("@d")
_HEADS = Struct("@" + "16sdId" * WAYS)
_UNTIL_AT = _HEAD.size - _UNTIL.size
_FIELDS = 4

Change = tuple[bytes, float]
"""What is to be kept, and until when; a time that is over takes the record out."""

Act = Callable[[bytes | None, float, float], Change | None]
"""
C{act(record, until, now)} gives the change of a record; C{None} leaves it as it is. It gets C{None}
for a record that is not there, or not any more.
"""


class TableBusy(Exception):
    """Another process holds the place of a record for now."""


class SharedTable:
    """
    Records of bounded size by key, each until a time of its own.

    When a bucket is full, the record that ends first leaves for a new one. What began after now is
    not there: somebody has set the clock back.

    Nobody waits for another process: who finds a bucket held goes on alone, and tries again with
    what comes next.

    One thread of a process: record locks keep processes apart, not threads.

    @ivar refusals: How often a bucket was held.
    """

    @classmethod
    def make(cls, name: str, rows: int, size: int) -> int:
        """
        Make the memory of a table. It takes up what is used of it.

        @param name: For whoever looks at the process's memory.
        @param rows: Records that fit, at least. As the buckets do not fill evenly, take twice as
            many as are to be kept.
        @param size: Bytes that a record has at most.
        @return: A descriptor, which processes inherit that are told to.
        @raise ValueError: If there can be no such table.
        """
        buckets = -(-rows // WAYS)
        whole = _PAGE + buckets * _stride(size)
        if rows < 1 or size < 1 or whole > MAX_BYTES:
            raise ValueError(f"a table of {rows} rows of {size} bytes cannot be")
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, whole)
            os.pwrite(fd, _HEADER.pack(_MAGIC, buckets, size, token_bytes(32)), 0)
            # Whoever touches memory that was cut off is killed.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @classmethod
    def attach(
        cls,
        fd: int,
        now: Callable[[], float] = time.time,
        seconds: Callable[[], float] = time.monotonic,
    ) -> "SharedTable":
        """
        Use a table.

        @param fd: What L{make} gave, here or in the process that this one has it from. It stays
            open as long as the table is used, and is the caller's.
        @param now: Gives the time in seconds: by the same clock in every process.
        @param seconds: Gives seconds of a clock that only goes forward.
        @raise ValueError: If there is no table.
        """
        return cls(fd, now, seconds)

    def __init__(self, fd: int, now: Callable[[], float], seconds: Callable[[], float]) -> None:
        whole = os.fstat(fd).st_size
        if whole < _PAGE:
            raise ValueError("the shared memory holds no table")
        self._memory = mmap(fd, whole)
        magic, buckets, size, key = _HEADER.unpack_from(self._memory)
        if magic != _MAGIC or whole != _PAGE + buckets * _stride(size):
            self._memory.close()
            raise ValueError("the shared memory holds no table")
        self.now = now
        self.size: int = size
        self.fd = fd
        self._buckets: int = buckets
        self._stride = _stride(size)
        self._room = _room(size)
        self._hash = blake2b(key=key, digest_size=16)
        self._thread = get_ident()
        self._seconds = seconds
        self.refusals = 0
        # Buckets that were held when they were last tried, and since when.
        self._held: dict[int, float] = {}
        self._warnsAgain = 0.0

    def close(self) -> None:
        """Let go of the memory; the descriptor stays."""
        self._memory.close()

    def __len__(self) -> int:
        """Count the records that hold now. It walks through the whole table: for tests."""
        count, now = 0, self.now()
        for bucket in range(self._buckets):
            fields = _HEADS.unpack_from(self._memory, _PAGE + bucket * self._stride)
            times = zip(fields[1::_FIELDS], fields[3::_FIELDS], strict=True)
            count += sum(began <= now < until for began, until in times)
        return count

    def read(self, key: bytes) -> Change | None:
        """
        Give a record and until when it holds, C{None} if there is none.

        @raise TableBusy: If it cannot be had for now.
        """
        found: list[Change] = []

        def look(record: bytes | None, until: float, now: float) -> None:
            if record is not None:
                found.append((record, until))

        self.change(key, look)
        return found[0] if found else None

    def peek(self, key: bytes) -> Change | None:
        """
        Give a record and until when it holds, whoever has its place.

        It may be a moment old, and mixed of two that follow each other.
        """
        bucket, digest = self._digested(key)
        _, record, until, _ = self._find(self._heads(bucket), digest, self.now())
        return None if record is None else (record, until)

    def change(self, key: bytes, act: Act) -> Change | None:
        """
        Change a record; nobody else reads or writes it in the meantime.

        @return: What C{act} has given.
        @raise TableBusy: If it cannot be had for now.
        @raise ValueError: If what is to be kept is larger than the table's records.
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
            return self._change(self._heads(bucket), digest, act)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, bucket)

    def _digested(self, key: bytes) -> tuple[int, bytes]:
        """Give the bucket of a key, and its digest."""
        hash = self._hash.copy()
        hash.update(key)
        digest = hash.digest()
        return int.from_bytes(digest[:6], "little") % self._buckets, digest

    def _heads(self, bucket: int) -> int:
        """Give where a bucket begins."""
        return _PAGE + bucket * self._stride

    def _find(
        self, heads: int, digest: bytes, now: float
    ) -> tuple[int, bytes | None, float, float]:
        """Give the head of a digest, -1 if there is none, its record, its end and its beginning."""
        # Nothing else among the heads is sixteen bytes that look like this one.
        head = self._memory.find(digest, heads, heads + _HEADS.size)
        if head >= 0:
            _, began, length, until = _HEAD.unpack_from(self._memory, head)
            if began <= now < until and length <= self.size:
                place = self._place(heads, head)
                return head, self._memory[place : place + length], until, began
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
        place = self._place(heads, head)
        # Not to be seen before all of it is there: whoever is killed in between leaves nothing.
        _UNTIL.pack_into(memory, head + _UNTIL_AT, 0.0)
        memory[place : place + len(kept)] = kept
        _HEAD.pack_into(memory, head, digest, began, len(kept), end)
        return change

    def _place(self, heads: int, head: int) -> int:
        """Give where the record of a head is."""
        return heads + _HEADS.size + (head - heads) // _HEAD.size * self._room

    def _free(self, heads: int, now: float) -> int:
        """Give the head that a new record takes."""
        fields = _HEADS.unpack_from(self._memory, heads)
        untils = fields[3::_FIELDS]
        ends = min(untils)
        if ends > now:
            # All rows hold, unless the clock was set back: then they are of a time to come.
            for index, began in enumerate(fields[1::_FIELDS]):
                if began > now:
                    return heads + index * _HEAD.size
        return heads + untils.index(ends) * _HEAD.size

    def _tryAgain(self, bucket: int, error: OSError) -> None:
        """
        Try again for a bucket that somebody else has.

        @raise TableBusy: If it stays so.
        """
        # One that was held before may be so for long: the try that has failed was enough.
        for _ in range(0 if bucket in self._held else TRIES):
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, bucket)
                return
            except OSError as again:
                error = again
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise error
        self._refused(bucket)
        raise TableBusy("another process holds the shared memory") from error

    def _refused(self, bucket: int) -> None:
        """Count a bucket that was held; say, once a minute, when it has been for long."""
        self.refusals += 1
        now = self._seconds()
        since = self._held.setdefault(bucket, now)
        if now - since >= STOPPED_SECONDS and now >= self._warnsAgain:
            self._warnsAgain = now + WARN_SECONDS
            # Only then a log is loaded.
            from twisted.logger import Logger

            Logger().warn(
                "a process that was stopped holds a place in the shared memory, {count} times so"
                " far; this one counts by itself meanwhile",
                count=self.refusals,
            )


def _room(size: int) -> int:
    """Give what a record takes up: whole words, so that the heads are aligned."""
    return (size + 7) & ~7


def _stride(size: int) -> int:
    return _HEADS.size + WAYS * _room(size)


# struct flock of Linux on machines with 64 bits: type, whence, start, length, process.
_FLOCK = Struct("@hhqqi4x")


class ByteLocks:
    """
    The locks of one process, which an inherited descriptor would share with whoever else has it.

    @ivar fd: The same file, opened anew: it has the locks.
    """

    def __init__(self, fd: int) -> None:
        """
        Open the file once more, until L{close}.

        @param fd: The shared descriptor.
        @raise OSError: There is none.
        """
        self.fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def tryLock(self, byte: int) -> bool:
        """Lock a byte, if nobody else has it locked."""
        try:
            self._control(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
        except BlockingIOError:
            return False
        return True

    def lock(self, byte: int) -> None:
        """Lock a byte. Blocks."""
        self._control(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, byte)

    def unlock(self, byte: int) -> None:
        """Give a lock back."""
        self._control(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def isFree(self, byte: int) -> bool:
        """Tell whether nobody else has a byte locked."""
        found = self._control(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte)
        kind: int = _FLOCK.unpack(found)[0]
        return kind == fcntl.F_UNLCK

    def close(self) -> None:
        """Give all locks back."""
        os.close(self.fd)

    def _control(self, command: int, kind: int, byte: int) -> bytes:
        return fcntl.fcntl(self.fd, command, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))


# After the bytes that stand for buckets of a table, see storagegate.core.sharedtable.
_FIRST = 1 << 60


class ProcessLiveness:
    """
    One process, as the others see it.

    @ivar number: Its own number, never 0.
    """

    def __init__(self, fd: int) -> None:
        """
        Be there until L{close}, or the end of the process.

        @param fd: The shared descriptor.
        """
        self._locks = ByteLocks(fd)
        self.number = 0
        while not self.number:
            number = randbits(56) or 1
            if self._locks.tryLock(_FIRST + number):
                self.number = number

    def isThere(self, number: int) -> bool:
        """Tell whether the process of a number, perhaps this one, is there."""
        return number == self.number or not self._locks.isFree(_FIRST + number)

    def close(self) -> None:
        """Be gone."""
        self._locks.close()
