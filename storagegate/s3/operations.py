"""
The table of operations, one row each, and the search for the row that a request matches.

The method, the level of the target (service, bucket, object) and at most one I{selector} in the
query (C{?acl}, C{?uploads}) name a row; C{x-amz-copy-source} and C{list-type=2} distinguish rows
that share them. Other parameters are ignored, as in S3. A selector that the method or the level
does not know is refused: C{PUT /bucket/key?acl} must never store an object.

Settings of buckets and objects are not stored. Clients read them without a command, so a read
responds as Amazon does for a setting that was never made. A write is refused with 501: a setting
must not be accepted and lost.

A new operation on stored data has its row here, a handler in C{handlers/}, a document in C{xml/}
and a method of the domain.
"""

from collections.abc import Mapping

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.handlers import buckets, get, multipart, post, put
from storagegate.s3.handlers.buckets import StaticResponse
from storagegate.s3.request import Level, Operation
from storagegate.s3.xml.reader import BUCKET_LIMIT, COMPLETE_LIMIT, DELETE_LIMIT
from storagegate.s3.xml.writer import document


def _ok(root: str, content: str = "") -> StaticResponse:
    return StaticResponse(document(root, content))


def _error(code: str, message: str | None = None) -> StaticResponse:
    return StaticResponse(code=code, message=message)


_NO_LIST = "<IsTruncated>false</IsTruncated>"
_NO_LOCK = _error("InvalidRequest", "Bucket is missing Object Lock Configuration")
_NOT_IMPLEMENTED = _error("NotImplemented")

# Selector, Amazon's name of the read, its response. These are the documents and errors that S3 was
# seen to send for a new bucket, except where a client relies on an older default: encryption,
# ownershipControls and publicAccessBlock are those of a bucket that was made before 2023.
_BUCKET_READS = (
    ("abac", "GetBucketAbac", _ok("AbacStatus", "<Status>Disabled</Status>")),
    ("accelerate", "GetBucketAccelerateConfiguration", _ok("AccelerateConfiguration")),
    (
        "analytics",
        "ListBucketAnalyticsConfigurations",
        _ok("ListBucketAnalyticsConfigurationsResult", _NO_LIST),
    ),
    ("analytics&id", "GetBucketAnalyticsConfiguration", _error("NoSuchConfiguration")),
    ("cors", "GetBucketCors", _error("NoSuchCORSConfiguration")),
    ("encryption", "GetBucketEncryption", _error("ServerSideEncryptionConfigurationNotFoundError")),
    (
        "intelligent-tiering",
        "ListBucketIntelligentTieringConfigurations",
        _ok("ListIntelligentTieringConfigurationsResult", _NO_LIST),
    ),
    (
        "intelligent-tiering&id",
        "GetBucketIntelligentTieringConfiguration",
        _error("NoSuchConfiguration"),
    ),
    (
        "inventory",
        "ListBucketInventoryConfigurations",
        _ok("ListInventoryConfigurationsResult", _NO_LIST),
    ),
    ("inventory&id", "GetBucketInventoryConfiguration", _error("NoSuchConfiguration")),
    ("lifecycle", "GetBucketLifecycleConfiguration", _error("NoSuchLifecycleConfiguration")),
    ("logging", "GetBucketLogging", _ok("BucketLoggingStatus")),
    (
        "metadataConfiguration",
        "GetBucketMetadataConfiguration",
        _error("MetadataConfigurationNotFound"),
    ),
    (
        "metadataTable",
        "GetBucketMetadataTableConfiguration",
        _error("MetadataConfigurationNotFound"),
    ),
    (
        "metrics",
        "ListBucketMetricsConfigurations",
        _ok("ListMetricsConfigurationsResult", _NO_LIST),
    ),
    ("metrics&id", "GetBucketMetricsConfiguration", _error("NoSuchConfiguration")),
    ("notification", "GetBucketNotificationConfiguration", _ok("NotificationConfiguration")),
    ("object-lock", "GetObjectLockConfiguration", _error("ObjectLockConfigurationNotFoundError")),
    ("ownershipControls", "GetBucketOwnershipControls", _error("OwnershipControlsNotFoundError")),
    ("policy", "GetBucketPolicy", _error("NoSuchBucketPolicy")),
    ("policyStatus", "GetBucketPolicyStatus", _error("NoSuchBucketPolicy")),
    ("publicAccessBlock", "GetPublicAccessBlock", _error("NoSuchPublicAccessBlockConfiguration")),
    ("replication", "GetBucketReplication", _error("ReplicationConfigurationNotFoundError")),
    (
        "requestPayment",
        "GetBucketRequestPayment",
        _ok("RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>"),
    ),
    ("tagging", "GetBucketTagging", _error("NoSuchTagSet")),
    ("versioning", "GetBucketVersioning", _ok("VersioningConfiguration")),
    ("website", "GetBucketWebsite", _error("NoSuchWebsiteConfiguration")),
)

