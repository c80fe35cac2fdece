"""The table of operations, row by row."""

import re
from urllib.parse import urlsplit

from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.errors import S3Error
from storagegate.s3.handlers.buckets import StaticResponse
from storagegate.s3.names import parseQuery
from storagegate.s3.operations import OPERATIONS, findOperation
from storagegate.s3.request import S3Operation
from tests.s3.clientparser import parseAnswer, serviceModel
from tests.support.documents import DOCS, table

COPY = {b"x-amz-copy-source": b"b/k"}

# Operations of Amazon's model that are none of a plain bucket's (an answer of an object lambda,
# torrents), and old names of others.
_FOREIGN = {"WriteGetObjectResponse", "ListDirectoryBuckets", "GetObjectTorrent"}
_OLD_NAMES = {
    "GetBucketLifecycle": "GetBucketLifecycleConfiguration",
    "GetBucketNotification": "GetBucketNotificationConfiguration",
    "PutBucketLifecycle": "PutBucketLifecycleConfiguration",
    "PutBucketNotification": "PutBucketNotificationConfiguration",
    # Both are GET ?annotation; a name of an annotation is a parameter.
    "GetObjectAnnotation": "ListObjectAnnotations",
}
_WITH_ID = {
    "GetBucketAnalyticsConfiguration",
    "GetBucketIntelligentTieringConfiguration",
    "GetBucketInventoryConfiguration",
    "GetBucketMetricsConfiguration",
}
_UPLOAD_ID = {"AbortMultipartUpload", "CompleteMultipartUpload", "ListParts"}
_PART = {"UploadPart", "UploadPartCopy"}


def find(method: bytes, target: str, headers: dict[bytes, bytes] | None = None) -> S3Operation:
    """Find the operation of a method and a path-style target."""
    path, _, query = target.partition("?")
    bucket, _, key = path[1:].partition("/")
    return findOperation(method, bool(bucket), bool(key), parseQuery(query.encode()), headers or {})


