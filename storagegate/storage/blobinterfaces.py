"""
The interface of blob stores: immutable bytes by id, written once and read by range.

All methods are called in the reactor thread, and their Deferreds fire there. Contract suites:
C{tests/contract/}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.net.transport import Buffer
from storagegate.storage.records import Content, Segment


class IBlobWriter(Interface):
    """
    Receives the bytes of one upload and makes them durable.

    Memory is bounded: at most two buffers for a body of any size, each of half a MiB, or 4 MiB if
    each becomes an object on another server. Buffers are smaller if there are many uploads.
    """

    def write(chunk: bytes) -> Deferred[None] | None:
        """
        Add a chunk.

        @param chunk: The next bytes of the body, of any length.
        @return: L{None}, or, if the disk is slower, a Deferred that fires when the next chunk may
            be written.
        @raise StoreFull: Raised here or through the Deferred; the writer is then aborted.
        """

    def finish() -> Deferred[Content]:
        """Make all bytes durable. The blobs of the content must then be confirmed or removed."""

    def abort() -> None:
        """
        Drop all bytes and remove files in the background. Does nothing after C{finish} or C{abort}.
        """

    def takeNewBlobs() -> Mapping[str, int]:
        """
        Return the CRC-32C of each new blob, once. The caller must then confirm or remove the blobs.
        """


class Hasher(Protocol):
    """A C{hashlib} object or CRC to which L{IBlobReader} feeds bytes."""

    def update(self, data: Buffer, /) -> object:
        """
        Add bytes, which it must not keep. Called in any thread, but never in two concurrently.
        """


class BlobFilter(Protocol):
    """
    Changes the bytes of one upload on their way to its blob or row. The blob, its size and its
    checksum are of the changed bytes.

    @ivar size: Number of changed bytes so far.
    """

    size: int

    def update(self, buffers: Sequence[Buffer], isLast: bool) -> list[bytes]:
        """Change the next bytes of a blob. Called in any thread, but never in two concurrently."""

    def whole(self, data: bytes) -> bytes:
        """Change all bytes of inline content, of at most 64 KiB."""


class ByteSink(Protocol):
    """The part of a started response that L{IBlobReader.sendTo} uses."""

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """Send bytes. A returned Deferred must fire before the next call."""

    async def sendFile(
        self, fd: int, offset: int, count: int, run: Callable[..., Deferred[Any]]
    ) -> None:
        """
        Send a range of an open file.

        @param fd: A descriptor open for reading; its file position is not used.
        @param offset: The first byte, from the start of the file.
        @param count: How many bytes are sent.
        @param run: Calls a function with arguments in a thread; its Deferred fires in the reactor
            thread.
        """


class IBlobReader(Interface):
    """A blob that is open for reading, on this machine or another."""

    size: int = Attribute("The size of the blob in bytes.")
    isVerified: bool = Attribute(
        "Whether reads verify the bytes by stored checksums before they return them."
    )

    async def sendTo(response: ByteSink, offset: int, length: int) -> None:
        """
        Send a range of the blob as part of a body: with C{sendfile} from a local file, otherwise
        with ranged reads of at most 1 MiB. Each read overlaps the sending of the previous range.

        @param response: A response whose head has been sent, with a length that includes the range.
        @param offset: The first byte, from the start of the blob.
        @param length: Bytes.
        @raise CorruptBlob: The blob ended before the range, or cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    async def read(offset: int, length: int, hashers: Sequence[Hasher] = ...) -> bytes:
        """
        Read a range of the blob.

        @param offset: The first byte, from the start of the blob.
        @param length: At most a few hundred KiB, which are in memory at once.
        @param hashers: Receive the bytes.
        @return: Fewer bytes than C{length} only at the end of the blob.
        @raise OSError: It cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    def readWarm(offset: int, length: int) -> bytes | None:
        """
        Read a small range of the blob that is in memory.

        @param offset: The first byte, from the start of the blob.
        @param length: Bytes.
        @return: L{None} if that has to wait.
        """

    async def digest(
        hashers: Sequence[Hasher], offset: int, length: int, space: memoryview | None = ...
    ) -> int:
        """
        Feed a range of the blob to hashers without loading it into memory at once.

        @param hashers: Each receives all bytes of the range, in order.
        @param offset: The first byte, from the start of the blob.
        @param length: Bytes; the range may be as long as the blob.
        @param space: Memory for the bytes that are read, of which a hasher gets as many at a time.
            New memory takes longer than the read, because its pages are mapped and cleared.
        @return: The number of bytes read: fewer than C{length} only at the end of the blob.
        @raise OSError: It cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    def close() -> None:
        """Close the blob. Call exactly once."""


