"""The documents that clients send."""

from collections.abc import Callable
from typing import Any

from botocore.serialize import RestXMLSerializer
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.operations import CompletedPart
from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import (
    DeleteRequest,
    DeleteRequestEntry,
    readBucketConfiguration,
    readComplete,
    readDelete,
    readDocument,
)
from tests.s3.clientparser import serviceModel
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import (
    readLegalHold,
    readOwnership,
    readPublicAccessBlock,
    readRetention,
    readVersioning,
)

# What botocore's serializer writes raw and a parser therefore reads as XML says.
TEXT = st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=50,
)


def serialize(operation: str, parameters: dict[str, Any]) -> bytes:
    """Write a request's body as botocore does."""
    request = RestXMLSerializer().serialize_to_request(
        parameters, serviceModel().operation_model(operation)
    )
    body = request["body"]
    assert isinstance(body, bytes)
    return body


class DeleteTests(SynchronousTestCase):
    """Delete."""

    def assertRefused(self, body: bytes) -> None:
        """Assert that a document is malformed."""
        self.assertEqual(self.assertRaises(S3Error, readDelete, body).code, "MalformedXML")

    def test_read(self) -> None:
        """All that an entry can say is read; white space in a key is the key's."""
        body = (
            b"<Delete><Quiet>true</Quiet><Object><Key> a&amp;b\n</Key><VersionId/></Object><Object>"
            b"<VersionId>null</VersionId><Key>k</Key><ETag>&quot;e&quot;</ETag>"
            b"<LastModifiedTime>Thu, 01 Jan 2026 00:00:00 GMT</LastModifiedTime><Size>3</Size>"
            b"<Unknown>1</Unknown></Object></Delete>"
        )
        self.assertEqual(
            readDelete(body),
            DeleteRequest(
                (
                    DeleteRequestEntry(b" a&b\n"),
                    DeleteRequestEntry(b"k", "null", "e", "Thu, 01 Jan 2026 00:00:00 GMT", "3"),
                ),
                quiet=True,
            ),
        )

    def test_quiet(self) -> None:
        """Only C{true} is quiet."""
        for text, quiet in [(b"true", True), (b" True ", True), (b"false", False), (b"", False)]:
            body = b"<Delete><Object><Key>k</Key></Object><Quiet>" + text + b"</Quiet></Delete>"
            self.assertEqual(readDelete(body).quiet, quiet)

    def test_noEntry(self) -> None:
        """No entry, or one without a key, is malformed."""
        for body in [
            b"",
            b"<Delete/>",
            b"<Delete><Quiet>true</Quiet></Delete>",
            b"<Delete><Object/></Delete>",
            b"<Delete><Object><Key></Key></Object></Delete>",
            b"<Delete><Key>k</Key></Delete>",
        ]:
            self.assertRefused(body)

    def test_count(self) -> None:
        """1,000 entries are read, one more is refused."""
        entry = b"<Object><Key>k</Key><VersionId>null</VersionId></Object>"
        body = b"<Delete>" + entry * 1000 + b"</Delete>"
        self.assertEqual(len(readDelete(body).entries), 1000)
        self.assertRefused(b"<Delete>" + entry * 1001 + b"</Delete>")

    def test_longestKeys(self) -> None:
        """1,000 keys of 1,024 bytes, each byte escaped, fit into the limit."""
        entry = b"<Object><Key>" + b"&lt;" * 1024 + b"</Key></Object>"
        entries = readDelete(b"<Delete>" + entry * 1000 + b"</Delete>").entries
        self.assertEqual({entry.key for entry in entries}, {b"<" * 1024})

    @given(st.lists(TEXT, min_size=1, max_size=5), st.booleans())
    def test_botocore(self, keys: list[str], quiet: bool) -> None:
        """What boto3 sends is read as it was meant."""
        objects = [{"Key": key, "VersionId": "null"} for key in keys]
        body = serialize(
            "DeleteObjects", {"Bucket": "b", "Delete": {"Objects": objects, "Quiet": quiet}}
        )
        entries = tuple(DeleteRequestEntry(key.encode(), "null") for key in keys)
        self.assertEqual(readDelete(body), DeleteRequest(entries, quiet))


class CompleteTests(SynchronousTestCase):
    """CompleteMultipartUpload."""

    def test_read(self) -> None:
        """Number, ETag with or without quotes, checksums; the order is kept as it was sent."""
        body = (
            b'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            b'<Part><PartNumber>2</PartNumber><ETag>"e2"</ETag>'
            b"<ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part>\n"
            b"<Part><ETag> &quot;e1&quot; </ETag><PartNumber> 1 </PartNumber></Part>"
            b"<Part><ETag>e3</ETag><PartNumber>10000</PartNumber></Part>"
            b"</CompleteMultipartUpload>"
        )
        self.assertEqual(
            readComplete(body),
            (
                CompletedPart(2, "e2", {"CRC32": "AAAAAA=="}),
                CompletedPart(1, "e1", {}),
                CompletedPart(10000, "e3", {}),
            ),
        )

    def test_refused(self) -> None:
        """No part, or one without a number from 1 to 10,000 and an ETag, is malformed."""
        for content in [
            b"",
            b"<Part/>",
            b"<Part><PartNumber>1</PartNumber></Part>",
            b"<Part><ETag>e</ETag></Part>",
            *(
                b"<Part><ETag>e</ETag><PartNumber>" + number + b"</PartNumber></Part>"
                for number in [b"", b"0", b"-1", b"10001", b"1_0", b"x", b"9" * 5000]
            ),
        ]:
            body = b"<CompleteMultipartUpload>" + content + b"</CompleteMultipartUpload>"
            error = self.assertRaises(S3Error, readComplete, body)
            self.assertEqual(error.code, "MalformedXML", content)

    def test_count(self) -> None:
        """10,000 parts with a checksum are read, one more is refused."""
        part = (
            b'<Part>\n    <ETag>"d41d8cd98f00b204e9800998ecf8427e"</ETag>\n    <PartNumber>1'
            b"</PartNumber>\n    <ChecksumSHA256>47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
            b"</ChecksumSHA256>\n  </Part>\n  "
        )
        root = b"CompleteMultipartUpload"
        body = b"<" + root + b">" + part * 10000 + b"</" + root + b">"
        self.assertEqual(len(readComplete(body)), 10000)
        body = b"<" + root + b">" + part * 10001 + b"</" + root + b">"
        self.assertRaises(S3Error, readComplete, body)

    def test_botocore(self) -> None:
        """What boto3 sends is read as it was meant."""
        parts = [
            {"PartNumber": number, "ETag": f'"e{number}"', "ChecksumCRC64NVME": "AAAAAAAAAAA="}
            for number in (1, 2)
        ]
        body = serialize(
            "CompleteMultipartUpload",
            {"Bucket": "b", "Key": "k", "UploadId": "u", "MultipartUpload": {"Parts": parts}},
        )
        checksums = {"CRC64NVME": "AAAAAAAAAAA="}
        self.assertEqual(
            readComplete(body),
            (CompletedPart(1, "e1", checksums), CompletedPart(2, "e2", checksums)),
        )


