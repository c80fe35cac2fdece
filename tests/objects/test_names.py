"""Names of buckets, and keys."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import InvalidBucketName, InvalidKey, KeyTooLong
from storagegate.objects.names import checkBucketName, checkKey


class BucketNameTests(SynchronousTestCase):
    """The rules of names, one by one."""

    def assertRefused(self, name: str) -> None:
        """Assert that a name is refused with the name in the error."""
        error = self.assertRaises(InvalidBucketName, checkBucketName, name)
        self.assertEqual(error.details, {"bucket": name})

    def test_good(self) -> None:
        """Names that the rules allow, also those close to what they forbid."""
        for name in [
            "abc",
            "a" * 63,
            "0a9",
            "my.bucket.example",
            "a-b--c",
            "1.2.3",
            "1.2.3.4.5",
            "192.168.5.x",
            "1234.1.1.1",
            "axn--b",
            "sthree",
            "s3alias",
            "ol-s3",
            "mrap",
            "japan-an",
            "amzn-s3-demo",
        ]:
            checkBucketName(name)

    def test_length(self) -> None:
        """A name has 3 to 63 characters."""
        for name in ["", "a", "ab", "a" * 64]:
            self.assertRefused(name)

    def test_characters(self) -> None:
        """Only ASCII lower-case letters, digits, dots and hyphens."""
        for name in ["Abc", "a_b", "a b", "a/b", "ab\n", "äbc", "a\u0663c", "a\x00c", "a%c"]:
            self.assertRefused(name)

    def test_ends(self) -> None:
        """It begins and ends with a letter or a digit."""
        for name in ["-ab", "ab-", ".ab", "ab."]:
            self.assertRefused(name)

    def test_adjacent(self) -> None:
        """No two dots side by side, and no dot beside a hyphen."""
        for name in ["a..b", "a.-b", "a-.b"]:
            self.assertRefused(name)

    def test_address(self) -> None:
        """It does not look like an IP address."""
        for name in ["192.168.5.4", "1.1.1.1", "999.999.999.999"]:
            self.assertRefused(name)

    def test_prefixes(self) -> None:
        """Amazon's reserved beginnings are refused."""
        for prefix in ["xn--", "sthree-", "sthree-configurator", "amzn-s3-demo-"]:
            self.assertRefused(prefix + "abc")

    def test_suffixes(self) -> None:
        """Amazon's reserved endings are refused."""
        for suffix in ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"]:
            self.assertRefused("abc" + suffix)


class KeyTests(SynchronousTestCase):
    """What can be a key."""

    def test_length(self) -> None:
        """1,024 bytes are a key, 1,025 are too long; bytes count, not characters."""
        checkKey(b"k" * 1024)
        checkKey("é".encode() * 512)
        for key in [b"k" * 1025, "é".encode() * 512 + b"k"]:
            error = self.assertRaises(KeyTooLong, checkKey, key)
            self.assertEqual(error.details, {"size": "1025", "maxSize": "1024"})

    def test_utf8(self) -> None:
        """Bytes that are not UTF-8 are no key; surrogates and overlong forms are not UTF-8."""
        for key in [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf"]:
            self.assertRaises(InvalidKey, checkKey, key)
