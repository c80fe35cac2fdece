"""Codecs of messages: what they carry, and what they refuse."""

import json
import math
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core import codecs
from storagegate.core.codecs import CODECS, JSON, MAX_CONTAINERS, MAX_DEPTH, MSGPACK
from tests.support.selection import long

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


def nested(levels: int, value: Any = 0) -> Any:
    """Make a list in a list in a list."""
    for _ in range(levels):
        value = [value]
    return value


class CodecTests(SynchronousTestCase):
    """Both codecs."""

    @long("takes seconds")
    @settings(deadline=None)
    @given(_values)
    def test_roundTrip(self, value: Any) -> None:
        """What was written is read again."""
        for name, codec in CODECS.items():
            self.assertEqual(codec.decode(codec.encode(value)), value, name)

    @long("takes a second or more")
    @settings(deadline=None)
    @given(_values)
    def test_others(self, value: Any) -> None:
        """Other implementations read what is written, and are read."""
        self.assertEqual(json.loads(JSON.encode(value)), value)
        self.assertEqual(JSON.decode(json.dumps(value).encode()), value)
        self.assertEqual(msgpack.unpackb(MSGPACK.encode(value)), value)
        self.assertEqual(MSGPACK.decode(msgpack.packb(value)), value)

    @settings(deadline=None)
    @given(st.binary())
    def test_garbage(self, data: bytes) -> None:
        """Any bytes give a value that can be written, or ValueError."""
        for codec in CODECS.values():
            try:
                value = codec.decode(data)
            except ValueError:
                continue
            codec.encode(value)

    def test_bytes(self) -> None:
        """Bytes are base64 in JSON and themselves in MessagePack."""
        for value in (b"\xff\0", bytearray(b"\xff\0"), memoryview(b"\xff\0")):
            self.assertEqual(JSON.encode({"chunk": value}), b'{"chunk":"/wA="}')
            self.assertEqual(MSGPACK.decode(MSGPACK.encode([value])), [b"\xff\0"])

    def test_largeIntegers(self) -> None:
        """JSON keeps integers of any size; MessagePack has 64 bits and refuses more."""
        for value in (2**64, -(10**40), 2**53 + 1):
            self.assertEqual(JSON.decode(JSON.encode(value)), value)
        for value in (2**64, -(2**63) - 1):
            self.assertRaises(ValueError, MSGPACK.encode, value)

    def test_refused(self) -> None:
        """What another wire could not carry is not written, however deep it lies."""
        refused: list[Any] = [
            math.nan,
            math.inf,
            -math.inf,
            {1, 2},
            frozenset(),
            object(),
            datetime.now(UTC),
            {1: "a"},
            {b"a": 1},
            {None: 1},
            "\ud800",
            10**5000,
            (part for part in "ab"),
        ]
        for value in refused:
            for name, codec in CODECS.items():
                for whole in (value, [value], {"a": value}, ({"a": [value]},)):
                    with self.assertRaises(ValueError, msg=f"{name} {type(value)}"):
                        codec.encode(whole)

    def test_noJSON(self) -> None:
        """What only looks like JSON is none."""
        for data in (
            b"",
            b"{",
            b"{} {}",
            b"NaN",
            b"[Infinity]",
            b"1e999",
            b'"\xff"',
            b'"\xed\xa0\x80"',
            b'"\\ud800"',
            b"{'a':1}",
            b"[1,]",
            b"\xef\xbb\xbf{}",
            b"9" * 5000,
        ):
            with self.assertRaises(ValueError, msg=repr(data[:20])):
                JSON.decode(data)

    def test_noMessagePack(self) -> None:
        """MessagePack that no JSON could say is refused, bytes apart."""
        for data in (
            b"",
            b"\xc1",
            b"\x01\x02",
            b"\x91",
            b"\xa1\xff",
            b"\xcb\x7f\xf8\0\0\0\0\0\0",
            b"\x91\xca\x7f\x80\0\0",
            b"\x81\x01\x02",
            b"\x81\xc4\x01a\x02",
            b"\x81\x80\x03",
            b"\xd6\xff\0\0\0\0",
            b"\xd4\x05a",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
        ):
            with self.assertRaises(ValueError, msg=repr(data)):
                MSGPACK.decode(data)

    def test_depth(self) -> None:
        """A value has a hundred levels at most, in and out, however deep the stack is already."""
        for codec in CODECS.values():
            self.assertEqual(codec.decode(codec.encode(nested(MAX_DEPTH))), nested(MAX_DEPTH))
            self.assertRaises(ValueError, codec.encode, nested(MAX_DEPTH + 1))
        for levels in (MAX_DEPTH + 1, 500, 100_000):
            self.assertRaises(ValueError, JSON.decode, b"[" * levels + b"0" + b"]" * levels)
            self.assertRaises(ValueError, JSON.decode, b'{"":' * levels + b"0" + b"}" * levels)
            self.assertRaises(ValueError, MSGPACK.decode, b"\x91" * levels + b"\x01")
            self.assertRaises(ValueError, MSGPACK.decode, b"\x81\xa0" * levels + b"\x01")

    def test_depthOfFew(self) -> None:
        """Nothing but brackets is as short as a value of so many levels can be."""
        levels = MAX_DEPTH + 1
        self.assertEqual(
            JSON.decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH), nested(MAX_DEPTH - 1, [])
        )
        self.assertRaises(ValueError, JSON.decode, b"[" * levels + b"]" * levels)

    def test_around(self) -> None:
        """A message around a value is written as one, and the value is checked where it lies."""
        for codec in CODECS.values():
            message = {"id": 7, "data": {"a": [1]}}
            self.assertEqual(codec.encodeAround(message["data"], message), codec.encode(message))
            self.assertEqual(codec.encodeAround([1], [1]), codec.encode([1]))
            for wrong in (math.nan, {1: 2}, datetime.now(UTC), nested(MAX_DEPTH)):
                self.assertRaises(ValueError, codec.encodeAround, wrong, {"id": 7, "data": wrong})
            deep = nested(MAX_DEPTH)
            self.assertEqual(codec.encodeAround(deep, deep), codec.encode(deep))

    def test_flat(self) -> None:
        """Many brackets side by side are not deep."""
        value = [[] for _ in range(1000)]
        self.assertEqual(JSON.decode(b"[" + b",".join([b"[]"] * 1000) + b"]"), value)

    def test_containers(self) -> None:
        """JSON with more lists and objects than can be read in a moment is refused."""
        most = b"[" + b",".join([b"[]", b"{}"] * (MAX_CONTAINERS // 2)) + b"]"
        self.assertRaises(ValueError, JSON.decode, most)
        self.assertEqual(len(JSON.decode(b"[" + most[4:])), MAX_CONTAINERS - 1)

    def test_bracketsInText(self) -> None:
        """Brackets in text are none."""
        text = '[{"' * MAX_CONTAINERS + "\\"
        self.assertEqual(JSON.decode(json.dumps(["a", text, {}]).encode()), ["a", text, {}])

    def test_circle(self) -> None:
        """A value that holds itself is refused."""
        value: list[Any] = []
        value.append(value)
        for codec in CODECS.values():
            self.assertRaises(ValueError, codec.encode, value)


_EDGES = (31, 32, 255, 256, 65535, 65536)
"""Lengths around which MessagePack writes another kind of length."""

_SAME_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0.1,
    1.0,
    -0.0,
    "",
    b"",
    [],
    {},
    0,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**32 - 1,
    2**32,
    2**64 - 1,
    -1,
    -32,
    -33,
    -128,
    -129,
    -32768,
    -32769,
    -(2**31),
    -(2**31) - 1,
    -(2**63),
    *("x" * length for length in _EDGES),
    *(b"x" * length for length in _EDGES),
    *([0] * length for length in (15, 16, 65535, 65536)),
    *({str(n): n for n in range(length)} for length in (15, 16, 65536)),
    "\u00e9\u20ac\U0001f600\0",
    (1, (2,)),
    bytearray(b"x"),
    memoryview(b"x"),
)

_SAME_WIRES: tuple[tuple[bytes, Any], ...] = (
    (b"\xd3\0\0\0\0\0\0\0\x01", 1),
    (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 2**64 - 1),
    (b"\xdb\0\0\0\x01a", "a"),
    (b"\xdd\0\0\0\x01\x01", [1]),
    (b"\xdf\0\0\0\x01\xa1a\x01", {"a": 1}),
    (b"\xca\x3d\xcc\xcc\xcd", 0.10000000149011612),
    (b"\x82\xa1a\x01\xa1a\x02", {"a": 2}),
)
"""Longer forms than necessary, a short float, and a key that comes twice."""

_BOTH_REFUSE = (
    b"",
    b"\xc1",
    b"\x91",
    b"\x01\x02",
    b"\xa1\xff",
    b"\xa3\xed\xa0\x80",
    b"\x81\x01\x02",
    b"\x81\xc0\x01",
    b"\x81\x91\x01\x01",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 100_000 + b"\x01",
)
"""Nothing, a part, more than one value, text that is not UTF-8, wrong keys and lengths, depth."""

_ONLY_WE_REFUSE = (
    msgpack.packb(msgpack.Timestamp(1, 2)),
    msgpack.packb(msgpack.ExtType(5, b"x")),
    msgpack.packb(math.nan),
    msgpack.packb(-math.inf),
    msgpack.packb({b"a": 1}),
    msgpack.packb(nested(MAX_DEPTH + 1)),
)
"""Values of MessagePack that other formats cannot carry."""


def _alikeKeys(count: int) -> list[tuple[int, int]]:
    """Make pairs of numbers with the same hash: the hash of tuples is xxHash without a seed."""
    word = 1 << 64
    first, second, begin = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x27D4EB2F165667C5
    mix = 1 << 31
    # The state before the last rotation and product.
    wanted = 7
    keys: list[tuple[int, int]] = []
    for one in range(1, 20 * count):
        state = (begin + one * second) % word
        state = (state * mix % word | state >> 33) * first % word
        other = (wanted - state) * pow(second, -1, word) % word
        # The hash of a smaller number is itself.
        if other < (1 << 61) - 1:
            keys.append((one, other))
        if len(keys) == count:
            break
    return keys


class MessagePackTests(SynchronousTestCase):
    """MessagePack as msgspec has it, and as the package C{msgpack} has it."""

    def test_sameBytes(self) -> None:
        """Both write a value as the same bytes, and each reads them as the same value."""
        for value in _SAME_VALUES:
            wire = MSGPACK.encode(value)
            self.assertEqual(wire, msgpack.packb(value))
            ours, theirs = MSGPACK.decode(wire), msgpack.unpackb(wire)
            self.assertEqual((ours, type(ours)), (theirs, type(theirs)))

    def test_sameValues(self) -> None:
        """Both read the same value from bytes that another writer would not have chosen."""
        for wire, value in _SAME_WIRES:
            self.assertEqual((MSGPACK.decode(wire), msgpack.unpackb(wire)), (value, value))

    def test_bothRefuse(self) -> None:
        """What is wrong to one is wrong to the other."""
        for wire in _BOTH_REFUSE:
            self.assertRaises(ValueError, MSGPACK.decode, wire)
            self.assertRaises(ValueError, msgpack.unpackb, wire)
        for value in (2**64, -(2**63) - 1, "\ud800"):
            self.assertRaises(ValueError, MSGPACK.encode, value)
            self.assertRaises((OverflowError, ValueError), msgpack.packb, value)

    def test_onlyWeRefuse(self) -> None:
        """What JSON and protobuf cannot carry is refused, though MessagePack has it."""
        for wire in _ONLY_WE_REFUSE:
            msgpack.unpackb(wire)
            self.assertRaises(ValueError, MSGPACK.decode, wire)

    def test_manyContainers(self) -> None:
        """Lists and mappings are counted, as in JSON; bytes that look like them are not."""
        most = 60
        self.patch(codecs, "MAX_CONTAINERS", most)
        for one in (b"\x90", b"\x80", b"\xdc\0\0", b"\xdf\0\0\0\0", b"\x91\xcb" + b"\x90" * 8):
            wire = b"\xdd" + (most - 1).to_bytes(4) + one * (most - 1)
            self.assertEqual(len(MSGPACK.decode(wire)), most - 1)
            wire = b"\xdd" + most.to_bytes(4) + one * most
            self.assertRaises(ValueError, MSGPACK.decode, wire)
        alike = bytes(range(256)) * 4
        for value in (
            alike,
            "\u0410" * 2 * most,
            [b"\x90" * 20, b"\x90" * 300, b"\x90" * 70_000] * most,
            ["\u0410" * 12, "\u0410" * 20, "\u0410" * 200, "\u0410" * 40_000] * most,
            [-112, 0x9090, -0x7000, 0x90909090, 2**63 + 0x90, 0.1, None, True] * most,
            {"text": "x" * 300, "many": [alike, alike[:200], [{}]] * 20, "\u0410" * 20: [1, 2]},
        ):
            self.assertEqual(MSGPACK.decode(MSGPACK.encode(value)), value)
        for wire in (
            b"\x90\xc1" + b"\x90" * 2 * most,
            b"\xc9\0\0\xff\xff\x05" + b"\x90" * 2 * most,
        ):
            self.assertRaises(ValueError, MSGPACK.decode, wire)

    def test_keys(self) -> None:
        """A large mapping with a list for a key is refused before the list is hashed."""
        alike = b"".join(b"\x92%b\xc0" % MSGPACK.encode(list(key))[1:] for key in _alikeKeys(8_000))
        self.assertEqual(len({hash(key) for key in _alikeKeys(100)}), 1)
        fill = b"\xa3abc\xc4\x01\xde\xda\x01\x00" + b"\xde" * 256
        for head in (b"\xde\xff\xff", b"\xdf\0\0\x1f\x40", b"\xdf\xff\xff\xff\xff"):
            mapping = head + alike
            # In quadratic time, each takes many seconds.
            for wire in (
                mapping,
                b"\x92" + fill[4:7] + mapping,
                b"\x82" + fill + mapping + b"\xa0\x01",
                b"\xdf\0\0\0\x01\xa1a\x93\x01" + mapping + b"\x01",
                head + b"\xa1a\x01\xa1b\x90" + alike,
                head + b"\xa1a" + mapping,
                b"\x81" * 50 + b"\xa1a" + mapping,
            ):
                self.assertRaises(ValueError, MSGPACK.decode, wire)
                self.assertRaises(ValueError, MSGPACK.decode, b"\xdd\0\0\0\x02\x01" + wire)

    def test_largeMappings(self) -> None:
        """Large mappings are read wherever they stand, and whatever stands in them."""
        for count in (15, 16, 63, 64, 65, 255, 256, 2_000):
            mapping: dict[str, Any] = {f"{at:x}": [at, {"a": [b"\xde"]}] for at in range(count)}
            for value in (
                mapping,
                [mapping, mapping, b"\xde\xff" * 300, 0xDEFFFF],
                {"a": {**mapping, "z": mapping}, "b": "\u07c0" * 300},
            ):
                wire = MSGPACK.encode(value)
                self.assertEqual(MSGPACK.decode(wire), value)
                self.assertRaises(ValueError, MSGPACK.decode, wire[:-1])
                self.assertRaises(ValueError, MSGPACK.decode, wire + b"\x01")

    def test_nestedLargeMappings(self) -> None:
        """Large mappings in large mappings are not read again and again."""
        head = b"\xde\0\x40" + b"".join(b"\xa2%02d\x01" % at for at in range(63)) + b"\xa1x"
        rest = MSGPACK.encode([1] * 1_000_000)
        self.assertEqual(len(MSGPACK.decode(head * 9 + rest)), 64)
        for levels in (11, 60, 5000):
            self.assertRaises(ValueError, MSGPACK.decode, head * levels + rest)

    def test_stepsOfTheCount(self) -> None:
        """Counting takes no step for each short value, however it writes its length."""
        fill = (b"\xc5\xff\xff" + b"\x80" * 65535) * 4
        count = 20_000
        # The first large value compiles the patterns.
        MSGPACK.decode(b"\xdd" + (4).to_bytes(4) + fill)
        for value, isCarried in (
            (b"\xd9\x00", True),
            (b"\xc4\x01\x90", True),
            (b"\xd9\x20" + b"a" * 32, True),
            (b"\xd9\x5c" + b"a" * 92, True),
            (b"\xc4\xff" + b"\x90" * 255, True),
            (b"\xda\x00\x00", True),
            (b"\xc5\x00\x00", True),
            (b"\xdb\x00\x00\x00\x00", True),
            (b"\xc6\x00\x00\x00\x03\x90\x90\x90", True),
            (b"\xc7\x00\x01", False),
            (b"\xc8\x00\x00\x01", False),
            (b"\xc9\x00\x00\x00\x02\x01\x90\x90", False),
        ):
            wire = b"\xdd" + (count + 4).to_bytes(4) + fill + value * count
            calls: Counter[str] = Counter()
            sys.setprofile(lambda frame, event, argument, calls=calls: calls.update([event]))
            try:
                decoded = MSGPACK.decode(wire) if isCarried else None
                if not isCarried:
                    self.assertRaises(ValueError, MSGPACK.decode, wire)
            finally:
                sys.setprofile(None)
            self.assertLess(calls["c_call"], count)
            if isCarried:
                self.assertEqual(len(decoded), count + 4)
