"""Messages of a few scalars: the same bytes, values and errors as with protobuf's object."""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.codec import UNKNOWN, MessageCodec, codecOf
from storagegate.rpc.converters import serialize
from storagegate.rpc.flatmessages import flatDecoder, flatEncoder, flatFields, varint
from tests.rpc.conversionprotos import codec as kindsCodec
from tests.rpc.conversionprotos import compilePool, messageClass

PROTO3 = """
syntax = "proto3";
package flat;
import "google/protobuf/struct.proto";

enum Color { option allow_alias = true; RED = 0; GREEN = 1; VERT = 1; BLUE = 500; MINUS = -3; }

message Nothing {}
message Texts { string first_text = 1; bytes raw = 3; string caps = 9 [json_name = "Caps"]; }
message Numbers {
  int32 small = 1; int64 large = 2; uint32 natural = 3; uint64 unsigned = 4;
  sint32 zigzag = 5; sint64 long_zigzag = 6;
}
message Fixed {
  fixed32 four = 1; fixed64 eight = 2; sfixed32 signed_four = 3; sfixed64 signed_eight = 4;
  float single = 5; double real = 6;
}
message Marks { bool flag = 1; Color color = 2; string text = 15; }
message Maybe {
  optional int32 small = 1; optional string text = 2; optional bool flag = 3;
  optional Color color = 4; optional bytes raw = 5; optional double real = 6;
  optional sint32 zigzag = 7; optional fixed32 four = 8;
}
message Far { int32 near = 1; string far = 16; bool farther = 3000; }
message Odd { string text = 1 [json_name = "@unknown"]; }
message Renamed { string inner_name = 1 [json_name = "outer"]; int32 plain = 2; }

message Repeated { repeated int32 numbers = 1; }
message Unpacked { repeated int32 numbers = 1 [packed = false]; }
message Mapped { map<string, string> labels = 1; }
message Nested { Texts texts = 1; }
message Either { oneof one { string text = 1; int32 number = 2; } }
message Nullable { google.protobuf.NullValue nothing = 1; }
message Wide {
  bool a = 1; bool b = 2; bool c = 3; bool d = 4; bool e = 5; bool f = 6; bool g = 7; bool h = 8;
  bool i = 9; bool j = 10; bool k = 11; bool l = 12; bool m = 13; bool n = 14; bool o = 15;
  bool p = 16; bool q = 17;
}
"""

PROTO2 = """
syntax = "proto2";
package old;

enum Size { SMALL = 1; LARGE = 2; }

message Plain {
  optional string text = 1; optional Size size = 2; optional int32 number = 3 [default = 7];
  extensions 100 to 199;
}
extend Plain { optional int32 extra = 100; }
message Needs { required string text = 1; }
"""

EDITION = """
edition = "2023";
package fresh;

message Mixed {
  int32 implicit = 2 [features.field_presence = IMPLICIT];
  string explicit = 3;
}
"""

POOL = compilePool(flat=PROTO3, old=PROTO2, fresh=EDITION)

READ = (
    "flat.Nothing",
    "flat.Texts",
    "flat.Numbers",
    "flat.Fixed",
    "flat.Marks",
    "flat.Maybe",
    "flat.Renamed",
    "old.Plain",
    "fresh.Mixed",
)
WRITTEN = (*READ, "flat.Far")
OTHER = (
    "flat.Repeated",
    "flat.Unpacked",
    "flat.Mapped",
    "flat.Nested",
    "flat.Either",
    "flat.Nullable",
    "old.Needs",
)


def codec(name: str) -> MessageCodec:
    """Return the codec of a message."""
    return codecOf(messageClass(name, POOL))


def outcome(function: Callable[..., Any], *arguments: Any) -> str:
    """
    Return a result with the types in it, or an error with its text.

    C{repr} tells 1 from True and -0.0 from 0.0, and has the order of keys.
    """
    try:
        result = function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return repr(result)


def encode(each: MessageCodec, value: Any) -> bytes:
    """Encode, whatever was left to protobuf before."""
    retry(each.encoder())
    return each.encode(value)


def decode(each: MessageCodec, wire: bytes) -> Any:
    """Decode, whatever was left to protobuf before."""
    retry(each.decoder())
    return each.decode(wire)


def retry(function: Any) -> None:
    """Let a function handle the next message, though it has left one to protobuf."""
    state = function.__globals__
    if "left" in state:
        state["left"] = 0


def leave(value: Any) -> Any:
    """Return C{None}: the fast path leaves the value to protobuf."""


def encodeWithObject(each: MessageCodec, value: Any) -> bytes:
    """Encode with the object of protobuf."""
    return serialize(each._toWire(value))


