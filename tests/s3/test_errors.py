"""S3's errors: the table, the exception, the document."""

import xml.etree.ElementTree as ElementTree

from botocore.parsers import RestXMLParser
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http.interfaces import BadRequest
from storagegate.s3.errors import S3Error, describeRejection, errorDocument, fromStoreError


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
        error = fromStoreError(TooMuchHeld())
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
