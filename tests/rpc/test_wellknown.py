"""Wrappers, masks, JSON's own values, and messages of any type."""

import math
from types import MappingProxyType
from typing import Any

from tests.rpc.conversioncase import ConversionCase
from tests.rpc.conversionprotos import codec, compilePool, messageClass

KNOWN, STRUCT, ANY = (
    codec("kinds.Known"),
    codec("google.protobuf.Struct"),
    codec("google.protobuf.Any"),
)
LISTS, VALUE = codec("kinds.Lists"), codec("google.protobuf.Value")
PREFIX = "type.googleapis.com/"


class WrapperTests(ConversionCase):
    """Scalars with presence, as proto3 had them before C{optional}."""

    def test_bothWays(self) -> None:
        """A wrapper is its bare value, there also with the default."""
        for name, values in (
            ("double_value", (0.0, 1.5, math.inf)),
            ("float_value", (0.0, 1.5)),
            ("int64_value", (0, -(1 << 63))),
            ("uint64_value", (0, (1 << 64) - 1)),
            ("int32_value", (0, -5)),
            ("uint32_value", (0, 5)),
            ("bool_value", (False, True)),
            ("string_value", ("", "x")),
            ("bytes_value", (b"", b"\xff")),
        ):
            field = KNOWN.messageClass.DESCRIPTOR.fields_by_name[name]
            wrapper = messageClass(field.message_type.full_name)
            for value in values:
                wire = {name: wrapper(value=value)}
                self.assertBothWays(KNOWN, {field.json_name: value}, wire)
                self.assertBothWays(codec(field.message_type.full_name), value, {"value": value})

    def test_lists(self) -> None:
        """In lists, too."""
        decoded = KNOWN.decode(KNOWN.encode({"stringValues": ["a", ""]}))
        self.assertEqual(decoded, {"stringValues": ["a", ""]})

    def test_refused(self) -> None:
        """The value is checked as the scalar is."""
        for key, value, reason in (
            ("stringValue", 5, "is a string, not 5"),
            ("stringValue", {"value": "x"}, "is a string, not a dict"),
            ("boolValue", 1, "is True or False, not 1"),
            ("uint32Value", -1, "is a whole number from 0 to 4294967295, not -1"),
        ):
            self.assertRefused(KNOWN, {key: value}, key, reason)
        self.assertRefused(codec("google.protobuf.StringValue"), None, "", "is a string, not None")


class NullTests(ConversionCase):
    """C{NullValue}, whose only value is C{None}."""

    def test_bothWays(self) -> None:
        """It is C{None}, and there where it has presence."""
        self.assertBothWays(KNOWN, {"optionalNull": None}, {"optional_null": 0})
        self.assertEqual(KNOWN.encode({"aNull": None}), b"")
        self.assertEqual(
            KNOWN.decode(KNOWN.encode({"optionalNull": "NULL_VALUE"})), {"optionalNull": None}
        )


