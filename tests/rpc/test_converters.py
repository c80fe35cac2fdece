"""What a field of each kind takes and gives, alone, in lists and in maps."""

import math
from enum import IntEnum, StrEnum
from typing import Any

from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import codec, messageClass

SCALARS, LISTS, MAPS = codec("kinds.Scalars"), codec("kinds.Lists"), codec("kinds.Maps")
RANGES = {
    "int32Field": (-(1 << 31), (1 << 31) - 1),
    "sint32Field": (-(1 << 31), (1 << 31) - 1),
    "sfixed32Field": (-(1 << 31), (1 << 31) - 1),
    "uint32Field": (0, (1 << 32) - 1),
    "fixed32Field": (0, (1 << 32) - 1),
    "int64Field": (-(1 << 63), (1 << 63) - 1),
    "sint64Field": (-(1 << 63), (1 << 63) - 1),
    "sfixed64Field": (-(1 << 63), (1 << 63) - 1),
    "uint64Field": (0, (1 << 64) - 1),
    "fixed64Field": (0, (1 << 64) - 1),
}


class Text(StrEnum):
    """Strings with names."""

    A = "a"


class Number(IntEnum):
    """Numbers with names."""

    FIVE = 5


class ScalarTests(ConversionCase):
    """One value a field."""

    def test_bothWays(self) -> None:
        """Each kind is what Python has for it."""
        for name, value, wire in (
            ("float_field", 1.5, 1.5),
            ("float_field", math.inf, math.inf),
            ("double_field", 0.1, 0.1),
            ("double_field", -math.inf, -math.inf),
            ("bool_field", True, True),
            ("string_field", "\u00e4\U0001f600\x00", "\u00e4\U0001f600\x00"),
            ("bytes_field", b"\x00\xff", b"\x00\xff"),
            ("color_field", "GREEN", 1),
            ("color_field", "MINUS", -3),
            ("color_field", 77, 77),
            ("color_field", -(1 << 31), -(1 << 31)),
        ):
            key = SCALARS.messageClass.DESCRIPTOR.fields_by_name[name].json_name
            self.assertBothWays(SCALARS, {key: value}, {name: wire})

    def test_ranges(self) -> None:
        """An integer of any width is an int; one beyond its field's range is refused."""
        for field in SCALARS.messageClass.DESCRIPTOR.fields[:10]:
            low, high = RANGES[field.json_name]
            for number in {low or 1, high, 1}:
                self.assertBothWays(SCALARS, {field.json_name: number}, {field.name: number})
            for number in (low - 1, high + 1):
                reason = f"is a whole number from {low} to {high}, not {number}"
                self.assertRefused(SCALARS, {field.json_name: number}, field.json_name, reason)

    def test_integers(self) -> None:
        """A float without a fraction is an integer, as in JSON; what else looks like one is not."""
        for value, expected in ((5.0, 5), (-0.0, 0), (1e9, 10**9), (Number.FIVE, 5)):
            self.assertEqual(SCALARS.toMessage({"int32Field": value}).int32_field, expected)  # type: ignore[attr-defined]
        for value, shown in (
            (True, "True"),
            ("5", "'5'"),
            (1.5, "1.5"),
            (math.nan, "nan"),
            (math.inf, "inf"),
            (1e300, "1e+300"),
            (b"5", "b'5'"),
            ([5], "a list"),
            ({}, "a dict"),
            (5j, "a complex"),
            (10**5000, "a number of 16610 bits"),
        ):
            for key in ("int32Field", "uint64Field"):
                low, high = RANGES[key]
                reason = f"is a whole number from {low} to {high}, not {shown}"
                self.assertRefused(SCALARS, {key: value}, key, reason)

    def test_floats(self) -> None:
        """Floating point fields take ints and floats, infinity and what is no number."""
        for key in ("floatField", "doubleField"):
            self.assertEqual(SCALARS.decode(SCALARS.encode({key: 3})), {key: 3.0})
            decoded = SCALARS.decode(SCALARS.encode({key: math.nan}))
            self.assertTrue(math.isnan(decoded[key]))
            for value, shown in ((True, "True"), ("1", "'1'"), ("NaN", "'NaN'"), (b"", "b''")):
                self.assertRefused(SCALARS, {key: value}, key, f"is a number, not {shown}")
            reason = "is a number, not a number of 1329 bits"
            self.assertRefused(SCALARS, {key: 10**400}, key, reason)

    def test_shortFloats(self) -> None:
        """A number of 64 bits that 32 have no place for does not become infinite."""
        for value in (1e39, -1e300):
            reason = f"is a number of 32 bits, not {value!r}"
            self.assertRefused(SCALARS, {"floatField": value}, "floatField", reason)
            self.assertRefused(LISTS, {"floats": [1.0, value]}, "floats[1]", reason)
            self.assertRefused(MAPS, {"floats": {"a": value}}, "floats['a']", reason)
        largest = 3.4028234663852886e38
        self.assertBothWays(SCALARS, {"floatField": largest}, {"float_field": largest})

    def test_bools(self) -> None:
        """Only True and False are."""
        for value, shown in ((1, "1"), (0, "0"), ("true", "'true'"), (1.0, "1.0")):
            reason = f"is True or False, not {shown}"
            self.assertRefused(SCALARS, {"boolField": value}, "boolField", reason)

    def test_strings(self) -> None:
        """Only str is text, with whole characters."""
        self.assertEqual(
            SCALARS.decode(SCALARS.encode({"stringField": Text.A})), {"stringField": "a"}
        )
        for value, shown in ((5, "5"), (b"x", "b'x'"), (["x"], "a list"), (True, "True")):
            self.assertRefused(
                SCALARS, {"stringField": value}, "stringField", f"is a string, not {shown}"
            )
        for value in ("\ud800", "a\udfff", "\ud83d\ude00"):
            reason = f"is a string of whole characters, not {value!r}"
            self.assertRefused(SCALARS, {"stringField": value}, "stringField", reason)

    def test_bytes(self) -> None:
        """Bytes of any kind are bytes; text is none."""
        for value in (b"ab", bytearray(b"ab"), memoryview(b"xabx")[1:3]):
            self.assertEqual(
                SCALARS.decode(SCALARS.encode({"bytesField": value})), {"bytesField": b"ab"}
            )
        for value, shown in (("ab", "'ab'"), (5, "5"), ([1], "a list")):
            self.assertRefused(
                SCALARS, {"bytesField": value}, "bytesField", f"is bytes, not {shown}"
            )

    def test_enums(self) -> None:
        """A result may have a number, known or not; of two names of a number the first counts."""
        for value, expected in (
            (1, "GREEN"),
            ("VERT", "GREEN"),
            (5, "BLUE"),
            (Number.FIVE, "BLUE"),
            (6, 6),
        ):
            decoded = SCALARS.decode(SCALARS.encode({"colorField": value}))
            self.assertEqual(decoded, {"colorField": expected})
        for value, shown in (
            ("green", "'green'"),
            ("", "''"),
            ("1", "'1'"),
            (True, "True"),
            (1.0, "1.0"),
            (1 << 31, "2147483648"),
            (-(1 << 31) - 1, "-2147483649"),
            (b"RED", "b'RED'"),
        ):
            reason = f"is a name of kinds.Color, not {shown}"
            self.assertRefused(SCALARS, {"colorField": value}, "colorField", reason)

    def test_closedEnums(self) -> None:
        """An enum of proto2 also takes numbers without a name, which it gives."""
        plain = codec("old.Plain")
        self.assertBothWays(plain, {"size": "LARGE"}, {"size": 2})
        self.assertEqual(plain.decode(plain.encode({"size": 2})), {"size": "LARGE"})
        self.assertEqual(plain.encode({"size": 3}), b"\x20\x03")
        self.assertEqual(plain.decode(b"\x20\x03"), {"size": 3})
        self.assertRefused(plain, {"size": "X"}, "size", "is a name of old.Size, not 'X'")