class FindOperationTests(SynchronousTestCase):
    """Which row a request finds."""

    def test_amazonsOwnModel(self) -> None:
        """Every operation of Amazon's model is found under its name, from what a client sends."""
        found = set()
        for name in serviceModel().operation_names:
            if name in _FOREIGN:
                continue
            http = serviceModel().operation_model(name).http
            uri = urlsplit(http["requestUri"])
            query = uri.query
            if name in _WITH_ID:
                query += "&id=1"
            elif name in _UPLOAD_ID:
                query = "uploadId=u"
            elif name in _PART:
                query = "partNumber=1&uploadId=u"
            target = uri.path.replace("{Bucket}", "b").replace("{Key+}", "k")
            headers = COPY if "Copy" in name else {}
            for suffix in ["", f"x-id={name}"]:
                whole = "&".join(filter(None, [query, suffix]))
                operation = find(http["method"].encode(), f"{target}?{whole}", headers)
                self.assertEqual(operation.name, _OLD_NAMES.get(name, name))
            found.add(operation.name)
        # A form is posted by browsers, and an append is another server's: the model of the SDKs
        # knows neither.
        self.assertEqual(set(OPERATIONS) - found, {"PostObject", "AppendObject"})

    def test_notBuilt(self) -> None:
        """The page lists all operations that are refused, and no others."""
        refused = {
            name
            for name, row in OPERATIONS.items()
            if isinstance(row.handler, StaticResponse) and row.handler.code == "NotImplemented"
        }
        cells = " ".join(cell for _, cell in table(DOCS / "s3.rst", "Not built"))
        listed = set(re.findall(r"``(\w+)``", cells))
        self.assertEqual(listed, refused | _FOREIGN)

    def test_plainRows(self) -> None:
        """The operations without a selector, with and without a query."""
        for method, target, name in [
            (b"GET", "/", "ListBuckets"),
            (b"GET", "/b", "ListObjects"),
            (b"HEAD", "/b", "HeadBucket"),
            (b"PUT", "/b", "CreateBucket"),
            (b"DELETE", "/b", "DeleteBucket"),
            (b"POST", "/b", "PostObject"),
            (b"GET", "/b/k", "GetObject"),
            (b"HEAD", "/b/k", "HeadObject"),
            (b"PUT", "/b/k", "PutObject"),
            (b"DELETE", "/b/k", "DeleteObject"),
        ]:
            self.assertEqual(find(method, target).name, name)
            for query in [
                "x-id=PutObject",
                "foo=bar",
                "X-Amz-Algorithm=a&X-Amz-Signature=s",
                "response-content-type=a",
                "versionId=null",
                "ACL",
                "sessions",
            ]:
                if name == "PutObject" and "versionId" in query:
                    continue
                self.assertEqual(find(method, f"{target}?{query}").name, name, query)

    def test_versionOfWrite(self) -> None:
        """An operation that makes an object takes no version id, not even an empty one."""
        for method, target in [
            (b"PUT", "/b/k?versionId"),
            (b"PUT", "/b/k?uploadId=u&versionId=null"),
            (b"POST", "/b/k?uploads&versionId=null"),
            (b"POST", "/b/k?uploadId=u&versionId=null"),
        ]:
            for headers in ({}, COPY):
                error = self.assertRaises(S3Error, find, method, target, headers)
                self.assertEqual(error.code, "InvalidArgument")
                self.assertEqual(error.fields["ArgumentName"], "versionId")
        self.assertEqual(find(b"PUT", "/b/k?acl&versionId=null").name, "PutObjectAcl")

    def test_listTypes(self) -> None:
        """C{list-type=2} is version 2, another value version 1; elsewhere it is ignored."""
        self.assertEqual(find(b"GET", "/b?list-type=2&prefix=a").name, "ListObjectsV2")
        self.assertEqual(find(b"GET", "/b/k?list-type=3").name, "GetObject")
        for value in ["", "1", "3", "02"]:
            self.assertEqual(find(b"GET", f"/b?list-type={value}").name, "ListObjects")

    def test_copies(self) -> None:
        """The header makes a PUT of an object a copy, and nothing else."""
        for method, target, name in [
            (b"PUT", "/b/k", "CopyObject"),
            (b"PUT", "/b/k?x-id=CopyObject", "CopyObject"),
            (b"PUT", "/b/k?uploadId=u&partNumber=1", "UploadPartCopy"),
            (b"PUT", "/b/k?tagging", "PutObjectTagging"),
            (b"PUT", "/b", "CreateBucket"),
            (b"GET", "/b/k", "GetObject"),
            (b"DELETE", "/b/k", "DeleteObject"),
        ]:
            self.assertEqual(find(method, target, COPY).name, name)

    def test_parts(self) -> None:
        """A PUT that names a part or an upload is never a plain PUT."""
        self.assertEqual(find(b"PUT", "/b/k?uploadId=u").name, "UploadPart")
        error = self.assertRaises(S3Error, find, b"PUT", "/b/k?partNumber=1")
        self.assertEqual(error.fields["ArgumentName"], "uploadId")
        self.assertEqual(find(b"GET", "/b/k?partNumber=1").name, "GetObject")

    def test_conflict(self) -> None:
        """Two selectors are refused as S3 refuses them."""
        error = self.assertRaises(S3Error, find, b"GET", "/b?acl&prefix=a&versioning")
        self.assertEqual(error.code, "InvalidArgument")
        self.assertEqual(error.message, "Conflicting query string parameters: acl, versioning")
        self.assertEqual(error.fields, {"ArgumentName": "ResourceType", "ArgumentValue": "acl"})

    def test_notAllowed(self) -> None:
        """A method that a level or a selector does not know is 405 and says which it knows."""
        for method, target, resource, allow in [
            (b"PUT", "/", "SERVICE", b"GET"),
            (b"HEAD", "/?acl", "SERVICE", b"GET"),
            (b"PATCH", "/b", "BUCKET", b"DELETE, GET, HEAD, POST, PUT"),
            (b"POST", "/b/k", "OBJECT", b"DELETE, GET, HEAD, PUT"),
            (b"get", "/b/k", "OBJECT", b"DELETE, GET, HEAD, PUT"),
            (b"HEAD", "/b?acl", "ACL", b"GET, PUT"),
            (b"HEAD", "/b/k?tagging", "TAGGING", b"DELETE, GET, PUT"),
            (b"DELETE", "/b?versions", "VERSIONS", b"GET"),
            (b"DELETE", "/b?location", "LOCATION", b"GET"),
            (b"PUT", "/b?delete", "DELETE", b"POST"),
            (b"DELETE", "/b/k?acl", "ACL", b"GET, PUT"),
            (b"POST", "/b/k?legal-hold&x=1", "LEGAL_HOLD", b"GET, PUT"),
            (b"PUT", "/b/k?policy", "POLICY", None),
            (b"PUT", "/b/k?uploads", "UPLOADS", b"POST"),
            (b"GET", "/b/k?torrent", "TORRENT", None),
        ]:
            error = self.assertRaises(S3Error, find, method, target)
            self.assertEqual((error.code, error.status), ("MethodNotAllowed", 405), target)
            self.assertEqual(
                error.fields, {"Method": method.decode(), "ResourceType": resource}, target
            )
            headers = [] if allow is None else [(b"Allow", allow)]
            self.assertEqual(list(error.headers), headers, target)

    def test_selectorNeverTouchesContent(self) -> None:
        """Whatever selector stands in the query, no PUT or DELETE reaches object or bucket."""
        dangerous = {"PutObject", "CopyObject", "DeleteObject", "CreateBucket", "DeleteBucket"}
        selectors = {row.selector for row in OPERATIONS.values() if row.selector}
        for selector in selectors:
            for method in [b"PUT", b"DELETE"]:
                for target in ["/b", "/b/k"]:
                    try:
                        name = find(method, f"{target}?{selector}=1").name
                    except S3Error as error:
                        self.assertEqual(error.code, "MethodNotAllowed")
                    else:
                        self.assertNotIn(name, dangerous)


