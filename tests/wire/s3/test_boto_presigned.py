"""Requests that are signed ahead, for somebody who has no key."""

from urllib.parse import urlsplit

from tests.support.clients import botoClient
from tests.support.s3signer import Outgoing
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.forms import formRequest


def targetOf(url: str) -> str:
    """Cut a URL down to what goes into a request line."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


class DefaultPresignedTests(S3Case):
    """URLs and forms that boto3 signs unasked: in our region that is the second version."""

    signature: str | None = None

    def setUp(self) -> None:
        """Have a bucket, and a client that signs."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.s3 = botoClient(self.endpoint, signature=self.signature)

    def presigned(self, operation: str, **parameters: str) -> str:
        """Sign a URL for an object and give its target."""
        named = {"Bucket": self.bucket, "Key": "a key/with+odd %2B", **parameters}
        return targetOf(self.s3.generate_presigned_url(operation, named, ExpiresIn=600))

    def test_putGetHeadDelete(self) -> None:
        """Whoever has the URL may do that one thing, with nothing else in hand."""
        put = self.send(Outgoing("PUT", self.presigned("put_object"), {}, b"signed ahead"))
        self.assertEqual(put.status, 200, put)
        got = self.send(Outgoing("GET", self.presigned("get_object")))
        self.assertEqual((got.status, got.body), (200, b"signed ahead"))
        head = self.send(Outgoing("HEAD", self.presigned("head_object")))
        self.assertEqual((head.status, head.headers["content-length"]), (200, "12"))
        gone = self.send(Outgoing("DELETE", self.presigned("delete_object")))
        self.assertEqual(gone.status, 204, gone)
        missing = self.send(Outgoing("GET", self.presigned("get_object")))
        self.assertAnswer(missing, 404, "NoSuchKey")

    def test_signedContentType(self) -> None:
        """A header that the URL was signed for has to come with the request."""
        target = self.presigned("put_object", ContentType="text/plain")
        bare = self.send(Outgoing("PUT", target, {}, b"x"))
        self.assertAnswer(bare, 403, "SignatureDoesNotMatch")
        other = self.send(Outgoing("PUT", target, {"Content-Type": "text/html"}, b"x"))
        self.assertAnswer(other, 403, "SignatureDoesNotMatch")
        right = self.send(Outgoing("PUT", target, {"Content-Type": "text/plain"}, b"x"))
        self.assertEqual(right.status, 200, right)

    def test_responseOverrides(self) -> None:
        """A signed read may say under which headers the object comes."""
        self.s3.put_object(Bucket=self.bucket, Key="k", Body=b"x")
        target = targetOf(
            self.s3.generate_presigned_url(
                "get_object",
                {
                    "Bucket": self.bucket,
                    "Key": "k",
                    "ResponseContentType": "text/x-other",
                    "ResponseContentDisposition": 'attachment; filename="f.txt"',
                    "ResponseCacheControl": "no-store",
                    "ResponseContentLanguage": "fr",
                    "ResponseContentEncoding": "x-none",
                    "ResponseExpires": "Mon, 03 Feb 2031 04:05:06 GMT",
                },
            )
        )
        got = self.send(Outgoing("GET", target))
        self.assertEqual((got.status, got.body), (200, b"x"))
        for name, value in (
            ("content-type", "text/x-other"),
            ("content-disposition", 'attachment; filename="f.txt"'),
            ("cache-control", "no-store"),
            ("content-language", "fr"),
            ("content-encoding", "x-none"),
            ("expires", "Mon, 03 Feb 2031 04:05:06 GMT"),
        ):
            self.assertEqual(got.headers[name], value)

    def test_multipart(self) -> None:
        """A part may be sent by a URL."""
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        named = {"Bucket": self.bucket, "Key": "k", "UploadId": upload, "PartNumber": 1}
        target = targetOf(self.s3.generate_presigned_url("upload_part", named))
        sent = self.send(Outgoing("PUT", target, {}, b"only part"))
        self.assertEqual(sent.status, 200, sent)
        parts = [{"PartNumber": 1, "ETag": sent.headers["etag"]}]
        named.pop("PartNumber")
        self.s3.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})
        self.assertHolds(self.bucket, "k", b"only part")

    def test_form(self) -> None:
        """A browser's form stores a file under the name that the policy allows."""
        form = self.s3.generate_presigned_post(
            self.bucket,
            "uploads/${filename}",
            Fields={"Content-Type": "text/plain", "x-amz-meta-a": "1"},
            Conditions=[
                ["starts-with", "$key", "uploads/"],
                {"Content-Type": "text/plain"},
                {"x-amz-meta-a": "1"},
                ["content-length-range", 1, 100],
            ],
        )
        answer = self.send(formRequest(self.bucket, form["fields"], b"a file", "report.txt"))
        self.assertEqual(answer.status, 204, answer)
        location = f"{self.endpoint}/{self.bucket}/uploads/report.txt"
        self.assertEqual(answer.headers["location"], location)
        self.assertHolds(self.bucket, "uploads/report.txt", b"a file")
        head = self.s3.head_object(Bucket=self.bucket, Key="uploads/report.txt")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/plain", {"a": "1"}))

    def test_formStatus(self) -> None:
        """A form may ask for 201 and a document that names what was stored."""
        form = self.s3.generate_presigned_post(
            self.bucket,
            "k",
            Fields={"success_action_status": "201"},
            Conditions=[{"success_action_status": "201"}],
        )
        answer = self.send(formRequest(self.bucket, form["fields"], b"a file"))
        self.assertEqual(answer.status, 201, answer)
        for expected in (b"<PostResponse", b"<Key>k</Key>", b"<ETag>"):
            self.assertIn(expected, answer.body)


class Version4PresignedTests(DefaultPresignedTests):
    """URLs and forms of a client that was told to use the fourth version."""

    signature = "s3v4"
