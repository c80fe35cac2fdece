"""
The two halves of the store, cut so that each can be exchanged.

All methods are called in the reactor thread, and what they return fires there. A look-up is a
coroutine: the embedded catalog answers from memory or from a warm page in about ten microseconds
and never suspends, a catalog behind a network does. So a caller that needs its blobs to stay takes
a lease on them (L{ObjectStore.hold<storagegate.storage.store.ObjectStore.hold>}) before it awaits
anything else, and a catalog whose look-ups suspend has L{ICatalog.graceSeconds} besides. Contract
suites: C{tests/contract/}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.storage.records import (
    AccessKey,
    BlobRow,
    Bucket,
    Content,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    Part,
    Segment,
    WriteCondition,
)


class ICatalog(Interface):
    """
    Metadata, transactions, and the reference counts of blobs.

    Look-ups and lists are coroutines; to cancel one is to hear no more of it. A read that begins
    after the Deferred of a mutation has fired sees that mutation, in every process; only buckets
    may be C{bucketStaleSeconds} old.

    Every mutation is durable (as far as the store's durability says) when its Deferred fires, and
    is atomic: its condition is judged in the same transaction that writes. A mutation that fails
    has changed nothing. All mutations that wait are committed together. A mutation goes on if its
    Deferred is cancelled. Besides the errors named, each may fail with C{StoreFull},
    C{StoreReadOnly} or C{StoreBusy}.
    """

    bucketStaleSeconds: float = Attribute(
        "How old a bucket may be that a look-up finds; 0 where it is never old."
    )
    graceSeconds: float = Attribute(
        "How long a blob stays after its last reference went: longer than a look-up may take to"
        " come back. 0 where look-ups do not suspend, so that leases suffice."
    )
    failure: str | None = Attribute(
        "Why nothing more is written until a restart; C{None} while writes are possible."
    )
    waiting: int = Attribute("How many mutations wait for a commit.")

    async def bucket(name: str) -> Bucket | None:
        """Look a bucket up."""

    async def object(
        bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """
        Look up a bucket and an object in it, in one query.

        @param verify: Whether the content's C{inline} is compared with its storage checksum.
        @raise DamagedObject: The bytes are missing or not those that were written.
        """

    async def upload(bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look a multipart upload up."""

    async def buckets(account: str | None, prefix: str, after: str, limit: int) -> list[Bucket]:
        """
        List buckets by name.

        @param account: Only those of this account; L{None} lists all.
        @param after: Names strictly after this one.
        """

    async def listObjects(
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = ...,
    ) -> ObjectListing:
        """
        List a page of current objects in key order, at the cost of the answer's size.

        @param delimiter: Empty, or the text that ends a common prefix (searched behind C{prefix}).
        @param after: Start strictly after this. Where it equals a common prefix of this query
            (starts with C{prefix}, ends with C{delimiter}), the whole group is skipped.
        @param limit: Objects and common prefixes together; 0 gives an empty page with no C{last}.
        @param contentTypes: Whether the rows have their content types, which costs a look into the
            attributes of each.
        @raise NoSuchBucket: The bucket is not there.
        """

    def createBucket(bucket: Bucket) -> Deferred[None]:
        """
        Create a bucket.

        @raise BucketExists: It is there already, whoever owns it.
        """

    def deleteBucket(name: str) -> Deferred[None]:
        """
        Remove an empty bucket.

        @raise NoSuchBucket: It is not there.
        @raise BucketNotEmpty: It holds objects or uploads in progress.
        """

    def putObject(
        record: ObjectRecord, condition: WriteCondition, crcs: Mapping[str, int] = ...
    ) -> Deferred[ObjectRecord]:
        """
        Store an object under its key in place of the current one, and take over its content.

        Each of C{record.content.segments} is one reference to its blob.

        @param crcs: The new blobs among those that the segments name, with their CRC-32C: they
            become known. All others must be known already (a copy).
        @return: The record with its C{sequence}.
        @raise NoSuchBucket: The bucket is not there (any more).
        @raise NoSuchKey: C{If-Match} on a key that is not there.
        @raise PreconditionFailed: The condition did not hold.
        @raise ConcurrentChange: A segment names a blob that is being removed, or is neither
            known nor new.
        """

    def deleteObjects(
        bucket: str, entries: Sequence[tuple[bytes, str | None, WriteCondition]]
    ) -> Deferred[list[bool | Exception]]:
        """
        Remove objects in one transaction.

        @param entries: Key, version id or L{None}, condition.
        @return: For each entry whether something was removed, or the exception that concerns it
            (C{PreconditionFailed}, C{NoSuchKey}).
        @raise NoSuchBucket: The bucket is not there.
        """

    def createUpload(upload: MultipartUpload) -> Deferred[None]:
        """
        Begin a multipart upload.

        @raise NoSuchBucket: The bucket is not there.
        """

    def putPart(
        bucket: str, key: bytes, uploadId: str, part: Part, crcs: Mapping[str, int] = ...
    ) -> Deferred[None]:
        """
        Store a part in place of one of the same number, and take over its content.

        @param crcs: As for L{putObject}.
        @raise NoSuchUpload: The upload is not there (any more).
        @raise ConcurrentChange: As for L{putObject}.
        """

    async def parts(bucket: str, key: bytes, uploadId: str, after: int, limit: int) -> list[Part]:
        """
        List parts by number, those after C{after}.

        @raise NoSuchUpload: The upload is not there.
        """

    async def uploads(
        bucket: str, prefix: bytes, delimiter: bytes, keyAfter: bytes, idAfter: str, limit: int
    ) -> tuple[list[MultipartUpload], list[str], tuple[str, str] | None]:
        """
        List uploads in progress, by key and then by id.

        @param idAfter: With C{keyAfter}: uploads of that very key with a greater id are included;
            empty: only keys strictly after C{keyAfter}.
        @return: Uploads, common prefixes, and (key, upload id) after which the next page starts.
        @raise NoSuchBucket: The bucket is not there.
        """

    def completeUpload(
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """
        Turn the named parts into an object and end the upload; other parts are dropped.

        @param record: The object to be; its content is made here from the parts, in this order,
            and writes no bytes.
        @param parts: Part number and ETag.
        @raise NoSuchUpload: The upload is not there (any more).
        @raise InvalidPart: A part is not there or has another ETag (it was uploaded again).
        @raise PreconditionFailed: The condition did not hold. The upload goes on.
        """

    def abortUpload(bucket: str, key: bytes, uploadId: str) -> Deferred[None]:
        """
        End an upload and drop its parts.

        @raise NoSuchUpload: The upload is not there (any more).
        """

    async def accessKeys() -> tuple[int, list[AccessKey]]:
        """Read the generation of the issued keys and all of them, in one snapshot."""

    async def keysGeneration() -> int:
        """Read the number that changes whenever a key is issued or revoked, in any process."""

    def addAccessKey(key: AccessKey) -> Deferred[None]:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """

    def removeAccessKey(accessKey: str) -> Deferred[bool]:
        """Revoke a key; the result says whether it was there."""

    async def knownBlobs(ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have a row."""

    async def referenced(ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs an object or a part names."""

    async def garbage(after: str, limit: int) -> list[str]:
        """
        List blobs that nothing names since more than C{graceSeconds}, by id.

        @param after: Ids strictly after this one.
        """

    async def blobRow(id: str) -> BlobRow | None:
        """Look a blob up."""

    async def blobRows(after: str, limit: int) -> list[BlobRow]:
        """
        List all blobs by id.

        @param after: Ids strictly after this one.
        """

    async def checkInline(start: InlinePosition | None, limit: int) -> InlineCheck:
        """
        Compare the inline bytes of a page of objects with their checksums.

        @param start: The C{next} of the page before; L{None} begins.
        @param limit: Objects in the page.
        """

    def newBlobId() -> str:
        """
        Make an id that no blob has had, at once, from memory. On a network it carries the lease
        of this node, and a write that brings a new blob is refused once that lease is over.

        @raise StoreReadOnly: This node may not write now.
        """

    def forgetBlobs(ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs that were removed. Those that are named stay."""

    def markDamaged(blob: str) -> Deferred[None]:
        """Record that the bytes of a blob are not those that were written."""

    def damagedBlobs() -> frozenset[str]:
        """
        Return the blobs that were marked before the catalog was opened, or by this process since;
        they are few.
        """

    def secret() -> bytes:
        """Return 32 random bytes, made once for this store: list tokens are signed with them."""

    def health() -> Mapping[str, str | None]:
        """
        Return of each part why the catalog cannot take writes now, or C{None}; from memory.

        @return: C{catalog}, and what else a back end has to report.
        """

    def measure(onBatch: Callable[[int, float], None]) -> None:
        """
        Have each commit reported.

        @param onBatch: Called with the number of its mutations and the seconds that it took.
        """

    def close() -> Deferred[None]:
        """Commit what waits, then close. Once."""


class IBlobWriter(Interface):
    """
    Takes the bytes of one upload and makes them durable.

    Memory is bounded: at most two buffers of half a MiB, whatever the body's size.
    """

    def write(chunk: bytes) -> Deferred[None] | None:
        """
        Take a chunk. L{None}: go on at once. A Deferred: the disk lags; wait for it before the
        next chunk.

        @raise StoreFull: At once or through the Deferred; the sink is then aborted.
        """

    def finish() -> Deferred[Content]:
        """Make everything durable. The content has no owner yet: store it or discard it."""

    def abort() -> None:
        """Forget everything; files go away in the background. Harmless after an end."""

    def handOver() -> Mapping[str, int]:
        """Give the CRC-32C of each new blob away, once, with the duty to see to the blobs."""


class Hashing(Protocol):
    """What L{IBlobReader} feeds bytes to: anything that C{hashlib} makes, or a CRC."""

    def update(self, data: bytes, /) -> object:
        """Take bytes; called in a thread or in the reactor thread, never in two at one time."""


class ByteSink(Protocol):
    """What L{IBlobReader.sendTo} needs of a response that has begun."""

    def send(self, chunk: bytes) -> Deferred[None] | None:
        """Send bytes; a Deferred is to be waited for before the next."""

    async def sendFile(
        self, fd: int, offset: int, count: int, run: Callable[..., Deferred[Any]]
    ) -> None:
        """Send a run of an open file."""


class IBlobReader(Interface):
    """A blob open for reading: whether a file of this machine or bytes of another."""

    size: int = Attribute("Bytes in the blob.")

    async def sendTo(response: ByteSink, offset: int, length: int) -> None:
        """
        Send a run of the blob as a part of a body: by C{sendfile} from a local file, else by
        ranged reads, the next of which begins when the client has taken the last.

        @raise DamagedBlob: The blob ended before the run, or cannot be read.
        """

    async def read(offset: int, length: int, hashers: Sequence[Hashing] = ...) -> bytes:
        """
        Read a run of the blob.

        @param length: At most a few hundred KiB: it is in memory at once.
        @param hashers: Are fed the bytes.
        @return: Fewer bytes than asked for only at the end of the blob.
        @raise OSError: It cannot be read.
        """

    async def digest(hashers: Sequence[Hashing], offset: int, length: int) -> int:
        """
        Feed a run of the blob to hashers, without having it in memory at once.

        @return: How many bytes there were: fewer than asked for only at the end of the blob.
        @raise OSError: It cannot be read.
        """

    def release() -> None:
        """Let go of the blob. Exactly once."""


class IBlobStore(Interface):
    """
    Immutable bytes by id. The ids come from L{ICatalog.newBlobId}.

    The order of a write: C{finish} of a sink (the bytes are durable, nothing names them), the
    commit of the catalog, L{settle}, the response. The order of a removal: the commit that drops
    the last reference, leases and grace, L{discard}, L{ICatalog.forgetBlobs}. A crash leaves blobs
    that were not settled: L{unconfirmed} finds them.
    """

    failure: str | None = Attribute(
        "Why nothing is written or removed until a restart; C{None} while that is possible."
    )
    damaged: frozenset[str] = Attribute("The blobs that are known to be damaged.")

    def sink(inlineLimit: int, expectedSize: int | None = None) -> IBlobWriter:
        """
        Begin an upload.

        @param inlineLimit: A body of up to this many bytes is returned inline and touches no
            file; 0 always makes a blob.
        @param expectedSize: The declared size in bytes, if there is one.
        """

    async def open(segment: Segment) -> IBlobReader:
        """
        Open a segment's blob and check that it reaches as far as the segment does.

        A blob of this machine that was read lately opens without suspending.

        @raise DamagedBlob: It is missing, short, or known to be damaged.
        """

    async def openToCheck(blob: str) -> IBlobReader:
        """
        Open a blob that is read once, from beginning to end, to check it: neither the handle nor
        the bytes are kept in a cache.

        @raise DamagedBlob: It is missing.
        @raise OSError: It cannot be opened.
        """

    def discard(blobs: Sequence[str]) -> Deferred[None]:
        """Remove blobs that nothing names any more. One that is gone is removed."""

    def settle(blobs: Sequence[str]) -> None:
        """The catalog has committed these blobs; what marked them as new goes in the background."""

    async def unconfirmed(olderThanSeconds: float) -> Sequence[str]:
        """
        List blobs that were never settled: what a crash left, or an upload that was not removed.

        @param olderThanSeconds: Longer than an upload may last: younger ones may be in progress.
        """

    def forget(blobs: Sequence[str]) -> None:
        """Let go of what is open of blobs that another process has removed."""

    def markDamaged(blobs: Iterable[str]) -> None:
        """Open these blobs no more."""

    def failStop(reason: str) -> None:
        """Write and remove nothing more until a restart. The first reason stays."""

    def health() -> Mapping[str, str | None]:
        """
        Return of each part why blobs cannot be written now, or C{None}; from memory.

        @return: C{blobs}, and what else a back end has to report.
        """

    def idle() -> Deferred[None]:
        """Wait until nothing is left to do in the background."""

    async def close() -> None:
        """Finish what runs in the background, and close what is open. Once."""
