"""Answers that clients compare with Amazon's: codes, texts, names of header fields, elements."""

import hashlib
import re
import socket
from base64 import b64encode
from urllib.parse import quote

import boto3
from botocore.config import Config

from tests.support.clients import REGION, ROOT
from tests.support.s3signer import (
    ANSWER_SECONDS,
    SIGNED_CHUNKS,
    SIGNED_CHUNKS_TRAILER,
    UNSIGNED,
    UNSIGNED_TRAILER,
    Answer,
    Outgoing,
    Signer,
    wireBytes,
)
from tests.wire.s3.fixture import S3Case

_PART = 5 << 20


def elementOf(answer: Answer, name: str) -> str:
    """Return the text of the first element of a name; empty without one."""
    found = re.search(rb"<%b>([^<]*)</%b>" % (name.encode(), name.encode()), answer.body)
    return found[1].decode() if found else ""


class AnswerCase(S3Case):
    """A bucket with one object, C{held}."""

    def setUp(self) -> None:
        """Store the object."""
        super().setUp()
        self.bucket = self.makeBucket("answers")
        self.s3.put_object(Bucket=self.bucket, Key="held", Body=b"before")

    def sent(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        payloadHash: str | None = None,
    ) -> Answer:
        """Sign a request with the root pair and send it; the target follows the bucket."""
        outgoing = Outgoing(method, f"/{self.bucket}{target}", headers or {}, body)
        return self.sendSigned(outgoing, payloadHash)

    def assertInvalid(self, answer: Answer, name: str) -> None:
        """Check that an answer is C{InvalidArgument} for this argument."""
        self.assertAnswer(answer, 400, "InvalidArgument")
        self.assertEqual(elementOf(answer, "ArgumentName"), name)

    def assertMessage(self, answer: Answer, code: str, message: str) -> None:
        """Check that an answer is 400 with this code and this text."""
        self.assertAnswer(answer, 400, code)
        self.assertEqual(elementOf(answer, "Message"), message)

    def rawHead(self, wire: bytes) -> bytes:
        """Send a request as it is, and return the head of the answer as it is."""
        with socket.create_connection(self.address, ANSWER_SECONDS) as connection:
            connection.sendall(wire)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65536)
        return received.partition(b"\r\n\r\n")[0]

    def assertHeld(self) -> None:
        """Check that the object is as it was."""
        self.assertHolds(self.bucket, "held", b"before")