class ListTests(ConversionCase):
    """Repeated fields."""

    def test_bothWays(self) -> None:
        """A list of each kind comes back as a list."""
        tree = messageClass("kinds.Tree")
        for name, value, wire in (
            ("numbers", [1, 0, -5], [1, 0, -5]),
            ("names", ["a", "", "a"], ["a", "", "a"]),
            ("doubles", [0.5, math.inf], [0.5, math.inf]),
            ("floats", [0.5], [0.5]),
            ("flags", [True, False], [True, False]),
            ("blobs", [b"", b"\xff"], [b"", b"\xff"]),
            ("colors", ["BLUE", "RED", 9], [5, 0, 9]),
            ("trees", [{}, {"leafName": "x"}], [tree(), tree(leaf_name="x")]),
            ("longs", [(1 << 64) - 1], [(1 << 64) - 1]),
        ):
            self.assertBothWays(LISTS, {name: value}, {name: wire})

    def test_otherTypes(self) -> None:
        """Items may be what a field of the kind may be; a tuple is a list."""
        for name, value, expected in (
            ("numbers", (1, 2.0), [1, 2]),
            ("names", (Text.A, "b"), ["a", "b"]),
            ("doubles", [1, 0.5], [1.0, 0.5]),
            ("blobs", [bytearray(b"a"), b"b"], [b"a", b"b"]),
            ("colors", ("VERT", 5), ["GREEN", "BLUE"]),
            ("trees", ({},), [{}]),
        ):
            self.assertEqual(LISTS.decode(LISTS.encode({name: value})), {name: expected})

    def test_refusedItems(self) -> None:
        """The item that is wrong is named by its index."""
        number = "is a whole number from -2147483648 to 2147483647, not"
        for name, value, index, reason in (
            ("numbers", [1, "2"], 1, f"{number} '2'"),
            ("numbers", [1, True], 1, f"{number} True"),
            ("numbers", [1, 2, 1 << 31], 2, f"{number} 2147483648"),
            ("names", ["a", b"b"], 1, "is a string, not b'b'"),
            ("names", ["\ud800"], 0, "is a string of whole characters, not '\\ud800'"),
            ("flags", [True, 1], 1, "is True or False, not 1"),
            ("colors", ["RED", "PINK"], 1, "is a name of kinds.Color, not 'PINK'"),
            ("doubles", [True], 0, "is a number, not True"),
        ):
            self.assertRefused(LISTS, {name: value}, f"{name}[{index}]", reason)
        reason = "is a string, not 5"
        self.assertRefused(LISTS, {"trees": [{}, {"leafName": 5}]}, "trees[1].leafName", reason)

    def test_noLists(self) -> None:
        """Strings, dictionaries and what can be read only once are no lists."""
        values: tuple[tuple[Any, str], ...] = (
            ("abc", "'abc'"),
            ({}, "a dict"),
            (iter([]), "a list_iterator"),
            (b"ab", "b'ab'"),
            ({1}, "a set"),
            (5, "5"),
        )
        for value, shown in values:
            for name in ("numbers", "names", "trees"):
                self.assertRefused(LISTS, {name: value}, name, f"is a list, not {shown}")