def decodeWithObject(each: MessageCodec, wire: bytes) -> Any:
    """Decode with the object of protobuf, as L{MessageCodec.decodeLarge} does in any case."""
    return each.decodeLarge(wire)


EDGES = [0, 1, 127, 128, 300, 16383, 16384, (1 << 21) - 1, 1 << 21]
EDGES += [
    sign * (1 << bits) + more
    for bits in (31, 32, 63, 64)
    for sign in (1, -1)
    for more in (-1, 0, 1)
]
INTEGERS = st.sampled_from(EDGES) | st.integers(-5, 70_000) | st.integers()
FLOATS = (
    st.sampled_from([-0.0, math.nan, math.inf, 3.4028235e38, 3.4028235677973366e38]) | st.floats()
)
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["RED", "VERT", "MINUS", "SMALL", "\ud800", "x" * 200, "y" * 20_000]
)
ITEMS = (
    st.none()
    | st.booleans()
    | INTEGERS
    | FLOATS
    | TEXTS
    | st.binary(max_size=4)
    | st.sampled_from([b"z" * 200, bytearray(b"a"), [], {}, 1j])
)
KINDS = {
    "bool": st.booleans(),
    "string": TEXTS,
    "bytes": st.binary(max_size=4),
    "double": FLOATS,
    "float": FLOATS,
    "enum": st.sampled_from(["RED", "GREEN", "VERT", "BLUE", "MINUS", "SMALL", "LARGE", 1, 9]),
}
"""Values that often fit; of other types, integers."""

_TYPES = {1: "double", 2: "float", 8: "bool", 9: "string", 12: "bytes", 14: "enum"}


def fitting(name: str) -> st.SearchStrategy[dict[Any, Any]]:
    """Return dictionaries with the right types, not always in range."""
    fields = codec(name).messageClass.DESCRIPTOR.fields
    return st.fixed_dictionaries(
        {},
        optional={
            each.json_name: KINDS.get(_TYPES.get(each.type, ""), INTEGERS) for each in fields
        },
    )


def anyDictionary(name: str) -> st.SearchStrategy[dict[Any, Any]]:
    """Return dictionaries with known and other keys."""
    fields = codec(name).messageClass.DESCRIPTOR.fields
    keys = [key for each in fields for key in (each.json_name, each.name)]
    keys += ["other", UNKNOWN, "[old.extra]", "", 5]  # type: ignore[list-item]
    return st.dictionaries(st.sampled_from(keys), ITEMS, max_size=5)


def shuffled(value: dict[Any, Any], data: Any) -> dict[Any, Any]:
    """Return a dictionary with its keys in another order."""
    return dict(data.draw(st.permutations(list(value.items()))))