class BucketConfigurationTests(SynchronousTestCase):
    """CreateBucketConfiguration."""

    def test_read(self) -> None:
        """No body and an empty document name no region; the rest of a document is ignored."""
        for body, region in [
            (b"", ""),
            (b"<CreateBucketConfiguration/>", ""),
            (
                b"<CreateBucketConfiguration><LocationConstraint> eu-west-1\n"
                b"</LocationConstraint><Other><Tag><Key>a</Key></Tag><Tag/></Other>"
                b"</CreateBucketConfiguration>",
                "eu-west-1",
            ),
        ]:
            self.assertEqual(readBucketConfiguration(body), (region, []))

    def test_notBuilt(self) -> None:
        """A type and a place are not ignored."""
        for name in (b"Bucket", b"Location"):
            body = b"<CreateBucketConfiguration><%b/></CreateBucketConfiguration>" % name
            error = self.assertRaises(S3Error, readBucketConfiguration, body)
            self.assertEqual(error.code, "NotImplemented")

    def test_botocore(self) -> None:
        """What boto3 sends is read as it was meant."""
        body = serialize(
            "CreateBucket",
            {
                "Bucket": "b",
                "CreateBucketConfiguration": {
                    "LocationConstraint": "eu-central-1",
                    "Tags": [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": ""}],
                },
            },
        )
        tags = [("a", "b"), ("c", "")]
        self.assertEqual(readBucketConfiguration(body), ("eu-central-1", tags))

    def test_refused(self) -> None:
        """Another document, or no document, is malformed."""
        for body in [b" ", b"x", b"<Delete/>", b"<CreateBucketConfiguration>"]:
            error = self.assertRaises(S3Error, readBucketConfiguration, body)
            self.assertEqual(error.code, "MalformedXML")


class SettingTests(SynchronousTestCase):
    """Documents of a few texts."""

    def test_refused(self) -> None:
        """A text that comes twice, or is not known, is malformed: it may be what was meant."""
        date = "<RetainUntilDate>2040-01-01T00:00:00Z</RetainUntilDate>"
        cases: list[tuple[Callable[[bytes], object], str, str]] = [
            (readVersioning, "VersioningConfiguration", "<Status>Enabled</Status>"),
            (readRetention, "Retention", f"<Mode>GOVERNANCE</Mode>{date}"),
            (readLegalHold, "LegalHold", "<Status>ON</Status>"),
            (
                readPublicAccessBlock,
                "PublicAccessBlockConfiguration",
                "<BlockPublicAcls>true</BlockPublicAcls>",
            ),
        ]
        for read, root, inner in cases:
            read(f"<{root}>{inner}</{root}>".encode())
            for more in (inner, "<Other/>"):
                body = f"<{root}>{inner}{more}</{root}>".encode()
                error = refusalOf(read, body)
                self.assertEqual(error.code, "MalformedXML", body)

    def test_ownership(self) -> None:
        """One rule with one ownership, and nothing else."""
        inner = "<ObjectOwnership>ObjectWriter</ObjectOwnership>"
        read = f"<OwnershipControls><Rule>{inner}</Rule></OwnershipControls>".encode()
        self.assertEqual(readOwnership(read), "ObjectWriter")
        for wrong in (
            "",
            inner,
            f"<Rule/>{inner}",
            "<Rule></Rule>",
            "<Rule><ObjectOwnership/></Rule>",
            f"<Rule>{inner}{inner}</Rule>",
            f"<Rule>{inner}<Other/></Rule>",
            f"<Rule>{inner}</Rule><Rule>{inner}</Rule>",
            f"<Rule>{inner}</Rule><Other/>",
        ):
            body = f"<OwnershipControls>{wrong}</OwnershipControls>".encode()
            error = refusalOf(readOwnership, body)
            self.assertEqual(error.code, "MalformedXML", wrong)

    def test_encodings(self) -> None:
        """A document in an encoding that is unknown, or that is none of text, is malformed."""
        for name in ("nope", "hex", "idna", "utf-32", "shift_jis"):
            body = f'<?xml version="1.0" encoding="{name}"?><Root/>'.encode()
            error = self.assertRaises(S3Error, readDocument, body, "Root")
            self.assertEqual(error.code, "MalformedXML", name)
