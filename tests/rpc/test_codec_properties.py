"""Laws of conversion, held against arbitrary values and against protobuf's own JSON mapping."""

import math
from base64 import b64encode
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError
from tests.rpc.conversionprotos import POOL, codec

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
UINT32 = st.integers(0, (1 << 32) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
TEXT = st.text(max_size=8)
BYTES = st.binary(max_size=8)
COLOR = st.sampled_from(["RED", "GREEN", "BLUE", "MINUS", 7, -9])
DOUBLE = st.floats(allow_nan=False)
FLOAT = st.floats(width=32, allow_nan=False)
FRACTION = st.sampled_from(["", ".001", ".500", ".000001", ".000000001", ".123456789"])
MOMENT = st.builds(
    lambda moment, fraction: f"{moment.replace(microsecond=0).isoformat()}{fraction}Z",
    st.datetimes(),
    FRACTION,
)
LENGTH = st.builds(
    lambda sign, seconds, fraction: f"{sign}{seconds}{fraction}s",
    st.sampled_from(["", "-"]),
    st.integers(1, 315576000000 - 1),
    FRACTION,
)
MASK = st.lists(st.from_regex(r"[a-z]([A-Z]?[a-z.])*", fullmatch=True), max_size=3).map(",".join)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - (1 << 53), (1 << 53) - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: not number.is_integer()
    )
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def trees(maps: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    """Give trees, with maps in them or without: the entries of a map have no order on the wire."""

    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        fields = {
            "leafName": TEXT.filter(bool),
            "leftTree": inner,
            "many": st.lists(inner, min_size=1, max_size=3),
        }
        if maps:
            fields["named"] = st.dictionaries(TEXT, inner, min_size=1, max_size=3)
        return st.fixed_dictionaries({}, optional=fields)

    return st.recursive(st.just({}), around, max_leaves=6)


TREE = trees()


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Give dictionaries with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def filled(item: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Give lists that are there: empty ones are left out."""
    return st.lists(item, min_size=1, max_size=4)


def mapped(key: st.SearchStrategy[Any], item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give maps that are there."""
    return st.dictionaries(key, item, min_size=1, max_size=4)


ANY = st.just({}) | trees(maps=False).map(
    lambda tree: {"@type": "type.googleapis.com/kinds.Tree", **tree}
)
KNOWN = some(
    createdAt=MOMENT,
    howLong=LENGTH,
    updateMask=MASK,
    structValue=st.dictionaries(TEXT, JSON, max_size=3),
    anyJson=JSON,
    jsonList=st.lists(JSON, max_size=3),
    detail=ANY,
    nothing=st.just({}),
    doubleValue=DOUBLE,
    floatValue=FLOAT,
    int64Value=INT64,
    uint64Value=UINT64,
    int32Value=INT32,
    uint32Value=UINT32,
    boolValue=st.booleans(),
    stringValue=TEXT,
    bytesValue=BYTES,
    optionalNull=st.none(),
    stringValues=filled(TEXT),
)
VALUES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "kinds.Scalars": some(
        int32Field=INT32,
        sint32Field=INT32,
        sfixed32Field=INT32,
        uint32Field=UINT32,
        fixed32Field=UINT32,
        int64Field=INT64,
        sint64Field=INT64,
        sfixed64Field=INT64,
        uint64Field=UINT64,
        fixed64Field=UINT64,
        floatField=FLOAT,
        doubleField=DOUBLE,
        boolField=st.booleans(),
        stringField=TEXT,
        bytesField=BYTES,
        colorField=COLOR,
        # What has no presence is left out at its default.
    ).map(lambda value: {key: item for key, item in value.items() if item and item != "RED"}),
    "kinds.Presence": some(
        aNumber=INT32,
        aText=TEXT,
        aFlag=st.booleans(),
        aColor=COLOR,
        someBytes=BYTES,
        aDouble=DOUBLE,
    ),
    "kinds.Lists": some(
        numbers=filled(INT32),
        names=filled(TEXT),
        doubles=filled(DOUBLE),
        floats=filled(FLOAT),
        flags=filled(st.booleans()),
        blobs=filled(BYTES),
        colors=filled(COLOR),
        trees=filled(TREE),
        longs=filled(UINT64),
        moments=filled(MOMENT),
        values=filled(JSON),
    ),
    "kinds.Maps": some(
        labels=mapped(TEXT, TEXT),
        byNumber=mapped(INT32, TEXT),
        byFlag=mapped(st.booleans(), BYTES),
        colors=mapped(UINT64, COLOR),
        trees=mapped(TEXT, TREE),
        doubles=mapped(INT64, DOUBLE),
        lengths=mapped(TEXT, LENGTH),
        floats=mapped(TEXT, FLOAT),
    ),
    "kinds.Choice": st.sampled_from(
        ["textChoice", "numberChoice", "colorChoice", "nullChoice"]
    ).flatmap(
        lambda key: st.fixed_dictionaries(
            {
                key: {
                    "textChoice": TEXT,
                    "numberChoice": INT32,
                    "colorChoice": COLOR,
                    "nullChoice": st.none(),
                }[key]
            }
        )
    ),
    "kinds.Tree": TREE,
    "kinds.Known": KNOWN,
}
MESSAGES = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(codec(name)), VALUES[name])
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | BYTES
    | st.sampled_from(["RED", "2026-01-02T03:04:05Z", "1s", "a,b", "\ud800", 5j, object]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=8,
)


