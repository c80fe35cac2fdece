"""
The interface of a catalog. Catalogs are interchangeable, and so are blob stores (see
L{storagegate.storage.blobinterfaces}).

All methods are called in the reactor thread, and their Deferreds fire there. A look-up is a
coroutine: the embedded catalog reads from memory or from a cached page in about ten microseconds
and never suspends; a catalog on a network does. A caller that needs the blobs of an object
therefore leases them (L{ObjectStore.hold<storagegate.storage.store.ObjectStore.hold>}) before it
awaits anything else. A catalog whose look-ups suspend also has L{ICatalog.graceSeconds}. Contract
suites: C{tests/contract/}.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.storage.mutations import Mutation, T
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    AccessKey,
    AccountDocuments,
    BlobRow,
    Bucket,
    ExpiryRow,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    OlderVersions,
    Part,
    StoreUsage,
    UploadListing,
    VersionListing,
)


class ICatalog(Interface):
    """
    Metadata, transactions, and the reference counts of blobs.

    Look-ups and lists are coroutines; the result of a cancelled one is dropped. A read that begins
    after the Deferred of a mutation has fired sees that mutation, in every process.

    Every mutation is durable when its Deferred fires, to the extent of the store's durability
    setting. It is atomic: its condition is evaluated in the transaction that writes, and a failed
    mutation changes nothing. Waiting mutations are committed together. Cancelling the Deferred does
    not stop the mutation. Besides the errors listed, a mutation may fail with C{StoreFull},
    C{StoreReadOnly} or C{StoreBusy}, and with C{CommitUnknown} if it may have been committed.

    A catalog with leases commits under the lease of the current request (C{REQUEST_LEASE} in
    L{storagegate.storage.cluster.interfaces}), so that no write of the request is stored after that
    lease ends. Outside a request it commits under the current lease.
    """

    keysStaleSeconds: float | None = Attribute(
        "Maximum age of cached access keys, if reading them may be slow; C{None} if it is fast."
    )
    onKeysChanged: Callable[[], object] | None = Attribute(
        "Called when another process has changed the keys, if the catalog is notified of it."
    )
    graceSeconds: float = Attribute(
        "How long a blob is kept after its last reference ended, which is longer than any "
        "look-up. 0 if look-ups do not suspend, because leases then suffice."
    )
    failure: str | None = Attribute(
        "The reason why writes have stopped until a restart; C{None} if they work."
    )
    waiting: int = Attribute("Number of mutations that wait for a commit.")

    isRemote: bool = Attribute(
        "Whether the catalog is on other machines, and several nodes use it."
    )

    recentBucket: Callable[[str], tuple[Bucket, int] | None] | None = Attribute(
        "Returns a recent copy of a bucket from memory, with the revision by which a "
        "C{WriteCondition} checks that it is still current; L{None} if all look-ups are from "
        "memory."
    )

    async def bucket(name: str) -> Bucket | None:
        """
        Look up a bucket.

        @param name: The bucket's name as in the request, compared byte for byte.
        """

    async def object(
        bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """
        Look up a bucket and an object in it, in one query.

        Bucket and record come from one snapshot. Settings that were changed before the look-up
        began are current in the result.

        @param bucket: The bucket's name; the result has no record if the bucket does not exist.
        @param key: The object's key in UTF-8.
        @param versionId: The version to look up, which may be a delete marker; L{None} for the
            current object, which does not exist if the newest version is a delete marker.
        @param verify: Whether to compare the content's C{inline} bytes with their storage checksum.
        @raise CorruptObject: The bytes are missing or differ from the bytes that were written.
        @raise InvalidVersionId: This store cannot have issued such an id.
        """

    async def deleteMarker(bucket: str, key: bytes) -> ObjectRecord | None:
        """
        Look up the newest version of a key if it is a delete marker.

        @param key: The object's key in UTF-8.
        """

    def checkVersionId(versionId: str) -> None:
        """
        Check the form of a version id without reading the catalog.

        @param versionId: C{null}, or a version id. The version may no longer exist.
        @raise InvalidVersionId: This store cannot have issued such an id.
        """

    async def settings(bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """
        Read the generation of a bucket's settings and the documents by name, in one snapshot.

        @raise NoSuchBucket: The bucket does not exist.
        """

    async def upload(bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """
        Look up a multipart upload.

        @param bucket: The bucket's name; uploads of other buckets are not found.
        @param key: The key of the upload, in UTF-8; with any other key the upload is not found.
        @param uploadId: The upload's id.
        """

    async def buckets(account: str | None, prefix: str, after: str, limit: int) -> list[Bucket]:
        """
        List buckets by name.

        @param account: Only buckets of this account; L{None} lists all.
        @param prefix: Only names with this prefix; empty lists all.
        @param after: Names strictly after this one; empty starts at the beginning.
        @param limit: The most buckets in the result.
        """

    async def listObjects(page: ObjectRange) -> ObjectListing:
        """
        List a page of current objects, in time proportional to the page.

        @raise NoSuchBucket: The bucket does not exist.
        """

    async def listVersions(page: VersionRange) -> VersionListing:
        """
        List a page of versions and delete markers.

        Consecutive pages never skip a version that exists throughout the listing.

        @raise NoSuchBucket: The bucket does not exist.
        @raise InvalidVersionId: This store cannot have issued the id in the range.
        """

    def commit(mutation: Mutation[T]) -> Deferred[T]:
        """
        Commit a mutation. Its class has the errors and the meaning of the result.

        @param mutation: A value of L{storagegate.storage.mutations}.
        """

    async def parts(page: PartRange) -> list[Part]:
        """
        List a page of parts.

        @raise NoSuchUpload: The upload does not exist.
        """

    async def uploads(page: UploadRange) -> UploadListing:
        """
        List a page of uploads in progress.

        @raise NoSuchBucket: The bucket does not exist.
        """

    async def completed(bucket: str, key: bytes, uploadId: str) -> ObjectRecord | None:
        """
        Look up the version that the completion of an upload created, current or not.

        @param bucket: The bucket's name.
        @param key: The key of the upload, in UTF-8.
        @param uploadId: The id of the ended upload.
        """

    async def expiryPage(
        bucket: str, prefix: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> list[ExpiryRow]:
        """
        Read a page of a bucket's versions and delete markers by key, newest first within a key, to
        find expired ones.

        Each removal is checked again in its transaction: see C{WriteCondition.expiry}.

        @param bucket: The bucket's name.
        @param prefix: Only keys with this prefix.
        @param after: Key and sequence of the last row of the previous page; L{None} starts at the
            beginning.
        @param limit: The most rows in the result; a page with fewer rows is the last.
        @raise NoSuchBucket: The bucket does not exist.
        """

    async def bucketsWith(setting: str, after: str, limit: int) -> list[str]:
        """
        List the names of the buckets that have a setting.

        @param setting: The setting's name in L{PutSettings
            <storagegate.storage.mutations.PutSettings>}.
        @param after: Names strictly after this one; empty starts at the beginning.
        @param limit: The most names in the result.
        """

    async def progress(task: str) -> bytes | None:
        """Read the progress of a background task; L{None} if it has not started."""

    async def usage(limit: int) -> StoreUsage:
        """
        Read how many objects and bytes the buckets hold. Mutations maintain the counters, so this
        does not scan rows.

        @param limit: The most buckets that are listed individually.
        """

    async def olderVersions(bucket: str, limit: int) -> OlderVersions | None:
        """
        Count the older versions in a bucket. This scans them, so it has a bound.

        @param bucket: The bucket's name.
        @param limit: The most rows to scan, delete markers included.
        @return: L{None} if there are more rows.
        """

    async def accessKeys() -> tuple[int, list[AccessKey]]:
        """Read all issued keys and their generation, in one snapshot."""

    async def keysGeneration() -> int:
        """Read the number that changes whenever any process issues or revokes a key."""

    async def identities(after: int) -> tuple[int, Mapping[str, AccountDocuments]]:
        """
        Read the documents of the accounts whose revision is greater than C{after}, and the
        generation of the keys, in one snapshot.

        An account without documents that once had some is included, with its revision.
        """

    async def keyUses() -> Mapping[str, int]:
        """Read when each issued key was last used, in ms; unused keys are absent."""

    async def knownBlobs(ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have a row. No commit that began earlier can add a row for the
        others.
        """

    async def referenced(ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have references; one without a row has none."""

    async def garbage(after: str, limit: int) -> list[str]:
        """
        List blobs that have had no references for more than C{graceSeconds}, by id.

        @param after: Ids strictly after this one; empty starts at the beginning.
        @param limit: The most ids in the result.
        """

    async def blobRow(id: str) -> BlobRow | None:
        """Look up a blob; L{None} if it has no row."""

    async def blobRows(after: str, limit: int) -> list[BlobRow]:
        """
        List all blobs by id.

        @param after: Ids strictly after this one; empty starts at the beginning.
        @param limit: The most rows in the result.
        """

    async def checkInline(start: InlinePosition | None, limit: int) -> InlineCheck:
        """
        Compare the inline bytes of a page of objects with their checksums.

        @param start: The C{next} of the previous page; L{None} starts at the beginning.
        @param limit: Objects in the page.
        """

    def newBlobId(bucket: str = ...) -> str:
        """
        Generate a new blob id, from memory. A catalog on a network includes the lease of this node
        in the id and refuses writes with the new blob after that lease ends.

        @param bucket: The bucket, as it was looked up, of the object that will use the blob.
        @raise StoreReadOnly: This node may not write now.
        """

    def corruptBlobs() -> frozenset[str]:
        """
        Return the blobs that were marked before the catalog was opened, or since then by this
        process. There are few.
        """

    async def objectsOf(blobs: Sequence[str], limit: int) -> list[tuple[str, bytes, str, str]]:
        """
        Find the objects, in any of their versions, that have bytes in some blobs.

        A remote catalog does not look for them: that would read all rows.

        @param blobs: Ids of blobs.
        @param limit: The most objects to return.
        @return: The blob, and the key, bucket and version of the object.
        """

    def secret() -> bytes:
        """Return the 32 random bytes, generated once for this store, that sign list tokens."""

    def health() -> Mapping[str, str | None]:
        """
        Return for each component why the catalog cannot take writes now, or C{None}; from memory.

        @return: The key C{catalog}, and further components of a back end.
        """

    def measure(mutations: Callable[[int], Any], seconds: Callable[[float], Any]) -> None:
        """
        Measure each commit.

        @param mutations: Called with the number of mutations in the commit.
        @param seconds: Called with the duration of the commit, including its fsync.
        """

    def close() -> Deferred[None]:
        """Commit all waiting mutations, then close. Call once."""