class HeaderTests(AnswerCase):
    """Header fields of objects: their bytes and names."""

    def test_latin1Overrides(self) -> None:
        """The six parameters accept Latin-1, in a signed request and in a presigned URL."""
        value = 'attachment; filename="R\xe9sum\xe9\xa0\xad.pdf"'
        for name in ("Type", "Language", "Disposition", "Encoding"):
            with self.subTest(name=name):
                self.assertOverridden(f"Content-{name}", value)
        for name in ("Expires", "Cache-Control"):
            with self.subTest(name=name):
                self.assertOverridden(name, value)

    def assertOverridden(self, name: str, value: str) -> None:
        """Check that a parameter sets a field of the response."""
        target = f"/{self.bucket}/held?response-{name.lower()}={quote(value)}"
        for outgoing in (
            self.signer.sign(Outgoing("GET", target)),
            self.signer.presign(Outgoing("HEAD", target)),
        ):
            answer = self.send(outgoing)
            self.assertEqual((answer.status, answer.headers[name.lower()]), (200, value))

    def test_otherOverrides(self) -> None:
        """A value beyond Latin-1 is refused in Amazon's words, and so is a control character."""
        answer = self.sent("GET", f"/held?response-content-disposition={quote('文')}")
        self.assertInvalid(answer, "response-content-disposition")
        message = "Header value cannot be represented using ISO-8859-1."
        self.assertEqual(elementOf(answer, "Message"), message)
        for value in ("%0D%0Ax", "%00", "%7F", "%09", "%C2%85"):
            answer = self.sent("GET", f"/held?response-expires={value}")
            self.assertInvalid(answer, "response-expires")

    def test_unknownOverrides(self) -> None:
        """A parameter that would replace another header field is refused."""
        self.assertInvalid(self.sent("GET", "/held?response-gibberish=x"), "response-gibberish")
        self.assertEqual(self.sent("HEAD", "/held?response-etag=x").status, 400)

    def test_rawBytes(self) -> None:
        """The bytes of stored fields come back as they were sent, in UTF-8 and in Latin-1."""
        text = 'attachment; filename="Résumé.pdf"'
        for name in ("content-disposition", "content-language", "cache-control", "content-type"):
            answer = self.sent("PUT", "/raw", {name: text})
            self.assertEqual(answer.status, 200, answer)
            # The client of this test decodes Latin-1.
            found = self.sent("HEAD", "/raw").headers[name]
            self.assertEqual(found.encode("latin-1").decode(), text)

    def test_canonicalNames(self) -> None:
        """Stored and replaced fields have the names that Amazon writes."""
        names = ("Cache-Control", "Expires", "Content-Disposition", "Content-Language")
        self.sent("PUT", "/named", dict.fromkeys((*names, "Content-Encoding"), "identity"))
        queries = ("", "?" + "&".join(f"response-{name.lower()}=x" for name in names))
        for query in queries:
            outgoing = self.signer.sign(Outgoing("GET", f"/{self.bucket}/named{query}"))
            head = self.rawHead(wireBytes(outgoing, self.host))
            for name in (*names, "Content-Encoding"):
                self.assertIn(f"\r\n{name}: ".encode(), head)

    def test_storageClass(self) -> None:
        """Only classes whose objects can be read at once are labels."""
        put = self.s3.put_object
        put(Bucket=self.bucket, Key="k", StorageClass="GLACIER_IR")
        found = self.s3.head_object(Bucket=self.bucket, Key="k")["StorageClass"]
        self.assertEqual(found, "GLACIER_IR")
        for name in ("GLACIER", "DEEP_ARCHIVE"):
            self.assertRefused(
                400,
                "InvalidStorageClass",
                put,
                Bucket=self.bucket,
                Key="k",
                StorageClass=name,
            )


class ConditionTests(AnswerCase):
    """The condition that failed is in the document of a 412."""

    def assertFailed(self, answer: Answer, condition: str) -> None:
        """Check that an answer is 412 and names the condition."""
        self.assertAnswer(answer, 412, "PreconditionFailed")
        self.assertEqual(elementOf(answer, "Condition"), condition)

    def test_writes(self) -> None:
        """PUT, copy, delete and completion name the header field whose condition failed."""
        wrong = {"If-Match": f'"{"0" * 32}"'}
        absent = {"If-None-Match": "*"}
        self.s3.put_object(Bucket=self.bucket, Key="source", Body=b"after")
        source = {"x-amz-copy-source": f"{self.bucket}/source"}
        etag = f'"{hashlib.md5(b"before").hexdigest()}"'
        target = self.completable()
        for headers, name in ((wrong, "If-Match"), (absent, "If-None-Match")):
            self.assertFailed(self.sent("PUT", "/held", headers, b"after"), name)
            self.assertFailed(self.sent("PUT", "/held", {**source, **headers}), name)
            self.assertFailed(self.sent("POST", target, headers, self.completion), name)
        self.assertFailed(self.sent("PUT", "/held", {"If-None-Match": etag}), "If-None-Match")
        both = {"If-Match": "*", "If-None-Match": etag}
        self.assertFailed(self.sent("PUT", "/held", both), "If-None-Match")
        self.assertFailed(self.sent("PUT", "/held", {**wrong, **absent}), "If-None-Match")
        self.assertHeld()

    def completable(self) -> str:
        """Begin an upload over the object, and return the target of its completion."""
        named = {"Bucket": self.bucket, "Key": "held"}
        upload = self.s3.create_multipart_upload(**named)["UploadId"]
        etag = self.s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"p")["ETag"]
        part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        self.completion = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
        return f"/held?uploadId={upload}"

    def test_deletes(self) -> None:
        """A delete also names the conditions that only a delete has."""
        for name, value in (
            ("If-Match", f'"{"0" * 32}"'),
            ("If-None-Match", "*"),
            ("x-amz-if-match-size", "1"),
            ("x-amz-if-match-last-modified-time", "Thu, 01 Dec 1994 16:00:00 GMT"),
        ):
            self.assertFailed(self.sent("DELETE", "/held", {name: value}), name)
        self.assertHeld()

    def test_sources(self) -> None:
        """The condition on the source of a copy has its prefix in lower case."""
        etag = f'"{hashlib.md5(b"before").hexdigest()}"'
        source = {"x-amz-copy-source": f"{self.bucket}/held"}
        for name, value in (
            ("If-None-Match", etag),
            ("If-Match", '"other"'),
            ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
            ("If-Unmodified-Since", "Thu, 01 Dec 1994 16:00:00 GMT"),
        ):
            condition = f"x-amz-copy-source-{name}"
            answer = self.sent("PUT", "/copy", {**source, condition: value})
            self.assertFailed(answer, "" if answer.status != 412 else condition)

    def test_unknownNoneMatch(self) -> None:
        """A write whose If-None-Match is neither C{*} nor an ETag is not built."""
        for value in ("true", "1", '"a", no'):
            answer = self.sent("PUT", "/held", {"If-None-Match": value}, b"after")
            self.assertAnswer(answer, 501, "NotImplemented")
            self.assertEqual(elementOf(answer, "Header"), "If-None-Match")
        self.assertHeld()


