"""Times on the wire."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.ranges import formatHttpDate
from storagegate.objects.dates import isoSeconds, isoTimestamp

# From 1970 to 9999.
MOMENTS = st.integers(0, 253402300799999)


class TimestampTests(SynchronousTestCase):
    """Both forms name the same second."""

    def test_written(self) -> None:
        """The forms are S3's; fractions of a second are cut off, never rounded up."""
        self.assertEqual(isoTimestamp(1767225600000), "2026-01-01T00:00:00.000Z")
        self.assertEqual(isoTimestamp(1767225599999), "2025-12-31T23:59:59.000Z")
        self.assertEqual(isoSeconds(1767225599), "2025-12-31T23:59:59Z")
        self.assertEqual(formatHttpDate(1767225600), b"Thu, 01 Jan 2026 00:00:00 GMT")
        self.assertEqual(formatHttpDate(1767225599), b"Wed, 31 Dec 2025 23:59:59 GMT")

    @given(MOMENTS)
    def test_readBack(self, ms: int) -> None:
        """The standard library reads both forms as the second they were made of."""
        moment = datetime.fromtimestamp(ms // 1000, UTC)
        self.assertEqual(datetime.fromisoformat(isoTimestamp(ms)), moment)
        self.assertEqual(parsedate_to_datetime(formatHttpDate(ms // 1000).decode()), moment)
