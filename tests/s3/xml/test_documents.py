"""The answers that are not lists, as bytes and as botocore reads them."""

from datetime import UTC, datetime

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.acl import ALL_USERS, AccessControlList, Grant, privateList
from storagegate.objects.access.decision import PublicAccessBlock
from storagegate.objects.accounts import canonicalId
from storagegate.s3.errors import S3Error
from storagegate.s3.pagination import AttributesQuery
from storagegate.s3.xml.documents import (
    completeMultipartUpload,
    copyObject,
    copyPart,
    deleteResult,
    initiateMultipartUpload,
    locationConstraint,
    objectAttributes,
    policyStatus,
    postResponse,
)
from storagegate.s3.xml.reader import DeleteRequestEntry
from storagegate.storage.records import (
    Attributes,
    Checksum,
    Content,
    ObjectRecord,
    PartSummary,
    Removal,
)
from tests.s3.clientparser import parseAnswer
from tests.s3.settingdocuments import accessControlPolicy, publicAccessBlock

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
JANUARY = 1767225600000
CRC = Checksum("CRC32", "AAAAAA==")


class DocumentTests(SynchronousTestCase):
    """One test a document."""

    def test_location(self) -> None:
        """The first region is an empty element, any other is named."""
        for region, content in [("us-east-1", ""), ("eu-west-1", "eu-west-1")]:
            self.assertEqual(
                locationConstraint(region).decode(),
                f"{HEAD}<LocationConstraint {NAMESPACE}>{content}</LocationConstraint>",
            )

    def test_acl(self) -> None:
        """The owner, and nobody else, has full control."""
        owner = canonicalId("a<b")
        identity = f"<ID>{owner}</ID><DisplayName>a&lt;b</DisplayName>"
        body = accessControlPolicy("a<b", privateList("a<b"), lambda accountId: None)
        self.assertEqual(
            body.decode(),
            f"{HEAD}<AccessControlPolicy {NAMESPACE}><Owner>{identity}</Owner><AccessControlList>"
            '<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
            f'xsi:type="CanonicalUser">{identity}</Grantee><Permission>FULL_CONTROL</Permission>'
            "</Grant></AccessControlList></AccessControlPolicy>",
        )
        grantee = {"ID": owner, "DisplayName": "a<b"}
        for operation in ["GetBucketAcl", "GetObjectAcl"]:
            self.assertEqual(
                parseAnswer(operation, body),
                {
                    "Owner": grantee,
                    "Grants": [
                        {
                            "Grantee": {**grantee, "Type": "CanonicalUser"},
                            "Permission": "FULL_CONTROL",
                        }
                    ],
                },
            )

    def test_grants(self) -> None:
        """A group is a URI, and an account has its name where it is known."""
        acl = AccessControlList((Grant("1" * 64, "READ"), Grant(ALL_USERS, "WRITE")))
        names = {"1" * 64: "bob"}
        found = parseAnswer("GetBucketAcl", accessControlPolicy("ann", acl, names.get))
        self.assertEqual(
            [grant["Grantee"] for grant in found["Grants"]],
            [
                {"ID": "1" * 64, "DisplayName": "bob", "Type": "CanonicalUser"},
                {"URI": ALL_USERS, "Type": "Group"},
            ],
        )

    def test_access(self) -> None:
        """The status of a policy, and the block of public access."""
        for isPublic in (True, False):
            found = parseAnswer("GetBucketPolicyStatus", policyStatus(isPublic))
            self.assertEqual(found, {"PolicyStatus": {"IsPublic": isPublic}})
        block = PublicAccessBlock(ignorePublicAcls=True)
        found = parseAnswer("GetPublicAccessBlock", publicAccessBlock(block))
        switches = found["PublicAccessBlockConfiguration"]
        self.assertEqual([name for name, on in switches.items() if on], ["IgnorePublicAcls"])

    def test_owner(self) -> None:
        """An account has one canonical id of 64 digits for ever, and accounts differ."""
        self.assertEqual(
            canonicalId("root"), "b5639d2e73a17b2a84b51f61a41d6c3a39ac4d78a7cafddea12917ec18e0184c"
        )
        self.assertRegex(canonicalId("other"), r"\A[0-9a-f]{64}\Z")
        self.assertNotEqual(canonicalId("other"), canonicalId("root"))

    def test_initiate(self) -> None:
        """The key is escaped as text."""
        body = initiateMultipartUpload("b", "k<&\r", "u1")
        self.assertEqual(
            body.decode(),
            f"{HEAD}<InitiateMultipartUploadResult {NAMESPACE}><Bucket>b</Bucket>"
            "<Key>k&lt;&amp;&#13;</Key><UploadId>u1</UploadId></InitiateMultipartUploadResult>",
        )
        self.assertEqual(
            parseAnswer("CreateMultipartUpload", body),
            {"Bucket": "b", "Key": "k<&\r", "UploadId": "u1"},
        )

    def test_complete(self) -> None:
        """The ETag is quoted; a checksum comes with its type."""
        checksum = Checksum("CRC64NVME", "AAAAAAAAAAA=", "FULL_OBJECT")
        body = completeMultipartUpload("http://h/b/k", "b", "k", "e-2", checksum)
        self.assertEqual(
            body.decode(),
            f"{HEAD}<CompleteMultipartUploadResult {NAMESPACE}><Location>http://h/b/k</Location>"
            "<Bucket>b</Bucket><Key>k</Key><ETag>&quot;e-2&quot;</ETag>"
            "<ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME>"
            "<ChecksumType>FULL_OBJECT</ChecksumType></CompleteMultipartUploadResult>",
        )
        self.assertEqual(
            parseAnswer("CompleteMultipartUpload", body),
            {
                "Location": "http://h/b/k",
                "Bucket": "b",
                "Key": "k",
                "ETag": '"e-2"',
                "ChecksumCRC64NVME": "AAAAAAAAAAA=",
                "ChecksumType": "FULL_OBJECT",
            },
        )
        bare = parseAnswer(
            "CompleteMultipartUpload", completeMultipartUpload("l", "b", "k", "e-2", None)
        )
        self.assertEqual(set(bare), {"Location", "Bucket", "Key", "ETag"})

    def test_copy(self) -> None:
        """A copy says when and what; a part's checksum has no type."""
        expected = {
            "LastModified": datetime(2026, 1, 1, tzinfo=UTC),
            "ETag": '"e"',
            "ChecksumCRC32": "AAAAAA==",
        }
        self.assertEqual(
            parseAnswer("CopyObject", copyObject("e", JANUARY, CRC)),
            {"CopyObjectResult": {**expected, "ChecksumType": "FULL_OBJECT"}},
        )
        self.assertEqual(
            parseAnswer("UploadPartCopy", copyPart("e", JANUARY, CRC)),
            {"CopyPartResult": expected},
        )
        self.assertEqual(
            copyPart("e", JANUARY, None).decode(),
            f"{HEAD}<CopyPartResult {NAMESPACE}><LastModified>2026-01-01T00:00:00.000Z"
            "</LastModified><ETag>&quot;e&quot;</ETag></CopyPartResult>",
        )

    def test_postResponse(self) -> None:
        """A form's answer has no namespace."""
        self.assertEqual(
            postResponse("http://h/b/k", "b", "k&", "e").decode(),
            f"{HEAD}<PostResponse><Location>http://h/b/k</Location><Bucket>b</Bucket>"
            "<Key>k&amp;</Key><ETag>&quot;e&quot;</ETag></PostResponse>",
        )

    def test_delete(self) -> None:
        """Each entry is reported, with its version where one was named."""
        entries = [
            DeleteRequestEntry(b"a<b"),
            DeleteRequestEntry(b"c", "null"),
            DeleteRequestEntry(b"d", "null"),
        ]
        denied = {2: S3Error("AccessDenied")}
        removals = {0: Removal(True, isChanged=True), 1: Removal(True, "null")}
        body = deleteResult(entries, removals, denied, quiet=False)
        self.assertEqual(
            body.decode(),
            f"{HEAD}<DeleteResult {NAMESPACE}><Deleted><Key>a&lt;b</Key></Deleted>"
            "<Deleted><Key>c</Key><VersionId>null</VersionId></Deleted>"
            "<Error><Key>d</Key><VersionId>null</VersionId><Code>AccessDenied</Code>"
            "<Message>Access Denied</Message></Error></DeleteResult>",
        )
        errors = [
            {"Key": "d", "VersionId": "null", "Code": "AccessDenied", "Message": "Access Denied"}
        ]
        self.assertEqual(
            parseAnswer("DeleteObjects", body),
            {"Deleted": [{"Key": "a<b"}, {"Key": "c", "VersionId": "null"}], "Errors": errors},
        )
        self.assertEqual(
            parseAnswer("DeleteObjects", deleteResult(entries, removals, denied, quiet=True)),
            {"Errors": errors},
        )

    def test_deleteMarkers(self) -> None:
        """A delete marker that was made, and one that was removed, are named by their ids."""
        entries = [DeleteRequestEntry(b"a"), DeleteRequestEntry(b"b", "v2")]
        removals = {0: Removal(False, "v1", True), 1: Removal(True, "v2", True)}
        made = {"Key": "a", "DeleteMarker": True, "DeleteMarkerVersionId": "v1"}
        removed = {**made, "Key": "b", "VersionId": "v2", "DeleteMarkerVersionId": "v2"}
        body = deleteResult(entries, removals, {}, quiet=False)
        self.assertEqual(parseAnswer("DeleteObjects", body), {"Deleted": [made, removed]})


