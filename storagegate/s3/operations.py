"""
Which operation a request is.

The method, the level of the target (service, bucket, object) and at most one I{selector} in the
query (C{?acl}, C{?uploads}) name a row of the table; C{x-amz-copy-source} and C{list-type=2} tell
apart what shares one. All other parameters are ignored, as S3 ignores them. A selector that the
method or the level does not know is refused: C{PUT /bucket/key?acl} must never store an object.

Settings of buckets and objects that are not kept yet.

Clients read them unasked, so a read answers what Amazon answers where the setting was never made.
A write answers 501: a setting must not be taken and forgotten.

Which route answers which operation.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.handlers import buckets, get, lists, multipart, post, put
from storagegate.s3.operation import Access, Level, Operation, StaticResponse
from storagegate.s3.request import S3Request
from storagegate.s3.xml.reader import BUCKET_LIMIT, COMPLETE_LIMIT, DELETE_LIMIT
from storagegate.s3.xml.writer import document


def _answer(root: str, content: str = "") -> StaticResponse:
    return StaticResponse(document(root, content))


def _absent(code: str, message: str | None = None) -> StaticResponse:
    return StaticResponse(code=code, message=message)


_NO_LIST = "<IsTruncated>false</IsTruncated>"
_NO_LOCK = _absent("InvalidRequest", "Bucket is missing Object Lock Configuration")
_NOT_IMPLEMENTED = _absent("NotImplemented")

# Selector, Amazon's name of the read, its answer. The documents and errors are those that S3 was
# seen to send for a new bucket, except where a client relies on an older default: encryption,
# ownershipControls and publicAccessBlock answer as for a bucket that was made before 2023.
_BUCKET_READS = (
    ("abac", "GetBucketAbac", _answer("AbacStatus", "<Status>Disabled</Status>")),
    ("accelerate", "GetBucketAccelerateConfiguration", _answer("AccelerateConfiguration")),
    (
        "analytics",
        "ListBucketAnalyticsConfigurations",
        _answer("ListBucketAnalyticsConfigurationsResult", _NO_LIST),
    ),
    ("analytics&id", "GetBucketAnalyticsConfiguration", _absent("NoSuchConfiguration")),
    ("cors", "GetBucketCors", _absent("NoSuchCORSConfiguration")),
    (
        "encryption",
        "GetBucketEncryption",
        _absent("ServerSideEncryptionConfigurationNotFoundError"),
    ),
    (
        "intelligent-tiering",
        "ListBucketIntelligentTieringConfigurations",
        _answer("ListIntelligentTieringConfigurationsResult", _NO_LIST),
    ),
    (
        "intelligent-tiering&id",
        "GetBucketIntelligentTieringConfiguration",
        _absent("NoSuchConfiguration"),
    ),
    (
        "inventory",
        "ListBucketInventoryConfigurations",
        _answer("ListInventoryConfigurationsResult", _NO_LIST),
    ),
    ("inventory&id", "GetBucketInventoryConfiguration", _absent("NoSuchConfiguration")),
    ("lifecycle", "GetBucketLifecycleConfiguration", _absent("NoSuchLifecycleConfiguration")),
    ("logging", "GetBucketLogging", _answer("BucketLoggingStatus")),
    (
        "metadataConfiguration",
        "GetBucketMetadataConfiguration",
        _absent("MetadataConfigurationNotFound"),
    ),
    (
        "metadataTable",
        "GetBucketMetadataTableConfiguration",
        _absent("MetadataConfigurationNotFound"),
    ),
    (
        "metrics",
        "ListBucketMetricsConfigurations",
        _answer("ListMetricsConfigurationsResult", _NO_LIST),
    ),
    ("metrics&id", "GetBucketMetricsConfiguration", _absent("NoSuchConfiguration")),
    ("notification", "GetBucketNotificationConfiguration", _answer("NotificationConfiguration")),
    ("object-lock", "GetObjectLockConfiguration", _absent("ObjectLockConfigurationNotFoundError")),
    ("ownershipControls", "GetBucketOwnershipControls", _absent("OwnershipControlsNotFoundError")),
    ("policy", "GetBucketPolicy", _absent("NoSuchBucketPolicy")),
    ("policyStatus", "GetBucketPolicyStatus", _absent("NoSuchBucketPolicy")),
    (
        "publicAccessBlock",
        "GetPublicAccessBlock",
        _absent("NoSuchPublicAccessBlockConfiguration"),
    ),
    ("replication", "GetBucketReplication", _absent("ReplicationConfigurationNotFoundError")),
    (
        "requestPayment",
        "GetBucketRequestPayment",
        _answer("RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>"),
    ),
    ("tagging", "GetBucketTagging", _absent("NoSuchTagSet")),
    ("versioning", "GetBucketVersioning", _answer("VersioningConfiguration")),
    ("website", "GetBucketWebsite", _absent("NoSuchWebsiteConfiguration")),
)

_OBJECT_READS = (
    ("annotation", "ListObjectAnnotations", _NOT_IMPLEMENTED),
    ("legal-hold", "GetObjectLegalHold", _NO_LOCK),
    ("retention", "GetObjectRetention", _NO_LOCK),
    ("tagging", "GetObjectTagging", _answer("Tagging", "<TagSet></TagSet>")),
)

_BUCKET_CHANGES = (
    (b"PUT", "abac", "PutBucketAbac"),
    (b"PUT", "accelerate", "PutBucketAccelerateConfiguration"),
    (b"PUT", "acl", "PutBucketAcl"),
    (b"PUT", "analytics", "PutBucketAnalyticsConfiguration"),
    (b"DELETE", "analytics", "DeleteBucketAnalyticsConfiguration"),
    (b"PUT", "cors", "PutBucketCors"),
    (b"DELETE", "cors", "DeleteBucketCors"),
    (b"PUT", "encryption", "PutBucketEncryption"),
    (b"DELETE", "encryption", "DeleteBucketEncryption"),
    (b"PUT", "intelligent-tiering", "PutBucketIntelligentTieringConfiguration"),
    (b"DELETE", "intelligent-tiering", "DeleteBucketIntelligentTieringConfiguration"),
    (b"PUT", "inventory", "PutBucketInventoryConfiguration"),
    (b"DELETE", "inventory", "DeleteBucketInventoryConfiguration"),
    (b"PUT", "lifecycle", "PutBucketLifecycleConfiguration"),
    (b"DELETE", "lifecycle", "DeleteBucketLifecycle"),
    (b"PUT", "logging", "PutBucketLogging"),
    (b"PUT", "metadataAnnotationTable", "UpdateBucketMetadataAnnotationTableConfiguration"),
    (b"POST", "metadataConfiguration", "CreateBucketMetadataConfiguration"),
    (b"DELETE", "metadataConfiguration", "DeleteBucketMetadataConfiguration"),
    (b"PUT", "metadataInventoryTable", "UpdateBucketMetadataInventoryTableConfiguration"),
    (b"PUT", "metadataJournalTable", "UpdateBucketMetadataJournalTableConfiguration"),
    (b"POST", "metadataTable", "CreateBucketMetadataTableConfiguration"),
    (b"DELETE", "metadataTable", "DeleteBucketMetadataTableConfiguration"),
    (b"PUT", "metrics", "PutBucketMetricsConfiguration"),
    (b"DELETE", "metrics", "DeleteBucketMetricsConfiguration"),
    (b"PUT", "notification", "PutBucketNotificationConfiguration"),
    (b"PUT", "object-lock", "PutObjectLockConfiguration"),
    (b"PUT", "ownershipControls", "PutBucketOwnershipControls"),
    (b"DELETE", "ownershipControls", "DeleteBucketOwnershipControls"),
    (b"PUT", "policy", "PutBucketPolicy"),
    (b"DELETE", "policy", "DeleteBucketPolicy"),
    (b"PUT", "publicAccessBlock", "PutPublicAccessBlock"),
    (b"DELETE", "publicAccessBlock", "DeletePublicAccessBlock"),
    (b"PUT", "replication", "PutBucketReplication"),
    (b"DELETE", "replication", "DeleteBucketReplication"),
    (b"PUT", "requestPayment", "PutBucketRequestPayment"),
    (b"PUT", "tagging", "PutBucketTagging"),
    (b"DELETE", "tagging", "DeleteBucketTagging"),
    (b"PUT", "versioning", "PutBucketVersioning"),
    (b"PUT", "website", "PutBucketWebsite"),
    (b"DELETE", "website", "DeleteBucketWebsite"),
)

_OBJECT_CHANGES = (
    (b"PUT", "acl", "PutObjectAcl"),
    (b"PUT", "annotation", "PutObjectAnnotation"),
    (b"DELETE", "annotation", "DeleteObjectAnnotation"),
    (b"PUT", "encryption", "UpdateObjectEncryption"),
    (b"PUT", "legal-hold", "PutObjectLegalHold"),
    (b"PUT", "renameObject", "RenameObject"),
    (b"POST", "restore", "RestoreObject"),
    (b"PUT", "retention", "PutObjectRetention"),
    (b"POST", "select", "SelectObjectContent"),
    (b"PUT", "tagging", "PutObjectTagging"),
    (b"DELETE", "tagging", "DeleteObjectTagging"),
)

SETTING_ROWS = (
    *(
        Operation(name, b"GET", Level.BUCKET, Access.READ, selector, answer=answer)
        for selector, name, answer in _BUCKET_READS
    ),
    *(
        Operation(name, b"GET", Level.OBJECT, Access.READ, selector, answer=answer)
        for selector, name, answer in _OBJECT_READS
    ),
    *(
        Operation(name, method, Level.BUCKET, Access.ADMIN, selector, answer=_NOT_IMPLEMENTED)
        for method, selector, name in _BUCKET_CHANGES
    ),
    *(
        Operation(name, method, Level.OBJECT, Access.WRITE, selector, answer=_NOT_IMPLEMENTED)
        for method, selector, name in _OBJECT_CHANGES
    ),
)
"""The rows of the table of operations that concern settings."""


_SERVICE = (Operation("ListBuckets", b"GET", Level.SERVICE, Access.LIST),)

_BUCKET = (
    Operation("ListObjects", b"GET", Level.BUCKET, Access.LIST),
    Operation("ListObjectsV2", b"GET", Level.BUCKET, Access.LIST, variant="list-type=2"),
    Operation("ListObjectVersions", b"GET", Level.BUCKET, Access.LIST, "versions"),
    Operation("ListMultipartUploads", b"GET", Level.BUCKET, Access.LIST, "uploads"),
    Operation("GetBucketLocation", b"GET", Level.BUCKET, Access.LIST, "location"),
    Operation("GetBucketAcl", b"GET", Level.BUCKET, Access.READ, "acl"),
    Operation("HeadBucket", b"HEAD", Level.BUCKET, Access.LIST),
    Operation("CreateBucket", b"PUT", Level.BUCKET, Access.ADMIN, documentLimit=BUCKET_LIMIT),
    Operation("DeleteBucket", b"DELETE", Level.BUCKET, Access.ADMIN),
    Operation("PostObject", b"POST", Level.BUCKET, Access.WRITE, takesObject=True),
    Operation(
        "DeleteObjects", b"POST", Level.BUCKET, Access.WRITE, "delete", documentLimit=DELETE_LIMIT
    ),
)

_OBJECT = (
    Operation("GetObject", b"GET", Level.OBJECT, Access.READ),
    Operation("GetObjectAcl", b"GET", Level.OBJECT, Access.READ, "acl"),
    Operation("GetObjectAttributes", b"GET", Level.OBJECT, Access.READ, "attributes"),
    Operation("ListParts", b"GET", Level.OBJECT, Access.LIST, "uploadId"),
    Operation("HeadObject", b"HEAD", Level.OBJECT, Access.READ),
    Operation("PutObject", b"PUT", Level.OBJECT, Access.WRITE, takesObject=True),
    Operation("CopyObject", b"PUT", Level.OBJECT, Access.WRITE, variant="x-amz-copy-source"),
    Operation("UploadPart", b"PUT", Level.OBJECT, Access.WRITE, "uploadId", takesObject=True),
    Operation(
        "UploadPartCopy",
        b"PUT",
        Level.OBJECT,
        Access.WRITE,
        "uploadId",
        variant="x-amz-copy-source",
    ),
    Operation("DeleteObject", b"DELETE", Level.OBJECT, Access.WRITE),
    Operation("AbortMultipartUpload", b"DELETE", Level.OBJECT, Access.WRITE, "uploadId"),
    Operation("CreateMultipartUpload", b"POST", Level.OBJECT, Access.WRITE, "uploads"),
    Operation(
        "CompleteMultipartUpload",
        b"POST",
        Level.OBJECT,
        Access.WRITE,
        "uploadId",
        documentLimit=COMPLETE_LIMIT,
    ),
)

OPERATIONS = {row.name: row for row in (*_SERVICE, *_BUCKET, *_OBJECT, *SETTING_ROWS)}
"""Every operation, by Amazon's name."""

