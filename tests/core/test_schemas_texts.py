"""Texts of queries and paths, converted by a schema."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
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
        "perhaps": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "flags": {"anyOf": [{"type": "array", "items": {"type": "boolean"}}, {"type": "null"}]},
        "both": {"type": ["integer", "boolean"]},
        "either": {"anyOf": [{"type": "integer"}, {"enum": ["x"]}]},
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
            self.assertRefused({"page": text}, "page", "must be an integer")
        for text in ("NaN", "Infinity", ".5", "1.", "1e1000", "-1e999"):
            self.assertRefused({"ratio": text}, "ratio", "must be a number")

    def test_others(self) -> None:
        """Truth values are two words or digits, a list may be one value, text stays what it is."""
        for text in ("true", "TRUE", "True", "1"):
            self.assertRead("all", text, True)
        for text in ("false", "False", "FALSE", "0"):
            self.assertRead("all", text, False)
        for text in ("on", "01", "", " true", "tr\u00fce"):
            self.assertRefused({"all": text}, "all", "must be true, false, 1 or 0")
        self.assertRead("ids", "5", [5])
        self.assertRead("page", ["1", "2"], ["1", "2"])
        for name in ("name", "anything", "always", "unknown"):
            self.assertRead(name, "1", "1")

    def assertRefused(self, values: Any, path: str, message: str) -> None:
        """Check the error of a text that does not parse."""
        error = self.assertRaises(ServiceError, convertTexts, values, SCHEMA)
        self.assertEqual(error.details, [{"path": path, "message": message}])
        self.assertEqual(error.message, f"{path} {message}")

    def test_refused(self) -> None:
        """The error of a text that does not parse names the texts that would."""
        flag, whole = "must be true, false, 1 or 0", "must be an integer"
        self.assertRefused({"all": "yes"}, "all", flag)
        self.assertRefused({"perhaps": "2"}, "perhaps", flag)
        self.assertRefused({"page": "1.5"}, "page", whole)
        self.assertRefused({"maybe": "x"}, "maybe", whole)
        self.assertRefused({"ratio": "x"}, "ratio", "must be a number")
        self.assertRefused({"ids": ["5", "x"]}, "ids[1]", whole)
        self.assertRefused({"flags": ["TRUE", "x"]}, "flags[1]", flag)
        both = "must be an integer or true, false, 1 or 0"
        self.assertRefused({"both": "x"}, "both", both)
        fits = {"all": "1", "perhaps": "TRUE", "flags": "0", "either": "x", "anything": "x"}
        wanted = {"all": True, "perhaps": True, "flags": [False], "either": "x", "anything": "x"}
        self.assertEqual(convertTexts(fits, SCHEMA), wanted)

    @long("takes a second or more")
    @given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), st.text(max_size=20)))  # type: ignore[arg-type]
    def test_any(self, values: dict[str, str]) -> None:
        """Whatever came, all of it is there afterwards, or the error names one of the texts."""
        try:
            self.assertEqual(convertTexts(values, SCHEMA).keys(), values.keys())
        except ServiceError as error:
            self.assertIn(error.details[0]["path"].partition("[")[0], values)
        self.assertEqual(convertTexts(values, None), values)
