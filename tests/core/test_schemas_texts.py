"""Texts of queries and paths, converted by a schema."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.schemas import convertTexts
from tests.support.selection import long

SCHEMA = {
    "type": "object",
    "properties": {
        "page": {"type": "integer"},
        "ratio": {"type": "number"},
        "all": {"type": "boolean"},
        "name": {"type": "string"},
        "maybe": {"type": ["integer", "null"]},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "anything": {},
        "always": True,
    },
}


class TextTests(SynchronousTestCase):
    """convertTexts."""

    def assertRead(self, name: str, text: Any, expected: Any) -> None:
        """Hold one value against what is expected, its type included."""
        value = convertTexts({name: text}, SCHEMA)[name]
        self.assertEqual((value, type(value)), (expected, type(expected)))

    def test_numbers(self) -> None:
        """Numbers are those of JSON."""
        self.assertRead("page", "-12", -12)
        self.assertRead("maybe", "0", 0)
        self.assertRead("ratio", "2", 2)
        self.assertRead("ratio", "-2.5e3", -2500.0)
        for text in ("1_0", "+1", " 1", "01", "1.0", "", "\u0661", "9" * 41, "0x1"):
            self.assertRead("page", text, text)
        for text in ("NaN", "Infinity", ".5", "1.", "1e1000", "-1e999"):
            self.assertRead("ratio", text, text)

    def test_others(self) -> None:
        """Truth values are two words, a list may come as one value, text stays what it is."""
        self.assertRead("all", "false", False)
        self.assertRead("all", "yes", "yes")
        self.assertRead("ids", "5", [5])
        self.assertRead("ids", ["5", "x"], [5, "x"])
        self.assertRead("page", ["1", "2"], ["1", "2"])
        for name in ("name", "anything", "always", "unknown"):
            self.assertRead(name, "1", "1")

    @long("takes a second or more")
    @given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), st.text(max_size=20)))  # type: ignore[arg-type]
    def test_any(self, values: dict[str, str]) -> None:
        """Whatever came, all of it is there afterwards, and nothing fails."""
        self.assertEqual(convertTexts(values, SCHEMA).keys(), values.keys())
        self.assertEqual(convertTexts(values, None), values)
