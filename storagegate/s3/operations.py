"""
The table of operations, one row each, and the look-up of the row for a request.

The method, the level of the target (service, bucket, object) and at most one I{selector} in the
query (C{?acl}, C{?uploads}) identify a row; C{x-amz-copy-source} and C{list-type=2} distinguish
rows that share them. As in S3, other parameters are ignored. A selector that the method or the
level does not support is refused: C{PUT /bucket/key?acl} must never store an object.

Some settings of buckets and objects are not stored. Clients read these settings unprompted, so a
read responds as Amazon does for a setting that was never made. A write is refused with 501: a
setting must not be accepted and lost.

A new operation on stored data needs a row here, a handler in C{handlers/}, a document in C{xml/}, a
method of the domain, and its rows in the other tables that C{docs/architecture.rst} names.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.handlers import (
    access,
    buckets,
    cors,
    encryption,
    get,
    lifecycle,
    locks,
    multipart,
    post,
    put,
)
from storagegate.s3.handlers.buckets import StaticResponse
from storagegate.s3.request import Access, Level, S3Operation, S3Request
from storagegate.s3.xml.reader import (
    BUCKET_LIMIT,
    COMPLETE_LIMIT,
    DELETE_LIMIT,
    LIFECYCLE_LIMIT,
)
from storagegate.s3.xml.writer import document


def _ok(root: str, content: str = "") -> StaticResponse:
    return StaticResponse(document(root, content))


_Setting = tuple[str, str, str, StaticResponse | str | None]


def _notImplemented(name: str) -> StaticResponse:
    """@param name: Amazon's name of the operation."""
    return StaticResponse(code="NotImplemented", message=f"storagegate does not implement {name}")


# HTTP methods by the verb of the operation's name.
_METHODS = {
    **dict.fromkeys(("Get", "List"), b"GET"),
    **dict.fromkeys(("Put", "Update", "Rename"), b"PUT"),
    **dict.fromkeys(("Create", "Restore", "Select"), b"POST"),
    "Delete": b"DELETE",
}

# Selector, verbs and noun of Amazon's names, and the response to a read: a document, an error code,
# or None if reads are not implemented either. The responses match S3's for a new bucket, except
# where a client relies on an older default: ownershipControls and publicAccessBlock respond as for
# a bucket that was made before 2023.
_BUCKET_SETTINGS: tuple[_Setting, ...] = (
    ("abac", "Get Put", "BucketAbac", _ok("AbacStatus", "<Status>Disabled</Status>")),
    ("accelerate", "Get Put", "BucketAccelerateConfiguration", _ok("AccelerateConfiguration")),
    ("logging", "Get Put", "BucketLogging", _ok("BucketLoggingStatus")),
    (
        "metadataConfiguration",
        "Get Create Delete",
        "BucketMetadataConfiguration",
        "MetadataConfigurationNotFound",
    ),
    (
        "metadataTable",
        "Get Create Delete",
        "BucketMetadataTableConfiguration",
        "MetadataConfigurationNotFound",
    ),
    *(
        (
            f"metadata{kind}Table",
            "Update",
            f"BucketMetadata{kind}TableConfiguration",
            None,
        )
        for kind in ("Annotation", "Inventory", "Journal")
    ),
    (
        "notification",
        "Get Put",
        "BucketNotificationConfiguration",
        _ok("NotificationConfiguration"),
    ),
    ("replication", "Get Put Delete", "BucketReplication", "ReplicationConfigurationNotFoundError"),
    (
        "requestPayment",
        "Get Put",
        "BucketRequestPayment",
        _ok("RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>"),
    ),
    ("website", "Get Put Delete", "BucketWebsite", "NoSuchWebsiteConfiguration"),
)

# Settings that a bucket can have several times: selector, noun, root element of the list.
_BUCKET_LISTS = (
    ("analytics", "Analytics", "ListBucketAnalyticsConfigurationsResult"),
    ("intelligent-tiering", "IntelligentTiering", "ListIntelligentTieringConfigurationsResult"),
    ("inventory", "Inventory", "ListInventoryConfigurationsResult"),
    ("metrics", "Metrics", "ListMetricsConfigurationsResult"),
)