law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class EquivalenceTests(SynchronousTestCase):
    """The results of protobuf's object, for every input."""

    @law
    @given(st.sampled_from(WRITTEN), st.data())
    def test_encode(self, name: str, data: Any) -> None:
        """Dictionaries that mostly fit have the same bytes, or the same error."""
        each = codec(name)
        value = shuffled(data.draw(fitting(name)), data)
        self.assertEqual(outcome(encode, each, value), outcome(encodeWithObject, each, value))

    @law
    @given(st.sampled_from([*WRITTEN, *OTHER]), st.data())
    def test_encodeAnything(self, name: str, data: Any) -> None:
        """So have dictionaries with any keys and values."""
        each = codec(name)
        value = data.draw(anyDictionary(name))
        self.assertEqual(outcome(encode, each, value), outcome(encodeWithObject, each, value))

    @law
    @given(st.sampled_from(READ), st.data())
    def test_decode(self, name: str, data: Any) -> None:
        """Messages as clients send them have the same values, in the same order."""
        each = codec(name)
        try:
            wire = encodeWithObject(each, data.draw(fitting(name)))
        except ValueError:
            return
        self.assertEqual(outcome(decode, each, wire), outcome(decodeWithObject, each, wire))

    @law
    @given(st.sampled_from(READ), st.data())
    def test_decodeFields(self, name: str, data: Any) -> None:
        """So have fields in any order, several times, unknown ones, and any way to write them."""
        each = codec(name)
        wire = b"".join(data.draw(st.lists(anyField(), max_size=5)))
        wire = wire[: data.draw(st.integers(0, len(wire)) | st.just(len(wire)))]
        self.assertEqual(outcome(decode, each, wire), outcome(decodeWithObject, each, wire))

    @law
    @given(st.sampled_from(READ), st.binary(max_size=12))
    def test_decodeAnything(self, name: str, wire: bytes) -> None:
        """So have any bytes."""
        each = codec(name)
        self.assertEqual(outcome(decode, each, wire), outcome(decodeWithObject, each, wire))

    def test_edges(self) -> None:
        """So have the first and last integers of each length and type."""
        for name in READ:
            each = codec(name)
            for field in each.messageClass.DESCRIPTOR.fields:
                for number in EDGES:
                    value = {field.json_name: number}
                    expected = outcome(encodeWithObject, each, value)
                    self.assertEqual(outcome(encode, each, value), expected)
                    # All of ten bytes, and what is longer.
                    wire = varint(field.number << 3) + varint(number % (1 << 70))
                    expected = outcome(decodeWithObject, each, wire)
                    self.assertEqual(outcome(decode, each, wire), expected, (name, field.name))

    def test_unknownAsKey(self) -> None:
        """A field that has the key of unknown fields gives way to them where they are kept."""
        each = codecOf(messageClass("flat.Odd", POOL), keepsUnknown=True)
        value = {UNKNOWN: b"\x12\1a"}
        self.assertEqual(each.encode(value), b"\x12\1a")
        self.assertEqual(codec("flat.Odd").encode({UNKNOWN: "a"}), b"\n\1a")
        for value in ({UNKNOWN: "a"}, {UNKNOWN: b"\n\1a"}):
            self.assertEqual(outcome(encode, each, value), outcome(encodeWithObject, each, value))

    @law
    @given(st.sampled_from(READ), st.data())
    def test_keptUnknown(self, name: str, data: Any) -> None:
        """Unknown fields are kept where they are asked for."""
        each = codecOf(messageClass(name, POOL), keepsUnknown=True)
        value = data.draw(fitting(name))
        value[UNKNOWN] = varint(90 << 3) + b"\5"
        self.assertEqual(outcome(encode, each, value), outcome(encodeWithObject, each, value))
        wire = b"".join(data.draw(st.lists(anyField(), max_size=4)))
        self.assertEqual(outcome(decode, each, wire), outcome(decodeWithObject, each, wire))


def anyField() -> st.SearchStrategy[bytes]:
    """Return a field of any wire type, whose varints may be longer than necessary."""
    number = st.sampled_from(EDGES).map(abs) | st.integers(0, 70_000)
    longer = st.sampled_from([0, 0, 0, 1, 2, 9])

    def stretched(number: int, count: int) -> bytes:
        wire = varint(number)
        if not count:
            return wire
        return wire[:-1] + bytes([wire[-1] | 0x80]) + b"\x80" * (count - 1) + b"\0"

    varints = st.builds(stretched, number, longer)
    sized = st.builds(
        lambda data, count: stretched(len(data), count) + data,
        st.binary(max_size=4)
        | st.text(max_size=4).map(str.encode)
        | st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"x" * 300]),
        longer,
    )
    values = {
        0: varints,
        1: st.binary(min_size=8, max_size=8) | st.sampled_from([bytes(8), bytes(7) + b"\x80"]),
        2: sized,
        5: st.binary(min_size=4, max_size=4) | st.sampled_from([bytes(4), bytes(3) + b"\x80"]),
    }
    return st.builds(
        lambda number, kind, data, count: (
            stretched(number << 3 | kind, count) + data.get(kind, b"")
        ),
        st.integers(0, 9) | st.sampled_from([15, 16, 100]),
        st.sampled_from([0, 0, 1, 2, 2, 5, 3, 4, 6]),
        st.fixed_dictionaries(values),
        st.sampled_from([0] * 9 + [1]),
    )


