"""Where uploaded files go: to a directory, or into memory."""

import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from storagegate.net.transport import writeAll

_WRITE_SIZE = 256 * 1024
"""Bytes of one write: fewer cost a change of threads each, more cost memory."""

_WRITE_PIECES = 512
"""Pieces of one write: the kernel takes 1024, and a client may send a byte at a time."""

_log = Logger()


class UploadedFile(dict[str, Any]):
    """
    A file as handlers see it; its members are keys and attributes.

    C{fieldname originalname encoding mimetype}, and once it is stored C{size} and either
    C{destination filename path} or C{buffer}.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an uploaded file has no {name}; it has {list(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.__getattr__(name)
        del self[name]


class IFileStore(Interface):
    """The files of one request, one after another."""

    def begin() -> None:
        """Begin a file."""

    def write(payload: bytes) -> Awaitable[None] | None:
        """
        Take some of its bytes.

        @return: What to wait for before there may be more; C{None} for nothing.
        """

    def end(file: UploadedFile) -> Awaitable[None] | None:
        """End it, and tell in C{file} where it is."""

    def discard() -> Deferred[None]:
        """Remove all files, whatever has become of them. Fires when they are gone."""


@implementer(IFileStore)
class MemoryStore:
    """Files in memory. How much of them there may be is for the caller to count."""

    def __init__(self) -> None:
        self._content = bytearray()

    def begin(self) -> None:
        """See L{IFileStore.begin}."""
        self._content = bytearray()

    def write(self, payload: bytes) -> None:
        """See L{IFileStore.write}."""
        self._content += payload

    def end(self, file: UploadedFile) -> None:
        """See L{IFileStore.end}."""
        file.update(buffer=bytes(self._content), size=len(self._content))
        self._content = bytearray()

    def discard(self) -> Deferred[None]:
        """See L{IFileStore.discard}."""
        self._content = bytearray()
        return succeed(None)


@implementer(IFileStore)
class DirectoryStore:
    """
    Files in a directory, under random names: nothing that the client says is in a path.

    One job is in a thread at a time. Meanwhile the next bytes are gathered, so that the network and
    the disk both work; when there are enough, the reader waits.
    """

    def __init__(self, run: Callable[..., Deferred[Any]], directory: str) -> None:
        """
        @param run: Calls a function in a thread.
        """
        self._run = run
        self._directory = directory
        self._paths: list[str] = []
        self._descriptor: int | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        # The job: whether there is one, who waits for its end, what went wrong in it.
        self._working = False
        self._waiter: Deferred[None] | None = None
        self._failure: Failure | None = None

    def begin(self) -> None:
        """See L{IFileStore.begin}."""
        self._paths.append(os.path.join(self._directory, secrets.token_hex(16)))
        self._size = 0

    def write(self, payload: bytes) -> Awaitable[None] | None:
        """See L{IFileStore.write}."""
        self._pieces.append(payload)
        self._held += len(payload)
        if self._held < _WRITE_SIZE and len(self._pieces) < _WRITE_PIECES:
            return None
        return self._flush(isLast=False)

    async def end(self, file: UploadedFile) -> None:
        """See L{IFileStore.end}."""
        await self._flush(isLast=True)
        await self._idle()
        path = self._paths[-1]
        file.update(
            destination=self._directory, filename=os.path.basename(path), path=path, size=self._size
        )

    def discard(self) -> Deferred[None]:
        """See L{IFileStore.discard}."""
        # Its own: whoever waits may be cancelled, which must not keep the files.
        discarded: Deferred[None] = Deferred()
        Deferred.fromCoroutine(self._discard()).addBoth(discarded.callback)
        return discarded

    async def _discard(self) -> None:
        self._pieces, self._held = [], 0
        while self._working:
            await self._worked()
        self._failure = None
        paths, self._paths = self._paths, []
        descriptor, self._descriptor = self._descriptor, None
        if paths:
            try:
                await self._run(_remove, descriptor, paths)
            except Exception:
                # Whatever made them unwanted is what the caller should hear of.
                _log.failure("uploaded files stay behind: {paths}", paths=paths)

    async def _flush(self, isLast: bool) -> None:
        await self._idle()
        pieces, self._pieces = self._pieces, []
        self._size += self._held
        self._held = 0
        self._working = True
        job = self._run(_write, self._descriptor, self._paths[-1], pieces, isLast)
        job.addCallbacks(self._written, self._failed)

    def _written(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._end()

    def _failed(self, failure: Failure) -> None:
        # The thread has closed it.
        self._descriptor = None
        self._failure = failure
        self._end()

    def _end(self) -> None:
        self._working = False
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _worked(self) -> Deferred[None]:
        """Wait for the end of the job; the waiting may be cancelled, the job may not."""
        self._waiter = Deferred()
        return self._waiter

    async def _idle(self) -> None:
        while self._working:
            await self._worked()
        failure, self._failure = self._failure, None
        if failure is not None:
            failure.raiseException()


def _write(descriptor: int | None, path: str, pieces: Sequence[bytes], isLast: bool) -> int | None:
    """
    Append to a file, which is made if it is not open yet. Runs in a thread.

    @return: The open file; C{None} if this was the last of it.
    @raise OSError: The file is closed then.
    """
    if descriptor is None:
        # The rights that the process gives to any file, as the framework's users know it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
    try:
        writeAll(partial(os.writev, descriptor), pieces)
    except OSError:
        os.close(descriptor)
        raise
    if not isLast:
        return descriptor
    os.close(descriptor)
    return None


def _remove(descriptor: int | None, paths: Sequence[str]) -> None:
    """Close and remove files. Runs in a thread."""
    if descriptor is not None:
        os.close(descriptor)
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            # It was not made yet.
            pass