_OBJECT_READS = (
    ("annotation", "ListObjectAnnotations", _NOT_IMPLEMENTED),
    ("legal-hold", "GetObjectLegalHold", _NO_LOCK),
    ("retention", "GetObjectRetention", _NO_LOCK),
    ("tagging", "GetObjectTagging", _ok("Tagging", "<TagSet></TagSet>")),
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

_STORED = (
    Operation("ListBuckets", b"GET", "service", "list", buckets.listBuckets),
    Operation("ListObjects", b"GET", "bucket", "list", buckets.listObjects, byPrefix=True),
    Operation(
        "ListObjectsV2",
        b"GET",
        "bucket",
        "list",
        buckets.listObjectsV2,
        variant="list-type=2",
        byPrefix=True,
    ),
    Operation(
        "ListObjectVersions",
        b"GET",
        "bucket",
        "list",
        buckets.listObjectVersions,
        "versions",
        byPrefix=True,
    ),
    Operation(
        "ListMultipartUploads",
        b"GET",
        "bucket",
        "list",
        multipart.listMultipartUploads,
        "uploads",
        byPrefix=True,
    ),
    Operation("GetBucketLocation", b"GET", "bucket", "list", buckets.getBucketLocation, "location"),
    Operation("GetBucketAcl", b"GET", "bucket", "read", buckets.getAcl, "acl"),
    Operation("HeadBucket", b"HEAD", "bucket", "list", buckets.headBucket),
    Operation(
        "CreateBucket", b"PUT", "bucket", "admin", buckets.createBucket, documentLimit=BUCKET_LIMIT
    ),
    Operation("DeleteBucket", b"DELETE", "bucket", "admin", buckets.deleteBucket),
    Operation("PostObject", b"POST", "bucket", "write", post.rejectNonForm),
    Operation(
        "DeleteObjects",
        b"POST",
        "bucket",
        "write",
        put.deleteObjects,
        "delete",
        documentLimit=DELETE_LIMIT,
    ),
    Operation("GetObject", b"GET", "object", "read", get.getObject),
    Operation("GetObjectAcl", b"GET", "object", "read", buckets.getAcl, "acl"),
    Operation(
        "GetObjectAttributes", b"GET", "object", "read", get.getObjectAttributes, "attributes"
    ),
    Operation("ListParts", b"GET", "object", "list", multipart.listParts, "uploadId"),
    Operation("HeadObject", b"HEAD", "object", "read", get.headObject),
    Operation("PutObject", b"PUT", "object", "write", put.putObject),
    Operation("CopyObject", b"PUT", "object", "write", put.copyObject, variant="x-amz-copy-source"),
    Operation("UploadPart", b"PUT", "object", "write", multipart.uploadPart, "uploadId"),
    Operation(
        "UploadPartCopy",
        b"PUT",
        "object",
        "write",
        multipart.uploadPartCopy,
        "uploadId",
        variant="x-amz-copy-source",
    ),
    Operation("DeleteObject", b"DELETE", "object", "write", put.deleteObject),
    Operation(
        "AbortMultipartUpload",
        b"DELETE",
        "object",
        "write",
        multipart.abortMultipartUpload,
        "uploadId",
    ),
    Operation(
        "CreateMultipartUpload",
        b"POST",
        "object",
        "write",
        multipart.createMultipartUpload,
        "uploads",
    ),
    Operation(
        "CompleteMultipartUpload",
        b"POST",
        "object",
        "write",
        multipart.completeMultipartUpload,
        "uploadId",
        documentLimit=COMPLETE_LIMIT,
    ),
    # PostObject's row is for a POST that is no form: S3Resource passes forms to postObject.
)

_SETTINGS = (
    *(Operation(n, b"GET", "bucket", "read", handler, s) for s, n, handler in _BUCKET_READS),
    *(Operation(n, b"GET", "object", "read", handler, s) for s, n, handler in _OBJECT_READS),
    *(Operation(n, m, "bucket", "admin", _NOT_IMPLEMENTED, s) for m, s, n in _BUCKET_CHANGES),
    *(Operation(n, m, "object", "write", _NOT_IMPLEMENTED, s) for m, s, n in _OBJECT_CHANGES),
)

OPERATIONS = {row.name: row for row in (*_STORED, *_SETTINGS)}
"""Every operation, by Amazon's name."""

_ROWS = {
    (row.method, row.level, row.selector): row for row in OPERATIONS.values() if not row.variant
}
_PLAIN = {
    (row.method, row.level == "object"): row
    for row in _ROWS.values()
    if row.level != "service" and not row.selector
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
    Find the operation of a request.

    @param hasBucket: Whether the target names a bucket.
    @param hasKey: Whether the target names an object.
    @param query: From L{parseQuery<storagegate.s3.names.parseQuery>}.
    @param headers: By lower-case name; only C{x-amz-copy-source} is read.
    @raise S3Error: C{MethodNotAllowed}, or C{InvalidArgument} for parameters that conflict.
    """
    if not hasBucket:
        operation = _ROWS.get((method, "service", ""))
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
            "ResourceType", selector, "Conflicting query string parameters: " + ", ".join(selectors)
        )
    level: Level = "object" if hasKey else "bucket"
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
    level = "object" if hasKey else "bucket" if hasBucket else "service"
    selector = next((name for name in query if hasBucket and name in _SELECTORS), "")
    allowed = sorted({m for m, at, by in _ROWS if at == level and by == selector})
    return S3Error(
        "MethodNotAllowed",
        fields={
            "Method": method.decode("latin-1"),
            "ResourceType": (selector or level).replace("-", "_").upper(),
        },
        headers=[(b"Allow", b", ".join(allowed))] if allowed else [],
    )