class ObjectAttributesTests(SynchronousTestCase):
    """GetObjectAttributes."""

    PARTS = tuple(PartSummary(number, 10 * number, CRC) for number in (1, 2, 4))

    def record(
        self, etag: str, size: int, checksum: Checksum | None, parts: tuple[PartSummary, ...]
    ) -> ObjectRecord:
        """Make an object."""
        attributes = Attributes("text/plain", checksum=checksum, parts=parts)
        return ObjectRecord("b", b"k", size, etag, JANUARY, "root", attributes, Content(size))

    def parse(self, query: AttributesQuery, parts: tuple[PartSummary, ...]) -> dict[str, object]:
        """Write attributes of an object and read them as botocore does."""
        body = objectAttributes(query, self.record("e-3", 70, CRC, parts))
        return parseAnswer("GetObjectAttributes", body)

    def test_all(self) -> None:
        """All that can be asked for; the ETag has no quotes here."""
        names = frozenset(["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"])
        part = {"ChecksumCRC32": "AAAAAA=="}
        self.assertEqual(
            self.parse(AttributesQuery(names, 0, 1000), self.PARTS),
            {
                "ETag": "e-3",
                "Checksum": {**part, "ChecksumType": "FULL_OBJECT"},
                "ObjectParts": {
                    "TotalPartsCount": 3,
                    "PartNumberMarker": 0,
                    "NextPartNumberMarker": 4,
                    "MaxParts": 1000,
                    "IsTruncated": False,
                    "Parts": [
                        {"PartNumber": 1, "Size": 10, **part},
                        {"PartNumber": 2, "Size": 20, **part},
                        {"PartNumber": 4, "Size": 40, **part},
                    ],
                },
                "StorageClass": "STANDARD",
                "ObjectSize": 70,
            },
        )

    def test_onlyWhatWasAskedFor(self) -> None:
        """The rest is left out, and so are the parts of an object that has none."""
        self.assertEqual(
            self.parse(AttributesQuery(frozenset(["ObjectSize"]), 0, 1000), self.PARTS),
            {"ObjectSize": 70},
        )
        self.assertEqual(self.parse(AttributesQuery(frozenset(["ObjectParts"]), 0, 1000), ()), {})
        body = objectAttributes(
            AttributesQuery(frozenset(["Checksum"]), 0, 1000), self.record("e", 1, None, ())
        )
        self.assertEqual(parseAnswer("GetObjectAttributes", body), {})

    def test_pages(self) -> None:
        """Parts are paged: a page says whether and where the next one starts."""
        names = frozenset(["ObjectParts"])
        for after, limit, numbers, following, truncated in [
            (0, 2, [1, 2], 2, True),
            (2, 2, [4], 4, False),
            (4, 2, [], 4, False),
            (0, 0, [], 0, False),
        ]:
            page = self.parse(AttributesQuery(names, after, limit), self.PARTS)["ObjectParts"]
            assert isinstance(page, dict)
            self.assertEqual(
                [part["PartNumber"] for part in page.get("Parts", [])], numbers, (after, limit)
            )
            self.assertEqual(page["NextPartNumberMarker"], following)
            self.assertEqual(page["IsTruncated"], truncated)
