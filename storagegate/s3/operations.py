"""
Which operation a request is.

The method, the level of the target (service, bucket, object) and at most one I{selector} in the
query (C{?acl}, C{?uploads}) name a row of the table; C{x-amz-copy-source} and C{list-type=2} tell
apart what shares one. All other parameters are ignored, as S3 ignores them. A selector that the
method or the level does not know is refused: C{PUT /bucket/key?acl} must never store an object.
"""

from collections.abc import Mapping

from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.operation import Access, Level, Operation
from storagegate.s3.settings import SETTING_ROWS
from storagegate.s3.xmlreader import BUCKET_LIMIT, COMPLETE_LIMIT, DELETE_LIMIT

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

    @param query: As L{parseQuery<storagegate.s3.query.parseQuery>} gives it.
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
