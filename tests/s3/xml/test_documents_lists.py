"""The answers to list requests, as bytes and as botocore reads them."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import canonicalId
from storagegate.s3.pagination import (
    BucketsQuery,
    KeysQuery,
    PartsQuery,
)
from storagegate.s3.xml.documents import (
    ROWS_OF_A_PIECE,
    listBuckets,
    listObjects,
    listParts,
    listUploads,
    listVersions,
)
from storagegate.s3.xml.writer import NAMESPACE
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Checksum,
    Content,
    ListedObject,
    ListedVersion,
    MultipartUpload,
    ObjectListing,
    Part,
    UploadListing,
    VersionListing,
)
from tests.s3.clientparser import parseAnswer

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
JANUARY = 1767225600000
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = canonicalId("root")
OWNER = {"ID": ROOT, "DisplayName": "root"}
OWNER_XML = f"<Owner><ID>{ROOT}</ID><DisplayName>root</DisplayName></Owner>"
EVERYTHING = KeysQuery("", "", "", 1000, False)


def listed(key: str, algorithm: str = "CRC32") -> ListedObject:
    """Make a row of a listing."""
    kind = "FULL_OBJECT" if algorithm else ""
    return ListedObject(key, 3, "e", JANUARY + 5, "root", "STANDARD", algorithm, kind)


def versionOf(key: str, isLatest: bool = True) -> ListedVersion:
    """Make the same row of a listing of versions."""
    return ListedVersion(*astuple(listed(key))[:8], "null", 7, False, isLatest)


def pageOf(rows: list[ListedObject], prefixes: list[str], last: str | None = None) -> ObjectListing:
    """Make a page of a listing."""
    return ObjectListing(tuple(rows), tuple(prefixes), last)


def seen(key: str) -> dict[str, object]:
    """What a client sees of the row that L{listed} makes, without an owner."""
    return {
        "Key": key,
        "Size": 3,
        "ETag": '"e"',
        "LastModified": MOMENT,
        "StorageClass": "STANDARD",
        "ChecksumAlgorithm": ["CRC32"],
        "ChecksumType": "FULL_OBJECT",
    }


def joined(pieces: Iterator[str]) -> bytes:
    """Put a document together."""
    return "".join(pieces).encode()


def listSecond(query: KeysQuery, page: ObjectListing, nextToken: str | None) -> bytes:
    """Write a listing of version 2."""
    return joined(listObjects("b", replace(query, version=2), page, nextToken))


class ListObjectsTests(SynchronousTestCase):
    """ListBucketResult in both versions."""

    def test_version2Bytes(self) -> None:
        """The smallest answer, byte for byte."""
        self.assertEqual(
            listSecond(EVERYTHING, pageOf([listed("a&b", "")], []), None).decode(),
            f'{HEAD}<ListBucketResult xmlns="{NAMESPACE}"><Name>b</Name><Prefix></Prefix>'
            "<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
            "<Contents><Key>a&amp;b</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<ETag>&quot;e&quot;</ETag><Size>3</Size><StorageClass>STANDARD</StorageClass>"
            "</Contents></ListBucketResult>",
        )

    def test_pieces(self) -> None:
        """A long page is written some rows at a time, and is the same document."""
        rows = [listed(f"k{number:04}") for number in range(1000)]
        versions = VersionListing(tuple(versionOf(row.key) for row in rows), ("p/",), None, None)
        for pieces, root in (
            (list(listObjects("b", EVERYTHING, pageOf(rows, ["p/"]), None)), "Contents"),
            (list(listVersions("b", EVERYTHING, versions)), "Version"),
        ):
            counts = [piece.count(f"<{root}>") for piece in pieces]
            self.assertEqual((counts[0], sum(counts), max(counts)), (0, 1000, ROWS_OF_A_PIECE))
            tree = ElementTree.fromstring("".join(pieces))
            found = [node.text for node in tree.findall("{*}" + root + "/{*}Key")]
            self.assertEqual(found, [row.key for row in rows])

    def test_version1Bytes(self) -> None:
        """The smallest answer of version 1 has a marker and owners."""
        query = KeysQuery("", "", "", 1000, False, fetchOwner=True)
        self.assertEqual(
            joined(listObjects("b", query, pageOf([listed("k", "")], [], None), None)).decode(),
            f'{HEAD}<ListBucketResult xmlns="{NAMESPACE}"><Name>b</Name><Prefix></Prefix>'
            "<Marker></Marker><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
            "<Contents><Key>k</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;e&quot;</ETag><Size>3</Size>{OWNER_XML}"
            "<StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>",
        )

    def test_version2(self) -> None:
        """Everything at once: echoes, groups, owners, the next token."""
        query = KeysQuery("p/", "/", "p/a", 2, False, marker="p/a", token="t1", fetchOwner=True)
        body = listSecond(query, pageOf([listed("p/b")], ["p/c/"]), "t2")
        self.assertEqual(
            parseAnswer("ListObjectsV2", body),
            {
                "Name": "b",
                "Prefix": "p/",
                "Delimiter": "/",
                "StartAfter": "p/a",
                "ContinuationToken": "t1",
                "NextContinuationToken": "t2",
                "KeyCount": 2,
                "MaxKeys": 2,
                "IsTruncated": True,
                "Contents": [{**seen("p/b"), "Owner": OWNER}],
                "CommonPrefixes": [{"Prefix": "p/c/"}],
            },
        )

    def test_version1(self) -> None:
        """A truncated page carries the next marker and the next token, delimiter or not."""
        query = KeysQuery("p", "", "p1", 1, False, marker="p1", fetchOwner=True)
        body = joined(listObjects("b", query, pageOf([listed("p2")], [], "p2"), "t2"))
        self.assertEqual(
            parseAnswer("ListObjects", body),
            {
                "Name": "b",
                "Prefix": "p",
                "Marker": "p1",
                "NextMarker": "p2",
                "MaxKeys": 1,
                "IsTruncated": True,
                "Contents": [{**seen("p2"), "Owner": OWNER}],
            },
        )
        self.assertIn(b"<NextContinuationToken>t2</NextContinuationToken>", body)

    def test_version1Token(self) -> None:
        """A page that was asked for by token says by which."""
        query = KeysQuery("", "", "k", 1, False, token="t1")
        body = joined(listObjects("b", query, pageOf([], [], None), None))
        self.assertIn(b"<ContinuationToken>t1</ContinuationToken>", body)
        self.assertNotIn(b"Next", body)

    def test_emptyToken(self) -> None:
        """Version 2 shows an empty token that was sent, and none that was not."""
        query = KeysQuery("", "", "", 1000, False, token="")
        self.assertEqual(
            parseAnswer("ListObjectsV2", listSecond(query, pageOf([], []), None))[
                "ContinuationToken"
            ],
            "",
        )
        body = listSecond(EVERYTHING, pageOf([], []), None)
        self.assertNotIn("ContinuationToken", parseAnswer("ListObjectsV2", body))

    def test_emptyPage(self) -> None:
        """C{max-keys=0} is an answer with nothing in it."""
        query = KeysQuery("", "", "", 0, False)
        parsed = parseAnswer("ListObjectsV2", listSecond(query, pageOf([], []), None))
        self.assertEqual(
            parsed,
            {"Name": "b", "Prefix": "", "KeyCount": 0, "MaxKeys": 0, "IsTruncated": False},
        )

    def test_urlEncoding(self) -> None:
        """All names are encoded where the client asked for it, and the answer says so."""
        odd = "é <&\x01"
        written = "%C3%A9%20%3C%26%01"
        query = KeysQuery(odd, odd, "", 1, True, marker=odd)
        first = parseAnswer(
            "ListObjects", joined(listObjects("b", query, pageOf([listed(odd)], [odd], odd), "t"))
        )
        second = parseAnswer(
            "ListObjectsV2",
            listSecond(query, pageOf([listed(odd)], [odd]), "t"),
        )
        for parsed, names in [
            (first, ["Prefix", "Delimiter", "Marker", "NextMarker"]),
            (second, ["Prefix", "Delimiter", "StartAfter"]),
        ]:
            self.assertEqual(parsed["EncodingType"], "url")
            self.assertEqual({parsed[name] for name in names}, {written})
            self.assertEqual(parsed["Contents"][0]["Key"], written)
            self.assertEqual(parsed["CommonPrefixes"], [{"Prefix": written}])

    def test_unwritableKey(self) -> None:
        """Without the encoding, what XML cannot hold is written as S3 writes it."""
        body = listSecond(EVERYTHING, pageOf([listed("a\x01")], []), None)
        self.assertIn(b"<Key>a&#x1;</Key>", body)

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
    def test_anyKeysEncoded(self, keys: list[str]) -> None:
        """Any keys come through the document and the encoding as they were."""
        query = KeysQuery("", "", "", 1000, True)
        body = listSecond(query, pageOf([listed(key) for key in keys], keys), None)
        root = ElementTree.fromstring(body)
        for path in ["Contents/{*}Key", "CommonPrefixes/{*}Prefix"]:
            found = [unquote(node.text or "") for node in root.findall("{*}" + path)]
            self.assertEqual(found, keys)

    @given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))))
    def test_anyKeysPlain(self, keys: list[str]) -> None:
        """Keys that XML can hold come through unencoded as well."""
        keys = [key.replace("\ufffe", "").replace("\uffff", "") for key in keys]
        body = listSecond(EVERYTHING, pageOf([listed(key) for key in keys], []), None)
        root = ElementTree.fromstring(body)
        self.assertEqual([node.text or "" for node in root.findall("{*}Contents/{*}Key")], keys)


class OtherListsTests(SynchronousTestCase):
    """Buckets, versions, uploads, parts."""

    def test_buckets(self) -> None:
        """Name, date and region of each bucket; prefix and token where there are any."""
        buckets = [Bucket("b1", "root", JANUARY, "us-east-1")]
        body = listBuckets(BucketsQuery("", "", 10000, ""), buckets, "root", None)
        self.assertEqual(
            body.decode(),
            f'{HEAD}<ListAllMyBucketsResult xmlns="{NAMESPACE}">{OWNER_XML}<Buckets><Bucket>'
            "<Name>b1</Name><CreationDate>2026-01-01T00:00:00.000Z</CreationDate>"
            "<BucketRegion>us-east-1</BucketRegion></Bucket></Buckets></ListAllMyBucketsResult>",
        )
        body = listBuckets(BucketsQuery("b&", "a", 1, ""), buckets, "root", "t")
        self.assertEqual(
            parseAnswer("ListBuckets", body),
            {
                "Owner": OWNER,
                "Buckets": [{"Name": "b1", "CreationDate": MOMENT, "BucketRegion": "us-east-1"}],
                "Prefix": "b&",
                "ContinuationToken": "t",
            },
        )

    def test_versions(self) -> None:
        """Versions and delete markers are told apart, and the latest from the others."""
        query = KeysQuery("p", "/", "k&", 2, False, idMarker="null")
        rows = (
            ListedVersion("p1", 0, "", JANUARY, "root", "", "", "", "v2", 9, True, True),
            versionOf("p1", isLatest=False),
        )
        body = joined(listVersions("b", query, VersionListing(rows, ("p/",), "p1", "v1")))
        version = {**seen("p1"), "VersionId": "null", "IsLatest": False, "Owner": OWNER}
        marker = {
            "Key": "p1",
            "VersionId": "v2",
            "IsLatest": True,
            "LastModified": MOMENT,
            "Owner": OWNER,
        }
        self.assertLess(body.index(b"<DeleteMarker>"), body.index(b"<Version>"))
        self.assertEqual(
            parseAnswer("ListObjectVersions", body),
            {
                "Name": "b",
                "Prefix": "p",
                "Delimiter": "/",
                "KeyMarker": "k&",
                "VersionIdMarker": "null",
                "NextKeyMarker": "p1",
                "NextVersionIdMarker": "v1",
                "MaxKeys": 2,
                "IsTruncated": True,
                "Versions": [version],
                "DeleteMarkers": [marker],
                "CommonPrefixes": [{"Prefix": "p/"}],
            },
        )

    def test_lastVersions(self) -> None:
        """A page that is the last has no next markers; a group has no version."""
        query = KeysQuery("", "", "", 1000, True)
        page = VersionListing((versionOf("a b"),), (), None, None)
        parsed = parseAnswer("ListObjectVersions", joined(listVersions("b", query, page)))
        self.assertEqual(parsed["Versions"][0]["Key"], "a%20b")
        self.assertEqual((parsed["EncodingType"], parsed["IsTruncated"]), ("url", False))
        self.assertFalse([name for name in parsed if name.startswith("Next")])
        body = joined(listVersions("b", query, VersionListing((), ("p/",), "p/", None)))
        self.assertIn(b"<NextKeyMarker>p/</NextKeyMarker><MaxKeys>", body)

    def test_uploads(self) -> None:
        """Uploads with who began them, when, and what checksum is to come."""
        upload = MultipartUpload(
            "b", "k é".encode(), "u1", "root", JANUARY, Attributes(), "CRC64NVME", "FULL_OBJECT"
        )
        query = KeysQuery("k", "/", "a", 1, False, idMarker="u0")
        body = listUploads("b", query, UploadListing([upload], ["k/"], ("k é", "u1")), ["root"])
        self.assertEqual(
            parseAnswer("ListMultipartUploads", body),
            {
                "Bucket": "b",
                "KeyMarker": "a",
                "UploadIdMarker": "u0",
                "NextKeyMarker": "k é",
                "NextUploadIdMarker": "u1",
                "Prefix": "k",
                "Delimiter": "/",
                "MaxUploads": 1,
                "IsTruncated": True,
                "Uploads": [
                    {
                        "Key": "k é",
                        "UploadId": "u1",
                        "Initiator": OWNER,
                        "Owner": OWNER,
                        "StorageClass": "STANDARD",
                        "Initiated": MOMENT,
                        "ChecksumAlgorithm": "CRC64NVME",
                        "ChecksumType": "FULL_OBJECT",
                    }
                ],
                "CommonPrefixes": [{"Prefix": "k/"}],
            },
        )

    def test_lastUploads(self) -> None:
        """The last page names its last item; keys are encoded where asked for."""
        upload = MultipartUpload("b", b"k k", "u1", "root", JANUARY, Attributes())
        query = KeysQuery("", "", "", 1000, True)
        parsed = parseAnswer(
            "ListMultipartUploads",
            listUploads("b", query, UploadListing([upload], [], None), ["root"]),
        )
        self.assertEqual(parsed["Uploads"][0]["Key"], "k%20k")
        self.assertNotIn("ChecksumType", parsed["Uploads"][0])
        self.assertEqual((parsed["EncodingType"], parsed["IsTruncated"]), ("url", False))
        self.assertEqual((parsed["NextKeyMarker"], parsed["NextUploadIdMarker"]), ("k%20k", "u1"))
        for prefixes, last in ((["a"], "k%20k"), (["a", "z/"], "z/")):
            body = listUploads("b", query, UploadListing([upload], prefixes, None), ["root"])
            parsed = parseAnswer("ListMultipartUploads", body)
            self.assertEqual(parsed["NextKeyMarker"], last)
        parsed = parseAnswer(
            "ListMultipartUploads", listUploads("b", query, UploadListing([], [], None), [])
        )
        self.assertFalse([name for name in parsed if name.startswith("Next")])

    def test_parts(self) -> None:
        """Parts with their checksums, and where the next page starts."""
        attributes = Attributes(storageClass="STANDARD")
        upload = MultipartUpload(
            "b", b"k", "u1", "root", JANUARY, attributes, "SHA256", "COMPOSITE"
        )
        parts = [
            Part(2, 5, "e2", JANUARY, Content(5), Checksum("SHA256", "AAAA")),
            Part(4, 6, "e4", JANUARY, Content(6)),
        ]
        body = listParts("b", PartsQuery(1, 2, False), upload, parts, truncated=True, owner="root")
        self.assertEqual(
            parseAnswer("ListParts", body),
            {
                "Bucket": "b",
                "Key": "k",
                "UploadId": "u1",
                "PartNumberMarker": 1,
                "NextPartNumberMarker": 4,
                "MaxParts": 2,
                "IsTruncated": True,
                "Parts": [
                    {
                        "PartNumber": 2,
                        "Size": 5,
                        "ETag": '"e2"',
                        "LastModified": MOMENT,
                        "ChecksumSHA256": "AAAA",
                    },
                    {"PartNumber": 4, "Size": 6, "ETag": '"e4"', "LastModified": MOMENT},
                ],
                "Initiator": OWNER,
                "Owner": OWNER,
                "StorageClass": "STANDARD",
                "ChecksumAlgorithm": "SHA256",
                "ChecksumType": "COMPOSITE",
            },
        )
        empty = parseAnswer(
            "ListParts", listParts("b", PartsQuery(7, 2, False), upload, [], False, "root")
        )
        self.assertEqual((empty["NextPartNumberMarker"], empty["IsTruncated"]), (7, False))
