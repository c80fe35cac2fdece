"""Moments are RFC 3339 strings, lengths of time are seconds with an s."""

import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

from storagegate.rpc.codec import MessageCodec
from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import codec, messageClass

KNOWN, MOMENT = codec("kinds.Known"), codec("google.protobuf.Timestamp")
LENGTH = codec("google.protobuf.Duration")


class Aimless(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, moment: datetime | None) -> None:
        """Give none."""


class TimestampTests(ConversionCase):
    """Moments."""

    def test_bothWays(self) -> None:
        """A fraction has as many digits as it needs, three, six or nine."""
        for text, seconds, nanos in (
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-01-02T03:04:05Z", 1767323045, 0),
            ("2026-01-02T03:04:05.500Z", 1767323045, 500_000_000),
            ("2026-01-02T03:04:05.000001Z", 1767323045, 1_000),
            ("2026-01-02T03:04:05.000000001Z", 1767323045, 1),
            ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
            ("2024-02-29T00:00:00Z", 1709164800, 0),
            ("0001-01-01T00:00:00Z", -62135596800, 0),
            ("9999-12-31T23:59:59.999999999Z", 253402300799, 999_999_999),
        ):
            moment = messageClass("google.protobuf.Timestamp")(seconds=seconds, nanos=nanos)
            self.assertBothWays(KNOWN, {"createdAt": text}, {"created_at": moment})
            self.assertBothWays(MOMENT, text, {"seconds": seconds, "nanos": nanos})

    def test_otherTexts(self) -> None:
        """Offsets and any number of digits are read; the answer is in UTC."""
        for text, expected in (
            ("2026-01-02T03:04:05+01:30", "2026-01-02T01:34:05Z"),
            ("2026-01-02T03:04:05.25-23:59", "2026-01-03T03:03:05.250Z"),
            ("2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.0Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05.123456700Z"),
            ("0001-01-01T00:00:00-01:00", "0001-01-01T01:00:00Z"),
        ):
            self.assertEqual(MOMENT.decode(MOMENT.encode(text)), expected)

    def test_datetimes(self) -> None:
        """A datetime with a zone is a moment."""
        for value, expected in (
            (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
            (datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC), "2026-01-02T03:04:05.000001Z"),
            (datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T22:00:00Z"),
            (
                datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                "1969-12-31T23:59:59.999999Z",
            ),
            (datetime.min.replace(tzinfo=UTC), "0001-01-01T00:00:00Z"),
            (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
        ):
            decoded = KNOWN.decode(KNOWN.encode({"createdAt": value}))
            self.assertEqual(decoded, {"createdAt": expected})

    def test_naive(self) -> None:
        """A datetime without a zone is refused, unless it is said to be in UTC."""
        taking = MessageCodec(KNOWN.messageClass, takesNaive=True)
        reason = 'is a datetime without a zone; naive="utc" takes it as UTC'
        for zone in (None, Aimless()):
            value = {"createdAt": datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)}
            self.assertRefused(KNOWN, value, "createdAt", reason)
            decoded = taking.decode(taking.encode(value))
            self.assertEqual(decoded, {"createdAt": "2026-01-02T03:04:05Z"})
        zoned = {"createdAt": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))}
        self.assertEqual(taking.encode(zoned), KNOWN.encode(zoned))

    def test_refused(self) -> None:
        """What is no moment is refused."""
        form = "is a moment such as 2026-01-02T03:04:05Z, not"
        day = "is an existing date and time, not"
        years = "is a moment in the years 1 to 9999, not"
        cases: tuple[tuple[Any, str], ...] = (
            ("", f"{form} ''"),
            ("2026-01-02", f"{form} '2026-01-02'"),
            ("2026-01-02T03:04:05", f"{form} '2026-01-02T03:04:05'"),
            ("2026-01-02 03:04:05Z", f"{form} '2026-01-02 03:04:05Z'"),
            ("2026-01-02t03:04:05z", f"{form} '2026-01-02t03:04:05z'"),
            ("2026-01-02T03:04:05Z\n", f"{form} '2026-01-02T03:04:05Z\\n'"),
            ("2026-01-02T03:04:05.Z", f"{form} '2026-01-02T03:04:05.Z'"),
            ("2026-01-02T03:04:05,5Z", f"{form} '2026-01-02T03:04:05,5Z'"),
            ("2026-01-02T24:00:00Z", f"{form} '2026-01-02T24:00:00Z'"),
            ("2026-01-02T03:04:05+24:00", f"{form} '2026-01-02T03:04:05+24:00'"),
            ("2026-01-02T03:04:05+0100", f"{form} '2026-01-02T03:04:05+0100'"),
            ("2026-01-02T03:04:05.1234567890Z", f"{form} '2026-01-02T03:04:05.1234567890Z'"),
            ("\u0662026-01-02T03:04:05Z", f"{form} '\u0662026-01-02T03:04:05Z'"),
            ("2026-02-29T03:04:05Z", f"{day} '2026-02-29T03:04:05Z'"),
            ("2026-13-01T03:04:05Z", f"{day} '2026-13-01T03:04:05Z'"),
            ("2026-01-02T03:60:05Z", f"{day} '2026-01-02T03:60:05Z'"),
            ("2026-12-31T23:59:60Z", f"{day} '2026-12-31T23:59:60Z'"),
            ("0000-01-01T00:00:00Z", f"{day} '0000-01-01T00:00:00Z'"),
            ("0001-01-01T00:00:00+00:01", f"{years} '0001-01-01T00:00:00+00:01'"),
            ("9999-12-31T23:59:59-00:01", f"{years} '9999-12-31T23:59:59-00:01'"),
            (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), f"{years} a datetime"),
            (date(2026, 1, 2), f"{form} a date"),
            (1767323045, f"{form} 1767323045"),
            ({"seconds": 5}, f"{form} a dict"),
            (True, f"{form} True"),
        )
        for value, reason in cases:
            self.assertRefused(KNOWN, {"createdAt": value}, "createdAt", reason)

    def test_unreadable(self) -> None:
        """A message that is no moment has no form."""
        for seconds, nanos in ((-62135596801, 0), (253402300800, 0), (0, -1), (0, 10**9)):
            moment = messageClass("google.protobuf.Timestamp")(seconds=seconds, nanos=nanos)
            reason = "is not a moment in the years 1 to 9999"
            wire = KNOWN.messageClass(created_at=moment)
            self.assertUnreadable(KNOWN, wire, "createdAt", reason)
            lists = codec("kinds.Lists").messageClass
            wire = lists(moments=[messageClass("google.protobuf.Timestamp")(), moment])
            self.assertUnreadable(codec("kinds.Lists"), wire, "moments[1]", reason)


