"""How requests name buckets and keys."""

from urllib.parse import quote, urlencode

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import DomainError
from storagegate.s3.errors import S3Error, asS3Error
from storagegate.s3.names import PARAMETER_LIMIT, parseCopySource, parseQuery, splitTarget
from tests.s3.refusals import refusalOf

DOMAIN = "s3.example.com"


class SplitTargetTests(SynchronousTestCase):
    """Bucket and key of a request."""

    def test_pathStyle(self) -> None:
        """The bucket ends at the first slash, the key is all that follows, decoded once."""
        for path, expected in [
            (b"/", (None, None)),
            (b"/b", ("b", None)),
            (b"/b/", ("b", None)),
            (b"/b/k", ("b", b"k")),
            (b"/b/k/", ("b", b"k/")),
            (b"/b//", ("b", b"/")),
            (b"/b//k//l", ("b", b"/k//l")),
            (b"/b/.", ("b", b".")),
            (b"/b/../x", ("b", b"../x")),
            (b"/b/%2e%2e%2fx", ("b", b"../x")),
            (b"/b/%252e", ("b", b"%2e")),
            (b"/b/a+b%2Bc%20d", ("b", b"a+b+c d")),
            (b"/b/\\", ("b", b"\\")),
            (b"/b/%00%01", ("b", b"\x00\x01")),
            (b"/b/e%CC%81", ("b", b"e\xcc\x81")),
            (b"/b/%c3%a9", ("b", b"\xc3\xa9")),
            (b"/%62/k", ("b", b"k")),
            (b"/b%2fk", ("b/k", None)),
        ]:
            self.assertEqual(splitTarget(path, b"localhost:9000", None), expected, path)

    def test_refused(self) -> None:
        """What is no target is one clear error."""
        for path, code in [
            (b"", "InvalidURI"),
            (b"*", "InvalidURI"),
            (b"b/k", "InvalidURI"),
            (b"//x", "InvalidBucketName"),
            (b"/%ff/k", "InvalidBucketName"),
            (b"/%zz/k", "InvalidURI"),
            (b"/b/%zz", "InvalidURI"),
            (b"/b/%", "InvalidURI"),
            (b"/b/a%4", "InvalidURI"),
            (b"/b/%+1", "InvalidURI"),
            (b"/b/%ff", "InvalidURI"),
            (b"/b/" + b"k" * 1025, "KeyTooLongError"),
        ]:
            error = refusalOf(splitTarget, path, b"h", None)
            self.assertEqual((error.code, error.status), (code, 400), path)
        self.assertEqual(splitTarget(b"/b/" + b"%6b" * 1024, b"h", None), ("b", b"k" * 1024))

    def test_virtualHostStyle(self) -> None:
        """A subdomain of the configured domain is the bucket, and the whole path is the key."""
        for host, path, expected in [
            (b"b.s3.example.com", b"/", ("b", None)),
            (b"b.s3.example.com:9000", b"/b/k", ("b", b"b/k")),
            (b"B.S3.Example.COM:80", b"//k", ("b", b"/k")),
            (b"my.b.s3.example.com", b"/k%20l", ("my.b", b"k l")),
        ]:
            self.assertEqual(splitTarget(path, host, DOMAIN), expected, host)

    def test_otherHosts(self) -> None:
        """The domain itself and every other host is path style."""
        for host in [
            b"s3.example.com",
            b"s3.example.com:9000",
            b".s3.example.com",
            b"bs3.example.com",
            b"example.com",
            b"[::1]:9000",
            b"[::1]",
            b"127.0.0.1",
            b"",
            b"\xff",
        ]:
            self.assertEqual(splitTarget(b"/b/k", host, DOMAIN), ("b", b"k"), host)

    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
    def test_anyKey(self, key: str) -> None:
        """Any text can be a key and arrives as it was, in both styles."""
        raw = quote(key, safe="").encode()
        self.assertEqual(splitTarget(b"/b/" + raw, b"h", None), ("b", key.encode()))
        self.assertEqual(splitTarget(b"/" + raw, b"b.s3.example.com", DOMAIN), ("b", key.encode()))

    @given(st.binary(max_size=60))
    def test_anyPath(self, path: bytes) -> None:
        """Whatever bytes come, the answer is 400 or a bucket with a key that can be one."""
        try:
            bucket, key = splitTarget(b"/" + path, b"h", None)
        except (S3Error, DomainError) as error:
            self.assertEqual(asS3Error(error).status, 400)
        else:
            self.assertEqual(bucket is None, path == b"")
            if key is not None:
                self.assertTrue(bucket and 1 <= len(key) <= 1024)
                key.decode()