class PartTests(AnswerCase):
    """Numbers of parts, and lists of uploads and parts."""

    def test_sparseNumbers(self) -> None:
        """A read by part takes the numbers that the attributes list."""
        named = {"Bucket": self.bucket, "Key": "sparse"}
        upload = self.s3.create_multipart_upload(**named)["UploadId"]
        parts = []
        for number, body in ((7, b"a" * _PART), (14, b"b" * _PART), (21, b"end")):
            done = self.s3.upload_part(**named, UploadId=upload, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": done["ETag"]})
        self.s3.complete_multipart_upload(
            **named, UploadId=upload, MultipartUpload={"Parts": parts}
        )
        found = self.s3.get_object_attributes(**named, ObjectAttributes=["ObjectParts"])
        numbers = [part["PartNumber"] for part in found["ObjectParts"]["Parts"]]
        self.assertEqual(numbers, [7, 14, 21])
        for number, size, first in ((7, _PART, 0), (14, _PART, _PART), (21, 3, 2 * _PART)):
            head = self.s3.head_object(**named, PartNumber=number)
            self.assertEqual((head["ContentLength"], head["PartsCount"]), (size, 3))
            last = first + size - 1
            self.assertEqual(head["ContentRange"], f"bytes {first}-{last}/{2 * _PART + 3}")
        body = self.s3.get_object(**named, PartNumber=21)["Body"].read()
        self.assertEqual(body, b"end")
        for number in ("1", "8", "22"):
            answer = self.sent("GET", f"/sparse?partNumber={number}")
            self.assertAnswer(answer, 416, "InvalidPartNumber")
            found = (elementOf(answer, "PartNumberRequested"), elementOf(answer, "ActualPartCount"))
            self.assertEqual(found, (number, "3"))

    def test_noParts(self) -> None:
        """A list of no parts is the last, so that a pager ends."""
        named = {"Bucket": self.bucket, "Key": "k"}
        upload = self.s3.create_multipart_upload(**named)["UploadId"]
        self.s3.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"p")
        found = self.s3.list_parts(**named, UploadId=upload, MaxParts=0)
        self.assertFalse(found["IsTruncated"])
        self.assertNotIn("Parts", found)

    def test_lastUpload(self) -> None:
        """A whole list of uploads names its last item, too."""
        ids = {}
        for key in ("a/1", "b"):
            made = self.s3.create_multipart_upload(Bucket=self.bucket, Key=key)
            ids[key] = made["UploadId"]
        found = self.s3.list_multipart_uploads(Bucket=self.bucket)
        self.assertFalse(found["IsTruncated"])
        last = (found["NextKeyMarker"], found["NextUploadIdMarker"])
        self.assertEqual(last, ("b", ids["b"]))
        found = self.s3.list_multipart_uploads(Bucket=self.bucket, Prefix="a", Delimiter="/")
        self.assertEqual(found["NextKeyMarker"], "a/")
        self.assertFalse(found.get("NextUploadIdMarker"))

    def test_markers(self) -> None:
        """A marker that no upload can have is refused beside a key marker, and ignored alone."""
        answer = self.sent("GET", "?uploads&key-marker=a&upload-id-marker=junk")
        self.assertInvalid(answer, "upload-id-marker")
        self.assertEqual(self.sent("GET", "?uploads&upload-id-marker=junk").status, 200)
        made = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        target = f"?uploads&key-marker=a&upload-id-marker={made}"
        self.assertEqual(self.sent("GET", target).status, 200)

    def test_objectSize(self) -> None:
        """A declared size that is no number is an invalid request."""
        for value in ("a", "-1", "1_0"):
            answer = self.sent("POST", "/k?uploadId=u", {"x-amz-mp-object-size": value})
            self.assertIn(answer.code, ("InvalidRequest", "MalformedXML"))
        made = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        part = "<Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
        body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
        answer = self.sent("POST", f"/k?uploadId={made}", {"x-amz-mp-object-size": "a"}, body)
        self.assertAnswer(answer, 400, "InvalidRequest")


