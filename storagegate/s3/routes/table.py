"""Which route answers which operation."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from storagegate.s3.operations import OPERATIONS
from storagegate.s3.routes import buckets, lists, posts, reads, uploads, writes
from storagegate.s3.routes.call import Call

Route = Callable[[Call], Coroutine[Any, Any, None]]

ROUTES: Mapping[str, Route] = {
    **{name: buckets.setting for name, row in OPERATIONS.items() if row.answer is not None},
    "ListBuckets": buckets.listBuckets,
    "CreateBucket": buckets.createBucket,
    "HeadBucket": buckets.headBucket,
    "DeleteBucket": buckets.deleteBucket,
    "GetBucketLocation": buckets.getBucketLocation,
    "GetBucketAcl": buckets.getAcl,
    "GetObjectAcl": buckets.getAcl,
    "ListObjects": lists.listObjects,
    "ListObjectsV2": lists.listObjectsV2,
    "ListObjectVersions": lists.listObjectVersions,
    "GetObject": reads.getObject,
    "HeadObject": reads.headObject,
    "GetObjectAttributes": reads.getObjectAttributes,
    "PutObject": writes.putObject,
    "CopyObject": writes.copyObject,
    "DeleteObject": writes.deleteObject,
    "DeleteObjects": writes.deleteObjects,
    "PostObject": posts.refuseOther,
    "CreateMultipartUpload": uploads.createMultipartUpload,
    "UploadPart": uploads.uploadPart,
    "UploadPartCopy": uploads.uploadPartCopy,
    "CompleteMultipartUpload": uploads.completeMultipartUpload,
    "AbortMultipartUpload": uploads.abortMultipartUpload,
    "ListParts": uploads.listParts,
    "ListMultipartUploads": uploads.listMultipartUploads,
}
"""Every operation has its route. A form comes to its own by another way: its gate is within it."""
