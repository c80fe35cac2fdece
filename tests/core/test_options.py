"""Readings of options' values, and changes of options."""

from typing import Any

from attrs import field, frozen
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import (
    MERGED,
    OptionError,
    changeOptions,
    makeOptions,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
    readWord,
)


def _small(value: Any) -> int:
    return readNumber(value, 1, 9)


def _same(value: Any) -> Any:
    return value


@frozen(kw_only=True)
class _Parts:
    one: int = field(default=1, converter=_small)
    two: int = field(default=2, converter=_small)


@frozen(kw_only=True)
class _Whole:
    number: int = field(default=5, converter=_small)
    parts: Any = field(factory=_Parts, converter=_same, metadata={MERGED: True})


@frozen(kw_only=True)
class _Needy:
    needed: int = field(converter=_small)
    other: int = field(default=1, converter=_small)

    def __attrs_post_init__(self) -> None:
        if self.other > self.needed:
            raise OptionError("other is not more than needed")


class ReadingTests(SynchronousTestCase):
    """One value."""

    def test_good(self) -> None:
        """What a reader takes, it gives back as the value that it stands for."""
        for read, given, expected in [
            (readFlag, True, True),
            (readFlag, False, False),
            (readPort, 0, 0),
            (readPort, 65535, 65535),
            (readHostname, "::1", "::1"),
            (readSize, "1.5kb", 1536),
            (readSize, 0, 0),
            (_small, 9, 9),
        ]:
            self.assertEqual(read(given), expected)
        self.assertEqual(readWord("b", ("a", "b")), "b")

    def test_bad(self) -> None:
        """Whatever is only like a value is refused, with the end of a sentence that says more."""
        for read, given, problem in [
            (readFlag, 1, "is True or False"),
            (readFlag, "yes", "is True or False"),
            (readPort, True, "is a number from 0 to 65535"),
            (readPort, "80", "is a number from 0 to 65535"),
            (readPort, 65536, "is a number from 0 to 65535"),
            (readHostname, "", "is the name or address of an interface"),
            (readHostname, b"x", "is the name or address of an interface"),
            (readSize, "much", 'is a size such as "10mb"'),
            (readSize, 1.5, 'is a size such as "10mb"'),
            (readSize, None, 'is a size such as "10mb"'),
            (_small, 0, "is a number from 1 to 9"),
            (_small, 5.0, "is a number from 1 to 9"),
        ]:
            error = self.assertRaises(ValueError, read, given)
            self.assertEqual(str(error), problem)
        error = self.assertRaises(ValueError, readNumber, -1, 0, 5, "milliseconds")
        self.assertEqual(str(error), "is a number of milliseconds from 0 to 5")
        error = self.assertRaises(ValueError, readWord, "d", ("a", "b", "c"))
        self.assertEqual(str(error), 'is "a", "b" or "c"')
        self.assertRaises(ValueError, readWord, ["a"], ("a", "b"))


class ChangeTests(SynchronousTestCase):
    """Options with defaults."""

    def test_change(self) -> None:
        """What is not named stays, and what was before is not touched."""
        before = _Whole()
        changed = changeOptions(changeOptions(before, {"number": 7}), {})
        self.assertEqual((changed.number, before.number), (7, 5))

    def test_merged(self) -> None:
        """Parts that are given twice are merged where the field says so."""
        changed = changeOptions(_Whole(), {"parts": {"one": 8}})
        changed = changeOptions(changed, {"parts": {"two": 9}})
        self.assertEqual(changed.parts, _Parts(one=8, two=9))

    def test_wrong(self) -> None:
        """An error has the whole name of the option."""
        for changes, problem in [
            ({"x": 1}, "there is no option x; there are ['number', 'parts']"),
            ({"number": 0}, "the option number is a number from 1 to 9"),
            ({"parts": {"x": 1}}, "there is no option parts.x; there are ['one', 'two']"),
            ({"parts": {"two": 10}}, "the option parts.two is a number from 1 to 9"),
        ]:
            error = self.assertRaises(OptionError, changeOptions, _Whole(), changes)
            self.assertEqual(str(error), problem)


class MakeTests(SynchronousTestCase):
    """Options that need something."""

    def test_atOnce(self) -> None:
        """Options that are only good together may be given in any order."""
        for given in ({"other": 3, "needed": 4}, {"needed": 4, "other": 3}):
            self.assertEqual(makeOptions(_Needy, given), _Needy(needed=4, other=3))

    def test_wrong(self) -> None:
        """What is missing, unknown or no value is named."""
        for given, problem in [
            ({}, "the option p.needed is missing"),
            ({"needed": 1, "x": 1}, "there is no option p.x; there are ['needed', 'other']"),
            ({"needed": "1"}, "the option p.needed is a number from 1 to 9"),
            ({"needed": 1, "other": 2}, "other is not more than needed"),
        ]:
            error = self.assertRaises(OptionError, makeOptions, _Needy, given, "p.")
            self.assertEqual(str(error), problem)