class ListTests(AnswerCase):
    """The two lists of objects."""

    def test_version(self) -> None:
        """Only C{list-type=2} selects the second list."""
        for value in ("1", "0", "junk"):
            answer = self.sent("GET", f"?list-type={value}")
            self.assertEqual(answer.status, 200)
            self.assertIn(b"<Marker>", answer.body.replace(b"<Marker/>", b"<Marker>"))
            self.assertNotIn(b"<KeyCount>", answer.body)
        self.assertIn(b"<KeyCount>1</KeyCount>", self.sent("GET", "?list-type=2").body)

    def test_otherParameters(self) -> None:
        """A position that only the other list has is refused."""
        answer = self.sent("GET", "?start-after=a")
        self.assertInvalid(answer, "start-after")
        message = "startAfter only supported in REST.GET.BUCKET with list-type=2"
        self.assertEqual(elementOf(answer, "Message"), message)
        answer = self.sent("GET", "?list-type=2&marker=a")
        self.assertInvalid(answer, "marker")
        message = "Marker unsupported with REST.GET.BUCKET in list-type=2"
        self.assertEqual(elementOf(answer, "Message"), message)

    def test_region(self) -> None:
        """Both lists name the region of the bucket."""
        for query in ("", "?list-type=2"):
            answer = self.sent("GET", query)
            self.assertEqual(answer.headers["x-amz-bucket-region"], REGION)

    def test_otherRegion(self) -> None:
        """A client of another region learns the right one from the refusal, also of a HEAD."""
        other = Signer(self.host, region="eu-west-1")
        for method, target in (("HEAD", ""), ("HEAD", "/held"), ("GET", ""), ("GET", "/held")):
            outgoing = Outgoing(method, f"/{self.bucket}{target}")
            for signed in (other.sign(outgoing), other.presign(outgoing)):
                answer = self.send(signed)
                found = (answer.status, answer.headers.get("x-amz-bucket-region"))
                self.assertEqual(found, (400, REGION))

    def test_redirected(self) -> None:
        """An SDK that was set up for another region follows."""
        settings = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2})
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ROOT.accessKey,
            aws_secret_access_key=ROOT.secretKey,
            region_name="eu-west-1",
            config=settings,
        )
        self.assertEqual(client.head_bucket(Bucket=self.bucket)["BucketRegion"], REGION)

    def test_listOfKey(self) -> None:
        """A list of a bucket that is asked of a key is an invalid request."""
        for name in ("versions", "uploads"):
            answer = self.sent("GET", f"/held?{name}")
            message = f"There is no such thing as the ?{name} sub-resource for a key"
            self.assertMessage(answer, "InvalidRequest", message)


