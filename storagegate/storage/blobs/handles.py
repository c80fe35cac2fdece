"""Open descriptors of blobs, kept for the next reader: a hot GET opens nothing."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.storage.errors import StoreBusy
from storagegate.storage.interfaces import IBlobReader
from storagegate.storage.threadpool import IWorkPool

CAPACITY = 256
"""Descriptors kept open; a quarter of the 1024 that a process may have by default."""


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
    """One reader's claim on an open blob."""

    __slots__ = ("_entry", "_release", "fd", "size")

    def __init__(self, entry: _Entry, release: Callable[[_Entry], None]) -> None:
        self.fd = entry.fd
        self.size = entry.size
        self._entry: _Entry | None = entry
        self._release = release

    def release(self) -> None:
        """
        See L{IBlobReader.release}.

        @raise RuntimeError: It was released already; its number may be another file's by now.
        """
        if self._entry is None:
            raise RuntimeError("the handle was released already")
        entry, self._entry = self._entry, None
        self._release(entry)


class HandleCache:
    """
    The descriptors that were used last. All methods: reactor thread.

    @param openFile: From an id to a descriptor and a size; blocks, runs in the pool.
    @param closeFile: Closes a descriptor and never fails; blocks where it is the last of a file.
    """

    def __init__(
        self,
        pool: IWorkPool,
        openFile: Callable[[str], tuple[int, int]],
        closeFile: Callable[[int], None],
        capacity: int = CAPACITY,
    ) -> None:
        self._pool = pool
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
        return BlobHandle(entry, self._release)

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
            readers.pop(0).callback(BlobHandle(entry, self._release))
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
