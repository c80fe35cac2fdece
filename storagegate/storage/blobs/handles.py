"""
Open blobs: descriptors that are kept for the next reader, so that a hot GET opens nothing, and
descriptors that are read once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.storage.errors import StoreBusy
from storagegate.storage.files import Files
from storagegate.storage.interfaces import ByteSink, Hashing, IBlobReader
from storagegate.storage.threadpool import IWorkPool

CAPACITY = 256
"""Descriptors kept open; a quarter of the 1024 that a process may have by default."""


DIGEST_JOB = 8 << 20
"""Bytes that one pool job reads and hashes: worth a hop, and soon over for those who wait."""

_READ = 1 << 20


def _readRun(files: Files, fd: int, offset: int, length: int, hashers: Sequence[Hashing]) -> bytes:
    """Read a run of a file, and hash it. Runs in a pool thread."""
    run = files.read(fd, length, offset)
    for hasher in hashers:
        hasher.update(run)
    return run


def _digestRun(
    files: Files, fd: int, offset: int, length: int, hashers: Sequence[Hashing], keep: bool
) -> int:
    """Read and hash a run of a file, a MiB at a time. Runs in a pool thread."""
    end = offset + length
    begin = offset
    while offset < end:
        chunk = files.read(fd, min(end - offset, _READ), offset)
        if not chunk:
            break
        if not keep:
            # What is hot for readers must not be pushed out of memory by what is only checked.
            files.dropCache(fd, offset, len(chunk))
        for hasher in hashers:
            hasher.update(chunk)
        offset += len(chunk)
    return offset - begin


class _Entry:
    """
    An open file and how many readers have it.

    @ivar doomed: The blob is gone: close it when the last reader has gone.
    """

    __slots__ = ("blob", "doomed", "fd", "size", "users")

    def __init__(self, blob: str, fd: int, size: int) -> None:
        self.blob = blob
        self.fd = fd
        self.size = size
        self.users = 0
        self.doomed = False


@implementer(IBlobReader)
class BlobHandle:
    """
    One reader's claim on an open blob.

    @ivar fd: For C{pread} and C{sendfile}; its own position is never used.
    """

    __slots__ = ("_entry", "_files", "_pool", "_release", "fd", "size")

    def __init__(
        self,
        entry: _Entry,
        release: Callable[[_Entry], None],
        pool: IWorkPool,
        files: Files,
    ) -> None:
        self.fd = entry.fd
        self.size = entry.size
        self._entry: _Entry | None = entry
        self._release = release
        self._pool = pool
        self._files = files

    async def sendTo(self, response: ByteSink, offset: int, length: int) -> None:
        """See L{IBlobReader.sendTo}."""
        await response.sendFile(self.fd, offset, length, self._pool.run)

    async def read(self, offset: int, length: int, hashers: Sequence[Hashing] = ()) -> bytes:
        """See L{IBlobReader.read}."""
        run: bytes = await self._pool.run(_readRun, self._files, self.fd, offset, length, hashers)
        return run

    async def digest(self, hashers: Sequence[Hashing], offset: int, length: int) -> int:
        """See L{IBlobReader.digest}."""
        return await digestFile(self._pool, self._files, self.fd, hashers, offset, length, True)

    def release(self) -> None:
        """
        See L{IBlobReader.release}.

        @raise RuntimeError: It was released already; its number may be another file's by now.
        """
        if self._entry is None:
            raise RuntimeError("the handle was released already")
        entry, self._entry = self._entry, None
        self._release(entry)


async def digestFile(
    pool: IWorkPool,
    files: Files,
    fd: int,
    hashers: Sequence[Hashing],
    offset: int,
    length: int,
    keep: bool,
) -> int:
    """
    Hash a run of a file in the pool, one job after the other.

    @param keep: Whether its pages may stay in the page cache.
    @return: How many bytes there were.
    """
    done = 0
    while done < length:
        size = min(DIGEST_JOB, length - done)
        count: int = await pool.run(_digestRun, files, fd, offset + done, size, hashers, keep)
        done += count
        if count < size:
            break
    return done


@implementer(IBlobReader)
class CheckedBlob:
    """
    A blob that is read once, to check it.

    @param close: Closes the descriptor.
    """

    def __init__(
        self, fd: int, size: int, pool: IWorkPool, files: Files, close: Callable[[int], None]
    ) -> None:
        self.size = size
        self._fd = fd
        self._pool = pool
        self._files = files
        self._close = close

    async def sendTo(self, response: ByteSink, offset: int, length: int) -> None:
        """See L{IBlobReader.sendTo}."""
        await response.sendFile(self._fd, offset, length, self._pool.run)

    async def read(self, offset: int, length: int, hashers: Sequence[Hashing] = ()) -> bytes:
        """See L{IBlobReader.read}."""
        run: bytes = await self._pool.run(_readRun, self._files, self._fd, offset, length, hashers)
        return run

    async def digest(self, hashers: Sequence[Hashing], offset: int, length: int) -> int:
        """See L{IBlobReader.digest}; the pages that are read leave the page cache."""
        return await digestFile(self._pool, self._files, self._fd, hashers, offset, length, False)

    def release(self) -> None:
        """See L{IBlobReader.release}."""
        self._close(self._fd)


class HandleCache:
    """
    The descriptors that were used last. All methods: reactor thread.

    @param files: The operating system's calls.
    @param openFile: From an id to a descriptor and a size; blocks, runs in the pool.
    @param closeFile: Closes a descriptor and never fails; blocks where it is the last of a file.
    """

    def __init__(
        self,
        pool: IWorkPool,
        files: Files,
        openFile: Callable[[str], tuple[int, int]],
        closeFile: Callable[[int], None],
        capacity: int = CAPACITY,
    ) -> None:
        self._pool = pool
        self._files = files
        self._openFile = openFile
        self._closeFile = closeFile
        self._capacity = capacity
        self._busy: dict[str, _Entry] = {}
        self._idle: OrderedDict[str, _Entry] = OrderedDict()
        self._opening: dict[str, list[Deferred[IBlobReader]]] = {}
        self._doomed: set[str] = set()
        self._closed = False

    def open(self, blob: str) -> BlobHandle | Deferred[IBlobReader]:
        """Claim an open blob; readers that miss at one time share the opening."""
        entry = self._busy.get(blob)
        if entry is None:
            entry = self._idle.pop(blob, None)
            if entry is None:
                return self._miss(blob)
            self._busy[blob] = entry
        entry.users += 1
        return BlobHandle(entry, self._release, self._pool, self._files)

    def drop(self, blobs: Iterable[str]) -> list[int]:
        """
        Forget blobs that are going away.

        @return: Descriptors to be closed off the reactor thread, for that frees their space.
        """
        descriptors = []
        for blob in blobs:
            if (entry := self._idle.pop(blob, None)) is not None:
                descriptors.append(entry.fd)
            elif (entry := self._busy.pop(blob, None)) is not None:
                entry.doomed = True
            elif blob in self._opening:
                self._doomed.add(blob)
        return descriptors

    def close(self) -> None:
        """Close what nobody reads, and the rest as it is released. Opens nothing any more."""
        self._closed = True
        while self._idle:
            self._closeFile(self._idle.popitem()[1].fd)
        for entry in self._busy.values():
            entry.doomed = True
        self._busy.clear()

    def _miss(self, blob: str) -> Deferred[IBlobReader]:
        if self._closed:
            return fail(StoreBusy("the store is closing"))
        waiting = self._opening.get(blob)
        first = waiting is None
        if waiting is None:
            waiting = self._opening[blob] = []
        reader: Deferred[IBlobReader] = Deferred(waiting.remove)
        waiting.append(reader)
        if first:
            job = self._pool.run(self._openFile, blob)
            job.addCallbacks(self._opened, self._notOpened, (blob,), {}, (blob,))
        return reader

    def _opened(self, file: tuple[int, int], blob: str) -> None:
        entry = _Entry(blob, *file)
        readers = self._opening.pop(blob)
        entry.doomed = blob in self._doomed or self._closed
        self._doomed.discard(blob)
        # One claim for ourselves, else the first reader's release could close it for the others.
        entry.users = 1
        if not entry.doomed:
            self._busy[blob] = entry
        # A reader that is told may cancel another, which takes itself off this list.
        while readers:
            entry.users += 1
            handle = BlobHandle(entry, self._release, self._pool, self._files)
            readers.pop(0).callback(handle)
        self._release(entry)

    def _notOpened(self, failure: Failure, blob: str) -> None:
        self._doomed.discard(blob)
        readers = self._opening.pop(blob)
        while readers:
            readers.pop(0).errback(failure)

    def _refused(self, failure: Failure, fd: int) -> None:
        # The pool has stopped: nobody is left who would have to wait for the journal.
        failure.trap(StoreBusy)
        self._closeFile(fd)

    def _release(self, entry: _Entry) -> None:
        entry.users -= 1
        if entry.users:
            return
        if entry.doomed:
            self._pool.runAnyway(self._closeFile, entry.fd).addErrback(self._refused, entry.fd)
            return
        del self._busy[entry.blob]
        self._idle[entry.blob] = entry
        while self._idle and len(self._busy) + len(self._idle) > self._capacity:
            self._closeFile(self._idle.popitem(last=False)[1].fd)
