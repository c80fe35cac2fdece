"""Headers in the query of presigned URLs."""

from storagegate.s3.auth.authenticator import withQueryHeaders
from tests.s3.examples import S3Case


class HoistingTests(S3Case):
    """What a query adds to the headers."""

    def test_added(self) -> None:
        """
        A C{x-amz-} parameter is the header of its name in small letters; others are none.

        A checksum is signed, but it is not the body's.
        """
        query = {
            "x-amz-meta-a": "1",
            "X-Amz-Meta-B": "caf\u00e9",
            "x-amz-meta-c": "no\u00a0break, soft\u00adhyphen",
            "X-AMZ-ACL": "private",
            "x-amz-checksum-crc32": "AAAAAA==",
            "content-type": "text/html",
            "prefix": "x-amz-acl",
        }
        self.assertEqual(
            withQueryHeaders(query, {b"host": b"h"}),
            {
                b"host": b"h",
                b"x-amz-meta-a": b"1",
                b"x-amz-meta-b": "caf\u00e9".encode(),
                b"x-amz-meta-c": "no\u00a0break, soft\u00adhyphen".encode(),
                b"x-amz-acl": b"private",
            },
        )

    def test_headerWins(self) -> None:
        """A header that was sent stays as it is."""
        headers = {b"x-amz-meta-a": b"sent"}
        self.assertEqual(withQueryHeaders({"X-Amz-Meta-A": "moved"}, headers), headers)

    def test_signature(self) -> None:
        """The parameters of the signature are no headers."""
        names = ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature")
        query = {f"X-Amz-{name}": "x" for name in (*names, "Content-Sha256", "Security-Token")}
        headers = {b"host": b"h"}
        self.assertIs(
            withQueryHeaders({**query, "x-amz-sdk-checksum-algorithm": "C"}, headers), headers
        )

    def test_refused(self) -> None:
        """What cannot be a header, or comes in two spellings, is refused."""
        for query in (
            {"x-amz-meta-a": "1\r\nSet-Cookie: x"},
            {"x-amz-meta-a": "\x00"},
            {"x-amz-meta-a": "\x7f"},
            {"x-amz-meta-a": "\x85"},
            {"x-amz-meta-a b": "1"},
            {"x-amz-meta-a:": "1"},
            {"x-amz-": "1"},
            {"x-amz-meta-\u00e9": "1"},
            {"x-amz-meta-a": "1", "X-Amz-Meta-A": "2"},
        ):
            self.refused("InvalidArgument", 400, withQueryHeaders, query, {})
