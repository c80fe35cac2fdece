"""Conditional requests."""

from email.utils import formatdate

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.conditional import (
    bodyTag,
    isConditional,
    isFresh,
    preconditionFails,
    rangeApplies,
)
from storagegate.net.http.ranges import parseHttpDate

MODIFIED = 1_000_000_000
BEFORE, SAME, AFTER = (formatdate(MODIFIED + s, usegmt=True).encode() for s in (-1, 0, 1))
STRONG, WEAK, OTHER = b'"abc"', b'W/"abc"', b'"other"'

# What the answer would say of itself.
TAG = WEAK.decode()
DATE = SAME.decode()
NOW = 2_000_000_000.0


def headers(**fields: bytes) -> dict[bytes, bytes]:
    """Name fields: C{if_match} is C{If-Match}."""
    return {name.replace("_", "-").encode(): value for name, value in fields.items()}


class TagTests(SynchronousTestCase):
    """The tag of a body."""

    def test_asExpress(self) -> None:
        """It is what Express makes of the same body, each time, and no other body has it."""
        for body, tag in (
            (b"", 'W/"0-2jmj7l5rSw0yVb/vlWAYkK/YBwk"'),
            (b"Hello, World!", 'W/"d-CgqfKmdylCVXq1NV12r0Qvj2XgE"'),
        ):
            self.assertEqual([bodyTag(body), bodyTag(body)], [tag, tag])
        bodies = [b"x" * size for size in range(130)]
        self.assertEqual(len({bodyTag(body) for body in bodies}), 130)


class FreshTests(SynchronousTestCase):
    """The 304."""

    def fresh(self, **fields: bytes) -> bool:
        """Judge."""
        return isFresh(headers(**fields), TAG, DATE)

    def test_unconditional(self) -> None:
        """Without a condition nothing is fresh."""
        self.assertFalse(self.fresh())
        self.assertFalse(self.fresh(if_match=WEAK, if_unmodified_since=AFTER))

    def test_tags(self) -> None:
        """A tag in the list is enough, weak or strong."""
        for value in (STRONG, WEAK, b"*", OTHER + b" , " + WEAK, OTHER + b"," + STRONG):
            self.assertTrue(self.fresh(if_none_match=value), value)
            self.assertTrue(isFresh(headers(if_none_match=value), STRONG.decode(), None), value)
        for value in (OTHER, b"", b"abc", b'w/"abc"', STRONG.upper(), b'"ab', b'W/W/"abc"'):
            self.assertFalse(self.fresh(if_none_match=value), value)

    def test_untagged(self) -> None:
        """What has no tag matches none, but it is there."""
        self.assertFalse(isFresh(headers(if_none_match=WEAK), None, DATE))
        self.assertTrue(isFresh(headers(if_none_match=b"*"), None, DATE))

    def test_dates(self) -> None:
        """What was not modified after the date is fresh; a date that cannot be read is none."""
        self.assertFalse(self.fresh(if_modified_since=BEFORE))
        self.assertTrue(self.fresh(if_modified_since=SAME))
        self.assertTrue(self.fresh(if_modified_since=AFTER))
        self.assertFalse(self.fresh(if_modified_since=b"yesterday"))
        self.assertFalse(isFresh(headers(if_modified_since=AFTER), TAG, None))

    def test_precedence(self) -> None:
        """Tags go before dates."""
        self.assertTrue(self.fresh(if_none_match=WEAK, if_modified_since=BEFORE))
        self.assertFalse(self.fresh(if_none_match=OTHER, if_modified_since=AFTER))

    def test_noCache(self) -> None:
        """A reload by the user is answered in full."""
        for value in (b"no-cache", b"max-age=0, no-cache", b"No-Cache , foo"):
            self.assertFalse(self.fresh(if_none_match=WEAK, cache_control=value), value)
        for value in (b"max-age=0", b"x-no-cache", b"no-cached"):
            self.assertTrue(self.fresh(if_none_match=WEAK, cache_control=value), value)


class PreconditionTests(SynchronousTestCase):
    """The 412."""

    def fails(self, **fields: bytes) -> bool:
        """Judge."""
        return preconditionFails(headers(**fields), TAG, DATE)

    def test_unconditional(self) -> None:
        """Without a condition none fails."""
        self.assertFalse(self.fails())
        self.assertFalse(self.fails(if_none_match=OTHER, if_modified_since=BEFORE))

    def test_tags(self) -> None:
        """One tag of the list has to match; a weak one does."""
        for value in (STRONG, WEAK, b"*", OTHER + b", " + WEAK):
            self.assertFalse(self.fails(if_match=value), value)
        for value in (OTHER, b"", b"abc"):
            self.assertTrue(self.fails(if_match=value), value)
        self.assertTrue(preconditionFails(headers(if_match=WEAK), None, DATE))

    def test_dates(self) -> None:
        """It fails if the file was modified after the date."""
        self.assertTrue(self.fails(if_unmodified_since=BEFORE))
        for value in (SAME, AFTER, b"yesterday"):
            self.assertFalse(self.fails(if_unmodified_since=value), value)
        self.assertFalse(preconditionFails(headers(if_unmodified_since=BEFORE), TAG, None))

    def test_precedence(self) -> None:
        """Tags go before dates."""
        self.assertFalse(self.fails(if_match=WEAK, if_unmodified_since=BEFORE))
        self.assertTrue(self.fails(if_match=OTHER, if_unmodified_since=AFTER))

    def test_isConditional(self) -> None:
        """Any of the four is a condition, C{If-Range} alone is not."""
        for name in ("if_match", "if_none_match", "if_modified_since", "if_unmodified_since"):
            self.assertTrue(isConditional(headers(**{name: b""})), name)
        self.assertFalse(isConditional(headers(if_range=WEAK, range=b"bytes=0-")))


class IfRangeTests(SynchronousTestCase):
    """Whether a range counts."""

    def holds(self, value: bytes, tag: str = STRONG.decode()) -> bool:
        """Judge."""
        return rangeApplies(headers(if_range=value), tag, DATE, NOW)

    def test_absent(self) -> None:
        """Without C{If-Range} it counts."""
        self.assertTrue(rangeApplies({}, None, None, NOW))

    def test_tag(self) -> None:
        """The very tag lets it count if it is strong; a weak one, a list or a star does not."""
        for value in (STRONG, b" " + STRONG):
            self.assertTrue(self.holds(value), value)
        for value in (WEAK, OTHER, b"*", b"", OTHER + b", " + STRONG, STRONG + b", " + OTHER):
            self.assertFalse(self.holds(value), value)
        for value in (WEAK, STRONG):
            self.assertFalse(self.holds(value, WEAK.decode()), value)
        self.assertFalse(rangeApplies(headers(if_range=STRONG), None, DATE, NOW))

    def test_date(self) -> None:
        """The very date lets it count, unless it is so young that two versions may have it."""
        self.assertTrue(self.holds(SAME))
        for value in (BEFORE, AFTER, b"yesterday"):
            self.assertFalse(self.holds(value), value)
        self.assertFalse(rangeApplies(headers(if_range=SAME), TAG, None, NOW))
        modified = parseHttpDate(SAME)
        assert modified is not None
        for seconds, expected in ((-5, False), (0, False), (2, False), (60, True), (3600, True)):
            found = rangeApplies(headers(if_range=SAME), TAG, DATE, modified + seconds)
            self.assertIs(found, expected, seconds)
