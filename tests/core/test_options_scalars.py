"""Numbers and sizes from outside are read strictly."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import parseAge, parseDecimal, parseSize


class DecimalTests(SynchronousTestCase):
    """Whole numbers."""

    def test_digitsOnly(self) -> None:
        """What Python's own C{int} takes beyond ASCII digits is refused."""
        for text in ("", "+1", "-1", " 1", "1 ", "1_0", "0x1", "1.0", "1e3", "\u0661", "1\n"):
            self.assertRaises(ValueError, parseDecimal, text, 1000)

    def test_maximum(self) -> None:
        """The largest number is allowed, the next is not; zeros in front do not count."""
        self.assertEqual(parseDecimal("1000", 1000), 1000)
        self.assertEqual(parseDecimal(b"0001000", 1000), 1000)
        self.assertRaises(ValueError, parseDecimal, "1001", 1000)
        self.assertRaises(ValueError, parseDecimal, "9" * 1_000_000, 1000)

    def test_bytes(self) -> None:
        """Bytes that are no ASCII are refused, not an error of decoding."""
        self.assertRaises(ValueError, parseDecimal, b"\xb2", 1000)

    @given(st.integers(min_value=0, max_value=1 << 64), st.integers(min_value=0, max_value=1 << 64))
    def test_everyNumber(self, number: int, maximum: int) -> None:
        """Every number up to the maximum comes back, every other is refused."""
        if number <= maximum:
            self.assertEqual(parseDecimal(str(number), maximum), number)
        else:
            self.assertRaises(ValueError, parseDecimal, str(number), maximum)

    @given(st.text())
    def test_anyText(self, text: str) -> None:
        """Any other text is a C{ValueError} and nothing else."""
        try:
            number = parseDecimal(text, 1 << 64)
        except ValueError:
            return
        self.assertEqual(str(number), text.lstrip("0") or "0")


class SizeTests(SynchronousTestCase):
    """Sizes."""

    def test_sizes(self) -> None:
        """Numbers are bytes; units are 1024-based, in either case, with or without a space."""
        for value, size in (
            (0, 0),
            (5, 5),
            ("5", 5),
            ("1kb", 1024),
            ("10 MB", 10 << 20),
            ("1.5gb", 3 << 29),
            ("2tb", 2 << 40),
            ("7b", 7),
        ):
            self.assertEqual(parseSize(value), size)

    def test_refused(self) -> None:
        """What is no size is refused."""
        for value in (-1, True, "", "x", "-1", "1pb", "1.2345kb", "1,5kb", "\u0661", "1kb2"):
            self.assertRaises(ValueError, parseSize, value)


class AgeTests(SynchronousTestCase):
    """Ages."""

    def test_ages(self) -> None:
        """Numbers are milliseconds; units have short and long names, in either case."""
        day = 24 * 60 * 60 * 1000
        for value, age in (
            (0, 0),
            (5, 5),
            (1.9, 1),
            ("500", 500),
            ("20ms", 20),
            ("10s", 10_000),
            ("2 minutes", 120_000),
            ("1.5h", 5_400_000),
            ("1d", day),
            ("1 Day", day),
            ("2w", 14 * day),
            ("1y", 365 * day + day // 4),
        ):
            self.assertEqual(parseAge(value), age, value)

    def test_refused(self) -> None:
        """What is no age is refused."""
        nan, inf = float("nan"), float("inf")
        for value in (-1, -0.5, nan, inf, True, None, "", "d", "-1d", "1 moon", "1d1h", "\u0661d"):
            self.assertRaises(ValueError, parseAge, value)