class DurationTests(ConversionCase):
    """Lengths of time."""

    def test_bothWays(self) -> None:
        """They are seconds, with three, six or nine digits after the point if with any."""
        for text, seconds, nanos in (
            ("0s", 0, 0),
            ("1s", 1, 0),
            ("1.500s", 1, 500_000_000),
            ("-1.500s", -1, -500_000_000),
            ("-0.000001s", 0, -1_000),
            ("0.000000001s", 0, 1),
            ("315576000000.999999999s", 315576000000, 999_999_999),
            ("-315576000000s", -315576000000, 0),
        ):
            length = messageClass("google.protobuf.Duration")(seconds=seconds, nanos=nanos)
            self.assertBothWays(KNOWN, {"howLong": text}, {"how_long": length})
            self.assertBothWays(LENGTH, text, {"seconds": seconds, "nanos": nanos})

    def test_others(self) -> None:
        """Other numbers of digits, numbers of seconds and timedeltas will do."""
        for value, expected in (
            ("1.5s", "1.500s"),
            ("-0.5s", "-0.500s"),
            ("01s", "1s"),
            (0, "0s"),
            (90, "90s"),
            (-2, "-2s"),
            (1.5, "1.500s"),
            (-0.25, "-0.250s"),
            (0.1, "0.100s"),
            (0.9999999999, "1s"),
            (1e-12, "0s"),
            (timedelta(days=1, microseconds=1), "86400.000001s"),
            (timedelta(milliseconds=-1), "-0.001s"),
            (timedelta(seconds=-1, milliseconds=-500), "-1.500s"),
        ):
            self.assertEqual(LENGTH.decode(LENGTH.encode(value)), expected, value)

    def test_refused(self) -> None:
        """What is no length is refused."""
        form = "is a length of time such as 1.5s, not"
        years = "is a length of time up to 10,000 years, not"
        cases: tuple[tuple[Any, str], ...] = (
            ("", f"{form} ''"),
            ("1", f"{form} '1'"),
            ("1.s", f"{form} '1.s'"),
            (".5s", f"{form} '.5s'"),
            ("+1s", f"{form} '+1s'"),
            (" 1s", f"{form} ' 1s'"),
            ("1_0s", f"{form} '1_0s'"),
            ("1S", f"{form} '1S'"),
            ("1e3s", f"{form} '1e3s'"),
            ("1s\n", f"{form} '1s\\n'"),
            ("0.0000000001s", f"{form} '0.0000000001s'"),
            (math.nan, f"{form} nan"),
            (math.inf, f"{form} inf"),
            (True, f"{form} True"),
            ({}, f"{form} a dict"),
            ("315576000001s", f"{years} '315576000001s'"),
            (-315576000001, f"{years} -315576000001"),
            (1e300, f"{years} 1e+300"),
        )
        for value, reason in cases:
            self.assertRefused(KNOWN, {"howLong": value}, "howLong", reason)

    def test_unreadable(self) -> None:
        """A message whose parts contradict each other has no form."""
        for seconds, nanos in ((1, -1), (-1, 1), (0, 10**9), (0, -(10**9)), (315576000001, 0)):
            length = messageClass("google.protobuf.Duration")(seconds=seconds, nanos=nanos)
            reason = "is not a length of time up to 10,000 years"
            self.assertUnreadable(KNOWN, KNOWN.messageClass(how_long=length), "howLong", reason)
