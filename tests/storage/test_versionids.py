"""The public ids of versions."""

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.urlnames import decodeName, encodeName
from storagegate.storage.errors import InvalidVersionId
from storagegate.storage.versionids import VersionIds

IDS = VersionIds(b"s" * 32)
SEQUENCES = st.integers(0, (1 << 64) - 1)


class VersionIdTests(SynchronousTestCase):
    """L{VersionIds}."""

    @given(SEQUENCES)
    def test_roundTrip(self, sequence: int) -> None:
        """An id is short, safe in a URL, and read back by its own store alone."""
        made = IDS.make(sequence)
        self.assertRegex(made, re.compile(r"^[A-Za-z0-9_.][A-Za-z0-9_-]{31}$"))
        self.assertEqual(IDS.read(made), sequence)
        self.assertEqual(IDS.make(sequence), made)
        self.assertRaises(InvalidVersionId, VersionIds(b"t" * 32).read, made)

    def test_null(self) -> None:
        """C{null} has no number."""
        self.assertIsNone(IDS.read("null"))

    @given(SEQUENCES, st.integers(0, 191))
    def test_noOtherBit(self, sequence: int, bit: int) -> None:
        """An id with one bit changed is none."""
        raw = bytearray(decodeName(IDS.make(sequence)))
        raw[bit // 8] ^= 1 << bit % 8
        self.assertRaises(InvalidVersionId, IDS.read, encodeName(raw))

    @given(st.text(max_size=70))
    def test_malformed(self, text: str) -> None:
        """No text that a client makes up is an id."""
        if text != "null":
            self.assertRaises(InvalidVersionId, IDS.read, text)

    def test_otherAlphabet(self) -> None:
        """The same bytes written otherwise are no id."""
        made = next(each for each in map(IDS.make, range(100)) if "-" in each)
        for text in (made.replace("-", "+"), made + "=", made + "\n", " " + made[1:], "Null", ""):
            self.assertRaises(InvalidVersionId, IDS.read, text)

    def test_hyphen(self) -> None:
        """No id begins with a hyphen, as an option does; ids of earlier releases may."""
        made = list(map(IDS.make, range(1000)))
        dotted = [number for number, each in enumerate(made) if each.startswith(".")]
        self.assertTrue(dotted)
        for each in made:
            self.assertFalse(each.startswith("-"))
            self.assertNotIn(".", each[1:])
        for number in dotted:
            self.assertEqual(IDS.read(f"-{made[number][1:]}"), number)
        self.assertRaises(InvalidVersionId, IDS.read, f"_{made[dotted[0]][1:]}")

    def test_tellsNothing(self) -> None:
        """Ids of successive writes have nothing in common, and no order."""
        made = [IDS.make(number) for number in range(1, 1000)]
        self.assertNotEqual(made, sorted(made))
        self.assertGreater(len({each[:2] for each in made}), 700)
