"""Continuation tokens."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import InvalidArgument
from storagegate.objects.pagination import makeToken, readToken

SECRET = b"s" * 32
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)


class TokenTests(SynchronousTestCase):
    """Continuation tokens."""

    def assertRefused(self, token: str, secret: bytes = SECRET, bucket: str = "b") -> None:
        """Assert that a token is refused by its name."""
        error = self.assertRaises(InvalidArgument, readToken, secret, bucket, token)
        self.assertEqual(error.details, {"name": "continuationToken"})
        self.assertEqual(error.message, "The continuation token provided is incorrect")

    @given(KEYS)
    def test_roundTrip(self, position: str) -> None:
        """Any position is read back, from characters that a query needs not escape."""
        token = makeToken(SECRET, "b", position)
        self.assertRegex(token, r"\A[A-Za-z0-9_.][A-Za-z0-9_-]+\Z")
        self.assertEqual(readToken(SECRET, "b", token), position)

    def test_hyphen(self) -> None:
        """No token begins with a hyphen, as an option does; those of earlier releases may."""
        positions = list(map(str, range(1000)))
        tokens = [makeToken(SECRET, "b", each) for each in positions]
        dotted = [each for each in zip(positions, tokens, strict=True) if each[1][0] == "."]
        self.assertTrue(dotted)
        self.assertFalse([each for each in tokens if each.startswith("-")])
        for position, token in dotted:
            self.assertEqual(readToken(SECRET, "b", f"-{token[1:]}"), position)

    def test_longestPosition(self) -> None:
        """A key of 1,024 bytes has a token."""
        position = "k" * 1024
        self.assertEqual(readToken(SECRET, "b", makeToken(SECRET, "b", position)), position)

    def test_bound(self) -> None:
        """A token of another bucket, another store or the list of buckets is refused."""
        token = makeToken(SECRET, "b", "k")
        self.assertRefused(token, bucket="c")
        self.assertRefused(token, bucket="")
        self.assertRefused(token, secret=b"t" * 32)
        self.assertRefused(makeToken(SECRET, "", "k"))

    def test_tampered(self) -> None:
        """Any changed, missing or additional character is refused."""
        token = makeToken(SECRET, "b", "key")
        for index, character in enumerate(token):
            other = "A" if character != "A" else "B"
            self.assertRefused(token[:index] + other + token[index + 1 :])
            self.assertRefused(token[:index] + token[index + 1 :])
        for changed in [token + "A", token + "=", token + "\n", " " + token, token + "é", "x"]:
            self.assertRefused(changed)

    def test_otherSpelling(self) -> None:
        """The same bytes written in another way of base64 are no token."""
        token = makeToken(SECRET, "b", "k")
        spelling = token[:-1] + chr(ord(token[-1]) + 1)
        self.assertEqual(urlsafe_b64decode(spelling + "="), urlsafe_b64decode(token + "="))
        self.assertRefused(spelling)

    def test_forgedPosition(self) -> None:
        """A position without the secret's MAC, not UTF-8, or far too long is refused."""
        for raw in [b"", b"k" * 10, b"m" * 16 + b"key", b"m" * 16 + b"\xff", b"m" * 5000]:
            self.assertRefused(urlsafe_b64encode(raw).decode().rstrip("="))

    @given(st.text(max_size=60))
    def test_anything(self, token: str) -> None:
        """Any other text is refused in the same way."""
        self.assertRefused(token)
