"""
The catalog of the store, which can be exchanged, as the blobs can (see
L{storagegate.storage.blobinterfaces}).

All methods are called in the reactor thread, and their Deferreds fire there. A look-up is a
coroutine: the embedded catalog reads from memory or from a cached page in about ten microseconds
and never suspends, a catalog on a network does. So a caller that needs the blobs of an object takes
a lease on them (L{ObjectStore.hold<storagegate.storage.store.ObjectStore.hold>}) before it awaits
anything else, and a catalog whose look-ups suspend has L{ICatalog.graceSeconds} besides. Contract
suites: C{tests/contract/}.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from storagegate.storage.records import (
    AccessKey,
    BlobRow,
    Bucket,
    DefaultRetention,
    ExpiryRow,
    InlineCheck,
    InlinePosition,
    MultipartUpload,
    ObjectListing,
    ObjectRecord,
    Part,
    Removal,
    StoreUsage,
    VersionListing,
    WriteCondition,
)


class ICatalog(Interface):
    """
    Metadata, transactions, and the reference counts of blobs.

    Look-ups and lists are coroutines; the result of a cancelled one is dropped. A read that begins
    after the Deferred of a mutation has fired sees that mutation, in every process.

    Every mutation is durable (as far as the store's durability says) when its Deferred fires, and
    is atomic: its condition is evaluated in the same transaction that writes. A mutation that fails
    has changed nothing. All mutations that wait are committed together. To cancel its Deferred does
    not stop a mutation. Besides the errors named, each may fail with C{StoreFull},
    C{StoreReadOnly} or C{StoreBusy}; with C{CommitUnknown} where it may have been committed.

    A catalog with leases commits under that of the request in progress (C{REQUEST_LEASE} in
    L{storagegate.storage.clustercatalog}), so that nothing of it is stored after the end of that
    lease; outside of requests, under the lease of the moment.
    """

    keysStaleSeconds: float | None = Attribute(
        "How long issued keys that were read may be used, where reading them may take long."
    )
    onKeysChanged: Callable[[], object] | None = Attribute(
        "Called when another process has changed the keys, where the catalog is notified of it."
    )
    graceSeconds: float = Attribute(
        "How long a blob is kept after the end of its last reference: longer than a look-up may"
        " take. 0 if look-ups do not suspend, so that leases suffice."
    )
    failure: str | None = Attribute(
        "Why nothing more is written until a restart; C{None} while writes are possible."
    )
    waiting: int = Attribute("How many mutations wait for a commit.")

    isRemote: bool = Attribute("Whether the catalog is on other machines, for several nodes.")

    recentBucket: Callable[[str], tuple[Bucket, int] | None] | None = Attribute(
        "Returns from memory a bucket as it was some time ago, with the revision by which a"
        " C{WriteCondition} makes sure that it still is so; L{None} where look-ups are from"
        " memory anyway."
    )

    async def bucket(name: str) -> Bucket | None:
        """
        Look a bucket up.

        @param name: The bucket's name as in the request; it is compared byte for byte.
        """

    async def object(
        bucket: str, key: bytes, versionId: str | None = None, *, verify: bool = False
    ) -> tuple[Bucket | None, ObjectRecord | None]:
        """
        Look up a bucket and an object in it, in one query.

        The bucket is as it is when the record is: a setting that was changed before the look-up
        began is never an older one.

        @param bucket: The bucket's name; the result has no record if the bucket does not exist.
        @param key: The object's key in UTF-8.
        @param versionId: The version that is looked up, which may be a delete marker; L{None}: the
            current object. It is not found where the newest version is a delete marker.
        @param verify: Whether the content's C{inline} is compared with its storage checksum.
        @raise CorruptObject: The bytes are missing or not those that were written.
        @raise InvalidVersionId: The store cannot have made such an id.
        """

    async def deleteMarker(bucket: str, key: bytes) -> ObjectRecord | None:
        """
        Look up the delete marker that is the newest version of a key, if that is one.

        @param key: The object's key in UTF-8.
        """

    def checkVersionId(versionId: str) -> None:
        """
        Check the form of the id of a version, from memory.

        @param versionId: C{null}, or an id of a version that may be gone.
        @raise InvalidVersionId: The store cannot have made such an id.
        """

    async def settings(bucket: str) -> tuple[int, Mapping[str, bytes]]:
        """
        Read the generation of a bucket's settings, and their documents by name, in one snapshot.

        @raise NoSuchBucket: The bucket does not exist.
        """

    async def upload(bucket: str, key: bytes, uploadId: str) -> MultipartUpload | None:
        """
        Look a multipart upload up.

        @param bucket: The bucket's name; an upload of another bucket is not found.
        @param key: The key in UTF-8 that the upload was created for; with another key it is not
            found.
        @param uploadId: The id that the upload was created with.
        """

    async def buckets(account: str | None, prefix: str, after: str, limit: int) -> list[Bucket]:
        """
        List buckets by name.

        @param account: Only those of this account; L{None} lists all.
        @param prefix: Only names that begin with it; empty lists all.
        @param after: Names strictly after this one; empty begins.
        @param limit: The most buckets in the result.
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
        List a page of current objects in key order, in time proportional to the page.

        @param prefix: Only keys that begin with it.
        @param delimiter: Empty, or the text that ends a common prefix (searched behind C{prefix}).
        @param after: Start strictly after this. If it equals a common prefix of this query
            (starts with C{prefix}, ends with C{delimiter}), the whole group is skipped.
        @param limit: Objects and common prefixes together; 0 gives an empty page with no C{last}.
        @param contentTypes: Whether the rows have their content types, which are parsed from the
            attributes of each.
        @raise NoSuchBucket: The bucket does not exist.
        """

    async def listVersions(
        bucket: str,
        prefix: bytes,
        delimiter: bytes,
        after: bytes,
        versionAfter: str | None,
        limit: int,
    ) -> VersionListing:
        """
        List a page of versions and delete markers by key, of each key the newest first.

        Pages that follow each other pass no version that exists all the time.

        @param prefix: Only keys that begin with it.
        @param delimiter: As for L{listObjects}.
        @param after: Keys strictly after this one, or after this common prefix; empty begins.
        @param versionAfter: With C{after}: versions of that very key that are older than this one
            are included; L{None} excludes all of them.
        @param limit: Versions and common prefixes together.
        @raise NoSuchBucket: The bucket does not exist.
        @raise InvalidVersionId: The store cannot have made such an id.
        """

    def createBucket(bucket: Bucket) -> Deferred[None]:
        """
        Create a bucket.

        @param bucket: The new bucket; its name is unique among all accounts.
        @raise BucketExists: It exists already, of any account.
        """

    def deleteBucket(name: str) -> Deferred[None]:
        """
        Remove an empty bucket.

        @param name: The bucket's name.
        @raise NoSuchBucket: It does not exist.
        @raise BucketNotEmpty: It holds versions, delete markers or uploads in progress.
        """

    def setVersioning(bucket: str, versioning: str) -> Deferred[None]:
        """
        Enable or suspend versioning, for all writes that are committed later.

        @param versioning: C{VERSIONING_ENABLED} or C{VERSIONING_SUSPENDED}.
        @raise NoSuchBucket: The bucket does not exist.
        @raise BucketLocked: Versioning would be suspended, and the bucket has object lock.
        """

    def putTags(bucket: str, key: bytes, versionId: str | None, tags: str) -> Deferred[None]:
        """
        Replace the tags of an object; nothing else of it changes, and no version is made.

        @param key: The object's key in UTF-8.
        @param versionId: The version whose tags change; L{None}: the current object.
        @param tags: URL-encoded, as C{x-amz-tagging} has them; empty removes all.
        @raise NoSuchBucket: The bucket does not exist.
        @raise NoSuchKey: There is no such object or version, or it is a delete marker.
        """

    def putAcl(bucket: str, key: bytes, sequence: int, acl: str) -> Deferred[None]:
        """
        Replace the access control list of an object; nothing else of it changes.

        @param key: The object's key in UTF-8.
        @param sequence: That of the record whose list changes, which need not be current any more.
        @param acl: Text that the catalog does not read; empty for the private list.
        @raise NoSuchBucket: The bucket does not exist.
        @raise NoSuchKey: There is no such version any more.
        """

    def setObjectLock(bucket: str, default: DefaultRetention | None) -> Deferred[None]:
        """
        Enable the object lock of a bucket, which nothing disables, and set its default.

        @param default: The retention of versions that are made from then on and name none; L{None}:
            they have none.
        @raise NoSuchBucket: The bucket does not exist.
        @raise BucketNotVersioned: Its versioning is not enabled.
        """

    def putRetention(
        bucket: str,
        key: bytes,
        versionId: str | None,
        mode: str,
        untilMs: int,
        atMs: int,
        bypass: bool = ...,
    ) -> Deferred[None]:
        """
        Change the retention of a version; nothing else of it changes, and no version is made.

        @param key: The object's key in UTF-8.
        @param versionId: The version whose retention changes; L{None}: the current object.
        @param mode: C{GOVERNANCE} or C{COMPLIANCE}; empty lifts the retention.
        @param untilMs: When it ends, in milliseconds since the epoch; 0 to lift it.
        @param atMs: The time of the request, which judges whether the present one has run out.
        @param bypass: Whether governance mode gives way. Compliance mode can only be extended.
        @raise NoSuchBucket: The bucket does not exist.
        @raise BucketNotLocked: It has no object lock.
        @raise NoSuchKey: There is no such object or version, or it is a delete marker.
        @raise ObjectLocked: The present retention forbids it.
        """

    def putLegalHold(bucket: str, key: bytes, versionId: str | None, isOn: bool) -> Deferred[None]:
        """
        Place or release the legal hold of a version.

        @param bucket: The bucket's name.
        @param key: The object's key in UTF-8.
        @param versionId: The version that is held; L{None}: the current object.
        @param isOn: Whether it is held from now on.
        @raise NoSuchBucket: The bucket does not exist.
        @raise BucketNotLocked: It has no object lock.
        @raise NoSuchKey: There is no such object or version, or it is a delete marker.
        """

    def putSettings(bucket: str, documents: Mapping[str, bytes | None]) -> Deferred[int]:
        """
        Store settings of a bucket, all or none of them.

        @param bucket: The bucket's name.
        @param documents: By name; L{None} removes one.
        @return: The new generation of the bucket's settings.
        @raise NoSuchBucket: The bucket does not exist.
        """

    def putObject(
        record: ObjectRecord, condition: WriteCondition, newBlobs: Mapping[str, int] = ...
    ) -> Deferred[ObjectRecord]:
        """
        Store an object under its key, and reference its content.

        The current one is replaced, or becomes an older version, as the versioning of the bucket
        says at this moment. Where that is suspended, the new one replaces the C{null} version,
        wherever that is among the versions of the key.

        Where the bucket has object lock, the retention of a record that names none is the default
        of this moment.

        Each of C{record.content.segments} is one reference to its blob.

        @param record: The object as it is stored; its C{sequence} is ignored, the catalog assigns
            one.
        @param condition: Evaluated against the current object of the key.
        @param newBlobs: The new blobs of the segments, with their CRC-32C; they get a row. All
            others must have one already (a copy).
        @return: The record with its C{sequence} and C{versionId}.
        @raise NoSuchBucket: The bucket does not exist (any more).
        @raise NoSuchKey: C{If-Match} on a key without an object.
        @raise PreconditionFailed: The condition did not hold.
        @raise BucketChanged: The bucket has another revision than the condition.
        @raise ConcurrentChange: The blob of a segment is being removed, or is neither known
            nor new.
        @raise BlobsElsewhere: The blob of a segment is in another shard than the bucket.
        @raise BucketNotLocked: The record names a lock, and the bucket has no object lock.
        """

    def deleteObjects(
        bucket: str,
        entries: Sequence[tuple[bytes, str | None, WriteCondition]],
        account: str = ...,
        atMs: int = ...,
    ) -> Deferred[list[Removal | Exception]]:
        """
        Remove objects in one transaction.

        Without a version id the current object is removed; where the bucket has had versioning, a
        delete marker is put above all versions of the key, also above none. With one that version
        is removed, and the newest of the others becomes current.

        @param bucket: The bucket of all entries.
        @param entries: Key, version id or L{None}, and a condition on the current object or on
            that version.
        @param account: The account of delete markers.
        @param atMs: The time of delete markers, in milliseconds since the epoch.
        @return: For each entry what was removed, or its exception (C{PreconditionFailed},
            C{NoSuchKey}, C{ObjectLocked} for a version that is locked at C{atMs}, and
            C{ConcurrentChange} for a removal by a rule that is not right any more).
        @raise NoSuchBucket: The bucket does not exist.
        @raise InvalidVersionId: The store cannot have made one of the ids.
        """

    def createUpload(upload: MultipartUpload) -> Deferred[None]:
        """
        Create a multipart upload.

        @param upload: The upload with its id; its key is UTF-8.
        @raise NoSuchBucket: The bucket does not exist.
        """

    def putPart(
        bucket: str, key: bytes, uploadId: str, part: Part, newBlobs: Mapping[str, int] = ...
    ) -> Deferred[None]:
        """
        Store a part in place of one of the same number, and reference its content.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload that the part belongs to.
        @param part: The part with its number, ETag and content.
        @param newBlobs: As for L{putObject}.
        @raise NoSuchUpload: The upload does not exist (any more).
        @raise ConcurrentChange: As for L{putObject}.
        """

    async def parts(bucket: str, key: bytes, uploadId: str, after: int, limit: int) -> list[Part]:
        """
        List parts by number.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload whose parts are listed.
        @param after: Numbers strictly after this one; 0 begins.
        @param limit: The most parts in the result.
        @raise NoSuchUpload: The upload does not exist.
        """

    async def uploads(
        bucket: str, prefix: bytes, delimiter: bytes, keyAfter: bytes, idAfter: str, limit: int
    ) -> tuple[list[MultipartUpload], list[str], tuple[str, str] | None]:
        """
        List uploads in progress, by key and then by id.

        @param bucket: The bucket's name.
        @param prefix: Only keys that begin with it.
        @param delimiter: As for L{listObjects}.
        @param keyAfter: Keys strictly after this one; empty begins.
        @param idAfter: With C{keyAfter}: uploads of that very key with a greater id are included;
            empty: only keys strictly after C{keyAfter}.
        @param limit: Uploads and common prefixes together.
        @return: Uploads, common prefixes, and (key, upload id) after which the next page starts.
        @raise NoSuchBucket: The bucket does not exist.
        """

    def completeUpload(
        uploadId: str,
        record: ObjectRecord,
        parts: Sequence[tuple[int, str]],
        condition: WriteCondition,
    ) -> Deferred[ObjectRecord]:
        """
        Turn the named parts into an object and end the upload; other parts are dropped.

        @param uploadId: The id of the upload; its bucket and key are those of C{record}.
        @param record: The new object; its content is replaced by the segments of the parts, in
            this order.
        @param parts: Part number and ETag.
        @param condition: Evaluated against the current object of the key.
        @raise NoSuchUpload: The upload does not exist (any more).
        @raise InvalidPart: A part does not exist or has another ETag (it was uploaded again).
        @raise PreconditionFailed: The condition did not hold. The upload continues.
        """

    async def completed(bucket: str, key: bytes, uploadId: str) -> ObjectRecord | None:
        """
        Look up the version that the completion of an upload has made, current or not.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of an upload that has ended.
        """

    def abortUpload(
        bucket: str, key: bytes, uploadId: str, generation: int | None = ...
    ) -> Deferred[None]:
        """
        End an upload and drop its parts.

        @param bucket: The bucket's name.
        @param key: The key in UTF-8 that the upload was created for.
        @param uploadId: The id of the upload that ends.
        @param generation: That which the settings of the bucket must have; L{None}: any.
        @raise NoSuchUpload: The upload does not exist (any more).
        @raise ConcurrentChange: The settings have another generation.
        """

    async def expiryPage(
        bucket: str, prefix: bytes, after: tuple[bytes, int] | None, limit: int
    ) -> list[ExpiryRow]:
        """
        Read a page of the versions and delete markers of a bucket by key, of each key the newest
        first, for the search for expired ones.

        What is removed then is checked again in its transaction: see C{WriteCondition.expiry}.

        @param bucket: The bucket's name.
        @param prefix: Only keys that begin with it.
        @param after: Key and sequence of the last row of the page before; L{None} begins.
        @param limit: The most rows in the result; fewer are the last page.
        @raise NoSuchBucket: The bucket does not exist.
        """

    async def bucketsWith(setting: str, after: str, limit: int) -> list[str]:
        """
        List the names of the buckets that have a setting.

        @param setting: Its name in L{putSettings}.
        @param after: Names strictly after this one; empty begins.
        @param limit: The most names in the result.
        """

    async def progress(task: str) -> bytes | None:
        """Read where a task in the background has come to; L{None} if it has not begun."""

    def putProgress(task: str, document: bytes) -> Deferred[None]:
        """
        Write where a task in the background has come to.

        @param task: Its name.
        @param document: What L{progress} returns, in this process or after a restart.
        """

    async def usage(limit: int) -> StoreUsage:
        """
        Read how many objects and bytes the buckets hold, which each mutation counts; nothing is
        counted here.

        @param limit: The most buckets in the result by themselves.
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

    def changeAccessKey(key: AccessKey) -> Deferred[bool]:
        """Replace the issued key with the same C{accessKey}; the result is whether it existed."""

    def removeAccessKey(accessKey: str) -> Deferred[bool]:
        """Revoke a key; the result is whether it existed."""

    async def keyUses() -> Mapping[str, int]:
        """Read when each issued key was used last, in ms; a key that never was is absent."""

    def noteKeyUses(uses: Mapping[str, int]) -> Deferred[None]:
        """
        Note when keys were used last. The generation of the keys stays.

        @param uses: In ms by access key; that of a revoked key is ignored.
        """

    async def knownBlobs(ids: Sequence[str]) -> frozenset[str]:
        """
        Find which of these blobs have a row. No commit that began earlier can give one to another.
        """

    async def referenced(ids: Sequence[str]) -> frozenset[str]:
        """Find which of these blobs have references; one without a row has none."""

    async def garbage(after: str, limit: int) -> list[str]:
        """
        List blobs without references since more than C{graceSeconds}, by id.

        @param after: Ids strictly after this one; empty begins.
        @param limit: The most ids in the result.
        """

    async def blobRow(id: str) -> BlobRow | None:
        """Look a blob up; L{None} if it has no row."""

    async def blobRows(after: str, limit: int) -> list[BlobRow]:
        """
        List all blobs by id.

        @param after: Ids strictly after this one; empty begins.
        @param limit: The most rows in the result.
        """

    async def checkInline(start: InlinePosition | None, limit: int) -> InlineCheck:
        """
        Compare the inline bytes of a page of objects with their checksums.

        @param start: The C{next} of the page before; L{None} begins.
        @param limit: Objects in the page.
        """

    def newBlobId(bucket: str = ...) -> str:
        """
        Make an id that no blob has had, from memory. On a network it contains the lease of this
        node, and a write with a new blob is refused after the end of that lease.

        @param bucket: That of the object which will have the blob, as it was looked up.
        @raise StoreReadOnly: This node may not write now.
        """

    def forgetBlobs(ids: Sequence[str]) -> Deferred[None]:
        """Remove the rows of blobs that were removed. Those with references stay."""

    def markCorrupt(blob: str) -> Deferred[None]:
        """
        Record that the bytes of a blob are not those that were written.

        @param blob: The blob's id; without a row nothing is recorded in the file.
        """

    def clearCorrupt(blob: str) -> Deferred[None]:
        """
        Record that the bytes of a blob are right again.

        @param blob: The blob's id.
        """

    def corruptBlobs() -> frozenset[str]:
        """
        Return the blobs that were marked before the catalog was opened, or by this process since;
        they are few.
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
        """Return 32 random bytes, made once for this store: list tokens are signed with them."""

    def health() -> Mapping[str, str | None]:
        """
        Return for each part why the catalog cannot take writes now, or C{None}; from memory.

        @return: C{catalog}, and further parts of a back end.
        """

    def measure(mutations: Callable[[int], Any], seconds: Callable[[float], Any]) -> None:
        """
        Measure each commit.

        @param mutations: Called with the number of its mutations.
        @param seconds: Called with the time that it took, its fsync included.
        """

    def close() -> Deferred[None]:
        """Commit all mutations that wait, then close. Once."""
