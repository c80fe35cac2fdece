"""
The two halves of the store, cut so that each can be exchanged.

Whatever says I{reactor thread, at once} answers in about ten microseconds from a warm page cache.
Everything else returns a Deferred that fires in the reactor thread. Contract suites:
C{tests/contract/}.
"""

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.storage.records import (
    AccessKey,
    Bucket,
    Content,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    Part,
    Segment,
    WriteCondition,
)


class ICatalog(Interface):
    """
    Metadata and transactions.

    Every mutation is durable (as far as the store's durability says) when its Deferred fires, and
    is atomic: its condition is judged in the same transaction that writes. A mutation that fails
    has changed nothing. All mutations that wait are committed together. Besides the errors named,
    each may fail with C{StoreFull}, C{StoreReadOnly} or C{StoreBusy}.
    """

    def bucket(name: str) -> Bucket | None:
        """Look a bucket up. Reactor thread, at once."""

    def object(
        bucket: str, key: bytes, versionId: str | None = None
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """Look up a bucket and an object in it, in one query. Reactor thread, at once."""

    def verified(
        bucket: str, key: bytes, versionId: str | None = None
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """
        Look up as L{object}, and compare the content's C{inline} with its storage checksum.

        @raise CorruptObject: The bytes are missing or not those that were written.
        """

    def buckets(account: str | None, prefix: str, after: str, limit: int) -> Deferred[list[Bucket]]:
        """
        List buckets by name.

        @param account: Only those of this account; L{None} lists all.
        @param after: Names strictly after this one.
        """

    def listObjects(
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        limit: int,
        contentTypes: bool = ...,
    ) -> Deferred[ObjectListing]:
        """
        List a page of current objects in key order, at the cost of the answer's size.

        @param delimiter: Empty, or the text that ends a common prefix (searched behind C{prefix}).
        @param after: Start strictly after this. Where it equals a common prefix of this query
            (starts with C{prefix}, ends with C{delimiter}), the whole group is skipped.
        @param limit: Objects and common prefixes together; 0 gives an empty page with no C{last}.
        @param contentTypes: Whether the rows have their content types, which costs a look into the
            attributes of each.
        @raise NoSuchBucket: As a failure of the Deferred.
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

    def upload(bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """Look an upload up. Reactor thread, at once."""

    def putPart(
        bucket: str, key: bytes, uploadId: str, part: Part, crcs: Mapping[str, int] = ...
    ) -> Deferred[None]:
        """
        Store a part in place of one of the same number, and take over its content.

        @param crcs: As for L{putObject}.
        @raise NoSuchUpload: The upload is not there (any more).
        @raise ConcurrentChange: As for L{putObject}.
        """

    def parts(
        bucket: str, key: bytes, uploadId: str, after: int, limit: int
    ) -> Deferred[list[Part]]:
        """
        List parts by number, those after C{after}.

        @raise NoSuchUpload: The upload is not there.
        """

    def uploads(
        bucket: str, prefix: bytes, delimiter: bytes, keyAfter: bytes, idAfter: str, limit: int
    ) -> Deferred[tuple[list[MultipartUpload], list[str], tuple[str, str] | None]]:
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

    def accessKeys() -> list[AccessKey]:
        """All issued keys. Reactor thread; short, for keys are few."""

    def keysGeneration() -> int:
        """A number that changes whenever a key is issued or revoked. Reactor thread, at once."""

    def addAccessKey(key: AccessKey) -> Deferred[None]:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """

    def removeAccessKey(accessKey: str) -> Deferred[bool]:
        """Revoke a key; say whether it was there."""

    def secret() -> bytes:
        """32 random bytes, made once for this store: list tokens are signed with them."""


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


class IBlobReader(Interface):
    """A blob open for reading."""

    fd: int = Attribute("For C{pread} and C{sendfile}; its own position is never used.")
    size: int = Attribute("Bytes in the blob.")

    def release() -> None:
        """Say that the descriptor is not needed any more. Exactly once."""


class IBlobStore(Interface):
    """Immutable bytes by id."""

    def sink(inlineLimit: int, expectedSize: int | None = None) -> IBlobWriter:
        """
        Begin an upload.

        @param inlineLimit: A body of up to this many bytes is returned inline and touches no
            file; 0 always makes a blob.
        @param expectedSize: The declared size in bytes, if there is one.
        """

    def open(blob: str) -> IBlobReader | Deferred[IBlobReader]:
        """
        Open a blob: at once where its descriptor is cached, else through the pool.

        @raise CorruptBlob: It is missing or known to be damaged.
        """

    async def openSegment(segment: Segment) -> IBlobReader:
        """
        Open a segment's blob and see that it reaches as far as the segment does.

        @raise CorruptBlob: It is missing, short, or known to be damaged.
        """

    def discard(blobs: Sequence[str]) -> Deferred[None]:
        """Remove blobs that nobody names any more, in the pool."""

    def settle(blobs: Sequence[str]) -> None:
        """The catalog has committed these blobs: their staging links can go, in the background."""
