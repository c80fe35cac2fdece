"""Amazon's rules of tags."""

from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.errors import InvalidTag, TooManyTags
from storagegate.objects.tags import BUCKET_TAGS, OBJECT_TAGS, TagRules, checkedTags

_CHARACTER = st.characters(codec="utf-8", categories=["L", "N", "Zs"]) | st.sampled_from("+-=._:/@")
_KEY = st.text(_CHARACTER, min_size=1, max_size=64).filter(
    lambda key: not key.lower().startswith("aws:")
)
TAGS = st.dictionaries(_KEY, st.text(_CHARACTER, max_size=128), max_size=10)
"""Tags that every object may have."""


class CheckedTagsTests(SynchronousTestCase):
    """Amazon's rules."""

    def refused(self, rules: TagRules, *pairs: tuple[str, str]) -> InvalidTag:
        """Give the refusal of tags."""
        error: InvalidTag = self.assertRaises(InvalidTag, checkedTags, pairs, rules)
        return error

    def test_taken(self) -> None:
        """Letters and numbers of any script, blanks and punctuation, up to the lengths."""
        for key, value in (
            ("a", ""),
            ("k" * 128, "v" * 256),
            ("\U00010400" * 64, "\U00010400" * 128),
            ("Größe 東京 ٣", "+ - = . _ : / @"),
            ("my-aws:tag", "aws:"),
            ("\u00a0", " "),
        ):
            self.assertEqual(checkedTags([(key, value)], OBJECT_TAGS), {key: value})

    def test_keys(self) -> None:
        """A key that is empty, too long in UTF-16, or of other characters is refused by name."""
        bad = ["", "k" * 129, "\U00010400" * 64 + "k", "\u0301"]
        bad += [f"a{each}" for each in "!\"#$%&'()*,;<>?[\\]^`{|}~\t\n\0€😀"]
        for key in bad:
            error = self.refused(BUCKET_TAGS, (key, "v"))
            self.assertEqual(error.message, "The TagKey you have provided is invalid")
            self.assertEqual(error.details, {"tagKey": key})

    def test_values(self) -> None:
        """A value that is too long or of other characters is refused, with its key."""
        for value in ("v" * 257, "\U00010400" * 128 + "v", "a,b", "a\nb", "a&b"):
            error = self.refused(OBJECT_TAGS, ("k", value))
            self.assertEqual(error.message, "The TagValue you have provided is invalid")
            self.assertEqual(error.details, {"tagKey": "k", "tagValue": value})

    def test_twice(self) -> None:
        """A key that comes twice is refused; another case is another key."""
        error = self.refused(OBJECT_TAGS, ("a", "1"), ("b", "2"), ("a", "1"))
        self.assertEqual(error.message, "Cannot provide multiple Tags with the same key")
        self.assertEqual(error.details, {"tagKey": "a"})
        self.assertEqual(len(checkedTags([("a", ""), ("A", "")], OBJECT_TAGS)), 2)

    def test_reserved(self) -> None:
        """A key of Amazon's own is refused in any case."""
        for key in ("aws:", "aws:x", "AWS:x"):
            error = self.refused(OBJECT_TAGS, (key, ""))
            self.assertEqual(error.message, "Your TagKey cannot be prefixed with aws:")
            error = self.refused(BUCKET_TAGS, (key, ""))
            self.assertEqual(error.message, "System tags cannot be added/updated by requester")

    def test_tooMany(self) -> None:
        """An object has up to 10 tags, a bucket up to 50."""
        for rules, what in ((OBJECT_TAGS, "Object tags"), (BUCKET_TAGS, "Bucket tag count")):
            pairs = [(f"k{number}", "") for number in range(rules.most + 1)]
            self.assertEqual(len(checkedTags(pairs[1:], rules)), rules.most)
            error = self.assertRaises(TooManyTags, checkedTags, pairs, rules)
            self.assertEqual(error.message, f"{what} cannot be greater than {rules.most}")