class CopyTests(AnswerCase):
    """Copies: their storage class, and copies of an object onto itself."""

    def copied(self, **headers: str) -> Answer:
        """Copy the object onto itself, with underscores for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        source = {"x-amz-copy-source": f"{self.bucket}/held", **named}
        return self.sent("PUT", "/held", source)

    def test_defaultClass(self) -> None:
        """A copy that names no class is STANDARD, whatever the class of its source."""
        put = {"Bucket": self.bucket, "Key": "cold"}
        self.s3.put_object(**put, StorageClass="STANDARD_IA", Metadata={"a": "b"})
        source = {"CopySource": f"{self.bucket}/cold"}
        self.s3.copy_object(Bucket=self.bucket, Key="copy", **source)
        found = self.s3.head_object(Bucket=self.bucket, Key="copy")
        self.assertNotIn("StorageClass", found)
        self.assertEqual(found["Metadata"], {"a": "b"})
        self.s3.copy_object(Bucket=self.bucket, Key="copy", StorageClass="STANDARD_IA", **source)
        found = self.s3.head_object(Bucket=self.bucket, Key="copy")
        self.assertEqual(found["StorageClass"], "STANDARD_IA")

    def test_itself(self) -> None:
        """A copy onto itself must name what may change, even if it stays the same."""
        message = (
            "This copy request is illegal because it is trying to copy an object to itself "
            "without changing the object's metadata, storage class, website redirect location or "
            "encryption attributes."
        )
        self.assertMessage(self.copied(), "InvalidRequest", message)
        tags = {"x_amz_tagging_directive": "REPLACE", "x_amz_tagging": "a=b"}
        self.assertMessage(self.copied(**tags), "InvalidRequest", message)
        self.assertEqual(self.copied(x_amz_storage_class="STANDARD").status, 200)
        self.assertEqual(self.copied(x_amz_metadata_directive="REPLACE").status, 200)
        self.assertHeld()

    def test_coldItself(self) -> None:
        """A copy onto itself without a class does not warm an object up."""
        self.s3.put_object(Bucket=self.bucket, Key="held", StorageClass="STANDARD_IA")
        self.assertAnswer(self.copied(), 400, "InvalidRequest")

    def test_ownVersion(self) -> None:
        """A copy of the current version by its id is a new version."""
        enabled = {"Status": "Enabled"}
        self.s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration=enabled)
        put = self.s3.put_object(Bucket=self.bucket, Key="held", Body=b"before")["VersionId"]
        source = {"Bucket": self.bucket, "Key": "held", "VersionId": put}
        copy = self.s3.copy_object(Bucket=self.bucket, Key="held", CopySource=source)
        self.assertNotIn(copy["VersionId"], (put, "null"))
        self.assertEqual(copy["CopySourceVersionId"], put)
        self.assertHeld()

    def test_body(self) -> None:
        """A copy with a body is refused: the client meant to store the body."""
        source = {"x-amz-copy-source": f"{self.bucket}/held"}
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        for target in ("/copy", f"/k?partNumber=1&uploadId={upload}"):
            self.assertAnswer(self.sent("PUT", target, source, b"body"), 400, "InvalidRequest")
        self.assertMissing(self.bucket, "copy")
        outgoing = self.signer.sign(Outgoing("PUT", f"/{self.bucket}/copy", source))
        wire = wireBytes(outgoing, self.host).replace(b"content-length: 0\r\n", b"")
        self.assertIn(b" 200 OK", self.rawHead(wire))


class DocumentTests(AnswerCase):
    """Documents of requests: their digests, and what they must have."""

    tagging = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
    delete = b"<Delete><Object><Key>other</Key></Object></Delete>"
    hold = b"<LegalHold><Status>OFF</Status></LegalHold>"
    retention = b"<Retention/>"
    lock = (
        b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        b"<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
        b"</ObjectLockConfiguration>"
    )
    unlock = (
        b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        b"</ObjectLockConfiguration>"
    )
    cors = (
        b"<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>"
        b"<AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
    )
    lifecycle = (
        b"<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter><Prefix/></Filter>"
        b"<Expiration><Days>400</Days></Expiration></Rule></LifecycleConfiguration>"
    )

    def setUp(self) -> None:
        """Have a bucket with object lock, too."""
        super().setUp()
        self.locked = self.makeName("locked")
        self.s3.create_bucket(Bucket=self.locked, ObjectLockEnabledForBucket=True)
        self.s3.put_object(Bucket=self.locked, Key="held", Body=b"before")

    def test_digests(self) -> None:
        """A document that must be verifiable needs a digest or a signed hash."""
        for method, target, body in (
            ("POST", f"/{self.bucket}?delete", self.delete),
            ("PUT", f"/{self.bucket}?tagging", self.tagging),
            ("PUT", f"/{self.bucket}?cors", self.cors),
            ("PUT", f"/{self.bucket}?lifecycle", self.lifecycle),
            ("PUT", f"/{self.locked}?object-lock", self.unlock),
            ("PUT", f"/{self.locked}/held?legal-hold", self.hold),
            ("PUT", f"/{self.locked}/held?retention", self.retention),
        ):
            self.assertNeedsDigest(Outgoing(method, target, {}, body))

    def assertNeedsDigest(self, outgoing: Outgoing) -> None:
        """Check that a request fails without a digest, and succeeds with each kind."""
        message = "Missing required header for this request: Content-MD5"
        self.assertMessage(self.sendSigned(outgoing, UNSIGNED), "InvalidRequest", message)
        plain = outgoing.adding(**ROOT.plainHeaders())
        self.assertMessage(self.send(plain), "InvalidRequest", message)
        presigned = self.send(self.signer.presign(outgoing))
        self.assertMessage(presigned, "InvalidRequest", message)
        digest = b64encode(hashlib.md5(outgoing.body).digest()).decode()
        checksum = b64encode(hashlib.sha256(outgoing.body).digest()).decode()
        for answer in (
            self.sendSigned(outgoing.adding(content_md5=digest), UNSIGNED),
            self.sendSigned(outgoing.adding(x_amz_checksum_sha256=checksum), UNSIGNED),
            self.send(plain.adding(content_md5=digest)),
            self.sendSigned(outgoing),
        ):
            self.assertIn(answer.status, (200, 204), answer)

    def test_lockedWrites(self) -> None:
        """A PUT that locks its object needs a digest, by its headers or by the bucket's default."""
        lock = {
            "x-amz-object-lock-mode": "GOVERNANCE",
            "x-amz-object-lock-retain-until-date": "2100-01-01T00:00:00Z",
        }
        target = f"/{self.locked}/k"
        self.assertEqual(self.sendSigned(Outgoing("PUT", target), UNSIGNED).status, 200)
        self.assertNeedsDigest(Outgoing("PUT", target, lock, b"body"))
        hold = {"x-amz-object-lock-legal-hold": "ON"}
        self.assertNeedsDigest(Outgoing("PUT", target, hold, b"body"))
        answer = self.sendSigned(Outgoing("PUT", f"/{self.locked}?object-lock", {}, self.lock))
        self.assertEqual(answer.status, 200)
        self.assertNeedsDigest(Outgoing("PUT", target, {}, b"body"))

    def test_chunkedWrites(self) -> None:
        """The signatures of chunks, and a checksum in the trailer, are digests as well."""
        answer = self.sendSigned(Outgoing("PUT", f"/{self.locked}?object-lock", {}, self.lock))
        self.assertEqual(answer.status, 200)
        chunked = {"x-amz-decoded-content-length": "4"}
        outgoing = Outgoing("PUT", f"/{self.locked}/k", chunked)
        signed = self.signer.sign(outgoing, SIGNED_CHUNKS)
        body = b"".join(self.signer.chunkFrames(signed, [b"body"]))
        answer = self.send(Outgoing("PUT", signed.target, signed.headers, body))
        self.assertEqual(answer.status, 200)
        checksum = b64encode(hashlib.sha256(b"body").digest())
        trailer = outgoing.adding(x_amz_trailer="x-amz-checksum-sha256")
        signed = self.signer.sign(trailer, UNSIGNED_TRAILER)
        body = b"4\r\nbody\r\n0\r\nx-amz-checksum-sha256:" + checksum + b"\r\n\r\n"
        answer = self.send(Outgoing("PUT", signed.target, signed.headers, body))
        self.assertEqual(answer.status, 200)

    def test_emptyBodies(self) -> None:
        """A setting without a document is told from a document that is invalid."""
        for method, target in (
            ("PUT", "?tagging"),
            ("PUT", "?versioning"),
            ("PUT", "?cors"),
            ("PUT", "?lifecycle"),
            ("PUT", "?ownershipControls"),
            ("PUT", "?publicAccessBlock"),
            ("PUT", "/held?tagging"),
            ("POST", "?delete"),
        ):
            answer = self.sent(method, target)
            self.assertMessage(answer, "MissingRequestBodyError", "Request Body is empty")
        for target in ("?object-lock", "/held?retention", "/held?legal-hold"):
            answer = self.sendSigned(Outgoing("PUT", f"/{self.locked}{target}"))
            self.assertMessage(answer, "MissingRequestBodyError", "Request Body is empty")
        self.assertEqual(self.sent("PUT", "?acl", {"x-amz-acl": "private"}).status, 200)

    def test_tooManyTags(self) -> None:
        """Too many tags are a bad request, in a document, a header and a list of a bucket."""
        message = "Object tags cannot be greater than 10"
        answer = self.sent("PUT", "/held?tagging", body=self.tags(11))
        self.assertMessage(answer, "BadRequest", message)
        pairs = "&".join(f"k{number}=v" for number in range(11))
        answer = self.sent("PUT", "/k", {"x-amz-tagging": pairs})
        self.assertMessage(answer, "BadRequest", message)
        answer = self.sent("PUT", "?tagging", body=self.tags(51))
        self.assertMessage(answer, "BadRequest", "Bucket tag count cannot be greater than 50")
        self.assertEqual(self.sent("PUT", "/held?tagging", body=self.tags(10)).status, 200)
        self.assertEqual(self.sent("PUT", "?tagging", body=self.tags(50)).status, 204)

    def tags(self, count: int) -> bytes:
        """Write a document with so many tags."""
        each = "<Tag><Key>k{}</Key><Value>v</Value></Tag>"
        rows = "".join(each.format(number) for number in range(count))
        return f"<Tagging><TagSet>{rows}</TagSet></Tagging>".encode()

    def test_emptySettings(self) -> None:
        """A rule without an action and a block without a setting are refused."""
        body = self.lifecycle.replace(b"<Expiration><Days>400</Days></Expiration>", b"")
        answer = self.sent("PUT", "?lifecycle", body=body)
        message = "At least one action needs to be specified in a rule"
        self.assertMessage(answer, "InvalidRequest", message)
        body = b"<PublicAccessBlockConfiguration/>"
        answer = self.sent("PUT", "?publicAccessBlock", body=body)
        message = "Must specify at least one configuration."
        self.assertMessage(answer, "InvalidRequest", message)

    def test_deletedVersion(self) -> None:
        """A version that cannot exist fails one entry of a deletion as a removed version."""
        entries = [{"Key": "held", "VersionId": "abc"}, {"Key": "other"}]
        found = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": entries})
        self.assertEqual([each["Key"] for each in found["Deleted"]], ["other"])
        [error] = found["Errors"]
        wanted = ("held", "abc", "NoSuchVersion", "The specified version does not exist.")
        names = ("Key", "VersionId", "Code", "Message")
        self.assertEqual(tuple(error[name] for name in names), wanted)
        answer = self.sent("DELETE", "/held?versionId=abc")
        self.assertInvalid(answer, "versionId")

    def test_transitionMinimum(self) -> None:
        """The smallest size of a transition is kept with the rules, and removed with them."""
        name = "x-amz-transition-default-minimum-object-size"
        default, varying = "all_storage_classes_128K", "varies_by_storage_class"
        for headers, wanted in (({}, default), ({name: varying}, varying), ({}, default)):
            answer = self.sent("PUT", "?lifecycle", headers, self.lifecycle)
            self.assertEqual((answer.status, answer.headers.get(name)), (200, wanted))
            answer = self.sent("GET", "?lifecycle")
            self.assertEqual((answer.status, answer.headers.get(name)), (200, wanted))
        self.sent("PUT", "?lifecycle", {name: varying}, self.lifecycle)
        self.assertEqual(self.sent("DELETE", "?lifecycle").status, 204)
        self.assertAnswer(self.sent("GET", "?lifecycle"), 404, "NoSuchLifecycleConfiguration")
        answer = self.sent("PUT", "?lifecycle", {name: "junk"}, self.lifecycle)
        self.assertInvalid(answer, name)


