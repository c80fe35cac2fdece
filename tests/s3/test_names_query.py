"""The query of a request."""

from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.errors import S3Error
from storagegate.s3.names import PARAMETER_LIMIT, parseQuery

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


class ParseQueryTests(SynchronousTestCase):
    """Names and values."""

    def test_pairs(self) -> None:
        """Values are decoded once; a plus is a space; a bare name has an empty value."""
        for raw, expected in [
            (b"", {}),
            (b"acl", {"acl": ""}),
            (b"delete=", {"delete": ""}),
            (b"prefix=a%2Fb&max-keys=2", {"prefix": "a/b", "max-keys": "2"}),
            (b"prefix=a+b%2Bc%20d", {"prefix": "a b+c d"}),
            (b"prefix=%252F", {"prefix": "%2F"}),
            (b"p=a=b&&q=1&", {"p": "a=b", "q": "1"}),
            (b"%70=%C3%A9", {"p": "é"}),
            (b"a;b=1", {"a;b": "1"}),
            (b"x-id=PutObject&Versions", {"x-id": "PutObject", "Versions": ""}),
        ]:
            self.assertEqual(parseQuery(raw), expected, raw)

    def test_order(self) -> None:
        """The parameters keep the order in which they came."""
        self.assertEqual(list(parseQuery(b"b&a&c")), ["b", "a", "c"])

    def test_malformed(self) -> None:
        """A malformed escape or bytes that are not UTF-8 are 400."""
        for raw in [b"a=%", b"a=%4", b"a=%zz", b"%", b"a=%ff", b"\xff=1", b"a=%ed%a0%80"]:
            error = self.assertRaises(S3Error, parseQuery, raw)
            self.assertEqual((error.code, error.status), ("InvalidURI", 400), raw)

    def test_twice(self) -> None:
        """A parameter that comes twice is refused, whatever its values and spelling."""
        for raw in [b"a=1&a=2", b"a=1&a=1", b"a&a", b"a=1&%61=2", b"X-Amz-Date=1&X-Amz-Date=1"]:
            error = self.assertRaises(S3Error, parseQuery, raw)
            self.assertEqual((error.code, error.status), ("InvalidArgument", 400), raw)
        self.assertEqual(
            self.assertRaises(S3Error, parseQuery, b"prefix=a&prefix=b").fields,
            {"ArgumentName": "prefix", "ArgumentValue": "b"},
        )

    def test_tooMany(self) -> None:
        """100 parameters are read, one more is refused."""
        pairs = [b"p%d=1" % number for number in range(PARAMETER_LIMIT + 1)]
        self.assertEqual(len(parseQuery(b"&".join(pairs[:-1]))), PARAMETER_LIMIT)
        error = self.assertRaises(S3Error, parseQuery, b"&".join(pairs))
        self.assertEqual(error.code, "InvalidArgument")
        self.assertRaises(S3Error, parseQuery, b"&" * PARAMETER_LIMIT)

    @given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=10))
    def test_roundTrip(self, parameters: dict[str, str]) -> None:
        """What the standard library encodes is read back."""
        self.assertEqual(parseQuery(urlencode(parameters).encode()), parameters)

    @given(st.binary(max_size=60))
    def test_anything(self, raw: bytes) -> None:
        """Whatever bytes come, the answer is a query or 400."""
        try:
            parseQuery(raw)
        except S3Error as error:
            self.assertEqual(error.status, 400)