_ROWS = {
    (row.method, row.level, row.selector): row for row in OPERATIONS.values() if not row.variant
}
_PLAIN = {
    (row.method, row.level is Level.OBJECT): row
    for row in _ROWS.values()
    if row.level is not Level.SERVICE and not row.selector
}
_COPIES = {"PutObject": OPERATIONS["CopyObject"], "UploadPart": OPERATIONS["UploadPartCopy"]}

# A torrent has no row: S3 refuses it with 405 and does not give the object instead.
_SELECTORS = frozenset(selector for _, _, selector in _ROWS if selector) | {"torrent"}


def findOperation(
    method: bytes,
    hasBucket: bool,
    hasKey: bool,
    query: Mapping[str, str],
    headers: Mapping[bytes, bytes],
) -> Operation:
    """
    Find the operation that a request asks for.

    @param query: As L{parseQuery<storagegate.s3.names.parseQuery>} gives it.
    @param headers: By lower-case name; only C{x-amz-copy-source} is looked for.
    @raise S3Error: C{MethodNotAllowed}, or C{InvalidArgument} for parameters that conflict.
    """
    if not hasBucket:
        operation = _ROWS.get((method, Level.SERVICE, ""))
    elif not query:
        operation = _PLAIN.get((method, hasKey))
    else:
        operation = _select(method, hasKey, query)
    if operation is None:
        raise _notAllowed(method, hasBucket, hasKey, query)
    if method == b"PUT" and b"x-amz-copy-source" in headers:
        return _COPIES.get(operation.name, operation)
    return operation