class MaskTests(ConversionCase):
    """Field masks."""

    def test_bothWays(self) -> None:
        """A mask is its paths, in the names that handlers know."""
        mask = messageClass("google.protobuf.FieldMask")
        for text, paths in (
            ("", []),
            ("name", ["name"]),
            ("name,address.zipCode", ["name", "address.zip_code"]),
            ("aB.cD,e1", ["a_b.c_d", "e1"]),
            ("Name", ["_name"]),
            ("address_line_1,a_,a__b", ["address_line_1", "a_", "a__b"]),
        ):
            self.assertBothWays(KNOWN, {"updateMask": text}, {"update_mask": mask(paths=paths)})
            self.assertBothWays(codec("google.protobuf.FieldMask"), text, {"paths": paths})

    def test_besides(self) -> None:
        """A path is looked up beside the mask, by own names, then by JSON names."""
        update = codec("kinds.Update")
        mask = messageClass("google.protobuf.FieldMask")
        for text, paths in (
            ("addressLine1", ["address_line_1"]),
            ("homeAddress.addressLine1,outer", ["home_address.address_line_1", "renamed"]),
            ("Caps", ["Caps"]),
            ("otherName", ["other_name"]),
        ):
            wire = {"mask": mask(paths=paths)}
            self.assertBothWays(update, {"mask": text}, wire)
        for text in ("address_line_1", "home_address.address_line_1", "renamed"):
            message: Any = update.toMessage({"mask": text})
            self.assertEqual(message.mask.paths, [text])

    def test_refused(self) -> None:
        """What would not come back the same is refused."""
        for value, reason in (
            ("a,,b", "is paths such as name,address.zipCode, not 'a,,b'"),
            (",", "is paths such as name,address.zipCode, not ','"),
            ("\ud800", "is a string of whole characters, not '\\ud800'"),
            (["name"], "is a string, not a list"),
            (0, "is a string, not 0"),
            ([], "is a string, not a list"),
        ):
            self.assertRefused(KNOWN, {"updateMask": value}, "updateMask", reason)

    def test_unreadable(self) -> None:
        """A path that has no name in JSON is refused."""
        for path in ("zipCode", "a,b", ""):
            mask = messageClass("google.protobuf.FieldMask")(paths=["name", path])
            reason = f"has the path {path!r}, which has no name in handlers"
            self.assertUnreadable(KNOWN, KNOWN.messageClass(update_mask=mask), "updateMask", reason)


class StructTests(ConversionCase):
    """What JSON can say."""

    def test_bothWays(self) -> None:
        """Plain values come back the same, whole numbers as int."""
        value = {
            "text": "\u00e4",
            "": "",
            "whole": 5,
            "half": 0.5,
            "yes": True,
            "no": False,
            "nothing": None,
            "list": [1, "a", None, [], [[]], {}],
            "dict": {"a": {"b": {}}},
            "largest": (1 << 53) - 1,
            "smallest": 1 - (1 << 53),
        }
        decoded = STRUCT.decode(STRUCT.encode(value))
        self.assertEqual(decoded, value)
        self.assertSameTypes(decoded, {key: value[key] for key in decoded})
        inside = {"structValue": value, "anyJson": value, "jsonList": [value]}
        self.assertEqual(KNOWN.decode(KNOWN.encode(inside)), inside)

    def test_bare(self) -> None:
        """Each of the three is its value, also as a whole message."""
        for value in (None, True, 5, 0.5, "x", [], [1], {}, {"a": 1}):
            self.assertEqual(VALUE.decode(VALUE.encode(value)), value)
            self.assertEqual(KNOWN.decode(KNOWN.encode({"anyJson": value})), {"anyJson": value})
        values = [None, 1, "x"]
        self.assertEqual(LISTS.decode(LISTS.encode({"values": values})), {"values": values})
        listValue = codec("google.protobuf.ListValue")
        self.assertEqual(listValue.decode(listValue.encode((1, "a"))), [1, "a"])
        self.assertEqual(listValue.decode(b""), [])

    def test_numbers(self) -> None:
        """From 2**53 on numbers are floats: not each whole one is told from its neighbour."""
        for value, expected in (
            (5.0, 5),
            (0.0, 0),
            (-0.0, -0.0),
            ((1 << 53) - 1, (1 << 53) - 1),
            (1 << 53, float(1 << 53)),
            (-(1 << 53), float(-(1 << 53))),
            (float(1 << 60), float(1 << 60)),
            (1e300, 1e300),
        ):
            self.assertSameTypes(VALUE.decode(VALUE.encode(value)), expected)
            self.assertEqual(VALUE.decode(VALUE.encode(value)), expected)

    def test_unset(self) -> None:
        """A value that was not set is C{None}."""
        self.assertIsNone(VALUE.decode(b""))

    def test_mappings(self) -> None:
        """Mappings and tuples will do, at any depth."""
        value = MappingProxyType({"a": (MappingProxyType({"b": 1}),)})
        self.assertEqual(STRUCT.decode(STRUCT.encode(value)), {"a": [{"b": 1}]})

    def test_refused(self) -> None:
        """What JSON cannot say is refused, and where it is."""
        number = "is a number that JSON can represent, not"
        whole = "is a whole number of at most 2**53, beyond which digits are lost, not"
        for value, path, reason in (
            ({"a": math.nan}, "a", f"{number} nan"),
            ({"a": [1, math.inf]}, "a[1]", f"{number} inf"),
            ({"a": {"b": [-math.inf]}}, "a.b[0]", f"{number} -inf"),
            ({"a": 10**400}, "a", f"{whole} a number of 1329 bits"),
            ({"a": [{"b": 2**53 + 1}]}, "a[0].b", f"{whole} 9007199254740993"),
            ({"a": -(2**60)}, "a", f"{whole} -1152921504606846976"),
            ({"a": b"x"}, "a", "is a value that JSON can represent, not b'x'"),
            ({"a": {1}}, "a", "is a value that JSON can represent, not a set"),
            ({"a": "\ud800"}, "a", "is a string of whole characters, not '\\ud800'"),
            ({5: "a"}, "5", "is a string, not 5"),
            ({"\ud800": 1}, "'\\ud800'", "is a string of whole characters, not '\\ud800'"),
            ([], "", "is a mapping, not a list"),
            (None, "", "is a mapping, not None"),
            (
                {"a": messageClass("kinds.Tree")()},
                "a",
                "is a value that JSON can represent, not a Tree",
            ),
            (
                {"a": messageClass("google.protobuf.Struct")()},
                "a",
                "is a value that JSON can represent, not a Struct",
            ),
        ):
            self.assertRefused(STRUCT, value, path, reason)
        self.assertRefused(KNOWN, {"jsonList": "ab"}, "jsonList", "is a list, not 'ab'")

    def test_unreadable(self) -> None:
        """A number on the wire that JSON does not have is refused."""
        for number in (math.nan, math.inf, -math.inf):
            message: Any = KNOWN.messageClass()
            message.struct_value.fields["a"].list_value.values.add().number_value = number
            reason = f"is a number that JSON can represent, not {number}"
            self.assertUnreadable(KNOWN, message, "structValue.a[0]", reason)


