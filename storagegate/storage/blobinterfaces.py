"""
The interface of blobs: immutable bytes by id, which are written once and read by ranges.

All methods are called in the reactor thread, and their Deferreds fire there. Contract suites:
C{tests/contract/}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.storage.records import Content, Segment


class IBlobWriter(Interface):
    """
    Receives the bytes of one upload and makes them durable.

    Memory is bounded: at most two buffers for a body of any size, and those are smaller if there
    are many uploads: of half a MiB, or 4 MiB where each is an object of another server.
    """

    def write(chunk: bytes) -> Deferred[None] | None:
        """
        Add a chunk.

        @param chunk: The next bytes of the body, of any length.
        @return: L{None}, or, if the disk is slower, a Deferred that fires when the next may follow.
        @raise StoreFull: Here or through the Deferred; the writer is then aborted.
        """

    def finish() -> Deferred[Content]:
        """Make all bytes durable. The blobs of the content must then be confirmed or removed."""

    def abort() -> None:
        """Drop all bytes; files are removed in the background. Does nothing after an end."""

    def takeNewBlobs() -> Mapping[str, int]:
        """
        Return the CRC-32C of each new blob, once. The caller then confirms or removes the blobs.
        """


class Hasher(Protocol):
    """An object that L{IBlobReader} feeds bytes to: from C{hashlib}, or a CRC."""

    def update(self, data: bytes, /) -> object:
        """Add bytes; called in any thread, but never in two at the same time."""


class ByteSink(Protocol):
    """The part of a started response that L{IBlobReader.sendTo} uses."""

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """Send bytes; a returned Deferred must fire before the next."""

    async def sendFile(
        self, fd: int, offset: int, count: int, run: Callable[..., Deferred[Any]]
    ) -> None:
        """
        Send a range of an open file.

        @param fd: A descriptor that is open for reading; its own position is not used.
        @param offset: The first byte, from the beginning of the file.
        @param count: How many bytes are sent.
        @param run: Calls a function with arguments in a thread; its Deferred fires in the reactor
            thread.
        """


class IBlobReader(Interface):
    """A blob that is open for reading, on this machine or another."""

    size: int = Attribute("Bytes in the blob.")
    isVerified: bool = Attribute(
        "Whether the bytes are compared with checksums that are stored with them, before they are"
        " returned."
    )

    async def sendTo(response: ByteSink, offset: int, length: int) -> None:
        """
        Send a range of the blob as a part of a body: by C{sendfile} from a local file, else by
        ranged reads of a MiB at most, one of which is under way while the one before it is sent.

        @param response: A response whose head has been sent, with a length that includes the range.
        @param offset: The first byte, from the beginning of the blob.
        @param length: Bytes.
        @raise CorruptBlob: The blob ended before the range, or cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    async def read(offset: int, length: int, hashers: Sequence[Hasher] = ...) -> bytes:
        """
        Read a range of the blob.

        @param offset: The first byte, from the beginning of the blob.
        @param length: At most a few hundred KiB: it is in memory at once.
        @param hashers: Receive the bytes.
        @return: Fewer bytes than C{length} only at the end of the blob.
        @raise OSError: It cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    async def digest(hashers: Sequence[Hasher], offset: int, length: int) -> int:
        """
        Feed a range of the blob to hashers, without having it in memory at once.

        @param hashers: Each receives all bytes of the range, in order.
        @param offset: The first byte, from the beginning of the blob.
        @param length: Bytes; the range may be as long as the blob.
        @return: How many bytes there were: fewer than C{length} only at the end of the blob.
        @raise OSError: It cannot be read.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    def close() -> None:
        """Close the blob. Exactly once."""