class UseTests(SynchronousTestCase):
    """Which messages are written and read without the object."""

    def functions(self, name: str) -> tuple[Any, Any]:
        """Return an encoder and a decoder that leave a message by returning C{None}."""
        fields = flatFields(messageClass(name, POOL).DESCRIPTOR, lambda each: each.enum_type)
        if fields is None:
            return leave, leave
        return flatEncoder(fields, leave), flatDecoder(fields, leave)

    def test_common(self) -> None:
        """Each scalar is written and read."""
        for name, value in (
            ("flat.Nothing", {}),
            ("flat.Texts", {"firstText": "\u20ac", "raw": b"\0", "Caps": "c" * 200}),
            ("flat.Numbers", {"small": 300, "large": 70_000, "natural": 1, "unsigned": 127}),
            ("flat.Numbers", {"zigzag": -1, "longZigzag": -70_000}),
            ("flat.Fixed", {"four": 1, "eight": 2, "signedFour": -1, "signedEight": -2}),
            ("flat.Fixed", {"single": 0.5, "real": -1e300}),
            ("flat.Marks", {"flag": True, "color": "BLUE", "text": "a"}),
            ("flat.Maybe", {"small": 0, "text": "", "flag": False, "color": "RED", "raw": b""}),
            ("flat.Maybe", {"real": 0.0, "zigzag": 0, "four": 0}),
        ):
            write, read = self.functions(name)
            wire = write(value)
            self.assertEqual(wire, encodeWithObject(codec(name), value))
            self.assertEqual(repr(read(wire)), repr(value))

    def test_absent(self) -> None:
        """Defaults and C{None} are absent; keys have any order."""
        write, read = self.functions("flat.Marks")
        self.assertEqual(write({"text": "", "color": "RED", "flag": False}), b"")
        self.assertEqual(write({"text": "a", "color": None, "flag": True}), b"\x08\1\x7a\1a")
        self.assertEqual(read(b""), {})

    def test_enum(self) -> None:
        """Names of one number are the first of them; a negative one has ten bytes."""
        write, read = self.functions("flat.Marks")
        wire = write({"color": "VERT"})
        self.assertEqual(wire, b"\x10\1")
        self.assertEqual(read(wire), {"color": "GREEN"})
        self.assertEqual(read(b"\x10\x07"), {"color": 7})
        self.assertEqual(write({"color": "MINUS"}), b"\x10\xfd" + b"\xff" * 8 + b"\1")

    def test_left(self) -> None:
        """Everything unusual is left to protobuf."""
        write, read = self.functions("flat.Marks")
        for value in (
            {"flag": 1},
            {"color": 1},
            {"color": "PINK"},
            {"text": b"a"},
            {"text": "\ud800"},
            {"other": 1},
            None,
        ):
            retry(write)
            self.assertIsNone(write(value))
        for wire in (
            b"\x08",
            b"\x08\0",
            b"\x08\2",
            b"\x08\x81\0",
            b"\x08\1\x08\1",
            b"\x10\1\x08\1",
            b"\x7a\2a",
            b"\x7a\1\xff",
            b"\x7a\x81\x80\0a",
            b"\x18\1",
        ):
            retry(read)
            self.assertIsNone(read(wire), wire)

    def test_long(self) -> None:
        """Negative integers are left to protobuf, and those of more than three bytes."""
        write, read = self.functions("flat.Numbers")
        for number in (-1, 1 << 21, 1 << 62):
            retry(write)
            retry(read)
            wire = encodeWithObject(codec("flat.Numbers"), {"large": number})
            self.assertIsNone(write({"large": number}))
            self.assertIsNone(read(wire))
        retry(write)
        retry(read)
        wire = write({"large": (1 << 21) - 1})
        self.assertEqual(wire, b"\x10\xff\xff\x7f")
        self.assertEqual(read(wire), {"large": (1 << 21) - 1})

    def test_pause(self) -> None:
        """After an unusual message the next 15 are left to protobuf, too, as they may be alike."""
        write, read = self.functions("flat.Texts")
        self.assertIsNone(write({"firstText": 1}))
        self.assertIsNone(read(b"\xff"))
        for number in range(17):
            wire, value = b"\n\1a", {"firstText": "a"}
            self.assertEqual(write(value), wire if number >= 15 else None)
            self.assertEqual(read(wire), value if number >= 15 else None)

    def test_far(self) -> None:
        """A tag of two bytes is written, and not read."""
        write, read = self.functions("flat.Far")
        value = {"near": 1, "far": "f", "farther": True}
        self.assertEqual(write(value), encodeWithObject(codec("flat.Far"), value))
        self.assertIs(read, leave)

    def test_notFlat(self) -> None:
        """Other messages are not flat."""
        for name in OTHER:
            self.assertEqual(self.functions(name), (leave, leave), name)
        self.assertEqual(self.functions("flat.Wide"), (leave, leave))

    def test_closedEnum(self) -> None:
        """The numbers of a closed enum are kept, as with the object."""
        each = codec("old.Plain")
        self.assertEqual(encode(each, {"size": "LARGE"}), b"\x10\2")
        self.assertEqual(decode(each, b"\x10\2"), {"size": "LARGE"})
        self.assertEqual(decode(each, b"\x10\x09"), {"size": 9})

    def test_severalFiles(self) -> None:
        """Messages of one name in two pools keep their own fields."""
        self.assertEqual(kindsCodec("old.Plain").encode({"texts": ["a"]}), b"\x12\1a")
        self.assertIn("is not a field", outcome(codec("old.Plain").encode, {"texts": ["a"]}))

    def test_varint(self) -> None:
        """An integer has seven bits a byte."""
        for number, wire in ((0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2")):
            self.assertEqual(varint(number), wire)
        self.assertEqual(varint((1 << 64) - 1), b"\xff" * 9 + b"\1")
