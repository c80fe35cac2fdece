"""S3's errors: the table, the exception, the document."""

import xml.etree.ElementTree as ElementTree

from botocore.parsers import RestXMLParser
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http.interfaces import BadRequest
from storagegate.objects.errors import (
    InvalidArgument,
    ObjectNotFound,
    VersionIsDeleteMarker,
    VersionNotFound,
)
from storagegate.s3.errors import S3Error, asS3Error, describeRejection, errorDocument
from storagegate.storage.records import Attributes, Content, ObjectRecord
from tests.support.domainerrors import errorKinds


class S3ErrorTests(SynchronousTestCase):
    """What an error carries."""

    def test_tableGivesStatusAndMessage(self) -> None:
        """A code alone is enough: status and sentence are Amazon's."""
        error = S3Error("NoSuchKey")
        self.assertEqual(
            (error.code, error.status, error.message),
            ("NoSuchKey", 404, "The specified key does not exist."),
        )
        self.assertEqual((dict(error.fields), error.headers), ({}, ()))
        self.assertEqual(str(error), "NoSuchKey: The specified key does not exist.")

    def test_statusesThatClientsTellApart(self) -> None:
        """Each status that is not 400, 403 or 404 belongs to the code that S3 gives it to."""
        for code, status in [
            ("BucketAlreadyOwnedByYou", 409),
            ("BucketNotEmpty", 409),
            ("InsufficientStorage", 507),
            ("InternalError", 500),
            ("InvalidPartNumber", 416),
            ("InvalidRange", 416),
            ("MethodNotAllowed", 405),
            ("MissingContentLength", 411),
            ("NotImplemented", 501),
            ("OperationAborted", 409),
            ("PreconditionFailed", 412),
            ("ServiceUnavailable", 503),
            ("SlowDown", 503),
        ]:
            self.assertEqual(S3Error(code).status, status, code)

    def test_ownMessageAndStatus(self) -> None:
        """Message, status, fields and headers can be given with the code."""
        error = S3Error(
            "InvalidAccessKeyId",
            "No.",
            fields={"AWSAccessKeyId": "AK"},
            headers=[(b"WWW-Authenticate", b"StorageKey")],
            status=401,
        )
        self.assertEqual((error.status, error.message), (401, "No."))
        self.assertEqual(error.fields, {"AWSAccessKeyId": "AK"})
        self.assertEqual(error.headers, ((b"WWW-Authenticate", b"StorageKey"),))

    def test_unknownCode(self) -> None:
        """A code that the table does not hold is a mistake of ours, found at once."""
        self.assertRaises(KeyError, S3Error, "NoSuchCode")


class DomainTests(SynchronousTestCase):
    """Errors of the domain on the wire."""

    def test_everyKind(self) -> None:
        """Every error of the domain has a code and the words that S3 has for it."""
        for kind in errorKinds():
            if kind is VersionIsDeleteMarker:
                continue
            found = asS3Error(kind())
            self.assertEqual(found.message, S3Error(found.code).message, kind)
            self.assertEqual(asS3Error(kind("Own words")).message, "Own words")

    def test_details(self) -> None:
        """Details become elements in their order, and arguments have S3's names."""
        error = asS3Error(VersionNotFound(key="k", versionId="v"))
        self.assertEqual(list(error.fields.items()), [("Key", "k"), ("VersionId", "v")])
        self.assertEqual((error.code, error.status), ("NoSuchVersion", 404))
        error = asS3Error(InvalidArgument("No", name="versionAfter", value="x"))
        self.assertEqual(error.fields, {"ArgumentName": "version-id-marker", "ArgumentValue": "x"})
        # Only names are translated, not what clients have sent.
        self.assertEqual(asS3Error(ObjectNotFound(key="acl")).fields, {"Key": "acl"})

    def test_markers(self) -> None:
        """A delete marker is named in the headers."""
        marker = ObjectRecord("b", b"k", 0, "", 1000, "a", Attributes(), Content(0), versionId="v1")
        named = [(b"x-amz-delete-marker", b"true"), (b"x-amz-version-id", b"v1")]
        missing = ObjectNotFound(key="k")
        self.assertEqual(asS3Error(missing).headers, ())
        missing.marker = marker
        self.assertEqual(list(asS3Error(missing).headers), named)
        for operation, method in (
            ("PutObjectTagging", "PUT"),
            ("DeleteObjectTagging", "DELETE"),
            ("HeadObject", "HEAD"),
            ("GetObject", "GET"),
        ):
            error = asS3Error(VersionIsDeleteMarker(marker, operation))
            self.assertEqual((error.code, error.status), ("MethodNotAllowed", 405))
            self.assertEqual(error.fields, {"Method": method, "ResourceType": "DeleteMarker"})
            self.assertEqual(
                list(error.headers),
                [
                    (b"Allow", b"DELETE"),
                    (b"Last-Modified", b"Thu, 01 Jan 1970 00:00:01 GMT"),
                    *named,
                ],
            )


class ErrorDocumentTests(SynchronousTestCase):
    """What a client reads."""

    def test_malformedRequests(self) -> None:
        """A request that breaks HTTP is refused with a document, its code chosen by the status."""
        for status, code in ((400, "BadRequest"), (417, "ExpectationFailed"), (503, "SlowDown")):
            contentType, body = describeRejection(BadRequest(status, "The text"))
            self.assertEqual(contentType, b"application/xml")
            self.assertIn(f"<Code>{code}</Code><Message>The text</Message>".encode(), body)

    def test_bytes(self) -> None:
        """Code, message, further fields, resource and request id stand in S3's order."""
        error = S3Error("NoSuchBucket", fields={"BucketName": "photos"})
        self.assertEqual(
            errorDocument(error, "/photos/a%26b", "R1"),
            b'<?xml version="1.0" encoding="UTF-8"?>\n'
            b"<Error><Code>NoSuchBucket</Code>"
            b"<Message>The specified bucket does not exist</Message>"
            b"<BucketName>photos</BucketName><Resource>/photos/a%26b</Resource>"
            b"<RequestId>R1</RequestId></Error>",
        )

    def test_tooMuchHeld(self) -> None:
        """A document that is refused because all hold too much is to be sent later."""
        error = asS3Error(TooMuchHeld())
        self.assertEqual((error.code, error.status), ("SlowDown", 503))

    def test_alwaysReadable(self) -> None:
        """Markup is escaped, and what XML cannot hold is replaced: any parser reads an error."""
        error = S3Error("InvalidArgument", "<\x01>", fields={"ArgumentValue": "a\x00&\udc80\r\n"})
        root = ElementTree.fromstring(errorDocument(error, "/\x1b", "R1"))
        self.assertEqual(root.findtext("Message"), "<\ufffd>")
        self.assertEqual(root.findtext("ArgumentValue"), "a\ufffd&\ufffd\r\n")
        self.assertEqual(root.findtext("Resource"), "/\ufffd")

    def test_clientReadsCode(self) -> None:
        """botocore's own parser finds code, message and fields."""
        parsed = RestXMLParser().parse(
            {
                "status_code": 404,
                "headers": {},
                "body": errorDocument(S3Error("NoSuchKey", fields={"Key": "k"}), "/b/k", "R1"),
            },
            None,
        )
        self.assertEqual(parsed["Error"]["Code"], "NoSuchKey")
        self.assertEqual(parsed["Error"]["Message"], "The specified key does not exist.")
        self.assertEqual(parsed["Error"]["Key"], "k")
