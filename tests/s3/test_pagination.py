"""Parameters of list requests, and keys in answers."""

from collections.abc import Mapping
from urllib.parse import unquote, unquote_plus

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.pagination import makeToken
from storagegate.s3.pagination import (
    BucketsQuery,
    KeysQuery,
    PartsQuery,
    encodeKey,
    parseAttributes,
    parseListBuckets,
    parseListObjects,
    parseListParts,
    parseListUploads,
    parseListVersions,
    parsePartNumber,
)
from tests.s3.refusals import refusalOf

SECRET = b"s" * 32
SECOND = {"list-type": "2"}
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)


class ObjectsTests(SynchronousTestCase):
    """ListObjects and ListObjectsV2."""

    def test_defaults(self) -> None:
        """Nothing asked for is the first 1,000 keys, plain; version 1 shows owners."""
        self.assertEqual(
            parseListObjects({}, SECRET, "b"),
            KeysQuery("", "", "", 1000, False, fetchOwner=True),
        )
        self.assertEqual(
            parseListObjects(SECOND, SECRET, "b"), KeysQuery("", "", "", 1000, False, version=2)
        )

    def test_version1(self) -> None:
        """The marker is where the page starts."""
        query = {
            "prefix": "p/",
            "delimiter": "/",
            "marker": "p/a",
            "max-keys": "7",
            "encoding-type": "url",
            "start-after": "",
            "fetch-owner": "false",
        }
        self.assertEqual(
            parseListObjects(query, SECRET, "b"),
            KeysQuery("p/", "/", "p/a", 7, True, marker="p/a", fetchOwner=True),
        )

    def test_version2(self) -> None:
        """C{start-after} is where the first page starts; the marker of version 1 is refused."""
        query = {
            "list-type": "2",
            "prefix": "p/",
            "delimiter": "",
            "start-after": "p/a",
            "marker": "",
            "max-keys": "7",
            "fetch-owner": "true",
        }
        self.assertEqual(
            parseListObjects(query, SECRET, "b"),
            KeysQuery("p/", "", "p/a", 7, False, marker="p/a", fetchOwner=True, version=2),
        )

    def test_token(self) -> None:
        """In both versions the token says where the page starts, before the other position."""
        token = makeToken(SECRET, "b", "p/é")
        query = {"continuation-token": token}
        first = parseListObjects({**query, "marker": "m"}, SECRET, "b")
        second = parseSecond({**query, "start-after": "s"}, SECRET, "b")
        self.assertEqual((first.after, first.marker, first.token), ("p/é", "m", token))
        self.assertEqual((second.after, second.marker, second.token), ("p/é", "s", token))

    def test_emptyToken(self) -> None:
        """An empty token is the first page."""
        for parse in PARSERS:
            read = parse({"continuation-token": ""}, SECRET, "b")
            self.assertEqual((read.after, read.token), ("", ""))

    def test_badToken(self) -> None:
        """A token that is none is 400."""
        for parse in PARSERS:
            error = refusalOf(parse, {"continuation-token": "x"}, SECRET, "b")
            self.assertEqual((error.code, error.status), ("InvalidArgument", 400))

    def test_maxKeys(self) -> None:
        """Any whole number is taken and cut to 1,000; 0 is one."""
        for text, limit in [
            ("0", 0),
            ("1", 1),
            ("0010", 10),
            ("1000", 1000),
            ("1001", 1000),
            ("1000000000", 1000),
            ("2147483647", 1000),
        ]:
            for parse in PARSERS:
                self.assertEqual(parse({"max-keys": text}, SECRET, "b").limit, limit)

    def test_badMaxKeys(self) -> None:
        """What is no whole number is 400 and named."""
        for text in ["-1", "abc", "", "1.0", " 1", "+1", "1_0", "\u0661", "2147483648", "9" * 99]:
            for parse in PARSERS:
                error = refusalOf(parse, {"max-keys": text}, SECRET, "b")
                self.assertEqual((error.code, error.status), ("InvalidArgument", 400), text)
                self.assertEqual(error.fields, {"ArgumentName": "max-keys", "ArgumentValue": text})

    def test_encodingType(self) -> None:
        """C{url} is the only encoding there is."""
        for text in ["URL", "base64", "url "]:
            error = refusalOf(parseListObjects, {"encoding-type": text}, SECRET, "b")
            self.assertEqual(error.fields["ArgumentName"], "encoding-type")


def parseSecond(query: Mapping[str, str], secret: bytes, bucket: str) -> KeysQuery:
    """Parse ListObjectsV2."""
    return parseListObjects({**query, **SECOND}, secret, bucket)


PARSERS = (parseListObjects, parseSecond)