class SignatureTests(AnswerCase):
    """Signatures and schemes that Amazon tells apart."""

    def test_chunkedReads(self) -> None:
        """A request without a body cannot name a chunked payload."""
        kinds = (SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_TRAILER)
        for kind in kinds:
            for method in ("GET", "DELETE"):
                answer = self.sent(method, "/held", payloadHash=kind)
                self.assertAnswer(answer, 400, "InvalidRequest")
            self.assertEqual(self.sent("HEAD", "/held", payloadHash=kind).status, 400)
        self.assertHeld()

    def chunked(self, old: bytes, new: bytes, trailer: bytes = b"") -> Answer:
        """Send a signed body of one chunk with a change."""
        headers = {"x-amz-decoded-content-length": "4"}
        if trailer:
            headers["x-amz-trailer"] = "x-amz-checksum-sha256"
        kind = SIGNED_CHUNKS_TRAILER if trailer else SIGNED_CHUNKS
        signed = self.signer.sign(Outgoing("PUT", f"/{self.bucket}/held", headers), kind)
        body = b"".join(self.signer.chunkFrames(signed, [b"body"], trailer))
        changed = re.sub(old, new, body, count=1)
        self.assertNotEqual(changed, body)
        return self.send(Outgoing("PUT", signed.target, signed.headers, changed))

    def test_chunkSignature(self) -> None:
        """Any text in the place of a chunk's signature is a wrong signature."""
        for text in (b"x" * 64, b"0" * 64, b"A" * 64, b"x", b"0" * 65):
            answer = self.chunked(rb"chunk-signature=[0-9a-f]+", b"chunk-signature=" + text)
            self.assertAnswer(answer, 403, "SignatureDoesNotMatch")
        checksum = b64encode(hashlib.sha256(b"body").digest())
        answer = self.chunked(
            rb"trailer-signature:[0-9a-f]+",
            b"trailer-signature:" + b"x" * 64,
            b"x-amz-checksum-sha256:" + checksum,
        )
        self.assertAnswer(answer, 403, "SignatureDoesNotMatch")
        self.assertHeld()

    def test_schemes(self) -> None:
        """An older signature in the header is told from a scheme that S3 never had."""
        older = Outgoing("GET", f"/{self.bucket}/held", {"Authorization": "AWS k:s"})
        message = (
            "The authorization mechanism you have provided is not supported. "
            "Please use AWS4-HMAC-SHA256."
        )
        self.assertMessage(self.send(older), "InvalidRequest", message)
        for text in ("Basic dTpw", "Bearer token", "AWS5-HMAC-SHA256 Credential=a"):
            answer = self.send(older.adding(Authorization=text))
            self.assertInvalid(answer, "Authorization")
            self.assertEqual(elementOf(answer, "Message"), "Unsupported Authorization Type")
            self.assertNotIn(text.partition(" ")[2].encode(), answer.body)
        answer = self.send(older.adding(Authorization="AWS4-HMAC-SHA256"))
        self.assertInvalid(answer, "Authorization")