class AnyTests(ConversionCase):
    """Messages of any type."""

    def test_fields(self) -> None:
        """The fields of the message stand beside its type, which may have any host."""
        for host in (PREFIX, "/", "", "example.org/a/"):
            value = {"@type": f"{host}kinds.Tree", "leafName": "x", "many": [{}]}
            decoded = KNOWN.decode(KNOWN.encode({"detail": value}))
            self.assertEqual(decoded, {"detail": value})
            self.assertEqual(ANY.decode(ANY.encode(value)), value)
        message: Any = ANY.toMessage({"@type": f"{PREFIX}kinds.Tree", "leaf_name": "x"})
        self.assertEqual(message.type_url, f"{PREFIX}kinds.Tree")
        self.assertEqual(
            message.value, messageClass("kinds.Tree")(leaf_name="x").SerializeToString()
        )

    def test_bare(self) -> None:
        """A type that is no dictionary of fields has its value beside it."""
        inner = {"@type": f"{PREFIX}kinds.Tree", "leafName": "x"}
        for name, value in (
            ("Duration", "1.500s"),
            ("Timestamp", "2026-01-02T03:04:05Z"),
            ("StringValue", ""),
            ("Int64Value", 1 << 60),
            ("BytesValue", b"x"),
            ("FieldMask", "a,bC"),
            ("Struct", {"@type": "x", "value": 1}),
            ("Value", None),
            ("ListValue", [1]),
            ("Any", inner),
        ):
            whole = {"@type": f"{PREFIX}google.protobuf.{name}", "value": value}
            self.assertEqual(ANY.decode(ANY.encode(whole)), whole)

    def test_empty(self) -> None:
        """Nothing at all is an empty one; a message without fields has only its type."""
        self.assertEqual(ANY.encode({}), b"")
        self.assertEqual(ANY.decode(b""), {})
        value = {"@type": f"{PREFIX}google.protobuf.Empty"}
        self.assertEqual(ANY.decode(ANY.encode(value)), value)

    def test_unknownType(self) -> None:
        """Of a type that the pool does not have, the bytes are passed on."""
        for url in (f"{PREFIX}no.such.Type", "no.such.Type", "", "a/", "/"):
            value = {"@type": url, "value": b"\xff\x00"}
            self.assertEqual(ANY.decode(ANY.encode(value)), value)
        decoded = ANY.decode(ANY.encode({"@type": "x/y"}))
        self.assertEqual(decoded, {"@type": "x/y", "value": b""})

    def test_ownPool(self) -> None:
        """Types are those of the message's own pool."""
        value = {"@type": f"{PREFIX}kinds.Tree", "leafName": "x"}
        pool = compilePool(alone='syntax = "proto3"; import public "google/protobuf/any.proto";')
        self.assertNotEqual(
            pool.FindMessageTypeByName("google.protobuf.Any"), ANY.messageClass.DESCRIPTOR
        )
        foreign = type(ANY)(messageClass("google.protobuf.Any", pool))
        wire = ANY.encode(value)
        tree = messageClass("kinds.Tree")(leaf_name="x").SerializeToString()
        self.assertEqual(foreign.decode(wire), {"@type": f"{PREFIX}kinds.Tree", "value": tree})

    def test_refused(self) -> None:
        """What is wrong in it is named, from where the message stands."""
        tree, length = f"{PREFIX}kinds.Tree", f"{PREFIX}google.protobuf.Duration"
        unknown = "is the unknown type 'x/y', which takes only a value of bytes"
        for value, path, reason in (
            ({"leafName": "x"}, "detail", "has no @type"),
            ({"@type": 5}, "detail.@type", "is a string, not 5"),
            ({"@type": "\ud800"}, "detail.@type", "is a string of whole characters, not '\\ud800'"),
            ({"@type": tree, "leafName": 5}, "detail.leafName", "is a string, not 5"),
            ({"@type": tree, "value": b""}, "detail.value", "is not a field of kinds.Tree"),
            ({"@type": length}, "detail", f"has no value, which {length!r} needs"),
            (
                {"@type": length, "value": "x"},
                "detail.value",
                "is a length of time such as 1.5s, not 'x'",
            ),
            ({"@type": length, "value": "1s", "a": 1}, "detail.a", f"is not a field of {length!r}"),
            ({"@type": "x/y", "a": 1}, "detail.@type", unknown),
            ({"@type": "x/y", "value": "1s"}, "detail.@type", unknown),
            ("x", "detail", "is a mapping with @type, not 'x'"),
            ({"@type": f"{PREFIX}old.Needs"}, "detail.a_name", "is required"),
        ):
            self.assertRefused(KNOWN, {"detail": value}, path, reason)

    def test_unreadable(self) -> None:
        """Bytes that are no message of the type that they are said to be are refused."""
        detail = ANY.messageClass(type_url=f"{PREFIX}kinds.Tree", value=b"\xff")
        wire = KNOWN.messageClass(detail=detail)
        self.assertUnreadable(KNOWN, wire, "detail", "is not a valid kinds.Tree message")
        bad = messageClass("google.protobuf.Duration")(seconds=1, nanos=-1).SerializeToString()
        detail = ANY.messageClass(type_url=f"{PREFIX}google.protobuf.Duration", value=bad)
        reason = "is not a length of time up to 10,000 years"
        self.assertUnreadable(KNOWN, KNOWN.messageClass(detail=detail), "detail.value", reason)