class OtherListsTests(SynchronousTestCase):
    """Versions, uploads, parts, buckets."""

    def test_versions(self) -> None:
        """All parameters are read; a version id needs its key."""
        self.assertEqual(parseListVersions({}), KeysQuery("", "", "", 1000, False))
        query = {
            "prefix": "p",
            "delimiter": "/",
            "key-marker": "k",
            "version-id-marker": "null",
            "max-keys": "2000",
            "encoding-type": "url",
        }
        self.assertEqual(
            parseListVersions(query), KeysQuery("p", "/", "k", 1000, True, idMarker="null")
        )
        del query["key-marker"]
        error = refusalOf(parseListVersions, query)
        self.assertEqual(error.fields["ArgumentName"], "version-id-marker")
        refusalOf(parseListVersions, {"max-keys": "-1"})

    def test_uploads(self) -> None:
        """All parameters are read; without a key the marker of the id is ignored."""
        self.assertEqual(parseListUploads({}), KeysQuery("", "", "", 1000, False))
        query = {
            "prefix": "p",
            "delimiter": "/",
            "key-marker": "k",
            "upload-id-marker": "0f" * 24,
            "max-uploads": "2",
            "encoding-type": "url",
        }
        wanted = KeysQuery("p", "/", "k", 2, True, idMarker="0f" * 24)
        self.assertEqual(parseListUploads(query), wanted)
        for marker in ("u", "0F" * 24, "0f" * 25):
            other = {**query, "upload-id-marker": marker}
            error = refusalOf(parseListUploads, other)
            self.assertEqual(error.fields["ArgumentName"], "upload-id-marker")
        del query["key-marker"]
        self.assertEqual(parseListUploads(query).idMarker, "")
        refusalOf(parseListUploads, {"max-uploads": "x"})

    def test_parts(self) -> None:
        """Marker and limit are numbers."""
        self.assertEqual(parseListParts({}), PartsQuery(0, 1000, False))
        self.assertEqual(
            parseListParts({"part-number-marker": "5", "max-parts": "10000"}),
            PartsQuery(5, 1000, False),
        )
        for query in [{"part-number-marker": "-1"}, {"max-parts": "x"}]:
            error = refusalOf(parseListParts, query)
            self.assertEqual(error.code, "InvalidArgument")

    def test_buckets(self) -> None:
        """A page has 1 to 10,000 buckets; the token is that of no bucket."""
        self.assertEqual(parseListBuckets({}, SECRET, "here"), BucketsQuery("", "", 10000, ""))
        query = {
            "prefix": "p",
            "max-buckets": "3",
            "bucket-region": "eu-west-1",
            "continuation-token": makeToken(SECRET, "", "last"),
        }
        found = parseListBuckets(query, SECRET, "here")
        self.assertEqual(found, BucketsQuery("p", "last", 3, "eu-west-1"))
        found = parseListBuckets({"bucket-region": "here"}, SECRET, "here")
        self.assertEqual(found.region, "here")
        error = refusalOf(parseListBuckets, {"bucket-region": "x"}, SECRET, "here")
        self.assertEqual(error.fields, {"ArgumentName": "bucket-region", "ArgumentValue": "x"})
        for text in ["0", "10001", "-1", "x", ""]:
            error = refusalOf(parseListBuckets, {"max-buckets": text}, SECRET, "")
            self.assertEqual(error.fields, {"ArgumentName": "max-buckets", "ArgumentValue": text})

    def test_partNumber(self) -> None:
        """A part has a number from 1 to 10,000."""
        self.assertEqual(parsePartNumber({"partNumber": "1"}), 1)
        self.assertEqual(parsePartNumber({"partNumber": "010000"}), 10000)
        for query in [{}, *({"partNumber": text} for text in ["", "0", "10001", "-1", "1.0"])]:
            error = refusalOf(parsePartNumber, query)
            self.assertEqual(
                error.message, "Part number must be an integer between 1 and 10000, inclusive"
            )


class AttributesTests(SynchronousTestCase):
    """GetObjectAttributes."""

    def test_read(self) -> None:
        """Names are separated by commas; the parts are paged by two more fields."""
        read = parseAttributes({b"x-amz-object-attributes": b"ETag, ObjectParts,"})
        self.assertEqual((read.names, read.partsAfter), ({"ETag", "ObjectParts"}, 0))
        self.assertEqual(read.partsLimit, 1000)
        read = parseAttributes(
            {
                b"x-amz-object-attributes": b"ObjectParts",
                b"x-amz-part-number-marker": b"3",
                b"x-amz-max-parts": b"5000",
            }
        )
        self.assertEqual((read.partsAfter, read.partsLimit), (3, 1000))

    def test_refused(self) -> None:
        """Nothing asked for, an unknown name and a bad number are told apart."""
        for value in [None, b"", b",", b" , "]:
            headers = {} if value is None else {b"x-amz-object-attributes": value}
            self.assertEqual(refusalOf(parseAttributes, headers).code, "InvalidRequest")
        for value, named in [(b"etag", "etag"), (b"ETag,,ObjectSize", ""), (b"\xff", "\xff")]:
            error = refusalOf(parseAttributes, {b"x-amz-object-attributes": value})
            self.assertEqual(
                error.fields,
                {"ArgumentName": "x-amz-object-attributes", "ArgumentValue": named},
            )
        error = refusalOf(
            parseAttributes,
            {b"x-amz-object-attributes": b"ETag", b"x-amz-max-parts": b"-1"},
        )
        self.assertEqual(error.fields["ArgumentName"], "x-amz-max-parts")


class EncodeKeyTests(SynchronousTestCase):
    """Keys in answers."""

    def test_written(self) -> None:
        """Slashes and unreserved characters stay, all else is escaped; plain is untouched."""
        self.assertEqual(encodeKey("a/b c+d%\n\x01é*~", True), "a/b%20c%2Bd%25%0A%01%C3%A9%2A~")
        self.assertEqual(encodeKey("a/b c+d%\n\x01é*~", False), "a/b c+d%\n\x01é*~")

    @given(KEYS)
    def test_decoders(self, key: str) -> None:
        """Both kinds of decoders in use, with and without a plus for a space, read it back."""
        written = encodeKey(key, True)
        self.assertEqual((unquote(written), unquote_plus(written)), (key, key))
        self.assertRegex(written, r"\A[A-Za-z0-9_.~/%-]*\Z")
