"""Dates of HTTP."""

from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.ranges import changedSince, formatHttpDate, parseHttpDate


class DateTests(SynchronousTestCase):
    """Dates in headers."""

    def test_threeForms(self) -> None:
        """RFC 9110's example is one moment in all its forms."""
        for value in (
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sunday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
            b" Sun, 06 Nov 1994 08:49:37 GMT ",
        ):
            self.assertEqual(parseHttpDate(value), 784111777, value)
        self.assertEqual(parseHttpDate(b"Wednesday, 08-Nov-23 00:00:00 GMT"), 1699401600)

    def test_notDates(self) -> None:
        """Dates that cannot be, and other ways to write one, are none."""
        for value in (
            b"",
            b"Sun, 06 Nov 1994 08:49:37",
            b"Sun, 06 Nov 1994 08:49:37 +0000",
            b"Sun, 6 Nov 1994 08:49:37 GMT",
            b"Sun, 31 Feb 1994 08:49:37 GMT",
            b"Sun, 06 Nov 1994 24:00:00 GMT",
            b"Sun, 06 Nov 0000 00:00:00 GMT",
            b"1994-11-06T08:49:37Z",
            b"784111777",
            b"Sun, 06 Nov 1994 08:49:37 GMT" * 1000,
        ):
            self.assertIsNone(parseHttpDate(value), value)

    @given(st.integers(0, 4_000_000_000))
    def test_roundTrip(self, seconds: int) -> None:
        """What is written is read again, by others too."""
        written = formatHttpDate(seconds)
        self.assertEqual(parseHttpDate(written), seconds)
        self.assertEqual(
            parsedate_to_datetime(written.decode()), datetime.fromtimestamp(seconds, UTC)
        )

    def test_changedSince(self) -> None:
        """What is as old as the date has not changed since; no date is no condition."""
        date = formatdate(1_000_000_000, usegmt=True).encode()
        self.assertIs(changedSince(date, 1_000_000_001), True)
        self.assertIs(changedSince(date, 1_000_000_000), False)
        self.assertIs(changedSince(date, 999_999_999), False)
        for value in (None, b"", b"yesterday"):
            self.assertIsNone(changedSince(value, 1_000_000_000))