def asJson(value: Any) -> Any:
    """Write a value as protobuf's parser of JSON wants it."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [asJson(item) for item in value]
    if isinstance(value, dict):
        return {_asKey(key): asJson(item) for key, item in value.items()}
    return value


def _asKey(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def parsed(codec: MessageCodec, value: Any) -> Any:
    """Have protobuf read a value."""
    message = codec.messageClass()
    return json_format.ParseDict(asJson(value), message, descriptor_pool=POOL)


# How long an example takes is the machine's affair: a busy one is no broken promise.
law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class LawTests(SynchronousTestCase):
    """Promises that hold for every value."""

    @law
    @given(MESSAGES)
    def test_roundTrip(self, case: tuple[MessageCodec, dict[str, Any]]) -> None:
        """What was encoded is decoded again."""
        codec, value = case
        self.assertEqual(codec.decode(codec.encode(value)), value)

    @law
    @given(MESSAGES)
    def test_encodeOracle(self, case: tuple[MessageCodec, dict[str, Any]]) -> None:
        """A value becomes the message that protobuf makes of its JSON."""
        codec, value = case
        self.assertEqual(codec.toMessage(value), parsed(codec, value))

    @law
    @given(MESSAGES)
    def test_decodeOracle(self, case: tuple[MessageCodec, dict[str, Any]]) -> None:
        """A message becomes a value that is the same JSON as protobuf's own."""
        codec, value = case
        message = parsed(codec, value)
        own = json_format.MessageToDict(message, descriptor_pool=POOL)
        ours = codec.toDict(message)
        self.assertEqual(set(ours), set(own))
        self.assertEqual(parsed(codec, ours), message)
        # Where a number of 64 bits is no string, nor a float cut short, the two are equal.
        for key in ours:
            if not _hasNumbers(ours[key]):
                self.assertEqual(asJson(ours[key]), own[key])

    @law
    @given(MESSAGES)
    def test_ownNames(self, case: tuple[MessageCodec, dict[str, Any]]) -> None:
        """The names of the proto will do as well."""
        codec, value = case
        names = {field.json_name: field.name for field in codec.messageClass.DESCRIPTOR.fields}
        renamed = {names[key]: item for key, item in value.items()}
        self.assertEqual(codec.toMessage(renamed), codec.toMessage(value))

    @law
    @given(
        st.sampled_from([*VALUES, "old.Plain", "old.Needs", "google.protobuf.Value"]), st.binary()
    )
    def test_anyBytes(self, name: str, wire: bytes) -> None:
        """Any bytes are decoded or refused, and refused if protobuf refuses them."""
        each = codec(name)
        try:
            each.messageClass.FromString(wire)
        except DecodeError:
            self.assertRaises(ConversionError, each.decode, wire)
            return
        try:
            each.decode(wire)
        except ConversionError as error:
            self.assertLess(len(str(error)), 400)

    @law
    @given(MESSAGES, st.data())
    def test_brokenBytes(self, case: tuple[MessageCodec, dict[str, Any]], data: Any) -> None:
        """So are bytes of which one is wrong."""
        codec, value = case
        wire = bytearray(codec.encode(value))
        if wire:
            wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
        try:
            codec.decode(bytes(wire))
        except ConversionError as error:
            self.assertLess(len(str(error)), 400)

    @law
    @given(st.sampled_from(sorted(VALUES)), st.data())
    def test_anyValue(self, name: str, data: Any) -> None:
        """Any value is encoded or refused; what was encoded can be decoded."""
        each = codec(name)
        keys = [field.json_name for field in each.messageClass.DESCRIPTOR.fields]
        value = data.draw(st.dictionaries(st.sampled_from(keys), ANYTHING, max_size=4))
        try:
            wire = each.encode(value)
        except ConversionError as error:
            self.assertLess(len(str(error)), 400)
            return
        each.decode(wire)


def _hasNumbers(value: Any) -> bool:
    """Tell whether protobuf's JSON may have a number in a value in another way."""
    if isinstance(value, list):
        return any(map(_hasNumbers, value))
    if isinstance(value, dict):
        return any(map(_hasNumbers, value.values()))
    return isinstance(value, int | float) and not isinstance(value, bool)