_OBJECT_SETTINGS: tuple[_Setting, ...] = (
    ("annotation", "List", "ObjectAnnotations", None),
    ("annotation", "Put Delete", "ObjectAnnotation", None),
    ("encryption", "Update", "ObjectEncryption", None),
    ("renameObject", "Rename", "Object", None),
    ("restore", "Restore", "Object", None),
    ("select", "Select", "ObjectContent", None),
)


def _settings(level: Level, rows: Iterable[_Setting]) -> Iterator[S3Operation]:
    change: Access = "admin" if level == "bucket" else "write"
    for selector, verbs, noun, response in rows:
        read = StaticResponse(code=response) if isinstance(response, str) else response
        for verb in verbs.split():
            name, method = verb + noun, _METHODS[verb]
            if method == b"GET":
                handler = read or _notImplemented(name)
                yield S3Operation(name, method, level, "read", handler, selector)
            else:
                yield S3Operation(name, method, level, change, _notImplemented(name), selector)


def _listRows() -> Iterator[_Setting]:
    for selector, kind, root in _BUCKET_LISTS:
        noun = f"Bucket{kind}Configuration"
        yield selector, "List", f"{noun}s", _ok(root, "<IsTruncated>false</IsTruncated>")
        yield f"{selector}&id", "Get", noun, "NoSuchConfiguration"
        yield selector, "Put Delete", noun, None


# The API reference requires a digest of these documents.
_DIGESTED = frozenset(
    [
        "DeleteObjects",
        "PutBucketCors",
        "PutBucketLifecycleConfiguration",
        "PutBucketTagging",
        "PutObjectLegalHold",
        "PutObjectLockConfiguration",
        "PutObjectRetention",
    ]
)
_DOCUMENTED = _DIGESTED | {
    "PutBucketEncryption",
    "PutBucketOwnershipControls",
    "PutBucketVersioning",
    "PutObjectTagging",
    "PutPublicAccessBlock",
}


def _row(
    method: bytes,
    level: Level,
    access: Access,
    handler: Callable[[S3Request], Coroutine[Any, Any, None]],
    selector: str = "",
    name: str = "",
    **options: Any,
) -> S3Operation:
    """Make the row of an operation; the name defaults to the handler's name."""
    name = name or handler.__name__[0].upper() + handler.__name__[1:]
    options.update(needsDocument=name in _DOCUMENTED, needsDigest=name in _DIGESTED)
    return S3Operation(name, method, level, access, handler, selector, **options)


def _settingRows() -> Iterator[S3Operation]:
    """Make the rows of the stored bucket settings."""
    for selector, handlers in (
        ("acl", (access.getBucketAcl, access.putBucketAcl)),
        (
            "ownershipControls",
            (
                access.getBucketOwnershipControls,
                access.putBucketOwnershipControls,
                access.deleteBucketOwnershipControls,
            ),
        ),
        (
            "policy",
            (access.getBucketPolicy, access.putBucketPolicy, access.deleteBucketPolicy),
        ),
        ("object-lock", (locks.getObjectLockConfiguration, locks.putObjectLockConfiguration)),
        ("cors", (cors.getBucketCors, cors.putBucketCors, cors.deleteBucketCors)),
        (
            "encryption",
            (
                encryption.getBucketEncryption,
                encryption.putBucketEncryption,
                encryption.deleteBucketEncryption,
            ),
        ),
        ("policyStatus", (access.getBucketPolicyStatus,)),
        (
            "publicAccessBlock",
            (
                access.getPublicAccessBlock,
                access.putPublicAccessBlock,
                access.deletePublicAccessBlock,
            ),
        ),
    ):
        for method, handler in zip((b"GET", b"PUT", b"DELETE"), handlers, strict=False):
            kind: Access = "read" if method == b"GET" else "admin"
            limit = BUCKET_LIMIT if method == b"PUT" else 0
            yield _row(method, "bucket", kind, handler, selector, documentLimit=limit)


_COPY = "x-amz-copy-source"