class IBlobStore(Interface):
    """
    Immutable bytes by id. The ids come from L{storagegate.storage.interfaces.ICatalog.newBlobId}.

    The order of a write: C{finish} of a writer (the bytes are durable, without references), the
    commit of the catalog, L{confirm}, the response. The order of a removal: the commit that ends
    the last reference, leases and grace, L{remove}, and the catalog's C{forgetBlobs}. A crash
    leaves blobs that were not confirmed: L{unconfirmed} finds them.
    """

    failure: str | None = Attribute(
        "Why nothing is written or removed until a restart; C{None} while that is possible."
    )
    corrupt: frozenset[str] = Attribute("The blobs that are known to be corrupt.")
    onFull: Callable[[], object] = Attribute(
        "Called in any thread when an upload is refused because the disk is full; set by the store."
    )
    onShort: Callable[[str, int], object] = Attribute(
        "Called with a blob that L{open} finds short, or, where nodes share the blobs, missing, and"
        " the bytes it has; set by the store."
    )
    onDamaged: Callable[[str], object] = Attribute(
        "Called with a blob whose bytes are not the bytes that were written; set by the store."
    )
    reexamine: Callable[[str], Deferred[bool]] = Attribute(
        "Called by L{open} with a blob that is marked as corrupt; fires with whether its bytes are"
        " right again, and its mark was taken away; set by the store."
    )
    unconfirmedWrites: int = Attribute(
        "How many writes a server has answered without confirming the bytes."
    )
    rereads: int = Attribute("How many reads were made once more because the bytes were wrong.")
    isRemote: bool = Attribute(
        "Whether the bytes come over a network, so that every read of them is verified."
    )

    def writer(inlineLimit: int, expectedSize: int | None = None, bucket: str = "") -> IBlobWriter:
        """
        Begin an upload.

        @param inlineLimit: A body of up to this many bytes is returned inline and touches no
            file; 0 always makes a blob.
        @param expectedSize: The declared size in bytes, if there is one.
        @param bucket: See L{storagegate.storage.interfaces.ICatalog.newBlobId}.
        """

    async def open(segment: Segment) -> IBlobReader:
        """
        Open a segment's blob and check that it reaches as far as the segment does.

        A blob of this machine that was read lately opens without suspending.

        @param segment: The blob's id and the range of it that will be read.
        @raise CorruptBlob: It is missing, short, or known to be corrupt; one that is marked as
            corrupt is read once more before, now and then.
        @raise StoreBusy: The blobs cannot be reached now.
        """

    async def openUncached(blob: str) -> IBlobReader:
        """
        Open a blob that is read once, from beginning to end, to check it: neither the reader nor
        the bytes stay in a cache.

        @param blob: The blob's id.
        @raise CorruptBlob: It is missing.
        @raise OSError: It cannot be opened.
        """

    def remove(blobs: Sequence[str]) -> Deferred[None]:
        """
        Remove blobs without references. A missing blob is no error.

        @param blobs: Ids of blobs without references and leases.
        @raise StoreReadOnly: Nothing is removed until a restart. As a failure.
        """

    def confirm(blobs: Sequence[str]) -> None:
        """Remove the marks of new blobs in the background: the catalog has committed them."""

    async def unconfirmed(olderThanSeconds: float) -> Sequence[str]:
        """
        List blobs that were never confirmed: after a crash, or an upload that was not removed. A
        store that other nodes use has no marks of them: there they are those of this process, and
        the catalog knows the range of ids of one that crashed.

        @param olderThanSeconds: Longer than an upload may last: younger ones may be in progress.
        """

    def forget(blobs: Sequence[str]) -> None:
        """Close, as soon as they have no readers, blobs that another process has removed."""

    def markCorrupt(blobs: Iterable[str]) -> None:
        """Refuse to open these blobs from now on, until L{clearCorrupt}."""

    def clearCorrupt(blobs: Iterable[str]) -> None:
        """Open these blobs again: their bytes were read and are right."""

    def failStop(reason: str) -> None:
        """
        Write and remove nothing more until a restart. The first reason stays.

        @param reason: One line for operators and logs; it becomes C{failure}.
        """

    def health() -> Mapping[str, str | None]:
        """
        Return for each part why blobs cannot be written now, or C{None}; from memory.

        @return: C{blobs}, and further parts of a back end.
        """

    def idle() -> Deferred[None]:
        """Wait for the end of all background work."""

    async def close() -> None:
        """Finish background work, and close all files. Once."""