class IBlobStore(Interface):
    """
    Immutable bytes by id. The ids come from L{storagegate.storage.interfaces.ICatalog.newBlobId}.

    The order of a write: C{finish} of the writer (the bytes are durable but unreferenced), the
    commit of the catalog, L{confirm}, the response. The order of a removal: the commit that removes
    the last reference, the end of leases and grace, L{remove}, the catalog's C{forgetBlobs}. After
    a crash, L{unconfirmed} finds the blobs that were not confirmed.
    """

    failure: str | None = Attribute(
        "The reason why writes and removals have stopped until a restart; C{None} if they work."
    )
    corrupt: frozenset[str] = Attribute("The blobs known to be corrupt.")
    onFull: Callable[[], object] = Attribute(
        "Called in any thread when an upload is refused because the disk is full. The store "
        "sets it."
    )
    onShort: Callable[[str, int], object] = Attribute(
        "Called with a blob that L{open} finds too short, and the bytes present; for blobs that "
        "several nodes share, also with a missing blob. The store sets it."
    )
    onDamaged: Callable[[str], object] = Attribute(
        "Called with a blob whose bytes differ from the bytes that were written. The store sets it."
    )
    reexamine: Callable[[str], Deferred[bool]] = Attribute(
        "Called by L{open} with a blob that is marked as corrupt. The result is whether its "
        "bytes are correct again, in which case the mark was removed. The store sets it."
    )
    unconfirmedWrites: int = Attribute(
        "Number of writes that a server answered without confirming the bytes."
    )
    rereads: int = Attribute("Number of reads that were repeated because the bytes were wrong.")
    isRemote: bool = Attribute(
        "Whether the bytes are read over a network, so that every read is verified."
    )

    def writer(
        inlineLimit: int,
        expectedSize: int | None = None,
        bucket: str = "",
        filtered: BlobFilter | None = None,
    ) -> IBlobWriter:
        """
        Begin an upload.

        @param inlineLimit: A body of up to this many bytes is returned inline without touching a
            file; 0 always creates a blob.
        @param expectedSize: The declared size in bytes, if known.
        @param bucket: See L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        @param filtered: Changes the bytes before they are stored. All other sizes are of the bytes
            that the writer receives.
        """

    async def open(segment: Segment) -> IBlobReader:
        """
        Open a segment's blob and check that it is long enough for the segment.

        A recently read blob on this machine opens without suspending.

        @param segment: The blob's id and the range of it that will be read.
        @raise CorruptBlob: The blob is missing, short, or known to be corrupt. From time to time a
            blob marked as corrupt is reread before it is refused.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    async def openUncached(blob: str) -> IBlobReader:
        """
        Open a blob for one sequential check. Neither the reader nor the bytes are cached.

        @param blob: The blob's id.
        @raise CorruptBlob: It is missing.
        @raise OSError: It cannot be opened.
        """

    def remove(blobs: Sequence[str]) -> Deferred[None]:
        """
        Remove blobs without references. A missing blob is no error.

        @param blobs: Ids of blobs without references and leases.
        @raise StoreReadOnly: Nothing is removed until a restart. Reported through the Deferred.
        """

    def confirm(blobs: Sequence[str]) -> None:
        """Remove the marks of new blobs in the background, after the catalog has committed them."""

    async def unconfirmed(
        olderThanSeconds: float, corrected: Callable[[int], int]
    ) -> Sequence[str]:
        """
        List blobs that were never confirmed, because of a crash or a failed removal of an upload. A
        store that nodes share has no marks: it lists only the blobs of this process, and the
        catalog knows the id range of a crashed process.

        @param olderThanSeconds: Longer than an upload may last; younger blobs may belong to uploads
            in progress.
        @param corrected: Corrects a date that was given while the clock was behind, in milliseconds
            since 1970.
        """

    def forget(blobs: Sequence[str]) -> None:
        """Close blobs that another process has removed, as soon as they have no readers."""

    def markCorrupt(blobs: Iterable[str]) -> None:
        """Refuse to open these blobs until L{clearCorrupt}."""

    def clearCorrupt(blobs: Iterable[str]) -> None:
        """Allow these blobs to be opened again, after a read found their bytes intact."""

    def failStop(reason: str) -> None:
        """
        Stop all writes and removals until a restart. Only the first reason is kept.

        @param reason: One line for operators and logs; it becomes C{failure}.
        """

    def health() -> Mapping[str, str | None]:
        """
        Return for each component why blobs cannot be written now, or C{None}; from memory.

        @return: The key C{blobs}, and further components of a back end.
        """

    def idle() -> Deferred[None]:
        """Wait until all background work has finished."""

    async def close() -> None:
        """Finish background work and close all files. Call once."""