_STORED = (
    _row(b"GET", "service", "list", buckets.listBuckets),
    _row(b"GET", "bucket", "list", buckets.listObjects, byPrefix=True),
    _row(
        b"GET",
        "bucket",
        "list",
        buckets.listObjects,
        "",
        "ListObjectsV2",
        variant="list-type=2",
        byPrefix=True,
    ),
    _row(b"GET", "bucket", "list", buckets.listObjectVersions, "versions", byPrefix=True),
    _row(b"GET", "bucket", "list", multipart.listMultipartUploads, "uploads", byPrefix=True),
    _row(b"GET", "bucket", "list", buckets.getBucketLocation, "location"),
    _row(b"GET", "bucket", "read", buckets.getBucketVersioning, "versioning"),
    _row(
        b"PUT",
        "bucket",
        "admin",
        buckets.putBucketVersioning,
        "versioning",
        documentLimit=BUCKET_LIMIT,
    ),
    *_settingRows(),
    _row(b"GET", "bucket", "read", lifecycle.getBucketLifecycleConfiguration, "lifecycle"),
    _row(
        b"PUT",
        "bucket",
        "admin",
        lifecycle.putBucketLifecycleConfiguration,
        "lifecycle",
        documentLimit=LIFECYCLE_LIMIT,
    ),
    _row(b"DELETE", "bucket", "admin", lifecycle.deleteBucketLifecycle, "lifecycle"),
    _row(b"GET", "bucket", "read", buckets.getBucketTagging, "tagging"),
    _row(
        b"PUT",
        "bucket",
        "admin",
        buckets.putBucketTagging,
        "tagging",
        documentLimit=BUCKET_LIMIT,
    ),
    _row(b"DELETE", "bucket", "admin", buckets.deleteBucketTagging, "tagging"),
    _row(b"GET", "object", "read", buckets.getObjectTagging, "tagging"),
    _row(
        b"PUT",
        "object",
        "write",
        buckets.putObjectTagging,
        "tagging",
        documentLimit=BUCKET_LIMIT,
    ),
    _row(b"DELETE", "object", "write", buckets.deleteObjectTagging, "tagging"),
    _row(b"GET", "object", "read", locks.getObjectRetention, "retention"),
    _row(
        b"PUT",
        "object",
        "write",
        locks.putObjectRetention,
        "retention",
        documentLimit=BUCKET_LIMIT,
    ),
    _row(b"GET", "object", "read", locks.getObjectLegalHold, "legal-hold"),
    _row(
        b"PUT",
        "object",
        "write",
        locks.putObjectLegalHold,
        "legal-hold",
        documentLimit=BUCKET_LIMIT,
    ),
    # A session of a directory bucket, and an append of other servers: both resemble plain
    # operations.
    _row(b"GET", "bucket", "list", _notImplemented("CreateSession"), "session", "CreateSession"),
    _row(b"PUT", "object", "write", _notImplemented("AppendObject"), "append", "AppendObject"),
    _row(b"HEAD", "bucket", "list", buckets.headBucket),
    _row(b"PUT", "bucket", "admin", buckets.createBucket, documentLimit=BUCKET_LIMIT),
    _row(b"DELETE", "bucket", "admin", buckets.deleteBucket),
    # A POST without a form; S3Resource passes forms to postObject.
    _row(b"POST", "bucket", "write", post.rejectNonForm, name="PostObject"),
    _row(b"POST", "bucket", "write", put.deleteObjects, "delete", documentLimit=DELETE_LIMIT),
    _row(b"GET", "object", "read", get.getObject),
    _row(b"GET", "object", "read", access.getObjectAcl, "acl"),
    _row(b"PUT", "object", "write", access.putObjectAcl, "acl", documentLimit=BUCKET_LIMIT),
    _row(b"GET", "object", "read", get.getObjectAttributes, "attributes"),
    _row(b"GET", "object", "list", multipart.listParts, "uploadId"),
    _row(b"HEAD", "object", "read", get.headObject),
    _row(b"PUT", "object", "write", put.putObject),
    _row(b"PUT", "object", "write", put.copyObject, variant=_COPY),
    _row(b"PUT", "object", "write", multipart.uploadPart, "uploadId"),
    _row(b"PUT", "object", "write", multipart.uploadPartCopy, "uploadId", variant=_COPY),
    _row(b"DELETE", "object", "write", put.deleteObject),
    _row(b"DELETE", "object", "write", multipart.abortMultipartUpload, "uploadId"),
    _row(b"POST", "object", "write", multipart.createMultipartUpload, "uploads"),
    _row(
        b"POST",
        "object",
        "write",
        multipart.completeMultipartUpload,
        "uploadId",
        documentLimit=COMPLETE_LIMIT,
    ),
)