class RowTests(SynchronousTestCase):
    """What the rows say."""

    def test_access(self) -> None:
        """What each operation does, for the policies of keys."""
        byAccess: dict[str, set[str]] = {}
        for row in OPERATIONS.values():
            if not isinstance(row.handler, StaticResponse):
                byAccess.setdefault(row.access, set()).add(row.name)
        self.assertEqual(
            byAccess,
            {
                "list": {
                    "ListBuckets",
                    "ListObjects",
                    "ListObjectsV2",
                    "ListObjectVersions",
                    "ListMultipartUploads",
                    "ListParts",
                    "GetBucketLocation",
                    "HeadBucket",
                },
                "read": {
                    "GetBucketAcl",
                    "GetBucketCors",
                    "GetBucketEncryption",
                    "GetBucketLifecycleConfiguration",
                    "GetBucketOwnershipControls",
                    "GetBucketTagging",
                    "GetObjectTagging",
                    "GetBucketVersioning",
                    "GetBucketPolicy",
                    "GetBucketPolicyStatus",
                    "GetPublicAccessBlock",
                    "GetObject",
                    "GetObjectAcl",
                    "GetObjectAttributes",
                    "GetObjectLegalHold",
                    "GetObjectLockConfiguration",
                    "GetObjectRetention",
                    "HeadObject",
                },
                "write": {
                    "AbortMultipartUpload",
                    "CompleteMultipartUpload",
                    "CopyObject",
                    "CreateMultipartUpload",
                    "DeleteObject",
                    "DeleteObjects",
                    "PostObject",
                    "PutObject",
                    "PutObjectAcl",
                    "PutObjectLegalHold",
                    "PutObjectRetention",
                    "PutObjectTagging",
                    "DeleteObjectTagging",
                    "UploadPart",
                    "UploadPartCopy",
                },
                "admin": {
                    "CreateBucket",
                    "DeleteBucket",
                    "DeleteBucketCors",
                    "DeleteBucketEncryption",
                    "DeleteBucketLifecycle",
                    "DeleteBucketOwnershipControls",
                    "DeleteBucketPolicy",
                    "DeletePublicAccessBlock",
                    "PutBucketAcl",
                    "PutBucketCors",
                    "PutBucketEncryption",
                    "PutBucketLifecycleConfiguration",
                    "PutBucketOwnershipControls",
                    "PutBucketPolicy",
                    "PutBucketVersioning",
                    "PutObjectLockConfiguration",
                    "PutPublicAccessBlock",
                    "DeleteBucketTagging",
                    "PutBucketTagging",
                },
            },
        )

    def test_bodies(self) -> None:
        """Which bodies are documents, with a limit."""
        documents = {row.name for row in OPERATIONS.values() if row.documentLimit}
        settings = {
            "PutBucketAcl",
            "PutBucketOwnershipControls",
            "PutBucketPolicy",
            "PutObjectAcl",
            "PutBucketCors",
            "PutBucketEncryption",
            "PutBucketVersioning",
            "PutPublicAccessBlock",
            "PutBucketLifecycleConfiguration",
            "PutBucketTagging",
            "PutObjectTagging",
            "PutObjectLegalHold",
            "PutObjectLockConfiguration",
            "PutObjectRetention",
        }
        self.assertEqual(
            documents, {"CompleteMultipartUpload", "CreateBucket", "DeleteObjects", *settings}
        )
        self.assertTrue(all(row.documentLimit <= 4 << 20 for row in OPERATIONS.values()))

    def test_changesOfSettings(self) -> None:
        """
        A setting that is not kept cannot be changed: 501, which names the operation, and no body is
        read.
        """
        for row in OPERATIONS.values():
            if isinstance(row.handler, StaticResponse) and row.method != b"GET":
                error = self.assertRaises(S3Error, row.handler.bodyFor, "b")
                self.assertEqual((error.code, error.status), ("NotImplemented", 501), row.name)
                self.assertEqual(error.message, f"storagegate does not implement {row.name}")

    def test_absentSettings(self) -> None:
        """A setting that was never made is the error that S3 gives, naming the bucket."""
        for target, code, status in [
            ("/b?analytics&id=1", "NoSuchConfiguration", 404),
            ("/b?intelligent-tiering&id=1", "NoSuchConfiguration", 404),
            ("/b?inventory&id=1", "NoSuchConfiguration", 404),
            ("/b?metadataConfiguration", "MetadataConfigurationNotFound", 404),
            ("/b?metadataTable", "MetadataConfigurationNotFound", 404),
            ("/b?metrics&id=1", "NoSuchConfiguration", 404),
            ("/b?replication", "ReplicationConfigurationNotFoundError", 404),
            ("/b?website", "NoSuchWebsiteConfiguration", 404),
            ("/b/k?annotation", "NotImplemented", 501),
            ("/b?session", "NotImplemented", 501),
        ]:
            handler = find(b"GET", target).handler
            assert isinstance(handler, StaticResponse)
            error = self.assertRaises(S3Error, handler.bodyFor, "photos")
            self.assertEqual((error.code, error.status), (code, status), target)
            self.assertEqual(error.fields, {"BucketName": "photos"})
            if status == 501:
                name = find(b"GET", target).name
                self.assertEqual(error.message, f"storagegate does not implement {name}")

    def test_defaultSettings(self) -> None:
        """A setting with a default is the document that S3 gives, as a client reads it."""
        for target, expected in [
            ("/b?abac", {"AbacStatus": {"Status": "Disabled"}}),
            ("/b?accelerate", {}),
            ("/b?analytics", {"IsTruncated": False}),
            ("/b?intelligent-tiering", {"IsTruncated": False}),
            ("/b?inventory", {"IsTruncated": False}),
            ("/b?logging", {}),
            ("/b?metrics", {"IsTruncated": False}),
            ("/b?notification", {}),
            ("/b?requestPayment", {"Payer": "BucketOwner"}),
        ]:
            operation = find(b"GET", target)
            assert isinstance(operation.handler, StaticResponse)
            body = operation.handler.bodyFor("b")
            self.assertEqual(parseAnswer(operation.name, body), expected, target)
        handler = OPERATIONS["GetBucketAccelerateConfiguration"].handler
        assert isinstance(handler, StaticResponse)
        self.assertEqual(
            handler.bodyFor("b"),
            b'<?xml version="1.0" encoding="UTF-8"?>\n<AccelerateConfiguration '
            b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></AccelerateConfiguration>',
        )

    def test_everyAnswerIsTested(self) -> None:
        """The two tests above name every setting that can be read."""
        fixed = {
            (row.level, row.selector)
            for row in OPERATIONS.values()
            if isinstance(row.handler, StaticResponse) and row.method == b"GET"
        }
        self.assertEqual(len(fixed), 19)
        self.assertEqual(sum(level == "object" for level, _ in fixed), 1)
