"""
The operations of the domain, one frozen value each.

L{ObjectService.perform<storagegate.objects.service.ObjectService.perform>} takes the caller and one
of them, and returns the type that its class names; L{storagegate.objects.table} has the function of
each. An operation has Amazon's name, and no mutation of the catalog
(L{storagegate.storage.mutations}) has the name of an operation.

Each function decides on access before it changes or returns anything, and raises an error of
L{storagegate.objects.errors} to refuse. Every operation on a bucket may also raise
C{BucketNotFound} and C{AccessDenied}, one on a version C{ObjectNotFound}, C{VersionNotFound} and
C{VersionIsDeleteMarker}.

Object keys are UTF-8. Reads and writes of contents are no operations: they are streams, which
begin with a look-up or a check of L{ObjectService<storagegate.objects.service.ObjectService>}.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import Struct

from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    UNCONDITIONAL,
    UNLOCKED,
    Attributes,
    Bucket,
    DefaultRetention,
    MultipartUpload,
    ObjectListing,
    ObjectLock,
    ObjectRecord,
    Part,
    Removal,
    UploadListing,
    VersionListing,
    WriteCondition,
)

if TYPE_CHECKING:
    from storagegate.objects.access.acl import AccessControlList, RequestedList
    from storagegate.objects.access.decision import PublicAccessBlock
    from storagegate.objects.cors import CORSRule
    from storagegate.objects.encryption.requests import (
        BucketEncryption,
        CustomerKey,
        RequestedEncryption,
    )
    from storagegate.objects.lifecycle import LifecycleRule
    from storagegate.objects.tags import Tags

T = TypeVar("T", covariant=True)


class Operation(Struct, Generic[T], frozen=True):
    """A request to the domain whose answer is a C{T}."""


class BucketOperation(Operation[T], Generic[T], frozen=True):
    """
    An operation on a bucket, or in it.

    @ivar bucket: The bucket's name.
    """

    bucket: str


class VersionOperation(BucketOperation[T], Generic[T], frozen=True):
    """
    An operation on a version of an object.

    @ivar versionId: L{None} for the current version.
    """

    key: bytes
    versionId: str | None


# Buckets.


class ListBuckets(Operation[list[Bucket]], frozen=True):
    """
    List by name the buckets of the account that the key may list; of all accounts for the root
    identity. There are fewer than C{limit} only at the end of the list.

    @ivar prefix: Only names with this prefix.
    @ivar after: List strictly after this name.
    @ivar limit: Largest number of buckets.
    @ivar region: Only the buckets of this region; empty for all regions.
    """

    prefix: str
    after: str
    limit: int
    region: str = ""


class CreateBucket(BucketOperation[Bucket], frozen=True):
    """
    Create a bucket that the caller's account owns.

    @ivar region: The requested region; empty for this server's.
    @ivar ownership: The object ownership; empty for the default of the service.
    @ivar tags: The initial tags, checked.
    @ivar locked: Whether the bucket has object lock, which implies versioning.
    @ivar acl: The initial ACL; L{None} for the private ACL.
    @ivar isRepeatable: Whether a bucket of the caller that has all of these already counts as
        created. It gets the ACL, as in S3's first region.
    """

    region: str = ""
    ownership: str = ""
    tags: "Tags | None" = None
    locked: bool = False
    acl: "AccessControlList | None" = None
    isRepeatable: bool = False


class DeleteBucket(BucketOperation[None], frozen=True):
    """
    Remove a bucket without versions and delete markers, and abort its uploads in progress.

    @raise BucketOccupied: The bucket holds versions or delete markers.
    """


# Settings of buckets. A missing setting counts as removed.


class GetBucketVersioning(BucketOperation[str], frozen=True):
    """Return the status of versioning; empty if it was never enabled."""


class PutBucketVersioning(BucketOperation[None], frozen=True):
    """
    Enable or suspend versioning, for all later writes.

    @ivar status: C{"Enabled"} or C{"Suspended"}.
    @raise InvalidBucketState: A bucket with object lock stays versioned.
    """

    status: str


class GetObjectLockConfiguration(BucketOperation[DefaultRetention | None], frozen=True):
    """
    Return the default retention of a bucket with object lock; L{None} for none.

    @raise BucketLockNotFound: The bucket has no object lock.
    """


class PutObjectLockConfiguration(BucketOperation[None], frozen=True):
    """
    Enable object lock permanently, and set the default retention of later versions.

    @ivar default: L{None} for no default.
    @raise BucketNotVersioned: The versioning of the bucket is not enabled.
    """

    default: DefaultRetention | None


class GetBucketLifecycleConfiguration(
    BucketOperation[tuple[Sequence["LifecycleRule"], str]], frozen=True
):
    """
    Return the lifecycle rules, and the smallest size of a transition, empty for the default.

    @raise LifecycleNotFound: The bucket has no rules.
    """


class PutBucketLifecycleConfiguration(BucketOperation[None], frozen=True):
    """
    Replace the lifecycle rules.

    @ivar transitionMinimum: The smallest size of a transition; empty for the default.
    """

    rules: Sequence["LifecycleRule"]
    transitionMinimum: str = ""


class DeleteBucketLifecycle(BucketOperation[None], frozen=True):
    """Remove the lifecycle rules."""


class GetBucketPolicy(BucketOperation[bytes], frozen=True):
    """
    Return the policy, byte for byte.

    @raise PolicyNotFound: The bucket has none.
    """


class GetBucketPolicyStatus(BucketOperation[bool], frozen=True):
    """
    Return whether the policy is public.

    @raise PolicyNotFound: The bucket has none.
    """


class PutBucketPolicy(BucketOperation[None], frozen=True):
    """
    Replace the policy.

    @raise MalformedPolicy: The policy is invalid.
    @raise AccessDenied: The policy is public, and the public access block forbids it.
    """

    document: bytes


class DeleteBucketPolicy(BucketOperation[None], frozen=True):
    """Remove the policy."""


class GetBucketCors(BucketOperation[Sequence["CORSRule"]], frozen=True):
    """
    Return the CORS rules.

    @raise CORSNotFound: The bucket has none.
    """


class PutBucketCors(BucketOperation[None], frozen=True):
    """Replace the CORS rules."""

    rules: Sequence["CORSRule"]


class DeleteBucketCors(BucketOperation[None], frozen=True):
    """Remove the CORS rules."""


class GetBucketEncryption(BucketOperation["BucketEncryption"], frozen=True):
    """
    Return the encryption configuration.

    @raise EncryptionNotFound: The bucket has none.
    """


class PutBucketEncryption(BucketOperation[None], frozen=True):
    """
    Replace the encryption configuration. Master keys are looked up only by writes of objects.
    """

    encryption: "BucketEncryption"


class DeleteBucketEncryption(BucketOperation[None], frozen=True):
    """Remove the encryption configuration."""


class OwnedList(NamedTuple):
    """The account that owns a bucket or an object, and its ACL."""

    owner: str
    acl: "AccessControlList"


class GetBucketAcl(BucketOperation[OwnedList], frozen=True):
    """Return the ACL of a bucket with its owner."""


class PutBucketAcl(BucketOperation[None], frozen=True):
    """
    Replace the ACL of a bucket.

    @ivar canned: The name of the canned ACL; L{None} for another form.
    @raise DomainError: The settings forbid the ACL.
    """

    acl: "AccessControlList"
    canned: str | None = None


class GetBucketOwnershipControls(BucketOperation[str], frozen=True):
    """
    Return the object ownership.

    @raise OwnershipNotFound: It was never set.
    """


class PutBucketOwnershipControls(BucketOperation[None], frozen=True):
    """
    Set the object ownership.

    @raise InvalidBucketAclWithObjectOwnership: The ACL of the bucket grants access to others.
    """

    ownership: str


class DeleteBucketOwnershipControls(BucketOperation[None], frozen=True):
    """Remove the object ownership."""


class GetPublicAccessBlock(BucketOperation["PublicAccessBlock"], frozen=True):
    """
    Return the public access block.

    @raise PublicAccessBlockNotFound: The bucket has none.
    """


class PutPublicAccessBlock(BucketOperation[None], frozen=True):
    """Set the public access block."""

    block: "PublicAccessBlock"


class DeletePublicAccessBlock(BucketOperation[None], frozen=True):
    """Remove the public access block."""


class GetBucketTagging(BucketOperation["Tags"], frozen=True):
    """
    Return the tags of a bucket.

    @raise TagsNotFound: The bucket has none.
    """


class PutBucketTagging(BucketOperation[None], frozen=True):
    """
    Replace the tags of a bucket.

    @ivar tags: Checked tags; empty removes all.
    """

    tags: "Tags"


class DeleteBucketTagging(BucketOperation[None], frozen=True):
    """Remove the tags of a bucket."""


# Listings.


class ListObjects(Operation[ObjectListing], frozen=True):
    """List a page of a bucket."""

    page: ObjectRange


class ListObjectVersions(Operation[VersionListing], frozen=True):
    """
    List a page of the versions of a bucket.

    @raise InvalidArgument: The version id is malformed.
    """

    page: VersionRange


# Objects and their versions.


class DeleteObject(VersionOperation[Removal], frozen=True):
    """
    Delete one object or version; an object that does not exist counts as deleted.

    @ivar versionId: The version to delete permanently; L{None} deletes the current object, which a
        versioned bucket keeps as an older version.
    @raise InvalidArgument: The version id is malformed.
    @raise ConditionFailed: The condition did not hold.
    """

    condition: WriteCondition = UNCONDITIONAL


class DeleteEntry(Struct, frozen=True):
    """
    One object to delete.

    @ivar versionId: As in L{DeleteObject}.
    """

    key: bytes
    versionId: str | None = None
    condition: WriteCondition = UNCONDITIONAL


class DeleteObjects(BucketOperation[list[Removal | Exception]], frozen=True):
    """
    Delete those objects or versions that the caller may delete, in one transaction. The answer has
    for each entry its removal, or its error.

    An object that does not exist counts as deleted.
    """

    entries: Sequence[DeleteEntry]


class CopyObject(BucketOperation[ObjectRecord], frozen=True):
    """
    Copy an object by giving its content a second name. The ETag is kept, because the bytes are the
    same. The attributes that the copy takes over without naming them need the same rights as if the
    request named them.

    @ivar source: The object as it was looked up, for a caller that may read it.
    @ivar sourceVersionId: The version that the request names; L{None} for the current version.
    @ivar attributes: The attributes of the new object; L{None} copies those of the source.
    @ivar takesTags: Whether the copy has the tags of its source.
    @ivar storageClass: The class of the copy; empty for the class of its source, L{None} if the
        request names the class.
    @ivar algorithm: The checksum that the new object must carry; empty keeps the source's.
    @ivar overwrites: Whether the source may be the current object of the same key. A request must
        then name a version or what it changes, even if that stays the same.
    @ivar lock: The lock that the request names; a copy does not inherit the lock of its source.
    @ivar acl: The ACL that the request names; a copy does not inherit the ACL of its source.
    @ivar encryption: The encryption that the request names; L{None} for the default of the bucket.
        A copy does not inherit the encryption of its source.
    @ivar sourceKey: The client's key of the source.
    @raise AccessDenied: The caller lacks the right to the copy, its tags or its storage class.
    @raise InvalidRequest: The copy would change nothing.
    @raise ConcurrentChange: The source was replaced in the meantime; try again.
    """

    key: bytes
    source: ObjectRecord
    sourceVersionId: str | None = None
    attributes: Attributes | None = None
    takesTags: bool = True
    storageClass: str | None = ""
    algorithm: str = ""
    condition: WriteCondition = UNCONDITIONAL
    overwrites: bool = False
    lock: ObjectLock = UNLOCKED
    acl: "RequestedList | None" = None
    encryption: "RequestedEncryption | None" = None
    sourceKey: "CustomerKey | None" = None


class PutObjectTagging(VersionOperation[tuple[Bucket, ObjectRecord]], frozen=True):
    """
    Replace the tags of an object and nothing else. The answer is the bucket, and the object before
    the change.

    @ivar tags: Checked tags; empty removes all.
    @ivar seen: The current object as it was looked up, which neither a write nor other tags may
        have changed; L{None} for any version.
    @raise ConcurrentChange: It has changed.
    """

    tags: "Tags"
    seen: ObjectRecord | None = None


class DeleteObjectTagging(VersionOperation[tuple[Bucket, ObjectRecord]], frozen=True):
    """Remove the tags of an object; the answer is that of L{PutObjectTagging}."""


class ObjectAcl(NamedTuple):
    """An object with the bucket and its ACL."""

    bucket: Bucket
    record: ObjectRecord
    owned: OwnedList


class GetObjectAcl(VersionOperation[ObjectAcl], frozen=True):
    """Return the ACL of an object."""


class PutObjectAcl(VersionOperation[None], frozen=True):
    """
    Replace the ACL of an object and nothing else.

    @ivar sequence: The sequence of the record for whose owner the ACL was made; a later object of
        the same key is not changed.
    @ivar canned: The name of the canned ACL; L{None} for another form.
    @raise DomainError: The settings forbid the ACL.
    @raise OperationAborted: The object was replaced or deleted in the meantime.
    """

    sequence: int
    acl: "AccessControlList"
    canned: str | None = None


class GetObjectRetention(VersionOperation[ObjectLock], frozen=True):
    """
    Return the lock of a version with a retention.

    @raise InvalidRequest: The bucket has no object lock.
    @raise LockNotFound: The version has no retention.
    """


class PutObjectRetention(VersionOperation[None], frozen=True):
    """
    Change the retention of a version.

    @ivar lock: Mode and date; C{UNLOCKED} lifts the retention.
    @ivar bypass: Whether to bypass governance mode, if the caller has the right.
    @raise InvalidArgument: The date is in the past.
    @raise ObjectLocked: The present retention forbids it.
    """

    lock: ObjectLock
    bypass: bool = False


class GetObjectLegalHold(VersionOperation[bool], frozen=True):
    """
    Return whether the legal hold of a version is on.

    @raise InvalidRequest: The bucket has no object lock.
    @raise LockNotFound: The version never had a legal hold.
    """


class PutObjectLegalHold(VersionOperation[None], frozen=True):
    """Place or release the legal hold of a version."""

    isOn: bool


# Multipart uploads.


class CreateMultipartUpload(BucketOperation[MultipartUpload], frozen=True):
    """
    Start an upload, which the caller's account owns.

    @ivar algorithm: The checksum algorithm; empty if the client named none.
    @ivar kind: The checksum kind; empty if the client named none.
    @ivar acl: The ACL that the request names; L{None} for the private ACL.
    @ivar encryption: The encryption that the request names; L{None} for the default of the bucket.
    """

    key: bytes
    attributes: Attributes
    algorithm: str = ""
    kind: str = ""
    acl: "RequestedList | None" = None
    encryption: "RequestedEncryption | None" = None


class UploadOperation(BucketOperation[T], Generic[T], frozen=True):
    """
    An operation on an upload in progress.

    @raise UploadNotFound: The upload does not exist.
    """

    key: bytes
    uploadId: str


class UploadPartCopy(UploadOperation[Part], frozen=True):
    """
    Store a range of an object as a part. The bytes are read to compute checksums, by the algorithm
    of the upload if it names one.

    @ivar number: The part number, from 1 to 10,000.
    @ivar source: The object as it was looked up, for a caller that may read it.
    @ivar start: Offset of the first byte in the source.
    @ivar length: Number of bytes.
    @ivar customerKey: The client's key of the upload.
    @ivar sourceKey: The client's key of the source.
    @raise ConcurrentChange: The source was replaced in the meantime; try again.
    """

    number: int
    source: ObjectRecord
    start: int
    length: int
    customerKey: "CustomerKey | None" = None
    sourceKey: "CustomerKey | None" = None


class CompletedPart(Struct, frozen=True):
    """
    A part that a completion names.

    @ivar etag: The ETag without quotation marks.
    @ivar checksums: Checksums in Base64 by algorithm, such as C{CRC32}.
    """

    number: int
    etag: str
    checksums: Mapping[str, str]


class CompleteMultipartUpload(UploadOperation[ObjectRecord], frozen=True):
    """
    Turn the named parts into the object. A repeated completion with the same parts has the same
    answer: a client may have lost the first.

    @ivar parts: The parts that the request names, in its order.
    @ivar condition: Evaluated in the transaction that writes the object.
    @ivar checksum: Algorithm and Base64 of the whole object's checksum, if the client declared it.
    @ivar size: Size of the whole object, in bytes, if the client declared it.
    @ivar kind: The kind of checksum, if the client declared it.
    @ivar dropped: Names of metadata of the upload that the object does not get.
    @ivar customerKey: The client's key of the upload, which an upload needs that named a checksum
        algorithm; without a key, the object has no checksum.
    @raise DomainError: L{PartMismatch<storagegate.objects.errors.PartMismatch>},
        L{InvalidPartOrder<storagegate.objects.errors.InvalidPartOrder>},
        L{EntityTooSmall<storagegate.objects.errors.EntityTooSmall>},
        L{EntityTooLarge<storagegate.objects.errors.EntityTooLarge>},
        L{BadDigest<storagegate.objects.errors.BadDigest>},
        L{InvalidRequest<storagegate.objects.errors.InvalidRequest>}.
    """

    parts: Sequence[CompletedPart]
    condition: WriteCondition = UNCONDITIONAL
    checksum: tuple[str, str] | None = None
    size: int | None = None
    kind: str | None = None
    dropped: frozenset[str] = frozenset()
    customerKey: "CustomerKey | None" = None


class AbortMultipartUpload(UploadOperation[None], frozen=True):
    """Abort an upload and remove its parts."""


class PartListing(NamedTuple):
    """An upload with a page of its parts."""

    upload: MultipartUpload
    parts: list[Part]


class ListParts(Operation[PartListing], frozen=True):
    """
    List a page of the parts of an upload.

    @ivar customerKey: As in L{CompleteMultipartUpload}; without a key, the parts have no checksums.
    @raise UploadNotFound: The upload does not exist.
    """

    page: PartRange
    customerKey: "CustomerKey | None" = None


class ListMultipartUploads(Operation[UploadListing], frozen=True):
    """List a page of the uploads in progress of a bucket."""

    page: UploadRange