OPERATIONS = {
    row.name: row
    for row in (
        *_STORED,
        *_settings("bucket", _BUCKET_SETTINGS),
        *_settings("bucket", _listRows()),
        *_settings("object", _OBJECT_SETTINGS),
    )
}
"""Every operation, by Amazon's name."""

_ROWS = {
    (row.method, row.level, row.selector): row for row in OPERATIONS.values() if not row.variant
}
# Operations that make a new object, which has no version id yet.
_WITHOUT_VERSION = frozenset(
    ["PutObject", "UploadPart", "CreateMultipartUpload", "CompleteMultipartUpload"]
)
_PLAIN = {
    (row.method, row.level == "object"): row
    for row in _ROWS.values()
    if row.level != "service" and not row.selector
}
_COPIES = {"PutObject": OPERATIONS["CopyObject"], "UploadPart": OPERATIONS["UploadPartCopy"]}

_LISTS = ("versions", "uploads")

# A torrent has no row: S3 refuses it with 405 instead of returning the object.
_SELECTORS = frozenset(selector for _, _, selector in _ROWS if selector) | {"torrent"}


def findOperation(
    method: bytes,
    hasBucket: bool,
    hasKey: bool,
    query: Mapping[str, str],
    headers: Mapping[bytes, bytes],
) -> S3Operation:
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
        if "versionId" in query and operation is not None and operation.name in _WITHOUT_VERSION:
            message = "This operation does not accept a version-id."
            raise invalidArgument("versionId", query["versionId"], message)
    if operation is None:
        raise _notAllowed(method, hasBucket, hasKey, query)
    if method == b"PUT" and b"x-amz-copy-source" in headers:
        return _COPIES.get(operation.name, operation)
    return operation


def _select(method: bytes, hasKey: bool, query: Mapping[str, str]) -> S3Operation | None:
    if not _SELECTORS.isdisjoint(query):
        selectors = [name for name in query if name in _SELECTORS]
        if len(selectors) > 1:
            message = "Conflicting query string parameters: " + ", ".join(selectors)
            raise invalidArgument("ResourceType", selectors[0], message)
        selector = selectors[0]
        level: Level = "object" if hasKey else "bucket"
        row = _ROWS.get((method, level, f"{selector}&id")) if "id" in query else None
        return row or _ROWS.get((method, level, selector))
    if method == b"PUT" and hasKey and "partNumber" in query:
        raise invalidArgument("uploadId", "", "A part number must come with an upload id")
    # As in S3, any other value selects the first version.
    if method == b"GET" and not hasKey and query.get("list-type") == "2":
        return OPERATIONS["ListObjectsV2"]
    return _PLAIN.get((method, hasKey))


def _notAllowed(method: bytes, hasBucket: bool, hasKey: bool, query: Mapping[str, str]) -> S3Error:
    level = "object" if hasKey else "bucket" if hasBucket else "service"
    selector = next((name for name in query if hasBucket and name in _SELECTORS), "")
    if method == b"GET" and hasKey and selector in _LISTS:
        message = f"There is no such thing as the ?{selector} sub-resource for a key"
        return S3Error("InvalidRequest", message)
    allowed = sorted({m for m, at, by in _ROWS if at == level and by == selector})
    return S3Error(
        "MethodNotAllowed",
        fields={
            "Method": method.decode("latin-1"),
            "ResourceType": (selector or level).replace("-", "_").upper(),
        },
        headers=[(b"Allow", b", ".join(allowed))] if allowed else [],
    )
