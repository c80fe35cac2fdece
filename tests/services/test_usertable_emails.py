"""What is an email address, and which are the same."""

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.services.usertable import fold, isEmail

GOOD = (
    "a@b.co",
    "ada@example.org",
    "first.last+tag@sub.example-site.org",
    "o'neil!#$%&*/=?^_`{|}~-@example.org",
    "-a-@example.org",
    "123@123.example",
    "ada@xn--bcher-kva.example",
    "josé@bücher.example",
    "用户@例子.广告",
    f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 61}",
)

BAD = (
    "",
    "ada",
    "@",
    "ada@",
    "@example.org",
    "ada@localhost",
    "ada@@example.org",
    "a@b@example.org",
    ".ada@example.org",
    "ada.@example.org",
    "a..b@example.org",
    "ada@.example.org",
    "ada@example.org.",
    "ada@example..org",
    "ada@-example.org",
    "ada@example-.org",
    "ada@exa_mple.org",
    "ada@192.168.0.1",
    "ada@[192.168.0.1]",
    '"ada"@example.org',
    "Ada <ada@example.org>",
    "ada @example.org",
    " ada@example.org",
    "ada@example.org\n",
    "ada\u00a0x@example.org",
    "ada\u200b@example.org",
    "ada\u202e@example.org",
    "ada\x00@example.org",
    "ada\ud800@example.org",
    "a,b@example.org",
    "a;b@example.org",
    f"{'a' * 65}@example.org",
    f"{'é' * 33}@example.org",
    f"a@{'b' * 64}.org",
    f"a@{'é' * 32}.org",
    f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 62}",
    None,
    5,
    b"ada@example.org",
    ["ada@example.org"],
)

# The rule for ASCII as one slow expression.
_ASCII = re.compile(
    r"(?=.{1,64}@)[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*"
    r"@((?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)+(?!\d+\Z)(?!-)[A-Za-z0-9-]{1,63}(?<!-)",
    re.ASCII,
)


class EmailTests(SynchronousTestCase):
    """The rule."""

    def test_good(self) -> None:
        """These are addresses."""
        for text in GOOD:
            self.assertTrue(isEmail(text), text)

    def test_bad(self) -> None:
        """These are none."""
        for text in BAD:
            self.assertFalse(isEmail(text), text)

    @given(
        st.text("aZ9.-_@+ \n(", max_size=12)
        | st.builds("{}@{}".format, st.text("aZ9.-+", max_size=5), st.text("aZ9.-", max_size=8))
    )
    def test_model(self, text: str) -> None:
        """The rule is that of the expression."""
        expected = _ASCII.fullmatch(text) is not None
        self.assertEqual(isEmail(text), expected)

    def test_long(self) -> None:
        """However long a text is, it is looked at no longer."""
        for text in ("a" * 10_000_000, "a@" * 5_000_000, "a." * 5_000_000 + "@b.co"):
            self.assertFalse(isEmail(text))


class FoldTests(SynchronousTestCase):
    """Texts without case."""

    def test_same(self) -> None:
        """What differs in case or in how accents are written is the same."""
        for one, other in (
            ("ADA@Example.org", "ada@example.ORG"),
            ("É", "e\u0301"),
            ("Straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("ǰ", "J\u030c"),
        ):
            self.assertEqual(fold(one), fold(other))
        self.assertEqual(fold("E\u0301"), "\u00e9")
        for one, other in (("é", "e"), ("a", "b"), ("ø", "o")):
            self.assertNotEqual(fold(one), fold(other))

    @given(st.text())
    def test_stable(self, text: str) -> None:
        """What was folded stays as it is."""
        self.assertEqual(fold(fold(text)), fold(text))
