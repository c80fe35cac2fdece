"""The table of the operations of the domain: the function of each, by type."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from storagegate.objects import (
    buckets,
    configuration,
    copies,
    deletions,
    listings,
    multipart,
    operations,
    retention,
)
from storagegate.objects.configuration import removal
from storagegate.objects.lifecycle import LIFECYCLE, TRANSITION_MINIMUM
from storagegate.objects.operations import Operation
from storagegate.objects.service import Functions, ObjectService
from storagegate.objects.settings import (
    CORS,
    ENCRYPTION,
    OWNERSHIP,
    POLICY,
    PUBLIC_ACCESS_BLOCK,
    TAGS,
)

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller

K = TypeVar("K", bound=Operation[Any])
Function = Callable[[ObjectService, "Caller", K], Coroutine[Any, Any, Any]]


def _row(kind: type[K], function: Function[K]) -> tuple[type[Operation[Any]], Function[Any]]:
    return kind, function


FUNCTIONS: Functions = dict(
    (
        _row(operations.ListBuckets, buckets.listBuckets),
        _row(operations.CreateBucket, buckets.createBucket),
        _row(operations.DeleteBucket, buckets.deleteBucket),
        _row(operations.GetBucketVersioning, configuration.getBucketVersioning),
        _row(operations.PutBucketVersioning, configuration.putBucketVersioning),
        _row(operations.GetObjectLockConfiguration, configuration.getObjectLockConfiguration),
        _row(operations.PutObjectLockConfiguration, configuration.putObjectLockConfiguration),
        _row(
            operations.GetBucketLifecycleConfiguration,
            configuration.getBucketLifecycleConfiguration,
        ),
        _row(
            operations.PutBucketLifecycleConfiguration,
            configuration.putBucketLifecycleConfiguration,
        ),
        _row(operations.DeleteBucketLifecycle, removal(LIFECYCLE, TRANSITION_MINIMUM)),
        _row(operations.GetBucketPolicy, configuration.getBucketPolicy),
        _row(operations.GetBucketPolicyStatus, configuration.getBucketPolicyStatus),
        _row(operations.PutBucketPolicy, configuration.putBucketPolicy),
        _row(operations.DeleteBucketPolicy, removal(POLICY)),
        _row(operations.GetBucketCors, configuration.getBucketCors),
        _row(operations.PutBucketCors, configuration.putBucketCors),
        _row(operations.DeleteBucketCors, removal(CORS)),
        _row(operations.GetBucketEncryption, configuration.getBucketEncryption),
        _row(operations.PutBucketEncryption, configuration.putBucketEncryption),
        _row(operations.DeleteBucketEncryption, removal(ENCRYPTION)),
        _row(operations.GetBucketAcl, configuration.getBucketAcl),
        _row(operations.PutBucketAcl, configuration.putBucketAcl),
        _row(operations.GetBucketOwnershipControls, configuration.getBucketOwnershipControls),
        _row(operations.PutBucketOwnershipControls, configuration.putBucketOwnershipControls),
        # An empty setting, because the bucket may have been created with an ownership.
        _row(operations.DeleteBucketOwnershipControls, removal(OWNERSHIP, document=b"")),
        _row(operations.GetPublicAccessBlock, configuration.getPublicAccessBlock),
        _row(operations.PutPublicAccessBlock, configuration.putPublicAccessBlock),
        _row(operations.DeletePublicAccessBlock, removal(PUBLIC_ACCESS_BLOCK)),
        _row(operations.GetBucketTagging, configuration.getBucketTagging),
        _row(operations.PutBucketTagging, configuration.putBucketTagging),
        _row(operations.DeleteBucketTagging, removal(TAGS)),
        _row(operations.ListObjects, listings.listObjects),
        _row(operations.ListObjectVersions, listings.listObjectVersions),
        _row(operations.DeleteObject, deletions.deleteObject),
        _row(operations.DeleteObjects, deletions.deleteObjects),
        _row(operations.CopyObject, copies.copyObject),
        _row(operations.PutObjectTagging, configuration.putObjectTagging),
        _row(operations.DeleteObjectTagging, configuration.deleteObjectTagging),
        _row(operations.GetObjectAcl, configuration.getObjectAcl),
        _row(operations.PutObjectAcl, configuration.putObjectAcl),
        _row(operations.GetObjectRetention, retention.getObjectRetention),
        _row(operations.PutObjectRetention, retention.putObjectRetention),
        _row(operations.GetObjectLegalHold, retention.getObjectLegalHold),
        _row(operations.PutObjectLegalHold, retention.putObjectLegalHold),
        _row(operations.CreateMultipartUpload, multipart.createMultipartUpload),
        _row(operations.UploadPartCopy, multipart.uploadPartCopy),
        _row(operations.CompleteMultipartUpload, multipart.completeMultipartUpload),
        _row(operations.AbortMultipartUpload, multipart.abortMultipartUpload),
        _row(operations.ListParts, multipart.listParts),
        _row(operations.ListMultipartUploads, multipart.listMultipartUploads),
    )
)
"""The functions of all operations."""