class MapTests(ConversionCase):
    """Map fields."""

    def test_bothWays(self) -> None:
        """Keys are what the proto says: text, numbers, True and False."""
        tree = messageClass("kinds.Tree")
        for key, value, wire in (
            ("labels", {"a": "", "": "b"}, {"labels": {"a": "", "": "b"}}),
            ("byNumber", {-5: "x", 0: ""}, {"by_number": {-5: "x", 0: ""}}),
            ("byFlag", {True: b"t", False: b""}, {"by_flag": {True: b"t", False: b""}}),
            ("colors", {(1 << 64) - 1: "BLUE", 0: 9}, {"colors": {(1 << 64) - 1: 5, 0: 9}}),
            ("doubles", {-(1 << 63): 0.5}, {"doubles": {-(1 << 63): 0.5}}),
            (
                "trees",
                {"a": {}, "b": {"leafName": "x"}},
                {"trees": {"a": tree(), "b": tree(leaf_name="x")}},
            ),
        ):
            self.assertBothWays(MAPS, {key: value}, wire)

    def test_refused(self) -> None:
        """The entry that is wrong is named by its key."""
        number = "a whole number from -2147483648 to 2147483647"
        # A message that passes for a mapping in Python.
        struct = messageClass("google.protobuf.Struct")()
        for key, value, path, reason in (
            ("labels", {"a": 5}, "labels['a']", "is a string, not 5"),
            ("labels", {5: "a"}, "labels[5]", "the key is a string, not 5"),
            ("byNumber", {"5": "a"}, "byNumber['5']", f"the key is {number}, not '5'"),
            ("byNumber", {True: "a"}, "byNumber[True]", f"the key is {number}, not True"),
            (
                "byNumber",
                {1 << 31: "a"},
                "byNumber[2147483648]",
                f"the key is {number}, not 2147483648",
            ),
            ("byFlag", {1: b"a"}, "byFlag[1]", "the key is True or False, not 1"),
            ("byFlag", {True: "a"}, "byFlag[True]", "is bytes, not 'a'"),
            ("colors", {1: "PINK"}, "colors[1]", "is a name of kinds.Color, not 'PINK'"),
            ("trees", {"a": {"leafName": 5}}, "trees['a'].leafName", "is a string, not 5"),
            ("lengths", {"a": "x"}, "lengths['a']", "is a length of time such as 1.5s, not 'x'"),
            ("labels", [("a", "b")], "labels", "is a mapping, not a list"),
            ("trees", "ab", "trees", "is a mapping, not 'ab'"),
            ("labels", struct, "labels", "is a mapping, not a Struct"),
        ):
            self.assertRefused(MAPS, {key: value}, path, reason)


class WordsTests(ConversionCase):
    """Reasons are short, whatever the value."""

    def test_short(self) -> None:
        """Not more than 60 characters of a value are shown, and no more than that of a key."""
        for value in (
            "x" * 10**6,
            b"\xff" * 10**6,
            10**70,
            -(10**400),
            [0] * 10**6,
            "\U0001f600" * 99,
        ):
            with self.assertRaises(ValueError) as caught:
                SCALARS.encode({"boolField": value})
            shown = str(caught.exception).partition(", not ")[2]
            self.assertLessEqual(len(shown), 60)
        with self.assertRaises(ValueError) as caught:
            SCALARS.encode({"k" * 10**6: 1})
        self.assertLess(len(str(caught.exception)), 120)

    def test_longPath(self) -> None:
        """A path that is long loses its beginning."""
        tree: dict[str, Any] = {"leafName": 5}
        for _ in range(40):
            tree = {"named": {"k" * 50: tree}}
        with self.assertRaises(ValueError) as caught:
            codec("kinds.Tree").encode(tree)
        words = str(caught.exception)
        self.assertLess(len(words), 300)
        self.assertTrue(words.startswith("..."), words)
        self.assertTrue(words.endswith(".leafName: is a string, not 5"), words)
