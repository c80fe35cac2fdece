"""Conditions of reads and of the sources of copies, and the dates in them."""

from email.utils import formatdate
from time import time

from hypothesis import given
from hypothesis import strategies as st

from storagegate.s3.auth.sigv4 import formatAmzDate, parseAmzDate
from storagegate.s3.conditions import (
    NotModified,
    evaluateCopySource,
    evaluateRead,
    rangeApplies,
)
from tests.s3.examples import S3Case

ETAG = "d41d8cd98f00b204e9800998ecf8427e"
MODIFIED = 1_000_000_000_999
BEFORE, SAME, AFTER = (formatdate(1_000_000_000 + s, usegmt=True).encode() for s in (-1, 0, 1))
QUOTED = f'"{ETAG}"'.encode()
OTHER = b'"other"'


def read(**conditions: bytes) -> None:
    """Evaluate conditions: C{if_match} is C{If-Match}."""
    headers = {name.replace("_", "-").encode(): value for name, value in conditions.items()}
    evaluateRead(headers, ETAG, MODIFIED)


def copy(**conditions: bytes) -> None:
    """Evaluate conditions on the source of a copy."""
    headers = {
        b"x-amz-copy-source-" + name.replace("_", "-").encode(): value
        for name, value in conditions.items()
    }
    evaluateCopySource(headers, ETAG, MODIFIED)


class ReadTests(S3Case):
    """Conditions of GET and HEAD."""

    def failed(self, condition: str, **conditions: bytes) -> None:
        """Assert a 412 that names its condition."""
        error = self.refused("PreconditionFailed", 412, lambda: read(**conditions))
        self.assertEqual(error.fields, {"Condition": condition})

    def notModified(self, **conditions: bytes) -> None:
        """Assert a 304."""
        self.assertRaises(NotModified, lambda: read(**conditions))

    def test_none(self) -> None:
        """Without conditions the object is sent."""
        read()

    def test_ifMatch(self) -> None:
        """The object is sent if its tag is in the list."""
        for value in (QUOTED, ETAG.encode(), b"*", OTHER + b" , " + QUOTED):
            read(if_match=value)
        for value in (OTHER, b"", QUOTED.upper(), b"W/" + QUOTED):
            self.failed("If-Match", if_match=value)

    def test_ifNoneMatch(self) -> None:
        """The object is sent if its tag is not in the list; weak tags count."""
        for value in (QUOTED, ETAG.encode(), b"*", OTHER + b"," + QUOTED, b"W/" + QUOTED):
            self.notModified(if_none_match=value)
        for value in (OTHER, b"", b'W/"other"'):
            read(if_none_match=value)

    def test_dates(self) -> None:
        """Dates count whole seconds, as C{Last-Modified} does."""
        read(if_modified_since=BEFORE)
        self.notModified(if_modified_since=SAME)
        self.notModified(if_modified_since=AFTER)
        self.failed("If-Unmodified-Since", if_unmodified_since=BEFORE)
        read(if_unmodified_since=SAME)
        read(if_unmodified_since=AFTER)

    def test_invalidDates(self) -> None:
        """A date that cannot be read is no condition."""
        for value in (b"", b"yesterday", b"1000000000"):
            read(if_modified_since=value, if_unmodified_since=value)

    def test_precedence(self) -> None:
        """Tags go before dates."""
        read(if_match=QUOTED, if_unmodified_since=BEFORE)
        self.failed("If-Match", if_match=OTHER, if_unmodified_since=AFTER)
        self.notModified(if_none_match=QUOTED, if_modified_since=BEFORE)
        read(if_none_match=OTHER, if_modified_since=AFTER)
        self.failed("If-Match", if_match=OTHER, if_none_match=QUOTED)
        self.notModified(if_match=QUOTED, if_none_match=QUOTED)


class CopySourceTests(S3Case):
    """Conditions on the source of a copy."""

    def test_holds(self) -> None:
        """A source that meets its conditions is copied."""
        copy()
        copy(if_match=QUOTED, if_unmodified_since=BEFORE)
        copy(if_none_match=OTHER, if_modified_since=AFTER)

    def test_fails(self) -> None:
        """All that does not hold is a 412, and there is no 304."""
        for condition, value in (
            ("if_match", OTHER),
            ("if_none_match", QUOTED),
            ("if_modified_since", SAME),
            ("if_unmodified_since", BEFORE),
        ):
            error = self.refused(
                "PreconditionFailed", 412, lambda c=condition, v=value: copy(**{c: v})
            )
            name = "x-amz-copy-source-" + condition.replace("_", "-")
            self.assertEqual(error.fields["Condition"].lower(), name)
        both = {"if_none_match": QUOTED, "if_modified_since": BEFORE}
        self.refused("PreconditionFailed", 412, lambda: copy(**both))

    def test_otherHeaders(self) -> None:
        """Conditions on the target are not those on the source."""
        evaluateCopySource({b"if-match": OTHER}, ETAG, MODIFIED)
        evaluateRead({b"x-amz-copy-source-if-match": OTHER}, ETAG, MODIFIED)


class RangeTests(S3Case):
    """C{If-Range}."""

    def test_holds(self) -> None:
        """A strong tag or the very date lets the range count; all else asks for the whole."""
        date = formatdate(MODIFIED // 1000, usegmt=True).encode()
        earlier = formatdate(MODIFIED // 1000 - 1, usegmt=True).encode()
        quoted = b'"%b"' % ETAG.encode()
        self.assertTrue(rangeApplies({}, ETAG, MODIFIED))
        for value in (quoted, ETAG.encode(), date):
            self.assertTrue(rangeApplies({b"if-range": value}, ETAG, MODIFIED), value)
        for value in (
            b'"other"',
            b"W/" + quoted,
            earlier,
            b"*",
            b"",
            b"yesterday",
            b'"other", ' + quoted,
        ):
            self.assertFalse(rangeApplies({b"if-range": value}, ETAG, MODIFIED), value)

    def test_recent(self) -> None:
        """The date of an object that was just written could be that of two."""
        nowMs = int(time() * 1000)
        for agoMs, holds in ((0, False), (5_000, False), (3600_000, True)):
            modified = nowMs - agoMs
            value = formatdate(modified // 1000, usegmt=True).encode()
            self.assertIs(rangeApplies({b"if-range": value}, ETAG, modified), holds, agoMs)


class DateTests(S3Case):
    """Amazon's dates."""

    def test_notDates(self) -> None:
        """Dates that cannot be, and other ways to write one, are none."""
        for text in ("", "20130524T000000", "2013052٤T000000Z", "20130532T000000Z", "x" * 16):
            self.assertIsNone(parseAmzDate(text), text)

    @given(st.integers(0, 4_000_000_000))
    def test_roundTrip(self, seconds: int) -> None:
        """What is written is read again."""
        self.assertEqual(parseAmzDate(formatAmzDate(seconds)), seconds)