def _select(method: bytes, hasKey: bool, query: Mapping[str, str]) -> Operation | None:
    selectors = [name for name in query if name in _SELECTORS]
    if not selectors:
        return _unselected(method, hasKey, query)
    selector = selectors[0]
    if len(selectors) > 1:
        raise invalidArgument(
            "ResourceType",
            selector,
            "Conflicting query string parameters: " + ", ".join(selectors),
        )
    level = Level.OBJECT if hasKey else Level.BUCKET
    if "id" in query and (method, level, f"{selector}&id") in _ROWS:
        selector = f"{selector}&id"
    return _ROWS.get((method, level, selector))


def _unselected(method: bytes, hasKey: bool, query: Mapping[str, str]) -> Operation | None:
    if method == b"PUT" and hasKey and "partNumber" in query:
        raise invalidArgument("uploadId", "", "A part number must come with an upload id")
    if method == b"GET" and not hasKey and "list-type" in query:
        if query["list-type"] != "2":
            raise invalidArgument(
                "list-type", query["list-type"], "Invalid List Type specified in Request"
            )
        return OPERATIONS["ListObjectsV2"]
    return _PLAIN.get((method, hasKey))


def _notAllowed(method: bytes, hasBucket: bool, hasKey: bool, query: Mapping[str, str]) -> S3Error:
    level = Level.OBJECT if hasKey else Level.BUCKET if hasBucket else Level.SERVICE
    selector = next((name for name in query if hasBucket and name in _SELECTORS), "")
    allowed = sorted({m for m, at, by in _ROWS if at is level and by == selector})
    return S3Error(
        "MethodNotAllowed",
        fields={
            "Method": method.decode("latin-1"),
            "ResourceType": (selector or level.value).replace("-", "_").upper(),
        },
        headers=[(b"Allow", b", ".join(allowed))] if allowed else [],
    )


Route = Callable[[S3Request], Coroutine[Any, Any, None]]

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
    "GetObject": get.getObject,
    "HeadObject": get.headObject,
    "GetObjectAttributes": get.getObjectAttributes,
    "PutObject": put.putObject,
    "CopyObject": put.copyObject,
    "DeleteObject": put.deleteObject,
    "DeleteObjects": put.deleteObjects,
    "PostObject": post.rejectNonForm,
    "CreateMultipartUpload": multipart.createMultipartUpload,
    "UploadPart": multipart.uploadPart,
    "UploadPartCopy": multipart.uploadPartCopy,
    "CompleteMultipartUpload": multipart.completeMultipartUpload,
    "AbortMultipartUpload": multipart.abortMultipartUpload,
    "ListParts": multipart.listParts,
    "ListMultipartUploads": multipart.listMultipartUploads,
}
"""Every operation has its route. A form comes to its own by another way: its gate is within it."""