class QueryTests(SynchronousTestCase):
    """Queries."""

    def test_good(self) -> None:
        """Escapes are undone once, and a plus is a space; bytes that are no escapes are UTF-8."""
        for raw, query in {
            b"": {},
            b"acl": {"acl": ""},
            b"a=1&b=2": {"a": "1", "b": "2"},
            b"&a=b=c&&": {"a": "b=c"},
            b"p=a+b%2Bc%252F": {"p": "a b+c%2F"},
            "p=ä".encode(): {"p": "ä"},
            b"p=%C3\xa4": {"p": "ä"},
            b"%70=1&=2": {"p": "1", "": "2"},
        }.items():
            self.assertEqual(parseQuery(raw), query, raw)

    def test_refused(self) -> None:
        """A bad escape, bytes that are not UTF-8, a name that comes twice, and too many."""
        for raw, code in {
            b"a=%": "InvalidURI",
            b"a=%zz": "InvalidURI",
            b"a=%ff": "InvalidURI",
            b"\xff": "InvalidURI",
            b"a&a": "InvalidArgument",
            b"a=1&%61=2": "InvalidArgument",
            b"&" * PARAMETER_LIMIT: "InvalidArgument",
        }.items():
            self.assertEqual(refusalOf(parseQuery, raw).code, code, raw)

    @given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5))
    def test_anyQuery(self, query: dict[str, str]) -> None:
        """What a client encodes is read as it was meant."""
        self.assertEqual(parseQuery(urlencode(query).encode()), query)


class CopySourceTests(SynchronousTestCase):
    """C{x-amz-copy-source}."""

    def test_good(self) -> None:
        """With and without a leading slash, decoded once; traversal is only a key."""
        for value, expected in [
            (b"b/k", ("b", b"k", None)),
            (b"/b/k", ("b", b"k", None)),
            (b"b%2Fk%2Fl", ("b", b"k/l", None)),
            (b"%2Fb%2Fk", ("b", b"k", None)),
            (b"b/k?versionId=null", ("b", b"k", "null")),
            (b"/b/k%3FversionId=1", ("b", b"k?versionId=1", None)),
            (b"b/k?x", ("b", b"k?x", None)),
            (b"b/../../etc/passwd", ("b", b"../../etc/passwd", None)),
            (b"b/%252e%252e", ("b", b"%2e%2e", None)),
            (b"b/a+b", ("b", b"a+b", None)),
            (b"b//k", ("b", b"/k", None)),
            ("b/é".encode(), ("b", "é".encode(), None)),
        ]:
            self.assertEqual(parseCopySource(value), expected, value)

    def test_refused(self) -> None:
        """What names no object is C{InvalidArgument}; a long key is too long here as well."""
        for value in [
            b"",
            b"/",
            b"b",
            b"b/",
            b"//k",
            b"b/%zz",
            b"b/%ff",
            b"\xff/k",
            b"b/k?versionId=",
            b"b/k?versionId=%",
        ]:
            error = refusalOf(parseCopySource, value)
            self.assertEqual((error.code, error.status), ("InvalidArgument", 400), value)
        error = refusalOf(parseCopySource, b"b/" + b"k" * 1025)
        self.assertEqual(error.code, "KeyTooLongError")

    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
    def test_anyKey(self, key: str) -> None:
        """Any key can be copied, encoded as boto3 encodes it."""
        value = quote(f"b/{key}", safe="/~").encode() + b"?versionId=v1"
        self.assertEqual(parseCopySource(value), ("b", key.encode(), "v1"))
